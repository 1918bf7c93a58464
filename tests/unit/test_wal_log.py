"""The journal: when answers may leave, when it syncs, what it gives back, and what a full disk does to it."""

import random

import pytest

from beanfield.constants import LONE_MARK_NS, NEVER_NS
from beanfield.wal.disk import DiskFault
from beanfield.wal.journal import MemoryJournal
from beanfield.wal.log import SYNC_EVERY_TURN, SYNC_NEVER
from beanfield.wal.requests import MAKE, RECYCLE, SYNC
from beanfield.wal.segments import body_id, segment_bytes_for, segment_name, segment_number
from sim.disk import SimDisk
from sim.slot_log import MS, SlotLog, Stopped, read_log

SEGMENT = 65_536


def new_slot(
    sync_ns: int = SYNC_EVERY_TURN, capacity_bytes: int | None = None, segment_bytes: int = SEGMENT
) -> SlotLog:
    return SlotLog(SimDisk(random.Random(7), capacity_bytes), segment_bytes, sync_ns)


def total_bytes(slot: SlotLog) -> int:
    disk = slot.disk
    return sum(disk.size(name) for name in disk.names() if name.startswith("segment."))


def own_bytes(slot: SlotLog) -> int:
    return sum(slot.disk.size(name) for name in slot.disk.names() if name.startswith("body."))


def bound(slot: SlotLog) -> int:
    return 2 * int(slot.log.space.live) + 2 * SEGMENT


# ---------------------------------------------------------------- the journal without a log
def test_without_a_log_everything_leaves_at_once() -> None:
    journal = MemoryJournal()
    assert journal.can_put(1, b"default", b"x") and journal.can_change()
    journal.settle(5)
    assert (journal.position, journal.released_position, journal.stalled) == (0, 0, False)
    assert journal.next_deadline_ns() == NEVER_NS
    assert journal.sequence_limit > 1 << 62


# ---------------------------------------------------------------- release rule
def test_with_f0_an_answer_waits_for_its_sync_and_one_sync_serves_all_of_a_turn() -> None:
    slot = new_slot()
    slot.settle_down()
    for _ in range(5):
        slot.put(b"x")
    position = slot.log.position
    slot.turn()
    assert slot.log.written_position >= position > slot.log.released_position
    assert [request.kind for request in slot.sync_queue] == [SYNC]
    slot.put(b"while it runs")
    slot.turn()
    assert len(slot.sync_queue) == 1, "one at a time"
    slot.run_helpers()
    assert slot.log.position > slot.log.released_position >= position
    slot.turn()
    slot.run_helpers()
    assert slot.log.released_position == slot.log.position


def test_with_f50_an_answer_leaves_when_written_and_a_sync_follows_in_time_though_idle() -> None:
    slot = new_slot(50 * MS)
    slot.settle_down()
    slot.put(b"x")
    begun = slot.now_ns
    slot.turn()
    assert slot.log.released_position >= slot.log.position
    assert slot.sync_queue == []
    assert slot.log.next_deadline_ns() == begun + 50 * MS
    slot.now_ns += 50 * MS
    slot.turn()
    assert len(slot.sync_queue) == 1


def test_with_f50_answers_wait_while_a_sync_is_under_way_for_longer() -> None:
    slot = new_slot(50 * MS)
    slot.settle_down()
    slot.put(b"x")
    slot.turn()
    slot.now_ns += 50 * MS
    slot.turn()
    slot.now_ns += 50 * MS
    slot.put(b"just in time")
    slot.turn()
    assert slot.log.released_position >= slot.log.position
    slot.now_ns += 1
    slot.put(b"too late")
    slot.turn()
    assert slot.log.released_position < slot.log.position
    slot.run_helpers()
    assert slot.log.released_position >= slot.log.position


