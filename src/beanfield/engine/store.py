"""The jobs and tubes of one slot: where each job stands, and what moves it.

Rules: every job is in exactly one heap, the one of its state; counters change with the move, never apart from it.
Waiting sessions are served by the class built on this one (waiting.py); here `serve` only marks the place. The journal
is told of a change when the job is complete in its new state, and before anybody can be served with it. Time comes in
as `now_ns` of each call.
"""

from typing import Final

from mypy_extensions import i32, i64, mypyc_attr

from beanfield.constants import DEFAULT_TUBE, JOB_COST_BYTES, JOBS_PER_TURN_MAX, NS_PER_S, URGENT_PRIORITY
from beanfield.engine.heap import TimeHeap
from beanfield.engine.job import BURIED, DELAYED, GONE, NOWHERE, READY, RESERVED, SHIFT, Job, counted
from beanfield.engine.session import Session
from beanfield.engine.table import JobTable
from beanfield.engine.tube import NEVER, Heads, Tube, TubeHeap
from beanfield.pages import OwnerCounters
from beanfield.routing import Topology
from beanfield.wal.journal import Journal

URGENT_BELOW: Final[i32] = i32(URGENT_PRIORITY - SHIFT)
SECOND: Final[i64] = NS_PER_S
COST: Final[i64] = JOB_COST_BYTES


