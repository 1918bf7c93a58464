"""Random lives of a slot's log: changes, crashes at any call, power losses, full disks, failed syncs; each time what is
found must be the slot as it was after some prefix of its changes that includes everything answered (sim/slot_log.py).
"""

import copy
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beanfield.wal.log import SYNC_EVERY_TURN, SYNC_NEVER
from beanfield.wal.requests import recycle_segment
from beanfield.wal.segments import segment_name
from sim.disk import SECTOR_BYTES, SimDisk, SimStopped
from sim.slot_log import MS, SlotLog, Stopped, random_change

SEGMENT = 65_536
LIVES = 5


def one_life(slot: SlotLog, chance: random.Random, body_bytes_max: int, jobs_max: int, failing: bool) -> None:
    """Until it ends: by itself, at a call where it is stopped, or at a failed sync."""
    disk = slot.disk
    assert isinstance(disk, SimDisk)
    turns = chance.randrange(1, 80)
    for turn in range(turns):
        for _ in range(chance.choice((1, 1, 5, 30))):
            random_change(slot, chance, body_bytes_max)
        if len(slot.job_by_id) > jobs_max:
            for id in list(slot.job_by_id)[: chance.randrange(200)]:
                slot.delete(id)
        disk.fail_syncs = failing and turn > turns // 2
        slot.turn()
        slot.now_ns += chance.choice((0, 1, 20, 60)) * MS
        while chance.random() < 0.6:
            slot.run_helpers(chance.random() < 0.7, chance.random() < 0.7)


def reopened(slot: SlotLog, chance: random.Random) -> SlotLog:
    """Crashes, and opens again; the opening may be cut short as well, any number of times."""
    disk = slot.disk
    assert isinstance(disk, SimDisk)
    promised = int(slot.log.released_position)
    for attempt in range(20):
        if chance.random() < 0.4:
            disk.killed()
        else:
            disk.power_lost()
            promised = min(promised, int(slot.log.synced_position))
        if attempt < 19 and chance.random() < 0.5:
            disk.stop_after_calls = disk.calls + chance.randrange(1, 40)
        try:
            return slot.check_recovered(promised)
        except SimStopped:
            pass
        finally:
            disk.stop_after_calls = -1
    raise AssertionError("not reached: the last attempt is not stopped")


@given(seed=st.integers(0, 1 << 32), sync_ns=st.sampled_from((SYNC_EVERY_TURN, 50 * MS, SYNC_NEVER)))
@settings(max_examples=60)
def test_a_slot_is_found_as_it_was_answered(seed: int, sync_ns: int) -> None:
    chance = random.Random(seed)
    capacity = chance.choice((None, None, chance.randrange(3, 7) * SEGMENT + 20_000))
    slot = SlotLog(SimDisk(random.Random(seed + 1), capacity), SEGMENT, sync_ns)
    body_bytes_max = chance.choice((300, 3_000, 20_000))
    jobs_max = chance.choice((20, 300, 1_000))
    for _ in range(LIVES):
        disk = slot.disk
        assert isinstance(disk, SimDisk)
        if chance.random() < 0.7:
            disk.stop_after_calls = disk.calls + chance.randrange(1, 400)
        try:
            one_life(slot, chance, body_bytes_max, jobs_max, failing=chance.random() < 0.15)
        except (SimStopped, Stopped):
            pass
        disk.fail_syncs = False
        slot = reopened(slot, chance)
    # And it lives on.
    slot.settle_down()
    slot.stop()


def test_with_f0_nothing_answered_depends_on_a_write_that_is_not_synced() -> None:
    for seed in range(40):
        chance = random.Random(seed)
        slot = SlotLog(SimDisk(random.Random(seed)), SEGMENT, SYNC_EVERY_TURN)
        one_life(slot, chance, 3_000, 300, failing=False)
        assert slot.log.released_position <= slot.log.synced_position
        assert isinstance(slot.disk, SimDisk)
        slot.disk.power_lost()
        slot.check_recovered(int(slot.log.released_position))


