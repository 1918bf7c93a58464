"""How the simulation makes the real cores, and the bugs it can plant around them: nothing else knows constructors.

A planted bug shows that the simulator can still find one (tests/sim). It sits in an adaptor around a core, never in the
core itself.
"""

from typing import TYPE_CHECKING, Any

from beanfield import PROTOCOL_VERSION
from beanfield.frontend.core import FrontendCore
from beanfield.frontend.state import FrontendConfig
from beanfield.ipc import frames
from beanfield.owner.core import OwnerConfig, OwnerCore
from beanfield.pages import FrontendCounters, OwnerCounters
from beanfield.wal.journal import Journal, MemoryJournal

if TYPE_CHECKING:
    from sim.process import SimProcess
    from sim.server import Server

MEMORY_BYTES = 1 << 30
BODY_MEMORY_BYTES = 4 << 20
PLANTED = ("lost-drop", "early-expiry")


def make_owner(server: "Server", process: "SimProcess", offset_ns: int, page: OwnerCounters) -> Any:
    config = OwnerConfig(
        slot=process.index,
        generation=process.generation,
        run_id=server.run_id,
        topology=server.topology,
        created_offset_ns=offset_ns,
        first_sequence=page.next_sequence,
        memory_bytes_max=MEMORY_BYTES,
    )
    journal: Journal = server.make_journal(process) if server.make_journal is not None else MemoryJournal()
    core = OwnerCore(config, journal, page)
    return Planted(core, server.planted) if server.planted else core


def make_frontend(server: "Server", process: "SimProcess", page: FrontendCounters) -> Any:
    options = server.options
    config = FrontendConfig(
        index=process.index,
        generation=process.generation,
        run_id=server.run_id,
        topology=server.topology,
        job_bytes_max=options.job_bytes_max,
        slot_wait_ns=options.slot_wait_ns,
        body_memory_bytes=BODY_MEMORY_BYTES,
        version=PROTOCOL_VERSION.encode(),
        server_id=b"0123456789abcdef",
        hostname=b"simulated",
        os=b"simulated",
        platform=b"simulated",
    )
    core = FrontendCore(config, server.pages)
    core.counters.decode(page.encode())
    core.counters.clear_gauges()
    return core


class Planted:
    """An owner with a bug between its link and its core."""

    def __init__(self, core: OwnerCore, bug: str) -> None:
        assert bug in PLANTED
        self._core = core
        self._bug = bug
        self._seen = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            object.__setattr__(self, name, value)
        else:
            setattr(self._core, name, value)

    def link_received(self, handle: int, data: bytes, now_ns: int) -> None:
        """One frame at a time (net.py sees to it); now and then one is not what it was."""
        opcode = data[4] if len(data) >= frames.HEADER_BYTES else 0
        if self._bug == "lost-drop" and opcode == frames.DROP:
            self._seen += 1
            if self._seen % 3 == 0:
                return
        self._core.link_received(handle, data, now_ns)
        if self._bug == "early-expiry" and opcode == frames.PUT:
            self._seen += 1
            if self._seen % 5 == 0:
                self._expire_one()

    def _expire_one(self) -> None:
        """Some session's reservation ends before its time."""
        engine = self._core.engine
        if engine.reserved.items:
            engine.reserved.items[0].deadline_ns = 0
