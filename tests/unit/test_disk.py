"""What every disk must do: the same tests for the real one, on a temporary directory, and the simulated one."""

import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from beanfield.io.disk import RealDisk
from beanfield.wal.disk import EDQUOT, EIO, ENOSPC, Disk, DiskFault
from sim.disk import SimDisk

ENOENT = 2


@pytest.fixture(params=["real", "simulated"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    made: Disk = RealDisk(str(tmp_path)) if request.param == "real" else SimDisk(random.Random(1))
    yield made
    made.close()


def fault_of(call: Callable[[], object]) -> DiskFault:
    with pytest.raises(DiskFault) as caught:
        call()
    return caught.value


def test_a_new_file_is_zeros_of_the_length_asked_for(disk: Disk) -> None:
    disk.create("a", 10_000)
    assert disk.names() == ["a"]
    assert disk.size("a") == 10_000
    assert disk.read("a", 0, 20_000) == bytes(10_000)


def test_an_empty_file_is_a_file(disk: Disk) -> None:
    disk.create("a", 0)
    assert disk.size("a") == 0
    assert disk.read("a", 0, 10) == b""


def test_create_replaces_an_older_file(disk: Disk) -> None:
    disk.create("a", 100)
    disk.write("a", 0, b"old")
    disk.create("a", 50)
    assert disk.read("a", 0, 100) == bytes(50)


def test_writes_overwrite_in_place(disk: Disk) -> None:
    disk.create("a", 1000)
    disk.write("a", 100, b"hello")
    disk.write("a", 103, b"p!")
    disk.write("a", 995, b"12345")
    assert disk.size("a") == 1000
    assert disk.read("a", 99, 7) == b"\0help!\0"
    assert disk.read("a", 990, 100) == bytes(5) + b"12345"


def test_large_writes_are_whole(disk: Disk) -> None:
    data = random.Random(5).randbytes(3_000_001)
    disk.create("a", len(data))
    disk.write("a", 0, data)
    assert disk.read("a", 0, len(data)) == data


def test_reading_behind_the_end_gives_nothing(disk: Disk) -> None:
    disk.create("a", 10)
    assert disk.read("a", 10, 5) == b""
    assert disk.read("a", 11, 5) == b""


def test_rename_moves_the_file_and_replaces_another(disk: Disk) -> None:
    disk.create("a", 10)
    disk.create("b", 20)
    disk.write("a", 0, b"a")
    disk.rename("a", "b")
    assert disk.names() == ["b"]
    assert disk.size("b") == 10
    disk.write("b", 1, b"b")
    assert disk.read("b", 0, 3) == b"ab\0"


def test_a_removed_file_is_gone_and_its_name_can_be_used_again(disk: Disk) -> None:
    disk.create("a", 10)
    disk.write("a", 0, b"old")
    disk.remove("a")
    assert disk.names() == []
    disk.create("a", 10)
    assert disk.read("a", 0, 3) == bytes(3)


def test_a_missing_file_is_a_fault_with_its_name(disk: Disk) -> None:
    for call in (
        lambda: disk.size("a"),
        lambda: disk.read("a", 0, 1),
        lambda: disk.write("a", 0, b"x"),
        lambda: disk.sync("a"),
        lambda: disk.rename("a", "b"),
        lambda: disk.remove("a"),
    ):
        fault = fault_of(call)
        assert (fault.number, fault.name) == (ENOENT, "a")
        assert not fault.full()


def test_syncs_of_everything_are_possible_at_any_time(disk: Disk) -> None:
    disk.sync_directory()
    disk.create("a", 10)
    disk.sync("a")
    disk.write("a", 0, b"x")
    disk.sync("a")
    disk.sync("a")
    disk.sync_directory()
    assert disk.read("a", 0, 1) == b"x"


def test_there_is_free_space(disk: Disk) -> None:
    assert disk.free_bytes() > 1_000_000


def test_no_space_and_no_quota_are_full_and_nothing_else_is() -> None:
    assert DiskFault(ENOSPC, "write", "a").full()
    assert DiskFault(EDQUOT, "write", "a").full()
    assert not DiskFault(EIO, "write", "a").full()


# ---------------------------------------------------------------- the real one alone
def test_the_lock_of_a_real_directory_keeps_other_processes_out(tmp_path: Path) -> None:
    program = (
        "import sys; from beanfield.io.disk import RealDisk; disk = RealDisk(sys.argv[1]);"
        "print(disk.lock(), flush=True); sys.stdin.readline()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "True\n"
        disk = RealDisk(str(tmp_path))
        assert not disk.lock()
        other.kill()
        other.wait()
        # The lock of a killed owner is free as soon as it is gone.
        assert disk.lock()
        assert disk.lock()
        disk.close()


def test_a_real_disk_that_is_full_says_so_and_leaves_no_file(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    fault = fault_of(lambda: disk.create("a", 1 << 60))
    # EFBIG where a file cannot be that long at all; the kernel decides which it says first.
    assert fault.full() or fault.number == 27
    assert disk.names() == []
    disk.close()


def test_a_missing_directory_is_a_fault() -> None:
    assert fault_of(lambda: RealDisk("/nowhere/at/all")).number == ENOENT


def test_files_of_jobs_are_for_the_server_alone(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    disk.create("a", 1)
    disk.lock()
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("a", "lock")] == [0o600, 0o600]
    disk.close()


# ---------------------------------------------------------------- the simulated one alone
def synced_pair() -> SimDisk:
    disk = SimDisk(random.Random(3))
    disk.create("a", 2048)
    disk.write("a", 0, b"A" * 2048)
    disk.sync("a")
    disk.sync_directory()
    return disk


def test_power_loss_keeps_what_was_synced() -> None:
    disk = synced_pair()
    disk.write("a", 0, b"B" * 2048)
    disk.create("b", 100)
    disk.power_lost(keep=0.0)
    assert disk.names() == ["a"]
    assert disk.read("a", 0, 4096) == b"A" * 2048


def test_power_loss_tears_at_sectors() -> None:
    seen = set()
    for seed in range(40):
        disk = synced_pair()
        disk.chance = random.Random(seed)
        disk.write("a", 0, b"B" * 2048)
        disk.power_lost(keep=0.5)
        data = disk.read("a", 0, 2048)
        sectors = [data[at : at + 512] for at in range(0, 2048, 512)]
        assert all(sector in (b"A" * 512, b"B" * 512) for sector in sectors)
        seen.add(bytes(sector[0] for sector in sectors))
    assert len(seen) > 8, "any subset of the sectors may be lost"


def test_a_rename_without_a_sync_of_the_directory_may_be_lost() -> None:
    disk = synced_pair()
    disk.rename("a", "b")
    disk.power_lost(keep=0.0)
    assert disk.names() == ["a"]
    disk.rename("a", "b")
    disk.sync_directory()
    disk.power_lost(keep=0.0)
    assert disk.names() == ["b"]


def test_a_killed_process_loses_nothing_but_its_lock() -> None:
    disk = synced_pair()
    assert disk.lock() and not disk.lock()
    disk.write("a", 0, b"B")
    disk.killed()
    assert disk.lock()
    assert disk.read("a", 0, 1) == b"B"


def test_a_failed_sync_shows_bytes_that_are_not_on_the_platter() -> None:
    disk = synced_pair()
    disk.fail_syncs = True
    disk.chance = random.Random(1)
    disk.write("a", 0, b"B" * 2048)
    assert fault_of(lambda: disk.sync("a")).number == EIO
    disk.fail_syncs = False
    disk.sync("a")  # succeeds, and has written nothing
    assert disk.read("a", 0, 2048) == b"B" * 2048
    disk.power_lost(keep=1.0)
    assert b"A" in disk.read("a", 0, 2048)


def test_a_full_simulated_disk_refuses_to_allocate_and_still_writes() -> None:
    disk = SimDisk(random.Random(1), capacity_bytes=1000)
    disk.create("a", 800)
    assert fault_of(lambda: disk.create("b", 300)).full()
    disk.write("a", 0, b"x" * 800)
    assert disk.free_bytes() == 200
    disk.remove("a")
    disk.create("b", 300)


def test_a_file_that_is_removed_or_renamed_under_a_sync_stays_open_until_its_end(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    for change in (lambda: disk.remove("a"), lambda: disk.rename("a", "b")):
        disk.create("a", 4096)
        disk.write("a", 0, b"x")
        file = disk.begin_sync("a")
        change()
        os.fdatasync(file)
        disk.end_sync("a", 0)
    disk.create("c", 4096)
    file = disk.begin_sync("c")
    disk.remove("c")
    disk.end_sync("c", 0)
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(file)
    disk.close()


def test_a_sync_that_failed_is_a_fault_and_its_file_stays_unsynced(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    disk.create("a", 4096)
    file = disk.begin_sync("a")
    fault = fault_of(lambda: disk.end_sync("a", EIO))
    assert (fault.number, fault.call, fault.name) == (EIO, "sync", "a")
    for number in range(40):
        disk.create(f"other{number}", 0)
        disk.sync(f"other{number}")
    os.fstat(file)  # not closed as idle: only this descriptor is sure to hear of a lost write
    assert fault_of(lambda: disk.begin_sync("missing")).number == ENOENT
    disk.close()
