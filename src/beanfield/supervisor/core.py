"""SupervisorCore: which children there should be, which there are, and what to do about the difference.

Told what happened (a child said something, a child exited, a signal came, time passed) it answers with a list of
Actions, which supervisor/main.py carries out on real processes and the simulator on virtual ones. It knows no
processes, sockets or clocks, and nothing of jobs.

    child     DOWN -> SPAWNED -> STARTED -> [owner: OPENED] -> SERVING          exit: back to DOWN
    server    STARTING -> SERVING -> STOPPING -> the exit action

- STARTING: all children are spawned. An owner is STARTED when it has read its data; when all are, they get one time
  offset and become OPENED. When all owners serve and all frontends are STARTED, links are made and frontends accept.
  A child that exits in this phase ends the whole start.
- SERVING: a child that exits is spawned again after a back-off. A slot's frontends are told its state first.
- Every spawn has a new generation, from one counter that only grows. What an older generation says or has done is
  ignored.
- Each link has a number; of every pair only the last counts, so both ends may report the same loss.
- Without frontends (one slot only) the owner serves the clients too: it is the door then, and there are no links.
"""

from typing import Final

from beanfield.constants import (
    CRASHED_RETRY_NS,
    CRASHES_MAX,
    EXIT_DISK,
    FRONTENDS_MAX,
    NEVER_NS,
    PING_LATE_NS,
    PING_NS,
    PINGS_SUSPECT,
    RELINK_NS,
    RELINK_YOUNG_NS,
    RESTART_FORGET_NS,
    RESTART_NS_MIN,
    SLOTS_MAX,
    STOP_KILL_NS,
    STOP_OWNERS_NS,
)
from beanfield.ipc.frames import ROLE_FRONTEND, ROLE_OWNER
from beanfield.supervisor.core_actions import (
    DO_ACCEPT,
    DO_CLOSE_LISTENERS,
    DO_DRAIN,
    DO_DRAINING,
    DO_EXIT,
    DO_KILL,
    DO_LINK,
    DO_LOG,
    DO_OPEN,
    DO_PING,
    DO_SERVING,
    DO_SHOW,
    DO_SLOT_STATE,
    DO_SPAWN,
    DO_STOP,
    SHOW_ACCEPTING,
    SHOW_LIVE,
    Action,
)
from beanfield.supervisor.core_children import (
    DOWN,
    OPENED,
    SERVING,
    SLOT_RESTARTING,
    SLOT_UNAVAILABLE,
    SLOT_UP,
    SPAWNED,
    START_FAULTS,
    STARTED,
    Child,
    Pair,
    ending,
)

PHASE_STARTING: Final = 0
PHASE_SERVING: Final = 1
PHASE_STOPPING: Final = 2
PHASE_ENDED: Final = 3


