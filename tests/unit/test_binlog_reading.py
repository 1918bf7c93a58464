"""beanstalkd's binlog from bytes to jobs, for every version and build; and what is made of damaged ones."""

import random

import pytest

from beanfield.offline.binlog_records import BURIED, DELAYED, READY, RESERVED
from tests.unit.binlog_bytes import BUILDS, CREATED_NS, V5, V7, Build, S, bodies, faults, read

every_build = pytest.mark.parametrize("build", BUILDS.values(), ids=BUILDS.keys())


# ---------------------------------------------------------------- sound ones
@every_build
def test_every_field_of_a_job_is_read(build: Build) -> None:
    longest = 4_294_967_295
    record = build.record(
        9,
        DELAYED,
        b"emails",
        b"body\0\r\n",
        priority=longest,
        delay_s=7,
        ttr_s=longest,
        deadline_ns=CREATED_NS + 7 * S,
        counts=(1, 2, 3, 4, 5),
    )
    data = build.file(record)
    binlog = read(data)
    assert faults(binlog) == []
    assert bodies(binlog, data) == {9: b"body\0\r\n"}
    job = binlog.jobs[9]
    found = job.record
    assert (job.tube, found.priority, found.delay_ns, found.ttr_ns) == (
        b"emails",
        4_294_967_295,
        7 * S,
        4_294_967_295 * S,
    )
    assert (found.created_ns, found.deadline_ns) == (CREATED_NS, CREATED_NS + 7 * S)
    assert (found.reserves, found.timeouts, found.releases, found.buries, found.kicks) == (1, 2, 3, 4, 5)
    assert found.state == DELAYED


@every_build
def test_changes_and_deletions_are_applied_in_order(build: Build) -> None:
    first = build.file(build.put(1), build.put(2, b"two"), build.bury(2), build.put(3), tail=0)
    second = build.file(build.delete(1), build.record(2, READY, priority=5), build.delay(3, CREATED_NS))
    binlog = read(first, second)
    assert faults(binlog) == []
    assert sorted(binlog.jobs) == [2, 3]
    assert (binlog.jobs[2].record.state, binlog.jobs[2].record.priority) == (READY, 5)
    assert binlog.jobs[3].record.state == DELAYED
    assert bodies(binlog, first, second)[2] == b"two"
    assert binlog.records == 7
    assert binlog.id_max == 3


def test_a_migrated_job_is_taken_from_its_last_full_record() -> None:
    old = V7.file(V7.put(1, b"one"), V7.put(2, b"two"))
    new = V7.file(V7.record(1, RESERVED, b"default", b"one", counts=(3, 0, 0, 0, 0)), V7.delete(2))
    binlog = read(old, new)
    assert bodies(binlog, old, new) == {1: b"one"}
    assert binlog.jobs[1].record.reserves == 3


def test_files_of_both_versions_may_stand_side_by_side() -> None:
    old, new = V5.file(V5.put(1, b"old")), V7.file(V7.put(2, b"new"), V7.bury(1))
    binlog = read(old, new)
    assert faults(binlog) == []
    assert bodies(binlog, old, new) == {1: b"old", 2: b"new"}
    assert binlog.jobs[1].record.state == BURIED
    assert binlog.versions == {"version 5": 1, "version 7": 1}


@every_build
def test_any_zero_tail_ends_a_file(build: Build) -> None:
    for tail in range(0, 90):
        binlog = read(build.file(build.put(1), tail=tail))
        assert sorted(binlog.jobs) == [1]
        assert faults(binlog) == []


def test_buried_jobs_keep_the_order_of_their_last_burial() -> None:
    puts = [V7.put(id) for id in range(1, 6)]
    first = V7.file(*puts, V7.bury(3), V7.bury(1), V7.bury(2), V7.record(1, READY), V7.bury(5), V7.bury(1))
    # Compaction writes 3 anew: that is no burial.
    second = V7.file(V7.record(3, BURIED, b"default", b"x"), V7.bury(4))
    binlog = read(first, second)
    assert sorted(binlog.jobs, key=lambda id: binlog.jobs[id].burial) == [3, 2, 5, 1, 4]


def test_a_buried_job_whose_burial_is_in_no_file_any_more_is_placed_by_its_full_record() -> None:
    data = V7.file(V7.record(2, BURIED, b"a", b""), V7.record(1, BURIED, b"a", b""))
    binlog = read(data)
    assert binlog.jobs[2].burial < binlog.jobs[1].burial


def test_changes_of_jobs_that_were_deleted_later_are_no_fault() -> None:
    binlog = read(V7.file(V7.bury(7), V7.record(7, READY), V7.delete(7), V7.put(9)), first=5)
    assert faults(binlog) == []
    assert binlog.id_max == 9


def test_the_largest_id_counts_though_its_job_is_deleted() -> None:
    assert read(V7.file(V7.put(3), V7.put(8), V7.delete(8))).id_max == 8


