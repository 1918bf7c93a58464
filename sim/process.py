"""Simulated processes: owners and frontends around their real cores, the supervisor around its real core.

A process turns when it is woken (bytes, a control message, a deadline) and not stopped: poll, turn, publish, flush,
actions, as the real loops do. It may be killed between any two turns and be stopped for any time. Control messages
reach a child in order, after a delay. The supervisor itself does not fail: with it the whole server ends.
"""

from collections import deque
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, Final

from beanfield.constants import EXIT_DISK, NEVER_NS
from beanfield.ipc.actions import ACT_CLOSE, ACT_PAUSE, ACT_RESUME
from beanfield.ipc.frames import ROLE_FRONTEND, ROLE_OWNER
from beanfield.supervisor import core_actions as do
from beanfield.supervisor.core import SupervisorCore
from beanfield.wal.disk import DiskFault
from sim.disk import SimStopped
from sim.net import CLIENT, LINK, End, SimReactor, stream_pair
from sim.world import NS_PER_MS, NS_PER_US, Event, World

if TYPE_CHECKING:
    from sim.client import SimClient
    from sim.log import SimLog
    from sim.server import Server

KILLED: Final = -9
CRASHED: Final = 1
# How the whole server may end.
KILL_ALL: Final = "is killed, all of it"
LOSE_POWER: Final = "loses power"
STOP: Final = "is stopped"
STOPS_APART_NS: Final = 1_200 * NS_PER_MS


def _nothing() -> None:
    """What most lost messages mean."""


