"""What must hold of the whole server at every moment: one function per invariant, called by the Inspector.

These look into the owners' engines, which no client can. What clients can tell is checked by client.py (replies) and
ledger.py (jobs). A checker raises Violation; asserts in the cores count as violations too.
"""

from typing import TYPE_CHECKING, Any

from beanfield.constants import HOLD_NS, JOB_COST_BYTES, LINK_UNSENT_BYTES_HIGH
from beanfield.engine.invariants import check_engine
from beanfield.engine.job import NOWHERE, READY, RESERVED
from beanfield.ipc.frames import ROLE_OWNER
from beanfield.pages import FrontendCounters
from beanfield.wal.log import SYNC_EVERY_TURN
from sim.faults import BODY_MEMORY_BYTES, LEASE_NEARLY_USED
from sim.net import LINK
from sim.order import HoldWatch, OrderWatch
from sim.process import SimProcess
from sim.server import Watcher
from sim.world import NS_PER_MS, Violation

if TYPE_CHECKING:
    from sim.client import Command, SimClient
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
    core = process.owner
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
        check_engine(process.owner.engine)
    except AssertionError as error:
        raise Violation(f"{process.title}: recount: {error!r}") from error


def check_history(process: SimProcess) -> None:
    """The log has been told of all that the engine has."""
    log = process.log
    if log is not None:
        server = process.server
        wall_ns = server.wall_ns(process.world.now_ns)
        log.store.history.check_engine(process.owner.engine, int(log.inner.wall_offset_ns), wall_ns)


def check_waiters(process: SimProcess) -> None:
    """No reserve waits beside a job that it could have."""
    core = process.owner
    engine = core.engine
    if core.next_deadline_ns() <= process.world.now_ns:
        return
    free = free_tubes(engine)
    for link in core.links.values():
        for recent in link.recent:
            if recent is not None and link.seats.get(recent.number) is not recent:
                raise Violation(f"{process.title}: session {recent.number} is found and has ended")
        if link.gate.blocked or link.gate.silent:
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
        self.held: dict[int, dict[bytes, list[int]]] = {}  # by slot and tube: jobs held for some reserve
        self.memory: dict[int, int] = {}  # by slot, in bytes
        self.memory_over_ns = -1  # when all of it was last above the limit
        self.holds = HoldWatch()
        self.order: OrderWatch | None = None  # where it can be judged

    # ---------------------------------------------------------------- instants without a job
    def frame_seen(self, process: SimProcess) -> None:
        """An owner has executed one frame, or a turn: what it has now."""
        engine = process.owner.engine
        self.free[process.index] = free_tubes(engine)
        held_before = {id_ for ids in self.held.get(process.index, {}).values() for id_ in ids}
        self.held[process.index] = {
            tube.name: [job.id for job in tube.held.items] for tube in engine.tubes.values() if tube.held.items
        }
        self._note_memory(process)
        self.note_instant(process)
        if process.server.options.aims:
            assert self.workload is not None
            for id_ in [each for ids in self.held[process.index].values() for each in ids]:
                if id_ not in held_before:
                    self.workload.aim_at(id_)

    def _note_memory(self, process: SimProcess) -> None:
        """An owner refuses by its own figure and by those of the others at the beginning of its turn."""
        options = process.server.options
        now_ns = process.world.now_ns
        was_over = sum(self.memory.values()) > options.memory_bytes
        before_bytes = self.memory.get(process.index, 0)
        own_bytes = int(process.owner.counters.memory_bytes)
        self.memory[process.index] = own_bytes
        if was_over or sum(self.memory.values()) > options.memory_bytes:
            self.memory_over_ns = now_ns
        # One job may go beyond it, and replies in pieces are counted too.
        most = options.memory_bytes + JOB_COST_BYTES + options.job_bytes_max
        if own_bytes > max(before_bytes, most) and not any(
            seat.large for link in process.owner.links.values() for seat in link.seats.values()
        ):
            raise Violation(f"{process.title}: {own_bytes} bytes of jobs, the limit is {options.memory_bytes}")

    def note_instant(self, process: SimProcess | None) -> None:
        assert self.workload is not None
        for client in self.workload.clients:
            if process is not None:
                for command in client.outstanding:
                    if command.pending:
                        self._settle(command, process)
            self.note_for(client)
            if process is not None and self.order is not None:
                for command in client.outstanding:
                    if command.steady:
                        self.order.seen(client, command, process)
        if process is not None and self.workload.ledger.suspects:
            self._settle_suspects(process)

    def note_for(self, client: "SimClient") -> None:
        for command in client.outstanding:
            if command.none_seen or not command.verb.startswith("reserve") or command.verb == "reserve-job":
                continue
            if any(tube in free for free in self.free.values() for tube in command.watched):
                continue
            held = frozenset(
                id_ for slot in self.held.values() for tube in command.watched for id_ in slot.get(tube, ())
            )
            if not held or not client.server.options.holds_are_short():
                command.none_seen = True
            elif held not in command.pending:
                command.pending.append(held)

    def _settle(self, command: "Command", process: SimProcess) -> None:
        """What has become of the jobs that were held at earlier instants, at this owner."""
        engine = process.owner.engine
        topology = process.server.topology
        left = []
        for instant in command.pending:
            jobs = set(instant)
            for id_ in sorted(instant):
                if topology.slot_of_id(id_) != process.index:
                    continue
                job = engine.jobs.find(id_)
                if job is not None and job.state == RESERVED:
                    jobs.discard(id_)
                elif job is None or job.state != READY or job.holder == NOWHERE:
                    break  # it went another way, or came back: at that instant there was a job
            else:
                if not jobs:
                    command.none_seen = True
                left.append(frozenset(jobs))
        command.pending = left

    def _settle_suspects(self, process: SimProcess) -> None:
        assert self.workload is not None
        ledger = self.workload.ledger
        for command in ledger.suspects:
            self._settle(command, process)
            if not command.none_seen and not command.pending:
                raise Violation(f"TIMED_OUT to {command.watched!r} at {command.answered_ns}, but a held job came back")
        ledger.suspects = [command for command in ledger.suspects if not command.none_seen]

    # ---------------------------------------------------------------- turns
    def before_turn(self, process: SimProcess) -> None:
        if process.owner is None:
            return
        if process.core is not process.owner or any(link.rest for link in process.owner.links.values()):
            # Several frames will be executed at once: instants between them are not seen.
            assert self.workload is not None
            for client in self.workload.clients:
                for command in client.outstanding:
                    command.none_seen = True

    def after_turn(self, process: SimProcess) -> None:
        check_limits(process)
        if process.owner is None:
            return
        self.frame_seen(process)
        self.holds.look(process)
        check_timers(process, process.world.now_ns - TIMER_LATE_NS)
        check_waiters(process)
        jobs = process.owner.engine.jobs.count
        if process.turns % RECOUNT_EVERY_TURNS == 0 and jobs <= RECOUNT_JOBS_MAX:
            check_recount(process)
            check_history(process)

    # ---------------------------------------------------------------- faults
    def process_ended(self, process: SimProcess) -> None:
        assert self.workload is not None
        if process.role == ROLE_OWNER:
            self.free.pop(process.index, None)
            has_log = process.server.options.disk
            self.workload.ledger.owner_ended(process.index, process.world.now_ns, has_log)
            self.held.pop(process.index, None)
            self.memory.pop(process.index, None)
            self.holds.owner_ended(process.index)
            self.note_instant(None)
        else:
            for slot in range(process.server.options.slots):
                self.link_cut(slot, process.index)
        self.workload.process_ended(process)

    def link_cut(self, slot: int, frontend: int) -> None:
        assert self.workload is not None
        for client in self.workload.clients:
            if client.process is None or client.process.index == frontend:
                # It may be closed for what it held or asked for there, and loses all that it holds anywhere.
                self.workload.ledger.let_go(client)
                client.excuse(slot)

    def slot_read(self, slot: int, jobs: dict[int, Any], safe_until_ns: int) -> None:
        assert self.workload is not None
        self.workload.ledger.slot_read(slot, jobs, safe_until_ns, self.workload.world.now_ns)

    def power_lost(self) -> None:
        """Where answers may be lost, none that is still on its way is heard any more: it would tell of what is gone."""
        assert self.workload is not None
        if self.workload.options.sync_ns != SYNC_EVERY_TURN:
            for client in list(self.workload.clients):
                if client.process is not None:  # one in the backlog has heard nothing
                    client.lose_input()

    # ---------------------------------------------------------------- what clients may be answered
    def concerned_slots(self, client: "SimClient", command: "Command | None") -> set[int]:
        """Slots that this command needs; without one, all that the client holds or has asked for."""
        assert self.workload is not None
        topology = self.workload.server.topology
        if command is not None:
            return slots_of(topology, command, client.used, client.watched)
        slots = {int(topology.slot_of_id(key[1])) for key in self.workload.ledger.possible if key[0] == client.name}
        used = client.used
        for each in client.outstanding:
            if each.verb == "use":
                used = each.tube
            slots |= slots_of(topology, each, used, client.watched)
        return slots

    def may_refuse_put(self, client: "SimClient", command: "Command") -> bool:
        """Whether something was full since the put was said."""
        assert self.workload is not None
        server = self.workload.server
        options = server.options
        store = server.storage.of(int(server.topology.slot_of_name(client.used)))
        if store is not None and (store.full_until_ns >= command.sent_ns or options.lease_left == LEASE_NEARLY_USED):
            return True
        if options.body_memory_bytes < BODY_MEMORY_BYTES and len(command.body) > 0:
            return True
        return self.memory_over_ns >= command.sent_ns


