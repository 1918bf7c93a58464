"""A disk that is soon full: a file system of its own where that can be mounted, else one that says so when told."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.processes.faulty_disk import FaultyDisks

FILLER_BYTES = 1 << 16


class SmallDisk:
    """`path` is an empty directory on it; `environment` is for the server."""

    def __init__(self, folder: Path, mounted: bool) -> None:
        self.path = folder / "disk"
        self.path.mkdir(exist_ok=True)
        self.environment: dict[str, str] = {}
        self._mounted = mounted
        self._faulty = None if mounted else FaultyDisks(folder)
        if self._faulty is not None:
            self.environment = self._faulty.environment

    def fill(self) -> None:
        """Not one block is left."""
        if self._faulty is not None:
            self._faulty.fail("full", 0)
            return
        with (self.path / "filler").open("wb", buffering=0) as filler:
            size = FILLER_BYTES
            while size >= 1:
                try:
                    filler.write(bytes(size))
                except OSError:
                    size //= 2

    def give_back(self) -> None:
        if self._faulty is not None:
            self._faulty.mend("full", 0)
        else:
            (self.path / "filler").unlink()


@contextmanager
def small_disk(folder: Path, own_file_system: bool, megabytes: int = 4) -> Iterator[SmallDisk]:
    """Mounting takes rights that not every test run has; then the faulty disk takes the place of the full one."""
    place = folder / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(place)]
    mounted = own_file_system and subprocess.run(mount, capture_output=True, check=False).returncode == 0
    try:
        yield SmallDisk(folder, mounted)
    finally:
        if mounted:
            subprocess.run(["umount", str(place)], check=True)
