"""The records of beanstalkd's binlog, bytes to fields: v7 (1.4.7 and later) and v5 (before), and 32-bit builds of v7.

A record is a name length, a name (none: it only changes a job), a C struct, and, with a name, the body with CR LF.
There are no checksums and no alignment, so what is damaged can only be told by what cannot be: `read_record` refuses
that. `plausible` is stricter; it is for finding the next record behind damage, and which build wrote a file.

Knows no files: a Window gives the bytes.
"""

import struct
from collections.abc import Callable
from typing import Final

from beanfield.constants import JOB_BYTES_CEILING, NS_PER_S, TUBE_NAME_BYTES_MAX, U32_MAX

DELETED: Final = 0
READY: Final = 1
RESERVED: Final = 2
BURIED: Final = 3
DELAYED: Final = 4

WINDOW_BYTES: Final = 1 << 20
VERSION_BYTES: Final = 4
# A time between 2001 and 2096; only for `plausible`.
_CREATED_NS_MIN: Final = 1_000_000_000 * NS_PER_S
_CREATED_NS_MAX: Final = 4_000_000_000 * NS_PER_S
_COUNT_MAX: Final = 1 << 31


class Layout:
    """How one version, built for one kind of machine, lays a record out."""

    def __init__(self, name: str, length_format: str, fields_format: str, pads: list[tuple[int, int]], unit: int):
        self.name: Final = name
        self.length: Final = struct.Struct(length_format)
        self.fields: Final = struct.Struct(fields_format)
        self.pads: Final = pads  # ranges of the struct that are always zero
        self.unit_ns: Final = unit  # what delay, ttr and times are counted in
        self.head_bytes: Final = self.length.size + self.fields.size  # a record without name and body


V7: Final = Layout("version 7", "<I", "<QI4xqqi4xqqIIIIIB3x", [(12, 16), (36, 40), (77, 80)], 1)
V7_32: Final = Layout("version 7 of a 32-bit build", "<I", "<QIqqiqqIIIIIB3x", [(69, 72)], 1)
V5: Final = Layout("version 5", "<Q", "<QI4xqqi4xqqIIIIIB", [(12, 16), (36, 40)], 1_000)
LAYOUTS: Final = {7: [V7, V7_32], 5: [V5]}

assert V7.fields.size == 80
assert V7_32.fields.size == 72
assert V5.fields.size == 77


class Window:
    """The bytes of one file, a part of them in memory."""

    def __init__(self, size: int, read: Callable[[int, int], bytes]) -> None:
        self.size: Final = size
        self._read: Final = read
        self._at = 0
        self._data = b""

    def bytes_at(self, offset: int, length: int) -> bytes:
        """Shorter only at the end of the file."""
        start = offset - self._at
        if start < 0 or start + length > len(self._data):
            self._at = offset
            self._data = self._read(offset, max(length, WINDOW_BYTES))
            start = 0
        return self._data[start : start + length]

    def zeros_at(self, offset: int) -> int:
        """So many zero bytes follow."""
        at = offset
        while at < self.size:
            piece = self.bytes_at(at, WINDOW_BYTES)
            rest = len(piece.lstrip(b"\0"))
            at += len(piece) - rest
            if rest > 0 or not piece:
                break
        return at - offset


class OldRecord:
    """One record. `name` is empty if it only changes a job."""

    __slots__ = (
        "offset",
        "record_bytes",
        "name",
        "id",
        "priority",
        "delay_ns",
        "ttr_ns",
        "body_bytes",
        "created_ns",
        "deadline_ns",
        "reserves",
        "timeouts",
        "releases",
        "buries",
        "kicks",
        "state",
        "body_offset",
    )

    def __init__(self, layout: Layout, offset: int, name: bytes, fields: tuple[int, ...]) -> None:
        unit = layout.unit_ns
        self.offset: int = offset
        self.name: bytes = name
        self.id: int = fields[0]
        self.priority: int = fields[1]
        self.delay_ns: int = fields[2] * unit
        self.ttr_ns: int = fields[3] * unit
        self.body_bytes: int = fields[4] - 2  # without CR LF
        self.created_ns: int = fields[5] * unit
        self.deadline_ns: int = fields[6] * unit
        self.reserves, self.timeouts, self.releases, self.buries, self.kicks = fields[7:12]
        self.state: int = fields[12]
        self.body_offset: int = offset + layout.head_bytes + len(name)
        self.record_bytes: int = layout.head_bytes + (len(name) + self.body_bytes + 2 if name else 0)


