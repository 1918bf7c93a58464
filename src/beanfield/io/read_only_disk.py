"""A slot directory as offline tools look at it: nothing in it is ever changed."""

import os

from beanfield.io.disk import RealDisk


class ReadOnlyDisk(RealDisk):
    """Takes no lock and opens no file for writing; what would change one is a bug."""

    def _open(self, name: str) -> int:
        return os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._directory)

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
