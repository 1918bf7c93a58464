"""Servers that a run is made against: started by their command line, looked at from outside, ended afterwards.

What a server costs is read from /proc, over its whole tree of processes; where there is no /proc, nothing is known.
"""

import contextlib
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from beanfield.bench.plan import Address, BenchError

START_S: Final = 120.0  # a log with millions of jobs is read first
STOP_S: Final = 30.0
LOG_LINES_SHOWN: Final = 5
PROC: Final = Path("/proc")
LOOPBACK: Final = "127.0.0.1"


def own_command(options: str) -> list[str]:
    """`beanfield serve` of this very build."""
    return [sys.executable, "-m", "beanfield", "serve", "-l", LOOPBACK, "-p", "{port}", *shlex.split(options)]


class RunningServer:
    """One server process. In the command {port} and {dir} stand for a free port and an empty directory."""

    def __init__(self, name: str, command: list[str]) -> None:
        self.name = name
        self._command = command
        self._folder = Path(tempfile.mkdtemp(prefix="beanfield-bench-"))
        self._process: subprocess.Popen[bytes] | None = None
        self.address = Address(LOOPBACK, 0)

    def start(self) -> None:
        """Returns when it answers. Raises BenchError. Again after end(): with the same directory."""
        port = _free_port()
        data = self._folder / "data"
        data.mkdir(exist_ok=True)
        words = [word.replace("{port}", str(port)).replace("{dir}", str(data)) for word in self._command]
        try:
            with (self._folder / "log").open("wb") as log:
                # A group of its own: an interrupt from the terminal is ours, and ends the run, not the server first.
                self._process = subprocess.Popen(
                    words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0
                )
        except OSError as error:
            raise BenchError(f"{self.name}: cannot run {words[0]}: {error.strerror}") from None
        self.address = Address(LOOPBACK, port)
        limit = time.monotonic() + START_S
        while not _answers(self.address):
            if self._process.poll() is not None:
                raise BenchError(f"{self.name} ended with code {self._process.returncode}: {self._last_words()}")
            if time.monotonic() > limit:
                raise BenchError(f"{self.name} does not answer on port {port} (does its command use {{port}}?)")
            time.sleep(0.005)

    def end(self, number: int = signal.SIGTERM) -> None:
        """Ask it to end, or kill all of it, and wait until it has."""
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            tree = self.processes() if number == signal.SIGKILL else [process.pid]
            for pid in tree:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.end(signal.SIGKILL)
        self._process = None

    def close(self) -> None:
        """End it, and remove its directory."""
        self.end()
        shutil.rmtree(self._folder, ignore_errors=True)

    def processes(self) -> list[int]:
        """Its process and all below it."""
        if self._process is None:
            return []
        children: dict[int, list[int]] = {}
        for entry in PROC.iterdir() if PROC.is_dir() else ():
            if entry.name.isdigit() and (fields := _stat_fields(int(entry.name))):
                children.setdefault(int(fields[1]), []).append(int(entry.name))
        found = [self._process.pid]
        for pid in found:  # grows as it goes
            found += children.get(pid, [])
        return found

    def cpu_seconds(self) -> float:
        """User and system time of the tree so far."""
        ticks = 0
        for pid in self.processes():
            if fields := _stat_fields(pid):
                ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def memory_bytes(self) -> int:
        """Of the tree, pages that several share counted once."""
        total = 0
        for pid in self.processes():
            with contextlib.suppress(OSError):
                found = re.search(r"^Pss:\s+(\d+) kB", (PROC / str(pid) / "smaps_rollup").read_text(), re.MULTILINE)
                total += int(found[1]) * 1024 if found else 0
        return total

    def _last_words(self) -> str:
        lines = (self._folder / "log").read_text(errors="replace").splitlines()
        return " | ".join(line for line in lines[:LOG_LINES_SHOWN] if line.strip()) or "it said nothing"


def version_of(address: Address) -> str:
    """What the server says of itself; "" when it does not."""
    try:
        with address.connect(5.0) as connection:
            connection.sendall(b"stats\r\n")
            said = b""
            while b"\nversion:" not in said or b"\n" not in said.partition(b"\nversion:")[2]:
                data = connection.recv(65_536)
                if not data:
                    return ""
                said += data
    except (OSError, BenchError):
        return ""
    return said.partition(b"\nversion:")[2].split(b"\n")[0].decode("ascii", "replace").strip(' "')


def _answers(address: Address) -> bool:
    try:
        with address.connect(START_S) as connection:
            connection.sendall(b"stats-tube default\r\n")
            return connection.recv(2) == b"OK"
    except (OSError, BenchError):
        return False


def _stat_fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on; none for a process that is gone."""
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])
