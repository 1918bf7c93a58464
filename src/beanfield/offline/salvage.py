"""A damaged log, read as far as it goes: every valid record wherever it stands, and a list of what could not be read.

A start refuses a damaged log, since it cannot know what the lost records said. This reader is for copies that somebody
asked for knowing that: behind a place that is no record the next one is searched. The checksum of a record is tied to
its place, so nothing else passes for one. What is lost may have been puts (jobs are missing), deletes (deleted jobs are
back) or changes (jobs are as they were before).

Writes nothing, and reads a segment into memory at a time.
"""

import zlib
from typing import Final

from beanfield.constants import LEASE_SEQUENCES
from beanfield.routing import Topology
from beanfield.wal.codec import RECORD, RecordReader, u32_at
from beanfield.wal.damage import LogDamage
from beanfield.wal.disk import Disk, DiskFault
from beanfield.wal.lease import LeaseFile
from beanfield.wal.records import FIXED_BYTES, KINDS, MARK, MARK_BYTES, start_value
from beanfield.wal.replay import Replay
from beanfield.wal.segments import (
    HEADER_BYTES,
    LEASE_NAME,
    MAGIC,
    PARTS,
    VERSION,
    Header,
    Segment,
    body_name,
    segment_name,
    segment_number,
)

ADVICE: Final = "what is readable of it is salvaged"
_ZEROS: Final = bytes(4096)


class SalvagedSlot:
    """The log of one slot. After read(): `replay` as after a recovery, `damage` in order, `next_sequence` for ids."""

    def __init__(self, disk: Disk, slot: int, topology: Topology) -> None:
        self._disk = disk
        self._slot = slot
        self._topology = topology
        self.replay: Final = Replay(slot, topology)
        self.damage: Final[list[LogDamage]] = []
        self.next_sequence = 0
        self.segments: Final[dict[int, int]] = {}  # number: bytes

    def read(self) -> None:
        numbers = sorted(number for number in map(segment_number, self._disk.names()) if number > 0)
        floor = 1
        for number in numbers:
            data = self._content(number)
            self.segments[number] = len(data)
            segment = self._segment(number, data)
            if segment is None:
                continue
            # What stands in a segment below the floor may have been deleted in one that is gone: the last mark of all
            # says which count.
            self.replay.segment_begun(segment)
            floor = max(floor, _floor_in(data, segment))
        for number in numbers:
            if number < floor:
                self.replay.segments.pop(number, None)
        self._read_records(floor, numbers)
        self._read_bodies()
        self._read_lease()

    # ---------------------------------------------------------------- segments
    def _content(self, number: int) -> bytes:
        """A segment's bytes; a part that the disk cannot read counts as zeros."""
        name = segment_name(number)
        size = self._disk.size(name)
        try:
            return self._disk.read(name, 0, size)
        except DiskFault:
            pieces = []
            for offset in range(0, size, len(_ZEROS)):
                length = min(len(_ZEROS), size - offset)
                try:
                    pieces.append(self._disk.read(name, offset, length))
                except DiskFault as fault:
                    self._damaged(name, offset, f"cannot be read ({fault})")
                    pieces.append(bytes(length))
            return b"".join(pieces)

    def _segment(self, number: int, data: bytes) -> Segment | None:
        name = segment_name(number)
        header = Header(data[:HEADER_BYTES])
        if header.fault == "":
            fault = ""
            if header.cluster_id != self._topology.cluster_id or header.slot != self._slot:
                fault = "belongs to another server or slot; nothing of it is salvaged"
            elif header.number != number:
                fault = f"is segment {header.number} under the name of another one; nothing of it is salvaged"
            if fault:
                self._damaged(name, 0, fault)
                return None
            if len(data) != header.segment_bytes:
                self._damaged(name, -1, f"has {len(data)} bytes, must have {header.segment_bytes}")
            return Segment(number, header.segment_bytes, header.salt)
        if data[:8] == MAGIC and len(data) >= HEADER_BYTES and header.version not in (0, VERSION):
            self._damaged(name, 0, header.fault + "; nothing of it is salvaged")
            return None
        salt = salt_of(data)
        if salt < 0:
            self._damaged(name, 0, f"{header.fault}, and no first record; nothing of it is salvaged")
            return None
        self._damaged(name, 0, f"{header.fault}; what it said was found from the first record")
        return Segment(number, len(data), salt)

    def _read_records(self, floor: int, numbers: list[int]) -> None:
        previous = 0
        for number in numbers:
            if number not in self.replay.segments:
                continue
            if number < floor:
                continue
            if previous and number > previous + 1:
                self._damaged(
                    segment_name(previous + 1), -1, f"{number - previous - 1} segments are missing or unusable"
                )
            elif not previous and number > floor:
                self._damaged(segment_name(floor), -1, "is missing or unusable, and the first one that counts")
            previous = number
            self._read_segment(self.replay.segments[number], self._content(number))

    def _read_segment(self, segment: Segment, data: bytes) -> None:
        name = segment_name(segment.number)
        offset = int(HEADER_BYTES)
        while offset < len(data):
            reader = RecordReader(segment.number, segment.salt, segment.bytes, offset)
            reader.receive(data[offset:])
            while reader.next() == RECORD:
                fault = self.replay.apply(reader, segment)
                if fault:
                    self._damaged(name, int(reader.record_offset), fault + "; it is left out")
            offset = int(reader.offset)
            following = next_record(data, segment, offset)
            if following < 0:
                rest = data[offset:].rstrip(b"\0")
                if rest:
                    self._damaged(name, offset, f"{len(rest)} bytes up to the end are no records")
                return
            if following > offset:
                self._damaged(
                    name, offset, f"{following - offset} bytes are no records; the next one is at {following}"
                )
            offset = following

    # ---------------------------------------------------------------- beside the segments
    def _read_bodies(self) -> None:
        for id, own in list(self.replay.own_bodies.items()):
            name = body_name(id)
            try:
                body = self._disk.read(name, 0, own.body_bytes + 1)
                fault = "" if len(body) == own.body_bytes and zlib.crc32(body) == own.crc else "is damaged"
            except DiskFault:
                body = b""
                fault = "is missing or cannot be read"
            if fault:
                self._damaged(name, -1, f"{fault}: job {id} is left out")
                self.replay.jobs.pop(id)
            else:
                self.replay.jobs[id].body = body

    def _read_lease(self) -> None:
        used = int(self.replay.sequence_max) + 1
        fault = "is missing"
        try:
            lease = LeaseFile(self._disk.read(LEASE_NAME, 0, 1 << 16), self._slot, self._topology.cluster_id)
            fault = lease.fault
            if fault == "" and lease.sequence_limit < used:
                fault = f"allows sequences below {lease.sequence_limit}, but the log has {used - 1}"
            if fault == "":
                self.next_sequence = int(lease.sequence_limit)
                return
        except DiskFault:
            pass
        self.next_sequence = used + LEASE_SEQUENCES if used or self.segments else 0
        if self.next_sequence:
            text = (
                f"{fault}: ids go on {LEASE_SEQUENCES} sequences behind the last one found; older ones might come again"
            )
            self._damaged(LEASE_NAME, -1, text)

    def _damaged(self, file: str, offset: int, fault: str) -> None:
        self.damage.append(LogDamage(file, offset, fault, ADVICE))


