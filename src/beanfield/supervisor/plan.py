"""What a server is to be: options completed by what the machine has, as every child is told it.

Read once at the start. Knows nothing of processes.
"""

import os
from typing import Final

from beanfield.cli.options import ServeOptions
from beanfield.constants import CLUSTER_ID_BYTES, FRONTENDS_MAX, PARTITIONS_DEFAULT, SLOTS_MAX
from beanfield.control import Message
from beanfield.io.machine import usable_memory_bytes
from beanfield.ipc.frames import ROLE_OWNER
from beanfield.routing import Topology

RUN_ID_BYTES: Final = 16
MEMORY_PERCENT: Final = 80
COMBINED_CORES_MAX: Final = 2


class ServerPlan:
    """The sizes, identities and settings of one run."""

    def __init__(self, options: ServeOptions, cores: int) -> None:
        partitions = options.partitions or max(PARTITIONS_DEFAULT, options.slots or 1)
        # Without frontend processes there is one slot, and its process serves the clients too. On one or two cores that
        # is faster than a frontend and an owner (docs/performance.md), so it is the default there.
        small = cores <= COMBINED_CORES_MAX and options.slots in (None, 1)
        self.combined = options.frontends == 0 or (options.frontends is None and small)
        self.slots = options.slots or (1 if self.combined else min(max(1, cores // 4), SLOTS_MAX, partitions))
        self.frontends = options.frontends or min(max(1, cores - self.slots), FRONTENDS_MAX)
        if self.combined:
            self.frontends = 1  # one core, one page; no process
        self.topology = Topology(partitions, self.slots, None, os.urandom(CLUSTER_ID_BYTES))
        self.run_id = os.urandom(RUN_ID_BYTES)
        memory_bytes = options.memory_bytes or usable_memory_bytes() * MEMORY_PERCENT // 100
        self.settings: dict[str, object] = {
            "job_bytes_max": options.job_bytes_max,
            "segment_bytes": options.segment_bytes,
            "slot_wait_ns": options.slot_wait_ns,
            "memory_bytes": memory_bytes,
            "body_memory_bytes": options.body_memory(),
            "verbosity": options.verbosity,
        }

    def start_message(self, role: int, index: int, generation: int, descriptors: int) -> Message:
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
        }
        return Message("start", fields, descriptors)

    def text(self) -> str:
        """The shape, for the log."""
        if self.combined:
            return "1 slot, serving the clients itself"
        return f"{_counted(self.slots, 'slot')}, {_counted(self.frontends, 'frontend')}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
