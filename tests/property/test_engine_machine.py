"""The engine against the dumb model, by random commands of several sessions on two links."""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from beanfield.engine.engine import DONE_ENDED, NOT_FOUND, Engine
from beanfield.engine.invariants import check_engine
from beanfield.engine.job import STATE_NAMES, Job
from beanfield.engine.port import Port
from beanfield.engine.session import Gate, Session
from beanfield.pages import OwnerCounters
from beanfield.routing import Topology
from beanfield.wal.journal import MemoryJournal
from tests.property.engine_model import SECOND, Model, ModelJob, ModelSession

TUBES = [b"default", b"a", b"b", b"c"]
SESSIONS = [1, 2, 3, 4]
names = st.sampled_from(TUBES)
numbers = st.sampled_from(SESSIONS)
small = st.sampled_from([0, 1, 2, 5])
priorities = st.sampled_from([0, 1, 1023, 1024, 4_294_967_295])


class Recorder(Port):
    """Keeps what the engine says by itself."""

    def __init__(self) -> None:
        self.grants: list[tuple[int, int]] = []
        self.ends: list[tuple[int, int]] = []

    def granted(self, session_number: int, request: int, job: Job, remaining_ns: int) -> None:
        assert remaining_ns == job.ttr_ns()
        self.grants.append((session_number, job.id))

    def cancelled(self, session_number: int, request: int, again: bool) -> None:
        assert not again
        self.ends.append((session_number, request))

    def expired(self, session_number: int, job_id: int) -> None:
        self.ends.append((session_number, job_id))