@mypyc_attr(native_class=True)
class Store:
    """State of one slot. `budget` is how many jobs and frames the present turn may still handle."""

    def __init__(
        self, topology: Topology, slot: i64, created_offset_ns: i64, counters: OwnerCounters, journal: Journal
    ) -> None:
        self.topology: Topology = topology
        self.slot: i64 = slot
        self.created_offset_ns: i64 = created_offset_ns
        self.counters: OwnerCounters = counters
        self.journal: Journal = journal
        self.created_last_ns: i64 = 0
        self.burial_last: i64 = 0
        self.jobs: JobTable = JobTable(topology.partitions)
        self.reserved: TimeHeap = TimeHeap()
        self.tubes: dict[bytes, Tube] = {}  # in order of creation
        self.tube_at: list[Tube | None] = []
        self.tube_free: list[int] = []
        self.events: TubeHeap = TubeHeap()
        self.heads: Heads = Heads()
        self.sessions: list[Session | None] = []
        self.session_free: list[int] = []
        self.now_ns: i64 = 0
        self.budget: i64 = JOBS_PER_TURN_MAX
        if topology.slot_of_name(DEFAULT_TUBE) == slot:
            self.make_tube(DEFAULT_TUBE, 0).permanent = True

    # ---------------------------------------------------------------- tubes

    def created(self, now_ns: i64) -> i64:
        """The creation time of what is made now: on the server's time line, never before the last one given."""
        created_ns = now_ns + self.created_offset_ns
        if created_ns < self.created_last_ns:
            created_ns = self.created_last_ns
        self.created_last_ns = created_ns
        return created_ns

    def make_tube(self, name: bytes, now_ns: i64) -> Tube:
        """Finds or makes; the caller gives it a reference before the command ends."""
        tube = self.tubes.get(name)
        if tube is not None:
            return tube
        partition = self.topology.partition_of(name)
        assert self.topology.slot_of_name(name) == self.slot
        if len(self.tube_free) != 0:
            index: i64 = self.tube_free.pop()
        else:
            index = len(self.tube_at)
            self.tube_at.append(None)
        tube = Tube(name, index, partition, self.created(now_ns))
        self.tube_at[index] = tube
        self.tubes[name] = tube
        self.counters.tubes += 1
        return tube

    def tube_of(self, job: Job) -> Tube:
        tube = self.tube_at[i64(job.tube)]
        assert tube is not None
        return tube

    def forget_if_unused(self, tube: Tube) -> None:
        """Ends a tube that nothing refers to any more; its counters and its pause end with it."""
        if not tube.unused():
            return
        assert len(tube.sets) == 0
        if tube.pause_until_ns != 0:
            # A log must not bring the pause back with a later tube of this name.
            self.journal.pause(tube.name, 0, 0)
        tube.pause_until_ns = 0
        self.events.update(tube)
        del self.tubes[tube.name]
        self.tube_at[tube.index] = None
        self.tube_free.append(tube.index)
        self.counters.tubes -= 1

    # ---------------------------------------------------------------- jobs come and go

    def next_id(self, tube: Tube) -> i64:
        """The id that the next put into this tube takes, or -1 when the ids of the slot are used up."""
        return self.topology.make_id(self.counters.next_sequence, tube.partition)

    def put(self, tube: Tube, id: i64, priority: i64, delay_s: i64, ttr_s: i64, body: bytes, now_ns: i64) -> Job:
        """A new job, ready or delayed. Its id is what next_id of this tube says; its sequence is used up."""
        assert 0 <= priority <= 4_294_967_295
        assert ttr_s >= 1
        assert id == self.next_id(tube)
        self.counters.next_sequence += 1
        self.now_ns = now_ns
        job = Job(id, i32(tube.index), self.created(now_ns), priority, delay_s, ttr_s, body)
        self.jobs.add(job)
        tube.job_count += 1
        tube.total_jobs += 1
        counters = self.counters
        counters.total_jobs += 1
        counters.memory_bytes += COST + len(body)
        self._enter(job, delay_s, now_ns)
        self.journal.put(job, tube.name)
        self._place(job, tube)
        return job

    def _enter(self, job: Job, delay_s: i64, now_ns: i64) -> None:
        """The state that a put or a release with this delay gives; `_place` follows, once the journal knows."""
        if delay_s > 0:
            job.state = DELAYED
            job.deadline_ns = now_ns + delay_s * SECOND
        else:
            job.state = READY

    def _place(self, job: Job, tube: Tube) -> None:
        """Into the heap of its state, DELAYED or READY."""
        if job.state == DELAYED:
            self._delay(job, tube, job.deadline_ns)
        else:
            self._make_ready(job, tube)

    def restore(self, tube: Tube, job: Job, now_ns: i64) -> None:
        """A job that a log gave back. Its state is DELAYED (deadline_ns set), BURIED (burial number set) or READY."""
        state = job.state
        job.tube = i32(tube.index)
        self.jobs.add(job)
        tube.job_count += 1
        self.counters.memory_bytes += COST + len(job.body)
        if job.created_ns > self.created_last_ns:
            self.created_last_ns = job.created_ns
        if state == DELAYED:
            self._delay(job, tube, job.deadline_ns)
        elif state == BURIED:
            number = job.deadline_ns
            if number > self.burial_last:
                self.burial_last = number
            self._bury(job, tube, number)
        else:
            self._make_ready(job, tube)

    def _destroy(self, job: Job, tube: Tube) -> None:
        """Ends a job that is in no heap any more."""
        assert job.heap_at == NOWHERE
        self.journal.delete(job, tube.name)
        job.state = GONE
        self.jobs.remove(job)
        tube.job_count -= 1
        self.counters.memory_bytes -= COST + len(job.body)
        if tube.job_count == 0:
            self.forget_if_unused(tube)

    # ---------------------------------------------------------------- into a state

    def _make_ready(self, job: Job, tube: Tube) -> None:
        job.state = READY
        job.holder = NOWHERE
        counters = self.counters
        counters.jobs_ready += 1
        if job.priority_code < URGENT_BELOW:
            counters.jobs_urgent += 1
            tube.urgent_count += 1
        tube.ready.push(job)
        if job.heap_at == 0:
            self._head_better(tube, job)
        self.serve(tube)

    def _delay(self, job: Job, tube: Tube, deadline_ns: i64) -> None:
        job.state = DELAYED
        job.holder = NOWHERE
        job.deadline_ns = deadline_ns
        self.counters.jobs_delayed += 1
        tube.delayed.push(job)
        self.events.update(tube)

    def _bury(self, job: Job, tube: Tube, number: i64) -> None:
        job.state = BURIED
        job.holder = NOWHERE
        job.deadline_ns = number
        self.counters.jobs_buried += 1
        tube.buried.push(job)

    def _reserve(self, job: Job, tube: Tube, session: Session, now_ns: i64) -> None:
        """The job is in no heap; the reservation and its TTR begin."""
        assert job.heap_at == NOWHERE
        job.state = RESERVED
        job.deadline_ns = now_ns + job.ttr_ns()
        job.holder = i32(session.index)
        job.holder_at = i32(len(session.reserved))
        job.reserves = counted(job.reserves)
        session.reserved.append(job)
        self.reserved.push(job)
        self.counters.jobs_reserved += 1
        link = session.gate.index
        tube.count_reserved(link, 1)
        for each in tube.sets:
            if each.gate.index != link:
                each.reserved_elsewhere += 1
        self.journal.count(job)

    # ---------------------------------------------------------------- out of a state

    def _leave_ready(self, job: Job, tube: Tube) -> None:
        """Out of the ready heap; a held job leaves its hold first (waiting.py)."""
        assert job.state == READY
        assert job.holder == NOWHERE
        tube.ready.remove(job)
        if len(tube.ready.items) == 0:
            self.heads.update(tube)
        self._uncount_ready(job, tube)

    def _uncount_ready(self, job: Job, tube: Tube) -> None:
        counters = self.counters
        counters.jobs_ready -= 1
        if job.priority_code < URGENT_BELOW:
            counters.jobs_urgent -= 1
            tube.urgent_count -= 1

    def _leave_delayed(self, job: Job, tube: Tube) -> None:
        assert job.state == DELAYED
        tube.delayed.remove(job)
        self.counters.jobs_delayed -= 1
        self.events.update(tube)

    def _leave_buried(self, job: Job, tube: Tube) -> None:
        assert job.state == BURIED
        tube.buried.remove(job)
        self.counters.jobs_buried -= 1

    def _leave_reserved(self, job: Job, tube: Tube) -> None:
        """The reservation ends."""
        assert job.state == RESERVED
        session = self.holder_of(job)
        at: i64 = i64(job.holder_at)
        reserved = session.reserved
        assert reserved[at] is job
        last = reserved.pop()
        if last is not job:
            reserved[at] = last
            last.holder_at = i32(at)
        job.holder = NOWHERE
        job.holder_at = NOWHERE
        self.reserved.remove(job)
        self.counters.jobs_reserved -= 1
        link = session.gate.index
        tube.count_reserved(link, -1)
        for each in tube.sets:
            if each.gate.index != link:
                each.reserved_elsewhere -= 1

    def holder_of(self, job: Job) -> Session:
        """The session that holds a reserved job, or for which a ready one is held."""
        session = self.sessions[i64(job.holder)]
        assert session is not None
        return session

    # ---------------------------------------------------------------- ready jobs and those who wait for them

    def _head_better(self, tube: Tube, job: Job) -> None:
        """`job` has become the head of the ready heap: with many such tubes, every set of several tubes must know."""
        self.heads.update(tube)
        if self.heads.wide and tube.pause_until_ns == 0:
            for each in tube.sets:
                each.enter(tube, job)

    def serve(self, tube: Tube) -> None:
        """Ready jobs of the tube go to those who wait for them."""
        raise NotImplementedError

    # ---------------------------------------------------------------- time

    def next_due_ns(self) -> i64:
        """When the next delay, pause or TTR ends; NEVER if none runs."""
        due = NEVER
        tubes = self.events.items
        if len(tubes) != 0:
            due = tubes[0].event_ns
        reserved = self.reserved.items
        if len(reserved) != 0 and reserved[0].deadline_ns < due:
            due = reserved[0].deadline_ns
        return due

    def expire(self, now_ns: i64) -> bool:
        """Moves what is due: delays, then pauses, then TTRs, as far as the budget goes. True when all is through."""
        self.now_ns = now_ns
        tubes = self.events.items
        while len(tubes) != 0 and tubes[0].event_ns <= now_ns:
            if self.budget <= 0:
                return False
            self._expire_tube(tubes[0], now_ns)
        reserved = self.reserved.items
        while len(reserved) != 0 and reserved[0].deadline_ns <= now_ns:
            if self.budget <= 0:
                return False
            self.budget -= 1
            self._expire_reservation(reserved[0])
        return True

    def _expire_tube(self, tube: Tube, now_ns: i64) -> None:
        self.budget -= 1
        delayed = tube.delayed.items
        if len(delayed) != 0 and delayed[0].deadline_ns <= now_ns:
            job = delayed[0]
            self._leave_delayed(job, tube)
            self._make_ready(job, tube)
            return
        assert tube.pause_until_ns <= now_ns
        self._end_pause(tube)

    def _end_pause(self, tube: Tube) -> None:
        tube.pause_until_ns = 0
        self.events.update(tube)
        items = tube.ready.items
        if len(items) != 0:
            self._head_better(tube, items[0])
        self.serve(tube)

    def _expire_reservation(self, job: Job) -> None:
        tube = self.tube_of(job)
        session = self.holder_of(job)
        self._leave_reserved(job, tube)
        job.timeouts = counted(job.timeouts)
        job.state = READY
        self.journal.count(job)
        self.counters.job_timeouts += 1
        if not session.detached:
            session.gate.port.expired(session.number, job.id)
        self._make_ready(job, tube)

    # ---------------------------------------------------------------- sessions

    def open_session(self, session: Session) -> None:
        """A new session without references: gives it its index."""
        if len(self.session_free) != 0:
            session.index = self.session_free.pop()
            self.sessions[session.index] = session
        else:
            session.index = len(self.sessions)
            self.sessions.append(session)

    def close_session(self, session: Session) -> None:
        """Ends a session that holds nothing any more."""
        assert len(session.reserved) == 0
        assert session.used is None and session.watched is None
        assert self.sessions[session.index] is session
        self.sessions[session.index] = None
        self.session_free.append(session.index)
