"""Offline commands run as a user runs them, and real beanstalkds whose logs are imported."""

import hashlib
import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self

import pytest

from tests.processes.server import START_SECONDS, Client, free_port, program_environment

COMMAND_SECONDS = 60.0
# Left out where there is no beanstalkd; tests/conftest.py lets no CI run do that.
with_beanstalkd = pytest.mark.parametrize("program", [found] if (found := shutil.which("beanstalkd")) else [])


class Done:
    """How a command ended and what it said."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    def json(self) -> Any:
        return json.loads(self.out)


def beanfield(*words: object, code: int | None = 0) -> Done:
    """Runs `beanfield WORDS` and expects this exit code (None: any)."""
    command = [sys.executable, "-m", "beanfield", *map(str, words)]
    done = subprocess.run(
        command,
        env=program_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert code in (None, done.returncode), f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return Done(done.returncode, done.stdout, done.stderr)


def checksums(directory: Path) -> dict[str, tuple[str, int, int]]:
    """Of everything below: contents, mode, time of the last change."""
    found = {}
    for path in sorted(directory.rglob("*")):
        stat = path.lstat()
        text = "" if path.is_dir() else hashlib.sha256(path.read_bytes()).hexdigest()
        found[str(path.relative_to(directory))] = (text, stat.st_mode, stat.st_mtime_ns)
    return found


class Beanstalkd:
    """Debian's beanstalkd with a log. `-f 0`, so that a kill loses nothing answered."""

    def __init__(self, program: str, directory: Path, *options: str) -> None:
        directory.mkdir(exist_ok=True)
        self.directory = directory
        self.port = free_port()
        where = ["-l", "127.0.0.1", "-p", str(self.port), "-b", str(directory), "-f", "0"]
        self.process = subprocess.Popen(
            [program, *where, *options], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )

    def connect(self) -> Client:
        limit = time.monotonic() + START_SECONDS
        while True:
            try:
                return Client(socket.create_connection(("127.0.0.1", self.port), timeout=10))
            except ConnectionRefusedError:
                assert self.process.poll() is None and time.monotonic() < limit, "beanstalkd does not start"
                time.sleep(0.01)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        assert self.process.stderr is not None
        self.process.stderr.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()
