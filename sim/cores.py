"""How the simulation makes the real cores: nothing else knows their constructors. Planted bugs: planted.py."""

from typing import TYPE_CHECKING, Any

from beanfield import PROTOCOL_VERSION
from beanfield.combined.core import CombinedCore
from beanfield.frontend.core import FrontendCore
from beanfield.frontend.state import FrontendConfig
from beanfield.owner.core import OwnerConfig, OwnerCore
from beanfield.pages import FrontendCounters, OwnerCounters
from beanfield.wal.journal import Journal, MemoryJournal
from sim.planted import IN_THE_OWNER, Planted

if TYPE_CHECKING:
    from sim.process import SimProcess
    from sim.server import Server


def make_owner(server: "Server", process: "SimProcess", offset_ns: int, page: OwnerCounters) -> tuple[Any, OwnerCore]:
    """What the loop drives, and the core in it. With a log the caller fills it."""
    log = process.log
    journal: Journal = MemoryJournal() if log is None else log.journal
    first_sequence = int(page.next_sequence)
    if log is not None:
        first_sequence = max(first_sequence, log.first_sequence())
    config = OwnerConfig(
        slot=process.index,
        generation=process.generation,
        run_id=server.run_id,
        topology=server.topology,
        created_offset_ns=offset_ns,
        first_sequence=first_sequence,
        memory_bytes_max=server.options.memory_bytes,
    )
    core = OwnerCore(config, journal, page)
    if server.planted in IN_THE_OWNER and not server.options.combined:
        return Planted(core, server.planted), core
    return core, core


def make_frontend(server: "Server", process: "SimProcess", page: FrontendCounters) -> Any:
    """A FrontendCore; in the combined shape the CombinedCore around the owner that the process has."""
    options = server.options
    config = FrontendConfig(
        index=0 if options.combined else process.index,
        generation=process.generation,
        run_id=server.run_id,
        topology=server.topology,
        job_bytes_max=options.job_bytes_max,
        slot_wait_ns=options.slot_wait_ns,
        body_memory_bytes=options.body_memory_bytes,
        version=PROTOCOL_VERSION.encode(),
        server_id=b"0123456789abcdef",
        hostname=b"simulated",
        os=b"simulated",
        platform=b"simulated",
    )
    if options.combined:
        core: FrontendCore = CombinedCore(config, server.pages, process.owner)
    else:
        core = FrontendCore(config, server.pages)
    core.counters.decode(page.encode())
    core.counters.clear_gauges()
    return core
