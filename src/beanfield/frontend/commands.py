"""One session's commands in order: what is taken from its parser, counted, answered here or sent to an owner.

A command that cannot go yet stays in Session.op with its fields in the parser; advance() may be called at any time and
goes on from there. Commands that cannot block stream to one owner; everything else waits until all before it has been
answered, and then for its own answer. So replies are in order without ever being put in order.
"""

from mypy_extensions import i64

from beanfield.constants import CHUNK_BYTES, CLIENT_INPUT_BYTES_MAX, NS_PER_S, RUN_RESERVES_MAX
from beanfield.frontend import reserve, stats
from beanfield.frontend.counting import count, count_open_put
from beanfield.frontend.parking import reach
from beanfield.frontend.session import CLOSED, FREE, PIECES, UNUSE_OLD, USE_NEW, WORD, Seat, Session
from beanfield.frontend.slots import SLOT_UNAVAILABLE
from beanfield.frontend.state import NO_FLAGS, FrontendState
from beanfield.ipc import frames
from beanfield.ipc.actions import ACT_PAUSE, ACT_RESUME
from beanfield.ipc.codec import (
    OWN_PIECE_BYTES,
    write_body,
    write_plain,
    write_put,
    write_put_head,
    write_word,
    write_word_body,
    write_words2,
    write_words3,
)
from beanfield.proto import ops, replies
from beanfield.proto.yaml import tube_list


def advance(state: FrontendState, session: Session) -> None:
    """Takes the session as far as it can go, and sees to what its client may send meanwhile."""
    parser = session.parser
    starved = False
    while session.wait == FREE and state.has_room(session):
        if session.ahead.count != 0:
            if not reserve.begin(state, session):
                break
            continue
        op = session.op
        if op == 0:
            op = parser.next()
            if op == ops.NEED_MORE:
                count_open_put(state, session)
                starved = True
                break
            count(state, session, op)
            if op == ops.OP_RESERVE or op == ops.OP_RESERVE_TIMEOUT:
                _take_reserves(state, session, op)
                continue
            session.op = op
            session.arrived_ns = session.received_ns
        if _execute(state, session, op):
            session.op = 0
        elif session.op != 0:
            break
    if session.wait != CLOSED:
        _see_to_input(state, session, starved)


def _take_reserves(state: FrontendState, session: Session, op: i64) -> None:
    """This reserve and those right behind it, so that they can travel together."""
    parser = session.parser
    while True:
        session.ahead.push(parser.timeout_s if op == ops.OP_RESERVE_TIMEOUT else -1)
        if session.ahead.count == RUN_RESERVES_MAX or parser.held == 0:
            return
        op = parser.next()
        if op == ops.NEED_MORE:
            count_open_put(state, session)
            return
        count(state, session, op)
        if op != ops.OP_RESERVE and op != ops.OP_RESERVE_TIMEOUT:
            session.op = op
            session.arrived_ns = session.received_ns
            return


def _see_to_input(state: FrontendState, session: Session, starved: bool) -> None:
    """Back-pressure, the budget for bodies, and the end of a client that will send nothing more."""
    parser = session.parser
    if starved:
        if session.paused:
            session.paused = False
            state.actions.append(ACT_RESUME)
            state.actions.append(session.handle)
        if session.ended and session.is_idle():
            end(state, session)
            if session.wait == CLOSED:
                return
    elif not session.paused and parser.held > CLIENT_INPUT_BYTES_MAX:
        session.paused = True
        state.actions.append(ACT_PAUSE)
        state.actions.append(session.handle)
    held = parser.body_held
    if session.op == ops.OP_PUT:
        held += len(parser.body)
    if held != session.body_bytes:
        state.body_bytes += held - session.body_bytes
        session.body_bytes = held
        if parser.body_held != 0 and state.body_bytes + state.links_bytes() > state.config.body_memory_bytes:
            state.body_bytes -= parser.body_held
            session.body_bytes -= parser.body_held
            parser.refuse_body()


def end(state: FrontendState, session: Session) -> None:
    """All commands of a client that has ended are answered: close, when all is seen and sent."""
    assert session.ended and session.is_idle()
    if session.input_over and state.unsent_bytes(session) == 0:
        state.close(session)
    elif session.unsent_bytes == 0:
        state.look_again(session)


# ---------------------------------------------------------------- one command


def _execute(state: FrontendState, session: Session, op: i64) -> bool:
    """True: done with it, whether answered or streaming. False: it waits, or (Session.op is 0) it has been given up."""
    if op == ops.OP_PUT:
        return _put(state, session)
    if ops.OP_RESERVE_JOB <= op <= ops.OP_BURY or op == ops.OP_PEEK or ops.OP_KICK_JOB <= op <= ops.OP_STATS_JOB:
        return _by_id(state, session, op)
    if op == ops.OP_KICK or ops.OP_PEEK_READY <= op <= ops.OP_PEEK_BURIED:
        return _in_used_tube(state, session, op)
    if op == ops.OP_PAUSE_TUBE or op == ops.OP_STATS_TUBE:
        return _by_name(state, session, op)
    if session.flight != 0:
        return False
    if op == ops.OP_USE:
        return _use(state, session)
    if op == ops.OP_WATCH:
        return _watch(state, session)
    if op == ops.OP_IGNORE:
        return _ignore(state, session)
    if op == ops.OP_STATS:
        return stats.begin_stats(state, session)
    if op == ops.OP_LIST_TUBES:
        return _list_tubes(state, session)
    if op == ops.OP_QUIT:
        state.close(session)
        return True
    state.answer(session, _local_reply(session, op))
    return True


