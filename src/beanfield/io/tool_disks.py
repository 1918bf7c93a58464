"""Slot directories as offline tools use them: one that is only looked at, and one that is filled.

Unlike an owner, a tool goes once through any number of files, so neither keeps many descriptors: an idle one is closed
before the next file is opened. A file that is written is kept open until it is synced, since only the descriptor
through which a write went is sure to hear of its failure.
"""

import errno
import os

from beanfield.io.disk import RealDisk
from beanfield.wal.disk import DiskFault

OPEN_FILES_MAX = 16  # idle ones, per slot; then all idle ones are closed


class ToolDisk(RealDisk):
    """Closes idle files. One thread only."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.unsynced: set[str] = set()  # names that were written and not synced

    def create(self, name: str, length: int) -> None:
        self._close_idle()
        super().create(name, length)

    def write(self, name: str, offset: int, data: bytes) -> None:
        self.unsynced.add(name)
        super().write(name, offset, data)

    def sync(self, name: str) -> None:
        super().sync(name)
        self.unsynced.discard(name)

    def rename(self, old: str, new: str) -> None:
        super().rename(old, new)
        if old in self.unsynced:
            self.unsynced.remove(old)
            self.unsynced.add(new)

    def remove(self, name: str) -> None:
        super().remove(name)
        self.unsynced.discard(name)

    def _file(self, name: str) -> int:
        if name not in self._files:
            self._close_idle()
        return super()._file(name)

    def _close_idle(self) -> None:
        idle = [name for name in self._files if name not in self.unsynced]
        if len(idle) < OPEN_FILES_MAX:
            return
        for name in idle:
            os.close(self._files.pop(name))


class ReadOnlyDisk(ToolDisk):
    """Takes no lock and opens no file for writing; what would change one is a bug."""

    def _open(self, name: str) -> int:
        try:
            return os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._directory)
        except OSError as error:
            raise DiskFault(error.errno or errno.EIO, "open", name) from error

    def create(self, name: str, length: int) -> None:
        raise AssertionError(f"{name} would be made in a directory that is only read")

    def write(self, name: str, offset: int, data: bytes) -> None:
        raise AssertionError(f"{name} would be written in a directory that is only read")

    def sync(self, name: str) -> None:
        raise AssertionError(f"{name} would be synced in a directory that is only read")

    def sync_directory(self) -> None:
        raise AssertionError("a directory that is only read would be synced")

    def rename(self, old: str, new: str) -> None:
        raise AssertionError(f"{old} would be renamed in a directory that is only read")

    def remove(self, name: str) -> None:
        raise AssertionError(f"{name} would be removed from a directory that is only read")

    def lock(self) -> bool:
        raise AssertionError("a directory that is only read would be locked")
