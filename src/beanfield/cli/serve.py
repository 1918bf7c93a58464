"""From parsed options to a running supervisor: listen first, then everything else.

A client may connect 100 ms after exec, so nothing heavy is imported before the sockets listen; that is why imports
stand inside functions here. Then privileges are dropped, and only then the supervisor is loaded.
"""

import os
import sys

from beanfield.cli.options import Ending, ServeOptions
from beanfield.io.sockets import Listener, ListenError, adopt, inherited_descriptors, listen

EXIT_USER_LOOKUP = 32
EXIT_NO_SUCH_USER = 33
EXIT_SETUID = 34
EXIT_LISTEN = 111
EXIT_OPTIMIZED = 1


def run(options: ServeOptions) -> int:
    """Serve until told to stop; the exit code. Raises Ending."""
    if not __debug__:
        sentence = "does not run under python -O: its assertions guard the data"
        raise Ending(EXIT_OPTIMIZED, err=f"{options.program}: {sentence}\n")
    for warning in options.warnings:
        _warn(options, warning)
    listeners = open_listeners(options)
    if options.user is not None:
        drop_privileges(options)
    from beanfield.supervisor.main import supervise

    return supervise(options, listeners)


def finish(ending: Ending) -> int:
    """Print what an Ending says."""
    sys.stdout.write(ending.out)
    sys.stdout.flush()
    sys.stderr.write(ending.err)
    sys.stderr.flush()
    return ending.code


def open_listeners(options: ServeOptions) -> list[Listener]:
    """The service manager's sockets if it passed any, else the address of the options."""
    try:
        inherited = inherited_descriptors()
        if inherited:
            for given in options.address_given:
                _warn(options, f"inherited listen fd; ignoring option: {given}")
            return [adopt(descriptor) for descriptor in inherited]
        return [listen(options.listen, options.port)]
    except ListenError as error:
        raise Ending(EXIT_LISTEN, err=f"{options.program}: make_server_socket(): {error}\n") from None


def drop_privileges(options: ServeOptions) -> None:
    """Become the user of -u, with its group and its other groups, for good."""
    import pwd

    user = options.user
    assert user is not None
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        raise Ending(EXIT_NO_SUCH_USER, err=f'{options.program}: getpwnam("{user}"): no such user\n') from None
    except OSError as error:
        raise Ending(EXIT_USER_LOOKUP, err=f'{options.program}: getpwnam("{user}"): {error}\n') from None
    try:
        # Another user's group list is root's to set; who already is that user keeps the one there is.
        if os.getuid() != entry.pw_uid or os.getgid() != entry.pw_gid or os.getuid() == 0:
            os.initgroups(user, entry.pw_gid)
        os.setgid(entry.pw_gid)
        os.setuid(entry.pw_uid)
    except OSError as error:
        raise Ending(EXIT_SETUID, err=f'{options.program}: becoming user "{user}": {error.strerror}\n') from None
    # Children are exec'ed, and what is not loaded yet is loaded by this user.
    for path, mode in ((sys.executable, os.X_OK), (os.__file__, os.R_OK), (__file__, os.R_OK)):
        if not os.access(path, mode):
            raise Ending(
                EXIT_SETUID, err=f'{options.program}: user "{user}" may not use {path}, which the server needs\n'
            )


def _warn(options: ServeOptions, text: str) -> None:
    sys.stderr.write(f"{options.program}: {text}\n")
