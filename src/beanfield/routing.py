"""Which slot a tube name or a job id belongs to, and the text of topology.json that fixes it for a data root.

    h(name)   = BLAKE2b(name, digest_size=8) as a big-endian integer
    partition = (h(name) - h("default")) mod partitions           so `default` is partition 0
    slot      = map[partition]                                    unless given: partition mod slots
    job id    = sequence * partitions + partition + 1             so (id - 1) mod partitions is enough to find its slot

A Topology never changes. This file reads no files: text comes in as bytes and goes out as bytes. It does not know
which slots are up, and never routes around one that is not.
"""

import hashlib
from typing import Final

from mypy_extensions import i64

from beanfield.constants import (
    CLUSTER_ID_BYTES,
    DEFAULT_TUBE,
    ID_MAX,
    PARTITIONS_MAX,
    ROUTES_CACHED_MAX,
    SLOTS_MAX,
    TOPOLOGY_BYTES_MAX,
)

TOPOLOGY_FORMAT: Final = 1
HASH_NAME: Final = "blake2b-64-minus-default"
FINGERPRINT_BYTES: Final = 16

# The keys of topology.json, in canonical (alphabetical) order. A reader refuses missing, unknown and repeated ones.
_KEYS: Final = ["cluster_id", "format", "hash", "map", "partitions", "slots"]

_HASH_BYTES: Final = 8
_WHITE_SPACE: Final = b" \t\r\n"
_DIGITS: Final = b"0123456789"
_HEX_DIGITS: Final = b"0123456789abcdef"


class TopologyError(Exception):
    """A topology that cannot be: the message says what is wrong with it, in words for the operator."""


def hash_of_name(name: bytes) -> int:
    """The exact bytes of the name count: there is no case folding and no normalising."""
    return int.from_bytes(hashlib.blake2b(name, digest_size=_HASH_BYTES).digest(), "big")


_HASH_OF_DEFAULT: Final = hash_of_name(DEFAULT_TUBE)


class Topology:
    """The fixed division of names and ids over slots. Raises TopologyError for a division that makes no sense."""

    def __init__(
        self, partitions: int, slots: int, map: list[int] | None = None, cluster_id: bytes = bytes(CLUSTER_ID_BYTES)
    ) -> None:
        if not 1 <= partitions <= PARTITIONS_MAX:
            raise TopologyError(f"partitions is {partitions}, must be 1 to {PARTITIONS_MAX}")
        if not 1 <= slots <= SLOTS_MAX:
            raise TopologyError(f"slots is {slots}, must be 1 to {SLOTS_MAX}")
        if slots > partitions:
            raise TopologyError(f"there are {slots} slots and only {partitions} partitions")
        if map is None:
            map = [partition % slots for partition in range(partitions)]
        if len(map) != partitions:
            raise TopologyError(f"map has {len(map)} entries, must have one for each of {partitions} partitions")
        for slot in map:
            if not 0 <= slot < slots:
                raise TopologyError(f"map names slot {slot}, must be 0 to {slots - 1}")
        if len(cluster_id) != CLUSTER_ID_BYTES:
            raise TopologyError(f"cluster_id has {len(cluster_id)} bytes, must have {CLUSTER_ID_BYTES}")
        self.partitions: Final[i64] = partitions
        self.slots: Final[i64] = slots
        self.map: Final = list(map)
        self.cluster_id: Final = cluster_id
        self._sequences_for_all: Final[i64] = ID_MAX // partitions  # below it, every partition has an id
        # Names come from clients, so what is remembered about them is bounded: a full cache starts anew.
        self._partition_cache: dict[bytes, int] = {}
        text = self.canonical_json()
        self.fingerprint: Final = hashlib.blake2b(text, digest_size=FINGERPRINT_BYTES).digest()

    # ------------------------------------------------------------ names
    def partition_of(self, name: bytes) -> i64:
        cached = self._partition_cache.get(name)
        if cached is not None:
            return cached
        # The hash has 64 bits and no sign, more than an i64 holds: the whole sum is done in int.
        partitions: int = self.partitions
        partition = (hash_of_name(name) - _HASH_OF_DEFAULT) % partitions
        if len(self._partition_cache) >= ROUTES_CACHED_MAX:
            self._partition_cache.clear()
        self._partition_cache[name] = partition
        return partition

    def slot_of_name(self, name: bytes) -> i64:
        return self.map[self.partition_of(name)]

    # ------------------------------------------------------------ ids
    def partition_of_id(self, job_id: i64) -> i64:
        """-1 for an id that can never exist."""
        if job_id < 1:
            return -1
        return (job_id - 1) % self.partitions

    def slot_of_id(self, job_id: i64) -> i64:
        """-1 for an id that can never exist."""
        if job_id < 1:
            return -1
        return self.map[(job_id - 1) % self.partitions]

    def sequence_of_id(self, job_id: i64) -> i64:
        """-1 for an id that can never exist."""
        if job_id < 1:
            return -1
        return (job_id - 1) // self.partitions

    def make_id(self, sequence: i64, partition: i64) -> i64:
        """-1 once the ids are used up; nothing wraps."""
        assert sequence >= 0 and 0 <= partition < self.partitions
        if sequence >= self._sequences_for_all and sequence > (ID_MAX - 1 - partition) // self.partitions:
            return -1
        return sequence * self.partitions + partition + 1

    # ------------------------------------------------------------ topology.json
    def canonical_json(self) -> bytes:
        """The one text of this topology: keys in order, no white space, lower-case hex. The fingerprint is over it."""
        slots_of_map = ",".join([str(slot) for slot in self.map])
        text = (
            f'{{"cluster_id":"{self.cluster_id.hex()}","format":{TOPOLOGY_FORMAT},"hash":"{HASH_NAME}",'
            f'"map":[{slots_of_map}],"partitions":{self.partitions},"slots":{self.slots}}}'
        )
        return text.encode("ascii")


