"""What a start makes of the files it finds: torn tails are cut and reported, damage refuses and changes nothing."""

import random

import pytest

from beanfield.constants import LEASE_SEQUENCES
from beanfield.engine.job import BURIED, DELAYED, READY
from beanfield.routing import Topology
from beanfield.wal.damage import LogDamage
from beanfield.wal.identity import encode_identity
from beanfield.wal.opening import open_log
from beanfield.wal.recovery import Recovery
from beanfield.wal.replay import wake
from beanfield.wal.segments import HEADER_BYTES, IDENTITY_NAME, LEASE_NAME, segment_name
from sim.disk import SimDisk
from sim.slot_log import SLOT, TOPOLOGY, WALL_OFFSET_NS, SlotLog, read_log

S = 1_000_000_000


def new_disk() -> SimDisk:
    return SimDisk(random.Random(11))


def stopped_log(jobs: int = 20, body: bytes = b"x" * 100) -> SimDisk:
    """A disk with a log that was stopped cleanly."""
    disk = new_disk()
    slot = SlotLog(disk)
    for _ in range(jobs):
        slot.put(body)
        slot.turn()
        slot.run_helpers()
    slot.stop()
    return disk


def long_log() -> SimDisk:
    """Several segments, all of them needed."""
    return stopped_log(jobs=120, body=b"y" * 2500)


def refused(disk: SimDisk, topology: Topology = TOPOLOGY) -> LogDamage:
    """The start refuses, and not one byte or name has changed."""
    before = disk.checksum()
    with pytest.raises(LogDamage) as caught:
        recovery = Recovery(disk, SLOT, topology)
        recovery.survey()
        while recovery.step():
            pass
    assert disk.checksum() == before
    assert caught.value.advice != ""
    return caught.value


# ---------------------------------------------------------------- what comes back
def test_jobs_come_back_as_they_were() -> None:
    disk = new_disk()
    slot = SlotLog(disk, now_ns=5 * S)
    ready = slot.put(b"ready", priority=3)
    delayed = slot.put(b"delayed", delay_s=10, tube=1)
    buried = slot.put(b"buried", tube=2)
    released = slot.put(b"released")
    gone = slot.put(b"gone")
    slot.reserve(ready)
    slot.bury(buried, 8)
    slot.release(released, 0, 99)
    slot.delete(gone)
    slot.turn()
    disk.killed()
    replay = read_log(disk).replay
    wake(replay, 7 * S, WALL_OFFSET_NS)  # two seconds later
    jobs = replay.jobs
    assert sorted(jobs) == [ready, delayed, buried, released]
    assert [replay.tube_names[jobs[id].tube] for id in (ready, delayed, buried)] == [b"default", b"emails", b"x" * 200]
    assert (jobs[ready].state, jobs[ready].priority(), jobs[ready].reserves) == (READY, 3, 1)
    assert (jobs[delayed].state, jobs[delayed].deadline_ns, jobs[delayed].delay_s()) == (DELAYED, 15 * S, 10)
    assert (jobs[buried].state, jobs[buried].buries, jobs[buried].deadline_ns) == (BURIED, 1, 1)
    assert (jobs[released].priority(), jobs[released].releases, jobs[released].body) == (99, 1, b"released")
    assert jobs[ready].created_ns == slot.job_by_id[ready].created_ns


def test_a_delay_that_passed_while_the_server_was_down_is_over() -> None:
    disk = new_disk()
    slot = SlotLog(disk)
    id = slot.put(b"", delay_s=10)
    slot.turn()
    replay = read_log(disk).replay
    wake(replay, 10 * S, WALL_OFFSET_NS)
    assert (replay.jobs[id].state, replay.jobs[id].delay_s()) == (READY, 10)


