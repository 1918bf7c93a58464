"""Runs one load in this process: connects, drives the core with a reactor, and gives the result as plain numbers.

Interrupting is a question asked ten times a second, so that what was measured until then is kept. The clock here is for
the course of the run; every time of a command is the reactor's.
"""

import contextlib
import gc
import resource
import time
from collections.abc import Iterator
from typing import Any, Final

from beanfield.bench.core import NO_LIMIT, BenchCore
from beanfield.bench.histogram import Histogram, from_numbers
from beanfield.bench.plan import Address, BenchError, Load, cleaning_setups, cleaning_workload
from beanfield.bench.workload import DELAY_S, STEP_NAMES, Workload
from beanfield.constants import NEVER_NS, NS_PER_MS, NS_PER_S
from beanfield.io.poller import CLIENT, Reactor

CONNECT_S: Final = 10.0  # for one connection
SETUP_NS: Final = 10 * NS_PER_S  # for the first replies of all of them
CLEAN_NS: Final = 60 * NS_PER_S
LOOK_UP_NS: Final = 100 * NS_PER_MS  # how often the loop looks up from its work
# Events taken in one poll. What they lead to is sent after the last of them, and a command's time runs from then: so
# few that the sending itself does not show in the times, so many that a turn's fixed cost is shared.
EVENTS_MAX: Final = 16
RECEIVE_BYTES_MAX: Final = 4_194_304
SPARE_DESCRIPTORS: Final = 64


class Watcher:
    """Who is told how a run goes, and asked whether it shall end. This one is told nothing, and never ends it."""

    def interrupted(self) -> bool:
        return False

    def ready(self) -> None:
        """All connections are set up. Returns when the load shall begin."""

    def measuring(self) -> None:
        """Warming up is over."""

    def progress(self, commands: int) -> None:
        """So many commands are answered since measuring() (before it: since the start)."""

    def measured(self) -> None:
        """The end."""


class Result:
    """What one or several processes have measured of one run. Rates and shares are told by report.py."""

    def __init__(self) -> None:
        self.steps: dict[str, Histogram] = {}
        self.everything = Histogram()
        self.late_count = 0
        self.elapsed_ns = 0
        self.cpu_shares: list[float] = []  # of a core, by process
        self.connections = 0
        self.lost = 0
        self.unanswered = 0
        self.oldest_ns = 0
        self.timed_out = 0
        self.sent_bytes = 0
        self.received_bytes = 0
        self.unexpected: dict[str, int] = {}
        self.interrupted = False

    @property
    def commands(self) -> int:
        return sum(histogram.count for histogram in self.steps.values())

    def to_plain(self) -> dict[str, Any]:
        """For JSON."""
        plain = dict(self.__dict__)
        plain["steps"] = {name: histogram.to_numbers() for name, histogram in self.steps.items()}
        plain["everything"] = self.everything.to_numbers()
        return plain

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> "Result":
        result = cls()
        result.__dict__.update(plain)
        result.steps = {name: from_numbers(numbers) for name, numbers in plain["steps"].items()}
        result.everything = from_numbers(plain["everything"])
        return result

    def add(self, other: "Result") -> None:
        """What another process has measured at the same time."""
        for name, histogram in other.steps.items():
            self.steps.setdefault(name, Histogram()).add(histogram)
        self.everything.add(other.everything)
        self.elapsed_ns = max(self.elapsed_ns, other.elapsed_ns)
        self.oldest_ns = max(self.oldest_ns, other.oldest_ns)
        self.cpu_shares += other.cpu_shares
        self.interrupted = self.interrupted or other.interrupted
        for name in (
            "late_count", "connections", "lost", "unanswered", "timed_out", "sent_bytes", "received_bytes",
        ):  # fmt: skip
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for said, count in other.unexpected.items():
            self.unexpected[said] = self.unexpected.get(said, 0) + count


