"""Sockets that clients connect to: made once by the supervisor, accepted from by every frontend.

Rules: an address belongs to one server. TCP is bound with SO_REUSEADDR (so a restart does not wait for old connections)
and never with SO_REUSEPORT (so a second server is refused). A unix path with a live listener is refused, a stale one is
removed. Whatever cannot be bound is a ListenError, whose text the command prints before it exits with 111.

This module does not know who accepts, or when.
"""

import errno
import fcntl
import os
import socket
import stat
import sys
import time
from collections.abc import Mapping
from typing import Final

from beanfield.constants import LISTEN_BACKLOG, NS_PER_MS, NS_PER_S, UNIX_PATH_BYTES_MAX

UNIX_PREFIX: Final = "unix:"
INHERITED_FIRST: Final = 3  # systemd: the first passed descriptor

# accept(): what came instead of a descriptor
ACCEPTED_NONE: Final = -1  # nobody was waiting (any more)
ACCEPTED_NO_ROOM: Final = -2  # out of descriptors or memory: the listener stays readable, so wait before trying again

_NO_ROOM: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_LOCK_WAIT_NS: Final = 1 * NS_PER_S
# Linux hands a listener's options to the sockets it accepts.
_OPTIONS_INHERITED: Final = sys.platform == "linux"


class ListenError(Exception):
    """An address that this server cannot have."""


class Listener:
    """A listening socket. Its options are set here, so it may come from anywhere: listen(), systemd, the supervisor."""

    def __init__(self, listening: socket.socket) -> None:
        self.socket = listening
        self.is_tcp = listening.family in (socket.AF_INET, socket.AF_INET6)
        listening.setblocking(False)
        _set_stream_options(listening, self.is_tcp)

    def fileno(self) -> int:
        return self.socket.fileno()

    def close(self) -> None:
        self.socket.close()

    def accept(self) -> int:
        """The descriptor of one new connection, or ACCEPTED_NONE, or ACCEPTED_NO_ROOM."""
        try:
            accepted, _ = self.socket.accept()
        except OSError as error:
            # All else is about that one connection (reset in the queue, refused by a filter) and is over with it.
            return ACCEPTED_NO_ROOM if error.errno in _NO_ROOM else ACCEPTED_NONE
        if not _OPTIONS_INHERITED:
            try:
                _set_stream_options(accepted, self.is_tcp)
            except OSError:
                accepted.close()  # macOS: the peer is gone already
                return ACCEPTED_NONE
        return accepted.detach()

    def address(self) -> str:
        """As people write it: `127.0.0.1:11300`, `[::1]:11300`, `unix:/run/beanfield`."""
        name = self.socket.getsockname()
        if self.socket.family == socket.AF_INET:
            return f"{name[0]}:{name[1]}"
        if self.socket.family == socket.AF_INET6:
            return f"[{name[0]}]:{name[1]}"
        if isinstance(name, bytes):
            return UNIX_PREFIX + ("@" + os.fsdecode(name[1:]).rstrip("\0") if name[:1] == b"\0" else os.fsdecode(name))
        return UNIX_PREFIX + str(name)


def listen(host: str | None, port: str) -> Listener:
    """Bind and listen. host: None (all IPv4), a name, an IPv4 or IPv6 address, or `unix:PATH` (without a port)."""
    if host is not None and host.startswith(UNIX_PREFIX):
        return _listen_unix(host[len(UNIX_PREFIX) :])
    return _listen_tcp(host, port)


def _listen_tcp(host: str | None, port: str) -> Listener:
    where = f"{host or '0.0.0.0'}:{port}"
    try:
        # The C library takes 70000 for 4464, as it does for beanstalkd.
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise ListenError(f"{where}: {error}") from None
    problem: OSError | None = None
    for family, kind, protocol, _, address in found:
        listening = None
        try:
            listening = socket.socket(family, kind, protocol)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(LISTEN_BACKLOG)
            return Listener(listening)
        except OSError as error:
            problem = problem or error
            if listening is not None:
                listening.close()
    raise ListenError(f"{where}: {problem or 'no address found'}")


def _listen_unix(path: str) -> Listener:
    where = UNIX_PREFIX + path
    if "\0" in path:
        raise ListenError(f"{where!r}: a path holds no NUL")
    if len(os.fsencode(path)) > UNIX_PATH_BYTES_MAX:
        raise ListenError(f"{where}: the path is longer than {UNIX_PATH_BYTES_MAX} bytes")
    lock = _lock_directory(path) if path else -1
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if path:
            _remove_stale(path)
            listening.bind(path)
        else:
            # The whole of sun_path empty: the abstract name that beanstalkd binds.
            listening.bind(b"\0" * (UNIX_PATH_BYTES_MAX + 1))
        listening.listen(LISTEN_BACKLOG)
        return Listener(listening)
    except OSError as error:
        listening.close()
        raise ListenError(f"{where}: {error}") from None
    except ListenError:
        listening.close()
        raise
    finally:
        if lock >= 0:
            os.close(lock)


def _lock_directory(path: str) -> int:
    """Keep other servers out between finding a stale path and listening on it.

    Without it: A finds the path stale, removes it, binds. B found it stale as well, and now removes A's. Or B finds it
    refusing connections because A has bound and does not listen yet. The lock is advisory; where it cannot be had
    within a second we go on without.
    """
    try:
        directory = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return -1
    give_up_ns = time.monotonic_ns() + _LOCK_WAIT_NS
    while True:
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return directory
        except BlockingIOError:
            if time.monotonic_ns() >= give_up_ns:
                return directory
            time.sleep(5 * NS_PER_MS / NS_PER_S)
        except OSError:
            return directory  # a file system without locks


def _remove_stale(path: str) -> None:
    """Remove a socket that nobody listens on. Anything else at the path is a ListenError, and stays."""
    where = UNIX_PREFIX + path
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise ListenError(f"{where}: there is a file that is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
        except FileNotFoundError:
            return
        except BlockingIOError:
            pass  # alive: its queue is full
    raise ListenError(f"{where}: another server listens there")


def _set_stream_options(stream: socket.socket, is_tcp: bool) -> None:
    if is_tcp:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


# ---------------------------------------------------------------- sockets that the service manager made


def inherited_descriptors(environ: Mapping[str, str] = os.environ) -> list[int]:
    """What systemd passed to this very process (LISTEN_PID, LISTEN_FDS); none if it passed nothing."""
    count = environ.get("LISTEN_FDS", "")
    if environ.get("LISTEN_PID", "") != str(os.getpid()) or not count.isdecimal():
        return []
    return list(range(INHERITED_FIRST, INHERITED_FIRST + int(count)))


def adopt(descriptor: int) -> Listener:
    """A listener from a passed descriptor, which must be a listening stream socket of TCP or a unix path."""
    try:
        passed = socket.socket(fileno=descriptor)
    except OSError as error:
        raise ListenError(f"inherited descriptor {descriptor}: {error}") from None
    listens = passed.type == socket.SOCK_STREAM and passed.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) != 0
    if not listens or passed.family not in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX):
        passed.detach()
        raise ListenError(f"inherited descriptor {descriptor}: not a listening stream socket")
    os.set_inheritable(descriptor, False)
    return Listener(passed)
