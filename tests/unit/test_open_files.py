"""Descriptors of a slot directory: few, not closed while used or unsynced, some always in hand."""

import os
import resource
from pathlib import Path

import pytest

from beanfield.io.disk import RealDisk
from beanfield.io.open_files import KEPT, OpenFiles


def files_in(folder: Path, idle_max: int = 3) -> OpenFiles:
    return OpenFiles(lambda name: os.open(folder / name, os.O_RDWR | os.O_CREAT), idle_max)


def write(files: OpenFiles, name: str) -> int:
    entry = files.take(name, writing=True)
    os.write(entry.file, b"x")
    files.give_back(entry)
    return entry.file


def sync(files: OpenFiles, name: str) -> None:
    entry = files.take(name)
    os.fdatasync(entry.file)
    files.give_back(entry, entry.writes)


def is_open(file: int) -> bool:
    try:
        os.fstat(file)
    except OSError:
        return False
    return True


def test_idle_files_are_closed_when_there_are_many(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    for number in range(50):
        with files.using(f"f{number}"):
            pass
        assert files.count() <= 4
    files.close()


def test_what_was_written_stays_open_until_it_is_synced(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    written = write(files, "a")
    for number in range(10):
        with files.using(f"f{number}"):
            pass
    with files.using("a") as again:
        assert again == written
    sync(files, "a")
    for number in range(10):
        with files.using(f"f{number}"):
            pass
    assert files.count() <= 4
    files.close()


def test_a_write_during_a_sync_is_not_taken_for_synced(tmp_path: Path) -> None:
    files = files_in(tmp_path, idle_max=1)
    write(files, "a")
    entry = files.take("a")
    writes_begun = entry.writes
    file = write(files, "a")
    files.give_back(entry, writes_begun)
    with files.using("b"):
        pass
    assert is_open(file)
    files.close()


def test_a_sync_that_fails_leaves_the_file_unsynced(tmp_path: Path) -> None:
    files = files_in(tmp_path, idle_max=1)
    file = write(files, "a")
    files.give_back(files.take("a"))
    with files.using("b"):
        pass
    assert is_open(file)
    files.close()


def test_a_file_that_is_removed_while_it_is_used_is_closed_after(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    with files.using("a") as file:
        files.removed("a")
        assert is_open(file)
    assert not is_open(file)
    files.close()


def test_a_renamed_file_keeps_its_descriptor_and_replaces_the_other(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    with files.using("new") as old_file, files.using("temporary") as file:
        pass
    files.renamed("temporary", "new")
    assert not is_open(old_file)
    with files.using("new") as now:
        assert now == file
    files.close()


def test_a_log_can_change_segments_when_clients_have_taken_all_descriptors(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    disk.create("one", 4096)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 20, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            while True:
                taken.append(os.dup(0))
        for number in range(KEPT):
            disk.create(f"segment{number}", 4096)
            disk.write(f"segment{number}", 0, b"x" * 4096)
    finally:
        for file in taken:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    disk.close()


def test_descriptors_do_not_grow_with_the_number_of_files(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    before = len(os.listdir("/proc/self/fd"))
    for number in range(200):
        disk.create(f"body{number}", 10)
        disk.write(f"body{number}", 0, b"0123456789")
        disk.sync(f"body{number}")
    assert len(os.listdir("/proc/self/fd")) <= before + 20
    assert disk.read("body0", 0, 10) == b"0123456789"
    disk.close()
