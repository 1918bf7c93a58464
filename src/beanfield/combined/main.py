"""The process that is the only owner and the only frontend: `--frontends 0`. Starts as an owner, serves as a frontend.

Two pages, one loop, perhaps a log; what the cores say to each other is combined/core.py's business.
"""

from beanfield import pages
from beanfield.child import Start
from beanfield.combined.core import CombinedCore
from beanfield.frontend.main import FrontendLoop, frontend_config, frontend_page
from beanfield.io.control_socket import ControlSocket
from beanfield.io.log import log
from beanfield.io.page import PageWriter, SharedPageReader
from beanfield.io.poller import RAW
from beanfield.owner.main import NO_HANDLE, OpenOwner, open_owner, run_with_log


class CombinedLoop(FrontendLoop):
    """FrontendLoop with the owner's page and log beside the frontend's."""

    def __init__(
        self, start: Start, core: CombinedCore, control: ControlSocket, page: PageWriter, owner: OpenOwner
    ) -> None:
        super().__init__(start, core, control, page)
        self._owner = core.owner
        self._owner_page = owner.page
        self._log = owner.log
        self._log_handle = NO_HANDLE
        if owner.log is not None:
            self._log_handle = self.reactor.add(owner.log.driver.descriptor, RAW)

    def on_ready(self, handles: list[int]) -> None:
        """What the disk has done comes before all else."""
        slot_log = self._log
        if slot_log is not None and self._log_handle in handles:
            handles.remove(self._log_handle)
            slot_log.driver.collect(self.reactor.now_ns())
        super().on_ready(handles)

    def on_turn(self, now_ns: int) -> None:
        """The turn's records, what others read of the owner at any moment, and what it has to say."""
        slot_log = self._log
        if slot_log is not None:
            slot_log.turn(now_ns)
        super().on_turn(now_ns)
        owner = self._owner
        self._owner_page.set_word(pages.PAGE_MEMORY_BYTES, owner.counters.memory_bytes)
        self._owner_page.publish()
        for text in owner.take_log():
            log(self.title, text)

    def on_flushed(self, now_ns: int) -> None:
        """What the operator may have to know of the log: no client waits for that."""
        if self._log is not None:
            self._log.notice(now_ns)

    def deadline_ns(self) -> int:
        """The frontend's, and when the log may have something to tell the operator."""
        mine = super().deadline_ns()
        return mine if self._log is None else min(mine, self._log.next_notice_ns())


def run_combined(start: Start, control: ControlSocket) -> int:
    """The whole life of the process; its exit code."""
    owner = open_owner(start, control)
    reader = SharedPageReader(start.pages)
    core = CombinedCore(frontend_config(start), reader, owner.core)
    page = frontend_page(start, core, reader)
    loop = CombinedLoop(start, core, control, page, owner)
    core.connect(loop.reactor.now_ns())
    loop.say("ready")
    return run_with_log(start, loop, owner)
