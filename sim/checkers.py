"""What must hold of the whole server at every moment: one function per invariant, called by the Inspector.

These look into the owners' engines, which no client can. What clients can tell is checked by client.py (replies) and
ledger.py (jobs). A checker raises Violation; asserts in the cores count as violations too.
"""

from typing import TYPE_CHECKING, Any

from beanfield.constants import HOLD_NS, LINK_UNSENT_BYTES_HIGH
from beanfield.engine.invariants import check_engine
from beanfield.ipc.frames import ROLE_OWNER
from sim.net import LINK
from sim.process import SimProcess
from sim.server import Watcher
from sim.world import NS_PER_MS, NS_PER_S, Violation

if TYPE_CHECKING:
    from sim.client import SimClient
    from sim.server import Server
    from sim.workload import Workload

RECOUNT_EVERY_TURNS = 8
RECOUNT_JOBS_MAX = 300
# A timer fires at most a millisecond late, and a turn may come a jitter later; a busy owner's queue adds a turn.
TIMER_LATE_NS = 12 * NS_PER_MS
# One frame may be as long as this beyond the limit at which an owner stops reading.
FRAME_SLACK_BYTES = 600_000


def free_tubes(engine: Any) -> frozenset[bytes]:
    """Tubes of which a waiting reserve could be granted a job now: a ready one, not held, in a tube not paused."""
    return frozenset(tube.name for tube in engine.tubes.values() if tube.ready.items and tube.pause_until_ns == 0)


def check_timers(process: SimProcess, now_ns: int) -> None:
    """Neither TTR, nor delay, nor pause, nor hold is late, unless the owner is still working them off."""
    core = process.core
    engine = core.engine
    if core.next_deadline_ns() <= now_ns:
        return
    late_ns = now_ns
    if engine.reserved.items and engine.reserved.items[0].deadline_ns < late_ns:
        raise Violation(f"{process.title}: TTR of job {engine.reserved.items[0].id} is over and it is still reserved")
    for tube in engine.tubes.values():
        if tube.delayed.items and tube.delayed.items[0].deadline_ns < late_ns:
            raise Violation(f"{process.title}: delay of job {tube.delayed.items[0].id} is over and it is not ready")
        if tube.pause_until_ns and tube.pause_until_ns < late_ns:
            raise Violation(f"{process.title}: the pause of {tube.name!r} is over and it is still paused")
        for job in tube.held.items:
            session = engine.holder_of(job)
            if session.hold_until_ns < late_ns or session.hold_until_ns > now_ns + TIMER_LATE_NS + HOLD_NS:
                raise Violation(f"{process.title}: job {job.id} is held for too long")


def check_recount(process: SimProcess) -> None:
    """A job in one place, one holder, counters equal to a recount."""
    try:
        check_engine(process.core.engine)
    except AssertionError as error:
        raise Violation(f"{process.title}: recount: {error!r}") from error


def check_waiters(process: SimProcess) -> None:
    """No reserve waits beside a job that it could have."""
    core = process.core
    engine = core.engine
    if core.next_deadline_ns() <= process.world.now_ns:
        return
    free = free_tubes(engine)
    for link in core.links.values():
        if link.gate.blocked:
            continue
        for session in link.seats.values():
            if session.queued and any(tube.name in free for tube in session.watched.tubes):
                raise Violation(f"{process.title}: session {session.number} waits beside a ready job")


def check_limits(process: SimProcess) -> None:
    """What stands unsent is bounded, whatever clients and peers do."""
    limit = LINK_UNSENT_BYTES_HIGH + FRAME_SLACK_BYTES
    if process.role == ROLE_OWNER and process.reactor.unsent_bytes_max[LINK] > limit:
        raise Violation(f"{process.title}: {process.reactor.unsent_bytes_max[LINK]} bytes unsent to a link")


class Inspector(Watcher):
    """Runs the checkers after turns, and notes the instants that TIMED_OUT is judged by."""

    def __init__(self) -> None:
        self.server: Server | None = None
        self.workload: Workload | None = None
        self.free: dict[int, frozenset[bytes]] = {}  # by slot
        self.faults_ns: list[int] = []

    # ---------------------------------------------------------------- instants without a job
    def frame_seen(self, process: SimProcess) -> None:
        """An owner has executed one frame, or a turn: the free jobs it has now."""
        self.free[process.index] = free_tubes(process.core.engine)
        self.note_instant()

    def note_instant(self) -> None:
        assert self.workload is not None
        for client in self.workload.clients:
            self.note_for(client)

    def note_for(self, client: "SimClient") -> None:
        for command in client.outstanding:
            if command.none_seen or not command.verb.startswith("reserve") or command.verb == "reserve-job":
                continue
            if not any(tube in free for free in self.free.values() for tube in command.watched):
                command.none_seen = True

    # ---------------------------------------------------------------- turns
    def before_turn(self, process: SimProcess) -> None:
        if process.role == ROLE_OWNER and any(link.rest for link in process.core.links.values()):
            # Several frames will be executed at once: instants between them are not seen.
            assert self.workload is not None
            for client in self.workload.clients:
                for command in client.outstanding:
                    command.none_seen = True

    def after_turn(self, process: SimProcess) -> None:
        check_limits(process)
        if process.role != ROLE_OWNER:
            return
        self.frame_seen(process)
        check_timers(process, process.world.now_ns - TIMER_LATE_NS)
        check_waiters(process)
        jobs = process.core.engine.jobs.count
        if process.turns % RECOUNT_EVERY_TURNS == 0 and jobs <= RECOUNT_JOBS_MAX:
            check_recount(process)

    # ---------------------------------------------------------------- faults
    def process_ended(self, process: SimProcess) -> None:
        assert self.workload is not None
        self.faults_ns.append(process.world.now_ns)
        if process.role == ROLE_OWNER:
            self.free.pop(process.index, None)
            self.workload.ledger.owner_ended(process.index, process.world.now_ns)
            self.note_instant()
            self.workload.excuse(None)
        else:
            self.workload.excuse(process)
            for slot in range(process.server.options.slots):
                self.link_cut(slot, process.index)

    def link_cut(self, slot: int, frontend: int) -> None:
        assert self.workload is not None
        for client in self.workload.clients:
            if client.process is None or client.process.index == frontend:
                self.workload.ledger.path_broken(slot, client)
                client.excused = True
                client.broken_ns = self.workload.world.now_ns


def check_nothing_left(server: "Server") -> None:
    """All clients are gone for a while: no reservation, session, hold or reference may be left at any owner."""
    for process in server.owners:
        assert process is not None
        core = process.core
        check_recount(process)
        counters = core.counters
        if counters.jobs_reserved:
            raise Violation(f"{process.title}: {counters.jobs_reserved} jobs are reserved by nobody")
        for link in core.links.values():
            if link.seats:
                raise Violation(f"{process.title}: {len(link.seats)} sessions are left of clients that are gone")
        for tube in core.engine.tubes.values():
            if tube.using_count or tube.watching_count or tube.held.items:
                raise Violation(f"{process.title}: tube {tube.name!r} is still referred to or has a held job")
    for process in server.frontends:
        assert process is not None
        if process.core.counters.connections:
            raise Violation(f"{process.title}: counts {process.core.counters.connections} connections, there are none")


def seconds(now_ns: int) -> float:
    return now_ns / NS_PER_S
