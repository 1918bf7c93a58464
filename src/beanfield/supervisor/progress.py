"""How far owners are that start: for the log now and then, and for the service manager, which is asked for patience."""

from beanfield.constants import NS_PER_S
from beanfield.io.log import log
from beanfield.io.process import notify_service_manager
from beanfield.ipc.frames import ROLE_OWNER

LOG_NS = 5 * NS_PER_S  # for each child
PATIENCE_US = 60_000_000  # from each report on; a server that replays is not a server that hangs


class Progress:
    """Told each word of progress."""

    def __init__(self) -> None:
        self._logged_ns: dict[tuple[int, int], int] = {}

    def told(self, role: int, index: int, text: str, now_ns: int) -> None:
        who = f"{'owner' if role == ROLE_OWNER else 'frontend'} {index}"
        notify_service_manager(f"EXTEND_TIMEOUT_USEC={PATIENCE_US}\nSTATUS={who} {text}")
        if now_ns - self._logged_ns.get((role, index), -LOG_NS) >= LOG_NS:
            self._logged_ns[(role, index)] = now_ns
            log(who, text)

    def over(self) -> None:
        """The server serves."""
        if self._logged_ns:
            notify_service_manager("STATUS=serving")
