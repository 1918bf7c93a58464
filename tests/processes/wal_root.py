"""A data root for tests of real servers: its files, their checksums, and servers on it one after the other."""

import hashlib
import itertools
import os
import signal
import subprocess
import time
from pathlib import Path

from beanfield.routing import Topology
from tests.processes.server import SERVE, Client, Server, program_environment, wait_for, where_options

REFUSED_SECONDS = 30.0
QUIET_SECONDS = 0.2  # a lone mark follows the last sync after a tenth of this


class DataRoot:
    """A directory for -b, and what every server on it is told."""

    def __init__(self, path: Path, slots: int = 1, frontends: int = 1, extra: list[str] | None = None) -> None:
        self.path = path
        self.slots = slots
        self.frontends = frontends
        self.options = ["-b", str(path), *(extra or ["-f", "0"])]
        self.topology = Topology(256, slots)
        path.mkdir(exist_ok=True)

    def serve(self, extra: list[str] | None = None, environment: dict[str, str] | None = None) -> Server:
        return Server(self.slots, self.frontends, [*self.options, *(extra or [])], environment=environment)

    def refused(self, *words: str, options: list[str] | None = None, code: int | None = None) -> str:
        """A start that is refused with these words, and changes nothing; all that it said."""
        before = self.checksums()
        done = subprocess.run(
            [*SERVE, *where_options(("127.0.0.1", 0)), "-b", str(self.path), *(options or [])],
            env=program_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=REFUSED_SECONDS,
        )
        for word in words:
            assert word in done.stderr, f"{word!r} is not in:\n{done.stderr}"
        assert done.returncode == code if code is not None else done.returncode != 0
        assert self.checksums() == before
        return done.stderr

    def checksums(self) -> dict[str, str]:
        """Of every file, and the names of all directories."""
        found = {}
        for path in sorted(self.path.rglob("*")):
            digest = "" if path.is_dir() else hashlib.sha256(path.read_bytes()).hexdigest()
            found[str(path.relative_to(self.path))] = digest
        return found

    def slot(self, slot: int) -> Path:
        return self.path / "slots" / f"{slot:03d}"

    def segments(self, slot: int = 0) -> list[Path]:
        return sorted(self.slot(slot).glob("segment.*"))

    def used_bytes(self) -> int:
        """Of all slots' directories."""
        return sum(path.stat().st_size for path in self.path.rglob("*") if path.is_file())

    def tube_of(self, slot: int, number: int = 0) -> str:
        """A tube's name that lives there."""
        names = (f"tube-{candidate}" for candidate in range(100_000))
        there = (name for name in names if self.topology.slot_of_name(name.encode()) == slot)
        return next(itertools.islice(there, number, None))

    def wait_until_quiet(self) -> None:
        """An idle server still writes a last mark; after that its root does not change."""

        def quiet() -> bool:
            before = self.checksums()
            time.sleep(QUIET_SECONDS)
            return before == self.checksums()

        wait_for(quiet, "an idle root")


def kill_everything(server: Server) -> None:
    """kill -9 of the supervisor and all its children, in one go."""
    pids = [child.pid for child in server.children()]
    for pid in [server.pid, *pids]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    server.wait()
    server.assert_no_orphan()


def kill_supervisor(server: Server) -> None:
    os.kill(server.pid, signal.SIGKILL)
    server.wait()
    server.assert_no_orphan()


def stop(server: Server) -> None:
    assert server.stop() == 0
    server.assert_no_orphan()


def inserted(client: Client, body: bytes = b"x", priority: int = 0, delay: int = 0, ttr: int = 60) -> int:
    """The id of a new job."""
    word, _, id = client.put(body, priority, delay, ttr).partition(b" ")
    assert word == b"INSERTED", word
    return int(id)


def reserved(client: Client, command: bytes = b"reserve-with-timeout 0") -> tuple[int, bytes]:
    """The job that a reserve gives."""
    word, *numbers = client.ask(command).split()
    assert word == b"RESERVED", word
    return int(numbers[0]), client.body(int(numbers[1]))


def found(client: Client, id: int) -> bytes | None:
    """The body of a job, None if it is not there."""
    word, *numbers = client.ask(b"peek %d" % id).split()
    if word == b"NOT_FOUND":
        return None
    assert word == b"FOUND", word
    return client.body(int(numbers[1]))


def job_stats(client: Client, id: int) -> dict[str, str]:
    return client.stats(b"stats-job %d" % id)


def wait_until_served(client: Client, id: int) -> None:
    """Until this connection's frontend has heard that the slot of a job is back. The job must be ready or reserved."""
    wait_for(lambda: client.ask(b"kick-job %d" % id) == b"NOT_FOUND", "the slot's return")
