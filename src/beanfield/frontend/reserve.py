"""The reserve of one session, over one owner or several: the frontend's side of docs/ipc.md, "A reserve over several".

One owner: RESERVE (it grants), several: ASK (they offer and hold), the smallest offer is TAKEn. Rules that follow from
the exhaustive model (tests/model) and are easy to break:
- LAST goes only when every owner has answered ASK, so there is an instant at which none had a job. While a word is
  missing (its slot is down or silent) the others keep their waiters, and the first offer is taken.
- CANCELLED with AGAIN is no ground for TIMED_OUT: with all words in, the owners are asked anew. So are they when last
  words stay away, and an owner that was silent all the while is not waited for until it speaks.
- One TAKE at a time. While it is under way nothing ends the request: a grant in flight wins.
Deadlines of reservations are deadlines.py's; this file only asks whether the session is in the margin.
"""

from typing import Final

from mypy_extensions import i64

from beanfield.constants import ASK_NS, LAST_WORD_NS, NEVER_NS, NS_PER_S, RUN_RESERVES_MAX
from beanfield.errors import LinkFault
from beanfield.frontend import deadlines
from beanfield.frontend.counting import count_reserve
from beanfield.frontend.references import leave_behind
from beanfield.frontend.session import (
    ASKED,
    CANCELLED,
    CHOOSING,
    EMPTY,
    FREE,
    LAST,
    MISSING,
    NO_WORD,
    OFFERED,
    RESERVE,
    RUN,
    TAKING,
    WAITING,
    Seat,
    Session,
)
from beanfield.frontend.slots import SLOT_UNAVAILABLE
from beanfield.frontend.state import NO_FLAGS, FrontendState
from beanfield.ipc import frames
from beanfield.ipc.codec import write_plain, write_word, write_words3
from beanfield.ipc.frames import ERROR_FRAME, FLAG_NOWAIT
from beanfield.proto.replies import DEADLINE_SOON, INTERNAL_ERROR, TIMED_OUT

NOTHING: Final = b""  # the reply has gone to the client already


# ---------------------------------------------------------------- beginning


def begin(state: FrontendState, session: Session) -> bool:
    """The first of `ahead` becomes the current command. False: it cannot yet; the session is woken when it can."""
    assert session.wait == FREE and session.ahead.count != 0
    if session.flight != 0:
        return False
    now_ns = state.now_ns
    seats = session.watch_seats
    seat = seats[0]
    session.several = len(seats) > 1 or deadlines.held_beside(session, seat)
    if len(seats) == 1 and seat.link.is_up():
        if not state.may_send(session, seat):
            return False
        if session.ahead.count >= 2 and session.run_allowed and not deadlines.in_margin(session, now_ns):
            state.mark_worker(session)
            _begin_run(session, seat)
            return True
    state.mark_worker(session)
    timeout_s: i64 = session.ahead.at(0)
    count_reserve(state, timeout_s)
    session.wait = RESERVE
    session.began_ns = now_ns
    session.timeout_ns = NEVER_NS if timeout_s < 0 else now_ns + timeout_s * NS_PER_S
    session.over_ns = NEVER_NS
    session.down_ns = NEVER_NS
    _ask(state, session)
    return True


def _begin_run(session: Session, seat: Seat) -> None:
    """One frame for all reserves parsed ahead. Each of them has a request number; it grants what is ready."""
    count: i64 = session.ahead.count
    assert count <= RUN_RESERVES_MAX
    seat.request = seat.next_request
    seat.next_request += count
    session.run_allowed = False
    session.wait = RUN
    write_word(seat.link.writer, frames.RESERVE_RUN, NO_FLAGS, seat.number, seat.request, count)


def _ask(state: FrontendState, session: Session) -> None:
    """A new round: every owner that can be reached is asked."""
    now_ns = state.now_ns
    session.phase = CHOOSING
    session.again = False
    session.asked_ns = now_ns
    over = _time_is_over(state, session)
    for seat in session.watch_seats:
        if seat.link.is_up():
            _ask_one(state, session, seat, over)
        else:
            seat.word = MISSING
    if not session.several and over:
        session.phase = LAST  # FLAG_NOWAIT has asked for the last word
        session.last_ns = now_ns
    decide(state, session)


def _ask_one(state: FrontendState, session: Session, seat: Seat, over: bool) -> None:
    if seat.number == 0:
        state.attach(seat)
    seat.request = seat.next_request
    seat.next_request += 1
    seat.word = ASKED
    opcode = frames.ASK if session.several else frames.RESERVE
    write_plain(seat.link.writer, opcode, FLAG_NOWAIT if over else NO_FLAGS, seat.number, seat.request)


