"""One child process as the supervisor sees it: how it is spawned, its control socket, how it ends.

Children are exec'ed, never only forked, so they share nothing with the supervisor but what is passed to them. Their
group signals are blocked from the first instruction on, until they ignore them: a Ctrl-C hits a whole group.
Knows nothing of when to spawn or end one: core.py decides.
"""

import json
import os
import signal
import socket
import subprocess
import sys

import beanfield
from beanfield.io.control_socket import ControlSocket
from beanfield.io.process import GROUP_SIGNALS

# The child gets the supervisor's module path, without the entry for the current directory: what it imports is then the
# same, whatever lies where the server was started.
BOOT = "import json,sys;sys.path[:]=json.loads(sys.argv[1]);from beanfield.child import main;main()"
# What concerns the supervisor alone.
NOT_INHERITED = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


class ChildProcess:
    """A running child of one generation."""

    def __init__(self, role: int, index: int, generation: int) -> None:
        self.role = role
        self.index = index
        self.generation = generation
        ours, theirs = socket.socketpair()
        try:
            command = [
                sys.executable,
                "-I",
                "-c",
                BOOT,
                json.dumps(_module_path()),
                str(theirs.fileno()),
                str(os.getpid()),
            ]
            environment = {name: value for name, value in os.environ.items() if name not in NOT_INHERITED}
            before = signal.pthread_sigmask(signal.SIG_BLOCK, GROUP_SIGNALS)
            try:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(),), env=environment
                )
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self.control = ControlSocket(ours)
        self.pid = self._process.pid

    def kill(self) -> None:
        """SIGKILL. Its exit is noticed as any other."""
        self._process.kill()

    def reaped(self, code: int) -> None:
        """The supervisor has collected it: code as subprocess has it, below 0 for a signal."""
        self._process.returncode = code
        self.control.close()


def _module_path() -> list[str]:
    package_parent = os.path.dirname(os.path.dirname(os.path.abspath(beanfield.__file__)))
    here = os.getcwd()
    path = [entry for entry in sys.path if entry and (os.path.abspath(entry) != here or here == package_parent)]
    return path if package_parent in path else [package_parent, *path]
