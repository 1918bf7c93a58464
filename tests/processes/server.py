"""A real server for tests: started by its command line, looked at from outside, ended without leaving anything behind.

    with Server(slots=4, frontends=2) as server:
        client = server.connect()
        client.send(b"use a\\r\\n")
        assert client.line() == b"USING a"
        server.kill("owner", 3)

Children are found as an operator finds them: by parent and process title. Leaving the context stops the server and
checks that no process of it is left.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeVar

import beanfield

T = TypeVar("T")

START_SECONDS = 20.0  # a machine with many test sessions on few cores is slow to start processes
STOP_SECONDS = 10.0
WAIT_SECONDS = 10.0
PACKAGE_PARENT = str(Path(beanfield.__file__).resolve().parent.parent)
SERVE = [sys.executable, "-m", "beanfield", "serve"]
TITLE = re.compile(rb"beanfield: (supervisor|owner|frontend)(?: (\d+))?")


@dataclass(frozen=True)
class ChildSeen:
    """A process of the server, by its title."""

    pid: int
    role: str
    index: int


class Client:
    """A blocking connection that reads lines and bodies."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._buffer = b""

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def line(self) -> bytes:
        """One reply line, without its end; empty at the end of the connection."""
        while b"\r\n" not in self._buffer:
            more = self.socket.recv(65536)
            if not more:
                return b""
            self._buffer += more
        line, _, self._buffer = self._buffer.partition(b"\r\n")
        return line

    def body(self, size: int) -> bytes:
        """A body of so many bytes, and its end of line."""
        while len(self._buffer) < size + 2:
            more = self.socket.recv(65536)
            assert more, "the connection ended inside a body"
            self._buffer += more
        body, end, self._buffer = self._buffer[:size], self._buffer[size : size + 2], self._buffer[size + 2 :]
        assert end == b"\r\n"
        return body

    def ask(self, command: bytes) -> bytes:
        """Send a command line and read the reply line."""
        self.send(command + b"\r\n")
        return self.line()

    def put(self, body: bytes, priority: int = 0, delay: int = 0, ttr: int = 60) -> bytes:
        self.send(b"put %d %d %d %d\r\n%s\r\n" % (priority, delay, ttr, len(body), body))
        return self.line()

    def stats(self, command: bytes = b"stats") -> dict[str, str]:
        word, _, size = self.ask(command).partition(b" ")
        assert word == b"OK", word
        lines = self.body(int(size)).decode().splitlines()
        return dict(line.split(": ", 1) for line in lines[1:])

    def ended(self) -> bool:
        """Wait for the server to end the connection; whatever still comes is dropped."""
        try:
            while self.socket.recv(65536):
                pass
        except ConnectionError:
            return True
        return True

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Server:
    """One `beanfield serve`. `extra` is appended to its command line, `environment` added to its environment."""

    def __init__(
        self,
        slots: int = 1,
        frontends: int = 1,
        extra: list[str] | None = None,
        unix: bool = False,
        environment: dict[str, str] | None = None,
    ) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="beanfield-test-"))
        self._log = self._directory / "log"
        self._unix = unix
        self._options = ["--slots", str(slots), "--frontends", str(frontends), *(extra or [])]
        self._environment = program_environment() | (environment or {})
        self.address: tuple[str, int] | str = ""
        self._start()

    @property
    def pid(self) -> int:
        """Of the supervisor."""
        return self._process.pid

    def log(self) -> str:
        """All that the server has printed."""
        return self._log.read_text(errors="replace")

    # ---------------------------------------------------------------- clients
    def connect(self, timeout: float = 10.0) -> Client:
        family = socket.AF_UNIX if isinstance(self.address, str) else socket.AF_INET
        connection = socket.socket(family)
        connection.settimeout(timeout)
        connection.connect(self.address)
        if family == socket.AF_INET:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return Client(connection)

    # ---------------------------------------------------------------- processes
    def children(self, role: str | None = None) -> list[ChildSeen]:
        """The children that have a title, in the order of their index; all roles, or one."""
        found = [child for child in processes_below(self.pid) if role in (None, child.role)]
        return sorted(found, key=lambda child: (child.role, child.index))

    def child(self, role: str, index: int) -> ChildSeen:
        """The child of this role and index; waits for one that is being started."""
        return wait_for(lambda: next((c for c in self.children(role) if c.index == index), None), f"{role} {index}")

    def signal(self, role: str, index: int, number: signal.Signals) -> int:
        """Send a signal to a child; its process id."""
        pid = self.child(role, index).pid
        os.kill(pid, number)
        return pid

    def kill(self, role: str, index: int = 0) -> int:
        """kill -9 a child and wait until its process is gone; the id it had."""
        pid = self.signal(role, index, signal.SIGKILL)
        wait_for(lambda: not is_running(pid), f"the end of process {pid}")
        return pid

    def wait_for_children(self, count: int) -> None:
        """Until so many children have their titles: after a restart, for example."""
        wait_for(lambda: len(self.children()) == count, f"{count} children")

    def wait_for_log(self, text: str) -> None:
        """Until the server has printed this."""
        wait_for(lambda: text in self.log(), f"{text!r} in the log")

    # ---------------------------------------------------------------- start and stop
    def stop(self) -> int:
        """SIGTERM; the exit code of the server."""
        if self._process.poll() is None:
            self._process.terminate()
        return self.wait()

    def wait(self) -> int:
        """Wait for the end; the exit code."""
        try:
            return self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise AssertionError(f"the server did not stop:\n{self.log()}") from None

    def assert_no_orphan(self) -> None:
        """No process of this server is left: each has the server's log open as its stderr."""
        wait_for(lambda: not self._holders_of_log(), "the end of all processes of the server")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            for child in self.children():
                # One that a test has stopped could not end otherwise.
                os.kill(child.pid, signal.SIGCONT)
            self.stop()
            self.assert_no_orphan()
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _start(self) -> None:
        # Until the server has it, a free port may be taken by someone else: then another one is tried.
        for attempt in range(5):
            self.address = str(self._directory / "socket") if self._unix else ("127.0.0.1", free_port())
            command = [*SERVE, *where_options(self.address), *self._options]
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment
                )
            if self._serves():
                return
            assert self._process.poll() == 111 and attempt < 4, f"the server does not start:\n{self.log()}"

    def _serves(self) -> bool:
        limit = time.monotonic() + START_SECONDS
        while time.monotonic() < limit and self._process.poll() is None:
            if "serving on" in self.log():
                return True
            time.sleep(0.01)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
            raise AssertionError(f"the server does not come to serve:\n{self.log()}")
        return False

    def _holders_of_log(self) -> list[int]:
        log = self._log.stat()
        holders = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    found = (entry / "fd" / "2").stat()
                except OSError:
                    continue
                if (found.st_dev, found.st_ino) == (log.st_dev, log.st_ino):
                    holders.append(int(entry.name))
        return holders