def test_buried_jobs_keep_the_order_of_their_burial() -> None:
    disk = new_disk()
    slot = SlotLog(disk)
    ids = [slot.put(b"") for _ in range(3)]
    for id in (ids[1], ids[2], ids[0]):
        slot.bury(id)
    slot.turn()
    successor = SlotLog(disk)
    assert sorted(ids, key=lambda id: successor.job_by_id[id].deadline_ns) == [ids[1], ids[2], ids[0]]
    assert successor.next_burial == 4


def test_a_fresh_slot_starts_with_the_first_id_and_a_clean_stop_skips_none() -> None:
    disk = new_disk()
    slot = SlotLog(disk)
    assert slot.put(b"") == 1
    slot.stop()
    slot = SlotLog(disk)
    assert slot.put(b"") == 2
    slot.turn()
    disk.killed()
    assert SlotLog(disk).put(b"") == 2 + LEASE_SEQUENCES


def test_ids_go_on_when_all_jobs_are_deleted() -> None:
    disk = new_disk()
    slot = SlotLog(disk)
    slot.delete(slot.put(b""))
    slot.settle_down()
    for _ in range(3):
        disk.power_lost(keep=0.0)
        slot = SlotLog(disk)
        assert slot.next_sequence % LEASE_SEQUENCES == 0 and slot.next_sequence > 0


def test_time_never_runs_back_although_its_jobs_are_gone() -> None:
    disk = new_disk()
    slot = SlotLog(disk, now_ns=77 * S)
    slot.delete(slot.put(b""))
    slot.stop()
    assert read_log(disk).replay.created_ns_max == WALL_OFFSET_NS + 77 * S + 1


# ---------------------------------------------------------------- torn tails
def test_a_torn_tail_is_cut_reported_and_overwritten() -> None:
    disk = new_disk()
    slot = SlotLog(disk)
    kept = slot.put(b"kept")
    slot.settle_down()
    end = slot.log.written_position & 0xFFFFFFFF
    slot.put(b"lost" * 300)
    slot.turn()
    name = segment_name(1)
    disk.write(name, end + 60, bytes(500))  # the front of the batch never reached the disk
    recovery = read_log(disk)
    assert recovery.end_offset == end + 48  # the mark of the torn batch was whole
    assert recovery.torn_bytes() > 600
    assert list(recovery.replay.jobs) == [kept]
    open_log(recovery, disk, 65536, b"n")
    again = read_log(disk)
    assert (again.torn_bytes(), again.end_offset) == (0, recovery.end_offset)


def test_a_first_batch_torn_at_its_start_leaves_an_empty_segment() -> None:
    disk = new_disk()
    slot = SlotLog(disk)
    slot.put(b"x" * 2000)
    slot.turn()
    disk.write(segment_name(1), HEADER_BYTES, bytes(512))
    recovery = read_log(disk)
    assert (recovery.current, recovery.end_offset) == (1, HEADER_BYTES)
    assert recovery.torn_bytes() > 0


def test_unsynced_bytes_that_the_kernel_only_shows_are_written_again() -> None:
    disk = new_disk()
    slot = SlotLog(disk)
    slot.put(b"first")
    slot.settle_down()
    id = slot.put(b"second")
    disk.fail_syncs = True
    slot.turn()
    with pytest.raises(Exception, match="sync"):
        slot.run_helpers()
    disk.fail_syncs = False
    disk.killed()
    successor = SlotLog(disk)
    assert id in successor.job_by_id  # read from the cache: then it must stay
    disk.power_lost(keep=0.0)
    assert id in SlotLog(disk).job_by_id


# ---------------------------------------------------------------- damage
def test_a_bit_flipped_before_the_synced_position_refuses() -> None:
    # In a job, in a mark, in a delete: wherever, up to the last record that the last mark calls synced.
    whole = stopped_log(jobs=5)
    end = 512 + len(whole.read(segment_name(1), 512, 65536).rstrip(b"\0"))
    for at in range(HEADER_BYTES, end - 48, 13):
        disk = stopped_log(jobs=5)
        disk.flip(segment_name(1), at)
        fault = refused(disk)
        assert fault.file == segment_name(1)
        assert HEADER_BYTES <= fault.offset <= at
        assert "synced" in fault.fault


