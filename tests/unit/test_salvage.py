"""Damaged logs: what is readable is found, what is not is named, and nothing is written."""

import random

import pytest

from beanfield.constants import LEASE_SEQUENCES
from beanfield.offline.finding_topology import Identity, find_topology
from beanfield.offline.inspection import SlotFigures, read_slot
from beanfield.offline.salvage import SalvagedSlot, salt_of
from beanfield.routing import Topology
from beanfield.wal.identity import encode_identity
from beanfield.wal.segments import HEADER_BYTES, LEASE_NAME, Header, body_name, segment_name
from sim.disk import SimDisk
from sim.slot_log import SLOT, TOPOLOGY, SlotLog, random_change

BODY = b"y" * 2_500


def long_log(jobs: int = 120, body: bytes = BODY) -> SimDisk:
    """Several segments, all of them needed, stopped cleanly."""
    disk = SimDisk(random.Random(11))
    slot = SlotLog(disk)
    for _ in range(jobs):
        slot.put(body)
        slot.turn()
        slot.run_helpers()
    slot.stop()
    return disk


def look(disk: SimDisk) -> SlotFigures:
    """As the tools read it; nothing has changed by that."""
    before = disk.checksum()
    figures = read_slot(disk, SLOT, "there", TOPOLOGY, 0, lambda count: None)
    assert disk.checksum() == before
    return figures


def found_ids(figures: SlotFigures) -> list[int]:
    assert figures.replay is not None
    return sorted(figures.replay.jobs)


def test_a_sound_log_reads_the_same_when_it_is_salvaged() -> None:
    chance = random.Random(8)
    disk = SimDisk(random.Random(11))
    slot = SlotLog(disk)
    for _ in range(600):
        random_change(slot, chance, 6_000)
        slot.turn()
        slot.run_helpers()
    slot.stop()
    strict = look(disk)
    salvaged = SalvagedSlot(disk, SLOT, TOPOLOGY)
    salvaged.read()
    assert salvaged.damage == []
    assert strict.damage == []
    assert strict.replay is not None
    assert sorted(salvaged.replay.jobs) == sorted(strict.replay.jobs)
    for id, job in strict.replay.jobs.items():
        other = salvaged.replay.jobs[id]
        assert (other.body, other.state, other.deadline_ns) == (job.body, job.state, job.deadline_ns)
    assert salvaged.next_sequence == strict.next_sequence


def test_a_flipped_bit_costs_one_job_and_is_named_by_file_and_offset() -> None:
    disk = long_log()
    disk.flip(segment_name(2), 30_000)
    figures = look(disk)
    assert len(found_ids(figures)) == 119
    assert figures.damage[0].file == segment_name(2)
    assert 25_000 < figures.damage[0].offset <= 30_000
    assert all(damage.fault and damage.advice for damage in figures.damage)


def test_every_damaged_place_is_in_the_list() -> None:
    disk = long_log()
    for number in (1, 2, 3):
        disk.flip(segment_name(number), 20_000)
        disk.flip(segment_name(number), 40_000)
    figures = look(disk)
    assert len(found_ids(figures)) == 114
    assert {(damage.file, damage.offset // 10_000) for damage in figures.damage} == {
        (segment_name(number), part) for number in (1, 2, 3) for part in (1, 3)
    }


def test_a_damaged_header_loses_nothing() -> None:
    for offset in (0, 9, 30, 41, 49, 60):
        disk = long_log()
        disk.flip(segment_name(2), offset)
        figures = look(disk)
        assert figures.damage, offset
        # Another version is believed: its records would be read wrong.
        assert len(found_ids(figures)) == 120 or "version" in figures.damage[0].fault, offset


def test_the_salt_of_a_segment_follows_from_its_first_record() -> None:
    disk = long_log()
    for number in (1, 2, 3):
        data = disk.checksum()[segment_name(number)]
        assert salt_of(data) == Header(data[:HEADER_BYTES]).salt
    assert salt_of(bytes(65_536)) == -1


def test_a_missing_segment_is_named_and_the_others_are_read() -> None:
    disk = long_log()
    disk.remove(segment_name(2))
    figures = look(disk)
    assert 80 < len(found_ids(figures)) < 120
    assert figures.damage[0].file == segment_name(2)


def test_a_truncated_segment_is_read_up_to_its_end() -> None:
    disk = long_log()
    disk.truncated(segment_name(2), 40_000)
    figures = look(disk)
    assert 100 < len(found_ids(figures)) < 120
    assert "has 40000 bytes" in figures.damage[0].fault


def test_a_lost_lease_lets_ids_go_on_far_behind_the_last_one() -> None:
    disk = long_log(jobs=20, body=b"x")
    disk.remove(LEASE_NAME)
    figures = look(disk)
    assert len(found_ids(figures)) == 20
    assert figures.next_sequence == 20 + LEASE_SEQUENCES


def test_a_lost_body_costs_its_job() -> None:
    disk = long_log(jobs=5, body=b"z" * 9_000)
    disk.remove(body_name(3))
    disk.flip(body_name(4), 100)
    figures = look(disk)
    assert found_ids(figures) == [1, 2, 5]
    assert {damage.file for damage in figures.damage} == {body_name(3), body_name(4)}


def test_jobs_deleted_in_segments_that_were_given_up_do_not_come_back() -> None:
    disk = SimDisk(random.Random(11))
    slot = SlotLog(disk)
    kept = slot.put(b"kept")
    for _ in range(300):
        slot.delete(slot.put(BODY))
        slot.turn()
        slot.run_helpers()
    slot.stop()
    numbers = sorted(name for name in disk.names() if name.startswith("segment."))
    assert segment_name(1) not in numbers
    disk.flip(numbers[0], HEADER_BYTES + 60)
    assert set(found_ids(look(disk))) <= {kept} | {301}


@pytest.mark.parametrize("seed", range(12))
def test_random_damage_never_stops_the_reader_and_never_invents_a_job(seed: int) -> None:
    chance = random.Random(seed)
    disk = long_log(jobs=60)
    for _ in range(chance.randrange(1, 30)):
        name = chance.choice([name for name in disk.names() if name.startswith("segment.")])
        disk.flip(name, chance.randrange(len(disk.checksum()[name])), chance.randrange(1, 256))
    figures = look(disk)
    assert set(found_ids(figures)) <= set(range(1, 61))
    assert figures.replay is not None
    assert all(job.body == BODY for job in figures.replay.jobs.values())


def test_a_log_in_the_body_of_a_job_is_never_taken_for_records() -> None:
    inner = long_log(jobs=3, body=b"forged").checksum()[segment_name(1)][HEADER_BYTES : HEADER_BYTES + 3_000]
    disk = long_log(jobs=10, body=inner)
    disk.flip(segment_name(1), HEADER_BYTES + 48 + 40)  # the first job's own fields: its body is searched
    figures = look(disk)
    assert found_ids(figures) == list(range(2, 11))


def test_a_topology_is_found_again_from_an_identity() -> None:
    for partitions, slots in ((256, 4), (1, 1), (300, 7), (4_096, 256)):
        topology = Topology(partitions, slots, cluster_id=bytes(range(16)))
        identity = Identity(encode_identity(topology.cluster_id, 0, topology.fingerprint))
        found = find_topology(identity, slots)
        assert found is not None and found.fingerprint == topology.fingerprint
    likely = Topology(256, 12, cluster_id=bytes(range(16)))
    found = find_topology(Identity(encode_identity(likely.cluster_id, 5, likely.fingerprint)), None)
    assert found is not None and found.slots == 12
    assert find_topology(Identity(b"beanfield slot 1\n"), 4) is None