@pytest.mark.parametrize("sync_ns", [SYNC_EVERY_TURN, 50 * MS, SYNC_NEVER])
def test_housekeeping_never_runs_ahead_of_the_syncs_that_allow_it(sync_ns: int) -> None:
    # The thread of the syncs is slow, the other one is done with everything at once, and then the power goes.
    slot = SlotLog(SimDisk(random.Random(3)), SEGMENT, sync_ns)
    kept = [slot.put(b"k" * 700) for _ in range(20)]
    for step in range(500):
        slot.delete(slot.put(b"p" * 900))
        if step % 25 == 0:
            slot.delete(slot.put(b"own" * 3_000))
            slot.delete(kept.pop())
        slot.turn()
        while slot.run_helpers(syncs=False):
            slot.turn()
        if step % 3 == 0 or slot.sync_queue:
            copied = copy.deepcopy(slot.disk)
            assert isinstance(copied, SimDisk)
            copied.power_lost(keep=0.0)
            slot.check_recovered(int(slot.log.synced_position), copied)
        if step % 2 == 0:
            slot.run_helpers()
        slot.now_ns += 10 * MS
    assert slot.log.space.oldest().number > 3


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.7, 1.0])
def test_a_recycled_file_keeps_its_bytes_until_its_name_is_durably_gone(keep: float) -> None:
    old_bytes = b"o" * 4096
    for calls in range(1, 9):
        for seed in range(20):
            disk = SimDisk(random.Random(seed))
            disk.create("old", 4096)
            disk.write("old", 0, old_bytes)
            disk.sync("old")
            disk.sync_directory()
            disk.stop_after_calls = disk.calls + calls
            try:
                recycle_segment(disk, "old", 5, 4096, b"header")
            except SimStopped:
                pass
            disk.power_lost(keep)
            if "old" in disk.names():
                assert disk.read("old", 0, 4096) == old_bytes
            if segment_name(5) in disk.names():
                assert disk.read(segment_name(5), 0, 4096) == b"header" + bytes(4090)


# ---------------------------------------------------------------- tears
def batches() -> tuple[SlotLog, int, int]:
    """A slot with a synced part and one large unsynced batch of all kinds of records. Also where that batch lies."""
    slot = SlotLog(SimDisk(random.Random(5)), SEGMENT, SYNC_NEVER)
    ids = [slot.put(b"k" * 40) for _ in range(4)]
    slot.stop()
    slot = SlotLog(slot.disk, SEGMENT, SYNC_NEVER)
    slot.turn()
    begin = int(slot.log.written_position) & 0xFFFFFFFF
    slot.put(b"n" * 33, delay_s=5)
    slot.bury(ids[0])
    slot.release(ids[1], 7)
    slot.delete(ids[2])
    slot.reserve(ids[3])
    slot.log.pause(b"default", 5, 10**12)
    slot.put(b"z" * 700, tube=2)
    slot.delete(ids[3])
    slot.turn()
    return slot, begin, int(slot.log.written_position) & 0xFFFFFFFF


def test_a_tail_torn_at_every_byte_leaves_a_prefix() -> None:
    slot, begin, end = batches()
    assert end - begin > 1_300
    assert isinstance(slot.disk, SimDisk)
    whole = slot.disk.read(segment_name(1), begin, end - begin)
    found = set()
    for kept in range(len(whole) + 1):
        slot.disk.write(segment_name(1), begin, whole[:kept] + bytes(len(whole) - kept))
        successor = slot.check_recovered(0)
        found.add(successor.hash)
        # Opening has cleaned it: put it back for the next byte.
        slot.disk.write(segment_name(1), begin, whole)
    assert len(found) == len({entry[0] for entry in slot.history}), "every prefix was seen"


def test_any_sectors_lost_from_the_tail_leave_a_prefix() -> None:
    slot, begin, end = batches()
    assert isinstance(slot.disk, SimDisk)
    whole = slot.disk.read(segment_name(1), begin, end - begin)
    first = begin // SECTOR_BYTES
    count = (end - 1) // SECTOR_BYTES - first + 1
    assert count >= 3
    for lost in range(1 << count):
        slot.disk.write(segment_name(1), begin, whole)
        for sector in range(count):
            if lost & (1 << sector):
                low = max(begin, (first + sector) * SECTOR_BYTES)
                high = min(end, (first + sector + 1) * SECTOR_BYTES)
                slot.disk.write(segment_name(1), low, bytes(high - low))
        slot.check_recovered(0)


@pytest.mark.parametrize("calls", range(1, 60))
def test_an_opening_stopped_at_any_call_can_be_repeated(calls: int) -> None:
    slot, _, end = batches()
    disk = slot.disk
    assert isinstance(disk, SimDisk)
    disk.write(segment_name(1), end - 200, bytes(100))  # a torn tail
    disk.create("body.77", 10)
    disk.stop_after_calls = disk.calls + calls
    try:
        SlotLog(disk, SEGMENT, SYNC_NEVER)
    except SimStopped:
        pass
    disk.power_lost(keep=0.5)
    slot.check_recovered(int(slot.log.synced_position))
