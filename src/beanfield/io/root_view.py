"""A data root, or one slot directory, as tools look at it: which slots, which topology, and whether a server runs.

Reads only. What is wrong with the root itself is a list of damage, as with logs, and as much as possible is found
all the same. The lock is not taken by looking; `hold` takes it, for tools that need the root to stay as it is.
"""

import os
from typing import Final, Self

from beanfield.constants import EXIT_BAD_DATA, SLOTS_MAX, TOPOLOGY_BYTES_MAX
from beanfield.io.locks import hold_lock, lock_holder
from beanfield.io.root import EXIT_LOCK, SLOTS_NAME, TOPOLOGY_NAME, RootFault, slot_path
from beanfield.offline.finding_topology import Identity, find_topology
from beanfield.routing import Topology, TopologyError, parse_topology
from beanfield.wal.damage import LogDamage
from beanfield.wal.segments import IDENTITY_NAME, LOCK_NAME, SEGMENT_PREFIX

_IDENTITY_BYTES_MAX = 4096


class RootView:
    """Raises RootFault where there is nothing to look at."""

    def __init__(self, path: str) -> None:
        self.path: Final = path
        self.damage: Final[list[LogDamage]] = []
        self.topology_found = False  # topology.json was of no use; it follows from an identity
        self._locks: list[int] = []
        try:
            names = os.listdir(path)
        except OSError as error:
            raise RootFault(EXIT_BAD_DATA, f"{path}: {error.strerror}") from error
        self.is_slot: Final = TOPOLOGY_NAME not in names and SLOTS_NAME not in names and _is_slot(names)
        if not self.is_slot and TOPOLOGY_NAME not in names and SLOTS_NAME not in names:
            hint = ""
            if any(name.startswith("binlog.") for name in names):
                hint = f"; it is a log of beanstalkd: `beanfield import {path} --to NEW_DIR` copies its jobs"
            raise RootFault(EXIT_BAD_DATA, f"{path}: has no {TOPOLOGY_NAME} and is no slot's directory{hint}")
        self.root_path: Final = os.path.dirname(os.path.dirname(os.path.abspath(path))) if self.is_slot else path
        present = {0: path} if self.is_slot else self._slot_directories()
        self.topology: Final = self._read_topology(present)
        self.slots: Final = self._slots(present)

    # ---------------------------------------------------------------- locks
    def server(self) -> int:
        """The process that has the root or one of its slots locked; 0: none. -1: one of another machine."""
        for directory in self._locked_directories():
            if not self._locks and (pid := lock_holder(os.path.join(directory, LOCK_NAME))):
                return pid
        return 0

    def hold(self) -> None:
        """Keeps servers away while this object is open; RootFault if one runs."""
        for directory in self._locked_directories():
            lock = os.path.join(directory, LOCK_NAME)
            try:
                held = hold_lock(lock)
            except OSError as error:
                raise RootFault(EXIT_BAD_DATA, f"{lock}: {error.strerror}") from error
            if held is None:
                raise RootFault(EXIT_LOCK, f"{lock}: a server runs on this data root; stop it first")
            if held >= 0:
                self._locks.append(held)

    def _locked_directories(self) -> list[str]:
        """A slot directory that was copied elsewhere has no root above it."""
        has_root = not self.is_slot or os.path.exists(os.path.join(self.root_path, TOPOLOGY_NAME))
        return [*([self.root_path] if has_root else []), *self.slots.values()]

    def close(self) -> None:
        for lock in self._locks:
            os.close(lock)
        self._locks.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---------------------------------------------------------------- reading
    def _slot_directories(self) -> dict[int, str]:
        slots = os.path.join(self.path, SLOTS_NAME)
        if not os.path.isdir(slots):
            return {}
        names = [name for name in os.listdir(slots) if len(name) == 3 and name.isascii() and name.isdigit()]
        return {int(name): os.path.join(slots, name) for name in sorted(names) if int(name) < SLOTS_MAX}

    def _read_topology(self, present: dict[int, str]) -> Topology:
        name = os.path.join(self.root_path, TOPOLOGY_NAME)
        try:
            with open(name, "rb") as file:
                return parse_topology(file.read(TOPOLOGY_BYTES_MAX + 1))
        except FileNotFoundError:
            fault = "is missing"
        except (OSError, TopologyError) as error:
            fault = str(error)
        slots = None if self.is_slot else max(present, default=-1) + 1
        for directory in present.values():
            topology = find_topology(_identity(directory), slots or None)
            if topology is not None:
                self.topology_found = True
                shape = f"{topology.partitions} partitions over {topology.slots} slots"
                if not self.is_slot:
                    advice = "`beanfield wal salvage` makes a root that can be started"
                    self.damage.append(LogDamage(TOPOLOGY_NAME, -1, f"{fault}; the identities say {shape}", advice))
                return topology
        raise RootFault(EXIT_BAD_DATA, f"{name}: {fault}; without it nobody can tell what belongs where: put it back")

    def _slots(self, present: dict[int, str]) -> dict[int, str]:
        """Directories by slot; missing ones are damage."""
        if self.is_slot:
            identity = _identity(self.path)
            name = os.path.basename(os.path.abspath(self.path))
            by_name = int(name) if name.isascii() and name.isdigit() and int(name) < self.topology.slots else 0
            return {by_name if identity.fault else identity.slot: self.path}
        found = {}
        for slot in range(int(self.topology.slots)):
            if slot in present:
                found[slot] = present[slot]
            else:
                path = slot_path(self.path, slot)
                self.damage.append(LogDamage(path, -1, "is missing", "put back the directory; nothing was changed"))
        for slot, path in present.items():
            if slot >= self.topology.slots:
                fault = f"belongs to no slot: there are {self.topology.slots}"
                self.damage.append(LogDamage(path, -1, fault, "move it away; nothing was changed"))
        return found


def _is_slot(names: list[str]) -> bool:
    return IDENTITY_NAME in names or any(name.startswith(SEGMENT_PREFIX) for name in names)


def _identity(directory: str) -> Identity:
    try:
        with open(os.path.join(directory, IDENTITY_NAME), "rb") as file:
            return Identity(file.read(_IDENTITY_BYTES_MAX))
    except OSError:
        return Identity(b"")
