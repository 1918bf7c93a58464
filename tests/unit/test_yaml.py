"""The data replies, byte for byte as captured from beanstalkd 1.13."""

import pytest

from beanfield.proto import ops, yaml

STATS = b"""---
current-jobs-urgent: 1
current-jobs-ready: 2
current-jobs-reserved: 3
current-jobs-delayed: 4
current-jobs-buried: 5
cmd-put: 101
cmd-peek: 102
cmd-peek-ready: 103
cmd-peek-delayed: 104
cmd-peek-buried: 105
cmd-reserve: 106
cmd-reserve-with-timeout: 107
cmd-delete: 109
cmd-release: 110
cmd-use: 118
cmd-watch: 119
cmd-ignore: 120
cmd-bury: 111
cmd-kick: 112
cmd-touch: 114
cmd-stats: 117
cmd-stats-job: 115
cmd-stats-tube: 116
cmd-list-tubes: 121
cmd-list-tube-used: 122
cmd-list-tubes-watched: 123
cmd-pause-tube: 125
job-timeouts: 6
total-jobs: 7
max-job-size: 65535
current-tubes: 8
current-connections: 9
current-producers: 10
current-workers: 11
current-waiting: 12
total-connections: 35
pid: 12358
version: "1.13+6+g25085c5"
rusage-utime: 0.003663
rusage-stime: 12.000000
uptime: 4
binlog-oldest-index: 13
binlog-current-index: 14
binlog-records-migrated: 15
binlog-records-written: 16
binlog-max-size: 10485760
draining: false
id: 0562cc5c3c68a13c
hostname: "vm"
os: "#1 SMP PREEMPT_DYNAMIC @0"
platform: "x86_64"
"""


def shown() -> yaml.ServerStats:
    stats = yaml.ServerStats()
    stats.current_jobs_urgent = 1
    stats.current_jobs_ready = 2
    stats.current_jobs_reserved = 3
    stats.current_jobs_delayed = 4
    stats.current_jobs_buried = 5
    stats.commands = [100 + op for op in range(ops.OPS_COUNT)]
    stats.job_timeouts = 6
    stats.total_jobs = 7
    stats.job_bytes_max = 65535
    stats.current_tubes = 8
    stats.current_connections = 9
    stats.current_producers = 10
    stats.current_workers = 11
    stats.current_waiting = 12
    stats.total_connections = 35
    stats.pid = 12358
    stats.version = b"1.13+6+g25085c5"
    stats.rusage_utime_us = 3663
    stats.rusage_stime_us = 12_000_000
    stats.uptime_s = 4
    stats.binlog_oldest_index = 13
    stats.binlog_current_index = 14
    stats.binlog_records_migrated = 15
    stats.binlog_records_written = 16
    stats.binlog_max_bytes = 10485760
    stats.id = b"0562cc5c3c68a13c"
    stats.hostname = b"vm"
    stats.os = b"#1 SMP PREEMPT_DYNAMIC @0"
    stats.platform = b"x86_64"
    return stats


def test_stats_has_the_51_keys_in_order_with_their_quotes() -> None:
    assert STATS.count(b": ") == 51
    assert yaml.stats(shown(), []) == b"OK %d\r\n%s\r\n" % (len(STATS), STATS)


def test_new_keys_of_stats_follow_the_old_ones() -> None:
    text = STATS + b"slots: 4\nslots-available: 3\n"
    assert yaml.stats(shown(), [(b"slots", b"4"), (b"slots-available", b"3")]) == b"OK %d\r\n%s\r\n" % (len(text), text)


def test_stats_shows_draining_as_a_word_and_microseconds_with_six_digits() -> None:
    stats = shown()
    stats.draining = True
    stats.rusage_utime_us = 1_000_001
    stats.rusage_stime_us = 0
    text = yaml.stats(stats, [])
    assert b"\ndraining: true\n" in text
    assert b"\nrusage-utime: 1.000001\nrusage-stime: 0.000000\n" in text