# ---------------------------------------------------------------- damaged ones
def test_a_change_of_a_job_without_full_record_is_reported_as_lost() -> None:
    binlog = read(V7.file(V7.put(1), V7.bury(7)))
    (fault,) = binlog.faults
    assert fault.lost
    assert "job 7" in str(fault) and "binlog.1, byte" in str(fault)


def test_a_missing_file_is_reported() -> None:
    binlog = read(V7.file(V7.put(1)), b"", b"", V7.file(V7.put(5)))
    assert faults(binlog) == ["binlog.2 to binlog.3: is missing: beanstalkd removes files only from the oldest on"]
    assert sorted(binlog.jobs) == [1, 5]


def test_an_unknown_version_is_reported_and_the_other_files_are_read() -> None:
    strange = Build(6, "<I", V7.before, 1, "3x")
    binlog = read(strange.file(strange.put(1)), V7.file(V7.put(2)))
    assert "has version 6" in faults(binlog)[0]
    assert sorted(binlog.jobs) == [2]


def test_a_file_without_header_is_reported() -> None:
    assert "has no header" in faults(read(bytes(4096)))[0]
    assert "has no header" in faults(read(b"\7\0"))[0]


@every_build
def test_a_file_cut_at_any_byte_gives_what_is_whole_and_one_report(build: Build) -> None:
    records = [build.put(1, b"first"), build.put(2, b"second" * 9), build.bury(1), build.put(3, b"third")]
    ends = [4]
    for record in records:
        ends.append(ends[-1] + len(record))
    whole = build.file(*records, tail=0)
    for length in range(5, len(whole)):
        binlog = read(whole[:length])
        complete = sum(1 for end in ends[1:] if end <= length)
        assert binlog.records == complete
        # Zeros at the end, as a short record begins with, are like the zeros of a file that is not full.
        in_record = whole[ends[complete] : length].strip(b"\0") != b""
        assert len(binlog.faults) == in_record, (length, faults(binlog))


@every_build
def test_behind_damage_reading_goes_on_at_the_next_record(build: Build) -> None:
    before, broken, after = build.put(1, b"one"), build.put(2, b"two" * 50), build.put(3, b"three")
    record = bytearray(broken)
    record[0:2] = b"\xff\xff"  # a name length that cannot be
    data = build.file(before, bytes(record), after, build.bury(1))
    binlog = read(data)
    assert bodies(binlog, data) == {1: b"one", 3: b"three"}
    assert binlog.jobs[1].record.state == BURIED
    (fault,) = binlog.faults
    assert fault.offset == 4 + len(before)
    assert f"{len(broken)} bytes are skipped" in fault.text


def test_each_damaged_place_is_reported_on_its_own() -> None:
    good = [V7.put(id, b"body %d" % id) for id in range(1, 8)]
    damaged = list(good)
    for index in (1, 4):
        damaged[index] = b"\xee" * len(good[index])
    binlog = read(V7.file(*damaged))
    assert sorted(binlog.jobs) == [1, 3, 4, 6, 7]
    assert len(binlog.faults) == 2


def test_a_body_that_was_never_written_is_left_out_and_what_follows_is_read() -> None:
    torn = V7.record(2, READY, b"default", bytes(30), body_end=b"\0\0")
    binlog = read(V7.file(V7.put(1), torn, V7.put(3)))
    assert sorted(binlog.jobs) == [1, 3]
    assert faults(binlog)[0].endswith("the body of job 2 does not end in CR LF: the job is left out")
    assert binlog.id_max == 3
    assert sorted(read(V7.file(V7.put(1), torn)).jobs) == [1]


def test_a_torn_copy_of_a_job_leaves_its_older_record() -> None:
    old = V7.file(V7.put(2, b"whole"))
    new = V7.file(V7.record(2, READY, b"default", bytes(5), body_end=b"\0\0"))
    binlog = read(old, new)
    assert bodies(binlog, old, new) == {2: b"whole"}
    assert "an older record of it is used" in faults(binlog)[0]


def test_zeros_between_records_are_damage() -> None:
    before = V7.file(V7.put(1), tail=0)
    binlog = read(before + bytes(5000) + V7.put(2) + bytes(100))
    assert sorted(binlog.jobs) == [1, 2]
    (fault,) = binlog.faults
    assert fault.offset == len(before)
    assert "5000 bytes are skipped" in fault.text


@every_build
def test_random_damage_never_stops_the_reader(build: Build) -> None:
    chance = random.Random(21)
    whole = build.file(*[build.put(id, b"j" * chance.randrange(200)) for id in range(1, 30)], build.bury(3))
    for _ in range(150):
        data = bytearray(whole)
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(4, len(data))
            data[at : at + 8] = chance.randbytes(chance.randrange(9))
        binlog = read(bytes(data))
        assert len(binlog.jobs) + len(binlog.faults) > 0
        assert len(binlog.jobs) >= 20


def test_a_body_that_looks_like_a_log_is_a_body() -> None:
    inner = V7.put(99, b"forged") + V7.delete(1)
    data = V7.file(V7.put(1), V7.put(2, inner), V7.put(3))
    binlog = read(data)
    assert sorted(binlog.jobs) == [1, 2, 3]
    assert bodies(binlog, data)[2] == inner
