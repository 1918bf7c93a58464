"""The commands that concern all slots: `stats`, and `list-tubes`, which asks one owner after the other.

`stats` never waits for a slot that is down: the owner of the lowest available slot sees to it that closed connections
have been noticed, then all figures come from the counter pages. `list-tubes` needs every slot, like any command that
needs one. What has been gathered stays in the session until the last slot has answered.
"""

from librt.strings import read_i64_le
from mypy_extensions import i64

from beanfield.constants import DEFAULT_TUBE, TUBE_NAME_BYTES_MAX
from beanfield.errors import LinkFault
from beanfield.frontend.session import WORD, Seat, Session
from beanfield.frontend.state import NO_FLAGS, FrontendState
from beanfield.ipc.codec import write_plain
from beanfield.ipc.frames import ERROR_FRAME, LIST_TUBES, STATS, WORD_BYTES
from beanfield.pages import FrontendCounters, Snapshot
from beanfield.proto import ops
from beanfield.proto.replies import digits
from beanfield.proto.yaml import ServerStats, stats, tube_list


def begin_stats(state: FrontendState, session: Session) -> bool:
    """True: answered. False: the word of an owner is awaited, or the session cannot go on yet."""
    if session.flight != 0:
        return False
    for link in state.links:
        if link.is_up():
            seat = session.seat_at(link)
            if not state.may_send(session, seat):
                return False
            request = state.requested(session, seat, 0)
            write_plain(link.writer, STATS, NO_FLAGS, seat.number, request)
            session.wait = WORD
            return False
    answer_stats(state, session)
    return True


def answer_stats(state: FrontendState, session: Session) -> None:
    state.answer(session, stats_text(state, state.pages.snapshot(state.now_ns)))


def stats_text(state: FrontendState, snapshot: Snapshot) -> bytes:
    config = state.config
    frontend = snapshot.frontend
    owner = snapshot.owner
    shown = ServerStats()
    shown.current_jobs_urgent = owner.jobs_urgent
    shown.current_jobs_ready = owner.jobs_ready
    shown.current_jobs_reserved = owner.jobs_reserved
    shown.current_jobs_delayed = owner.jobs_delayed
    shown.current_jobs_buried = owner.jobs_buried
    shown.commands = commands_by_op(frontend)
    shown.job_timeouts = owner.job_timeouts
    shown.total_jobs = owner.total_jobs
    shown.job_bytes_max = config.job_bytes_max
    shown.current_tubes = tubes_count(state, snapshot)
    shown.current_connections = frontend.connections
    shown.current_producers = frontend.producers
    shown.current_workers = frontend.workers
    shown.current_waiting = frontend.waiting
    shown.total_connections = frontend.total_connections
    shown.pid = snapshot.pid
    shown.version = config.version
    shown.rusage_utime_us = snapshot.utime_us
    shown.rusage_stime_us = snapshot.stime_us
    shown.uptime_s = snapshot.uptime_s
    shown.binlog_oldest_index = owner.binlog_oldest_index
    shown.binlog_current_index = owner.binlog_current_index
    shown.binlog_records_migrated = owner.binlog_records_migrated
    shown.binlog_records_written = owner.binlog_records_written
    shown.binlog_max_bytes = config.segment_bytes
    shown.draining = snapshot.draining
    shown.id = config.server_id
    shown.hostname = config.hostname
    shown.os = config.os
    shown.platform = config.platform
    extra = [
        (b"slots", digits(snapshot.slots)),
        (b"slots-available", digits(snapshot.slots_available)),
        (b"frontends", digits(snapshot.frontends)),
        (b"frontends-available", digits(snapshot.frontends_live)),
    ]
    return stats(shown, extra)


def tubes_count(state: FrontendState, snapshot: Snapshot) -> i64:
    """`default` exists even while its slot is down."""
    count = snapshot.owner.tubes
    if not snapshot.slot_live[state.topology.slot_of_name(DEFAULT_TUBE)]:
        count += 1
    return count