class SimProcess:
    """One generation of a child."""

    def __init__(self, server: "Server", role: int, index: int, generation: int) -> None:
        self.server = server
        self.world: World = server.world
        self.random: Random = server.process_random
        self.role = role
        self.index = index
        self.generation = generation
        self.title = f"{'owner' if role == ROLE_OWNER else 'frontend'}{index}.{generation}"
        self.alive = True
        self.stopped_until_ns = 0
        self.core: Any = None  # what the loop drives
        self.owner: Any = None  # the OwnerCore in it, if there is one
        self.log: SimLog | None = None
        self.is_door = role == ROLE_FRONTEND or server.options.combined  # serves clients
        self.reactor = SimReactor(self.world, self.random, self)
        self.reactor.stops_early = server.options.stops_early
        self.control: deque[tuple[Callable[[], None], Callable[[], None]]] = deque()
        self.links: dict[int, tuple[int, int]] = {}  # handle -> (peer index, link number)
        self.turns = 0
        self._turn_event: Event | None = None
        self._last_control_ns = 0

    # ---------------------------------------------------------------- being woken
    def wake(self) -> None:
        jitter_ns = self.server.options.turn_jitter_ns
        self._turn_at(self.world.now_ns + NS_PER_US + self.random.randrange(jitter_ns))

    def _turn_at(self, at_ns: int) -> None:
        if not self.alive:
            return
        if self._turn_event is not None:
            if self._turn_event.at_ns <= at_ns:
                return
            self._turn_event.cancelled = True
        self._turn_event = self.world.at(at_ns, self._turn)

    def tell(self, message: Callable[[], None], lost: Callable[[], None] = _nothing) -> None:
        """A control message: in order, later. `lost` is what happens if the process has ended by then."""
        delay_ns = 20 * NS_PER_US + self.random.randrange(500 * NS_PER_US)
        self._last_control_ns = max(self._last_control_ns, self.world.now_ns + delay_ns)

        def arrive() -> None:
            if self.alive:
                self.control.append((message, lost))
                self.wake()
            else:
                lost()

        self.world.at(self._last_control_ns, arrive)

    def stop_for(self, span_ns: int) -> None:
        """SIGSTOP, SIGCONT. Not again right after it, or many short stops would make a hung process."""
        if self.world.now_ns < self.stopped_until_ns + STOPS_APART_NS:
            return
        self.stopped_until_ns = max(self.stopped_until_ns, self.world.now_ns + span_ns)

    def stopped(self) -> bool:
        return self.world.now_ns < self.stopped_until_ns

    # ---------------------------------------------------------------- turning
    def _turn(self) -> None:
        self._turn_event = None
        if not self.alive:
            return
        if self.stopped():
            self._turn_at(self.stopped_until_ns)
            return
        self.turns += 1
        if self.core is None:
            self._obey()
            return
        try:
            self._work()
        except DiskFault as fault:
            self.disk_failed(fault)
        except SimStopped:
            self.killed_in_call()
        if self.alive:
            self.server.after_turn(self)
            self._plan_next_turn()

    def _work(self) -> None:
        """One turn of io/loop.py, with the log's part of it if there is one."""
        log = self.log
        self.server.before_turn(self)
        self.reactor.poll(self.core)
        self._obey()
        if not self.alive:
            return
        if log is not None:
            log.collect()
        if self.is_door:
            self.core.poll_full = self.reactor.full
        self.core.turn(self.world.now_ns)
        if log is not None:
            log.write()
            log.submit()
            log.count(self.owner.counters)
        self.server.publish(self)
        outbox = self.core.take_outbox()
        for i in range(0, len(outbox), 2):
            if outbox[i + 1]:
                self.world.trace(self.title, f"sends {outbox[i]}", outbox[i + 1])
        self.reactor.flush(outbox)
        self._act(self.core.take_actions())

    def _obey(self) -> None:
        while self.control and self.alive:
            self.control.popleft()[0]()

    def _plan_next_turn(self) -> None:
        deadline_ns = self.core.next_deadline_ns()
        if deadline_ns == 0:
            self._turn_at(self.world.now_ns + NS_PER_US)
        elif deadline_ns < NEVER_NS:
            # A timer fires up to a millisecond late, never early.
            self._turn_at(max(deadline_ns, self.world.now_ns) + self.random.randrange(NS_PER_MS))

    def _act(self, actions: list[int]) -> None:
        for i in range(0, len(actions), 2):
            action, handle = actions[i], actions[i + 1]
            if action == ACT_CLOSE:
                self.world.trace(self.title, f"closes {handle}")
                self.reactor.close(handle)
                self.link_over(handle)
            elif action == ACT_PAUSE:
                self.reactor.pause(handle)
            else:
                assert action == ACT_RESUME
                self.reactor.resume(handle)

    # ---------------------------------------------------------------- links and ends
    def link_made(self, peer: int, number: int, end: End) -> None:
        handle = self.reactor.add(end, LINK)
        self.links[handle] = (peer, number)
        self.world.trace(self.title, f"link {number} to {peer} is {handle}")
        if self.role == ROLE_OWNER:
            self.core.link_opened(handle, self.world.now_ns)
        else:
            self.core.link_opened(peer, handle, self.world.now_ns)
        self.wake()

    def link_over(self, handle: int) -> None:
        """Closed by the core, as it does with every link that has ended."""
        peer_and_number = self.links.pop(handle, None)
        if peer_and_number is not None:
            self.server.supervisor.link_lost(self, *peer_and_number)

    def accept(self, client: "SimClient") -> None:
        client.handle = handle = self.reactor.add(client.far, CLIENT)
        self.world.trace(self.title, f"accepts {client.name} as {handle}")
        self.core.client_opened(handle, self.world.now_ns)
        self.wake()

    def end(self, code: int) -> None:
        """Killed or crashed: at once, between two turns or in a call to the disk."""
        if not self.alive:
            return
        self.alive = False
        self.world.trace(self.title, f"ends {code}")
        if self.log is not None:
            self.log.abandoned()
        self.server.process_ended(self)
        self.reactor.abandon()
        for _, lost in self.control:
            lost()
        self.control.clear()
        self.core = self.owner = self.log = None
        self.server.supervisor.exited(self, code)

    def killed_in_call(self) -> None:
        """kill -9 found it in a call to the disk."""
        self.end(KILLED)

    def disk_failed(self, fault: DiskFault) -> None:
        """The page cache is not to be trusted: it ends at once."""
        self.world.trace(self.title, f"{fault}")
        self.server.disk_failed(self)
        self.end(EXIT_DISK)

    def stop(self) -> None:
        """SIGTERM to the server has come down to this child."""
        try:
            if self.log is not None and self.owner is not None:
                self.log.stop()
        except DiskFault as fault:
            self.disk_failed(fault)
        except SimStopped:
            self.killed_in_call()
        self.end(0)


