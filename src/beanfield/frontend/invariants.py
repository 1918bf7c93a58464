"""A full recount of what a frontend holds, for tests and the simulator: call it between turns.

Every rule that binds two places of the state stands here once. Costs time in proportion to all sessions.
"""

from mypy_extensions import i64

from beanfield.constants import CHUNK_BYTES, NEVER_NS, RUN_RESERVES_MAX, STREAM_COMMANDS_MAX
from beanfield.frontend.deadlines import check_deadlines
from beanfield.frontend.session import (
    CLOSED,
    FREE,
    LARGE,
    MISSING,
    NO_WORD,
    PARKED,
    PIECES,
    RESERVE,
    RUN,
    TAKING,
    WORD,
    Session,
)
from beanfield.frontend.slots import LINK_RESTORING, LINK_UP, SlotLink
from beanfield.frontend.state import FrontendState
from beanfield.frontend.timers import NOWHERE, check_heap
from beanfield.proto.ops import OP_PUT, OP_STATS


def check_frontend(state: FrontendState) -> None:
    """Raises AssertionError where the state contradicts itself."""
    connections: i64 = 0
    producers: i64 = 0
    workers: i64 = 0
    waiting: i64 = 0
    body_bytes: i64 = 0
    scheduled: i64 = 0
    for handle in range(len(state.clients)):
        session = state.clients[handle]
        if session is None:
            continue
        assert session.handle == handle
        _check_session(state, session)
        connections += 1
        producers += 1 if session.producer else 0
        workers += 1 if session.worker else 0
        waiting += 1 if session.counted_waiting else 0
        body_bytes += session.body_bytes
        scheduled += 1 if session.place != NOWHERE else 0
    counters = state.counters
    assert counters.connections == connections
    assert counters.producers == producers
    assert counters.workers == workers
    assert counters.waiting == waiting
    assert state.body_bytes == body_bytes
    check_heap(state.timers)
    assert state.timers.size == scheduled
    assert len(state.runnable) == 0
    for link in state.links:
        _check_link(state, link)


def _check_session(state: FrontendState, session: Session) -> None:
    assert session.wait != CLOSED
    assert not session.runnable
    assert session.use_seat is not None and session.use_seat.uses
    assert session.use_seat.link is state.links[state.topology.slot_of_name(session.use_name)]
    _check_watch_list(state, session)
    check_deadlines(session)
    if session.deadlines is not None:
        check_heap(session.deadlines)
    assert 0 <= session.flight <= STREAM_COMMANDS_MAX
    assert session.flight_ids.count <= session.flight
    assert (session.flight == 0) == (session.flight_seat is None)
    assert session.ahead.count <= RUN_RESERVES_MAX
    assert session.counted_waiting <= (session.wait == RESERVE)
    assert (session.place == NOWHERE) or session.wait == RESERVE or session.wait == PARKED
    _check_wait(session)


def _check_watch_list(state: FrontendState, session: Session) -> None:
    assert len(session.watched) > 0
    uses = 0
    watched = 0
    for seat in session.seats:
        assert seat.session is session
        assert seat.link.members[session.serial] is seat
        uses += 1 if seat.uses else 0
        watched += seat.watch_count
        assert (seat.watch_count > 0) == (seat in session.watch_seats)
        if seat.number != 0:
            assert seat.link.table[seat.number] is seat
    assert uses == 1
    assert watched == len(session.watched)
    for name in session.watched:
        assert session.watched[name].link is state.links[state.topology.slot_of_name(name)]


def _check_wait(session: Session) -> None:
    wait = session.wait
    taking = 0
    for seat in session.seats:
        taking += 1 if seat.word == TAKING else 0
        assert seat.word == NO_WORD or wait == RESERVE
        # A word is awaited or known only where it was asked for, or where it could not be.
        assert seat.word == NO_WORD or seat.word == MISSING or seat.link.state == LINK_UP
    assert taking <= 1
    if wait == WORD:
        assert session.op != 0 and (session.flight > 0 or session.op == OP_STATS)
    elif wait == RESERVE:
        assert session.ahead.count != 0 and session.flight == 0
        assert taking == 1 or session.place != NOWHERE or session.timeout_ns == NEVER_NS or session.over_ns != NEVER_NS
    elif wait == RUN:
        assert session.ahead.count >= 2 and session.flight == 0
    elif wait == PARKED:
        assert session.op != 0 and session.flight == 0
        seat_waited = session.parked_seat
        assert seat_waited is not None and seat_waited.link.state != LINK_UP
        assert session.place != NOWHERE
    elif wait == PIECES:
        assert session.op == OP_PUT and len(session.parser.body) > CHUNK_BYTES
    elif wait == LARGE:
        assert session.large_bytes > 0 and session.large_seat is not None
    else:
        assert wait == FREE


def _check_link(state: FrontendState, link: SlotLink) -> None:
    restoring: i64 = 0
    attached: i64 = 0
    for serial in link.members:
        seat = link.members[serial]
        assert seat.session.serial == serial
        assert seat.link is link
        restoring += seat.restoring_count
        attached += 1 if seat.number != 0 else 0
        if seat.number != 0:
            assert 1 <= seat.number < link.next_number
        elif link.state == LINK_UP:
            assert not seat.uses and seat.watch_count == 0 and seat.reserved_count == 0
    assert restoring == link.restoring_count
    for recent in link.recent:
        assert recent is None or link.table[recent.number] is recent
    assert attached == len(link.table)
    if link.state < LINK_RESTORING:
        assert attached == 0 and restoring == 0
    for session in link.waiting_room.values():
        assert session.wait != CLOSED and session.held_back
    assert link.held or len(link.waiting_room) == 0
    if link.handle >= 0:
        assert state.link_of_handle[link.handle] is link