def parse_topology(text: bytes) -> Topology:
    """The topology that a topology.json describes; TopologyError says what is wrong with a broken one.

    White space and the order of keys are free, since people look at such files with tools; the fingerprint is over
    the canonical text all the same.
    """
    if len(text) > TOPOLOGY_BYTES_MAX:
        raise TopologyError(f"it has {len(text)} bytes, and no topology needs more than {TOPOLOGY_BYTES_MAX}")
    reader = _JsonReader(text)
    fields = reader.read_object()
    # The version comes first: a newer format may well have other keys, and then that is what to tell.
    if "format" not in fields:
        raise TopologyError('the key "format" is missing')
    format_version = _number(fields, "format")
    if format_version != TOPOLOGY_FORMAT:
        raise TopologyError(f"its format version is {format_version}, this program knows {TOPOLOGY_FORMAT}")
    for key in _KEYS:
        if key not in fields:
            raise TopologyError(f'the key "{key}" is missing')
    for key in fields:
        if key not in _KEYS:
            raise TopologyError(f'the key "{key}" is unknown')
    hash_name = _text(fields, "hash")
    if hash_name != HASH_NAME:
        raise TopologyError(f'its hash is "{hash_name}", this program knows "{HASH_NAME}"')
    cluster_id_hex = _text(fields, "cluster_id").encode("ascii")
    if len(cluster_id_hex) != 2 * CLUSTER_ID_BYTES or not _all_in(cluster_id_hex, _HEX_DIGITS):
        raise TopologyError(f"cluster_id must be {2 * CLUSTER_ID_BYTES} lower-case hex digits")
    slots_of_map = fields["map"]
    if not isinstance(slots_of_map, list):
        raise TopologyError("map must be a list of numbers")
    cluster_id = bytes.fromhex(cluster_id_hex.decode("ascii"))
    return Topology(_number(fields, "partitions"), _number(fields, "slots"), slots_of_map, cluster_id)


def _number(fields: dict[str, object], key: str) -> int:
    value = fields[key]
    if not isinstance(value, int):
        raise TopologyError(f"{key} must be a number")
    return value


def _text(fields: dict[str, object], key: str) -> str:
    value = fields[key]
    if not isinstance(value, str):
        raise TopologyError(f"{key} must be a string")
    return value


def _all_in(text: bytes, allowed: bytes) -> bool:
    for byte in text:
        if byte not in allowed:
            return False
    return True


class _JsonReader:
    """Just the JSON that topology.json needs: one object of whole numbers, plain strings and lists of whole numbers."""

    def __init__(self, text: bytes) -> None:
        self._text: Final = text
        self._at = 0

    def read_object(self) -> dict[str, object]:
        fields: dict[str, object] = {}
        self._expect(b"{")
        while True:
            key = self._read_string()
            if key in fields:
                raise TopologyError(f'the key "{key}" is there twice')
            self._expect(b":")
            fields[key] = self._read_value()
            if not self._take(b","):
                break
        self._expect(b"}")
        if self._peek() != b"":
            raise self._unexpected("the end")
        return fields

    def _read_value(self) -> object:
        first = self._peek()
        if first == b'"':
            return self._read_string()
        if first == b"[":
            return self._read_list()
        return self._read_number()

    def _read_list(self) -> list[int]:
        numbers: list[int] = []
        self._expect(b"[")
        if self._take(b"]"):
            return numbers
        numbers.append(self._read_number())
        while self._take(b","):
            numbers.append(self._read_number())
        self._expect(b"]")
        return numbers

    def _read_string(self) -> str:
        self._expect(b'"')
        start = self._at
        while self._at < len(self._text):
            byte = self._text[self._at]
            if byte == 0x22:
                self._at += 1
                return self._text[start : self._at - 1].decode("ascii")
            # No string of this file needs an escape, so a backslash is a sign of damage like any other.
            if byte < 0x20 or byte > 0x7E or byte == 0x5C:
                break
            self._at += 1
        raise self._unexpected("a plain string")

    def _read_number(self) -> int:
        self._peek()
        start = self._at
        while self._text[self._at : self._at + 1] != b"" and self._text[self._at] in _DIGITS:
            self._at += 1
        written = self._text[start : self._at]
        if written == b"" or (written[0] == 0x30 and len(written) > 1) or len(written) > 18:
            self._at = start
            raise self._unexpected("a whole number")
        return int(written)

    def _peek(self) -> bytes:
        """The next byte that is not white space; empty at the end."""
        while self._text[self._at : self._at + 1] != b"" and self._text[self._at] in _WHITE_SPACE:
            self._at += 1
        return self._text[self._at : self._at + 1]

    def _take(self, byte: bytes) -> bool:
        if self._peek() != byte:
            return False
        self._at += 1
        return True

    def _expect(self, byte: bytes) -> None:
        if not self._take(byte):
            raise self._unexpected(f"'{byte.decode('ascii')}'")

    def _unexpected(self, wanted: str) -> TopologyError:
        if self._at >= len(self._text):
            return TopologyError(f"it ends at byte {self._at} where {wanted} should come: it is not complete")
        return TopologyError(f"byte {self._at} is not what {wanted} needs: it is damaged")