def _ask_anew(state: FrontendState, session: Session) -> None:
    _drop_all(session)
    _ask(state, session)


def _drop_all(session: Session) -> None:
    """Holds and waiters of the request end. Nothing is dropped where a grant may be in flight."""
    for seat in session.watch_seats:
        word = seat.word
        if session.several and (word == ASKED or word == EMPTY or word == OFFERED):
            write_plain(seat.link.writer, frames.DROP, NO_FLAGS, seat.number, seat.request)
        seat.word = NO_WORD


# ---------------------------------------------------------------- deciding


def decide(state: FrontendState, session: Session) -> None:
    """What the words at hand and the time ask for: TAKE, wait, LAST, or the end. Called after every event."""
    assert session.wait == RESERVE
    asked: i64 = 0
    empty: i64 = 0
    missing: i64 = 0
    waited_for = False
    best: Seat | None = None
    choice_ns = session.asked_ns + ASK_NS
    for seat in session.watch_seats:
        word = seat.word
        if word == TAKING:
            state.timers.cancel(session)
            return
        if word == OFFERED:
            if best is None or _is_before(seat, best):
                best = seat
        elif word == ASKED:
            asked += 1
            if state.now_ns < choice_ns and not seat.link.silent:
                waited_for = True
        elif word == EMPTY:
            empty += 1
        elif word == MISSING:
            missing += 1
    over = _time_is_over(state, session)
    if missing == len(session.watch_seats):
        if _all_are_down(state, session, over):
            return
    else:
        session.down_ns = NEVER_NS
        if not session.several:
            _decide_one(state, session, over)
        elif session.phase == CHOOSING and waited_for:
            pass
        elif best is not None:
            _take(state, session, best)
            return
        elif _decide_words(state, session, over, asked + missing, missing, empty):
            return
    _plan(state, session)


def _decide_one(state: FrontendState, session: Session, over: bool) -> None:
    seat = session.watch_seats[0]
    assert seat.word == ASKED
    if over and session.phase != LAST:
        session.phase = LAST
        session.last_ns = state.now_ns
        write_plain(seat.link.writer, frames.LAST, NO_FLAGS, seat.number, seat.request)


def _decide_words(
    state: FrontendState, session: Session, over: bool, open_count: i64, missing_count: i64, empty_count: i64
) -> bool:
    """Several owners, and no offer to take. True: the request ended.

    open_count: words that have not come, missing_count: those among them that cannot, their slots being down.
    """
    now_ns = state.now_ns
    if session.phase == LAST:
        if open_count + empty_count == 0:
            return _conclude(state, session)
        return False
    session.phase = WAITING
    if not over:
        return False
    if open_count != 0:
        if deadlines.in_margin(session, now_ns):
            if now_ns >= session.over_ns + ASK_NS:
                _finish(state, session, DEADLINE_SOON)
                return True
            return False
        wait_ns = state.config.slot_wait_ns if missing_count != 0 else state.config.word_wait_ns
        if _one_cannot_start(session) or now_ns >= session.over_ns + wait_ns:
            _finish(state, session, INTERNAL_ERROR)
            return True
        return False
    session.phase = LAST
    session.last_ns = now_ns
    for seat in session.watch_seats:
        if seat.word == CANCELLED:
            continue
        assert seat.word == EMPTY
        write_plain(seat.link.writer, frames.LAST, NO_FLAGS, seat.number, seat.request)
    return False


def _conclude(state: FrontendState, session: Session) -> bool:
    """Every owner has said its last word. True: the request ended."""
    now_ns = state.now_ns
    in_margin = deadlines.in_margin(session, now_ns)
    if in_margin and (not session.again or _over_for(session, ASK_NS, now_ns)):
        _finish(state, session, DEADLINE_SOON)
        return True
    if not in_margin and not session.again and (session.timeout_ns <= now_ns or session.ended):
        _finish(state, session, TIMED_OUT)
        return True
    # AGAIN, or the margin ended with its reservation while the words were on their way: then there is time again.
    _ask_anew(state, session)
    return True


def _all_are_down(state: FrontendState, session: Session, over: bool) -> bool:
    """No owner can be asked. True: the request ended."""
    now_ns = state.now_ns
    if session.down_ns == NEVER_NS:
        session.down_ns = now_ns
    session.phase = CHOOSING
    if over and deadlines.in_margin(session, now_ns):
        if now_ns >= session.over_ns + ASK_NS:
            _finish(state, session, DEADLINE_SOON)
            return True
        return False
    all_unavailable = True
    for seat in session.watch_seats:
        if seat.link.word != SLOT_UNAVAILABLE:
            all_unavailable = False
    wait_ns = state.config.slot_wait_ns
    late = over and (now_ns >= session.over_ns + wait_ns or _one_cannot_start(session))
    if all_unavailable or late or now_ns >= session.down_ns + wait_ns:
        _finish(state, session, INTERNAL_ERROR)
        return True
    return False


