"""The real disk: one slot directory, through descriptors relative to it. The interface and its rules: wal/disk.py.

`write`, `begin_sync` and `end_sync` are called by the loop, everything else by helpers too; which files are open is
open_files.py's business. This file knows no records.
"""

import errno
import fcntl
import os

from beanfield.io.open_files import OpenFile, OpenFiles
from beanfield.wal.disk import Disk, DiskFault
from beanfield.wal.segments import LOCK_NAME

_ZERO_BYTES = 1 << 20
_FILE_MODE = 0o600


class RealDisk(Disk):
    """A directory that exists. Never creates or removes it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._files = OpenFiles(self._open)
        self._lock_file = -1
        self._syncing: OpenFile | None = None  # between begin_sync and end_sync
        self._writes_begun = 0  # of it, before the sync
        try:
            self._directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise _fault(error, "open", path) from error

    def names(self) -> list[str]:
        try:
            return os.listdir(self._directory)
        except OSError as error:
            raise _fault(error, "list", self.path) from error

    def size(self, name: str) -> int:
        try:
            with self._files.using(name) as file:
                return os.fstat(file).st_size
        except OSError as error:
            raise _fault(error, "stat", name) from error

    def read(self, name: str, offset: int, length: int) -> bytes:
        pieces: list[bytes] = []
        try:
            with self._files.using(name) as file:
                while length > 0:
                    piece = os.pread(file, length, offset)
                    if not piece:
                        break
                    pieces.append(piece)
                    offset += len(piece)
                    length -= len(piece)
        except OSError as error:
            raise _fault(error, "read", name) from error
        return b"".join(pieces)

    def create(self, name: str, length: int) -> None:
        try:
            self.remove(name)
        except DiskFault as fault:
            if fault.number != errno.ENOENT:
                raise
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            file = self._files.open_with(lambda: os.open(name, flags, _FILE_MODE, dir_fd=self._directory))
        except OSError as error:
            raise _fault(error, "create", name) from error
        try:
            _allocate(file, length)
        except OSError as error:
            os.close(file)
            os.unlink(name, dir_fd=self._directory)
            raise _fault(error, "allocate", name) from error
        self._files.add(name, file)

    def write(self, name: str, offset: int, data: bytes) -> None:
        try:
            entry = self._files.take(name, writing=True)
            try:
                written = os.pwrite(entry.file, data, offset)
                while written < len(data):
                    # Short: the disk is about to be full, or a signal came. Only the next call says which.
                    data = data[written:]
                    offset += written
                    written = os.pwrite(entry.file, data, offset)
            finally:
                self._files.give_back(entry)
        except OSError as error:
            raise _fault(error, "write", name) from error

    def sync(self, name: str) -> None:
        try:
            entry = self._files.take(name)
            writes_begun = entry.writes
            writes_synced = 0
            try:
                os.fdatasync(entry.file)
                writes_synced = writes_begun
            finally:
                self._files.give_back(entry, writes_synced)
        except OSError as error:
            raise _fault(error, "sync", name) from error

    def begin_sync(self, name: str) -> int:
        """A descriptor that the caller syncs, out of the way, and then says so by end_sync. One at a time.

        -1: this disk wants to be asked by `sync`.
        """
        assert self._syncing is None
        try:
            self._syncing = self._files.take(name)
        except OSError as error:
            raise _fault(error, "sync", name) from error
        self._writes_begun = self._syncing.writes
        return self._syncing.file

    def end_sync(self, name: str, number: int) -> None:
        """`number`: the errno of the sync, or 0."""
        assert self._syncing is not None
        self._files.give_back(self._syncing, self._writes_begun if number == 0 else 0)
        self._syncing = None
        if number != 0:
            raise DiskFault(number, "sync", name)

    def sync_directory(self) -> None:
        try:
            os.fsync(self._directory)
        except OSError as error:
            raise _fault(error, "sync", self.path) from error

    def rename(self, old: str, new: str) -> None:
        try:
            os.rename(old, new, src_dir_fd=self._directory, dst_dir_fd=self._directory)
        except OSError as error:
            raise _fault(error, "rename", old) from error
        self._files.renamed(old, new)

    def remove(self, name: str) -> None:
        try:
            os.unlink(name, dir_fd=self._directory)
        except OSError as error:
            raise _fault(error, "remove", name) from error
        self._files.removed(name)

    def lock(self) -> bool:
        """A POSIX lock: it ends with the process, however that ends."""
        if self._lock_file >= 0:
            return True
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        try:
            file = os.open(LOCK_NAME, flags, _FILE_MODE, dir_fd=self._directory)
        except OSError as error:
            raise _fault(error, "open", LOCK_NAME) from error
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(file)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                return False
            raise _fault(error, "lock", LOCK_NAME) from error
        self._lock_file = file
        return True

    def free_bytes(self) -> int:
        try:
            found = os.fstatvfs(self._directory)
        except OSError as error:
            raise _fault(error, "statvfs", self.path) from error
        return found.f_bavail * found.f_frsize

    def close(self) -> None:
        self._files.close()
        if self._lock_file >= 0:
            os.close(self._lock_file)
            self._lock_file = -1
        if self._directory >= 0:
            os.close(self._directory)
            self._directory = -1

    def _open(self, name: str) -> int:
        """For reading and writing; where that is not allowed (a read-only file system), for reading alone."""
        try:
            return os.open(name, os.O_RDWR | os.O_CLOEXEC, dir_fd=self._directory)
        except OSError as error:
            if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
                raise
        return os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._directory)


def _allocate(file: int, length: int) -> None:
    """Really allocates. Where the file system has no call for it, zeros are written."""
    if length == 0:
        return
    try:
        os.posix_fallocate(file, 0, length)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            raise
        offset = 0
        while offset < length:
            offset += os.pwrite(file, bytes(min(_ZERO_BYTES, length - offset)), offset)


def _fault(error: OSError, call: str, name: str) -> DiskFault:
    return DiskFault(error.errno or errno.EIO, call, name)
