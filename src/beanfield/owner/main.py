"""The process of an owner: its core in a loop, its links, its page.

At the start it reads what it has, says so, and waits for the supervisor's OPEN, which brings the time offset of the
run; only then it may write, and serves. It knows sockets and descriptors; what frames mean is the core's business.
"""

import os
import select

from beanfield import pages
from beanfield.child import Start
from beanfield.constants import NS_PER_MS
from beanfield.control import Message
from beanfield.io.control_socket import ControlSocket
from beanfield.io.log import log
from beanfield.io.loop import RoleLoop
from beanfield.io.page import PageWriter
from beanfield.owner.core import OwnerConfig, OwnerCore
from beanfield.pages import OwnerCounters
from beanfield.wal.journal import MemoryJournal

MEMORY_ELSEWHERE_NS = 1 * NS_PER_MS  # the other owners' pages are read at most this often


class OwnerLoop(RoleLoop):
    """RoleLoop for an OwnerCore."""

    def __init__(self, start: Start, core: OwnerCore, control: ControlSocket, page: PageWriter) -> None:
        super().__init__(start.title(), core, control, page)
        self._owner = core
        self._start = start
        self._next_elsewhere_ns = 0

    def on_message(self, message: Message, descriptors: list[int], now_ns: int) -> None:
        """link, stop."""
        if message.kind == "link":
            self._owner.link_opened(self.add_link(message, descriptors), now_ns)
        elif message.kind == "stop":
            self.done = True

    def on_ready(self, handles: list[int]) -> None:
        """Before the turn: how much memory the jobs of the others take."""
        assert not handles
        if self._start.topology.slots == 1:
            return
        now = self.reactor.now_ns()
        if now >= self._next_elsewhere_ns:
            self._next_elsewhere_ns = now + MEMORY_ELSEWHERE_NS
            self._owner.memory_elsewhere_bytes = self._start.pages.memory_elsewhere(self._start.index)

    def on_turn(self, now_ns: int) -> None:
        """What the others read of this owner at any moment, and what it has to say."""
        self.page.set_word(pages.PAGE_MEMORY_BYTES, self._owner.counters.memory_bytes)
        for text in self._owner.take_log():
            log(self.title, text)


def run_owner(start: Start, control: ControlSocket) -> int:
    """The whole life of an owner; its exit code."""
    core, page = open_owner(start, control)
    loop = OwnerLoop(start, core, control, page)
    loop.say("ready")
    try:
        return loop.run()
    except Exception:
        log_last_opcodes(start.title(), core)
        raise


def log_last_opcodes(title: str, core: OwnerCore) -> None:
    """A bug ends the process; what it was doing is half of the report."""
    opcodes = " ".join(str(opcode) for opcode in core.recent_opcodes())
    log(title, f"ends by an exception; the last opcodes were {opcodes}")


def open_owner(start: Start, control: ControlSocket) -> tuple[OwnerCore, PageWriter]:
    """From what the slot has to a core that may serve; waits for the supervisor's OPEN between."""
    counters = OwnerCounters()
    page = PageWriter(start.pages, pages.slot_page_offset(start.index), start.generation, counters)
    # Without a log there is nothing to read: created_ns of earlier generations is below what the clock gives now.
    control.send(Message("replayed", {"created_ns": 0}))
    config = OwnerConfig(
        slot=start.index,
        generation=start.generation,
        run_id=start.run_id,
        topology=start.topology,
        created_offset_ns=_wait_for_open(control),
        first_sequence=int(counters.next_sequence),
        memory_bytes_max=start.setting("memory_bytes"),
    )
    core = OwnerCore(config, MemoryJournal(), counters)
    # What the core has from the start, the tube `default`, is on the page before anybody takes this owner for live.
    page.publish()
    return core, page


def _wait_for_open(control: ControlSocket) -> int:
    """The supervisor opens all slots at once, when every one has read its data."""
    while True:
        select.select([control], [], [])
        for message, _ in control.receive():
            if message.kind == "open":
                return message.number("offset_ns")
            if message.kind == "stop":
                os._exit(0)
            assert message.kind == "ping"
            control.send(Message("pong", {"number": message.number("number")}))
        if control.ended:
            os._exit(0)
