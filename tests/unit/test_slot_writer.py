"""A slot filled by a tool is what an owner finds after a clean stop, whatever the jobs are; a full disk says so."""

import random

import pytest

from beanfield.constants import SEGMENT_BYTES_MIN
from beanfield.engine.job import BURIED, DELAYED, READY, Job
from beanfield.offline.slot_writer import SlotFull, SlotWriter
from beanfield.wal.identity import encode_identity
from beanfield.wal.recovery import Recovery
from beanfield.wal.segments import IDENTITY_NAME
from sim.disk import SimDisk
from sim.slot_log import SLOT, TOPOLOGY, Facts, SlotLog, facts_of, read_log

NAMES = [b"default", b"emails", b"x" * 200]


def new_disk(capacity_bytes: int | None = None) -> SimDisk:
    disk = SimDisk(random.Random(1), capacity_bytes)
    text = encode_identity(TOPOLOGY.cluster_id, SLOT, TOPOLOGY.fingerprint)
    disk.create(IDENTITY_NAME, len(text))
    disk.write(IDENTITY_NAME, 0, text)
    disk.sync(IDENTITY_NAME)
    disk.sync_directory()
    return disk


def writer_on(disk: SimDisk, next_sequence: int = 0, segment_bytes: int = SEGMENT_BYTES_MIN) -> SlotWriter:
    return SlotWriter(disk, SLOT, TOPOLOGY, segment_bytes, next_sequence, b"nonce")


def random_job(chance: random.Random, id: int) -> Job:
    job = Job(id, 0, 10**18 + id, chance.randrange(1 << 32), chance.randrange(1 << 32), 1 + chance.randrange(99), b"")
    job.body = chance.randbytes(chance.choice((0, 1, 100, 3_000, 9_000)))
    job.state = chance.choice((READY, READY, DELAYED, BURIED))
    job.deadline_ns = {READY: 0, DELAYED: 10**18 + chance.randrange(10**12), BURIED: id}[int(job.state)]
    if chance.random() < 0.5:
        job.reserves = chance.randrange(1 << 31)
        job.kicks = chance.randrange(1 << 31)
    return job


def found_on(disk: SimDisk) -> tuple[Recovery, dict[int, Facts]]:
    recovery = read_log(disk)
    replay = recovery.replay
    return recovery, {id: facts_of(job, replay.tube_names[int(job.tube)], 0) for id, job in replay.jobs.items()}


def test_what_is_written_is_found_and_the_log_was_stopped_cleanly() -> None:
    chance = random.Random(3)
    disk = new_disk()
    writer = writer_on(disk, next_sequence=5_000)
    wanted = {}
    for id in sorted(chance.sample(range(1, 5_000), 400)):
        job = random_job(chance, id)
        name = chance.choice(NAMES)
        wanted[id] = facts_of(job, name, 0)
        writer.add(job, name)
    writer.created(10**18 + 77_777)
    writer.finish()
    disk.power_lost(keep=0.0)  # everything was synced
    recovery, found = found_on(disk)
    assert found == wanted
    assert recovery.torn_bytes() == 0
    assert recovery.leftovers() == []
    assert recovery.next_sequence == 5_000
    assert recovery.replay.created_ns_max == 10**18 + 77_777
    assert len(recovery.replay.segments) > 3
    assert recovery.spares()
    assert recovery.replay.own_bodies


def test_an_owner_goes_on_from_it_within_the_bound_of_size() -> None:
    disk = new_disk()
    writer = writer_on(disk, next_sequence=300)
    for id in range(1, 301):
        job = Job(id, 0, 10**18, 0, 0, 60, b"y" * 1_000)
        job.state = READY
        writer.add(job, b"default")
    writer.finish()
    disk.killed()
    slot = SlotLog(disk)
    assert slot.put(b"new") == 301
    for id in range(1, 301):
        slot.delete(id)
        slot.turn()
        slot.run_helpers()
    for _ in range(40):
        slot.turn()
        slot.run_helpers()
    assert slot.log.space.total <= 2 * slot.log.space.live + 2 * SEGMENT_BYTES_MIN


def test_an_empty_slot_is_a_sound_log_too() -> None:
    disk = new_disk()
    writer = writer_on(disk, next_sequence=42)
    writer.finish()
    recovery, found = found_on(disk)
    assert found == {}
    assert recovery.next_sequence == 42


def test_a_pause_is_kept() -> None:
    disk = new_disk()
    writer = writer_on(disk, next_sequence=1)
    job = Job(1, 0, 10**18, 0, 0, 60, b"")
    job.state = READY
    writer.add(job, b"emails")
    writer.pause(b"emails", 30, 10**18 + 5)
    writer.finish()
    pause = read_log(disk).replay.pauses[b"emails"]
    assert (pause.pause_s, pause.until_wall_ns) == (30, 10**18 + 5)


@pytest.mark.parametrize("segments", [0, 1, 2, 3, 6])
@pytest.mark.parametrize("body_bytes", [1_000, 9_000])
def test_a_full_disk_is_told_as_such(segments: int, body_bytes: int) -> None:
    disk = new_disk(capacity_bytes=20_000 + segments * SEGMENT_BYTES_MIN)
    with pytest.raises(SlotFull):
        writer = writer_on(disk, next_sequence=10_000)
        for id in range(1, 10_000):
            job = Job(id, 0, 10**18, 0, 0, 60, b"z" * body_bytes)
            job.state = READY
            writer.add(job, b"default")
