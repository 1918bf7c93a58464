"""The log on real files with real threads: turns, a clean stop, and a process that is killed in its work."""

import os
import random
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from beanfield.constants import NEVER_NS
from beanfield.io.disk import RealDisk
from beanfield.io.log_driver import LogDriver
from beanfield.io.sync_thread import NOT_DONE
from beanfield.wal.disk import EIO, DiskFault
from beanfield.wal.log import SYNC_EVERY_TURN
from sim.slot_log import MS, SlotLog, random_change

ROOT = Path(__file__).resolve().parents[2]
SEGMENT = 65_536

# Puts and deletes as fast as it can, and says on its output what has been released: "+id" and "-id".
WORKER = """
import select, sys, time
from beanfield.io.disk import RealDisk
from beanfield.io.log_driver import LogDriver
from sim.slot_log import SlotLog
disk = RealDisk(sys.argv[1])
assert disk.lock()
slot = SlotLog(disk, 65536, int(sys.argv[2]))
driver = LogDriver(disk, slot.log)
held = []
number = 0
while True:
    now = time.monotonic_ns()
    driver.collect(now)
    for _ in range(8):
        if slot.log.stalled or len(held) > 500:
            break
        number += 1
        if number % 8 != 0:
            id = slot.put(b"body of %d" % number + b"x" * (number % 900))
            if id:
                held.append((slot.log.position, "+%d" % id))
        elif number % 3 == 0:
            victim = next(iter(slot.job_by_id))
            slot.delete(victim)
            held.append((slot.log.position, "-%d" % victim))
    slot.log.settle(now)
    driver.write(now)
    released = slot.log.released_position
    while held and held[0][0] <= released:
        print(held.pop(0)[1], flush=True)
    driver.submit(now)
    select.select([driver.descriptor], [], [], 0.001)
"""


class RealSlot:
    """A slot's log on real files, run like an owner runs it."""

    def __init__(self, path: Path, sync_ns: int) -> None:
        self.disk = RealDisk(str(path))
        self.slot = SlotLog(self.disk, SEGMENT, sync_ns)
        self.driver = LogDriver(self.disk, self.slot.log)

    def turn(self) -> None:
        self.slot.now_ns = time.monotonic_ns()
        self.driver.collect(self.slot.now_ns)
        self.slot.log.settle(self.slot.now_ns)
        self.driver.write(self.slot.now_ns)
        self.driver.submit(self.slot.now_ns)

    def until_ready(self) -> None:
        """Turns, woken by the helpers, until clients may be served and everything is answered."""
        log = self.slot.log
        deadline = time.monotonic() + 60
        self.turn()
        while log.stalled or log.released_position < log.position:
            assert time.monotonic() < deadline, "no answer from the disk"
            select.select([self.driver.descriptor], [], [], 0.05)
            self.turn()


@pytest.mark.parametrize("sync_ns", [SYNC_EVERY_TURN, 5 * MS, -1])
def test_what_was_changed_is_found_again_after_a_clean_stop(tmp_path: Path, sync_ns: int) -> None:
    chance = random.Random(4)
    for _ in range(3):
        real = RealSlot(tmp_path, sync_ns)
        for _ in range(60):
            for _ in range(20):
                if real.slot.log.stalled:
                    break
                random_change(real.slot, chance, 6_000)
            real.until_ready()
        wanted = real.slot
        next_sequence = wanted.next_sequence
        assert real.driver.stop()
        again = SlotLog(RealDisk(str(tmp_path)), SEGMENT, sync_ns)
        assert again.hash == wanted.hash
        assert again.next_sequence == next_sequence
        assert again.recovery.torn_bytes() == 0
        again.disk.close()


def allocated_bytes(path: Path) -> int:
    """What the file system has given; a helper may be removing files meanwhile."""
    total = 0
    for each in path.iterdir():
        try:
            total += each.stat().st_blocks * 512
        except FileNotFoundError:
            pass
    return total


def test_size_is_given_back_to_the_file_system(tmp_path: Path) -> None:
    real = RealSlot(tmp_path, 5 * MS)
    ids: list[int] = []
    while len(ids) < 1_000:
        if not real.slot.log.stalled:
            ids.append(real.slot.put(b"g" * 3_000))
        if len(ids) % 50 == 0 or real.slot.log.stalled:
            real.until_ready()
    full = allocated_bytes(tmp_path)
    for id in ids:
        if real.slot.log.stalled:
            real.until_ready()
        real.slot.delete(id)
    deadline = time.monotonic() + 30
    while allocated_bytes(tmp_path) > 3 * SEGMENT + 20_000:
        assert time.monotonic() < deadline
        real.turn()
        select.select([real.driver.descriptor], [], [], 0.01)
    assert full > 1_000 * 3_000
    assert real.driver.stop()


