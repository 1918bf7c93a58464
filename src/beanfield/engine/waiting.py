"""Reserve requests that wait here: who is served next, holds for offers, last words.

The owner's part of the rules of docs/ipc.md, "A reserve over several owners". Between two calls this always holds: no
tube that is not paused has a job to grant while a session that could take it is queued (sessions behind a blocked or
silent gate apart, and tubes in `unserved`, which the next turn goes on with).

A request is in one of these states:
    queued              in the line of its watch set; served in order of arrival
    offered, held       multi: an OFFER is out, the job waits for TAKE or DROP
    offered, not held   the hold was lost (its job deleted, or taken back after HOLD_NS); offered nothing until TAKE
                        or DROP has come
`ending` may be added to each: its last word is wanted; it is given when it is queued, no job can still come back for
it (withholding) and the other links have been asked (syncing, the owner core's business).
"""

from collections import deque
from typing import Final

from mypy_extensions import i32, i64, mypyc_attr

from beanfield.constants import HOLD_NS, RUN_BODY_BYTES_MAX, WITHHOLD_NS
from beanfield.engine.job import NOWHERE, READY, SHIFT, Job
from beanfield.engine.session import NO_REQUEST, Session
from beanfield.engine.store import Store
from beanfield.engine.tube import NEVER, Tube
from beanfield.pages import OwnerCounters
from beanfield.routing import Topology
from beanfield.wal.journal import Journal

HOLD: Final[i64] = HOLD_NS
WITHHOLD: Final[i64] = WITHHOLD_NS
RUN_BODY_BYTES: Final[i64] = RUN_BODY_BYTES_MAX


@mypyc_attr(native_class=True)
class HoldNote:
    """That a hold began; stale when the session's hold has another end by now."""

    def __init__(self, session: Session, until_ns: i64) -> None:
        self.session: Session = session
        self.until_ns: i64 = until_ns

    def runs(self) -> bool:
        return self.session.held is not None and self.session.hold_until_ns == self.until_ns