def test_stats_of_a_fresh_server_are_zeros() -> None:
    text = yaml.stats(yaml.ServerStats(), [])
    assert text.count(b": 0\n") == 5 + 22 + 10 + 1 + 5
    assert text.count(b": 0.000000\n") == 2


def test_stats_job_is_the_captured_sample() -> None:
    assert yaml.stats_job(1, b"default", b"ready", 0, 3, 0, 1, 0, 0, 0, 0, 0, 0, 0) == (
        b"OK 145\r\n"
        b"---\n"
        b"id: 1\n"
        b"tube: \"default\"\n"
        b"state: ready\n"
        b"pri: 0\n"
        b"age: 3\n"
        b"delay: 0\n"
        b"ttr: 1\n"
        b"time-left: 0\n"
        b"file: 0\n"
        b"reserves: 0\ntimeouts: 0\nreleases: 0\nburies: 0\nkicks: 0\n\r\n"
    )  # fmt: skip


def test_stats_job_shows_each_field_under_its_key() -> None:
    text = yaml.stats_job(2**63 - 1, b"a", b"reserved", 4294967295, -2, 5, 6, -7, 8, 9, 10, 11, 12, 13)
    head, _, body = text.partition(b"\r\n")
    assert head == b"OK %d" % len(body.removesuffix(b"\r\n"))
    assert body == (
        b"---\n"
        b"id: 9223372036854775807\n"
        b"tube: \"a\"\n"
        b"state: reserved\n"
        b"pri: 4294967295\n"
        b"age: -2\n"
        b"delay: 5\n"
        b"ttr: 6\n"
        b"time-left: -7\n"
        b"file: 8\nreserves: 9\ntimeouts: 10\nreleases: 11\nburies: 12\nkicks: 13\n\r\n"
    )  # fmt: skip


def test_stats_tube_shows_each_field_under_its_key() -> None:
    text = yaml.stats_tube(b"a;b", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13)
    head, _, body = text.partition(b"\r\n")
    assert head == b"OK %d" % len(body.removesuffix(b"\r\n"))
    assert body == (
        b"---\n"
        b"name: \"a;b\"\n"
        b"current-jobs-urgent: 1\n"
        b"current-jobs-ready: 2\n"
        b"current-jobs-reserved: 3\n"
        b"current-jobs-delayed: 4\n"
        b"current-jobs-buried: 5\n"
        b"total-jobs: 6\n"
        b"current-using: 7\n"
        b"current-watching: 8\n"
        b"current-waiting: 9\n"
        b"cmd-delete: 10\n"
        b"cmd-pause-tube: 11\npause: 12\npause-time-left: 13\n\r\n"
    )  # fmt: skip


def test_lists_name_tubes_without_quotes() -> None:
    assert yaml.tube_list([b"default"]) == b"OK 14\r\n---\n- default\n\r\n"
    assert yaml.tube_list([b"default", b"a(b)", b"9"]) == b"OK 25\r\n---\n- default\n- a(b)\n- 9\n\r\n"
    assert yaml.tube_list([]) == b"OK 4\r\n---\n\r\n"


@pytest.mark.parametrize("first", range(256))
def test_id_of_stats_is_16_hex_digits_and_no_number(first: int) -> None:
    for rest in [b"\0" * 7, b"\x12" * 7, b"\xe1" * 7, b"\xff" * 7]:
        text = yaml.stats_id(bytes([first]) + rest).decode()
        assert len(text) == 16 and set(text) <= set("0123456789abcdef")
        # A number begins with a digit, a sign or a point.
        assert text[0] in "abcdf"


def test_ids_of_stats_keep_nearly_all_of_their_entropy() -> None:
    assert yaml.stats_id(bytes.fromhex("0562cc5c3c68a13c")) == b"a562cc5c3c68a13c"
    assert len({yaml.stats_id(bytes([first]) + b"\0" * 7) for first in range(256)}) == 5 * 16