def test_a_bit_flipped_in_any_finished_segment_refuses() -> None:
    disk = long_log()
    assert segment_name(4) in disk.names()
    for number in (1, 2, 3):
        disk.flip(segment_name(number), 30_000)
        fault = refused(disk)
        assert fault.file == segment_name(number)
        disk.flip(segment_name(number), 30_000)
    read_log(disk)


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
def test_a_missing_segment_refuses(number: int) -> None:
    disk = long_log()
    disk.remove(segment_name(number))
    assert refused(disk).file == segment_name(number)


def test_the_last_segments_missing_together_refuse() -> None:
    disk = long_log()
    for name in list(disk.names()):
        if name.startswith("segment.") and name > segment_name(2):
            disk.remove(name)
    assert refused(disk).file == segment_name(3)


def test_all_segments_missing_beside_a_lease_refuse() -> None:
    disk = stopped_log()
    for name in list(disk.names()):
        if name.startswith("segment."):
            disk.remove(name)
    assert refused(disk).file == LEASE_NAME


@pytest.mark.parametrize(("number", "length"), [(1, 30_000), (2, 100), (2, 0), (4, 60_000)])
def test_a_truncated_segment_refuses(number: int, length: int) -> None:
    disk = long_log()
    disk.truncated(segment_name(number), length)
    assert refused(disk).file == segment_name(number)


@pytest.mark.parametrize(
    ("at", "words"),
    [(0, "does not begin"), (8, "format version"), (12, "damaged header"), (24, "damaged header"), (61, "damaged")],
)
def test_a_damaged_header_refuses(at: int, words: str) -> None:
    disk = stopped_log()
    disk.flip(segment_name(1), at)
    assert words in refused(disk).fault


def test_a_segment_of_another_server_slot_or_number_refuses() -> None:
    disk = stopped_log()
    name = segment_name(2)
    other = Topology(1, 1, cluster_id=b"o" * 16)
    strange = SimDisk(random.Random(1))
    text = encode_identity(other.cluster_id, SLOT, other.fingerprint)
    strange.create(IDENTITY_NAME, len(text))
    strange.write(IDENTITY_NAME, 0, text)
    recovery = Recovery(strange, SLOT, other)
    recovery.survey()
    while recovery.step():
        pass
    open_log(recovery, strange, 65536, b"n")
    disk.write(name, 0, strange.read(name, 0, 512))
    assert "another server" in refused(disk).fault
    disk.write(name, 0, disk.read(segment_name(1), 0, 512))
    assert "under the name of another" in refused(disk).fault


def test_a_directory_of_another_slot_or_topology_refuses() -> None:
    disk = stopped_log()
    assert "cluster_id" in refused(disk, Topology(1, 1, cluster_id=b"o" * 16)).fault
    assert "fingerprint" in refused(disk, Topology(2, 1, cluster_id=TOPOLOGY.cluster_id)).fault
    disk.remove(IDENTITY_NAME)
    assert refused(disk).file == IDENTITY_NAME


def test_a_lost_old_or_damaged_lease_beside_data_refuses() -> None:
    disk = stopped_log()
    early = disk.read(LEASE_NAME, 0, 8192)
    slot = SlotLog(disk)
    for _ in range(3):
        slot.put(b"x")
    slot.stop()
    late = disk.read(LEASE_NAME, 0, 8192)
    disk.write(LEASE_NAME, 0, early)
    assert "old" in refused(disk).fault
    disk.write(LEASE_NAME, 0, bytes(8192))
    assert "no valid cell" in refused(disk).fault
    disk.remove(LEASE_NAME)
    assert "is missing" in refused(disk).fault
    disk.create(LEASE_NAME, 8192)
    disk.write(LEASE_NAME, 0, late)
    read_log(disk)


def test_bytes_behind_an_unfinished_segment_refuse() -> None:
    disk = stopped_log()
    disk.write(segment_name(2), 40_000, b"x")
    assert refused(disk).file == segment_name(2)