def test_with_capital_f_nothing_is_synced_until_a_segment_is_finished() -> None:
    slot = new_slot(SYNC_NEVER)
    slot.settle_down()
    while slot.log.space.current().number == 1:
        slot.put(b"x" * 1000)
        slot.turn()
        assert slot.log.space.current().number == 2 or slot.sync_queue == []
    assert [request.kind for request in slot.sync_queue] == [SYNC]
    # The successor gets no byte before; answers wait for that.
    assert slot.disk.read(segment_name(2), 512, SEGMENT).count(b"\0") == SEGMENT - 512
    assert slot.log.released_position < slot.log.position
    slot.run_helpers()
    slot.turn()
    assert slot.log.released_position >= slot.log.position


def test_counters_are_not_waited_for_and_cause_no_sync() -> None:
    slot = new_slot()
    id = slot.put(b"x")
    slot.settle_down()
    position = slot.log.position
    slot.reserve(id)
    slot.turn()
    assert slot.log.position == position
    assert slot.sync_queue == []
    assert read_log(slot.disk).replay.jobs[id].reserves == 1


def test_a_turn_without_changes_writes_nothing() -> None:
    slot = new_slot()
    slot.put(b"x")
    slot.settle_down()
    slot.turn()
    assert slot.log.take_writes() == []
    assert slot.log.next_deadline_ns() == NEVER_NS


def test_a_sync_that_no_batch_follows_gets_a_mark_of_its_own() -> None:
    slot = new_slot()
    slot.settle_down()
    slot.put(b"x")
    slot.turn()
    slot.run_helpers()
    written = slot.log.written_position
    slot.turn()
    assert slot.log.written_position == written
    slot.now_ns += LONE_MARK_NS
    slot.turn()
    assert slot.log.written_position == written + 48
    assert slot.sync_queue == [], "a mark alone is no reason for a sync"
    assert read_log(slot.disk).replay.synced_position == written


# ---------------------------------------------------------------- size
def test_one_buried_job_does_not_keep_what_passes_by_it() -> None:
    slot = new_slot()
    buried = slot.put(b"b" * 500)
    slot.bury(buried)
    for _ in range(3000):
        slot.delete(slot.put(b"p" * 300))
        slot.turn()
        slot.run_helpers()
    assert total_bytes(slot) <= bound(slot)
    assert slot.log.space.current().number > 10
    assert slot.check_recovered(int(slot.log.position)).job_by_id[buried].body == b"b" * 500


def test_a_loop_of_delayed_releases_stays_small() -> None:
    slot = new_slot(50 * MS)
    ids = [slot.put(b"r" * 50) for _ in range(10)]
    for step in range(6000):
        slot.release(ids[step % 10], delay_s=1 + step % 7)
        if step % 10 == 0:
            slot.turn()
            slot.now_ns += MS
            slot.run_helpers()
    slot.settle_down()
    assert total_bytes(slot) <= bound(slot)
    slot.check_recovered(int(slot.log.released_position))