def allow_connections(count: int) -> None:
    """Raise this process's limit of descriptors as far as needed. Raises BenchError when it may not."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + SPARE_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < wanted:
        if hard != resource.RLIM_INFINITY and hard < wanted:
            raise BenchError(f"{count} connections need {wanted} descriptors, and this user may have {hard}")
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class Generator:
    """Connections to one address, set up."""

    def __init__(self, address: Address, workload: Workload, rate: int, watcher: Watcher) -> None:
        self.core = BenchCore(workload, rate)
        self.reactor = Reactor(RECEIVE_BYTES_MAX, EVENTS_MAX)
        self._address = address
        self._watcher = watcher
        self._progress_ns = 0
        self.was_interrupted = False

    def close(self) -> None:
        self.reactor.shut_down()

    def open(self, setups: list[list[bytes]]) -> None:
        """Connect and set up. Raises BenchError."""
        allow_connections(len(setups))
        core = self.core
        for commands in setups:
            descriptor = self._address.connect(CONNECT_S).detach()
            core.connection_opened(self.reactor.add(descriptor, CLIENT), commands)
            self.reactor.flush(core.take_outbox())
            if self._watcher.interrupted():
                raise BenchError("interrupted while connecting")
        limit = self.reactor.now_ns() + SETUP_NS
        while core.opening > 0 and self.reactor.now_ns() < limit and not self._ends():
            self._turn(limit)
        self._complain()
        if self.was_interrupted:
            raise BenchError("interrupted while connecting")
        if core.lost > 0:
            raise BenchError(f"{self._address} ended {core.lost} of {len(setups)} connections at once")
        if core.opening > 0:
            raise BenchError(
                f"{self._address} left {core.opening} of {len(setups)} connections without a reply for "
                f"{SETUP_NS // NS_PER_S} s"
            )

    def start(self) -> None:
        self.core.start(self.reactor.now_ns())
        self._flush()

    def run(self, nanoseconds: int) -> None:
        """For so long, or until nothing is sent any more, or until interrupted."""
        until = self.reactor.now_ns() + nanoseconds if nanoseconds < NEVER_NS else NEVER_NS
        while self.core.active > 0 and self.reactor.now_ns() < until and not self._ends():
            self._turn(until)
        self._complain()

    def _ends(self) -> bool:
        now = self.reactor.now_ns()
        if now >= self._progress_ns:
            self._progress_ns = now + LOOK_UP_NS
            self._watcher.progress(self.core.commands)
            self.was_interrupted = self.was_interrupted or self._watcher.interrupted()
        return self.was_interrupted or self.core.failure != b""

    def _turn(self, until: int) -> None:
        core, reactor = self.core, self.reactor
        now = reactor.now_ns()
        limit = min(until, core.next_deadline_ns(), now + LOOK_UP_NS)
        reactor.poll(core, max(limit - now, 0))
        core.turn(reactor.now_ns())
        self._flush()

    def _flush(self) -> None:
        outbox = self.core.take_outbox()
        if outbox:
            self.reactor.flush(outbox)
        actions = self.core.take_actions()
        for handle in actions[1::2]:
            self.reactor.close(handle)  # the core asks for nothing else

    def _complain(self) -> None:
        if self.core.failure:
            said = self.core.failure.decode("ascii", "backslashreplace")
            raise BenchError(f"{self._address} says {said!r} where nothing of the kind was asked: no beanstalkd?")


def generate(address: Address, load: Load, watcher: Watcher) -> Result:
    """One run of this process's share of a load. Raises BenchError."""
    generator = Generator(address, load.workload(), load.rate, watcher)
    core = generator.core
    with contextlib.closing(generator), _no_collecting():
        generator.open(load.setups())
        watcher.ready()
        jobs = NO_LIMIT if load.jobs is None else load.jobs
        if load.warm_up_s == 0:
            core.measure(jobs)  # or the first batches would not count among the jobs
        began_ns, began_cpu = generator.reactor.now_ns(), time.process_time()
        generator.start()
        if load.warm_up_s > 0:
            generator.run(int(load.warm_up_s * NS_PER_S))
        # Whoever interrupts the warming up sees what it has brought.
        if not generator.was_interrupted:
            if load.warm_up_s > 0:
                core.measure(jobs)
            began_ns, began_cpu = generator.reactor.now_ns(), time.process_time()
            watcher.measuring()
            generator.run(NEVER_NS if load.jobs is not None else int(load.seconds * NS_PER_S))
        ended_ns, ended_cpu = generator.reactor.now_ns(), time.process_time()
        watcher.measured()
        core.stop(ended_ns)
    result = _result_of(core)
    result.elapsed_ns = max(ended_ns - began_ns, 1)
    result.cpu_shares = [(ended_cpu - began_cpu) * NS_PER_S / result.elapsed_ns]
    result.interrupted = generator.was_interrupted
    return result


def clean(address: Address, load: Load, watcher: Watcher) -> int:
    """Delete what a load has left in its tubes; how many jobs that were. Raises BenchError."""
    generator = Generator(address, cleaning_workload(), 0, watcher)
    with contextlib.closing(generator):
        if load.shape.delayed_every > 0:
            # Its last jobs are delayed by so much.
            until = time.monotonic() + DELAY_S + 0.1
            while time.monotonic() < until and not watcher.interrupted():
                time.sleep(0.05)
        generator.open(cleaning_setups(load))
        generator.start()
        generator.run(CLEAN_NS)
        if generator.core.active > 0:
            raise BenchError(f"jobs are left in the tubes {load.prefix}0 to {load.prefix}{load.shape.tubes - 1}")
    return int(generator.core.histograms[STEP_NAMES.index("delete")].count)


def _result_of(core: BenchCore) -> Result:
    result = Result()
    for name, histogram in zip(STEP_NAMES, core.histograms, strict=True):
        if histogram.count > 0:
            result.steps[name] = histogram
    result.everything = core.everything()
    result.late_count = core.late.count
    result.connections = len(core.connections)
    result.lost = core.lost
    result.unanswered = core.unanswered
    result.oldest_ns = core.oldest_ns
    result.timed_out = core.timed_out
    result.sent_bytes = core.sent_bytes
    result.received_bytes = core.received_bytes
    result.unexpected = {said.decode("ascii", "backslashreplace"): n for said, n in core.unexpected.items()}
    return result


@contextlib.contextmanager
def _no_collecting() -> Iterator[None]:
    """Nothing here makes cycles while it measures."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