def _one_cannot_start(session: Session) -> bool:
    for seat in session.watch_seats:
        if seat.word == MISSING and seat.link.word == SLOT_UNAVAILABLE:
            return True
    return False


def _is_before(seat: Seat, other: Seat) -> bool:
    if seat.offer_priority != other.offer_priority:
        return seat.offer_priority < other.offer_priority
    if seat.offer_created_ns != other.offer_created_ns:
        return seat.offer_created_ns < other.offer_created_ns
    return seat.offer_id < other.offer_id


def _take(state: FrontendState, session: Session, seat: Seat) -> None:
    assert session.several and seat.word == OFFERED
    seat.word = TAKING
    state.timers.cancel(session)
    write_words3(
        seat.link.writer, frames.TAKE, seat.number, seat.request,
        seat.offer_priority, seat.offer_created_ns, seat.offer_id,
    )  # fmt: skip


def _time_is_over(state: FrontendState, session: Session) -> bool:
    """Whether the request may not wait (any longer). Keeps `over_ns` and the count of waiting sessions right."""
    now_ns = state.now_ns
    if session.timeout_ns <= now_ns or session.ended or deadlines.in_margin(session, now_ns):
        if session.over_ns == NEVER_NS:
            session.over_ns = now_ns
        _count_waiting(state, session, False)
        return True
    session.over_ns = NEVER_NS
    _count_waiting(state, session, True)
    return False


def _count_waiting(state: FrontendState, session: Session, waiting: bool) -> None:
    if session.counted_waiting != waiting:
        session.counted_waiting = waiting
        state.counters.waiting += 1 if waiting else -1


def _finish(state: FrontendState, session: Session, text: bytes) -> None:
    """The current reserve has its answer."""
    assert session.wait == RESERVE
    _drop_all(session)
    _count_waiting(state, session, False)
    session.ahead.drop(1)
    session.phase = 0
    session.received_ns = state.now_ns
    if len(text) != 0:
        state.answer(session, text)
    state.free(session)


# ---------------------------------------------------------------- time


def _plan(state: FrontendState, session: Session) -> None:
    """When to look again. Times that have passed have been acted upon, or wait for a word."""
    now_ns = state.now_ns
    due_ns: i64 = NEVER_NS
    if session.over_ns == NEVER_NS:
        due_ns = session.timeout_ns
        if len(session.reservations) != 0:
            due_ns = min(due_ns, deadlines.margin_ns(session, now_ns))
    else:
        due_ns = _sooner(due_ns, session.over_ns + ASK_NS, now_ns)
        due_ns = _sooner(due_ns, session.over_ns + state.config.slot_wait_ns, now_ns)
        due_ns = _sooner(due_ns, session.over_ns + state.config.word_wait_ns, now_ns)
    if session.several:
        if session.phase == CHOOSING:
            due_ns = _sooner(due_ns, session.asked_ns + ASK_NS, now_ns)
        elif session.phase == LAST:
            due_ns = _sooner(due_ns, session.last_ns + LAST_WORD_NS, now_ns)
    if session.down_ns != NEVER_NS:
        due_ns = _sooner(due_ns, session.down_ns + state.config.slot_wait_ns, now_ns)
    if due_ns == NEVER_NS:
        state.timers.cancel(session)
    else:
        state.timers.schedule(session, due_ns)


def _sooner(due_ns: i64, other_ns: i64, now_ns: i64) -> i64:
    return other_ns if now_ns < other_ns < due_ns else due_ns


def timer(state: FrontendState, session: Session) -> None:
    """A time of _plan() has come."""
    now_ns = state.now_ns
    wait_ns = state.config.word_wait_ns
    if session.several and session.phase == LAST:
        if _over_for(session, ASK_NS, now_ns) and deadlines.in_margin(session, now_ns):
            _finish(state, session, DEADLINE_SOON)
            return
        if now_ns >= session.last_ns + LAST_WORD_NS:
            _note_silent(session, EMPTY, session.last_ns)
            if _over_for(session, wait_ns, now_ns):
                _finish(state, session, INTERNAL_ERROR)
            else:
                _ask_anew(state, session)
            return
    elif session.several and session.phase == CHOOSING and now_ns >= session.asked_ns + ASK_NS:
        _note_silent(session, ASKED, session.asked_ns)
    elif not session.several and session.phase == LAST and _over_for(session, wait_ns, now_ns):
        seat = session.watch_seats[0]
        # The word may still be a grant: it is left behind under the old number. A session that holds reservations
        # there would lose them, so it waits for the owner or the end of the link.
        if seat.word == ASKED and seat.reserved_count == 0 and not deadlines.in_margin(session, now_ns):
            leave_behind(state, seat)
            _finish(state, session, INTERNAL_ERROR)
            return
    decide(state, session)


