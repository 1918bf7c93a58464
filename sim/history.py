"""What a slot's log was told, change by change, so that what a recovery finds can be compared with it exactly.

The promise in one comparison, as in slot_log.py but for a whole server: a recovered slot is the slot as it was after
some prefix of its history, and no prefix that ends before what had been promised. That holds for every field of every
job (priority, delay, TTR, state, end of the delay, burial number, all counters, age, tube, body) and for pauses.

WatchedJournal stands between an owner and its log and enters each change. `check_engine` compares the history with the
engine, which finds a change that the log was never told of.
"""

from typing import TYPE_CHECKING, Any, Final

from beanfield.engine.job import BURIED, DELAYED, READY, Job
from beanfield.wal.journal import Journal
from sim.slot_log import Facts, facts_of
from sim.world import Violation

if TYPE_CHECKING:
    from beanfield.wal.log import WalJournal
    from beanfield.wal.replay import Replay
    from sim.world import World

CREATED: Final = 1  # places in Facts
STATE: Final = 5
WHEN: Final = 6
RESERVES: Final = 7
TIMEOUTS: Final = 8

Key = int | bytes  # a job by its id, a pause by its tube


class Entry:
    """One change: what stood there before and after it. `position` is 0 when nobody waits for it."""

    __slots__ = ("after", "before", "key", "position")

    def __init__(self, key: Key, before: Facts | None, after: Facts | None, position: int) -> None:
        self.key = key
        self.before = before
        self.after = after
        self.position = position


class History:
    """One slot, over all generations of its owner."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.now: dict[Key, Facts] = {}
        self.entries: list[Entry] = []  # since the last recovery that was opened
        self.used_ids: set[int] = set()
        self.blurred: set[Key] = set()  # a record of theirs was left out, as docs/wal.md allows: counters, pauses
        self.all_pauses_blurred = False

    # ---------------------------------------------------------------- being told
    def begin(self, found: dict[Key, Facts]) -> None:
        """A recovery has been opened: from now on this is what the log says."""
        self.now = dict(found)
        self.entries = []
        self.blurred = set()
        self.all_pauses_blurred = False

    def enter(self, key: Key, after: Facts | None, position: int) -> None:
        before = self.now.get(key)
        if after is None:
            del self.now[key]
        else:
            self.now[key] = after
        self.entries.append(Entry(key, before, after, position))

    def new_id(self, id_: int) -> None:
        if id_ in self.used_ids:
            raise Violation(f"{self.title}: id {id_} is given out again")
        self.used_ids.add(id_)

    # ---------------------------------------------------------------- comparing
    def check_found(self, found: dict[Key, Facts], promised: int, wall_ns: int) -> int:
        """What a recovery has found must be the state after some prefix that reaches `promised`. Entries lost."""
        state = dict(self.now)
        wrong = {key for key in [*state, *found] if not self._same(key, state.get(key), found.get(key), wall_ns)}
        lost = 0
        while wrong:
            if lost == len(self.entries):
                raise Violation(f"{self.title}: no state that this slot was in: {self._first(wrong, state, found)}")
            entry = self.entries[-1 - lost]
            if 0 < entry.position <= promised:
                raise Violation(
                    f"{self.title}: promised up to {promised}, {lost} changes are lost and still it is no state "
                    f"that this slot was in: {self._first(wrong, state, found)}"
                )
            lost += 1
            if entry.before is None:
                state.pop(entry.key, None)
            else:
                state[entry.key] = entry.before
            wrong.discard(entry.key)
            if not self._same(entry.key, state.get(entry.key), found.get(entry.key), wall_ns):
                wrong.add(entry.key)
        return lost

    def _first(self, wrong: set[Key], state: dict[Key, Facts], found: dict[Key, Facts]) -> str:
        key = min(wrong, key=str)
        return f"{key!r} is {_short(found.get(key))}, was {_short(state.get(key))}"

    def check_engine(self, engine: Any, wall_offset_ns: int, wall_ns: int) -> None:
        """The engine has what its log has been told, neither more nor less."""
        jobs = {key for key in self.now if isinstance(key, int)}
        for job in engine.jobs.jobs():
            facts = facts_of(job, engine.tube_of(job).name, wall_offset_ns)
            told = self.now.get(job.id)
            if not self._same(job.id, facts, told, wall_ns):
                raise Violation(f"{self.title}: job {job.id} is {_short(facts)}, its log was told {_short(told)}")
            jobs.discard(job.id)
        if jobs:
            raise Violation(f"{self.title}: its log still has job {min(jobs)}")

    def _same(self, key: Key, one: Facts | None, other: Facts | None, wall_ns: int) -> bool:
        if one == other:
            return True
        if isinstance(key, bytes):
            if self.all_pauses_blurred or key in self.blurred:
                return True
            return _pause_left(one, wall_ns) == _pause_left(other, wall_ns)
        if one is None or other is None:
            return False
        blurred = key in self.blurred
        return _job_left(one, wall_ns, blurred) == _job_left(other, wall_ns, blurred)


def _short(facts: Facts | None) -> Any:
    return facts if facts is None or isinstance(facts[-1], int) else (*facts[:-1], f"{len(facts[-1])} bytes")


def _job_left(facts: Facts, wall_ns: int, blurred: bool) -> Facts:
    """A delay that is over is over; counters whose record may be left out do not count."""
    changed = list(facts)
    when = facts[WHEN]
    assert isinstance(when, int)
    if facts[STATE] == DELAYED and when <= wall_ns:
        changed[STATE], changed[WHEN] = int(READY), 0
    if blurred:
        changed[RESERVES] = changed[TIMEOUTS] = 0
    return tuple(changed)


def _pause_left(facts: Facts | None, wall_ns: int) -> Facts | None:
    if facts is None or facts[0] == 0:
        return None
    until_ns = facts[1]
    assert isinstance(until_ns, int)
    return None if until_ns <= wall_ns else facts


def facts_found(replay: "Replay") -> dict[Key, Facts]:
    """All that a recovery has read; before `wake`, so that ends of delays are wall clock."""
    found: dict[Key, Facts] = {}
    for id_, job in replay.jobs.items():
        found[id_] = facts_of(job, replay.tube_names[job.tube], 0)
    for name, pause in replay.pauses.items():
        found[name] = (int(pause.pause_s), int(pause.until_wall_ns))
    return found


class Ages:
    """created_ns over all slots: what is put is never older than what was put or found before, whatever the wall clock
    did between two runs of the server. What is lost is nobody's elder."""

    def __init__(self) -> None:
        self.newest_ns = 0

    def new_run(self) -> None:
        self.newest_ns = 0

    def found(self, found: dict[Key, Facts]) -> None:
        for key, facts in found.items():
            if isinstance(key, int) and isinstance(facts[CREATED], int):
                self.newest_ns = max(self.newest_ns, facts[CREATED])

    def given(self, job: Job) -> None:
        if job.created_ns < self.newest_ns:
            raise Violation(f"job {job.id} is as old as {job.created_ns}, and {self.newest_ns} was given out before")
        self.newest_ns = int(job.created_ns)


