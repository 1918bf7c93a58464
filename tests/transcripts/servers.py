"""Starts the servers that the outside tests speak to: beanstalkd as the oracle, and Beanfield in several shapes.

The oracle takes part where `beanstalkd` is installed; Debian's is 1.12, whose YAML has no quotes.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from typing import NamedTuple, Protocol

from tests.processes.server import Server, free_port
from tests.transcripts.runner import Address

START_SECONDS = 20.0


class Shape(NamedTuple):
    """What to start. No slots: the oracle."""

    name: str
    slots: int
    frontends: int
    unix: bool

    @property
    def is_oracle(self) -> bool:
        return self.slots == 0


OURS = (
    Shape("one-slot", 1, 1, False),
    Shape("four-slots", 4, 2, False),
    Shape("unix-socket", 2, 2, True),
    Shape("combined", 1, 0, False),
)
ORACLE = Shape("oracle", 0, 0, False)
SHAPES = (ORACLE, *OURS) if shutil.which("beanstalkd") else OURS


class RunningServer(Protocol):
    """One server, reachable until it is stopped."""

    address: Address

    @property
    def pid(self) -> int: ...

    def log(self) -> str: ...

    def send_signal(self, name: str) -> None: ...

    def stop(self) -> None: ...


class Beanfield:
    """Ours, in one of its shapes."""

    def __init__(self, shape: Shape, options: tuple[str, ...]) -> None:
        self._server = Server(slots=shape.slots, frontends=shape.frontends, extra=list(options), unix=shape.unix)
        self.address: Address = self._server.address

    @property
    def pid(self) -> int:
        return self._server.pid

    def log(self) -> str:
        return self._server.log()[-4000:]

    def send_signal(self, name: str) -> None:
        os.kill(self.pid, signal.Signals[f"SIG{name}"])

    def stop(self) -> None:
        # Leaving it also checks that no process of it is left.
        self._server.__exit__()


class Beanstalkd:
    """The oracle."""

    def __init__(self, options: tuple[str, ...]) -> None:
        # Until the server has it, a free port may be taken by someone else: then another one is tried.
        for _ in range(5):
            host, port = "127.0.0.1", free_port()
            self.address: Address = (host, port)
            self._process = subprocess.Popen(
                ["beanstalkd", "-l", host, "-p", str(port), *options],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            if self._is_reachable(host, port):
                return
        raise AssertionError("beanstalkd does not start")

    @property
    def pid(self) -> int:
        return self._process.pid

    def log(self) -> str:
        return "(the oracle's is not kept)"

    def send_signal(self, name: str) -> None:
        self._process.send_signal(signal.Signals[f"SIG{name}"])

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()

    def _is_reachable(self, host: str, port: int) -> bool:
        limit = time.monotonic() + START_SECONDS
        while time.monotonic() < limit and self._process.poll() is None:
            try:
                socket.create_connection((host, port), timeout=1.0).close()
                return True
            except OSError:
                time.sleep(0.01)
        return False


def start(shape: Shape, options: tuple[str, ...] = ()) -> RunningServer:
    return Beanstalkd(options) if shape.is_oracle else Beanfield(shape, options)