@pytest.mark.parametrize("body_bytes", [0, 100, 3_700, 4_100, 65_535, 200_000])
def test_the_bound_holds_again_one_second_after_a_mass_delete_without_traffic(body_bytes: int) -> None:
    slot = new_slot()
    chance = random.Random(body_bytes)
    ids = []
    for _ in range(2_000 if body_bytes < 1000 else 200):
        ids.append(slot.put(b"m" * body_bytes))
        if chance.random() < 0.2:
            slot.turn()
            slot.run_helpers()
    slot.settle_down()
    assert total_bytes(slot) <= bound(slot)
    assert own_bytes(slot) in (0, body_bytes * len(ids))
    chance.shuffle(ids)
    for id in ids[: len(ids) * 9 // 10]:
        slot.delete(id)
    slot.settle_down(seconds=1)
    assert total_bytes(slot) <= bound(slot)
    assert own_bytes(slot) in (0, body_bytes * (len(ids) - len(ids) * 9 // 10))
    for id in ids[len(ids) * 9 // 10 :]:
        slot.delete(id)
    slot.settle_down(seconds=1)
    assert total_bytes(slot) <= bound(slot)
    assert own_bytes(slot) == 0
    slot.check_recovered(int(slot.log.position))


def test_a_pause_outlives_the_segment_that_it_was_written_to() -> None:
    slot = new_slot()
    slot.put(b"x")
    slot.log.pause(b"default", 1000, slot.now_ns + 1_000_000 * MS)
    slot.log.pause(b"emails", 1, slot.now_ns + MS)
    for _ in range(1000):
        slot.delete(slot.put(b"p" * 300))
        slot.turn()
        slot.now_ns += MS
        slot.run_helpers()
    assert slot.log.space.oldest().number > 2
    pauses = read_log(slot.disk).replay.pauses
    assert list(pauses) == [b"default"]
    assert pauses[b"default"].pause_s == 1000


def test_a_smaller_segment_size_moves_large_bodies_into_files_of_their_own() -> None:
    slot = new_slot(segment_bytes=1_048_576)
    ids = [slot.put(b"w" * 20_000) for _ in range(30)]
    slot.stop()
    slot = SlotLog(slot.disk, SEGMENT)
    for _ in range(2_000):
        slot.delete(slot.put(b"p" * 3000))
        slot.turn()
        slot.run_helpers()
    slot.settle_down()
    assert {segment.bytes for segment in slot.log.space.segments + slot.log.space.spares} == {SEGMENT}
    assert own_bytes(slot) == 30 * 20_000
    successor = slot.check_recovered(int(slot.log.position))
    assert [len(successor.job_by_id[id].body) for id in ids] == [20_000] * 30


def test_a_larger_segment_size_takes_over() -> None:
    slot = new_slot()
    slot.put(b"x")
    slot.stop()
    slot = SlotLog(slot.disk, 1_048_576)
    for _ in range(2000):
        assert slot.put(b"y" * 1000) > 0
        slot.turn()
        slot.run_helpers()
    assert slot.log.space.current().bytes == 1_048_576
    slot.check_recovered(int(slot.log.released_position))


# ---------------------------------------------------------------- disk full
@pytest.mark.parametrize("body_bytes", [0, 300, 3_500])
@pytest.mark.parametrize("segments", [2, 3, 6])
def test_on_a_full_disk_puts_are_refused_and_everything_else_goes_on(segments: int, body_bytes: int) -> None:
    slot = new_slot(capacity_bytes=segments * SEGMENT + 20_000)
    ids = []
    while slot.refused == 0:
        ids.append(slot.put(b"f" * body_bytes))
        slot.turn()
        slot.run_helpers()
    ids.pop()
    assert len(ids) >= 5
    for step in range(4_000):
        # None of these may fail for space, however often.
        assert slot.bury(ids[step % len(ids)]) and slot.release(ids[-1 - step % len(ids)], 5)
        if step % 7 == 0:
            slot.turn()
            slot.run_helpers()
    for id in ids[: len(ids) // 2]:
        slot.delete(id)
    slot.settle_down()
    assert slot.put(b"f" * body_bytes) > 0
    slot.settle_down()
    slot.check_recovered(int(slot.log.position))


def test_puts_go_on_by_themselves_when_space_returns() -> None:
    slot = new_slot(capacity_bytes=3 * SEGMENT + 20_000)
    while slot.refused == 0:
        slot.put(b"f" * 1000)
        slot.turn()
        slot.run_helpers()
    assert isinstance(slot.disk, SimDisk)
    slot.disk.capacity_bytes = None
    slot.settle_down(seconds=1)
    assert slot.put(b"f" * 1000) > 0


def test_a_large_body_that_finds_no_space_is_refused_and_leaves_no_file() -> None:
    slot = new_slot(capacity_bytes=3 * SEGMENT + 20_000)
    slot.settle_down()
    assert slot.put(b"l" * 150_000) == 0
    assert own_bytes(slot) == 0
    assert slot.put(b"small") > 0
    slot.check_recovered(0)


def test_a_write_that_finds_the_disk_full_is_repeated_and_clients_wait() -> None:
    slot = new_slot()
    slot.settle_down()
    assert isinstance(slot.disk, SimDisk)
    slot.disk.refuse_writes = True
    slot.put(b"x")
    slot.turn()
    assert slot.log.stalled
    assert slot.log.released_position < slot.log.position
    slot.disk.refuse_writes = False
    slot.turn()
    slot.run_helpers()
    slot.wait_while_stalled()
    assert slot.waited == 0
    assert slot.log.released_position >= slot.log.position
    slot.check_recovered(int(slot.log.position))


# ---------------------------------------------------------------- faults
@pytest.mark.parametrize("sync_ns", [SYNC_EVERY_TURN, 50 * MS, SYNC_NEVER])
def test_a_failed_sync_ends_the_owner(sync_ns: int) -> None:
    slot = new_slot(sync_ns)
    slot.settle_down()
    assert isinstance(slot.disk, SimDisk)
    slot.disk.fail_syncs = True
    with pytest.raises(Stopped):
        for _ in range(200):
            slot.put(b"x" * 1000)
            slot.turn()
            slot.now_ns += 50 * MS
            slot.run_helpers()


def test_a_failed_or_short_write_ends_the_owner_and_nothing_answered_is_missing() -> None:
    slot = new_slot()
    slot.put(b"answered")
    slot.settle_down()
    assert isinstance(slot.disk, SimDisk)
    slot.disk.short_writes = 1.0
    slot.put(b"never answered")
    with pytest.raises(Stopped):
        slot.turn()
    slot.disk.short_writes = 0.0
    slot.disk.killed()
    slot.check_recovered(int(slot.log.released_position))


def test_only_making_a_segment_and_a_lease_may_find_the_disk_full() -> None:
    slot = new_slot()
    full = DiskFault(28, "allocate", "spare.tmp")
    while not slot.other_queue or slot.other_queue[0].kind not in (MAKE, RECYCLE):
        slot.put(b"x" * 1000)
        slot.turn()
        slot.run_helpers(others=False)
    making = slot.other_queue[0]
    assert slot.log.refused(making, full, slot.now_ns) == (making.kind == MAKE)
    assert not slot.log.refused(making, DiskFault(5, "write", "spare.tmp"), slot.now_ns)


# ---------------------------------------------------------------- names and sizes
def test_only_exact_names_are_ours() -> None:
    assert segment_number(segment_name(7)) == 7
    assert body_id("body.4711") == 4711
    for name in (
        "segment.7",
        "segment.00000000007",
        "segment.0000000000",
        "segment.",
        "segment.000000000x",
        "binlog.1",
    ):
        assert segment_number(name) == -1
    for name in ("body.", "body.0", "body.01", "body.-1", "body.99999999999999999999", "body.9223372036854775808"):
        assert body_id(name) == -1


@pytest.mark.parametrize(
    ("given", "used"),
    [(-1, 65_536), (0, 65_536), (65_536, 65_536), (65_537, 69_632), (10_485_760, 10_485_760), (1 << 40, 1 << 30)],
)
def test_s_is_rounded_and_kept_within_limits(given: int, used: int) -> None:
    assert segment_bytes_for(given) == used


@pytest.mark.parametrize("sync_ns", [SYNC_EVERY_TURN, 5 * MS, SYNC_NEVER])
def test_a_log_comes_to_rest_in_every_mode(sync_ns: int) -> None:
    """With -F too: nobody waits for the sync that never comes, so a clean stop must not."""
    slot = new_slot(sync_ns=sync_ns)
    slot.put(b"the last one")
    slot.settle_down()
    assert slot.log.idle()
