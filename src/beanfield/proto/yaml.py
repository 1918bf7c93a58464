"""The data replies: stats, stats-job, stats-tube and the lists, as complete replies (`OK <bytes>` to the last CRLF).

Keys, their order and their quoting are beanstalkd 1.13's: names, version, hostname, os and platform stand in double
quotes, everything else does not, and nothing is escaped. stats-job and stats-tube have exactly 14 keys, which client
tests compare; new keys may only follow the 51 of stats. Times come in as whole seconds: this file knows no clock,
no jobs and no tubes.
"""

from typing import Final

from mypy_extensions import i64

from beanfield.proto.ops import (
    OP_BURY,
    OP_DELETE,
    OP_IGNORE,
    OP_KICK,
    OP_LIST_TUBE_USED,
    OP_LIST_TUBES,
    OP_LIST_TUBES_WATCHED,
    OP_PAUSE_TUBE,
    OP_PEEK,
    OP_PEEK_BURIED,
    OP_PEEK_DELAYED,
    OP_PEEK_READY,
    OP_PUT,
    OP_RELEASE,
    OP_RESERVE,
    OP_RESERVE_TIMEOUT,
    OP_STATS,
    OP_STATS_JOB,
    OP_STATS_TUBE,
    OP_TOUCH,
    OP_USE,
    OP_WATCH,
    OPS_COUNT,
    op_names,
)
from beanfield.proto.replies import digits, ok

# The order of the cmd-* counters in stats. reserve-job, kick-job and quit have none, on purpose.
COUNTED_OPS: Final = [
    OP_PUT, OP_PEEK, OP_PEEK_READY, OP_PEEK_DELAYED, OP_PEEK_BURIED, OP_RESERVE, OP_RESERVE_TIMEOUT, OP_DELETE,
    OP_RELEASE, OP_USE, OP_WATCH, OP_IGNORE, OP_BURY, OP_KICK, OP_TOUCH, OP_STATS, OP_STATS_JOB, OP_STATS_TUBE,
    OP_LIST_TUBES, OP_LIST_TUBE_USED, OP_LIST_TUBES_WATCHED, OP_PAUSE_TUBE,
]  # fmt: skip

_US_PER_S: Final = 1_000_000
# YAML takes digits, and digits around one `e`, for a number. A text that begins with one of these is neither.
_ID_FIRST_DIGITS: Final = b"abcdfabcdfabcdfa"


class ServerStats:
    """What `stats` shows, one attribute per key in the order of the reply; times in the unit their name ends in."""

    def __init__(self) -> None:
        self.current_jobs_urgent: i64 = 0
        self.current_jobs_ready: i64 = 0
        self.current_jobs_reserved: i64 = 0
        self.current_jobs_delayed: i64 = 0
        self.current_jobs_buried: i64 = 0
        self.commands: list[int] = [0] * OPS_COUNT  # indexed by OP_*; only COUNTED_OPS are shown
        self.job_timeouts: i64 = 0
        self.total_jobs: i64 = 0
        self.job_bytes_max: i64 = 0
        self.current_tubes: i64 = 0
        self.current_connections: i64 = 0
        self.current_producers: i64 = 0
        self.current_workers: i64 = 0
        self.current_waiting: i64 = 0
        self.total_connections: i64 = 0
        self.pid: i64 = 0
        self.version: bytes = b""
        self.rusage_utime_us: i64 = 0
        self.rusage_stime_us: i64 = 0
        self.uptime_s: i64 = 0
        self.binlog_oldest_index: i64 = 0
        self.binlog_current_index: i64 = 0
        self.binlog_records_migrated: i64 = 0
        self.binlog_records_written: i64 = 0
        self.binlog_max_bytes: i64 = 0
        self.draining: bool = False
        self.id: bytes = b""  # from stats_id()
        self.hostname: bytes = b""
        self.os: bytes = b""
        self.platform: bytes = b""


