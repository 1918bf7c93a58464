"""What a worker's watch list costs: 300 workers that watch 2,000 tubes each, beside 300 that watch 2.

    python -m benchmarks.wide_watch                  one slot and one frontend, then four slots
    python -m benchmarks.wide_watch --distinct       every worker watches another choice of tubes

At most 10 tubes ever have jobs. Both servers run at once, with this program on one core, so that it does not matter
which processes happen to share one, and are measured in turn, round by round, so that whatever else the machine does
meets both. Each command is timed alone; medians are compared. `wait` is the time from a put to
the worker that waited for it, of 300 who wait. The exit code is 1 when a median is over 1.5 times the narrow one.
"""

import argparse
import contextlib
import os
import random
import resource
import select
import signal
import socket
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from beanfield.bench.servers import RunningServer, own_command  # noqa: E402
from beanfield.build import BUILD  # noqa: E402

NARROW: Final = 2
BUSY: Final = 10
CONNECT_S: Final = 30.0
RATIO_MAX: Final = 1.5
SHAPES: Final = ("--slots 1 --frontends 1", "--slots 1 --frontends 0", "--slots 4 --frontends 1")
STEPS: Final = ("put", "reserve", "delete", "wait")


class Connection:
    """Blocking, a line at a time; nothing that costs more than it must."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self.socket.settimeout(300.0)

    def ask(self, data: bytes, replies: int = 1) -> bytes:
        """Send, and read until so many line ends have come."""
        self.socket.sendall(data)
        return self.read(replies)

    def read(self, replies: int = 1) -> bytes:
        received = b""
        while received.count(b"\r\n") < replies:
            more = self.socket.recv(65_536)
            if not more:
                raise SystemExit("the server closed a connection")
            received += more
        return received


class Workers:
    """One server with its workers, all watching so many tubes, and one producer."""

    def __init__(self, server: RunningServer, width: int, count: int, distinct: bool) -> None:
        self.width = width
        self._tubes = [b"tube-%d" % number for number in range(width)]
        self._busy = self._tubes[: min(BUSY, width - 1) if distinct else BUSY]
        self._producer = Connection(server.address.connect(CONNECT_S))
        self._workers = [Connection(server.address.connect(CONNECT_S)) for _ in range(count)]
        for number, worker in enumerate(self._workers):
            self._watch(worker, number + 1 if distinct else 0)
        self._next = 0
        self.times: dict[str, list[float]] = {step: [] for step in STEPS}

    def _watch(self, worker: Connection, number: int) -> None:
        names = self._tubes
        if number:  # those that have jobs, and others that nobody else watches
            names = self._busy + [b"tube-%d-%d" % (number, other) for other in range(self.width - len(self._busy))]
        for first in range(0, len(names), 500):
            part = names[first : first + 500]
            worker.ask(b"".join(b"watch %s\r\n" % name for name in part), len(part))
        worker.ask(b"ignore default\r\n")

    def round(self, commands: int, pick: random.Random) -> None:
        """Nobody waits: put, reserve by one worker after the other, delete. Then all wait, and jobs come."""
        for _ in range(commands):
            self._producer.ask(b"use %s\r\n" % pick.choice(self._busy))
            worker = self._workers[self._next]
            self._next = (self._next + 1) % len(self._workers)
            self._timed("put", self._producer, b"put 0 0 600 5\r\nhello\r\n", 1)
            job = self._timed("reserve", worker, b"reserve\r\n", 2).split()[1]
            self._timed("delete", worker, b"delete %s\r\n" % job, 1)
        self._waiting_round(commands // 4, pick)

    def _timed(self, step: str, connection: Connection, data: bytes, replies: int) -> bytes:
        began = time.perf_counter()
        reply = connection.ask(data, replies)
        self.times[step].append(time.perf_counter() - began)
        return reply

    def _waiting_round(self, commands: int, pick: random.Random) -> None:
        poll = select.epoll()
        by_number = {worker.socket.fileno(): worker for worker in self._workers}
        for number, worker in by_number.items():
            worker.socket.sendall(b"reserve\r\n")
            poll.register(number, select.EPOLLIN)
        for _ in range(commands):
            self._producer.ask(b"use %s\r\n" % pick.choice(self._busy))
            began = time.perf_counter()
            self._producer.ask(b"put 0 0 600 5\r\nhello\r\n")
            worker = by_number[poll.poll()[0][0]]
            job = worker.read(2).split()[1]
            self.times["wait"].append(time.perf_counter() - began)
            worker.ask(b"delete %s\r\n" % job)
            worker.socket.sendall(b"reserve\r\n")
        poll.close()
        # One job for each, so that nobody waits in the next round.
        self._producer.ask(b"use %s\r\n" % self._busy[0])
        for _ in self._workers:
            self._producer.ask(b"put 0 0 600 5\r\nhello\r\n")
        for worker in self._workers:
            job = worker.read(2).split()[1]
            worker.ask(b"delete %s\r\n" % job)


@contextlib.contextmanager
def served(shape: str, width: int, given: argparse.Namespace) -> Iterator[Workers]:
    with contextlib.closing(RunningServer(f"{width} tubes", own_command(shape))) as server:
        server.start()
        yield Workers(server, width, given.workers, given.distinct)


def measure(shape: str, given: argparse.Namespace) -> bool:
    """Both widths in one shape; whether all medians are within the bound."""
    pick = random.Random(1)
    # As many owners are asked in a reserve, whatever the width: what more of them cost is not the question here.
    few_tubes = max(NARROW, int(shape.split()[1]))
    with served(shape, few_tubes, given) as narrow, served(shape, given.tubes, given) as wide:
        for number in range(given.rounds + 1):
            for workers in (narrow, wide):
                workers.round(given.commands, pick)
                if number == 0:  # warming up
                    workers.times = {step: [] for step in STEPS}
        good = True
        for step in STEPS:
            few, many = (statistics.median(workers.times[step]) * 1e6 for workers in (narrow, wide))
            good = good and many <= few * RATIO_MAX
            print(f"{shape:26s}{step:10s}{few:>10.1f} us{many:>10.1f} us{many / few:>8.2f}", flush=True)
    return good


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.wide_watch", description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=300)
    parser.add_argument("--tubes", type=int, default=2_000, help="that each worker watches")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--commands", type=int, default=600, help="of each kind in a round")
    parser.add_argument("--distinct", action="store_true", help="no two workers watch the same tubes")
    given = parser.parse_args(arguments)
    # Ended from outside, its servers end with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    alike = "different" if given.distinct else "the same"
    print(f"{BUILD} build; {given.workers} workers, {alike} tubes, at most {BUSY} with jobs")
    print(f"{'':36s}{NARROW:>7d} tubes{given.tubes:>7d} tubes   ratio")
    results = [measure(shape, given) for shape in SHAPES]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
