"""Simulated processes: owners and frontends around their real cores, the supervisor around its real core.

A process turns when it is woken (bytes, a control message, a deadline) and not stopped: poll, turn, publish, flush,
actions, as the real loops do. It may be killed between any two turns and be stopped for any time. Control messages
reach a child in order, after a delay. The supervisor itself does not fail: with it the whole server ends.
"""

from collections import deque
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, Final

from beanfield.constants import NEVER_NS
from beanfield.ipc.actions import ACT_CLOSE, ACT_PAUSE, ACT_RESUME
from beanfield.ipc.frames import ROLE_FRONTEND, ROLE_OWNER
from beanfield.supervisor import core_actions as do
from beanfield.supervisor.core import SupervisorCore
from sim.net import CLIENT, LINK, End, SimReactor, stream_pair
from sim.world import NS_PER_MS, NS_PER_US, Event, World

if TYPE_CHECKING:
    from sim.server import Server

KILLED: Final = -9
CRASHED: Final = 1
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
        self.core: Any = None
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
        self.server.before_turn(self)
        self.reactor.poll(self.core)
        self._obey()
        if self.role == ROLE_FRONTEND:
            self.core.poll_full = self.reactor.full
        self.core.turn(self.world.now_ns)
        self.server.publish(self)
        outbox = self.core.take_outbox()
        for i in range(0, len(outbox), 2):
            if outbox[i + 1]:
                self.world.trace(self.title, f"sends {outbox[i]}", outbox[i + 1])
        self.reactor.flush(outbox)
        self._act(self.core.take_actions())
        self.server.after_turn(self)
        self._plan_next_turn()

    def _obey(self) -> None:
        while self.control:
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

    def accept(self, end: End) -> None:
        handle = self.reactor.add(end, CLIENT)
        self.world.trace(self.title, f"accepts {end.peer.name} as {handle}")
        self.core.client_opened(handle, self.world.now_ns)
        self.wake()

    def end(self, code: int) -> None:
        """Killed or crashed: at once, between two turns."""
        if not self.alive:
            return
        self.alive = False
        self.world.trace(self.title, f"ends {code}")
        self.server.process_ended(self)
        self.reactor.abandon()
        for _, lost in self.control:
            lost()
        self.control.clear()
        self.core = None
        self.server.supervisor.exited(self, code)


class SimSupervisor:
    """SupervisorCore with virtual processes in its hands."""

    def __init__(self, server: "Server") -> None:
        options = server.options
        self.server = server
        self.world: World = server.world
        self.random: Random = server.process_random
        self.core = SupervisorCore(options.slots, options.frontends, options.hang_timeout_ns)
        self.serving = False
        self._tick_event: Event | None = None

    def start(self) -> None:
        self.core.start(self.world.now_ns)
        self._carry_out()

    # ---------------------------------------------------------------- inputs of the core
    def _hear(self, word: Callable[[], None]) -> None:
        """Something that a child says reaches the supervisor a little later."""

        def heard() -> None:
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
        self.core.drain(on)
        self._carry_out()

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
        elif kind in (do.DO_EXIT, do.DO_CLOSE_LISTENERS):
            self.world.trace("supervisor", "the server ends")
            self.server.over = True
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
            process.tell(lambda: process.end(0))

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
            else:
                now_ns = self.world.now_ns
                self._hear(lambda: self.core.child_replayed(index, generation, 0, now_ns, self.server.wall_ns(now_ns)))
            process.wake()

        self.world.after(self.random.randrange(80 * NS_PER_MS), booted)

    def _open(self, process: SimProcess, offset_ns: int) -> None:
        process.core = self.server.make_owner(process, offset_ns)
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