def stats(shown: ServerStats, extra: list[tuple[bytes, bytes]]) -> bytes:
    """The 51 keys of beanstalkd, then our own (key, value as text) in the order given."""
    assert len(shown.commands) == OPS_COUNT
    lines = [
        b"---\n",
        _number(b"current-jobs-urgent", shown.current_jobs_urgent),
        _number(b"current-jobs-ready", shown.current_jobs_ready),
        _number(b"current-jobs-reserved", shown.current_jobs_reserved),
        _number(b"current-jobs-delayed", shown.current_jobs_delayed),
        _number(b"current-jobs-buried", shown.current_jobs_buried),
    ]
    for op in COUNTED_OPS:
        lines.append(_number(b"cmd-" + op_names[op].encode("ascii"), shown.commands[op]))
    lines += [
        _number(b"job-timeouts", shown.job_timeouts),
        _number(b"total-jobs", shown.total_jobs),
        _number(b"max-job-size", shown.job_bytes_max),
        _number(b"current-tubes", shown.current_tubes),
        _number(b"current-connections", shown.current_connections),
        _number(b"current-producers", shown.current_producers),
        _number(b"current-workers", shown.current_workers),
        _number(b"current-waiting", shown.current_waiting),
        _number(b"total-connections", shown.total_connections),
        _number(b"pid", shown.pid),
        _quoted(b"version", shown.version),
        _plain(b"rusage-utime", _seconds(shown.rusage_utime_us)),
        _plain(b"rusage-stime", _seconds(shown.rusage_stime_us)),
        _number(b"uptime", shown.uptime_s),
        _number(b"binlog-oldest-index", shown.binlog_oldest_index),
        _number(b"binlog-current-index", shown.binlog_current_index),
        _number(b"binlog-records-migrated", shown.binlog_records_migrated),
        _number(b"binlog-records-written", shown.binlog_records_written),
        _number(b"binlog-max-size", shown.binlog_max_bytes),
        _plain(b"draining", b"true" if shown.draining else b"false"),
        _plain(b"id", shown.id),
        _quoted(b"hostname", shown.hostname),
        _quoted(b"os", shown.os),
        _quoted(b"platform", shown.platform),
    ]
    for key, value in extra:
        lines.append(_plain(key, value))
    return ok(b"".join(lines))


def stats_job(
    job_id: i64,
    tube: bytes,
    state: bytes,
    priority: i64,
    age_s: i64,
    delay_s: i64,
    ttr_s: i64,
    time_left_s: i64,
    file: i64,
    reserves: i64,
    timeouts: i64,
    releases: i64,
    buries: i64,
    kicks: i64,
) -> bytes:
    lines = [
        b"---\n",
        _number(b"id", job_id),
        _quoted(b"tube", tube),
        _plain(b"state", state),
        _number(b"pri", priority),
        _number(b"age", age_s),
        _number(b"delay", delay_s),
        _number(b"ttr", ttr_s),
        _number(b"time-left", time_left_s),
        _number(b"file", file),
        _number(b"reserves", reserves),
        _number(b"timeouts", timeouts),
        _number(b"releases", releases),
        _number(b"buries", buries),
        _number(b"kicks", kicks),
    ]
    return ok(b"".join(lines))


def stats_tube(
    name: bytes,
    current_jobs_urgent: i64,
    current_jobs_ready: i64,
    current_jobs_reserved: i64,
    current_jobs_delayed: i64,
    current_jobs_buried: i64,
    total_jobs: i64,
    current_using: i64,
    current_watching: i64,
    current_waiting: i64,
    cmd_delete: i64,
    cmd_pause_tube: i64,
    pause_s: i64,
    pause_time_left_s: i64,
) -> bytes:
    lines = [
        b"---\n",
        _quoted(b"name", name),
        _number(b"current-jobs-urgent", current_jobs_urgent),
        _number(b"current-jobs-ready", current_jobs_ready),
        _number(b"current-jobs-reserved", current_jobs_reserved),
        _number(b"current-jobs-delayed", current_jobs_delayed),
        _number(b"current-jobs-buried", current_jobs_buried),
        _number(b"total-jobs", total_jobs),
        _number(b"current-using", current_using),
        _number(b"current-watching", current_watching),
        _number(b"current-waiting", current_waiting),
        _number(b"cmd-delete", cmd_delete),
        _number(b"cmd-pause-tube", cmd_pause_tube),
        _number(b"pause", pause_s),
        _number(b"pause-time-left", pause_time_left_s),
    ]
    return ok(b"".join(lines))


def tube_list(names: list[bytes]) -> bytes:
    """To list-tubes and list-tubes-watched; names stand unquoted."""
    lines = [b"---\n"]
    for name in names:
        lines.append(b"- " + name + b"\n")
    return ok(b"".join(lines))


def stats_id(entropy: bytes) -> bytes:
    """The `id` of stats for one run of the server: 16 hex digits that no YAML parser takes for a number."""
    assert len(entropy) == 8
    rest = entropy.hex().encode("ascii")[1:]
    first = entropy[0] >> 4
    return _ID_FIRST_DIGITS[first : first + 1] + rest


def _number(key: bytes, value: i64) -> bytes:
    return key + b": " + digits(value) + b"\n"


def _plain(key: bytes, value: bytes) -> bytes:
    return key + b": " + value + b"\n"


def _quoted(key: bytes, value: bytes) -> bytes:
    return key + b': "' + value + b'"\n'


def _seconds(us: i64) -> bytes:
    """Seconds unpadded, then a point and six digits."""
    assert us >= 0
    return digits(us // _US_PER_S) + b"." + digits(_US_PER_S + us % _US_PER_S)[1:]


assert len(COUNTED_OPS) == 22
