"""The process of an owner: its core in a loop, its links, its page, and its log if there is one.

At the start it reads what it has, says so, and waits for the supervisor's OPEN, which brings the time offset of the
run; only then it may write, and serves. It knows sockets and descriptors; what frames mean is the core's business.
With a log each turn is: collect what the disk has done; the core's turn; write; ask the disk for more; what may leave
leaves (io/log_driver.py). A fault of the disk ends the process at once.
"""

import os
import select

from beanfield import pages
from beanfield.child import Start
from beanfield.constants import NEVER_NS, NS_PER_MS
from beanfield.control import Message
from beanfield.io.beside import beside
from beanfield.io.control_socket import ControlSocket
from beanfield.io.log import log
from beanfield.io.loop import RoleLoop
from beanfield.io.page import PageWriter
from beanfield.io.poller import RAW
from beanfield.io.slot_log import SlotLog, die_of
from beanfield.owner.core import OwnerConfig, OwnerCore
from beanfield.pages import OwnerCounters
from beanfield.wal.disk import DiskFault
from beanfield.wal.journal import Journal, MemoryJournal

MEMORY_ELSEWHERE_NS = 1 * NS_PER_MS  # the other owners' pages are read at most this often
NO_HANDLE = -1


class OpenOwner:
    """A core that may serve, its page, and its log (None without -b)."""

    def __init__(self, core: OwnerCore, page: PageWriter, slot_log: SlotLog | None) -> None:
        self.core = core
        self.page = page
        self.log = slot_log


class OwnerLoop(RoleLoop):
    """RoleLoop for an OwnerCore."""

    def __init__(self, start: Start, owner: OpenOwner, control: ControlSocket) -> None:
        super().__init__(start.title(), owner.core, control, owner.page)
        self._owner = owner.core
        self._start = start
        self._next_elsewhere_ns = 0
        self._log = owner.log
        self._log_handle = NO_HANDLE
        if owner.log is not None:
            self._log_handle = self.reactor.add(owner.log.driver.descriptor, RAW)

    def on_message(self, message: Message, descriptors: list[int], now_ns: int) -> None:
        """link, stop."""
        if message.kind == "link":
            self._owner.link_opened(self.add_link(message, descriptors), now_ns)
        elif message.kind == "stop":
            self.done = True

    def on_ready(self, handles: list[int]) -> None:
        """Before the turn: what the disk has done, and how much memory the jobs of the others take."""
        slot_log = self._log
        if slot_log is not None and self._log_handle in handles:
            slot_log.driver.collect(self.reactor.now_ns())
        if self._start.topology.slots == 1:
            return
        now = self.reactor.now_ns()
        if now >= self._next_elsewhere_ns:
            self._next_elsewhere_ns = now + MEMORY_ELSEWHERE_NS
            self._owner.memory_elsewhere_bytes = self._start.pages.memory_elsewhere(self._start.index)

    def on_turn(self, now_ns: int) -> None:
        """The turn's records, what the others read of this owner at any moment, and what it has to say."""
        slot_log = self._log
        if slot_log is not None:
            slot_log.turn(now_ns)
        self.page.set_word(pages.PAGE_MEMORY_BYTES, self._owner.counters.memory_bytes)
        for text in self._owner.take_log():
            log(self.title, text)

    def on_flushed(self, now_ns: int) -> None:
        """What the operator may have to know of the log: no client waits for that."""
        if self._log is not None:
            self._log.notice(now_ns)

    def deadline_ns(self) -> int:
        """When the log may have something to tell the operator."""
        return NEVER_NS if self._log is None else self._log.next_notice_ns()


def run_owner(start: Start, control: ControlSocket) -> int:
    """The whole life of an owner; its exit code."""
    owner = open_owner(start, control)
    loop = OwnerLoop(start, owner, control)
    loop.say("ready")
    return run_with_log(start, loop, owner)


def run_with_log(start: Start, loop: RoleLoop, owner: OpenOwner) -> int:
    """The loop to its end, and the log's; the exit code."""
    try:
        code = loop.run()
        if owner.log is not None:
            owner.log.stop()
    except DiskFault as fault:
        die_of(start.title(), start.slot_path(), fault)
    except Exception:
        opcodes = " ".join([str(opcode) for opcode in owner.core.recent_opcodes()])
        # A bug ends the process; what it was doing is half of the report.
        log(start.title(), f"ends by an exception; the last opcodes were {opcodes}")
        raise
    return code


def open_owner(start: Start, control: ControlSocket) -> OpenOwner:
    """From what the slot has to a core that may serve; waits for the supervisor's OPEN between."""
    counters = OwnerCounters()
    page = PageWriter(start.pages, pages.slot_page_offset(start.index), start.generation, counters)
    slot_log = _read_log(start, control)
    # Without a log there is nothing to read: created_ns of earlier generations is below what the clock gives now.
    control.send(Message("replayed", {"created_ns": 0 if slot_log is None else slot_log.created_ns_max()}))
    offset_ns = _wait_for_open(control)
    journal: Journal = MemoryJournal()
    first_sequence = int(counters.next_sequence)
    if slot_log is not None:
        beside(control, slot_log.open, slot_log.progress)
        journal = slot_log.journal
        first_sequence = max(first_sequence, slot_log.first_sequence)
    config = OwnerConfig(
        slot=start.index,
        generation=start.generation,
        run_id=start.run_id,
        topology=start.topology,
        created_offset_ns=offset_ns,
        first_sequence=first_sequence,
        memory_bytes_max=start.setting("memory_bytes"),
    )
    core = OwnerCore(config, journal, counters)
    if slot_log is not None:
        slot_log.restore_into(core.engine)
        beside(control, slot_log.restore, slot_log.progress)
        slot_log.begin(counters)
    # What there is from the start, the tube `default` and the log, is on the page before this owner counts as live.
    page.publish()
    return OpenOwner(core, page, slot_log)


def _read_log(start: Start, control: ControlSocket) -> SlotLog | None:
    path = start.slot_path()
    if path == "":
        return None
    slot_log = SlotLog(
        start.title(), path, start.index, start.topology, start.setting("sync_ns"), start.setting("segment_bytes")
    )
    if start.probe:
        beside(control, slot_log.probe, slot_log.progress)
    beside(control, slot_log.lock, slot_log.progress)
    beside(control, slot_log.read, slot_log.progress)
    return slot_log


def _wait_for_open(control: ControlSocket) -> int:
    """The supervisor opens all slots at once, when every one has read its data."""
    while True:
        select.select([control], [], [])
        for message, _ in control.receive():
            if message.kind == "open":
                return message.number("offset_ns")
            if message.kind == "stop":
                os._exit(0)
            if message.kind == "ping":
                control.send(Message("pong", {"number": message.number("number")}))
            else:
                assert message.kind == "drain"  # asked again before it serves
        if control.ended:
            os._exit(0)
