"""An owner's end of one link: what came in, what goes out, and the sessions of the frontend at the other end.

It encodes frames and knows nothing of when they leave: the core takes them at the end of a turn. A run of replies to
one session becomes one frame. Long bodies are passed on without being copied into the frame around them.
"""

from collections import deque
from typing import Final

from librt.strings import BytesWriter, write_i64_le
from mypy_extensions import i64, mypyc_attr

from beanfield.constants import CHUNK_BYTES, LINK_UNSENT_BYTES_HIGH, RECENT_SEATS, RUN_BODY_BYTES_MAX
from beanfield.engine.job import Job
from beanfield.engine.port import NOBODY, Port
from beanfield.engine.session import Gate
from beanfield.ipc.codec import (
    HEADER,
    OWN_PIECE_BYTES,
    WORD,
    FrameBuffer,
    patch_word,
    write_body,
    write_header,
    write_plain,
    write_word,
    write_word_body,
    write_words3,
)
from beanfield.ipc.frames import (
    CANCELLED,
    CHUNK,
    EMPTY,
    EXPIRED,
    FLAG_AGAIN,
    FLAG_BARE,
    FLAG_LARGE,
    LARGE,
    OFFER,
    REPLY,
    RESERVED,
    SYNC,
    TOUCHED,
)
from beanfield.owner.seat import LargeReply, Seat
from beanfield.pages import OwnerCounters
from beanfield.proto.replies import (
    CRLF,
    inserted_bytes,
    reserved_head_bytes,
    write_inserted,
    write_reserved_head,
)
from beanfield.proto.replies import TOUCHED as TOUCHED_TEXT

PIECE: Final[i64] = CHUNK_BYTES
RUN_TEXT_BYTES: Final[i64] = RUN_BODY_BYTES_MAX
UNSENT_HIGH: Final[i64] = LINK_UNSENT_BYTES_HIGH
NO_RUN: Final[i64] = -1
RECENT_SEATS_MASK: Final[i64] = RECENT_SEATS - 1


@mypyc_attr(native_class=True)
class Waiting:
    """Output that may leave once the journal has released its position."""

    def __init__(self, position: i64, pieces: list[bytes], pieces_bytes: i64) -> None:
        self.position: i64 = position
        self.pieces: list[bytes] = pieces
        self.pieces_bytes: i64 = pieces_bytes