class WatchedJournal(Journal):
    """The journal that an owner is given: WalJournal, with a history of what it is told and of what it releases."""

    def __init__(self, world: "World", inner: "WalJournal", history: History, ages: Ages, planted: str) -> None:
        super().__init__()
        self.world = world
        self.ages = ages
        self.inner = inner
        self.history = history
        self.planted = planted
        self.releases: list[tuple[int, int]] = []  # when, up to which position
        self.buried_told = 0
        self.refresh()

    def refresh(self) -> None:
        """After every call of the inner one: what the core reads as attributes."""
        inner = self.inner
        self.position = inner.position
        self.stalled = inner.stalled
        self.sequence_limit = inner.sequence_limit
        released = int(inner.released_position)
        if not self.releases or released > self.releases[-1][1]:
            self.releases.append((self.world.now_ns, released))
        self.released_position = inner.position if self.planted == "early-answer" else released

    # ---------------------------------------------------------------- asked
    def can_put(self, id: int, tube_name: bytes, body: bytes) -> bool:
        can = self.inner.can_put(id, tube_name, body)
        self.refresh()
        return can

    def can_change(self) -> bool:
        return self.inner.can_change()

    # ---------------------------------------------------------------- told
    def _entered(self, job: Job, tube_name: bytes) -> None:
        self.refresh()
        self.history.blurred.discard(job.id)
        facts = facts_of(job, tube_name, int(self.inner.wall_offset_ns))
        self.history.enter(job.id, facts, int(self.position))

    def put(self, job: Job, tube_name: bytes) -> None:
        self.history.new_id(job.id)
        self.ages.given(job)
        self.inner.put(job, tube_name)
        self._entered(job, tube_name)

    def change(self, job: Job, tube_name: bytes) -> None:
        if self.planted == "forgotten-bury" and job.state == BURIED:
            self.buried_told += 1
            if self.buried_told % 2 == 0:
                return
        self.inner.change(job, tube_name)
        self._entered(job, tube_name)

    def count(self, job: Job) -> None:
        left_out = self.inner.left_out
        self.inner.count(job)
        self.refresh()
        if self.inner.left_out != left_out:
            self.history.blurred.add(job.id)
            return
        told = list(self.history.now[job.id])
        told[RESERVES], told[TIMEOUTS] = int(job.reserves), int(job.timeouts)
        self.history.enter(job.id, tuple(told), 0)

    def delete(self, job: Job, tube_name: bytes) -> None:
        self.inner.delete(job, tube_name)
        self.refresh()
        self.history.enter(job.id, None, int(self.position))

    def pause(self, tube_name: bytes, pause_s: int, until_ns: int) -> None:
        left_out = self.inner.left_out
        self.inner.pause(tube_name, pause_s, until_ns)
        self.refresh()
        if self.inner.left_out != left_out:
            self.history.blurred.add(tube_name)
        else:
            facts = (int(pause_s), int(until_ns + self.inner.wall_offset_ns))
            self.history.enter(tube_name, facts, int(self.position))

    # ---------------------------------------------------------------- each turn
    def settle(self, now_ns: int) -> None:
        left_out = self.inner.left_out
        self.inner.settle(now_ns)
        self.refresh()
        if self.inner.left_out != left_out:
            self.history.all_pauses_blurred = True

    def next_deadline_ns(self) -> int:
        return int(self.inner.next_deadline_ns())
