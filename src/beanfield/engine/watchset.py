"""A watch set: tubes of this slot watched together, shared by all sessions of one link that watch just these.

Three things hang on it, so that nothing is ever searched over the tubes a session watches:
- the choice of a job: while only few tubes of the slot have a job to grant (tube.Heads), these are looked through,
  and a put costs the same however many sets watch its tube. Otherwise there are candidates: for each tube with a job
  to grant, one entry whose key is not worse than the key of the job at the head of that tube. A head that gets better
  than its entry is entered at once (engine), one that gets worse is noticed when its entry comes to the top here;
- the waiters, in order of arrival (sets are per link, so that a link that cannot be written to is passed over whole);
- two counts that say whether a last word needs care: jobs held, and jobs reserved through other links.
A set of one tube, the common case, has no candidates: it looks at the tube.
"""

from typing import Final

from mypy_extensions import i64, mypyc_attr

from beanfield.engine.job import Job
from beanfield.engine.session import Gate, Session
from beanfield.engine.tube import Heads, Tube

# Stale candidates are cleared out when there are this many more than tubes.
CANDIDATES_SPARE: Final[i64] = 16


@mypyc_attr(native_class=True)
class Candidate:
    """What the head of a tube's ready heap was (or something better) when this was entered."""

    def __init__(self, tube: Tube, job: Job) -> None:
        self.tube: Tube = tube
        self.priority_code: i64 = i64(job.priority_code)
        self.created_ns: i64 = job.created_ns
        self.id: i64 = job.id
        self.replaced: bool = False  # its tube has a better entry

    def is_no_worse(self, job: Job) -> bool:
        """Whether it comes before the job, or is of it."""
        code = i64(job.priority_code)
        if self.priority_code != code:
            return self.priority_code < code
        if self.created_ns != job.created_ns:
            return self.created_ns < job.created_ns
        return self.id <= job.id

    def is_of(self, job: Job) -> bool:
        return self.id == job.id and self.priority_code == i64(job.priority_code)

    def renew(self, job: Job) -> None:
        self.priority_code = i64(job.priority_code)
        self.created_ns = job.created_ns
        self.id = job.id


def ahead(a: Candidate, b: Candidate) -> bool:
    """The order over tubes: priority, creation, id."""
    if a.priority_code != b.priority_code:
        return a.priority_code < b.priority_code
    if a.created_ns != b.created_ns:
        return a.created_ns < b.created_ns
    return a.id < b.id


def comes_before(a: Job, b: Job) -> bool:
    """The same order, of jobs."""
    if a.priority_code != b.priority_code:
        return a.priority_code < b.priority_code
    if a.created_ns != b.created_ns:
        return a.created_ns < b.created_ns
    return a.id < b.id


