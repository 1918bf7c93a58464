"""Frames from the owners: what they answer, grant and tell, and where each of them belongs.

A frame for a session or request that has ended has crossed with that end and is dropped; one that nobody can have
asked for is the owner's fault: LinkFault, and the link closes. Reply text goes to the client as it is.
"""

from mypy_extensions import i64

from beanfield.errors import LinkFault
from beanfield.frontend import deadlines, reserve, stats
from beanfield.frontend.commands import word_came
from beanfield.frontend.session import FREE, LARGE, WORD, Seat, Session
from beanfield.frontend.slots import SlotLink
from beanfield.frontend.state import NO_FLAGS, FrontendState
from beanfield.ipc import frames
from beanfield.ipc.codec import write_plain
from beanfield.ipc.frames import ERROR_FRAME, FLAG_AGAIN, FLAG_BARE, FLAG_ENDED, FLAG_LARGE, WORD_BYTES
from beanfield.proto import ops
from beanfield.proto.replies import CRLF


def session_frame(state: FrontendState, link: SlotLink) -> None:
    """One frame that concerns a session."""
    received = link.frames
    seat = link.seat_of(received.session)
    if seat is None:
        if received.session >= link.next_number:
            raise LinkFault(ERROR_FRAME, f"session {received.session} was never opened")
        return
    opcode = received.opcode
    if opcode == frames.REPLY:
        _reply(state, link, seat)
    elif opcode == frames.RESERVED:
        _reserved(state, link, seat)
    elif opcode == frames.OFFER:
        priority = received.word()
        created_ns = received.word()
        job_id = received.word()
        received.done()
        reserve.offered(state, seat, received.request, priority, created_ns, job_id)
    elif opcode == frames.EMPTY:
        received.done()
        reserve.emptied(state, seat, received.request)
    elif opcode == frames.CANCELLED:
        received.done()
        reserve.cancelled(state, seat, received.request, received.flags == FLAG_AGAIN)
    elif opcode == frames.TOUCHED:
        _touched(state, link, seat)
    elif opcode == frames.EXPIRED:
        job_id = received.word()
        received.done()
        deadlines.over(seat.session, job_id)
        reserve.look(state, seat.session)
    elif opcode == frames.LARGE:
        _large(state, link, seat)
    elif opcode == frames.CHUNK:
        _chunk(state, link, seat)
    else:
        raise LinkFault(ERROR_FRAME, f"opcode {opcode} from an owner, for a session")


def _is_awaited(session: Session, seat: Seat, request: i64, count: i64) -> bool:
    """Whether this is the answer to the first `count` requests of the flight."""
    if request >= seat.next_request or count < 1:
        raise LinkFault(ERROR_FRAME, f"{count} answers to request {request}, which was never made")
    if session.flight_seat is not seat or request < session.flight_first:
        return False
    if request != session.flight_first or count > session.flight:
        raise LinkFault(ERROR_FRAME, f"{count} answers to request {request} out of order")
    return True


def _landed(state: FrontendState, session: Session, seat: Seat, count: i64, refused: bool) -> None:
    session.landed(count)
    if session.wait == WORD:
        if session.flight == 0:
            word_came(state, session, seat, refused)
    elif session.wait == FREE and (session.is_blocked() or session.ended or session.parser.held != 0):
        state.wake(session)


def _reply(state: FrontendState, link: SlotLink, seat: Seat) -> None:
    received = link.frames
    count = received.word()
    request = received.request
    session = seat.session
    if seat.restoring_count != 0:
        restored = min(count, seat.restoring_count)
        seat.restoring_count -= restored
        link.restoring_count -= restored
        count -= restored
        request += restored
        if count == 0:
            return
    if not _is_awaited(session, seat, request, count):
        return
    if received.flags & FLAG_ENDED:
        ids = session.flight_ids
        for at in range(min(count, ids.count)):
            job_id = ids.at(at)
            if job_id != 0:
                deadlines.over(session, job_id)
    has_text = received.body_bytes() != 0
    if has_text:
        state.answer(session, received.body())
    _landed(state, session, seat, count, has_text)


def _touched(state: FrontendState, link: SlotLink, seat: Seat) -> None:
    received = link.frames
    job_id = received.word()
    remaining_ns = received.word()
    session = seat.session
    if not _is_awaited(session, seat, received.request, 1):
        return
    deadlines.touched(session, job_id, state.now_ns + remaining_ns)
    state.answer(session, received.body())
    _landed(state, session, seat, 1, True)