@mypyc_attr(native_class=True)
class OwnerLink(Port):
    """One link. `frontend` and `generation` are known once it is welcome."""

    def __init__(self, handle: int, counters: OwnerCounters) -> None:
        self.handle: int = handle
        self.counters: OwnerCounters = counters
        self.frontend: i64 = -1
        self.generation: i64 = 0
        self.welcome: bool = False
        self.gate: Gate = Gate(-1, self)
        self.buffer: FrameBuffer = FrameBuffer()
        self.rest: bool = False  # complete frames may stand in the buffer, unexecuted
        self.paused: bool = False
        self.seats: dict[int, Seat] = {}
        self.recent: list[Seat | None] = [None] * RECENT_SEATS  # by the last bits of their numbers: see seat_of
        self.session_high: i64 = 0
        # ---- output of this turn, and of earlier ones
        self.writer: BytesWriter = BytesWriter()
        self.pieces: list[bytes] = []
        self.pieces_bytes: i64 = 0
        self.waiting: deque[Waiting] = deque()
        self.waiting_bytes: i64 = 0
        self.unsent_bytes: i64 = 0  # what the reactor could not send
        self.run_session: i64 = NO_RUN
        self.run_next: i64 = 0
        self.run_flags: i64 = 0
        self.run_at: i64 = 0
        self.run_count: i64 = 0
        self.run_bytes: i64 = 0
        # ---- SYNC
        self.sync_sent: i64 = 0  # number of the last SYNC; under way while > sync_done
        self.sync_done: i64 = 0
        self.sync_again: bool = False  # somebody came after it was sent
        self.sync_missed: bool = False  # did not answer in time: not asked until it has

    def dismantle(self) -> None:
        """The link is gone, and so are its sessions. Cuts the circle of link and gate, as the collector is off."""
        assert len(self.seats) == 0
        self.welcome = False
        self.gate.port = NOBODY

    # ---------------------------------------------------------------- sessions

    def seat_of(self, number: i64) -> Seat | None:
        """The session of this number; without looking into the table, as long as they are not very many."""
        at = number & RECENT_SEATS_MASK
        seat = self.recent[at]
        if seat is None or seat.number != number:
            seat = self.seats.get(number)
            if seat is not None:
                self.recent[at] = seat
        return seat

    def forget(self, seat: Seat) -> None:
        """The session has ended."""
        del self.seats[seat.number]
        self.recent[seat.number & RECENT_SEATS_MASK] = None

    # ---------------------------------------------------------------- output

    def output_bytes(self) -> i64:
        """All that has not left this process yet."""
        return self.pieces_bytes + len(self.writer) + self.waiting_bytes + self.unsent_bytes

    def wrote(self) -> None:
        """After each frame: a peer that does not read is given nothing more than this limit allows."""
        if self.output_bytes() > UNSENT_HIGH:
            self.gate.blocked = True

    def take_output(self) -> list[bytes]:
        """The frames of this turn, complete."""
        if self.run_session != NO_RUN:
            self._finish_run()
        pieces = self.pieces
        if len(self.writer) != 0:
            pieces.append(self.writer.getvalue())
            self.writer = BytesWriter()
        self.pieces = []
        self.pieces_bytes = 0
        return pieces

    def _own_piece(self, body: bytes) -> None:
        pieces = self.pieces
        pieces.append(self.writer.getvalue())
        self.pieces_bytes += len(self.writer) + len(body)
        pieces.append(body)
        self.writer = BytesWriter()

    def _finish_run(self) -> None:
        if self.run_count > 1:
            frame_bytes = HEADER + WORD + self.run_bytes
            patch_word(self.writer, self.run_at, frame_bytes | (REPLY << 32) | (self.run_flags << 40))
            patch_word(self.writer, self.run_at + HEADER, self.run_count)
        self.run_session = NO_RUN

    def frame_writer(self) -> BytesWriter:
        """Where the next frame that is not a reply goes."""
        if self.run_session != NO_RUN:
            self._finish_run()
        return self.writer

    # ---------------------------------------------------------------- replies

    def reply(self, session: i64, request: i64, flags: i64, text: bytes) -> None:
        """The final text of one reply. Replies to requests in a row of one session share a frame."""
        self._begin_reply(session, request, flags, len(text)).write(text)
        if self.run_count == 1:
            self.wrote()

    def inserted(self, session: i64, request: i64, job_id: i64) -> None:
        """The reply to a put."""
        write_inserted(self._begin_reply(session, request, 0, inserted_bytes(job_id)), job_id)
        if self.run_count == 1:
            self.wrote()

    def _begin_reply(self, session: i64, request: i64, flags: i64, text_bytes: i64) -> BytesWriter:
        """Where the text goes next: into the frame of the run, or behind the head of a new one."""
        if (
            self.run_session == session
            and self.run_next == request
            and self.run_flags == flags
            and self.run_bytes + text_bytes <= RUN_TEXT_BYTES
        ):
            self.run_count += 1
            self.run_next = request + 1
            self.run_bytes += text_bytes
            return self.writer
        writer = self.frame_writer()
        self.run_at = len(writer)
        write_header(writer, WORD + text_bytes, REPLY, flags, session, request)
        write_i64_le(writer, 1)
        self.run_session = session
        self.run_next = request + 1
        self.run_flags = flags
        self.run_count = 1
        self.run_bytes = text_bytes
        return writer

    def granted_run(self, session: i64, request: i64, jobs: list[Job]) -> None:
        """RESERVED of several small jobs in one frame."""
        texts = BytesWriter()
        for job in jobs:
            write_reserved_head(texts, job.id, len(job.body))
            texts.write(job.body)
            texts.write(CRLF)
        writer = self.frame_writer()
        count: i64 = len(jobs)
        write_header(writer, WORD + 2 * WORD * count + len(texts), RESERVED, 0, session, request)
        write_i64_le(writer, count)
        for job in jobs:
            write_i64_le(writer, job.id)
            write_i64_le(writer, job.ttr_ns())
        writer.write(texts.getvalue())
        self.wrote()

    def granted(self, session_number: i64, request: i64, job: Job, remaining_ns: i64) -> None:
        body = job.body
        body_bytes: i64 = len(body)
        if body_bytes > PIECE:
            self._granted_large(session_number, request, job, remaining_ns)
            return
        writer = self.frame_writer()
        reply_bytes = reserved_head_bytes(job.id, body_bytes) + body_bytes
        flags: i64 = 0
        if body_bytes < OWN_PIECE_BYTES:
            reply_bytes += 2
        else:
            flags = FLAG_BARE  # with CRLF behind it the body would have to be copied
        write_header(writer, 3 * WORD + reply_bytes, RESERVED, flags, session_number, request)
        write_i64_le(writer, 1)
        write_i64_le(writer, job.id)
        write_i64_le(writer, remaining_ns)
        write_reserved_head(writer, job.id, body_bytes)
        if body_bytes < OWN_PIECE_BYTES:
            writer.write(body)
            writer.write(CRLF)
        else:
            self._own_piece(body)
        self.wrote()

    def _granted_large(self, session_number: i64, request: i64, job: Job, remaining_ns: i64) -> None:
        head = BytesWriter()
        write_reserved_head(head, job.id, len(job.body))
        large = LargeReply(request, head.getvalue(), job.body, CRLF)
        piece = large.next_piece(PIECE)
        self._pin(self.seats[session_number], large)
        writer = self.frame_writer()
        write_header(writer, 4 * WORD + len(piece), RESERVED, FLAG_LARGE, session_number, request)
        write_i64_le(writer, 1)
        write_i64_le(writer, job.id)
        write_i64_le(writer, remaining_ns)
        write_i64_le(writer, large.reply_bytes)
        writer.write(piece)
        self.wrote()

    def large(self, seat: Seat, large: LargeReply) -> None:
        """The first piece of a reply that crosses in pieces; also lists, however short."""
        piece = large.next_piece(PIECE)
        write_word_body(self.frame_writer(), LARGE, 0, seat.number, large.request, large.reply_bytes, piece)
        if not large.through():
            self._pin(seat, large)
        self.wrote()

    def chunk(self, seat: Seat, large: LargeReply) -> None:
        """The next piece."""
        write_body(self.frame_writer(), CHUNK, 0, seat.number, large.request, large.next_piece(PIECE))
        if large.through():
            self.unpin(seat)
        self.wrote()

    def _pin(self, seat: Seat, large: LargeReply) -> None:
        assert seat.large is None
        seat.large = large
        self.counters.memory_bytes += large.reply_bytes

    def unpin(self, seat: Seat) -> None:
        """The reply in pieces is through, or nobody wants the rest."""
        large = seat.large
        if large is not None:
            seat.large = None
            self.counters.memory_bytes -= large.reply_bytes

    def touched(self, session: i64, request: i64, job_id: i64, remaining_ns: i64) -> None:
        writer = self.frame_writer()
        write_header(writer, 2 * WORD + len(TOUCHED_TEXT), TOUCHED, 0, session, request)
        write_i64_le(writer, job_id)
        write_i64_le(writer, remaining_ns)
        writer.write(TOUCHED_TEXT)
        self.wrote()

    # ---------------------------------------------------------------- reserve over several owners, and notices

    def offered(self, session_number: i64, request: i64, job: Job) -> None:
        write_words3(self.frame_writer(), OFFER, session_number, request, job.priority(), job.created_ns, job.id)
        self.wrote()

    def empty(self, session_number: i64, request: i64) -> None:
        write_plain(self.frame_writer(), EMPTY, 0, session_number, request)

    def cancelled(self, session_number: i64, request: i64, again: bool) -> None:
        write_plain(self.frame_writer(), CANCELLED, FLAG_AGAIN if again else 0, session_number, request)

    def expired(self, session_number: i64, job_id: i64) -> None:
        write_word(self.frame_writer(), EXPIRED, 0, session_number, 0, job_id)
        self.wrote()

    def sync(self, number: i64) -> None:
        write_word(self.frame_writer(), SYNC, 0, 0, 0, number)