class RecordFault(Exception):
    """No record stands here. `torn`: it is one, and its length can be believed, but its body is not whole."""

    def __init__(self, text: str, torn: OldRecord | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.torn = torn


def read_record(window: Window, layout: Layout, offset: int) -> OldRecord | None:
    """The record at `offset`; None: the file holds no more. Raises RecordFault."""
    head = window.bytes_at(offset, layout.head_bytes)
    if len(head) < layout.head_bytes:
        if head.count(0) == len(head):
            return None
        raise RecordFault("the file ends inside a record")
    (name_bytes,) = layout.length.unpack_from(head)
    if name_bytes > TUBE_NAME_BYTES_MAX:
        raise RecordFault(f"a tube name of {name_bytes} bytes cannot be")
    name = b""
    if name_bytes:
        head = window.bytes_at(offset, layout.head_bytes + name_bytes)
        name = head[layout.length.size : layout.length.size + name_bytes]
        if len(head) < layout.head_bytes + name_bytes:
            raise RecordFault("the file ends inside a record")
    fields = layout.fields.unpack_from(head, layout.length.size + name_bytes)
    if fields[0] == 0:
        zeros = window.zeros_at(offset)
        if offset + zeros == window.size:
            return None
        raise RecordFault("there is no record, but bytes that are not zero follow")
    record = OldRecord(layout, offset, name, fields)
    fault = _impossible(record)
    if fault:
        raise RecordFault(fault)
    if name:
        if offset + record.record_bytes > window.size:
            raise RecordFault(f"the file ends inside the body of job {record.id} ({record.body_bytes} bytes)")
        if window.bytes_at(record.body_offset + record.body_bytes, 2) != b"\r\n":
            raise RecordFault(f"the body of job {record.id} does not end in CR LF", record)
    return record


def _impossible(record: OldRecord) -> str:
    """What cannot be in it, in words."""
    if record.state > DELAYED:
        return f"a job of state {record.state} cannot be"
    if record.name and record.state == DELETED:
        return "a deletion with a tube name cannot be"
    if record.name and not 0 <= record.body_bytes <= JOB_BYTES_CEILING:
        return f"a body of {record.body_bytes} bytes cannot be"
    if record.delay_ns < 0 or record.ttr_ns < 0:
        return "a negative delay or TTR cannot be"
    return ""


def plausible(window: Window, layout: Layout, offset: int, name_characters: frozenset[int]) -> bool:
    """Whether a record stands here and something that may follow one behind it, by all that is known of real ones."""
    record = plausible_record(window, layout, offset, name_characters)
    if record is None:
        return False
    following = offset + record.record_bytes
    if following >= window.size or window.zeros_at(following) >= min(layout.head_bytes, window.size - following):
        return True
    return plausible_record(window, layout, following, name_characters) is not None


def plausible_record(window: Window, layout: Layout, offset: int, name_characters: frozenset[int]) -> OldRecord | None:
    """A record that is not only possible but looks like one that beanstalkd wrote."""
    try:
        record = read_record(window, layout, offset)
    except RecordFault:
        return None
    if record is None or record.id >= 1 << 63 or not name_characters.issuperset(record.name):
        return None
    fields = window.bytes_at(offset + layout.length.size + len(record.name), layout.fields.size)
    if any(fields[start:end].count(0) != end - start for start, end in layout.pads):
        return None
    longest_ns = U32_MAX * NS_PER_S
    if record.delay_ns > longest_ns or record.ttr_ns > longest_ns:
        return None
    if not 0 <= record.body_bytes <= JOB_BYTES_CEILING or not _CREATED_NS_MIN <= record.created_ns <= _CREATED_NS_MAX:
        return None
    counts = (record.reserves, record.timeouts, record.releases, record.buries, record.kicks)
    return record if max(counts) < _COUNT_MAX else None
