"""A data root that a tool fills: all slots open at once, topology.json last, nothing left behind when it fails.

Only what this object has made is ever removed: the directory must have counted as empty, and it is locked.
"""

import os
import shutil
from typing import Final

from beanfield.constants import EXIT_BAD_DATA, EXIT_DISK
from beanfield.engine.job import Job
from beanfield.io.disk import RealDisk
from beanfield.io.root import SLOTS_NAME, RootFault, begin_root, finish_root, read_topology
from beanfield.offline.slot_writer import SlotFull, SlotWriter
from beanfield.routing import Topology
from beanfield.wal.disk import DiskFault
from beanfield.wal.segments import LOCK_NAME

NONCE_BYTES: Final = 16


class NewRoot:
    """Raises RootFault wherever the directory or the disk does not allow it."""

    def __init__(self, path: str, topology: Topology, segment_bytes: int, next_sequence: int) -> None:
        self.path: Final = path
        self.topology: Final = topology
        self._made_directory = _make_directory(path)
        self._extra_files: list[str] = []
        try:
            self._root = begin_root(path, topology)
        except RootFault:
            if self._made_directory:
                os.rmdir(path)
            raise
        self.slots: Final[list[SlotWriter]] = []
        try:
            for slot in range(int(topology.slots)):
                disk = RealDisk(self._root.slot_path(slot))
                nonce = os.urandom(NONCE_BYTES)
                self.slots.append(SlotWriter(disk, slot, topology, segment_bytes, next_sequence, nonce))
        except (DiskFault, SlotFull) as error:
            self.abandon()
            raise _disk_fault(path, error) from error

    def add(self, job: Job, tube_name: bytes) -> None:
        """Into the slot of its tube."""
        try:
            self.slots[self.topology.slot_of_name(tube_name)].add(job, tube_name)
        except (DiskFault, SlotFull) as error:
            raise _disk_fault(self.path, error) from error

    def extra_file(self, name: str, data: bytes) -> None:
        """A file beside topology.json, durable before that. May be called again to append."""
        whole = os.path.join(self.path, name)
        if name not in self._extra_files:
            self._extra_files.append(name)
        try:
            with open(whole, "ab") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise RootFault(EXIT_DISK, f"{whole}: {error.strerror}") from error

    def pause(self, tube_name: bytes, pause_s: int, until_wall_ns: int) -> None:
        """Of a tube that has jobs."""
        try:
            self.slots[self.topology.slot_of_name(tube_name)].pause(tube_name, pause_s, until_wall_ns)
        except (DiskFault, SlotFull) as error:
            raise _disk_fault(self.path, error) from error

    def finish(self, created_ns_max: int = 0) -> None:
        """From here on it is a data root. created_ns_max: no new job is to be older than that."""
        try:
            for slot in self.slots:
                slot.created(created_ns_max)
                slot.finish()
        except (DiskFault, SlotFull) as error:
            raise _disk_fault(self.path, error) from error
        finish_root(self._root)
        self._root.close()

    def abandon(self) -> None:
        """Removes all that was made, as far as the disk lets it."""
        for slot in self.slots:
            slot.abandon()
        shutil.rmtree(os.path.join(self.path, SLOTS_NAME), ignore_errors=True)
        for name in self._extra_files:
            os.unlink(os.path.join(self.path, name))
        if self._made_directory:
            os.unlink(os.path.join(self.path, LOCK_NAME))
            os.rmdir(self.path)
        self._root.close()


def check_new(path: str) -> None:
    """Whether a new root can be begun there, without changing anything. Raises RootFault if not."""
    if not os.path.lexists(path):
        parent = os.path.dirname(os.path.abspath(path))
        if not os.path.isdir(parent):
            raise RootFault(EXIT_BAD_DATA, f"{path}: cannot be made: {parent} is no directory")
    elif read_topology(path) is not None:
        raise RootFault(EXIT_BAD_DATA, f"{path}: is a data root already; give an empty directory")


def _make_directory(path: str) -> bool:
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return False
    except OSError as error:
        raise RootFault(EXIT_BAD_DATA, f"{path}: cannot be made: {error.strerror}") from error
    return True


def _disk_fault(path: str, error: DiskFault | SlotFull) -> RootFault:
    why = "the disk is full" if isinstance(error, SlotFull) else str(error)
    return RootFault(EXIT_DISK, f"{path}: {why}; what was written there has been removed")
