"""The simulated server as a whole: its processes, its pages, its disks, its door for clients, and faults done to it."""

from random import Random
from typing import TYPE_CHECKING, Any

from beanfield.constants import NEVER_NS
from beanfield.ipc.frames import ROLE_FRONTEND, ROLE_OWNER
from beanfield.pages import LIVE_BIT, FrontendCounters, OwnerCounters, PageReader, Snapshot
from beanfield.routing import Topology
from sim import cores
from sim.faults import Options
from sim.log import SimLog
from sim.net import End
from sim.process import CRASHED, KILLED, LOSE_POWER, STOP, SimProcess, SimSupervisor
from sim.storage import Storage
from sim.world import FIRST_NS, NS_PER_MS, NS_PER_S, World

if TYPE_CHECKING:
    from sim.client import Command, SimClient

CONNECT_AGAIN_NS = 5 * NS_PER_MS
CUT_FELT_NS = NS_PER_S  # a cut may reach a frontend this much later, and close clients that came meanwhile
TROUBLE_FELT_NS = 2 * NS_PER_S  # and a command may still be answered INTERNAL_ERROR for it


class Watcher:
    """What checkers may look at: each turn of each process, each end of one, each fault."""

    def before_turn(self, process: SimProcess) -> None: ...

    def after_turn(self, process: SimProcess) -> None: ...

    def process_ended(self, process: SimProcess) -> None: ...

    def link_cut(self, slot: int, frontend: int) -> None: ...

    def frame_seen(self, process: SimProcess) -> None: ...

    def slot_read(self, slot: int, jobs: dict[int, Any], safe_until_ns: int) -> None: ...

    def power_lost(self) -> None: ...

    def concerned_slots(self, client: "SimClient", command: "Command | None") -> set[int]:
        raise NotImplementedError

    def may_refuse_put(self, client: "SimClient", command: "Command") -> bool:
        raise NotImplementedError


class SimPages(PageReader):
    """The shared pages: what each process has published, and who is live."""

    def __init__(self, server: "Server") -> None:
        self.server = server

    def snapshot(self, now_ns: int) -> Snapshot:
        server = self.server
        sum_ = Snapshot()
        for page, live in zip(server.frontend_pages, server.frontends_live, strict=True):
            frontend = FrontendCounters()
            frontend.decode(page)
            sum_.add_frontend(frontend, live)
        for page, live in zip(server.owner_pages, server.owners_live, strict=True):
            owner = OwnerCounters()
            owner.decode(page)
            sum_.add_owner(owner, live)
        sum_.pid = 4_242
        sum_.uptime_s = (now_ns - FIRST_NS) // NS_PER_S
        sum_.draining = server.draining_shown
        return sum_