class EngineMachine(RuleBasedStateMachine):
    """Sessions 1 and 2 come through one link, 3 and 4 through another. FEW_MAX: see tube.Heads."""

    FEW_MAX = 16

    def __init__(self) -> None:
        super().__init__()
        self.now_ns = 1_000 * SECOND
        self.recorder = Recorder()
        self.topology = Topology(16, 1)
        self.engine = Engine(self.topology, 0, 5, OwnerCounters(), MemoryJournal())
        self.engine.heads.few_max = self.FEW_MAX
        self.engine.heads.many_min = self.FEW_MAX
        self.gates = [Gate(0, self.recorder), Gate(1, self.recorder)]
        self.model = Model()
        self.sessions: dict[int, Session] = {}
        self.requests = 0
        for number in SESSIONS:
            self.open(number)

    def open(self, number: int) -> None:
        session = Session(number, self.gates[number // 3])
        self.engine.open_session(session)
        self.engine.use(session, b"default", self.now_ns)
        self.engine.watch(session, b"default", self.now_ns)
        self.sessions[number] = session
        self.model.sessions[number] = ModelSession(number, b"default", [b"default"])

    def idle(self, number: int) -> bool:
        return not self.model.sessions[number].waiting

    def served(self) -> None:
        """What the engine said must be what the model did."""
        self.model.serve(self.now_ns)
        self.model.forget_pauses()
        assert self.recorder.grants == self.model.granted
        self.recorder.grants.clear()
        self.model.granted.clear()

    @rule(number=numbers, name=names, priority=priorities, delay_s=small, ttr_s=st.sampled_from([1, 3]), size=small)
    def put(self, number: int, name: bytes, priority: int, delay_s: int, ttr_s: int, size: int) -> None:
        if not self.idle(number):
            return
        session = self.sessions[number]
        self.engine.use(session, name, self.now_ns)
        self.model.sessions[number].used = name
        self.model.forget_pauses()
        tube = self.engine.tubes[name]
        id = self.engine.next_id(tube)
        job = self.engine.put(tube, id, priority, delay_s, ttr_s, b"x" * size, self.now_ns)
        mine = ModelJob(id, name, priority, 0, ttr_s, b"x" * size, job.created_ns)
        mine.delay_s = delay_s
        self.model.enter(mine, delay_s, self.now_ns)
        self.model.jobs.append(mine)
        self.served()

    @rule(number=numbers, name=names, on=st.booleans())
    def watch(self, number: int, name: bytes, on: bool) -> None:
        mine = self.model.sessions[number]
        if mine.waiting or (not on and mine.watched == [name]):
            return
        if on:
            self.engine.watch(self.sessions[number], name, self.now_ns)
            if name not in mine.watched:
                mine.watched.append(name)
        else:
            self.engine.ignore(self.sessions[number], name)
            if name in mine.watched:
                mine.watched.remove(name)
        self.served()

    @rule(number=numbers, nowait=st.booleans())
    def reserve(self, number: int, nowait: bool) -> None:
        mine = self.model.sessions[number]
        if mine.waiting:
            return
        self.requests += 1
        session = self.sessions[number]
        self.engine.reserve(session, self.requests, nowait, self.now_ns)
        self.model.arrivals += 1
        mine.arrival = self.model.arrivals
        if nowait:
            waits = session.request != 0
            job = self.model.best(mine)
            if job is not None:
                self.model.reserve_job(mine, job, self.now_ns)
                self.model.granted.append((number, job.id))
            assert waits == (job is None)
            if waits:
                self.engine.want_last_word(session, self.now_ns)
                assert self.recorder.ends.pop() == (number, self.requests)
        else:
            mine.waiting = True
        self.served()

    @rule(order=st.permutations(SESSIONS), name=names, puts=st.integers(1, 3))
    def all_wait_then_work_comes(self, order: list[int], name: bytes, puts: int) -> None:
        for number in order:
            self.reserve(number, False)
        for number in order:
            if self.idle(number):
                for _ in range(puts):
                    self.put(number, name, 10, 0, 1, 1)
                return
        self.leave(order[0])

    @rule(number=numbers, count=st.integers(1, 5))
    def reserve_run(self, number: int, count: int) -> None:
        mine = self.model.sessions[number]
        if mine.waiting:
            return
        got = [job.id for job in self.engine.reserve_run(self.sessions[number], count, self.now_ns)]
        wanted: list[int] = []
        while len(wanted) < count and (job := self.model.best(mine)) is not None:
            self.model.reserve_job(mine, job, self.now_ns)
            wanted.append(job.id)
        assert got == wanted
        self.served()

    @precondition(lambda self: self.model.jobs)
    @rule(
        number=numbers,
        pick=st.integers(0, 1_000),
        what=st.sampled_from(["delete", "release", "bury", "touch", "reserve", "kick"]),
        priority=priorities,
        delay_s=small,
    )
    def by_id(self, number: int, pick: int, what: str, priority: int, delay_s: int) -> None:
        mine = self.model.sessions[number]
        if mine.waiting:
            return
        job = self.model.jobs[pick % len(self.model.jobs)]
        held = job.state == "reserved" and job.holder == number
        getattr(self, "do_" + what)(self.sessions[number], mine, job, held, priority, delay_s)
        self.served()

    def do_delete(self, session: Session, mine: ModelSession, job: ModelJob, held: bool, *_: int) -> None:
        result = self.engine.delete(session, job.id, self.now_ns)
        if job.state == "reserved" and not held:
            assert result == NOT_FOUND
        else:
            assert (result == DONE_ENDED) == held
            self.model.jobs.remove(job)

    def do_release(self, session: Session, mine: ModelSession, job: ModelJob, held: bool, pri: int, delay: int) -> None:
        real = self.engine.own(session, job.id)
        assert (real is not None) == held
        if real is not None:
            self.engine.release(session, real, pri, delay, self.now_ns)
            job.priority, job.delay_s = pri, delay
            job.counts["releases"] += 1
            self.model.enter(job, delay, self.now_ns)

    def do_bury(self, session: Session, mine: ModelSession, job: ModelJob, held: bool, pri: int, _: int) -> None:
        real = self.engine.own(session, job.id)
        assert (real is not None) == held
        if real is not None:
            self.engine.bury(session, real, pri)
            job.priority, job.state, job.holder = pri, "buried", 0
            job.counts["buries"] += 1
            self.model.burials += 1
            job.burial = self.model.burials

    def do_touch(self, session: Session, mine: ModelSession, job: ModelJob, held: bool, *_: int) -> None:
        real = self.engine.own(session, job.id)
        assert (real is not None) == held
        if real is not None:
            assert self.engine.touch(real, self.now_ns) == job.ttr_s * SECOND
            job.until_ns = self.now_ns + job.ttr_s * SECOND

    def do_reserve(self, session: Session, mine: ModelSession, job: ModelJob, held: bool, *_: int) -> None:
        real = self.engine.reserve_job(session, job.id, self.now_ns)
        assert (real is not None) == (job.state != "reserved")
        if real is not None:
            self.model.reserve_job(mine, job, self.now_ns)

    def do_kick(self, session: Session, mine: ModelSession, job: ModelJob, held: bool, *_: int) -> None:
        done = self.engine.kick_job(self.engine.find(job.id), self.now_ns)
        assert done == (job.state in ("buried", "delayed"))
        if done:
            job.state = "ready"
            job.counts["kicks"] += 1

    @rule(name=names, bound=st.integers(0, 4))
    def kick(self, name: bytes, bound: int) -> None:
        tube = self.engine.tubes.get(name)
        if tube is None:
            return
        buried = sorted((j for j in self.model.jobs if j.tube == name and j.state == "buried"), key=lambda j: j.burial)
        delayed = [j for j in self.model.jobs if j.tube == name and j.state == "delayed"]
        delayed.sort(key=lambda j: (j.until_ns, j.id))
        kicked = (buried or delayed)[:bound]
        assert self.engine.kick_some(tube, bool(buried), bound, self.now_ns) == len(kicked)
        for job in kicked:
            job.state = "ready"
            job.counts["kicks"] += 1
            self.model.serve(self.now_ns)
        self.served()

    @rule(name=names, delay_s=small)
    def pause(self, name: bytes, delay_s: int) -> None:
        tube = self.engine.tubes.get(name)
        assert (tube is not None) == self.model.exists(name)
        if tube is not None:
            self.engine.pause(tube, delay_s, self.now_ns)
            self.model.paused.pop(name, None)
            if delay_s:
                self.model.paused[name] = self.now_ns + delay_s * SECOND
            self.served()

    @rule(number=numbers)
    def leave(self, number: int) -> None:
        del self.model.sessions[number]
        returned = [j for j in self.model.jobs if j.state == "reserved" and j.holder == number]
        self.engine.detach(self.sessions[number], self.now_ns)
        order = [job.id for job in self.sessions[number].reserved]
        assert self.engine.return_reservations(self.now_ns)
        for id in reversed(order):
            job = self.model.find(id)
            assert job in returned
            job.state, job.holder = "ready", 0
            self.model.serve(self.now_ns)
        assert len(order) == len(returned)
        self.model.forget_pauses()
        self.served()
        self.open(number)

    @rule(seconds=st.sampled_from([0, 1, 2, 5]), extra=st.sampled_from([0, 1]))
    def advance(self, seconds: int, extra: int) -> None:
        self.now_ns += seconds * SECOND + extra
        self.engine.budget = 1_000
        assert self.engine.work_off(self.now_ns)
        before = dict(self.model.paused)
        self.model.advance(self.now_ns)
        # Delays and pauses of different tubes end in the order of time, mixed; the model does all delays first. Which
        # waiter gets which job does not depend on it unless somebody waits: then only the sets are compared.
        if before:
            assert sorted(self.recorder.grants) == sorted(self.model.granted)
            self.recorder.grants.clear()
            self.model.granted.clear()
        assert self.recorder.ends == self.model.expired
        self.recorder.ends.clear()
        self.model.expired.clear()
        self.served()

    @invariant()
    def equal(self) -> None:
        self.engine.budget = 1_000
        check_engine(self.engine)
        assert sorted(self.engine.tubes) == sorted(t for t in TUBES if self.model.exists(t))
        assert [job.id for job in self.engine.jobs.jobs()] == sorted(
            (job.id for job in self.model.jobs), key=lambda id: (id - 1) // 16
        )
        for mine in self.model.jobs:
            job = self.engine.find(mine.id)
            assert job is not None
            assert STATE_NAMES[job.state].decode() == mine.state
            assert (job.priority(), job.delay_s(), job.ttr_s(), job.body) == (
                mine.priority,
                mine.delay_s,
                mine.ttr_s,
                mine.body,
            )
            assert mine.counts == {name: getattr(job, name) for name in mine.counts}
            if mine.state in ("reserved", "delayed"):
                assert job.deadline_ns == mine.until_ns
            if mine.state == "reserved":
                assert self.engine.holder_of(job).number == mine.holder


EngineMachine.TestCase.settings = settings(
    max_examples=150, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)
TestEngineMachine = EngineMachine.TestCase


class ManyHeadsMachine(EngineMachine):
    """Watch sets keep candidates of their own from the second tube with a job on."""

    FEW_MAX = 1


ManyHeadsMachine.TestCase.settings = EngineMachine.TestCase.settings
TestManyHeadsMachine = ManyHeadsMachine.TestCase
