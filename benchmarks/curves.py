"""Whether what a command costs depends on what is stored and connected: tubes, jobs, connections, waiting workers.

    python -m benchmarks.curves --svg docs/performance-curves.svg       all four, and the picture
    python -m benchmarks.curves --only tubes,waiting --small            quickly, only printed

A server is filled to each size; then some connections use and watch tubes picked at random among all and, round by
round, send 16 puts, 16 reserves, 16 deletes. Cost is the server's CPU time (all its processes, by the kernel's count in
nanoseconds) per command of each kind, the median over the rounds. Beanstalkd stands beside, up to the sizes that it
is filled to in reasonable time.
"""

import argparse
import contextlib
import os
import random
import re
import resource
import select
import signal
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from beanfield.bench.servers import RunningServer, own_command  # noqa: E402
from beanfield.build import BUILD  # noqa: E402
from benchmarks.curves_picture import Panel, picture  # noqa: E402
from benchmarks.roles import times_of  # noqa: E402
from benchmarks.rows import COMBINED, SHAPE_OPTIONS  # noqa: E402
from benchmarks.run import PEER, peer_command  # noqa: E402

STEPS: Final = ("put", "reserve", "delete")
DEPTH: Final = 16
ACTIVE: Final = 50  # connections that send in a round
WARM_UP: Final = 3  # rounds
BODY: Final = b"x" * 100
TTR_S: Final = 3_600
PRIORITIES: Final = 1 << 30
FILL_AT_ONCE: Final = 500
CONNECT_S: Final = 600.0
RESERVED: Final = re.compile(rb"RESERVED (\d+) ")


@dataclass(frozen=True)
class Dimension:
    """What grows, through which sizes, and how far beanstalkd is taken."""

    name: str
    says: str
    sizes: tuple[int, ...]
    peer_most: int


DIMENSIONS: Final = (
    # beanstalkd looks for a tube's name along a list of all tubes, so filling 100,000 would take it hours.
    Dimension("tubes", "tubes, a job in each", (10, 100, 1_000, 10_000, 100_000), 10_000),
    Dimension("jobs", "jobs ready in 8 tubes", (1_000, 10_000, 100_000, 1_000_000, 5_000_000), 1_000_000),
    Dimension("connections", "connections", (10, 100, 1_000, 10_000), 10_000),
    Dimension("waiting", "workers waiting on one tube", (50, 100, 300, 1_000), 1_000),
)
SMALL_MOST: Final = 10_000


class Client:
    """A blocking connection that counts replies by their lines; bodies have no line ends."""

    def __init__(self, server: RunningServer) -> None:
        self.socket = server.address.connect(CONNECT_S)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self, lines: int) -> bytes:
        pieces: list[bytes] = []
        while lines > 0:
            data = self.socket.recv(1 << 18)
            if not data:
                raise SystemExit("the server closed a connection")
            # CR and LF may come apart; LF alone stands for the line.
            lines -= data.count(b"\n")
            pieces.append(data)
        return b"".join(pieces)

    def ask(self, data: bytes, lines: int) -> bytes:
        self.send(data)
        return self.receive(lines)


def put_of(priority: int) -> bytes:
    return b"put %d 0 %d %d\r\n%s\r\n" % (priority, TTR_S, len(BODY), BODY)


