"""The process that is the only owner and the only frontend: `--frontends 0`. Starts as an owner, serves as a frontend.

Two pages, one loop; what the cores say to each other is combined/core.py's business.
"""

from beanfield import pages
from beanfield.child import Start
from beanfield.combined.core import CombinedCore
from beanfield.frontend.main import FrontendLoop, frontend_config, frontend_page
from beanfield.io.control_socket import ControlSocket
from beanfield.io.log import log
from beanfield.io.page import PageWriter, SharedPageReader
from beanfield.owner.main import log_last_opcodes, open_owner


class CombinedLoop(FrontendLoop):
    """FrontendLoop with the owner's page beside the frontend's."""

    def __init__(
        self, start: Start, core: CombinedCore, control: ControlSocket, page: PageWriter, owner_page: PageWriter
    ) -> None:
        super().__init__(start, core, control, page)
        self._owner = core.owner
        self._owner_page = owner_page

    def on_turn(self, now_ns: int) -> None:
        """What others read of the owner at any moment, and what it has to say."""
        super().on_turn(now_ns)
        owner = self._owner
        self._owner_page.set_word(pages.PAGE_MEMORY_BYTES, owner.counters.memory_bytes)
        self._owner_page.publish()
        for text in owner.take_log():
            log(self.title, text)


def run_combined(start: Start, control: ControlSocket) -> int:
    """The whole life of the process; its exit code."""
    owner, owner_page = open_owner(start, control)
    reader = SharedPageReader(start.pages)
    core = CombinedCore(frontend_config(start), reader, owner)
    page = frontend_page(start, core, reader)
    loop = CombinedLoop(start, core, control, page, owner_page)
    core.connect(loop.reactor.now_ns())
    loop.say("ready")
    try:
        return loop.run()
    except Exception:
        log_last_opcodes(start.title(), owner)
        raise
