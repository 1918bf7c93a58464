"""The simulated server as a whole: its processes, its pages, its door for clients, and the faults done to it."""

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from beanfield.constants import NEVER_NS
from beanfield.ipc.frames import ROLE_OWNER
from beanfield.pages import LIVE_BIT, FrontendCounters, OwnerCounters, PageReader, Snapshot
from beanfield.routing import Topology
from beanfield.wal.journal import Journal
from sim import cores
from sim.faults import Options
from sim.net import End
from sim.process import CRASHED, SimProcess, SimSupervisor
from sim.world import FIRST_NS, NS_PER_MS, NS_PER_S, World

if TYPE_CHECKING:
    from sim.client import SimClient

CONNECT_AGAIN_NS = 5 * NS_PER_MS
CUT_FELT_NS = NS_PER_S  # a cut may reach a frontend this much later, and close clients that came meanwhile


class Watcher:
    """What checkers may look at: each turn of each process, each end of one, each fault."""

    def before_turn(self, process: SimProcess) -> None: ...

    def after_turn(self, process: SimProcess) -> None: ...

    def process_ended(self, process: SimProcess) -> None: ...

    def link_cut(self, slot: int, frontend: int) -> None: ...

    def frame_seen(self, process: SimProcess) -> None: ...


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
        self.run_id = b"simulated run id"
        # Makes the journal of an owner; None: it keeps nothing. The place for a simulated disk.
        self.make_journal: Callable[[SimProcess], Journal] | None = None
        self.options = options
        self.watcher = watcher
        self.net_random: Random = world.random("net")
        self.process_random: Random = world.random("process")
        self.door_random: Random = world.random("door")
        self.topology = Topology(options.partitions, options.slots, None, b"simulated root 1")
        self.owners: list[SimProcess | None] = [None] * options.slots
        self.frontends: list[SimProcess | None] = [None] * options.frontends
        self.owner_pages = [OwnerCounters().encode() for _ in range(options.slots)]
        self.frontend_pages = [FrontendCounters().encode() for _ in range(options.frontends)]
        self.owners_live = [False] * options.slots
        self.frontends_live = [False] * options.frontends
        self.accepting = [False] * options.frontends
        self.link_ends: dict[tuple[int, int], End] = {}
        self.last_cut_ns: dict[int, int] = {}  # by frontend
        self.draining_shown = False
        self.over = False
        self.pages = SimPages(self)
        self.supervisor = SimSupervisor(self)

    def wall_ns(self, now_ns: int) -> int:
        return now_ns + 1_700_000_000 * NS_PER_S

    # ---------------------------------------------------------------- processes
    def process(self, role: int, index: int) -> SimProcess | None:
        return self.owners[index] if role == ROLE_OWNER else self.frontends[index]

    def add_process(self, process: SimProcess) -> None:
        table = self.owners if process.role == ROLE_OWNER else self.frontends
        assert table[process.index] is None
        table[process.index] = process

    def process_ended(self, process: SimProcess) -> None:
        if process.role == ROLE_OWNER:
            self.owners[process.index] = None
        else:
            self.frontends[process.index] = None
            self.accepting[process.index] = False
        self.watcher.process_ended(process)

    def make_owner(self, process: SimProcess, offset_ns: int) -> Any:
        page = OwnerCounters()
        page.decode(self.owner_pages[process.index])
        page.clear_gauges()
        core = cores.make_owner(self, process, offset_ns, page)
        process.reactor.after_frame = lambda: self.watcher.frame_seen(process)
        return core

    def make_frontend(self, process: SimProcess) -> Any:
        page = FrontendCounters()
        page.decode(self.frontend_pages[process.index])
        page.clear_gauges()
        return cores.make_frontend(self, process, page)

    def before_turn(self, process: SimProcess) -> None:
        if process.role == ROLE_OWNER:
            elsewhere = 0
            for slot, page in enumerate(self.owner_pages):
                if slot != process.index and self.owners_live[slot]:
                    counters = OwnerCounters()
                    counters.decode(page)
                    elsewhere += counters.memory_bytes
            process.core.memory_elsewhere_bytes = elsewhere
        self.watcher.before_turn(process)

    def publish(self, process: SimProcess) -> None:
        pages = self.owner_pages if process.role == ROLE_OWNER else self.frontend_pages
        pages[process.index] = process.core.counters.encode()

    def after_turn(self, process: SimProcess) -> None:
        self.watcher.after_turn(process)

    def show(self, role: int, index: int, generation: int, bits: int) -> None:
        live = self.owners_live if role == ROLE_OWNER else self.frontends_live
        live[index] = bits & LIVE_BIT != 0

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
            for process in self.frontends
            if process is not None and self.accepting[process.index] and not process.stopped()
        ]
        if not able:
            self.world.after(CONNECT_AGAIN_NS, lambda: self.connect(client))
            return
        process = self.door_random.choice(able)
        client.process = process
        if self.world.now_ns - self.last_cut_ns.get(process.index, 0) < CUT_FELT_NS:
            client.excused = True
            client.broken_ns = self.world.now_ns
        process.tell(lambda: process.accept(client.far), client.far.reset)

    # ---------------------------------------------------------------- faults
    def crash(self, role: int, index: int) -> None:
        process = self.process(role, index)
        if process is not None:
            process.end(CRASHED)

    def stop_for(self, role: int, index: int, span_ns: int) -> None:
        process = self.process(role, index)
        if process is not None:
            self.world.trace(process.title, f"is stopped for {span_ns // NS_PER_MS} ms")
            process.stop_for(span_ns)

    def cut_link(self, slot: int, frontend: int) -> None:
        end = self.link_ends.get((slot, frontend))
        if end is not None and not end.was_reset:
            self.world.trace("net", f"cuts the link of owner {slot} and frontend {frontend}")
            self.last_cut_ns[frontend] = self.world.now_ns
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