class SimSupervisor:
    """SupervisorCore with virtual processes in its hands."""

    def __init__(self, server: "Server") -> None:
        options = server.options
        self.server = server
        self.world: World = server.world
        self.random: Random = server.process_random
        self.core = SupervisorCore(options.slots, options.frontends, options.hang_timeout_ns)
        self.serving = False
        self.dead = False  # killed with all its children: what still comes for it is nobody's
        self._tick_event: Event | None = None

    def start(self) -> None:
        if not self.dead:
            self.core.start(self.world.now_ns)
            self._carry_out()

    # ---------------------------------------------------------------- inputs of the core
    def _hear(self, word: Callable[[], None]) -> None:
        """Something that a child says reaches the supervisor a little later."""

        def heard() -> None:
            if not self.dead:
                word()
                self._carry_out()

        self.world.after(20 * NS_PER_US + self.random.randrange(300 * NS_PER_US), heard)

    def exited(self, process: SimProcess, code: int) -> None:
        role, index, generation = process.role, process.index, process.generation
        self._hear(lambda: self.core.child_exited(role, index, generation, code, self.world.now_ns))

    def link_lost(self, process: SimProcess, peer: int, number: int) -> None:
        role, index, generation = process.role, process.index, process.generation
        self._hear(lambda: self.core.link_lost(role, index, generation, peer, number, self.world.now_ns))

    def drain(self, on: bool) -> None:
        if not self.dead:
            self.core.drain(on)
            self._carry_out()

    def stop(self) -> None:
        self.core.stop(self.world.now_ns)
        self._carry_out()

    def killed(self) -> None:
        self.dead = True
        self.serving = False
        if self._tick_event is not None:
            self._tick_event.cancelled = True

    def _tick(self) -> None:
        self._tick_event = None
        self.core.tick(self.world.now_ns)
        self._carry_out()

    # ---------------------------------------------------------------- actions of the core
    def _carry_out(self) -> None:
        for action in self.core.take_actions():
            self._do(action)
        deadline_ns = self.core.next_deadline_ns()
        if self._tick_event is not None:
            self._tick_event.cancelled = True
        self._tick_event = self.world.at(deadline_ns, self._tick) if deadline_ns < NEVER_NS else None

    def _do(self, action: do.Action) -> None:
        kind = action.kind
        if kind == do.DO_SPAWN:
            self._spawn(action.role, action.index, action.generation)
        elif kind == do.DO_LINK:
            self._link(action.index, action.peer, action.number)
        elif kind == do.DO_SHOW:
            self.server.show(action.role, action.index, action.generation, action.number)
        elif kind == do.DO_DRAINING:
            self.server.draining_shown = action.on
        elif kind == do.DO_SERVING:
            self.serving = True
        elif kind == do.DO_LOG:
            self.world.trace("supervisor", action.text)
        elif kind == do.DO_CLOSE_LISTENERS:
            self.world.trace("supervisor", "the server ends")
            self.server.ending()
        elif kind == do.DO_EXIT:
            self.killed()
            self.server.ended()
        else:
            process = self.server.process(action.role, action.index)
            if process is not None:
                self._tell(process, action)

    def _tell(self, process: SimProcess, action: do.Action) -> None:
        kind, number = action.kind, action.number
        if kind == do.DO_KILL:
            process.end(KILLED)
        elif kind == do.DO_PING:
            process.tell(lambda: self._pong(process))
        elif kind == do.DO_OPEN:
            process.tell(lambda: self._open(process, number))
        elif kind == do.DO_SLOT_STATE:
            slot = action.peer
            process.tell(lambda: process.core.slot_state(slot, number, self.world.now_ns))
        elif kind == do.DO_ACCEPT:
            process.tell(lambda: self.server.accepts(process))
        elif kind == do.DO_DRAIN:
            process.tell(lambda: self._drain(process, action.on, number))
        else:
            assert kind == do.DO_STOP
            process.tell(process.stop)

    def _pong(self, process: SimProcess) -> None:
        self._hear(lambda: self.core.child_alive(process.role, process.index, process.generation))

    def _drain(self, process: SimProcess, on: bool, number: int) -> None:
        process.core.drain(on)
        self._hear(lambda: self.core.child_drained(process.index, process.generation, number))

    def _spawn(self, role: int, index: int, generation: int) -> None:
        process = SimProcess(self.server, role, index, generation)
        self.server.add_process(process)
        process.tell(lambda: self._boot(process))

    def _boot(self, process: SimProcess) -> None:
        """An owner reads its data, a frontend is ready, after some time."""

        def booted() -> None:
            if not process.alive:
                return
            index, generation = process.index, process.generation
            if process.role == ROLE_FRONTEND:
                process.core = self.server.make_frontend(process)
                self._hear(lambda: self.core.child_started(ROLE_FRONTEND, index, generation, self.world.now_ns))
                process.wake()
                return
            try:
                created_ns = self.server.read_log(process)
            except DiskFault as fault:
                process.disk_failed(fault)
                return
            except SimStopped:
                process.killed_in_call()
                return
            now_ns = self.world.now_ns
            wall_ns = self.server.wall_ns(now_ns)
            self._hear(lambda: self.core.child_replayed(index, generation, created_ns, now_ns, wall_ns))
            process.wake()

        self.world.after(self.random.randrange(80 * NS_PER_MS), booted)

    def _open(self, process: SimProcess, offset_ns: int) -> None:
        try:
            self.server.open_owner(process, offset_ns)
        except DiskFault as fault:
            process.disk_failed(fault)
            return
        except SimStopped:
            process.killed_in_call()
            return
        self._hear(lambda: self.core.child_ready(process.index, process.generation, self.world.now_ns))
        process.wake()

    def _link(self, slot: int, frontend: int, number: int) -> None:
        owner = self.server.process(ROLE_OWNER, slot)
        other = self.server.process(ROLE_FRONTEND, frontend)
        nature = self.server.options.link_nature
        near, far = stream_pair(self.world, self.server.net_random, nature, f"link{number}.o", f"link{number}.f")
        self.server.link_ends[(slot, frontend)] = near
        if owner is None:  # it has just ended, and the supervisor does not know yet
            near.close()
        else:
            owner.tell(lambda: owner.link_made(frontend, number, near), near.close)
        if other is None:
            far.close()
        else:
            other.tell(lambda: other.link_made(slot, number, far), far.close)