def commands_by_op(counters: FrontendCounters) -> list[int]:
    counts = [0] * ops.OPS_COUNT
    counts[ops.OP_PUT] = counters.cmd_put
    counts[ops.OP_PEEK] = counters.cmd_peek
    counts[ops.OP_PEEK_READY] = counters.cmd_peek_ready
    counts[ops.OP_PEEK_DELAYED] = counters.cmd_peek_delayed
    counts[ops.OP_PEEK_BURIED] = counters.cmd_peek_buried
    counts[ops.OP_RESERVE] = counters.cmd_reserve
    counts[ops.OP_RESERVE_TIMEOUT] = counters.cmd_reserve_with_timeout
    counts[ops.OP_DELETE] = counters.cmd_delete
    counts[ops.OP_RELEASE] = counters.cmd_release
    counts[ops.OP_USE] = counters.cmd_use
    counts[ops.OP_WATCH] = counters.cmd_watch
    counts[ops.OP_IGNORE] = counters.cmd_ignore
    counts[ops.OP_BURY] = counters.cmd_bury
    counts[ops.OP_KICK] = counters.cmd_kick
    counts[ops.OP_TOUCH] = counters.cmd_touch
    counts[ops.OP_STATS] = counters.cmd_stats
    counts[ops.OP_STATS_JOB] = counters.cmd_stats_job
    counts[ops.OP_STATS_TUBE] = counters.cmd_stats_tube
    counts[ops.OP_LIST_TUBES] = counters.cmd_list_tubes
    counts[ops.OP_LIST_TUBE_USED] = counters.cmd_list_tube_used
    counts[ops.OP_LIST_TUBES_WATCHED] = counters.cmd_list_tubes_watched
    counts[ops.OP_PAUSE_TUBE] = counters.cmd_pause_tube
    return counts


# ---------------------------------------------------------------- list-tubes


def ask_list(state: FrontendState, session: Session, seat: Seat) -> None:
    """Asks the slot the gathering has come to; its link is up and has room."""
    if session.gathered is None:
        session.gathered = []
        session.gather_slot = 0
    assert seat.link.slot == session.gather_slot
    session.gather_text = []
    session.large_bytes = 0
    request = state.requested(session, seat, 0)
    write_plain(seat.link.writer, LIST_TUBES, NO_FLAGS, seat.number, request)
    session.wait = WORD


def add_piece(session: Session, piece: bytes) -> bool:
    """True when the list of the current slot is complete."""
    if len(piece) > session.large_bytes:
        raise LinkFault(ERROR_FRAME, "a piece goes beyond its list")
    session.gather_text.append(piece)
    session.large_bytes -= len(piece)
    return session.large_bytes == 0


def add_list(session: Session) -> None:
    """The pieces of the current slot's list become entries; the gathering moves to the next slot."""
    gathered = session.gathered
    assert gathered is not None
    text = b"".join(session.gather_text)
    session.gather_text = []
    entries: list[tuple[int, bytes]] = []
    at: i64 = 0
    end: i64 = len(text)
    while at < end:
        if end - at < 2 * WORD_BYTES:
            raise LinkFault(ERROR_FRAME, "a list of tubes ends inside an entry")
        created_ns = read_i64_le(text, at)
        name_bytes = read_i64_le(text, at + WORD_BYTES)
        at += 2 * WORD_BYTES
        if name_bytes < 1 or name_bytes > TUBE_NAME_BYTES_MAX or end - at < name_bytes:
            raise LinkFault(ERROR_FRAME, "a list of tubes holds a name that cannot be")
        entries.append((created_ns, text[at : at + name_bytes]))
        at += name_bytes
    # Only a whole list counts: after a fault the slot is asked again.
    gathered.extend(entries)
    session.gather_slot += 1


def answer_list(state: FrontendState, session: Session) -> None:
    """`default` first, then by creation over all slots."""
    gathered = session.gathered
    assert gathered is not None
    session.gathered = None
    gathered.sort()
    names = [DEFAULT_TUBE]
    for entry in gathered:
        if entry[1] != DEFAULT_TUBE:
            names.append(entry[1])
    state.answer(session, tube_list(names))