@mypyc_attr(native_class=True)
class WatchSet:
    """Shared by `session_count` sessions of one gate."""

    def __init__(self, gate: Gate, heads: Heads, key: int) -> None:
        self.gate: Gate = gate
        self.heads: Heads = heads
        self.era: i64 = 0  # of heads, for which the candidates hold; others are rebuilt when they are needed
        self.key: int = key  # exclusive or of the tubes' and the gate's marks: equal sets have equal keys
        self.tubes: list[Tube] = []
        self.at: dict[int, int] = {}  # tube index -> position in tubes
        self.back: list[int] = []  # position of this set in tubes[i].sets
        self.session_count: i64 = 0
        self.candidates: list[Candidate] = []
        self.entered: list[Candidate | None] = []  # the entry of tubes[i], if there is one
        self.first: Session | None = None
        self.last: Session | None = None
        self.waiting_count: i64 = 0  # sessions with a request under way, queued or offered
        self.held_count: i64 = 0  # jobs of its tubes held for some request
        self.lost_count: i64 = 0  # times a ready job of its tubes went otherwise than to a reserve
        self.reserved_elsewhere: i64 = 0  # jobs of its tubes reserved through other links

    # ---------------------------------------------------------------- tubes

    def has(self, tube: Tube) -> bool:
        return tube.index in self.at

    def add(self, tube: Tube) -> None:
        assert tube.index not in self.at
        self.at[tube.index] = len(self.tubes)
        self.tubes.append(tube)
        self.back.append(len(tube.sets))
        self.entered.append(None)
        tube.sets.append(self)
        self.held_count += len(tube.held.items)
        self.reserved_elsewhere += tube.reserved_elsewhere(self.gate.index)
        self.era = 0

    def remove(self, tube: Tube) -> None:
        position: i64 = self.at.pop(tube.index)
        self._leave(tube, self.back[position])
        last = self.tubes.pop()
        last_back = self.back.pop()
        last_entered = self.entered.pop()
        if last is not tube:
            self.tubes[position] = last
            self.back[position] = last_back
            self.entered[position] = last_entered
            self.at[last.index] = position
        self.held_count -= len(tube.held.items)
        self.reserved_elsewhere -= tube.reserved_elsewhere(self.gate.index)
        self.era = 0

    def dissolve(self) -> None:
        """Leaves all tubes; the set is not used again."""
        assert self.session_count == 0
        assert self.waiting_count == 0
        for position in range(len(self.tubes)):
            self._leave(self.tubes[position], self.back[position])
        self.tubes = []
        self.back = []
        self.at = {}
        self.entered = []
        self.candidates = []

    def _leave(self, tube: Tube, place: int) -> None:
        sets = tube.sets
        assert sets[place] is self
        moved = sets.pop()
        if moved is not self:
            sets[place] = moved
            moved.back[moved.at[tube.index]] = place

    # ---------------------------------------------------------------- candidates

    def best(self) -> Job | None:
        """The most urgent job that may be granted or offered to a session of this set; it stays where it is."""
        if len(self.tubes) == 1:
            tube = self.tubes[0]
            items = tube.ready.items
            if len(items) == 0 or tube.pause_until_ns != 0:
                return None
            return items[0]
        if not self.heads.wide:
            return self._best_of_few()
        if self.era != self.heads.era:
            self._rebuild()
        candidates = self.candidates
        while len(candidates) != 0:
            top = candidates[0]
            items = top.tube.ready.items
            if top.replaced or len(items) == 0 or top.tube.pause_until_ns != 0:
                if not top.replaced:
                    self.entered[self.at[top.tube.index]] = None
                last = candidates.pop()
                if last is not top:
                    self._down(last, 0)
                continue
            job = items[0]
            if top.is_of(job):
                return job
            top.renew(job)
            self._down(top, 0)
        return None

    def _best_of_few(self) -> Job | None:
        best: Job | None = None
        for tube in self.heads.tubes:
            if tube.index in self.at:
                job = tube.ready.items[0]
                if best is None or comes_before(job, best):
                    best = job
        return best

    def enter(self, tube: Tube, job: Job) -> None:
        """The head of `tube` has become `job`, which is better than what it was. Only told while heads are many."""
        if len(self.tubes) == 1 or self.era != self.heads.era:
            return
        position: i64 = self.at[tube.index]
        before = self.entered[position]
        if before is not None:
            if before.is_no_worse(job):
                return
            before.replaced = True
        candidates = self.candidates
        if len(candidates) >= 2 * len(self.tubes) + CANDIDATES_SPARE:
            self._rebuild()
            return
        candidate = Candidate(tube, job)
        self.entered[position] = candidate
        candidates.append(candidate)
        self._up(candidate, len(candidates) - 1)

    def _rebuild(self) -> None:
        """The candidates anew, from all tubes that have a job to grant."""
        self.era = self.heads.era
        self.entered = [None] * len(self.tubes)
        self.candidates = []
        for tube in self.heads.tubes:
            if tube.index in self.at:
                candidate = Candidate(tube, tube.ready.items[0])
                self.entered[self.at[tube.index]] = candidate
                self.candidates.append(candidate)
                self._up(candidate, len(self.candidates) - 1)

    def _up(self, candidate: Candidate, at: i64) -> None:
        candidates = self.candidates
        while at > 0:
            parent_at = (at - 1) >> 1
            parent = candidates[parent_at]
            if not ahead(candidate, parent):
                break
            candidates[at] = parent
            at = parent_at
        candidates[at] = candidate

    def _down(self, candidate: Candidate, at: i64) -> None:
        candidates = self.candidates
        size: i64 = len(candidates)
        while True:
            child_at = 2 * at + 1
            if child_at >= size:
                break
            child = candidates[child_at]
            if child_at + 1 < size and ahead(candidates[child_at + 1], child):
                child_at += 1
                child = candidates[child_at]
            if not ahead(child, candidate):
                break
            candidates[at] = child
            at = child_at
        candidates[at] = candidate

    # ---------------------------------------------------------------- waiters

    def queue(self, session: Session) -> None:
        """Puts the session at its place by arrival: nearly always the end."""
        assert not session.queued
        session.queued = True
        last = self.last
        while last is not None and last.arrival > session.arrival:
            last = last.before
        if last is None:
            behind = self.first
            self.first = session
        else:
            behind = last.behind
            last.behind = session
        session.before = last
        session.behind = behind
        if behind is None:
            self.last = session
        else:
            behind.before = session

    def unqueue(self, session: Session) -> None:
        assert session.queued
        session.queued = False
        before = session.before
        behind = session.behind
        if before is None:
            assert self.first is session
            self.first = behind
        else:
            before.behind = behind
        if behind is None:
            self.last = before
        else:
            behind.before = before
        session.before = None
        session.behind = None
