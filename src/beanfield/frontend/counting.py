"""The cmd-* counters and who is a producer: the contract's counter rule, and nothing else.

A command counts once its syntax is accepted, whatever comes of it. A put counts with its line, before its body is
there; the parser says so with put_open, and for faults with `counted`.
"""

from mypy_extensions import i64

from beanfield.frontend.session import Session
from beanfield.frontend.state import FrontendState
from beanfield.proto import ops


def count_open_put(state: FrontendState, session: Session) -> None:
    """A put line has been accepted and its body is on its way."""
    parser = session.parser
    if parser.put_open and not session.put_counted:
        session.put_counted = True
        if state.tracing:
            _trace(state, session, ops.OP_PUT)
        state.counters.cmd_put += 1
        if parser.producer_open:
            state.mark_producer(session)


def count(state: FrontendState, session: Session, op: i64) -> None:
    """Once for each operation that comes out of the parser."""
    counters = state.counters
    if state.tracing and not session.put_counted:
        _trace(state, session, session.parser.counted if op >= ops.OP_BAD_FORMAT else op)
    if op == ops.OP_PUT:
        _count_put(state, session)
        state.mark_producer(session)
    elif op == ops.OP_RESERVE or op == ops.OP_RESERVE_TIMEOUT:
        pass  # parsed ahead of its turn: count_reserve
    elif op == ops.OP_DELETE:
        counters.cmd_delete += 1
    elif op == ops.OP_RELEASE:
        counters.cmd_release += 1
    elif op == ops.OP_BURY:
        counters.cmd_bury += 1
    elif op == ops.OP_TOUCH:
        counters.cmd_touch += 1
    elif op == ops.OP_USE:
        counters.cmd_use += 1
    elif op == ops.OP_WATCH:
        counters.cmd_watch += 1
    elif op == ops.OP_IGNORE:
        counters.cmd_ignore += 1
    elif op == ops.OP_KICK:
        counters.cmd_kick += 1
    elif op >= ops.OP_BAD_FORMAT:
        _count_fault(state, session, op)
    else:
        _count_inspection(state, op)


def count_reserve(state: FrontendState, timeout_s: i64) -> None:
    """One of those parsed ahead has become the current command. timeout_s below 0: it may wait for ever."""
    if timeout_s < 0:
        state.counters.cmd_reserve += 1
    else:
        state.counters.cmd_reserve_with_timeout += 1


def _trace(state: FrontendState, session: Session, op: i64) -> None:
    state.trace.append(session.handle)
    state.trace.append(op)


def _count_inspection(state: FrontendState, op: i64) -> None:
    """Commands that change no job, and pause-tube. kick-job, reserve-job and quit have no counter."""
    counters = state.counters
    if op == ops.OP_PEEK:
        counters.cmd_peek += 1
    elif op == ops.OP_PEEK_READY:
        counters.cmd_peek_ready += 1
    elif op == ops.OP_PEEK_DELAYED:
        counters.cmd_peek_delayed += 1
    elif op == ops.OP_PEEK_BURIED:
        counters.cmd_peek_buried += 1
    elif op == ops.OP_STATS:
        counters.cmd_stats += 1
    elif op == ops.OP_STATS_JOB:
        counters.cmd_stats_job += 1
    elif op == ops.OP_STATS_TUBE:
        counters.cmd_stats_tube += 1
    elif op == ops.OP_LIST_TUBES:
        counters.cmd_list_tubes += 1
    elif op == ops.OP_LIST_TUBE_USED:
        counters.cmd_list_tube_used += 1
    elif op == ops.OP_LIST_TUBES_WATCHED:
        counters.cmd_list_tubes_watched += 1
    elif op == ops.OP_PAUSE_TUBE:
        counters.cmd_pause_tube += 1


def _count_fault(state: FrontendState, session: Session, op: i64) -> None:
    counted = session.parser.counted
    if counted == ops.OP_PUT:
        _count_put(state, session)
        if op == ops.OP_EXPECTED_CRLF or op == ops.OP_BODY_REFUSED:
            state.mark_producer(session)
    elif counted == ops.OP_PAUSE_TUBE:
        state.counters.cmd_pause_tube += 1


def _count_put(state: FrontendState, session: Session) -> None:
    if session.put_counted:
        session.put_counted = False
    else:
        state.counters.cmd_put += 1
