"""A full recount of an engine, for tests and the simulator: everything that is kept must equal what is counted.

O(everything). Knows the engine from inside and changes nothing.
"""

from beanfield.engine.engine import Engine
from beanfield.engine.job import BURIED, DELAYED, NOWHERE, READY, RESERVED, Job
from beanfield.engine.session import NO_REQUEST, Session
from beanfield.engine.tube import NEVER, Tube
from beanfield.engine.watchset import WatchSet


def check_engine(engine: Engine) -> None:
    """Raises AssertionError with the first thing that does not hold."""
    tubes = list(engine.tubes.values())
    for tube in tubes:
        _check_tube(engine, tube)
    jobs = engine.jobs.jobs()
    assert len(jobs) == engine.jobs.count
    counters = engine.counters
    states = [0, 0, 0, 0, 0, 0]
    memory = 0
    for job in jobs:
        states[job.state] += 1
        memory += 256 + len(job.body)
        assert job.tube >= 0 and engine.tube_at[job.tube] is not None
    assert states[READY] == counters.jobs_ready
    assert states[RESERVED] == counters.jobs_reserved
    assert states[DELAYED] == counters.jobs_delayed
    assert states[BURIED] == counters.jobs_buried
    assert len(tubes) == counters.tubes
    assert sum(tube.urgent_count for tube in tubes) == counters.jobs_urgent
    assert sum(tube.job_count for tube in tubes) == len(jobs)
    assert memory <= counters.memory_bytes  # replies in pieces are counted too
    _check_reserved(engine)
    for session in engine.sessions:
        if session is not None:
            _check_session(engine, session)
    for key, same in engine.sets.items():
        assert len(same) > 0
        for each in same:
            assert each.key == key
            _check_set(engine, each)
    for tube in engine.events.items:
        assert tube.event_ns != NEVER
    heads = [tube for tube in tubes if len(tube.ready.items) != 0 and tube.pause_until_ns == 0]
    assert len(heads) == len(engine.heads.tubes)
    for tube in heads:
        assert engine.heads.tubes[tube.head_at] is tube


def _check_tube(engine: Engine, tube: Tube) -> None:
    assert engine.tube_at[tube.index] is tube
    assert not tube.unused(), f"{tube.name!r} lives without a reference"
    for job in tube.ready.items:
        assert job.state == READY and job.holder == NOWHERE
    for job in tube.held.items:
        assert job.state == READY and engine.holder_of(job).held is job
    for job in tube.delayed.items:
        assert job.state == DELAYED
    for job in tube.buried.items:
        assert job.state == BURIED
    for heap in (tube.ready.items, tube.held.items, tube.delayed.items, tube.buried.items):
        _check_positions(heap, tube)
    timed = [(job.deadline_ns, job.id) for job in tube.delayed.items]
    assert not timed or min(timed) == timed[0]
    urgency = [(job.priority_code, job.id) for job in tube.ready.items]
    assert not urgency or min(urgency) == urgency[0]
    inside = len(tube.ready.items) + len(tube.held.items) + len(tube.delayed.items) + len(tube.buried.items)
    assert tube.job_count == inside + tube.reserved_count
    assert sum(tube.reserved_by) == tube.reserved_count
    assert tube.urgent_count == sum(1 for job in tube.ready.items + tube.held.items if job.priority() < 1024)
    assert tube.event_ns == tube.soonest_ns()
    for position in range(len(tube.sets)):
        each = tube.sets[position]
        assert each.back[each.at[tube.index]] == position
    watching = sum(int(each.session_count) for each in tube.sets)
    assert watching == tube.watching_count
    using = sum(1 for session in engine.sessions if session is not None and session.used is tube)
    assert using == tube.using_count
    if tube.pause_until_ns == 0 and len(tube.ready.items) != 0 and tube not in engine.unserved:
        for each in tube.sets:
            passed_over = each.gate.blocked or each.gate.silent
            assert each.first is None or passed_over, f"{tube.name!r} has a job and somebody who waits for it"


def _check_positions(heap: list[Job], tube: Tube) -> None:
    for position in range(len(heap)):
        assert heap[position].heap_at == position
        assert heap[position].tube == tube.index


def _check_reserved(engine: Engine) -> None:
    heap = engine.reserved.items
    for position in range(len(heap)):
        job = heap[position]
        assert job.heap_at == position and job.state == RESERVED
        assert engine.holder_of(job).reserved[job.holder_at] is job
        assert (heap[0].deadline_ns, heap[0].id) <= (job.deadline_ns, job.id)
    assert len(heap) == engine.counters.jobs_reserved


def _check_session(engine: Engine, session: Session) -> None:
    assert engine.sessions[session.index] is session
    for job in session.reserved:
        assert job.state == RESERVED and job.holder == session.index
    if session.used is not None:
        assert engine.tubes[session.used.name] is session.used
    watched = session.watched
    assert watched is None or watched.session_count > 0
    if session.request == NO_REQUEST:
        assert not session.queued and not session.offered and session.held is None and not session.ending
        assert session.withhold_until_ns == 0
    else:
        assert watched is not None and not session.detached
        assert session.queued != session.offered
        assert session.multi or not session.offered
    if session.held is not None:
        assert session.offered and session.held.holder == session.index
    assert (session in engine.withheld) == (session.withhold_until_ns != 0)


def _check_set(engine: Engine, watched: WatchSet) -> None:
    assert watched.session_count > 0
    users = [s for s in engine.sessions if s is not None and s.watched is watched]
    assert len(users) == watched.session_count
    assert watched.waiting_count == sum(1 for s in users if s.request != NO_REQUEST)
    queued = []
    session = watched.first
    while session is not None:
        queued.append(session)
        session = session.behind
    assert len(queued) == sum(1 for s in users if s.queued)
    assert [s.arrival for s in queued] == sorted(s.arrival for s in queued)
    link = watched.gate.index
    held = 0
    elsewhere = 0
    for position in range(len(watched.tubes)):
        tube = watched.tubes[position]
        assert watched.at[tube.index] == position
        assert tube.sets[watched.back[position]] is watched
        held += len(tube.held.items)
        elsewhere += tube.reserved_elsewhere(link)
    if engine.heads.wide and watched.era == engine.heads.era:
        _check_candidates(watched)
    assert held == watched.held_count
    assert elsewhere == watched.reserved_elsewhere
    _check_best(watched)


def _check_candidates(watched: WatchSet) -> None:
    current = [candidate for candidate in watched.candidates if not candidate.replaced]
    for candidate in current:
        assert watched.entered[watched.at[candidate.tube.index]] is candidate
    assert len(current) == sum(1 for entry in watched.entered if entry is not None)


def _check_best(watched: WatchSet) -> None:
    heads = []
    for tube in watched.tubes:
        if len(tube.ready.items) != 0 and tube.pause_until_ns == 0:
            job = tube.ready.items[0]
            heads.append((job.priority_code, job.created_ns, job.id))
    best = watched.best()
    if best is None:
        assert not heads
    else:
        assert (best.priority_code, best.created_ns, best.id) == min(heads)