def wait_for(condition: Callable[[], T | None], what: str, seconds: float = WAIT_SECONDS) -> T:
    """Poll until the condition holds something; what it holds."""
    limit = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < limit, f"waited {seconds} s for {what}"
        time.sleep(0.005)


def program_environment() -> dict[str, str]:
    """For a server of the build that the tests import."""
    return dict(os.environ, PYTHONPATH=PACKAGE_PARENT)


def where_options(address: tuple[str, int] | str) -> list[str]:
    """The options that make a server listen there."""
    if isinstance(address, str):
        return ["-l", f"unix:{address}"]
    return ["-l", address[0], "-p", str(address[1])]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_running(pid: int) -> bool:
    """Whether a process exists and has not ended yet."""
    try:
        return _parent_and_state(pid)[1] != "Z"
    except OSError:
        return False


def processes_below(parent: int) -> list[ChildSeen]:
    """The children of a process that have a title of ours."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        pid = int(entry.name)
        try:
            if _parent_and_state(pid)[0] != parent:
                continue
            title = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        match = TITLE.match(title)
        if match and match[2] is not None:
            found.append(ChildSeen(pid, match[1].decode(), int(match[2])))
    return found


def _parent_and_state(pid: int) -> tuple[int, str]:
    # The name in brackets may hold anything, so fields are counted from its last bracket.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[1]), fields[0]