class Server:
    """Processes by role and index; None while there is none."""

    def __init__(self, world: World, options: Options, watcher: Watcher, planted: str = "") -> None:
        self.world = world
        self.planted = planted  # a bug to be found, see cores.py
        self.runs = 0
        self.run_id = b"simulated run id"
        self.options = options
        self.watcher = watcher
        self.net_random: Random = world.random("net")
        self.process_random: Random = world.random("process")
        self.door_random: Random = world.random("door")
        self.topology = Topology(options.partitions, options.slots, None, b"simulated root 1")
        self.owners: list[SimProcess | None] = [None] * options.slots
        self.frontends: list[SimProcess | None] = [None] * options.frontends
        self.over = False
        self.stopping = False  # somebody wants it to stop
        self.restarts = 0
        self.ambush_ns = 0  # the next frontend for which a job is held is stopped for so long
        self.wall_offset_ns = 1_700_000_000 * NS_PER_S
        self.last_cut_ns: dict[int, int] = {}  # by frontend
        self.last_ended_ns: dict[int, int] = {}  # by slot
        self.last_stopped_ns: dict[int, int] = {}  # by slot: the end of its owner's last stop
        self.trouble_until_ns = [NEVER_NS] * options.slots  # NEVER_NS: as long as its owner does not serve
        self.storage = Storage(self)
        self.pages = SimPages(self)
        self._begin()

    def _begin(self) -> None:
        """A run of the server: fresh pages, a supervisor that has not started."""
        options = self.options
        doors = max(options.frontends, 1)
        self.owner_pages = [OwnerCounters().encode() for _ in range(options.slots)]
        self.frontend_pages = [FrontendCounters().encode() for _ in range(doors)]
        self.owners_live = [False] * options.slots
        self.frontends_live = [False] * doors
        self.accepting = [False] * doors
        self.link_ends: dict[tuple[int, int], End] = {}
        self.draining_shown = False
        self.supervisor = SimSupervisor(self)

    def wall_ns(self, now_ns: int) -> int:
        return now_ns + self.wall_offset_ns

    # ---------------------------------------------------------------- processes
    def process(self, role: int, index: int) -> SimProcess | None:
        return self.owners[index] if role == ROLE_OWNER else self.frontends[index]

    def add_process(self, process: SimProcess) -> None:
        table = self.owners if process.role == ROLE_OWNER else self.frontends
        assert table[process.index] is None
        table[process.index] = process

    def doors(self) -> list[SimProcess | None]:
        return self.owners if self.options.combined else self.frontends

    def process_ended(self, process: SimProcess) -> None:
        if process.is_door:
            self.accepting[process.index] = False
        if process.role == ROLE_OWNER:
            self.owners[process.index] = None
            self.last_ended_ns[process.index] = self.world.now_ns
            self.trouble_until_ns[process.index] = NEVER_NS
        else:
            self.frontends[process.index] = None
        self.watcher.process_ended(process)

    def read_log(self, process: SimProcess) -> int:
        """The first part of an owner's start; the largest creation time that it finds."""
        store = self.storage.of(process.index)
        if store is None:
            return 0
        process.log = SimLog(process, store, self.storage.random)
        process.log.read()
        return process.log.created_ns_max()

    def open_owner(self, process: SimProcess, offset_ns: int) -> None:
        """The second part, after the supervisor's OPEN; as owner/main.py and combined/main.py have it."""
        page = OwnerCounters()
        page.decode(self.owner_pages[process.index])
        page.clear_gauges()
        log = process.log
        if log is not None:
            log.open()
        process.core, process.owner = cores.make_owner(self, process, offset_ns, page)
        if log is not None:
            log.restore_into(process.owner.engine)
            log.store.probe = False
        self.owner_pages[process.index] = process.owner.counters.encode()
        process.reactor.after_frame = lambda: self.watcher.frame_seen(process)
        self.trouble_until_ns[process.index] = self.world.now_ns + TROUBLE_FELT_NS
        if self.options.combined:
            process.core = self.make_frontend(process)
            process.core.connect(self.world.now_ns)

    def make_frontend(self, process: SimProcess) -> Any:
        page = FrontendCounters()
        page.decode(self.frontend_pages[process.index])
        page.clear_gauges()
        self._trouble_everywhere(0)
        return cores.make_frontend(self, process, page)

    def before_turn(self, process: SimProcess) -> None:
        if process.owner is not None:
            elsewhere = 0
            for slot, page in enumerate(self.owner_pages):
                if slot != process.index and self.owners_live[slot]:
                    counters = OwnerCounters()
                    counters.decode(page)
                    elsewhere += counters.memory_bytes
            process.owner.memory_elsewhere_bytes = elsewhere
        self.watcher.before_turn(process)

    def publish(self, process: SimProcess) -> None:
        if process.owner is not None:
            self.owner_pages[process.index] = process.owner.counters.encode()
        if process.is_door:
            self.frontend_pages[process.index] = process.core.counters.encode()

    def after_turn(self, process: SimProcess) -> None:
        self.watcher.after_turn(process)
        if self.ambush_ns and process.owner is not None:
            for tube in process.owner.engine.tubes.values():
                for job in tube.held.items:
                    self.stop_for(ROLE_FRONTEND, int(process.owner.engine.holder_of(job).gate.index), self.ambush_ns)
                    self.ambush_ns = 0
                    return

    def show(self, role: int, index: int, generation: int, bits: int) -> None:
        if role == ROLE_OWNER:
            self.owners_live[index] = bits & LIVE_BIT != 0
        if role != ROLE_OWNER or self.options.combined:
            self.frontends_live[index] = bits & LIVE_BIT != 0

    def accepts(self, process: SimProcess) -> None:
        self.accepting[process.index] = True

    # ---------------------------------------------------------------- the door
    def connect(self, client: "SimClient") -> None:
        """A client's connection: some frontend that runs takes it, now or later (the backlog)."""
        if self.over:
            client.excused = True
            client.far.reset()
            return
        able = [
            process
            for process in self.doors()
            if process is not None and self.accepting[process.index] and not process.stopped()
        ]
        if not able:
            self.world.after(CONNECT_AGAIN_NS, lambda: self.connect(client))
            return
        process = self.door_random.choice(able)
        client.process = process
        for slot, ended_ns in self.last_ended_ns.items():
            # Its frontend may not have noticed yet, the less so when it stood still.
            if self.world.now_ns - ended_ns < CUT_FELT_NS or process.stopped_until_ns > ended_ns:
                client.excuse(slot)
        if self.world.now_ns - self.last_cut_ns.get(process.index, 0) < CUT_FELT_NS:
            for slot in range(self.options.slots):
                client.excuse(slot)
        process.tell(lambda: process.accept(client), client.far.reset)

    # ---------------------------------------------------------------- faults
    def crash(self, role: int, index: int) -> None:
        process = self.process(role, index)
        if process is not None:
            process.end(CRASHED)

    def stop_for(self, role: int, index: int, span_ns: int) -> None:
        process = self.process(role, index)
        if process is None:
            return
        self.world.trace(process.title, f"is stopped for {span_ns // NS_PER_MS} ms")
        process.stop_for(span_ns)
        if process.is_door:
            self._trouble_everywhere(span_ns)
        if role == ROLE_OWNER:
            self._trouble(index, span_ns)
            self.last_stopped_ns[index] = max(self.last_stopped_ns.get(index, 0), process.stopped_until_ns)

    def stopped_since(self, slot: int, at_ns: int) -> bool:
        return self.last_stopped_ns.get(slot, 0) > at_ns

    def _trouble(self, slot: int, span_ns: int) -> None:
        until_ns = self.world.now_ns + span_ns + TROUBLE_FELT_NS
        self.trouble_until_ns[slot] = max(self.trouble_until_ns[slot], until_ns)

    def _trouble_everywhere(self, span_ns: int) -> None:
        for slot in range(self.options.slots):
            self._trouble(slot, span_ns)

    def troubled_since(self, slot: int, at_ns: int) -> bool:
        """Whether a command may meet a slot that did not serve it, at that time or since."""
        store = self.storage.of(slot)
        return self.trouble_until_ns[slot] >= at_ns or (store is not None and store.trouble_until_ns >= at_ns)

    def disk_failed(self, process: SimProcess) -> None:
        store = self.storage.of(process.index)
        assert store is not None
        store.probe = True

    # ---------------------------------------------------------------- the whole server ends and starts
    def end_all(self, manner: str) -> None:
        """KILL_ALL, LOSE_POWER or STOP; it is started again."""
        if self.supervisor.dead or self.stopping:
            return
        self.world.trace("server", manner)
        self.restarts += 1
        if manner == STOP:
            self.stopping = True
            self.supervisor.stop()
            return
        self.supervisor.killed()
        for process in [*self.owners, *self.frontends]:
            if process is not None:
                process.end(KILLED)
        if manner == LOSE_POWER:
            self.watcher.power_lost()
            for store in self.storage.slots:
                store.power_lost()
        self.ended()

    def ending(self) -> None:
        """The supervisor stops accepting: told to, or a child could not start, which a service manager repairs."""
        self.accepting = [False] * len(self.accepting)
        if not self.storage.slots or (self.supervisor.serving and not self.stopping):
            self.over = True

    def ended(self) -> None:
        if self.over:
            return
        self.stopping = False
        self.runs += 1
        self.run_id = b"simulated run %02d" % self.runs
        self._begin()
        self.storage.ages.new_run()
        # After a loss of power the clock may be behind.
        self.wall_offset_ns -= self.storage.random.choice((0, 0, 0, 20)) * NS_PER_S
        self.world.after(self.storage.random.randrange(1, 300 * NS_PER_MS), self.supervisor.start)

    def cut_link(self, slot: int, frontend: int) -> None:
        end = self.link_ends.get((slot, frontend))
        if end is not None and not end.was_reset:
            self.world.trace("net", f"cuts the link of owner {slot} and frontend {frontend}")
            self.last_cut_ns[frontend] = self.world.now_ns
            self._trouble(slot, 0)
            self.watcher.link_cut(slot, frontend)
            end.reset()
            end.peer.was_reset = True
            for each in (end, end.peer):
                if each.waker is not None:
                    each.waker.wake()

    def all_serve(self) -> bool:
        """Whether every child serves and every link is made."""
        core = self.supervisor.core
        return (
            self.supervisor.serving
            and all(
                process is not None and process.core is not None and self.process_links(process)
                for process in [*self.owners, *self.frontends]
            )
            and core.next_deadline_ns() < NEVER_NS
        )

    def process_links(self, process: SimProcess) -> bool:
        wanted = self.options.frontends if process.role == ROLE_OWNER else self.options.slots
        return len(process.links) == wanted