def _reserved(state: FrontendState, link: SlotLink, seat: Seat) -> None:
    """The answer to a reserve, a run of them, or reserve-job."""
    received = link.frames
    request = received.request
    session = seat.session
    count = received.word()
    if count < 1 or received.body_bytes() < 2 * WORD_BYTES * count:
        raise LinkFault(ERROR_FRAME, f"RESERVED of {count} jobs is too short")
    by_id = session.wait == WORD and session.op == ops.OP_RESERVE_JOB and _is_awaited(session, seat, request, 1)
    if not by_id and not reserve.is_granted(seat, request):
        return
    for _ in range(count):
        job_id = received.word()
        remaining_ns = received.word()
        deadlines.began(session, seat, job_id, state.now_ns + remaining_ns)
    reply_bytes: i64 = 0
    if received.flags & FLAG_LARGE:
        reply_bytes = received.word() - received.body_bytes()
    if reply_bytes < 0:
        raise LinkFault(ERROR_FRAME, "a piece goes beyond its reply")
    bare = (received.flags & FLAG_BARE) != 0
    if bare and (count != 1 or reply_bytes != 0):
        raise LinkFault(ERROR_FRAME, "RESERVED without its last line end is more or less than one reply")
    if received.has_tail():
        state.answer(session, received.front())
        state.go_on_answering(session, received.body())
    else:
        state.answer(session, received.body())
    if bare:
        state.go_on_answering(session, CRLF)
    if by_id:
        state.mark_worker(session)
        _landed(state, session, seat, 1, True)
    else:
        reserve.granted(state, seat, count)
    if reply_bytes != 0:
        _begin_large(state, session, seat, request, reply_bytes)


# ---------------------------------------------------------------- replies in pieces


def _begin_large(state: FrontendState, session: Session, seat: Seat, request: i64, rest_bytes: i64) -> None:
    """The command is done but for the rest of its reply."""
    assert session.wait == FREE and session.flight == 0
    session.wait = LARGE
    session.large_seat = seat
    session.large_request = request
    session.large_bytes = rest_bytes
    state.look_again(session)


def ask_more(state: FrontendState, session: Session) -> None:
    """The client has taken the piece before, or was just given it; looked at once a turn."""
    seat = session.large_seat
    assert session.wait == LARGE and seat is not None
    if session.large_asked or state.unsent_bytes(session) != 0:
        return
    session.large_asked = True
    write_plain(seat.link.writer, frames.MORE, NO_FLAGS, seat.number, session.large_request)


def _large(state: FrontendState, link: SlotLink, seat: Seat) -> None:
    received = link.frames
    session = seat.session
    reply_bytes = received.word()
    rest_bytes = reply_bytes - received.body_bytes()
    if rest_bytes < 0:
        raise LinkFault(ERROR_FRAME, "a piece goes beyond its reply")
    if not _is_awaited(session, seat, received.request, 1):
        return
    if session.wait != WORD:
        raise LinkFault(ERROR_FRAME, "LARGE to a command whose reply is small")
    if session.op == ops.OP_LIST_TUBES:
        session.large_bytes = reply_bytes
        _list_piece(state, session, seat)
        return
    state.answer(session, received.body())
    _landed(state, session, seat, 1, True)
    if rest_bytes != 0:
        _begin_large(state, session, seat, received.request, rest_bytes)


def _chunk(state: FrontendState, link: SlotLink, seat: Seat) -> None:
    received = link.frames
    session = seat.session
    if session.wait == WORD and session.op == ops.OP_LIST_TUBES:
        if _is_awaited(session, seat, received.request, 1):
            _list_piece(state, session, seat)
        return
    if session.wait != LARGE or session.large_seat is not seat or session.large_request != received.request:
        raise LinkFault(ERROR_FRAME, "CHUNK that was not asked for")
    piece = received.body()
    session.large_bytes -= len(piece)
    if len(piece) == 0 or session.large_bytes < 0:
        raise LinkFault(ERROR_FRAME, "a piece is empty or goes beyond its reply")
    session.large_asked = False
    state.go_on_answering(session, piece)
    if session.large_bytes != 0:
        state.look_again(session)
        return
    session.large_seat = None
    state.free(session)


def _list_piece(state: FrontendState, session: Session, seat: Seat) -> None:
    """A piece of one slot's list of tubes; what is left is asked for at once, of this slot and then of the next."""
    request = session.flight_first
    if not stats.add_piece(session, seat.link.frames.body()):
        write_plain(seat.link.writer, frames.MORE, NO_FLAGS, seat.number, request)
        return
    stats.add_list(session)
    session.landed(1)
    if session.gather_slot == len(state.links):
        stats.answer_list(state, session)
        session.op = 0
    state.free(session)
