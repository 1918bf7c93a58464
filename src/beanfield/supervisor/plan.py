"""What a server is to be: options completed by what the machine and the data root have, as every child is told it.

Read once at the start. Knows nothing of processes.
"""

import os
from typing import Final

from beanfield.cli.options import ServeOptions
from beanfield.constants import CLUSTER_ID_BYTES, EXIT_BAD_OPTION, FRONTENDS_MAX, PARTITIONS_DEFAULT, SLOTS_MAX
from beanfield.control import Message
from beanfield.io.machine import usable_memory_bytes
from beanfield.io.root import TOPOLOGY_NAME, Root, RootFault, open_or_create_root
from beanfield.ipc.frames import ROLE_OWNER
from beanfield.routing import Topology

RUN_ID_BYTES: Final = 16
MEMORY_PERCENT: Final = 80
COMBINED_CORES_MAX: Final = 2
SEGMENT_BYTES_SHOWN_MAX: Final = (1 << 63) - 1  # a larger -s comes to the same, and is shown as this


class ServerPlan:
    """The sizes, identities and settings of one run. With -b it opens the data root, and keeps it locked.

    Raises RootFault.
    """

    def __init__(self, options: ServeOptions, cores: int) -> None:
        partitions = options.partitions or max(PARTITIONS_DEFAULT, options.slots or 1)
        # Without frontend processes there is one slot, and its process serves the clients too. On one or two cores that
        # is faster than a frontend and an owner (docs/performance.md), so it is the default there.
        small = cores <= COMBINED_CORES_MAX and options.slots in (None, 1)
        combined = options.frontends == 0 or (options.frontends is None and small)
        slots = options.slots or (1 if combined else min(max(1, cores // 4), SLOTS_MAX, partitions))
        self.topology = Topology(partitions, slots, None, os.urandom(CLUSTER_ID_BYTES))
        self.root: Root | None = None
        if options.wal_directory is not None:
            self.root = open_or_create_root(options.wal_directory, self.topology, lambda found: _check(options, found))
            self.topology = self.root.topology
        self.slots = int(self.topology.slots)
        self.combined = self.slots == 1 and combined
        self.frontends = options.frontends or min(max(1, cores - self.slots), FRONTENDS_MAX)
        if self.combined:
            self.frontends = 1  # one core, one page; no process
        self.run_id = os.urandom(RUN_ID_BYTES)
        memory_bytes = options.memory_bytes or usable_memory_bytes() * MEMORY_PERCENT // 100
        self.settings: dict[str, object] = {
            "job_bytes_max": options.job_bytes_max,
            "wal_directory": options.wal_directory or "",
            "sync_ns": options.sync_ns(),
            "segment_bytes": min(options.segment_bytes, SEGMENT_BYTES_SHOWN_MAX),
            "slot_wait_ns": options.slot_wait_ns,
            "memory_bytes": memory_bytes,
            "body_memory_bytes": options.body_memory(),
            "verbosity": options.verbosity,
        }

    def start_message(self, role: int, index: int, generation: int, probe: bool, descriptors: int) -> Message:
        """The first message to a child."""
        fields: dict[str, object] = {
            "role": ("combined" if self.combined else "owner") if role == ROLE_OWNER else "frontend",
            "index": index,
            "generation": generation,
            "run_id": self.run_id.hex(),
            "partitions": int(self.topology.partitions),
            "slots": self.slots,
            "frontends": self.frontends,
            "map": list(self.topology.map),
            "cluster_id": self.topology.cluster_id.hex(),
            "settings": self.settings,
            "probe": probe,
        }
        return Message("start", fields, descriptors)

    def text(self) -> str:
        """The shape, for the log."""
        if self.combined:
            return "1 slot, serving the clients itself"
        return f"{_counted(self.slots, 'slot')}, {_counted(self.frontends, 'frontend')}"


def _check(options: ServeOptions, found: Topology) -> None:
    """What was given on the command line must be what the data root says; what was not comes from there."""
    advice = "nothing was changed; leave the option out"
    place = f"{options.wal_directory}/{TOPOLOGY_NAME}"
    if options.slots not in (None, found.slots):
        slots = _counted(int(found.slots), "slot")
        raise RootFault(
            EXIT_BAD_OPTION,
            f"{place} says {slots}, --slots says {options.slots}; {advice}, or copy the jobs into a new "
            f"data root: beanfield resize {options.wal_directory} --to NEW_DIR --slots {options.slots}",
        )
    if options.partitions not in (None, found.partitions):
        raise RootFault(
            EXIT_BAD_OPTION,
            f"{place} says {found.partitions} partitions, --partitions says {options.partitions}; {advice}: "
            "their number is fixed for the life of the data",
        )
    if options.frontends == 0 and found.slots != 1:
        raise RootFault(
            EXIT_BAD_OPTION,
            f"{place} says {found.slots} slots, and without frontend processes (--frontends 0) there can be only one; "
            f"{advice}",
        )


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
