"""What control groups leave of a machine, from sample files."""

import os
from pathlib import Path

import pytest

from beanfield.io import machine

LINES_OF_OLD_GROUPS = "5:cpu,cpuacct:/a\n3:memory:/a\n"


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty hierarchy, with this process in /a/b, on a machine of 8 cores."""
    monkeypatch.setattr(machine, "CGROUP_ROOT", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    read = machine._read
    monkeypatch.setattr(machine, "_read", lambda path: "0::/a/b" if str(path) == "/proc/self/cgroup" else read(path))
    (tmp_path / "a" / "b").mkdir(parents=True)
    return tmp_path


def test_without_limits_all_of_the_machine_is_usable(groups: Path) -> None:
    (groups / "a" / "cpu.max").write_text("max 100000\n")
    (groups / "a" / "memory.max").write_text("max\n")
    assert machine.usable_cores() == 8
    assert machine.usable_memory_bytes() == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_smallest_quota_on_the_way_up_counts_rounded_down(groups: Path) -> None:
    (groups / "a" / "cpu.max").write_text("250000 100000\n")
    (groups / "a" / "b" / "cpu.max").write_text("600000 100000\n")
    assert machine.usable_cores() == 2
    (groups / "cpu.max").write_text("50000 100000\n")
    assert machine.usable_cores() == 1


def test_smallest_memory_limit_on_the_way_up_counts(groups: Path) -> None:
    (groups / "a" / "memory.max").write_text("1048576\n")
    (groups / "a" / "b" / "memory.max").write_text("2097152\n")
    assert machine.usable_memory_bytes() == 1048576


def test_old_control_groups_are_read_too(groups: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = machine._read
    monkeypatch.setattr(
        machine, "_read", lambda path: LINES_OF_OLD_GROUPS if str(path) == "/proc/self/cgroup" else read(path)
    )
    (groups / "cpu" / "a").mkdir(parents=True)
    (groups / "memory" / "a").mkdir(parents=True)
    (groups / "cpu" / "a" / "cpu.cfs_quota_us").write_text("300000\n")
    (groups / "cpu" / "a" / "cpu.cfs_period_us").write_text("100000\n")
    (groups / "memory" / "a" / "memory.limit_in_bytes").write_text("2097152\n")
    assert machine.usable_cores() == 3
    assert machine.usable_memory_bytes() == 2097152
