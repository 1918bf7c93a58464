"""Starts the servers that the outside tests speak to: beanstalkd as the oracle, and Beanfield in several shapes.

The oracle takes part where `beanstalkd` is installed; Debian's is 1.12, whose YAML has no quotes.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tests.transcripts.runner import Address

START_SECONDS = 20.0
STOP_SECONDS = 10.0


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
)
ORACLE = Shape("oracle", 0, 0, False)
SHAPES = (ORACLE, *OURS) if shutil.which("beanstalkd") else OURS


class RunningServer:
    """One server process, reachable when the constructor returns."""

    def __init__(self, shape: Shape, options: tuple[str, ...] = ()) -> None:
        self.shape = shape
        self._directory = tempfile.TemporaryDirectory(prefix="beanfield-test-")
        self._log = Path(self._directory.name) / "log"
        # Until the server is reachable its port may be taken by someone else: then another one is tried.
        for attempt in range(5):
            self.address = self._free_address()
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    [*self._command(), *options], stdout=log, stderr=log, stdin=subprocess.DEVNULL
                )
            if self._reachable() or attempt == 4:
                break
        if self._process.poll() is not None:
            raise RuntimeError(f"{shape.name}: the server did not start: {self.log()}")

    @property
    def pid(self) -> int:
        return self._process.pid

    def log(self) -> str:
        return self._log.read_text(errors="replace")[-4000:]

    def send_signal(self, name: str) -> None:
        self._process.send_signal(signal.Signals[f"SIG{name}"])

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._directory.cleanup()

    def _free_address(self) -> Address:
        if self.shape.unix:
            return os.path.join(self._directory.name, "socket")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return "127.0.0.1", int(probe.getsockname()[1])

    def _command(self) -> list[str]:
        if isinstance(self.address, str):
            where = ["-l", f"unix:{self.address}"]
        else:
            where = ["-l", self.address[0], "-p", str(self.address[1])]
        if self.shape.is_oracle:
            return ["beanstalkd", *where]
        counts = ["--slots", str(self.shape.slots), "--frontends", str(self.shape.frontends)]
        return [sys.executable, "-m", "beanfield", "serve", *where, *counts]

    def _reachable(self) -> bool:
        limit = time.monotonic() + START_SECONDS
        while time.monotonic() < limit and self._process.poll() is None:
            try:
                if isinstance(self.address, str):
                    with socket.socket(socket.AF_UNIX) as probe:
                        probe.connect(self.address)
                else:
                    socket.create_connection(self.address, timeout=1.0).close()
                return True
            except OSError:
                time.sleep(0.01)
        return False
