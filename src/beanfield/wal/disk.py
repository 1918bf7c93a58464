"""The directory of one slot as the log sees it, and the errors it may meet there.

A base class without behaviour: io/disk.py is the real one, sim/disk.py the simulated one, and both pass the same
conformance tests. Rules that every implementation keeps:
- Names are plain names in one directory. Calls return when the system call has; nothing is durable before `sync` of
  that file (contents and size) or `sync_directory` (names).
- `write` writes everything or raises. A short write is continued; what was written before an error may stay.
- Every error is a DiskFault. A DiskFault that is `full` leaves the file usable; after any other one the page cache is
  not to be trusted, and the owner of the log stops.
- `sync` and the requests of wal/requests.py may run in a helper thread while the loop writes to other places.
"""

from typing import Final

from mypy_extensions import i64, mypyc_attr

ENOSPC: Final = 28
EDQUOT: Final = 122
EIO: Final = 5


class DiskFault(Exception):
    """A call on a file failed. `number` is the errno."""

    def __init__(self, number: int, call: str, name: str) -> None:
        super().__init__(f"{call} {name}: errno {number}")
        self.number = number
        self.call = call
        self.name = name

    def full(self) -> bool:
        """No space (or quota): an answer, not a fault of the disk."""
        return self.number == ENOSPC or self.number == EDQUOT


@mypyc_attr(native_class=True, allow_interpreted_subclasses=True)
class Disk:
    """One directory."""

    def names(self) -> list[str]:
        """All names in it, in no order."""
        raise NotImplementedError

    def size(self, name: str) -> int:
        """Bytes of a file; a missing one is a DiskFault (ENOENT)."""
        raise NotImplementedError

    def read(self, name: str, offset: i64, length: i64) -> bytes:
        """Shorter only at the end of the file."""
        raise NotImplementedError

    def create(self, name: str, length: i64) -> None:
        """A file of `length` zeros, its blocks really allocated; an older one of that name is replaced.

        Whatever fails, no file of that name is left.
        """
        raise NotImplementedError

    def write(self, name: str, offset: i64, data: bytes) -> None:
        """Overwrites inside the allocated length; never makes a file longer."""
        raise NotImplementedError

    def sync(self, name: str) -> None:
        """Contents and size are durable on return."""
        raise NotImplementedError

    def sync_directory(self) -> None:
        """All names made, renamed and removed before are durable on return."""
        raise NotImplementedError

    def rename(self, old: str, new: str) -> None:
        """Atomic; replaces `new`."""
        raise NotImplementedError

    def remove(self, name: str) -> None:
        """The name is gone at once, durably after sync_directory. A missing one is a DiskFault (ENOENT)."""
        raise NotImplementedError

    def lock(self) -> bool:
        """Takes the directory's lock for as long as this object is open; False: another process has it."""
        raise NotImplementedError

    def free_bytes(self) -> int:
        """What an unprivileged process could still allocate, as the file system says."""
        raise NotImplementedError

    def close(self) -> None:
        """Closes every descriptor and gives the lock back. What is not synced stays with the kernel."""
        raise NotImplementedError