def slots_of(topology: Any, command: "Command", used: bytes, watched: list[bytes]) -> set[int]:
    """Where a command is executed."""
    if command.id:
        return {int(topology.slot_of_id(command.id))}
    if command.tube:
        return {int(topology.slot_of_name(name)) for name in (command.tube, used)}
    if command.verb.startswith("reserve"):
        return {int(topology.slot_of_name(name)) for name in (*watched, *command.watched)}
    if command.verb == "list-tubes":
        return set(range(topology.slots))
    return {int(topology.slot_of_name(used))}


def check_nothing_left(server: "Server") -> None:
    """All clients are gone for a while: no reservation, session, hold or reference may be left at any owner."""
    for process in server.owners:
        assert process is not None
        core = process.owner
        check_recount(process)
        check_history(process)
        counters = core.counters
        if core.engine.jobs.count == 0 and counters.memory_bytes:
            raise Violation(f"{process.title}: counts {counters.memory_bytes} bytes of memory, and has no job")
        if counters.jobs_reserved:
            raise Violation(f"{process.title}: {counters.jobs_reserved} jobs are reserved by nobody")
        for link in core.links.values():
            if link.seats:
                raise Violation(f"{process.title}: {len(link.seats)} sessions are left of clients that are gone")
        for tube in core.engine.tubes.values():
            if tube.using_count or tube.watching_count or tube.held.items:
                raise Violation(f"{process.title}: tube {tube.name!r} is still referred to or has a held job")
    for process in server.doors():
        assert process is not None
        door = FrontendCounters()
        door.decode(server.frontend_pages[process.index])
        if door.connections:
            raise Violation(f"{process.title}: counts {door.connections} connections, there are none")
