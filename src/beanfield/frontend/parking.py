"""Slots that are down: commands that wait for one, and what happens to sessions when a link ends and comes back.

A parked command has not been sent, or was not answered and changes nothing when it is sent again; it is still in its
parser (Session.op), so going on is doing it again. What may have changed something and was not answered is never
repeated: its session is closed. On return, references come first, for all sessions; then commands go on, those that
had been sent before those that had not, in the order of the connections.
"""

from mypy_extensions import i64

from beanfield.constants import LINK_UNSENT_BYTES_HIGH
from beanfield.frontend import reserve
from beanfield.frontend.references import make_again
from beanfield.frontend.session import CLOSED, FREE, LARGE, PARKED, PIECES, UNUSE_OLD, USE_NEW, WORD, Seat, Session
from beanfield.frontend.slots import LINK_DOWN, LINK_RESTORING, LINK_UP, SLOT_UNAVAILABLE, SlotLink
from beanfield.frontend.state import FrontendState
from beanfield.proto.ops import OP_IGNORE, OP_PUT, OP_RESERVE_JOB, OP_STATS, OP_USE
from beanfield.proto.replies import INTERNAL_ERROR, using, watching


def reach(state: FrontendState, session: Session, seat: Seat) -> bool:
    """Whether Session.op may be sent to this slot now. False: it waits, or (op is 0 then) has been answered."""
    if seat.link.state == LINK_UP:
        return state.may_send(session, seat)
    if session.flight == 0:
        park(state, session, seat)
    return False


def park(state: FrontendState, session: Session, seat: Seat) -> None:
    """The command waits for its slot, if there is time and sense in waiting."""
    assert session.op != 0 and session.flight == 0
    due_ns = session.arrived_ns + state.config.slot_wait_ns
    if seat.link.word == SLOT_UNAVAILABLE or due_ns <= state.now_ns:
        give_up(state, session)
        return
    session.wait = PARKED
    session.parked_seat = seat
    state.timers.schedule(session, due_ns)


def give_up(state: FrontendState, session: Session) -> None:
    """It was certainly not executed."""
    session.op = 0
    session.gathered = None
    session.piece_at = 0
    session.parked_seat = None
    session.repeated = False
    state.answer(session, INTERNAL_ERROR)
    state.free(session)


def timer(state: FrontendState, session: Session) -> None:
    assert session.wait == PARKED
    give_up(state, session)


def slot_word(state: FrontendState, link: SlotLink, word: i64) -> None:
    """The supervisor's word about the slot has changed."""
    link.word = word
    if word != SLOT_UNAVAILABLE or link.state == LINK_UP:
        return
    for serial in sorted(link.members):
        seat = link.members.get(serial)
        if seat is None:
            continue
        session = seat.session
        if session.wait == PARKED and session.parked_seat is seat:
            give_up(state, session)
        else:
            reserve.look(state, session)


# ---------------------------------------------------------------- a link ends


def link_lost(state: FrontendState, link: SlotLink) -> None:
    """Sessions that may have lost something are closed; the others wait for the slot."""
    assert link.state != LINK_DOWN
    del state.link_of_handle[link.handle]
    serials = sorted(link.members)
    room = link.waiting_room
    link.waiting_room = {}
    link.reset()
    for serial in serials:
        seat = link.members[serial]
        session = seat.session
        attached = seat.number != 0
        seat.number = 0
        seat.restoring_count = 0
        if not attached:
            continue
        if seat.reserved_count != 0 or _outcome_is_unknown(session, seat):
            state.close(session)
        else:
            _lost(state, session, seat)
    for session in room.values():
        session.held_back = False
        if session.wait != CLOSED:
            state.wake(session)


def _outcome_is_unknown(session: Session, seat: Seat) -> bool:
    """Whether something unanswered may have changed the slot, or a reply is cut off in the middle."""
    if session.wait == LARGE and session.large_seat is seat:
        return True
    if session.flight_seat is not seat:
        return False
    # All that is streamed changes something; a command whose word is awaited is the last of the flight.
    return session.wait != WORD or session.flight > 1 or session.op == OP_RESERVE_JOB


def _lost(state: FrontendState, session: Session, seat: Seat) -> None:
    if session.wait == WORD and session.flight_seat is seat:
        session.landed(session.flight)
        _repeat(state, session, seat)
    elif session.wait == PIECES and session.use_seat is seat:
        # A put that was not sent to its end holds no job: it begins anew.
        assert session.op == OP_PUT
        session.piece_at = 0
        park(state, session, seat)
    else:
        reserve.lost(state, session, seat)


def _repeat(state: FrontendState, session: Session, seat: Seat) -> None:
    """An unanswered command that may be sent again; but giving up a reference on a slot that is down is confirmed."""
    op = session.op
    if op == OP_USE and session.use_stage == UNUSE_OLD:
        session.use_stage = USE_NEW
        session.op = 0
        state.answer(session, using(session.use_name))
        state.free(session)
    elif op == OP_IGNORE:
        session.ignore(session.parser.name)
        session.op = 0
        state.answer(session, watching(len(session.watched)))
        state.free(session)
    elif op == OP_STATS:
        state.free(session)  # another slot may be asked
    else:
        session.repeated = True
        session.wait = FREE
        park(state, session, seat)


# ---------------------------------------------------------------- a link comes back


def begin_restoring(state: FrontendState, link: SlotLink) -> None:
    """The owner has said WELCOME."""
    link.state = LINK_RESTORING
    link.to_restore = sorted(link.members)
    link.to_restore.reverse()
    go_on_restoring(state, link)


def go_on_restoring(state: FrontendState, link: SlotLink) -> None:
    """As far as the link takes it. When every reference is confirmed the link is up."""
    assert link.state == LINK_RESTORING
    serials = link.to_restore
    while len(serials) != 0:
        if link.bytes_here() > LINK_UNSENT_BYTES_HIGH:
            return
        seat = link.members.get(serials.pop())
        if seat is not None and seat.number == 0:
            make_again(state, seat)
    if link.restoring_count == 0:
        _restored(state, link)


def _restored(state: FrontendState, link: SlotLink) -> None:
    link.state = LINK_UP
    serials = sorted(link.members)
    for serial in serials:
        seat = link.members[serial]
        session = seat.session
        reserve.returned(state, session, seat)
        if session.wait == PARKED and session.parked_seat is seat and session.repeated:
            _go_on(state, session)
    for serial in serials:
        seat = link.members[serial]
        session = seat.session
        if session.wait == PARKED and session.parked_seat is seat:
            _go_on(state, session)


def _go_on(state: FrontendState, session: Session) -> None:
    session.parked_seat = None
    session.repeated = False
    state.free(session)