def next_record(data: bytes, segment: Segment, offset: int) -> int:
    """Where the next valid record at or behind `offset` begins, or -1."""
    longest = int(segment.bytes // PARTS)
    at = (offset + 7) & ~7
    last = len(data) - 24
    while at <= last:
        record_bytes = int(u32_at(data, at + 4))
        if record_bytes == 0 and data.startswith(_ZEROS, at):
            at += len(_ZEROS)
            continue
        if 24 <= record_bytes <= longest and record_bytes & 7 == 0 and 1 <= data[at + 8] <= KINDS:
            if record_bytes >= FIXED_BYTES[data[at + 8]] and at + record_bytes <= len(data):
                reader = RecordReader(segment.number, segment.salt, segment.bytes, at)
                reader.receive(data[at : at + record_bytes])
                if reader.next() == RECORD:
                    return at
        at += 8
    return -1


def salt_of(data: bytes) -> int:
    """The salt of a segment without a header, from its first record, which is a mark; -1: there is none.

    For fixed bytes the checksum is linear in its start value, so the start value follows from the checksum.
    """
    offset = int(HEADER_BYTES)
    record = data[offset : offset + int(MARK_BYTES)]
    if len(record) < MARK_BYTES or record[8] != MARK or u32_at(record, 4) != MARK_BYTES:
        return -1
    fields = record[8:]
    base = zlib.crc32(fields, 0)
    wanted = base ^ int(u32_at(record, 0))
    # Gauss over bits: (effect, which start bits make it).
    rows = [(zlib.crc32(fields, 1 << bit) ^ base, 1 << bit) for bit in range(32)]
    start = 0
    for bit in range(32):
        pivot = next((row for row in rows if row[0] >> bit & 1), None)
        if pivot is None:
            continue
        rows = [(row[0] ^ pivot[0], row[1] ^ pivot[1]) if row[0] >> bit & 1 else row for row in rows if row != pivot]
        if wanted >> bit & 1:
            wanted ^= pivot[0]
            start ^= pivot[1]
    salt = (start - int(start_value(0, offset, MARK_BYTES))) & 0xFFFF_FFFF
    return salt if wanted == 0 else -1


def _floor_in(data: bytes, segment: Segment) -> int:
    """The largest floor that a valid mark in the segment names."""
    floor = 1
    offset = next_record(data, segment, int(HEADER_BYTES))
    while offset >= 0:
        reader = RecordReader(segment.number, segment.salt, segment.bytes, offset)
        reader.receive(data[offset:])
        while reader.next() == RECORD:
            if reader.kind == MARK:
                floor = max(floor, int(reader.floor))
        offset = next_record(data, segment, int(reader.offset))
    return floor