@mypyc_attr(native_class=True)
class WaitingRoom(Store):
    """Store plus those who wait."""

    def __init__(
        self, topology: Topology, slot: i64, created_offset_ns: i64, counters: OwnerCounters, journal: Journal
    ) -> None:
        super().__init__(topology, slot, created_offset_ns, counters, journal)
        self.arrival_last: i64 = 0
        self.holds: deque[HoldNote] = deque()  # all holds are equally long, so this is in order of their ends
        self.withheld: list[Session] = []  # requests whose last word is withheld
        self.unserved: list[Tube] = []  # tubes whose serving the budget ended

    # ---------------------------------------------------------------- requests

    def begin_request(self, session: Session, request: i64, multi: bool, nowait: bool) -> None:
        assert session.request == NO_REQUEST
        assert session.watched is not None
        session.request = request
        session.multi = multi
        session.nowait = nowait
        session.ending = False
        session.syncing = False
        self.arrival_last += 1
        session.arrival = self.arrival_last
        session.watched.waiting_count += 1
        session.lost_before = session.watched.lost_count
        session.failed = False

    def end_request(self, session: Session) -> None:
        """The request is answered or gone; its hold, if any, must have been ended before."""
        watched = session.watched
        assert watched is not None
        assert session.held is None
        if session.queued:
            watched.unqueue(session)
        watched.waiting_count -= 1
        session.request = NO_REQUEST
        session.offered = False
        session.ending = False
        session.syncing = False
        if session.withhold_until_ns != 0:
            session.withhold_until_ns = 0
            self.withheld.remove(session)

    def reserve(self, session: Session, request: i64, nowait: bool, now_ns: i64) -> None:
        """All watched tubes are here: grants, or queues. With nowait the caller goes on with `want_last_word`."""
        self.now_ns = now_ns
        watched = session.watched
        assert watched is not None
        job = watched.best()
        if job is not None and session.request == NO_REQUEST:
            self._grant(session, request, job)
            return
        self.begin_request(session, request, False, nowait)
        watched.queue(session)

    def reserve_run(self, session: Session, count: i64, now_ns: i64) -> list[Job]:
        """Up to `count` ready jobs, reserved; never waits. A body that fills a chunk comes alone."""
        self.now_ns = now_ns
        watched = session.watched
        assert watched is not None
        granted: list[Job] = []
        bytes_left = RUN_BODY_BYTES
        while len(granted) < count and bytes_left > 0:
            job = watched.best()
            if job is None:
                break
            body_bytes: i64 = len(job.body)
            if body_bytes >= RUN_BODY_BYTES and len(granted) != 0:
                break
            bytes_left -= body_bytes
            tube = self.tube_of(job)
            self._leave_ready(job, tube)
            self._reserve(job, tube, session, now_ns)
            self.budget -= 1
            granted.append(job)
        return granted

    def ask(self, session: Session, request: i64, nowait: bool, now_ns: i64) -> None:
        """One of several owners: offers and holds, or says EMPTY and queues."""
        self.now_ns = now_ns
        self.begin_request(session, request, True, nowait)
        watched = session.watched
        assert watched is not None
        job = watched.best()
        if job is not None:
            self._offer(session, job)
        else:
            watched.queue(session)
            session.gate.port.empty(session.number, request)

    def take(self, session: Session, priority: i64, created_ns: i64, id: i64, now_ns: i64) -> None:
        """Rule 3: grants the smallest job for this request if it is no worse than the key; else offers anew or EMPTY.

        The job that was held for it counts among the others, if it is still there and its tube not paused.
        """
        self.now_ns = now_ns
        watched = session.watched
        assert watched is not None and session.request != NO_REQUEST and session.multi
        session.offered = False
        freed: Tube | None = None
        if session.held is not None:
            freed = self._unhold(session)
        if session.queued:
            watched.unqueue(session)
        job = watched.best()
        if job is None:
            watched.queue(session)
            if session.ending:
                session.failed = True
                self.say_last_word(session)
            else:
                session.gate.port.empty(session.number, session.request)
        elif no_worse(job, priority - SHIFT, created_ns, id):
            request = session.request
            self.end_request(session)
            self._grant(session, request, job)
        else:
            self._offer(session, job)
        if freed is not None:
            self.serve(freed)
            self.recheck_withheld()

    def drop(self, session: Session, now_ns: i64) -> None:
        """The request is over; its hold returns to its old place."""
        self.now_ns = now_ns
        assert session.request != NO_REQUEST
        freed: Tube | None = None
        if session.held is not None:
            freed = self._unhold(session)
        self.end_request(session)
        if freed is not None:
            self.serve(freed)
            self.recheck_withheld()

    # ---------------------------------------------------------------- last words

    def want_last_word(self, session: Session, now_ns: i64) -> None:
        """LAST, or a reserve that may not wait. An offer that is out is the last word already."""
        self.now_ns = now_ns
        session.ending = True
        if not session.offered and not session.syncing:
            self.say_last_word(session)

    def say_last_word(self, session: Session) -> None:
        """CANCELLED, unless a job this request could have is held for another: then no longer than WITHHOLD_NS."""
        assert session.ending and session.queued
        watched = session.watched
        assert watched is not None
        if session.syncing:
            return
        if self._may_return(session):
            if session.withhold_until_ns == 0:
                session.withhold_until_ns = self.now_ns + WITHHOLD
                self.withheld.append(session)
                return
            if self.now_ns < session.withhold_until_ns:
                return
        again = session.multi and (session.failed or watched.lost_count != session.lost_before)
        request = session.request
        self.end_request(session)
        session.gate.port.cancelled(session.number, request, again)

    def _may_return(self, session: Session) -> bool:
        watched = session.watched
        assert watched is not None
        if watched.held_count == 0:
            return False
        for tube in watched.tubes:
            if len(tube.held.items) != 0 and tube.pause_until_ns == 0:
                return True
        return False

    def recheck_withheld(self) -> None:
        """A hold has ended, or time has passed: some last words may be due."""
        if len(self.withheld) == 0:
            return
        for session in self.withheld[:]:
            if session.withhold_until_ns != 0 and session.queued:
                self.say_last_word(session)

    # ---------------------------------------------------------------- grants, offers and holds

    def serve(self, tube: Tube) -> None:
        items = tube.ready.items
        while len(items) != 0 and tube.pause_until_ns == 0:
            session = self._next_waiter(tube)
            if session is None:
                return
            if self.budget <= 0:
                if tube not in self.unserved:
                    self.unserved.append(tube)
                return
            self.budget -= 1
            self._give(session, items[0])

    def _next_waiter(self, tube: Tube) -> Session | None:
        found: Session | None = None
        for each in tube.sets:
            first = each.first
            if first is not None and (found is None or first.arrival < found.arrival):
                gate = each.gate
                if not gate.blocked and not gate.silent:
                    found = first
        return found

    def _give(self, session: Session, job: Job) -> None:
        if session.multi:
            watched = session.watched
            assert watched is not None
            watched.unqueue(session)
            self._offer(session, job)
        else:
            request = session.request
            self.end_request(session)
            self._grant(session, request, job)

    def _grant(self, session: Session, request: i64, job: Job) -> None:
        tube = self.tube_of(job)
        self._leave_ready(job, tube)
        self._reserve(job, tube, session, self.now_ns)
        session.gate.port.granted(session.number, request, job, job.ttr_ns())

    def _offer(self, session: Session, job: Job) -> None:
        """Holds the job, which is at the head of its ready heap, for a session that is not queued."""
        assert not session.queued and session.held is None
        tube = self.tube_of(job)
        tube.ready.remove(job)
        if len(tube.ready.items) == 0:
            self.heads.update(tube)
        tube.held.push(job)
        for each in tube.sets:
            each.held_count += 1
        job.holder = i32(session.index)
        session.held = job
        session.offered = True
        session.hold_until_ns = self.now_ns + HOLD
        if session.withhold_until_ns != 0:
            session.withhold_until_ns = 0
            self.withheld.remove(session)
        self.holds.append(HoldNote(session, session.hold_until_ns))
        session.gate.port.offered(session.number, session.request, job)

    def _unhold(self, session: Session) -> Tube:
        """The held job is a ready one like the others again, at its old place. The caller serves its tube."""
        job = session.held
        assert job is not None
        tube = self._let_go(session, job)
        tube.ready.push(job)
        if job.heap_at == 0:
            self._head_better(tube, job)
        return tube

    def _let_go(self, session: Session, job: Job) -> Tube:
        """Ends the hold; the job is in no heap."""
        assert job.state == READY and session.held is job
        tube = self.tube_of(job)
        tube.held.remove(job)
        for each in tube.sets:
            each.held_count -= 1
        job.holder = NOWHERE
        session.held = None
        return tube

    def take_out_ready(self, job: Job, tube: Tube) -> None:
        """Out of the ready state for good, from under a hold if need be. The caller rechecks withheld words after."""
        self.note_loss(tube)
        if job.holder != NOWHERE:
            self._let_go(self.holder_of(job), job)
            self._uncount_ready(job, tube)
        else:
            self._leave_ready(job, tube)

    def smaller_held_elsewhere(self, session: Session) -> bool:
        """True if a job is held through another link that comes before all that could be granted to this session.

        The DROP of that hold may be under way although the client it was held for has had its answer: an answer with
        less would break the order of commands that do not overlap.
        """
        watched = session.watched
        assert watched is not None
        if watched.held_count == 0:
            return False
        best = watched.best()
        for tube in watched.tubes:
            if tube.pause_until_ns == 0:
                for job in tube.held.items:
                    if self.holder_of(job).gate is not session.gate and (
                        best is None or not no_worse(best, i64(job.priority_code), job.created_ns, job.id)
                    ):
                        return True
        return False

    def note_loss(self, tube: Tube) -> None:
        """A ready job of the tube is out of reach, but not through a reserve: see FLAG_AGAIN."""
        for each in tube.sets:
            each.lost_count += 1

    # ---------------------------------------------------------------- time

    def next_hold_end_ns(self) -> i64:
        """When the next hold or withheld word ends by time; NEVER if there is none."""
        due = NEVER
        while len(self.holds) != 0 and not self.holds[0].runs():
            self.holds.popleft()
        if len(self.holds) != 0:
            due = self.holds[0].until_ns
        for session in self.withheld:
            if session.withhold_until_ns < due:
                due = session.withhold_until_ns
        return due

    def expire_holds(self, now_ns: i64) -> None:
        """Takes back holds that are over time, and says last words that were withheld long enough."""
        self.now_ns = now_ns
        while len(self.holds) != 0:
            note = self.holds[0]
            if note.runs():
                if note.until_ns > now_ns:
                    break
                gate = note.session.gate
                # A stopped frontend may have many waiters here: the job must not be held for each of them in turn.
                if gate.heard_ns <= note.until_ns - HOLD:
                    gate.silent = True
                self.serve(self._unhold(note.session))
            self.holds.popleft()
        self.recheck_withheld()

    def serve_rest(self) -> bool:
        """Goes on with tubes whose serving the budget ended. True when none is left."""
        while len(self.unserved) != 0:
            if self.budget <= 0:
                return False
            self.serve(self.unserved.pop())
        return True


def no_worse(job: Job, priority_code: i64, created_ns: i64, id: i64) -> bool:
    """True if the job is the one of the key or comes before it."""
    own = i64(job.priority_code)
    if own != priority_code:
        return own < priority_code
    if job.created_ns != created_ns:
        return job.created_ns < created_ns
    return job.id <= id
