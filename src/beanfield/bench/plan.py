"""What a run is to do, as data: which load, on how many connections, for how long, against which address."""

import socket
from dataclasses import dataclass, field, replace
from typing import Final

from beanfield.bench.workload import (
    RESERVE_TIMEOUT_S,
    STEP_DELETE,
    STEP_PUT,
    STEP_RELEASE,
    STEP_RESERVE,
    STEP_TOUCH,
    WATCH_ALL,
    WATCH_OWN,
    WATCH_PAIR,
    Workload,
    setup_commands,
)
from beanfield.constants import DEFAULT_PORT

CYCLE: Final = (STEP_PUT, STEP_RESERVE, STEP_DELETE)
MIXED: Final = (STEP_PUT, STEP_RESERVE, STEP_TOUCH, STEP_RELEASE, STEP_RESERVE, STEP_DELETE)
CLEAN_CONNECTIONS_MAX: Final = 64
CLEAN_DEPTH: Final = 64


class BenchError(Exception):
    """Why there is nothing to measure, or no sense in going on: a sentence for people."""


@dataclass(frozen=True)
class Shape:
    """A kind of load by its name, with the values that its options have unless given."""

    steps: tuple[int, ...]
    says: str
    watch: int = WATCH_OWN
    connections: int = 64
    tubes: int = 8
    depth: int = 1
    body_sizes: tuple[int, ...] = (100,)
    delayed_every: int = 0
    reserve_timeout_s: int = RESERVE_TIMEOUT_S


SHAPES: Final[dict[str, Shape]] = {
    "cycle": Shape(CYCLE, "put, reserve, delete; each connection uses and watches one tube"),
    "put": Shape((STEP_PUT,), "only put"),
    "multi": Shape(CYCLE, "cycle, every connection watching all the tubes", watch=WATCH_ALL),
    "pair": Shape(CYCLE, "cycle, every connection watching default as well", watch=WATCH_PAIR),
    "single": Shape(CYCLE, "cycle on one connection", connections=1, tubes=1),
    "pipelined": Shape(CYCLE, "cycle, 16 commands at a time", depth=16),
    "sizes": Shape(CYCLE, "cycle, bodies of 10 bytes to 64,000 in turn", body_sizes=(10, 100, 1_000, 10_000, 64_000)),
    "mixed": Shape(
        MIXED,
        "put, reserve, touch, release, reserve, delete; every 4th put and release with a second of delay",
        delayed_every=4,
        reserve_timeout_s=0,
    ),
}


@dataclass(frozen=True)
class Address:
    """Where a server listens: HOST:PORT, [IPV6]:PORT, HOST, or unix:PATH."""

    host: str
    port: int
    path: str = ""

    def __str__(self) -> str:
        if self.path:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def connect(self, seconds: float) -> socket.socket:
        """A connected socket. Raises BenchError."""
        try:
            if self.path:
                connection = socket.socket(socket.AF_UNIX)
                connection.settimeout(seconds)
                connection.connect(self.path)
            else:
                connection = socket.create_connection((self.host, self.port), seconds)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            raise BenchError(f"cannot connect to {self}: {error.strerror or error}") from None
        return connection


def parse_address(text: str) -> Address:
    """Raises ValueError with a sentence."""
    if text.startswith("unix:"):
        if len(text) == len("unix:"):
            raise ValueError("unix: without a path")
        return Address("", 0, text[len("unix:") :])
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError(f"not [ADDRESS]:PORT: {text}")
        port = rest[1:]
    elif text.count(":") > 1:
        raise ValueError(f"write an IPv6 address in brackets: [{text}]")
    else:
        host, _, port = text.partition(":")
    if not host:
        raise ValueError(f"no host in {text!r}")
    if not port:
        return Address(host, DEFAULT_PORT)
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and 1 <= int(port) <= 65_535):
        raise ValueError(f"not a port (1 to 65535): {port}")
    return Address(host, int(port))


@dataclass(frozen=True)
class Load:
    """One load, all options decided. `numbers` are the connections of this process among all of them."""

    name: str
    shape: Shape
    seconds: float = 5.0
    jobs: int | None = None  # instead of seconds
    warm_up_s: float = 0.5
    rate: int = 0
    prefix: str = "beanfield-bench-"
    numbers: range = field(default_factory=lambda: range(0))

    def workload(self) -> Workload:
        shape = self.shape
        return Workload(
            list(shape.steps), shape.depth, list(shape.body_sizes), shape.delayed_every, shape.reserve_timeout_s
        )

    def setups(self) -> list[list[bytes]]:
        """The commands that each connection begins with."""
        shape, prefix = self.shape, self.prefix.encode()
        return [setup_commands(prefix, number, shape.tubes, shape.watch) for number in self.numbers]

    def shares(self, processes: int) -> list["Load"]:
        """What each of so many processes does of it."""
        assert 1 <= processes <= self.shape.connections
        shares = []
        for index in range(processes):
            jobs = None if self.jobs is None else self.jobs // processes + (index < self.jobs % processes)
            rate = self.rate // processes + (index < self.rate % processes)
            numbers = range(index, self.shape.connections, processes)
            shares.append(replace(self, jobs=jobs, rate=rate, numbers=numbers))
        return shares


def cleaning_setups(load: Load) -> list[list[bytes]]:
    """The commands of the connections that take what a load has left in its tubes: each watches a part of them."""
    prefix, tubes = load.prefix.encode(), load.shape.tubes
    connections = min(tubes, CLEAN_CONNECTIONS_MAX)
    setups = []
    for index in range(connections):
        watches = [b"watch " + prefix + b"%d\r\n" % tube for tube in range(index, tubes, connections)]
        setups.append([*watches, b"ignore default\r\n"])
    return setups


def cleaning_workload() -> Workload:
    return Workload([STEP_RESERVE, STEP_DELETE], CLEAN_DEPTH, [0], 0, 0)