class SupervisorCore:
    """Desired against actual children. Inputs are methods with the time; outputs wait in take_actions()."""

    def __init__(self, slots: int, frontends: int, hang_timeout_ns: int) -> None:
        assert 1 <= slots <= SLOTS_MAX
        assert 0 <= frontends <= FRONTENDS_MAX
        assert frontends >= 1 or slots == 1
        assert hang_timeout_ns >= 0
        self.owners = [Child(ROLE_OWNER, index) for index in range(slots)]
        self.frontends = [Child(ROLE_FRONTEND, index) for index in range(frontends)]
        self._doors = self.frontends or self.owners  # those who serve clients
        self.phase = PHASE_STARTING
        self.draining = False
        self._pairs = [[Pair() for _ in range(frontends)] for _ in range(slots)]
        # Zero: hung children are not killed.
        self._pings_max = (hang_timeout_ns + PING_NS - 1) // PING_NS
        self._ping_number = 0
        self._drain_number = 0
        self._drain_shown = False
        self._link_number = 0
        self._generation = 0
        self._offset_ns = 0
        self._created_ns_max = 0
        self._next_ping_ns = NEVER_NS
        self._stop_ns = 0
        self._owners_told = False
        self._killed_rest = False
        self._exit_code = 0
        self._actions: list[Action] = []

    # ---------------------------------------------------------------- inputs
    def start(self, now_ns: int) -> None:
        """Spawn everything. Owners first: they have more to do."""
        assert self._generation == 0
        self._next_ping_ns = now_ns + PING_NS
        for child in self.owners + self.frontends:
            self._spawn(child)

    def child_started(self, role: int, index: int, generation: int, now_ns: int) -> None:
        """A frontend is ready for links."""
        child = self._alive(role, index, generation)
        if child is None or child.state != SPAWNED:
            return
        assert role == ROLE_FRONTEND
        child.state = STARTED
        if self.phase == PHASE_STARTING:
            self._serve_when_all_can(now_ns)
        elif self.phase == PHASE_SERVING:
            self._admit(child, now_ns)

    def child_replayed(self, index: int, generation: int, created_ns: int, now_ns: int, wall_ns: int) -> None:
        """An owner has read its data; created_ns is the largest it found."""
        child = self._alive(ROLE_OWNER, index, generation)
        if child is None or child.state != SPAWNED:
            return
        child.state = STARTED
        if self.phase == PHASE_SERVING:
            self._open(child)
        elif self.phase == PHASE_STARTING:
            self._created_ns_max = max(self._created_ns_max, created_ns)
            if any(owner.state != STARTED for owner in self.owners):
                return
            # Fixed once per run, so that created_ns never goes back, whatever the wall clock does.
            self._offset_ns = max(wall_ns, self._created_ns_max + 1) - now_ns
            for owner in self.owners:
                self._open(owner)

    def child_ready(self, index: int, generation: int, now_ns: int) -> None:
        """An owner serves."""
        child = self._alive(ROLE_OWNER, index, generation)
        if child is None or child.state != OPENED:
            return
        child.state = SERVING
        child.serving_since_ns = now_ns
        child.unavailable = False
        child.probe = False
        child.fault_logged = ""
        self._show(child)
        if self.phase == PHASE_STARTING:
            self._serve_when_all_can(now_ns)
        elif self.phase == PHASE_SERVING:
            self._log(f"owner {index} serves again, generation {generation}")
            for frontend in self.frontends:
                if frontend.state >= STARTED:
                    self._tell_slot(frontend, child)
                    self._link(child, frontend, now_ns)
            if child in self._doors:
                self._drain_or_accept(child)

    def child_alive(self, role: int, index: int, generation: int) -> None:
        """Any word from a child: it does not hang."""
        child = self._alive(role, index, generation)
        if child is None:
            return
        child.unanswered = 0
        if child.suspect:
            child.suspect = False
            self._show(child)

    def child_drained(self, index: int, generation: int, number: int) -> None:
        """A frontend confirms that it takes no jobs (or takes them again)."""
        child = self._alive(self._doors[0].role, index, generation)
        if child is None or number != self._drain_number:
            return
        child.drained = True
        if not child.accepting and self.phase == PHASE_SERVING:
            self._accept(child)
        self._show_drain()

    def child_failed(self, role: int, index: int, generation: int, text: str) -> None:
        """A child says why it cannot start; its exit follows."""
        child = self._alive(role, index, generation)
        if child is not None:
            child.fault = text

    def link_lost(self, role: int, index: int, generation: int, peer: int, number: int, now_ns: int) -> None:
        """One end of a link reports its end. Children that have exited were reported before."""
        if self._alive(role, index, generation) is None:
            return
        slot, frontend = (index, peer) if role == ROLE_OWNER else (peer, index)
        if not (0 <= slot < len(self.owners) and 0 <= frontend < len(self.frontends)):
            return
        pair = self._pairs[slot][frontend]
        if not pair.up or pair.number != number:
            return
        pair.up = False
        # An end that is about to exit closes its sockets first: a young link is not made again at once.
        young = now_ns - pair.made_ns < RELINK_YOUNG_NS
        pair.again_ns = now_ns + RELINK_NS if young else now_ns
        self._relink(now_ns)

    def child_exited(self, role: int, index: int, generation: int, code: int, now_ns: int) -> None:
        """A child has ended: code >= 0 is its exit code, below 0 the signal that ended it."""
        child = self._child(role, index)
        if child.generation != generation or child.state == DOWN:
            return
        served = child.state == SERVING
        child.state = DOWN
        child.suspect = False
        self._show(child)
        self._cut_links(child)
        if self.phase == PHASE_STOPPING:
            self._go_on_stopping(now_ns)
            return
        fault = child.title() + ending(code, child.fault)
        if fault != child.fault_logged or code not in START_FAULTS:
            self._log(fault)
        child.fault_logged = fault
        if self.phase == PHASE_STARTING:
            self._exit_code = code if code in START_FAULTS else 1
            self._log("the server does not start")
            self._begin_stopping(now_ns)
            return
        if served and now_ns - child.serving_since_ns >= RESTART_FORGET_NS:
            child.backoff_ns = RESTART_NS_MIN
        if role == ROLE_OWNER:
            self._plan_owner(child, code, now_ns)
        else:
            self._plan_frontend(child, now_ns)

    def stop(self, now_ns: int) -> None:
        """SIGTERM, SIGINT."""
        if self.phase < PHASE_STOPPING:
            self._begin_stopping(now_ns)

    def drain(self, on: bool) -> None:
        """SIGUSR1 and SIGUSR2."""
        if on == self.draining or self.phase >= PHASE_STOPPING:
            return
        self.draining = on
        self._drain_number += 1
        for child in self._doors:
            child.drained = False
            if child.state >= STARTED:
                self._ask_drain(child)
        self._show_drain()

    def tick(self, now_ns: int) -> None:
        """Everything that time brings. Called after all that has already come from children."""
        if now_ns >= self._next_ping_ns:
            late = now_ns - self._next_ping_ns > PING_LATE_NS
            self._next_ping_ns = now_ns + PING_NS
            for child in self.owners + self.frontends:
                if late:
                    child.unanswered = 0
                self._ping(child)
        if self.phase == PHASE_SERVING:
            for child in self.owners + self.frontends:
                if child.restart_ns <= now_ns:
                    self._spawn(child)
            self._relink(now_ns)
        elif self.phase == PHASE_STOPPING:
            self._go_on_stopping(now_ns)

    # ---------------------------------------------------------------- outputs
    def next_deadline_ns(self) -> int:
        """When tick() has something to do."""
        deadline = self._next_ping_ns
        if self.phase == PHASE_SERVING:
            for child in self.owners + self.frontends:
                deadline = min(deadline, child.restart_ns)
            for row in self._pairs:
                for pair in row:
                    deadline = min(deadline, pair.again_ns)
        elif self.phase == PHASE_STOPPING:
            if not self._owners_told:
                deadline = min(deadline, self._stop_ns + STOP_OWNERS_NS)
            if not self._killed_rest:
                deadline = min(deadline, self._stop_ns + STOP_KILL_NS)
        return deadline

    def take_actions(self) -> list[Action]:
        """What is to be done, in order."""
        actions = self._actions
        self._actions = []
        return actions

    # ---------------------------------------------------------------- starting
    def _serve_when_all_can(self, now_ns: int) -> None:
        if any(owner.state != SERVING for owner in self.owners):
            return
        if any(frontend.state != STARTED for frontend in self.frontends):
            return
        self.phase = PHASE_SERVING
        for frontend in self.frontends:
            self._admit(frontend, now_ns)
        if not self.frontends:
            self._drain_or_accept(self.owners[0])
        self._actions.append(Action(DO_SERVING))

    def _admit(self, frontend: Child, now_ns: int) -> None:
        """Tell a started frontend all about the slots, link it, and let it accept; draining comes before accepting."""
        assert frontend.state == STARTED
        for owner in self.owners:
            self._tell_slot(frontend, owner)
            if owner.state == SERVING:
                self._link(owner, frontend, now_ns)
        frontend.serving_since_ns = now_ns
        self._drain_or_accept(frontend)

    def _drain_or_accept(self, door: Child) -> None:
        if self.draining:
            door.drained = False
            self._ask_drain(door)
        else:
            door.drained = True
            self._accept(door)

    def _accept(self, door: Child) -> None:
        door.state = SERVING
        door.accepting = True
        self._show(door)
        self._actions.append(Action(DO_ACCEPT, door.role, door.index))

    def _open(self, owner: Child) -> None:
        assert owner.state == STARTED
        owner.state = OPENED
        self._actions.append(Action(DO_OPEN, ROLE_OWNER, owner.index, number=self._offset_ns))

    def _spawn(self, child: Child) -> None:
        assert child.state == DOWN and not child.out
        self._generation += 1
        child.spawned(self._generation)
        self._actions.append(Action(DO_SPAWN, child.role, child.index, generation=child.generation, on=child.probe))

    # ---------------------------------------------------------------- links
    def _tell_slot(self, frontend: Child, owner: Child) -> None:
        state = SLOT_RESTARTING
        if owner.state == SERVING:
            state = SLOT_UP
        elif owner.unavailable:
            state = SLOT_UNAVAILABLE
        self._actions.append(Action(DO_SLOT_STATE, ROLE_FRONTEND, frontend.index, peer=owner.index, number=state))

    def _link(self, owner: Child, frontend: Child, now_ns: int) -> None:
        assert owner.state == SERVING and frontend.state >= STARTED
        pair = self._pairs[owner.index][frontend.index]
        self._link_number += 1
        pair.number = self._link_number
        pair.made_ns = now_ns
        pair.up = True
        pair.again_ns = NEVER_NS
        self._actions.append(Action(DO_LINK, ROLE_OWNER, owner.index, peer=frontend.index, number=pair.number))

    def _cut_links(self, child: Child) -> None:
        for owner in self.owners:
            for frontend in self.frontends:
                if child is owner or child is frontend:
                    pair = self._pairs[owner.index][frontend.index]
                    pair.up = False
                    pair.again_ns = NEVER_NS

    def _relink(self, now_ns: int) -> None:
        if self.phase != PHASE_SERVING:
            return
        for owner in self.owners:
            for frontend in self.frontends:
                pair = self._pairs[owner.index][frontend.index]
                if pair.again_ns > now_ns:
                    continue
                pair.again_ns = NEVER_NS
                if owner.state == SERVING and frontend.state >= STARTED:
                    self._log(f"link of owner {owner.index} and frontend {frontend.index} is made again")
                    self._link(owner, frontend, now_ns)

    # ---------------------------------------------------------------- exits and restarts
    def _plan_owner(self, child: Child, code: int, now_ns: int) -> None:
        if code in START_FAULTS:
            if not child.unavailable:
                self._log(f"slot {child.index} is unavailable; it is tried again, every 5 s at the latest")
            child.unavailable = True
            child.probe = code == EXIT_DISK
            child.back_off(now_ns)
        elif child.crashes_too_often(now_ns):
            child.unavailable = True
            child.restart_ns = now_ns + CRASHED_RETRY_NS
            self._log(f"slot {child.index} is unavailable: {CRASHES_MAX} crashes in a minute; tried again in 30 s")
        else:
            child.back_off(now_ns)
        for frontend in self.frontends:
            if frontend.state >= STARTED:
                self._tell_slot(frontend, child)

    def _plan_frontend(self, child: Child, now_ns: int) -> None:
        if child.crashes_too_often(now_ns):
            child.out = True
            self._log(f"frontend {child.index} stays out: {CRASHES_MAX} crashes in a minute")
            if all(frontend.out for frontend in self.frontends):
                self._log("no frontend is left: the server ends")
                self._exit_code = 1
                self._begin_stopping(now_ns)
        else:
            child.back_off(now_ns)
        self._show_drain()

    # ---------------------------------------------------------------- hanging
    def _ping(self, child: Child) -> None:
        if child.state == DOWN or child.killed:
            return
        if 0 < child.patience(self._pings_max) <= child.unanswered:
            child.killed = True
            self._log(f"{child.title()} has not answered for {child.unanswered} s: killed")
            self._actions.append(Action(DO_KILL, child.role, child.index, generation=child.generation))
            return
        self._ping_number += 1
        child.unanswered += 1
        if child.unanswered > PINGS_SUSPECT and not child.suspect and child.state == SERVING:
            child.suspect = True
            self._show(child)
        self._actions.append(Action(DO_PING, child.role, child.index, number=self._ping_number))

    # ---------------------------------------------------------------- draining
    def _ask_drain(self, door: Child) -> None:
        self._actions.append(Action(DO_DRAIN, door.role, door.index, number=self._drain_number, on=self.draining))

    def _show_drain(self) -> None:
        """Draining counts once every frontend that serves has confirmed; one that starts confirms before it serves."""
        if self._drain_shown == self.draining:
            return
        if all(child.drained for child in self._doors if child.state >= STARTED):
            self._drain_shown = self.draining
            self._actions.append(Action(DO_DRAINING, on=self.draining))

    # ---------------------------------------------------------------- stopping
    def _begin_stopping(self, now_ns: int) -> None:
        assert self.phase < PHASE_STOPPING
        self.phase = PHASE_STOPPING
        self._stop_ns = now_ns
        self._actions.append(Action(DO_CLOSE_LISTENERS))
        for child in self.frontends:
            if child.state != DOWN:
                self._actions.append(Action(DO_STOP, child.role, child.index))
        self._go_on_stopping(now_ns)

    def _go_on_stopping(self, now_ns: int) -> None:
        frontends = [child for child in self.frontends if child.state != DOWN]
        owners = [child for child in self.owners if child.state != DOWN]
        if not self._owners_told and (not frontends or now_ns >= self._stop_ns + STOP_OWNERS_NS):
            self._owners_told = True
            for child in owners:
                self._actions.append(Action(DO_STOP, child.role, child.index))
        if not self._killed_rest and now_ns >= self._stop_ns + STOP_KILL_NS:
            self._killed_rest = True
            for child in frontends + owners:
                self._actions.append(Action(DO_KILL, child.role, child.index, generation=child.generation))
        if not frontends and not owners:
            self.phase = PHASE_ENDED
            self._next_ping_ns = NEVER_NS
            self._actions.append(Action(DO_EXIT, number=self._exit_code))

    # ---------------------------------------------------------------- small things
    def _child(self, role: int, index: int) -> Child:
        return self.owners[index] if role == ROLE_OWNER else self.frontends[index]

    def _alive(self, role: int, index: int, generation: int) -> Child | None:
        """The child of this generation, None when another or none is there now."""
        child = self._child(role, index)
        return child if child.generation == generation and child.state != DOWN else None

    def _show(self, child: Child) -> None:
        bits = 0
        if child.state == SERVING:
            bits |= SHOW_LIVE
            if child in self._doors and not child.suspect:
                bits |= SHOW_ACCEPTING
        self._actions.append(Action(DO_SHOW, child.role, child.index, generation=child.generation, number=bits))

    def _log(self, text: str) -> None:
        self._actions.append(Action(DO_LOG, text=text))
