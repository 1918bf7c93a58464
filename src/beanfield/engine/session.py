"""A logical session: what one client connection is to this slot, whatever its frontend does with the socket.

Plain state; the engine changes it. A session holds references to tubes, its reservations, and at most one reserve
request. Sessions are reached by their index in the engine's table, so that jobs need no reference to them.
"""

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64, mypyc_attr

from beanfield.engine.job import Job
from beanfield.engine.port import Port
from beanfield.engine.tube import Tube

if TYPE_CHECKING:
    from beanfield.engine.watchset import WatchSet

NO_REQUEST: Final[i64] = 0


@mypyc_attr(native_class=True)
class Gate:
    """One link as the engine sees it: where its sessions' grants go, and whether it can take any now."""

    def __init__(self, index: i64, port: Port) -> None:
        self.index: i64 = index  # in the engine's table of gates; reused after the link has gone
        self.port: Port = port
        self.blocked: bool = False  # its peer does not read: neither offers nor grants; waiters keep their place
        self.heard_ns: i64 = 0  # of its peer's last word
        self.silent: bool = False  # a hold ran out and nothing was heard meanwhile: as if blocked, until it speaks


@mypyc_attr(native_class=True)
class Session:
    """State of one session. Invariants are checked in invariants.py."""

    def __init__(self, number: i64, gate: Gate) -> None:
        self.number: i64 = number  # its id on the link
        self.index: i64 = -1  # given by the store
        self.gate: Gate = gate
        self.used: Tube | None = None
        self.watched: WatchSet | None = None  # the part of its watch list that lives in this slot
        self.reserved: list[Job] = []
        # ---- the reserve request under way, if any
        self.request: i64 = NO_REQUEST
        self.multi: bool = False  # several owners are asked: jobs are offered, not granted
        self.nowait: bool = False
        self.ending: bool = False  # its last word is wanted
        self.syncing: bool = False  # the last word waits for other links to tell of closed clients
        self.offered: bool = False  # an OFFER was sent and neither TAKE nor DROP has come since
        self.held: Job | None = None  # the job on hold for it; None while `offered` if the hold was lost
        self.hold_until_ns: i64 = 0
        self.lost_before: i64 = 0  # lost_count of its watch set when the request came
        self.failed: bool = False  # a TAKE failed after LAST
        self.withhold_until_ns: i64 = 0  # not 0: in the engine's list of withheld last words
        # ---- place among the waiters of its watch set
        self.arrival: i64 = 0  # order of arrival of the request at this owner
        self.queued: bool = False
        self.before: Session | None = None
        self.behind: Session | None = None
        self.detached: bool = False  # its client is gone; reservations not yet returned are on their way back