@pytest.mark.parametrize("sync_ns", [SYNC_EVERY_TURN, 5 * MS])
def test_a_killed_process_loses_nothing_that_it_has_answered(tmp_path: Path, sync_ns: int) -> None:
    chance = random.Random(9)
    there: set[int] = set()
    for _ in range(6):
        with subprocess.Popen(
            [sys.executable, "-c", WORKER, str(tmp_path), str(sync_ns)], stdout=subprocess.PIPE, text=True, cwd=ROOT
        ) as worker:
            assert worker.stdout is not None
            for _ in range(chance.randrange(1, 600)):
                line = worker.stdout.readline()
                assert line != "", "the worker ended by itself"
                (there.add if line[0] == "+" else there.discard)(int(line[1:]))
            worker.send_signal(signal.SIGKILL)
            for line in worker.stdout:
                if line.endswith("\n"):
                    (there.add if line[0] == "+" else there.discard)(int(line[1:]))
        found = SlotLog(RealDisk(str(tmp_path)), SEGMENT, sync_ns)
        ids = set(found.job_by_id)
        assert there <= ids | unanswered_deletes(found, there)
        # Beyond what was answered there are only puts of the last moment.
        assert len(ids - there) <= 600
        there = ids
        found.disk.close()


def unanswered_deletes(found: SlotLog, there: set[int]) -> set[int]:
    """A delete may have happened although its answer never left: jobs are deleted oldest first, so these are a few."""
    gone = sorted(there - set(found.job_by_id))
    oldest = sorted(there)[: len(gone)]
    assert gone == oldest, "a job in the middle is missing"
    assert len(gone) <= 200
    return set(gone)


class DiskWithoutThread(RealDisk):
    """Its syncs are requests like any other."""

    def begin_sync(self, name: str) -> int:
        return -1

    def sync(self, name: str) -> None:
        raise DiskFault(EIO, "sync", name)


class DiskThatCannotSync(RealDisk):
    """The kernel refuses: a pipe has nothing to be synced."""

    def begin_sync(self, name: str) -> int:
        super().begin_sync(name)
        self.pipe = os.pipe()
        return self.pipe[0]

    def close(self) -> None:
        for end in self.pipe:
            os.close(end)
        super().close()


@pytest.mark.parametrize("kind", [DiskWithoutThread, DiskThatCannotSync])
def test_a_fault_of_a_sync_comes_out_of_collect(tmp_path: Path, kind: type[RealDisk]) -> None:
    real = RealSlot(tmp_path, SYNC_EVERY_TURN)
    real.until_ready()
    failing = kind(str(tmp_path))
    driver = LogDriver(failing, real.slot.log)
    real.slot.put(b"x")
    now = time.monotonic_ns()
    real.slot.log.settle(now)
    driver.write(now)
    driver.submit(now)
    assert select.select([driver.descriptor], [], [], 30)[0]
    with pytest.raises(DiskFault, match="sync"):
        driver.collect(now)
    assert real.slot.log.released_position < real.slot.log.position
    failing.close()


class SlowSyncs:
    """In the place of the thread: done when the test says so."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.done = False

    def begin(self, file: int) -> None:
        self.begun.append(file)

    def take(self) -> int:
        return 0 if self.done else NOT_DONE


def test_word_of_another_helper_is_not_taken_for_the_end_of_a_sync(tmp_path: Path) -> None:
    real = RealSlot(tmp_path, SYNC_EVERY_TURN)
    real.until_ready()
    driver, log = real.driver, real.slot.log
    assert driver.sync_since_ns == NEVER_NS
    thread, slow = driver._segment_syncs, SlowSyncs()
    driver._segment_syncs = slow
    real.slot.put(b"x")
    real.turn()
    assert len(slow.begun) == 1
    since_ns = driver.sync_since_ns
    assert since_ns < NEVER_NS
    for _ in range(2):
        os.eventfd_write(driver.descriptor, 1)
        driver.collect(time.monotonic_ns())
        assert driver.sync_since_ns == since_ns
        assert log.released_position < log.position
    slow.done = True
    os.eventfd_write(driver.descriptor, 1)
    driver.collect(time.monotonic_ns())
    assert driver.sync_since_ns == NEVER_NS
    assert log.released_position == log.position
    driver._segment_syncs = thread
    assert driver.stop()
