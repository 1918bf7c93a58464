"""The table of what is measured: for each row a load, the shapes of our server that it is for, and what we ask of them.

The floors are ratios to beanstalkd measured in the same run: of commands per second at least, of the server's CPU time
per command at most. A row without floors is only reported.
"""

from dataclasses import dataclass, field, replace
from typing import Final

from beanfield.bench.plan import SHAPES, Load

SPLIT: Final = "split"  # one frontend process, one owner process
COMBINED: Final = "combined"  # both in one process
FOUR_SLOTS: Final = "four-slots"  # one frontend, four owners
SHAPE_OPTIONS: Final = {
    SPLIT: "--slots 1 --frontends 1",
    COMBINED: "--slots 1 --frontends 0",
    FOUR_SLOTS: "--slots 4 --frontends 1",
}
NO_LOG: Final = ""
LOG: Final = "-b {dir}"
LOG_SYNCED: Final = "-b {dir} -f 0"


@dataclass(frozen=True)
class Floor:
    """What a shape must reach, as ratios to beanstalkd."""

    speed: float | None = None
    cpu: float | None = None


@dataclass(frozen=True)
class Row:
    """One workload of the table. `log` is the options that ours and beanstalkd share."""

    name: str
    load: Load
    shapes: dict[str, Floor]
    log: str = NO_LOG
    short: bool = False  # also part of the short form


def _load(name: str, connections: int = 64, tubes: int = 8, body: int = 100, depth: int = 1) -> Load:
    shape = replace(SHAPES[name], connections=connections, tubes=tubes, body_sizes=(body,), depth=depth)
    return Load(name, shape)


def _both(split: Floor, combined: Floor) -> dict[str, Floor]:
    return {SPLIT: split, COMBINED: combined}


LOCKSTEP: Final = _load("cycle")
PIPELINED: Final = _load("cycle", depth=16)

ROWS: Final = (
    Row("lockstep64", LOCKSTEP, _both(Floor(1.2, 0.9), Floor(1.45, 0.7)), short=True),
    Row("lockstep256", _load("cycle", 256, 64), _both(Floor(1.2, 0.9), Floor(1.45, 0.7))),
    Row("put64", _load("put"), _both(Floor(1.2, 0.9), Floor(1.3, 0.75)), short=True),
    Row("multi64", _load("multi"), _both(Floor(1.1, 1.0), Floor(1.3, 0.8)), short=True),
    Row("pair64 four-slots", _load("pair"), {FOUR_SLOTS: Floor(0.7)}, short=True),
    Row("multi64 four-slots", _load("multi"), {FOUR_SLOTS: Floor(0.5)}),
    Row("pipelined16", PIPELINED, _both(Floor(7, 0.14), Floor(9, 0.11)), short=True),
    Row("body16k", _load("cycle", body=16_384), _both(Floor(0.7, 1.6), Floor(1.25, 0.8)), short=True),
    Row("single", _load("single", 1, 1), _both(Floor(0.5), Floor(0.95)), short=True),
    Row("lockstep64 -b -f 0", LOCKSTEP, _both(Floor(10, 0.3), Floor(10, 0.3)), LOG_SYNCED),
    Row("pipelined16 -b -f 0", PIPELINED, _both(Floor(40), Floor(50)), LOG_SYNCED),
    Row("lockstep64 -b", LOCKSTEP, _both(Floor(1.2, 1.0), Floor(1.4, 0.8)), LOG),
)


@dataclass(frozen=True)
class Cost:
    """Something measured once per server instead of under load: lower is better, `most` is the ratio allowed."""

    name: str
    unit: str
    log: str = NO_LOG
    most: float | None = None
    shapes: tuple[str, ...] = field(default=(SPLIT, COMBINED))


MEMORY: Final = Cost("memory per job", "bytes", most=1.0)
RECOVERY: Final = Cost("recovery", "s", log=LOG, most=1.0)
IDLE: Final = Cost("memory per idle connection", "bytes")
COSTS: Final = (MEMORY, RECOVERY, IDLE)