def test_a_beanstalkd_directory_is_refused_and_other_strangers_are_left_alone() -> None:
    disk = stopped_log()
    disk.create("notes.txt", 3)
    assert read_log(disk).found.strangers == ["notes.txt"]
    disk.create("binlog.1", 10)
    assert refused(disk).file == "binlog.1"


def test_a_job_of_another_slot_refuses() -> None:
    disk = new_disk()
    wide = Topology(16, 2, cluster_id=TOPOLOGY.cluster_id)
    slot = SlotLog(disk)
    slot.put(b"x", tube=1)
    slot.stop()
    text = encode_identity(wide.cluster_id, SLOT, wide.fingerprint)
    disk.create(IDENTITY_NAME, len(text))
    disk.write(IDENTITY_NAME, 0, text)
    # `emails` is partition 9 of 16, so slot 1.
    assert "belongs to slot 1" in refused(disk, wide).fault


# ---------------------------------------------------------------- bodies with files of their own
def own_body_log(synced: bool) -> tuple[SimDisk, int, int]:
    disk = new_disk()
    slot = SlotLog(disk)
    small = slot.put(b"small")
    slot.settle_down()
    large = slot.put(b"L" * 20_000)
    slot.put(b"behind it")
    if synced:
        slot.stop()
    else:
        slot.turn()
    return disk, small, large


def test_a_large_body_has_a_file_of_its_own_and_comes_back() -> None:
    disk, _, large = own_body_log(synced=True)
    assert disk.size(f"body.{large}") == 20_000
    slot = SlotLog(disk)
    assert slot.job_by_id[large].body == b"L" * 20_000
    slot.delete(large)
    slot.settle_down()
    assert f"body.{large}" not in disk.names()


@pytest.mark.parametrize("how", ["missing", "changed", "shorter"])
def test_a_torn_large_body_cuts_the_log_before_its_record(how: str) -> None:
    disk, small, large = own_body_log(synced=False)
    name = f"body.{large}"
    if how == "missing":
        disk.remove(name)
    elif how == "changed":
        disk.flip(name, 19_999)
    else:
        disk.truncated(name, 512)
    recovery = read_log(disk)
    assert list(recovery.replay.jobs) == [small]
    assert recovery.torn_bytes() > 0
    open_log(recovery, disk, 65536, b"n")
    assert name not in disk.names()
    assert list(SlotLog(disk).job_by_id) == [small]


@pytest.mark.parametrize("how", ["missing", "changed"])
def test_a_synced_large_body_that_is_gone_or_damaged_refuses(how: str) -> None:
    disk, _, large = own_body_log(synced=True)
    if how == "missing":
        disk.remove(f"body.{large}")
    else:
        disk.flip(f"body.{large}", 5)
    assert refused(disk).file == f"body.{large}"


# ---------------------------------------------------------------- leftovers
def test_temporaries_and_bodies_of_no_job_are_removed_when_the_log_is_opened() -> None:
    disk = stopped_log()
    disk.create("spare.tmp", 100)
    disk.create("body.99", 100)
    recovery = read_log(disk)
    assert recovery.leftovers() == ["spare.tmp", "body.99"]
    assert "spare.tmp" in disk.names()
    open_log(recovery, disk, 65536, b"n")
    assert "spare.tmp" not in disk.names() and "body.99" not in disk.names()


def test_a_start_on_a_full_disk_serves() -> None:
    disk = stopped_log()
    disk.remove(segment_name(2))
    disk.capacity_bytes = disk.used_bytes() + 1000
    slot = SlotLog(disk)
    assert slot.log.space.spares == []
    assert slot.put(b"no room is promised") == 0
    slot.delete(1)
    assert slot.bury(2)
    disk.capacity_bytes = None
    slot.now_ns += S
    slot.settle_down()
    assert slot.put(b"room again") > 0
    slot.stop()
    assert 1 not in SlotLog(disk).job_by_id