def _over_for(session: Session, span_ns: i64, now_ns: i64) -> bool:
    return session.over_ns != NEVER_NS and now_ns >= session.over_ns + span_ns


def _note_silent(session: Session, word: i64, since_ns: i64) -> None:
    """Links that said nothing at all since then are not waited for again until they speak."""
    for seat in session.watch_seats:
        if seat.word == word and seat.link.heard_ns <= since_ns:
            seat.link.silent = True


# ---------------------------------------------------------------- words of the owners


def _is_current(seat: Seat, request: i64) -> bool:
    """Whether this word is for the request under way; else it crossed with the end of an earlier one."""
    if request >= seat.next_request:
        raise LinkFault(ERROR_FRAME, f"a word for request {request}, which was never made")
    return seat.session.wait == RESERVE and seat.request == request and seat.word != NO_WORD


def offered(state: FrontendState, seat: Seat, request: i64, priority: i64, created_ns: i64, job_id: i64) -> None:
    if not _is_current(seat, request):
        return
    if not seat.session.several:
        raise LinkFault(ERROR_FRAME, "OFFER to a request that was not ASK")
    seat.word = OFFERED
    seat.offer_priority = priority
    seat.offer_created_ns = created_ns
    seat.offer_id = job_id
    decide(state, seat.session)


def emptied(state: FrontendState, seat: Seat, request: i64) -> None:
    if not _is_current(seat, request):
        return
    session = seat.session
    if not session.several:
        raise LinkFault(ERROR_FRAME, "EMPTY to a request that was not ASK")
    seat.word = EMPTY
    decide(state, session)


def cancelled(state: FrontendState, seat: Seat, request: i64, again: bool) -> None:
    session = seat.session
    if session.wait == RUN and seat.request == request:
        state.free(session)
        return
    if not _is_current(seat, request):
        return
    seat.word = CANCELLED
    session.again = session.again or again
    if session.several:
        decide(state, session)
    else:
        _conclude(state, session)


def is_granted(seat: Seat, request: i64) -> bool:
    """Whether RESERVED for this request answers the reserve (or the run) under way."""
    session = seat.session
    if session.wait == RUN:
        return seat.request == request
    return _is_current(seat, request)


def granted(state: FrontendState, seat: Seat, count: i64) -> None:
    """The reservations have begun and the client has its replies."""
    session = seat.session
    if session.wait == RUN:
        if count > session.ahead.count:
            raise LinkFault(ERROR_FRAME, f"{count} grants for a run of {session.ahead.count}")
        session.run_allowed = count == session.ahead.count
        for at in range(count):
            count_reserve(state, session.ahead.at(at))
        session.ahead.drop(count)
        session.received_ns = state.now_ns
        state.free(session)
        return
    seat.word = NO_WORD
    session.run_allowed = True
    _finish(state, session, NOTHING)


# ---------------------------------------------------------------- slots that go and come back


def lost(state: FrontendState, session: Session, seat: Seat) -> None:
    """The link of this seat has ended; the session held nothing there."""
    if session.wait == RUN:
        if seat.watch_count != 0:
            state.free(session)  # nothing of it was answered: each goes on its own
        return
    if session.wait != RESERVE or seat.word == NO_WORD:
        return
    seat.word = MISSING
    decide(state, session)


def returned(state: FrontendState, session: Session, seat: Seat) -> None:
    """The references of this seat have been made again."""
    if session.wait != RESERVE or seat.word != MISSING:
        return
    if not session.several or session.phase == LAST:
        # An owner without a waiter beside last words already spoken: only a new round can end this.
        _ask_anew(state, session)
        return
    session.down_ns = NEVER_NS
    _ask_one(state, session, seat, _time_is_over(state, session))
    decide(state, session)


def look(state: FrontendState, session: Session) -> None:
    """Something the decision depends on has changed: the client's end, a deadline, what is said of a slot."""
    if session.wait == RESERVE:
        decide(state, session)
