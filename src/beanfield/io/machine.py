"""What this process may use of the machine: cores and memory, as affinity and control groups leave them.

Everything unreadable counts as "no limit". Called once, at the start.
"""

import os
from pathlib import Path

CGROUP_ROOT = Path("/sys/fs/cgroup")


def usable_cores() -> int:
    """Cores by affinity, cut to a CPU quota rounded down, at least 1."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for folder in _cgroup_folders(""):
        words = _read(folder / "cpu.max").split()
        if len(words) == 2 and words[0].isdigit() and words[1].isdigit() and int(words[1]) > 0:
            cores = min(cores, int(words[0]) // int(words[1]))
    for folder in _cgroup_folders("cpu"):
        quota, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit() and int(period) > 0:
            cores = min(cores, int(quota) // int(period))
    return max(1, cores)


def usable_memory_bytes() -> int:
    """The machine's memory, or the smallest limit of the control groups around this process."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limits = [_read(folder / "memory.max") for folder in _cgroup_folders("")]
    limits += [_read(folder / "memory.limit_in_bytes") for folder in _cgroup_folders("memory")]
    for limit in limits:
        if limit.isdigit() and int(limit) > 0:
            memory = min(memory, int(limit))
    return memory


def _cgroup_folders(controller: str) -> list[Path]:
    """The folder of this process and all above it; controller "" is the unified hierarchy, else one of the old ones."""
    folders = []
    for line in _read(Path("/proc/self/cgroup")).splitlines():
        parts = line.split(":", 2)
        if len(parts) != 3 or (controller not in parts[1].split(",")):
            continue
        root = CGROUP_ROOT / controller if controller else CGROUP_ROOT
        inside = parts[2].strip("/")
        # In a container the path may be the host's, while the mount shows the container's own group as its root.
        folder = root / inside
        while folder != root:
            folders.append(folder)
            folder = folder.parent
        folders.append(root)
    return folders


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
