"""The topology of a root whose topology.json is gone: found again from a slot's identity, which has its fingerprint.

Every topology that a server makes maps partitions to slots in the same way, so it is known by its two numbers, and
trying them is enough. A fingerprint has 128 bits: what fits is right. Knows no files.
"""

from collections.abc import Iterable
from typing import Final

from beanfield.constants import CLUSTER_ID_BYTES, PARTITIONS_DEFAULT, PARTITIONS_MAX, SLOTS_MAX
from beanfield.routing import FINGERPRINT_BYTES, Topology

# Numbers of partitions that are tried first; for a slot directory on its own, whose number of slots is unknown, alone.
LIKELY_PARTITIONS: Final = [
    PARTITIONS_DEFAULT,
    *(1 << power for power in range(13) if 1 << power != PARTITIONS_DEFAULT),
]


class Identity:
    """An identity file as read. `fault` is empty if it says what it must."""

    def __init__(self, text: bytes) -> None:
        self.fault = ""
        self.cluster_id = b""
        self.slot = -1
        self.fingerprint = b""
        words = dict(line.split(" ", 1) for line in text.decode("ascii", "replace").splitlines() if " " in line)
        try:
            self.cluster_id = bytes.fromhex(words["cluster_id"])
            self.slot = int(words["slot"])
            self.fingerprint = bytes.fromhex(words["fingerprint"])
        except (KeyError, ValueError):
            self.fault = "cannot be read as an identity"
            return
        sizes = (len(self.cluster_id), len(self.fingerprint))
        if sizes != (CLUSTER_ID_BYTES, FINGERPRINT_BYTES) or not 0 <= self.slot < SLOTS_MAX:
            self.fault = "cannot be read as an identity"


def find_topology(identity: Identity, slots: int | None) -> Topology | None:
    """None: nothing that a server makes fits. slots: how many there are, if that is known."""
    if identity.fault:
        return None
    if slots is not None:
        tried = [partitions for partitions in LIKELY_PARTITIONS if partitions >= slots]
        tried += [partitions for partitions in range(slots, PARTITIONS_MAX + 1) if partitions not in LIKELY_PARTITIONS]
        found = _first(identity, ((partitions, slots) for partitions in tried))
        if found is not None:
            return found
    return _first(
        identity,
        (
            (partitions, count)
            for partitions in LIKELY_PARTITIONS
            for count in range(identity.slot + 1, min(partitions, SLOTS_MAX) + 1)
        ),
    )


def _first(identity: Identity, shapes: Iterable[tuple[int, int]]) -> Topology | None:
    for partitions, slots in shapes:
        topology = Topology(partitions, slots, None, identity.cluster_id)
        if topology.fingerprint == identity.fingerprint:
            return topology
    return None