class Run:
    """One server at one size, and what its commands cost there."""

    def __init__(self, server: RunningServer, dimension: Dimension, size: int, pick: random.Random) -> None:
        self.server = server
        self.pick = pick
        self.pids = server.processes()
        self.costs: dict[str, list[float]] = {step: [] for step in STEPS}
        self.tubes = size if dimension.name == "tubes" else 1 if dimension.name == "waiting" else 8
        self.waiting = size if dimension.name == "waiting" else 0
        count = {"connections": size, "waiting": size}.get(dimension.name, ACTIVE)
        self.clients = [Client(server) for _ in range(count)]
        self.producer = Client(server)
        self.watched: dict[int, int] = {}  # tube of each client that has one, by the client's number
        self.numbers = {client.socket.fileno(): number for number, client in enumerate(self.clients)}
        self.poll = select.poll()
        self._fill(size if dimension.name in ("jobs", "tubes") else 0)

    def _fill(self, jobs: int) -> None:
        """Spread over all tubes, priorities at random: a queue in which the most urgent job may be anywhere."""
        for first in range(0, jobs, FILL_AT_ONCE):
            commands = []
            for number in range(first, min(first + FILL_AT_ONCE, jobs)):
                commands.append(b"use tube-%d\r\n" % (number % self.tubes))
                commands.append(put_of(self.pick.randrange(PRIORITIES)))
            self.producer.ask(b"".join(commands), len(commands))

    def _cpu_s(self) -> float:
        return sum([times_of(pid)[0] for pid in self.pids])

    def _settle(self, numbers: list[int]) -> None:
        """These clients use and watch other tubes than before; not measured."""
        for number in numbers:
            tube = self.pick.randrange(self.tubes)
            old = self.watched.get(number, -1)
            if old == tube:
                continue
            leave = b"default" if old < 0 else b"tube-%d" % old
            self.clients[number].ask(b"use tube-%d\r\nwatch tube-%d\r\nignore %s\r\n" % (tube, tube, leave), 3)
            self.watched[number] = tube

    def _timed(self, step: str, commands: dict[int, bytes], each: int, lines: int) -> dict[int, bytes]:
        before = self._cpu_s()
        for number, data in commands.items():
            self.clients[number].send(data)
        replies = {number: self.clients[number].receive(each * lines) for number in commands}
        self.costs[step].append((self._cpu_s() - before) / (len(commands) * each) * 1e6)
        return replies

    def round(self) -> None:
        """All of it once: put, reserve, delete by some of the clients."""
        numbers = self.pick.sample(range(len(self.clients)), min(ACTIVE, len(self.clients)))
        self._settle(numbers)
        puts = {n: b"".join([put_of(self.pick.randrange(PRIORITIES)) for _ in range(DEPTH)]) for n in numbers}
        self._timed("put", puts, DEPTH, 1)
        taken = self._timed("reserve", dict.fromkeys(numbers, b"reserve\r\n" * DEPTH), DEPTH, 2)
        self._timed("delete", {n: self._deletes(text) for n, text in taken.items()}, DEPTH, 1)

    def waiting_round(self) -> None:
        """As many jobs as workers wait, up to some: each goes to a worker, which deletes it and waits again."""
        count = min(ACTIVE, self.waiting)
        before = self._cpu_s()
        self.producer.ask(put_of(0) * count, count)
        taken: dict[int, bytes] = {}
        while len(taken) < count:  # whoever got one: not every server gives it to the one that has waited longest
            for descriptor, _ in self.poll.poll():
                taken[self.numbers[descriptor]] = self.clients[self.numbers[descriptor]].receive(2)
        self.costs["put"].append((self._cpu_s() - before) / count * 1e6)
        self._timed("delete", {n: self._deletes(text) for n, text in taken.items()}, 1, 1)
        before = self._cpu_s()
        for number in taken:
            self.clients[number].send(b"reserve\r\n")
        # A reserve that waits says nothing. What the producer asks behind it is answered when it has been read.
        self.producer.ask(b"list-tube-used\r\n", 1)
        self.costs["reserve"].append((self._cpu_s() - before) / count * 1e6)

    def _deletes(self, text: bytes) -> bytes:
        return b"".join([b"delete %s\r\n" % job for job in RESERVED.findall(text)])

    def measure(self, rounds: int) -> dict[str, float]:
        if self.waiting:
            self.producer.ask(b"use tube-0\r\n", 1)
            self._settle(list(range(self.waiting)))
            for descriptor, number in self.numbers.items():
                self.clients[number].send(b"reserve\r\n")
                self.poll.register(descriptor, select.POLLIN)
        for number in range(WARM_UP + rounds):
            if number == WARM_UP:
                self.costs = {step: [] for step in STEPS}
            self.waiting_round() if self.waiting else self.round()
        return {step: statistics.median(costs) for step, costs in self.costs.items()}

    def close(self) -> None:
        for client in [*self.clients, self.producer]:
            client.socket.close()


def measure(dimension: Dimension, size: int, command: list[str], rounds: int) -> dict[str, float]:
    with contextlib.closing(RunningServer("server", command)) as server:
        server.start()
        with contextlib.closing(Run(server, dimension, size, random.Random(1))) as run:
            return run.measure(rounds)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.curves", description=__doc__.splitlines()[0])
    names = [dimension.name for dimension in DIMENSIONS]
    parser.add_argument("--only", default=",".join(names), help="some of them")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--small", action="store_true", help=f"no size over {SMALL_MOST:,}")
    parser.add_argument("--shape", default=COMBINED, choices=SHAPE_OPTIONS)
    parser.add_argument("--svg", type=Path, help="where to draw them")
    given = parser.parse_args(arguments)
    # Ended from outside, its servers end with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    ours = f"Beanfield {given.shape}"
    servers = {ours: own_command(SHAPE_OPTIONS[given.shape])}
    if peer := peer_command(None, ""):
        servers[PEER] = peer
    print(f"{BUILD} build; CPU us per command; {DEPTH} commands at a time")
    print(f"{'':24s}{'':24s}" + "".join(f"{step:>9s}" for step in STEPS) + "    load average")
    panels = []
    for dimension in DIMENSIONS:
        if dimension.name not in given.only.split(","):
            continue
        panel = Panel(dimension.says, {})
        panels.append(panel)
        for size in dimension.sizes:
            for name, command in servers.items():
                if (given.small and size > SMALL_MOST) or (name == PEER and size > dimension.peer_most):
                    continue
                found = measure(dimension, size, command, given.rounds)
                cells = "".join(f"{found[step]:>9.2f}" for step in STEPS)
                print(f"{dimension.name:12s}{size:>12,d}{name:>24s}{cells}{os.getloadavg()[0]:>10.1f}", flush=True)
                for step in STEPS:
                    panel.series.setdefault((name, step), []).append((size, found[step]))
    if given.svg:
        given.svg.write_text(picture(panels, ours))
    return 0


if __name__ == "__main__":
    sys.exit(main())