def _local_reply(session: Session, op: i64) -> bytes:
    if op == ops.OP_LIST_TUBE_USED:
        return replies.using(session.use_name)
    if op == ops.OP_LIST_TUBES_WATCHED:
        return tube_list(list(session.watched))
    if op == ops.OP_BAD_FORMAT:
        return replies.BAD_FORMAT
    if op == ops.OP_UNKNOWN_COMMAND:
        return replies.UNKNOWN_COMMAND
    if op == ops.OP_JOB_TOO_BIG:
        return replies.JOB_TOO_BIG
    if op == ops.OP_EXPECTED_CRLF:
        return replies.EXPECTED_CRLF
    assert op == ops.OP_BODY_REFUSED
    return replies.OUT_OF_MEMORY


def _put(state: FrontendState, session: Session) -> bool:
    parser = session.parser
    if state.draining:
        if session.flight != 0:
            return False
        state.answer(session, replies.DRAINING)
        return True
    seat = session.use_seat
    assert seat is not None
    if not seat.link.is_up() and session.flight == 0 and session.wait == FREE:
        # It would have to wait here for its slot: only if there is room for its body.
        held_bytes: i64 = state.body_bytes - session.body_bytes + len(parser.body) + state.links_bytes()
        if held_bytes > state.config.body_memory_bytes:
            state.answer(session, replies.OUT_OF_MEMORY)
            return True
    if not reach(state, session, seat):
        return False
    if len(parser.body) > CHUNK_BYTES:
        if session.flight != 0:
            return False  # its pieces must not pile up behind a command that the owner takes its time for
        session.wait = PIECES
        session.piece_at = 0
        state.in_pieces.append(session)
        return False
    _send_put(state, session, seat, parser.body)
    return True


def _send_put(state: FrontendState, session: Session, seat: Seat, body: bytes) -> None:
    parser = session.parser
    link = seat.link
    request = state.requested(session, seat, 0)
    delay_ns = parser.delay_s * NS_PER_S
    ttr_ns = parser.ttr_s * NS_PER_S
    priority = parser.priority
    body_bytes: i64 = len(body)
    if body_bytes < OWN_PIECE_BYTES:
        write_put(link.writer, frames.PUT, seat.number, request, priority, delay_ns, ttr_ns, body)
    else:
        write_put_head(link.writer, frames.PUT, seat.number, request, priority, delay_ns, ttr_ns, body_bytes)
        link.own_piece(body)


def send_piece(state: FrontendState, session: Session) -> None:
    """The next piece of a large body; with the last one the put itself."""
    seat = session.use_seat
    assert session.wait == PIECES and seat is not None
    if seat.link.is_full():
        return
    body = session.parser.body
    at = session.piece_at
    if len(body) - at > CHUNK_BYTES:
        piece = body[at : at + CHUNK_BYTES]
        write_word_body(seat.link.writer, frames.PUT_PART, NO_FLAGS, seat.number, 0, len(body), piece)
        session.piece_at = at + CHUNK_BYTES
        return
    _send_put(state, session, seat, body[at:])
    session.piece_at = 0
    session.op = 0
    state.free(session)


def _by_id(state: FrontendState, session: Session, op: i64) -> bool:
    parser = session.parser
    job_id = parser.id
    slot = state.topology.slot_of_id(job_id)
    if slot < 0:
        if session.flight != 0:
            return False
        state.answer(session, replies.NOT_FOUND)
        return True
    seat = session.seat_at(state.links[slot])
    if not reach(state, session, seat):
        return False
    writer = seat.link.writer
    request = state.requested(session, seat, job_id)
    if op == ops.OP_DELETE:
        write_word(writer, frames.DELETE, NO_FLAGS, seat.number, request, job_id)
    elif op == ops.OP_RELEASE:
        delay_ns = parser.delay_s * NS_PER_S
        write_words3(writer, frames.RELEASE, seat.number, request, job_id, parser.priority, delay_ns)
    elif op == ops.OP_BURY:
        write_words2(writer, frames.BURY, seat.number, request, job_id, parser.priority)
    elif op == ops.OP_TOUCH:
        write_word(writer, frames.TOUCH, NO_FLAGS, seat.number, request, job_id)
    elif op == ops.OP_KICK_JOB:
        write_word(writer, frames.KICK_JOB, NO_FLAGS, seat.number, request, job_id)
    else:
        opcode = frames.PEEK
        if op == ops.OP_RESERVE_JOB:
            opcode = frames.RESERVE_JOB
        elif op == ops.OP_STATS_JOB:
            opcode = frames.STATS_JOB
        write_word(writer, opcode, NO_FLAGS, seat.number, request, job_id)
        session.wait = WORD
        return False
    return True


