"""A simulated disk: the same interface as the real one, a page cache in memory, and everything that can go wrong.

What a file holds in the cache and what is on the platter are two things, and so are names. `sync` moves a file's
dirty sectors over, `sync_directory` the names. A killed process loses nothing (`killed`); a power loss keeps an
arbitrary part of what was not synced, sector by sector and name by name (`power_lost`). A failed sync does what Linux
does: it reports the error once, forgets which sectors were dirty, and goes on showing the cached bytes.

Faults are switched on by attributes. All chance comes from the Random that is given.
"""

import copy
import random

from beanfield.wal.disk import EIO, ENOSPC, Disk, DiskFault
from beanfield.wal.segments import LOCK_NAME

SECTOR_BYTES = 512
ENOENT = 2


class Inode:
    """One file. `dirty`: sectors whose cached bytes may differ from the durable ones."""

    def __init__(self, length: int) -> None:
        self.cached = bytearray(length)
        self.durable = bytearray(length)
        self.durable_length = 0  # the size is metadata: durable with the first sync
        self.dirty: set[int] = set()


class SimDisk(Disk):
    """One directory. capacity_bytes: how much all its files may take together; None: any amount."""

    def __init__(self, chance: random.Random, capacity_bytes: int | None = None) -> None:
        self.chance = chance
        self.capacity_bytes = capacity_bytes
        self.entries: dict[str, Inode] = {}
        self.durable_entries: dict[str, Inode] = {}
        self.name_changes: list[tuple[str, str, Inode]] = []  # ("link" | "unlink", name, inode) not yet durable
        self.locked = False
        # Faults, until switched off.
        self.fail_writes = False  # every write: EIO
        self.fail_syncs = False  # every sync: EIO
        self.refuse_writes = False  # every write: ENOSPC, as on a copy-on-write file system
        self.short_writes = 0.0  # probability that a write stops half way with EIO
        # What the simulated helper waits before it does a call.
        self.latency_ns_min = 0
        self.latency_ns_max = 0
        self.calls = 0
        self.stop_after_calls = -1  # >= 0: the process dies before that call: SimStopped
        self.tears_writes = False  # ... or in the middle of it, if it is a write

    def __deepcopy__(self, memo: dict[int, object]) -> "SimDisk":
        """Written out: what copy does by itself loses the attributes of a subclass of a compiled class."""
        other = SimDisk(self.chance, self.capacity_bytes)
        memo[id(self)] = other
        for name, value in vars(self).items():
            setattr(other, name, copy.deepcopy(value, memo))
        return other

    # ---------------------------------------------------------------- the interface
    def names(self) -> list[str]:
        return list(self.entries)

    def size(self, name: str) -> int:
        return len(self._inode(name, "stat").cached)

    def read(self, name: str, offset: int, length: int) -> bytes:
        return bytes(self._inode(name, "read").cached[offset : offset + length])

    def create(self, name: str, length: int) -> None:
        self._count()
        old = self.entries.get(name)
        freed = len(old.cached) if old is not None else 0
        if self.capacity_bytes is not None and self.used_bytes() - freed + length > self.capacity_bytes:
            if old is not None:
                self._unlink(name)
            raise DiskFault(ENOSPC, "allocate", name)
        if old is not None:
            self._unlink(name)
        inode = Inode(length)
        self.entries[name] = inode
        self.name_changes.append(("link", name, inode))

    def write(self, name: str, offset: int, data: bytes) -> None:
        if self.tears_writes and 0 <= self.stop_after_calls == self.calls and self.chance.random() < 0.5:
            self._put(self._inode(name, "write"), offset, data[: self.chance.randrange(len(data) + 1)])
        self._count()
        inode = self._inode(name, "write")
        assert offset + len(data) <= len(inode.cached), "a write past the end of an allocated file"
        if self.refuse_writes:
            raise DiskFault(ENOSPC, "write", name)
        if self.fail_writes:
            raise DiskFault(EIO, "write", name)
        short = self.short_writes > 0 and self.chance.random() < self.short_writes
        if short:
            data = data[: self.chance.randrange(len(data) + 1)]
        self._put(inode, offset, data)
        if short:
            raise DiskFault(EIO, "write", name)

    def sync(self, name: str) -> None:
        self._count()
        inode = self._inode(name, "sync")
        if self.fail_syncs:
            # Some sectors may have been written before the error; the others are shown, clean, and not on the platter.
            for sector in sorted(inode.dirty):
                if self.chance.random() < 0.5:
                    self._sector_out(inode, sector)
            inode.dirty.clear()
            raise DiskFault(EIO, "sync", name)
        for sector in inode.dirty:
            self._sector_out(inode, sector)
        inode.dirty.clear()
        inode.durable_length = len(inode.cached)

    def sync_directory(self) -> None:
        self._count()
        if self.fail_syncs:
            raise DiskFault(EIO, "sync", ".")
        self.durable_entries = dict(self.entries)
        self.name_changes.clear()

    def rename(self, old: str, new: str) -> None:
        self._count()
        inode = self._inode(old, "rename")
        del self.entries[old]
        self.entries[new] = inode
        self.name_changes.append(("rename " + old, new, inode))

    def remove(self, name: str) -> None:
        self._count()
        self._inode(name, "remove")
        self._unlink(name)

    def lock(self) -> bool:
        if self.locked:
            return False
        self.locked = True
        if LOCK_NAME not in self.entries:
            self.entries[LOCK_NAME] = Inode(0)
        return True

    def free_bytes(self) -> int:
        if self.capacity_bytes is None:
            return 1 << 50
        return max(0, self.capacity_bytes - self.used_bytes())

    def close(self) -> None:
        self.locked = False

    # ---------------------------------------------------------------- what only a simulation can do
    def used_bytes(self) -> int:
        return sum(len(inode.cached) for inode in self.entries.values())

    def draw_latency_ns(self) -> int:
        """How long the next call of a helper takes."""
        return self.chance.randint(self.latency_ns_min, self.latency_ns_max)

    def killed(self) -> None:
        """The process is gone; the kernel and its cache live on."""
        self.locked = False
        self.stop_after_calls = -1

    def power_lost(self, keep: float | None = None) -> None:
        """Each unsynced sector and name is kept with probability `keep` (drawn, if not given); the cache is gone."""
        self.killed()
        share = self.chance.choice((0.0, 0.1, 0.5, 0.9, 1.0)) if keep is None else keep
        entries = dict(self.durable_entries)
        for change, name, inode in self.name_changes:
            if self.chance.random() >= share:
                continue
            if change == "unlink":
                entries.pop(name, None)
            else:
                if change.startswith("rename "):
                    entries.pop(change[len("rename ") :], None)
                entries[name] = inode
        for name in sorted(entries):
            inode = entries[name]
            for sector in sorted(inode.dirty):
                if self.chance.random() < share:
                    self._sector_out(inode, sector)
            inode.dirty.clear()
            if inode.durable_length != len(inode.cached) and self.chance.random() >= share:
                # Created, never synced: nobody knows how long it is.
                length = self.chance.randrange(len(inode.cached) + 1)
                del inode.durable[length:]
            inode.cached = bytearray(inode.durable)
            inode.durable_length = len(inode.cached)
        self.entries = entries
        self.durable_entries = dict(entries)
        self.name_changes.clear()

    def cache_dropped(self) -> None:
        """Memory pressure: clean pages are forgotten and read from the platter again; dirty ones stay."""
        for inode in self.entries.values():
            for sector in range((len(inode.cached) + SECTOR_BYTES - 1) // SECTOR_BYTES):
                if sector not in inode.dirty:
                    start = sector * SECTOR_BYTES
                    inode.cached[start : start + SECTOR_BYTES] = inode.durable[start : start + SECTOR_BYTES]

    def flip(self, name: str, offset: int, mask: int = 1) -> None:
        """A bit rots, on the platter and in the cache."""
        inode = self.entries[name]
        inode.cached[offset] ^= mask
        inode.durable[offset] ^= mask

    def truncated(self, name: str, length: int) -> None:
        inode = self.entries[name]
        del inode.cached[length:]
        del inode.durable[length:]

    def checksum(self) -> dict[str, bytes]:
        """All names and bytes, to compare."""
        return {name: bytes(inode.cached) for name, inode in self.entries.items()}

    def _inode(self, name: str, call: str) -> Inode:
        inode = self.entries.get(name)
        if inode is None:
            raise DiskFault(ENOENT, call, name)
        return inode

    def _unlink(self, name: str) -> None:
        inode = self.entries.pop(name)
        self.name_changes.append(("unlink", name, inode))

    def _sector_out(self, inode: Inode, sector: int) -> None:
        start = sector * SECTOR_BYTES
        inode.durable[start : start + SECTOR_BYTES] = inode.cached[start : start + SECTOR_BYTES]

    def _put(self, inode: Inode, offset: int, data: bytes) -> None:
        inode.cached[offset : offset + len(data)] = data
        inode.dirty.update(range(offset // SECTOR_BYTES, (offset + len(data) + SECTOR_BYTES - 1) // SECTOR_BYTES))

    def _count(self) -> None:
        self.calls += 1
        if 0 <= self.stop_after_calls < self.calls:
            raise SimStopped


class SimStopped(BaseException):
    """The process ended between two calls on the disk."""
