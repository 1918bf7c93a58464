"""The commands of one slot, for sessions: the top of the engine (store.py, waiting.py below it).

Rules: results are return values; what happens of its own accord goes through the session's port. Nothing here knows
links, frames or replies. A command that moves many jobs (kick, detach) does as many as the turn's budget allows and
says whether it is through.
"""

from typing import Final

from mypy_extensions import i64, mypyc_attr

from beanfield.constants import NS_PER_S
from beanfield.engine.job import BURIED, DELAYED, READY, RESERVED, Job, counted
from beanfield.engine.session import NO_REQUEST, Gate, Session
from beanfield.engine.tube import Tube
from beanfield.engine.waiting import WaitingRoom
from beanfield.engine.watchset import WatchSet
from beanfield.pages import OwnerCounters
from beanfield.routing import Topology
from beanfield.wal.journal import Journal

SECOND: Final[i64] = NS_PER_S

NOT_FOUND: Final[i64] = 0
DONE: Final[i64] = 1
DONE_ENDED: Final[i64] = 2  # done, and it ended the session's own reservation


@mypyc_attr(native_class=True)
class Engine(WaitingRoom):
    """One slot. Ids may be any number >= 1."""

    def __init__(
        self, topology: Topology, slot: i64, created_offset_ns: i64, counters: OwnerCounters, journal: Journal
    ) -> None:
        super().__init__(topology, slot, created_offset_ns, counters, journal)
        self.sets: dict[int, list[WatchSet]] = {}  # by key
        self.detaching: list[Session] = []  # gone, with reservations still to be returned

    # ---------------------------------------------------------------- use, watch, ignore

    def use(self, session: Session, name: bytes, now_ns: i64) -> None:
        tube = self.make_tube(name, now_ns)
        tube.using_count += 1
        self.unuse(session)
        session.used = tube

    def unuse(self, session: Session) -> None:
        """Gives up the used tube, if it is in this slot; harmless otherwise."""
        old = session.used
        if old is not None:
            session.used = None
            old.using_count -= 1
            self.forget_if_unused(old)

    def watch(self, session: Session, name: bytes, now_ns: i64) -> None:
        """Adds the tube to the session's watch list; harmless if it is there. Not while a request is under way."""
        assert session.request == NO_REQUEST
        tube = self.make_tube(name, now_ns)
        old = session.watched
        if old is not None and old.has(tube):
            return
        tube.watching_count += 1
        key = set_mark(session.gate.index) if old is None else old.key
        key = key ^ tube_mark(tube.index)
        wanted = self._find_set(key, session.gate, old, tube, True)
        if wanted is not None:
            self._move(session, wanted)
        elif old is not None and old.session_count == 1:
            self._unlist(old)
            old.add(tube)
            old.key = key
            self._list(old)
        else:
            fresh = WatchSet(session.gate, self.heads, key)
            if old is not None:
                for each in old.tubes:
                    fresh.add(each)
            fresh.add(tube)
            self._list(fresh)
            self._move(session, fresh)

    def ignore(self, session: Session, name: bytes) -> None:
        """Takes the tube off the session's watch list; harmless if it is not there."""
        assert session.request == NO_REQUEST
        tube = self.tubes.get(name)
        old = session.watched
        if tube is None or old is None or not old.has(tube):
            return
        key = old.key ^ tube_mark(tube.index)
        if len(old.tubes) == 1:
            self._move(session, None)
        else:
            wanted = self._find_set(key, session.gate, old, tube, False)
            if wanted is not None:
                self._move(session, wanted)
            elif old.session_count == 1:
                self._unlist(old)
                old.remove(tube)
                old.key = key
                self._list(old)
            else:
                fresh = WatchSet(session.gate, self.heads, key)
                for each in old.tubes:
                    if each is not tube:
                        fresh.add(each)
                self._list(fresh)
                self._move(session, fresh)
        tube.watching_count -= 1
        self.forget_if_unused(tube)

    def _find_set(self, key: int, gate: Gate, old: WatchSet | None, tube: Tube, plus: bool) -> WatchSet | None:
        """The set with just the tubes of `old` plus (or without) `tube`, if it is there."""
        size: i64 = 1 if plus else -1
        if old is not None:
            size += len(old.tubes)
        for each in self.sets.get(key, []):
            if each.gate is gate and len(each.tubes) == size and each.has(tube) == plus:
                same = True
                if old is not None:
                    for other in old.tubes:
                        if other is not tube and not each.has(other):
                            same = False
                            break
                if same:
                    return each
        return None

    def _move(self, session: Session, wanted: WatchSet | None) -> None:
        old = session.watched
        if wanted is not None:
            wanted.session_count += 1
        session.watched = wanted
        if old is not None:
            old.session_count -= 1
            if old.session_count == 0:
                self._unlist(old)
                old.dissolve()

    def _list(self, watched: WatchSet) -> None:
        same = self.sets.get(watched.key)
        if same is None:
            self.sets[watched.key] = [watched]
        else:
            same.append(watched)

    def _unlist(self, watched: WatchSet) -> None:
        same = self.sets[watched.key]
        same.remove(watched)
        if len(same) == 0:
            del self.sets[watched.key]

    # ---------------------------------------------------------------- by id

    def find(self, id: i64) -> Job | None:
        return self.jobs.find(id)

    def held_elsewhere(self, job: Job | None, session: Session) -> bool:
        """True if the job is reserved through another link than the session's."""
        return job is not None and job.state == RESERVED and self.holder_of(job).gate is not session.gate

    def own(self, session: Session, id: i64) -> Job | None:
        """The job, if this session has it reserved."""
        job = self.jobs.find(id)
        if job is None or job.state != RESERVED or i64(job.holder) != session.index:
            return None
        return job

    def take_out(self, job: Job, tube: Tube) -> None:
        """Out of whatever state it is in, into no heap. The caller gives it a new state, or destroys it."""
        state = job.state
        if state == READY:
            self.take_out_ready(job, tube)
        elif state == RESERVED:
            self._leave_reserved(job, tube)
        elif state == DELAYED:
            self._leave_delayed(job, tube)
        else:
            self._leave_buried(job, tube)

    def delete(self, session: Session, id: i64, now_ns: i64) -> i64:
        """NOT_FOUND, DONE, or DONE_ENDED."""
        self.now_ns = now_ns
        job = self.jobs.find(id)
        if job is None:
            return NOT_FOUND
        result = DONE
        if job.state == RESERVED:
            if i64(job.holder) != session.index:
                return NOT_FOUND
            result = DONE_ENDED
        tube = self.tube_of(job)
        self.take_out(job, tube)
        tube.delete_count += 1
        self._destroy(job, tube)
        self.recheck_withheld()
        return result

    def release(self, session: Session, job: Job, priority: i64, delay_s: i64, now_ns: i64) -> None:
        """`job` is own(session, id)."""
        self.now_ns = now_ns
        tube = self.tube_of(job)
        self._leave_reserved(job, tube)
        job.set_priority(priority)
        job.set_delay_s(delay_s)
        job.releases = counted(job.releases)
        self._enter(job, delay_s, now_ns)
        self.journal.change(job, tube.name)
        self._place(job, tube)

    def bury(self, session: Session, job: Job, priority: i64) -> None:
        """`job` is own(session, id)."""
        tube = self.tube_of(job)
        self._leave_reserved(job, tube)
        job.set_priority(priority)
        job.buries = counted(job.buries)
        self.burial_last += 1
        self._bury(job, tube, self.burial_last)
        self.journal.change(job, tube.name)

    def touch(self, job: Job, now_ns: i64) -> i64:
        """A new TTR for an own job; returns it in ns."""
        ttr_ns = job.ttr_ns()
        job.deadline_ns = now_ns + ttr_ns
        self.reserved.moved(job)
        return ttr_ns

    def reserve_job(self, session: Session, id: i64, now_ns: i64) -> Job | None:
        """Reserves a ready, delayed or buried job whatever is watched or paused."""
        self.now_ns = now_ns
        job = self.jobs.find(id)
        if job is None or job.state == RESERVED:
            return None
        tube = self.tube_of(job)
        was_ready = job.state == READY
        self.take_out(job, tube)
        self._reserve(job, tube, session, now_ns)
        if not was_ready:
            self.journal.change(job, tube.name)
        self.recheck_withheld()
        return job

    # ---------------------------------------------------------------- kick

    def kick_job(self, job: Job | None, now_ns: i64) -> bool:
        """False unless it is buried or delayed."""
        self.now_ns = now_ns
        if job is None or (job.state != BURIED and job.state != DELAYED):
            return False
        self._kick(job, self.tube_of(job))
        return True

    def _kick(self, job: Job, tube: Tube) -> None:
        self.take_out(job, tube)
        job.kicks = counted(job.kicks)
        job.state = READY
        self.journal.change(job, tube.name)
        self._make_ready(job, tube)

    def kick_some(self, tube: Tube, buried: bool, bound: i64, now_ns: i64) -> i64:
        """Kicks up to `bound` buried (or else delayed) jobs, as far as the budget goes; how many."""
        self.now_ns = now_ns
        kicked: i64 = 0
        items = tube.buried.items if buried else tube.delayed.items
        while kicked < bound and len(items) != 0 and self.budget > 0 and self.journal.can_change():
            self.budget -= 1
            self._kick(items[0], tube)
            kicked += 1
        return kicked

    # ---------------------------------------------------------------- pause

    def pause(self, tube: Tube, delay_s: i64, now_ns: i64) -> None:
        """0 ends a pause; a new pause replaces the old one."""
        self.now_ns = now_ns
        tube.pause_count += 1
        tube.pause_ns = delay_s * SECOND
        self.journal.pause(tube.name, delay_s, now_ns + delay_s * SECOND)
        if delay_s == 0:
            if tube.pause_until_ns != 0:
                self._end_pause(tube)
            return
        tube.pause_until_ns = now_ns + delay_s * SECOND
        self.heads.update(tube)
        self.events.update(tube)
        # A job of this tube held for an offer can be had by nobody now: last words may be due.
        self.note_loss(tube)
        self.recheck_withheld()

    # ---------------------------------------------------------------- the end of a session, a link that is stuck

    def detach(self, session: Session, now_ns: i64) -> None:
        """Its client is gone: waits, holds and references end now, reservations return as the budget allows."""
        self.now_ns = now_ns
        assert not session.detached
        session.detached = True
        if session.request != NO_REQUEST:
            self.drop(session, now_ns)
        self.unuse(session)
        watched = session.watched
        if watched is not None:
            tubes = watched.tubes[:]
            self._move(session, None)
            for tube in tubes:
                tube.watching_count -= 1
                self.forget_if_unused(tube)
        self.detaching.append(session)

    def return_reservations(self, now_ns: i64) -> bool:
        """Goes on with the detaches begun. True when all are through."""
        self.now_ns = now_ns
        while len(self.detaching) != 0:
            session = self.detaching[-1]
            reserved = session.reserved
            while len(reserved) != 0:
                if self.budget <= 0:
                    return False
                self.budget -= 1
                job = reserved[-1]
                tube = self.tube_of(job)
                self._leave_reserved(job, tube)
                self._make_ready(job, tube)
            self.detaching.pop()
            self.close_session(session)
        return True

    def set_blocked(self, gate: Gate, blocked: bool, now_ns: i64) -> None:
        """The link cannot take grants (or can again): its waiters keep their place meanwhile."""
        self.now_ns = now_ns
        if gate.blocked == blocked:
            return
        gate.blocked = blocked
        if not blocked:
            self._serve_gate(gate)

    def heard(self, gate: Gate, now_ns: i64) -> None:
        """The peer of the link has spoken."""
        gate.heard_ns = now_ns
        if gate.silent:
            self.now_ns = now_ns
            gate.silent = False
            self._serve_gate(gate)

    def _serve_gate(self, gate: Gate) -> None:
        """Its waiters, who have been passed over, get what is ready."""
        for same in list(self.sets.values()):
            for each in same:
                if each.gate is gate and each.first is not None:
                    for tube in each.tubes:
                        self.serve(tube)

    # ---------------------------------------------------------------- time

    def due_ns(self) -> i64:
        """When this engine next has something to do by itself; 0: now; NEVER: nothing."""
        if len(self.detaching) != 0 or len(self.unserved) != 0:
            return 0
        due = self.next_due_ns()
        if len(self.holds) != 0 or len(self.withheld) != 0:
            end = self.next_hold_end_ns()
            if end < due:
                due = end
        return due

    def work_off(self, now_ns: i64) -> bool:
        """Everything that is due, as far as the budget goes. True when it is through."""
        self.now_ns = now_ns
        if not self.serve_rest():
            return False
        if not self.return_reservations(now_ns):
            return False
        if not self.expire(now_ns):
            return False
        if len(self.holds) != 0 or len(self.withheld) != 0:
            self.expire_holds(now_ns)
        return True


def tube_mark(index: i64) -> int:
    """Spreads tube indexes over 60 bits, so that the exclusive or of different sets hardly ever is the same."""
    return (int(index + 1) * 0x9E37_79B9_7F4A_7C15) & 0x0FFF_FFFF_FFFF_FFFF


def set_mark(gate_index: i64) -> int:
    """Keeps the sets of different links apart."""
    return (int(gate_index + 1) * 0xC2B2_AE3D_27D4_EB4F) & 0x0FFF_FFFF_FFFF_FFFF