def _in_used_tube(state: FrontendState, session: Session, op: i64) -> bool:
    seat = session.use_seat
    assert seat is not None
    if not reach(state, session, seat):
        return False
    writer = seat.link.writer
    request = state.requested(session, seat, 0)
    if op == ops.OP_KICK:
        write_word(writer, frames.KICK, NO_FLAGS, seat.number, request, session.parser.bound)
        return True
    opcode = frames.PEEK_READY
    if op == ops.OP_PEEK_DELAYED:
        opcode = frames.PEEK_DELAYED
    elif op == ops.OP_PEEK_BURIED:
        opcode = frames.PEEK_BURIED
    write_plain(writer, opcode, NO_FLAGS, seat.number, request)
    session.wait = WORD
    return False


def _by_name(state: FrontendState, session: Session, op: i64) -> bool:
    """pause-tube and stats-tube: of any tube, which they do not create."""
    parser = session.parser
    seat = session.seat_at(state.links[state.topology.slot_of_name(parser.name)])
    if not reach(state, session, seat):
        return False
    writer = seat.link.writer
    request = state.requested(session, seat, 0)
    if op == ops.OP_PAUSE_TUBE:
        delay_ns = parser.delay_s * NS_PER_S
        write_word_body(writer, frames.PAUSE_TUBE, NO_FLAGS, seat.number, request, delay_ns, parser.name)
        return True
    write_body(writer, frames.STATS_TUBE, NO_FLAGS, seat.number, request, parser.name)
    session.wait = WORD
    return False


def _list_tubes(state: FrontendState, session: Session) -> bool:
    for link in state.links:
        if link.word == SLOT_UNAVAILABLE and not link.is_up():
            session.gathered = None
            state.answer(session, replies.INTERNAL_ERROR)
            return True
    seat = session.seat_at(state.links[0 if session.gathered is None else session.gather_slot])
    if reach(state, session, seat):
        stats.ask_list(state, session, seat)
    return False


# ---------------------------------------------------------------- references


def _use(state: FrontendState, session: Session) -> bool:
    name = session.parser.name
    if name == session.use_name:
        state.answer(session, replies.using(name))
        return True
    seat = session.seat_at(state.links[state.topology.slot_of_name(name)])
    if reach(state, session, seat):
        request = state.requested(session, seat, 0)
        write_body(seat.link.writer, frames.USE, NO_FLAGS, seat.number, request, name)
        session.wait = WORD
        session.use_stage = USE_NEW
    return False


def _watch(state: FrontendState, session: Session) -> bool:
    name = session.parser.name
    if name in session.watched:
        state.answer(session, replies.watching(len(session.watched)))
        return True
    seat = session.seat_at(state.links[state.topology.slot_of_name(name)])
    if reach(state, session, seat):
        request = state.requested(session, seat, 0)
        write_body(seat.link.writer, frames.WATCH, NO_FLAGS, seat.number, request, name)
        session.wait = WORD
    return False


def _ignore(state: FrontendState, session: Session) -> bool:
    name = session.parser.name
    if name not in session.watched:
        state.answer(session, replies.watching(len(session.watched)))
        return True
    if len(session.watched) == 1:
        state.answer(session, replies.NOT_IGNORED)
        return True
    seat = session.watched[name]
    if seat.number == 0:
        # The slot is down, or has not been told again yet: nothing is to be given up there.
        session.ignore(name)
        state.answer(session, replies.watching(len(session.watched)))
        return True
    request = state.requested(session, seat, 0)
    write_body(seat.link.writer, frames.IGNORE, NO_FLAGS, seat.number, request, name)
    session.wait = WORD
    return False


def word_came(state: FrontendState, session: Session, seat: Seat, refused: bool) -> None:
    """The answer to Session.op is in, and has gone to the client if it had text (refused: of a reference)."""
    assert session.wait == WORD and session.flight == 0
    op = session.op
    name = session.parser.name
    if refused:
        pass
    elif op == ops.OP_USE:
        if not _used(state, session, seat, name):
            return
    elif op == ops.OP_WATCH:
        session.watch(name, seat)
        state.answer(session, replies.watching(len(session.watched)))
    elif op == ops.OP_IGNORE:
        session.ignore(name)
        state.answer(session, replies.watching(len(session.watched)))
    elif op == ops.OP_STATS:
        # Not yet: sessions whose ends came with this word, or just before it, are still to be closed.
        state.stats_words.append(session)
        return
    session.op = 0
    state.free(session)


def _used(state: FrontendState, session: Session, seat: Seat, name: bytes) -> bool:
    """One step of `use`. False: the owner of the tube used before is still to confirm that it is given up."""
    if session.use_stage == USE_NEW:
        old = session.use_seat
        assert old is not None
        session.use(name, seat)
        if old is not seat and old.number != 0:
            session.use_stage = UNUSE_OLD
            request = state.requested(session, old, 0)
            write_plain(old.link.writer, frames.UNUSE, NO_FLAGS, old.number, request)
            return False
    session.use_stage = USE_NEW
    state.answer(session, replies.using(name))
    return True
