"""The frontend's side of a slot: its link, while there is one, and what is known about it while there is none.

Writes frames into one buffer per link, which the turn hands out as one piece. Knows frames, not what commands mean.
A link that has much unsent is `held`: commands for it wait in their sessions; control frames are small and always go.
"""

from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter
from mypy_extensions import i64, mypyc_attr

from beanfield.constants import LINK_UNSENT_BYTES_HIGH, LINK_UNSENT_BYTES_LOW, RECENT_SEATS
from beanfield.ipc.codec import FrameBuffer

if TYPE_CHECKING:
    from beanfield.frontend.session import Seat, Session

# What the supervisor says of a slot.
SLOT_UP: Final[i64] = 0  # a link will follow or is there
SLOT_RESTARTING: Final[i64] = 1  # waited for
SLOT_UNAVAILABLE: Final[i64] = 2  # cannot start: not waited for

# The life of a link.
LINK_DOWN: Final[i64] = 0
LINK_HELLO: Final[i64] = 1  # HELLO is out
LINK_RESTORING: Final[i64] = 2  # WELCOME is in; the references of the sessions are being made again
LINK_UP: Final[i64] = 3

NO_HANDLE: Final = -1
RECENT_SEATS_MASK: Final[i64] = RECENT_SEATS - 1


@mypyc_attr(native_class=True)
class SlotLink:
    """One per slot, for the life of the frontend. `table` is of the current link, `members` outlive it."""

    def __init__(self, slot: i64) -> None:
        self.slot: i64 = slot
        self.word: i64 = SLOT_RESTARTING  # the supervisor's
        self.state: i64 = LINK_DOWN
        self.handle: int = NO_HANDLE
        self.generation: i64 = 0  # of the owner, from its WELCOME; never goes back
        self.frames: FrameBuffer = FrameBuffer()
        self.pieces: list[bytes] = []  # frames of this turn, as far as large bodies have cut them off
        self.pieces_bytes: i64 = 0
        self.writer: BytesWriter = BytesWriter()  # frames of this turn, those behind the pieces
        self.unsent_bytes: i64 = 0  # as last reported
        self.flushed_bytes: i64 = 0  # handed out at the end of the last turn, and nothing reported since
        self.next_number: i64 = 1  # the next session number on this link
        self.table: dict[int, Seat] = {}  # session number -> seat; only sessions attached on this link
        self.recent: list[Seat | None] = [None] * RECENT_SEATS  # by the last bits of their numbers: see seat_of
        self.members: dict[int, Seat] = {}  # session serial -> seat, attached or not
        self.held: bool = False  # more than the high mark was unsent and not yet less than the low one
        self.waiting_room: dict[int, Session] = {}  # by serial: sessions held back while `held`
        self.silent: bool = False  # has not answered for too long: no reserve waits for it until it speaks
        self.heard_ns: i64 = 0
        # ---- restoring
        self.to_restore: list[int] = []  # serials of members whose references are still to be made again, last first
        self.restoring_count: i64 = 0  # references asked for again and not confirmed yet
        # ---- SYNC
        self.sync_number: i64 = 0  # to be confirmed; 0: none
        self.sync_polls: i64 = 0  # full polls of the clients still to come before that

    def seat_of(self, number: i64) -> "Seat | None":
        """Who is attached under this number; without looking into the table, as long as they are not very many."""
        at = number & RECENT_SEATS_MASK
        seat = self.recent[at]
        if seat is None or seat.number != number:
            seat = self.table.get(number)
            if seat is not None:
                self.recent[at] = seat
        return seat

    def detach(self, seat: "Seat") -> None:
        """The number is not used again on this link."""
        del self.table[seat.number]
        self.recent[seat.number & RECENT_SEATS_MASK] = None
        seat.number = 0

    def is_up(self) -> bool:
        return self.state == LINK_UP

    def is_connected(self) -> bool:
        """Whether frames of sessions may be written: control frames always are."""
        return self.state >= LINK_RESTORING

    def is_full(self) -> bool:
        """Whether commands must wait. Notes it, so that the turn looks after those who do."""
        if not self.held and self.bytes_here() > LINK_UNSENT_BYTES_HIGH:
            self.held = True
        return self.held

    def may_go_on(self) -> bool:
        return self.held and self.bytes_here() <= LINK_UNSENT_BYTES_LOW

    def bytes_here(self) -> i64:
        """All that the kernel has not taken, as far as is known."""
        return self.unsent_bytes + self.flushed_bytes + self.pieces_bytes + len(self.writer)

    def own_piece(self, body: bytes) -> None:
        """The body of the frame whose head has just been written: as it is, not copied into the writer."""
        self.pieces.append(self.writer.getvalue())
        self.pieces.append(body)
        self.pieces_bytes += len(self.writer) + len(body)
        self.writer = BytesWriter()

    def has_frames(self) -> bool:
        return len(self.writer) != 0 or self.pieces_bytes != 0

    def take_frames(self) -> list[bytes]:
        """The frames of this turn, in pieces."""
        pieces = self.pieces
        if len(self.writer) != 0:
            pieces.append(self.writer.getvalue())
            self.writer = BytesWriter()
        self.pieces = []
        self.pieces_bytes = 0
        return pieces

    def waits_for_report(self) -> bool:
        """Whether what the last flush left unsent decides if somebody may go on."""
        return self.flushed_bytes != 0 and (self.held or len(self.to_restore) != 0)

    def reset(self) -> None:
        """The link is gone; what was not sent is dropped with it."""
        self.state = LINK_DOWN
        self.handle = NO_HANDLE
        self.frames = FrameBuffer()
        self.pieces = []
        self.pieces_bytes = 0
        self.writer = BytesWriter()
        self.unsent_bytes = 0
        self.flushed_bytes = 0
        self.next_number = 1
        self.table.clear()
        self.recent = [None] * RECENT_SEATS
        self.held = False
        self.silent = False
        self.to_restore = []
        self.restoring_count = 0
        self.sync_number = 0
