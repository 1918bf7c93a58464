"""Bytes of a segment back to records: one at a time through attributes, so that a replay allocates little.

RecordReader gives what is valid and stops for good at the first thing that is not. TailScan then says what lies behind
that place, which decides between a torn tail and damage (docs/wal.md, Recovery). Neither knows files: bytes are given
to them in order, in pieces of any size.

Rules: lengths are checked before anything is kept; a record is never trusted before its CRC; a valid CRC with fields
that cannot be is damage, not a torn write, and has its own answer (ODD).
"""

import zlib
from typing import Final

from librt.strings import read_i32_le, read_i64_le
from mypy_extensions import i64, mypyc_attr

from beanfield.constants import SEGMENT_PARTS, TUBE_NAME_BYTES_MAX
from beanfield.engine.job import BURIED, DELAYED, READY
from beanfield.wal.records import (
    CHANGE,
    COPY,
    COUNT,
    DELETE,
    END,
    FIXED_BYTES,
    FLAG_OWN,
    HEAD_BYTES,
    KINDS,
    MARK,
    MARK_BYTES,
    MASK32,
    PAUSE,
    PUT,
    start_value,
)

# What next() says.
NEED_MORE: Final = 0
RECORD: Final = 1
ZERO: Final = 2  # nothing was ever written here, as far as this word shows
BAD: Final = 3  # not a record
ODD: Final = 4  # a valid CRC over fields that no version of this program writes

NAME_MAX: Final[i64] = TUBE_NAME_BYTES_MAX
PARTS: Final[i64] = SEGMENT_PARTS

# Bytes 4 to 15 of every mark: length, kind, zeros.
MARK_PATTERN: Final = b"\x30\x00\x00\x00\x07\x00\x00\x00\x00\x00\x00\x00"


def u32_at(data: bytes, at: i64) -> i64:
    return i64(read_i32_le(data, at)) & MASK32


def position_of(number: i64, offset: i64) -> i64:
    """Positions order all bytes of a slot's log: segment number, then offset."""
    assert 0 <= offset < 0x80000000
    return (number << 32) | offset


@mypyc_attr(native_class=True)
class RecordReader:
    """Records of one segment from `offset` on. After RECORD the attributes are those of its kind; others are stale."""

    def __init__(self, number: i64, salt: i64, segment_bytes: i64, offset: i64) -> None:
        self.number: i64 = number
        self.salt: i64 = salt
        self.segment_bytes: i64 = segment_bytes
        self.record_bytes_max: i64 = segment_bytes // PARTS
        self.data: bytes = b""
        self.at: i64 = 0  # of the next record in `data`
        self.offset: i64 = offset  # of the next record in the segment
        self.stopped: bool = False
        # The record just returned.
        self.record_offset: i64 = 0
        self.record_bytes: i64 = 0
        self.kind: i64 = 0
        self.state: i64 = 0
        self.own: bool = False
        self.id: i64 = 0
        self.created_ns: i64 = 0
        self.when_ns: i64 = 0
        self.priority: i64 = 0
        self.delay_s: i64 = 0
        self.ttr_s: i64 = 0
        self.body_bytes: i64 = 0
        self.body_crc: i64 = 0
        self.reserves: i64 = 0
        self.timeouts: i64 = 0
        self.releases: i64 = 0
        self.buries: i64 = 0
        self.kicks: i64 = 0
        self.pause_s: i64 = 0
        self.position: i64 = 0
        self.synced_position: i64 = 0
        self.floor: i64 = 0
        self.name: bytes = b""
        self.body: bytes = b""

    def receive(self, data: bytes) -> None:
        assert not self.stopped
        if self.at == len(self.data):
            self.data = data
        else:
            self.data = self.data[self.at :] + data
        self.at = 0

    def next(self) -> i64:
        """The next record, or why there is none. After anything but RECORD and NEED_MORE it has stopped for good."""
        assert not self.stopped
        data = self.data
        at = self.at
        rest: i64 = len(data) - at
        if rest < HEAD_BYTES:
            return NEED_MORE if self.offset + rest < self.segment_bytes else self._stop(ZERO)
        crc = u32_at(data, at)
        record_bytes = u32_at(data, at + 4)
        if crc == 0 and record_bytes == 0:
            return self._stop(ZERO)
        if record_bytes < 24 or record_bytes > self.record_bytes_max or record_bytes & 7 != 0:
            return self._stop(BAD)
        if self.offset + record_bytes > self.segment_bytes:
            return self._stop(BAD)
        if rest < record_bytes:
            return NEED_MORE
        start = start_value(self.salt, self.offset, record_bytes)
        end = at + record_bytes
        computed: i64 = zlib.crc32(data[at + HEAD_BYTES : end], start)
        if computed != crc:
            return self._stop(BAD)
        self.record_offset = self.offset
        self.record_bytes = record_bytes
        if not self._fields(data, at, end):
            return self._stop(ODD)
        self.at = end
        self.offset += record_bytes
        return RECORD

    def rest(self) -> bytes:
        """What was received and lies at `offset` or behind it."""
        return self.data[self.at :]

    def _stop(self, status: i64) -> i64:
        self.stopped = True
        return status

    def _fields(self, data: bytes, at: i64, end: i64) -> bool:
        """Reads the fields; False if they cannot be."""
        word = read_i64_le(data, at + 8)
        kind = word & 0xFF
        self.kind = kind
        self.state = (word >> 8) & 0xFF
        flags = (word >> 16) & 0xFF
        name_bytes = (word >> 24) & 0xFF
        self.own = flags == FLAG_OWN
        if kind < PUT or kind > KINDS:
            return False
        fixed: i64 = FIXED_BYTES[kind]
        if end - at < fixed or name_bytes > NAME_MAX:
            return False
        if kind <= COPY:
            return flags <= FLAG_OWN and self._job_fields(data, at, end, fixed, name_bytes)
        if flags != 0 or (end - at) != (fixed + name_bytes + 7) & ~7 or (name_bytes != 0) != (kind == PAUSE):
            return False
        self.id = read_i64_le(data, at + 16)
        if kind == DELETE:
            return self.id >= 1
        if kind == COUNT:
            self.reserves = i64(read_i32_le(data, at + 24))
            self.timeouts = i64(read_i32_le(data, at + 28))
            return self.id >= 1 and self.reserves >= 0 and self.timeouts >= 0
        if kind == CHANGE:
            self.priority = u32_at(data, at + 12)
            self.when_ns = read_i64_le(data, at + 24)
            self.delay_s = u32_at(data, at + 32)
            return self.id >= 1 and self._state_possible() and self._counts(data, at + 36)
        if kind == PAUSE:
            self.pause_s = u32_at(data, at + 12)
            self.when_ns = read_i64_le(data, at + 16)
            self.name = data[at + fixed : at + fixed + name_bytes]
            return True
        return self._mark_fields(data, at)

    def _job_fields(self, data: bytes, at: i64, end: i64, fixed: i64, name_bytes: i64) -> bool:
        self.body_bytes = u32_at(data, at + 12)
        self.id = read_i64_le(data, at + 16)
        self.created_ns = read_i64_le(data, at + 24)
        self.when_ns = read_i64_le(data, at + 32)
        self.priority = u32_at(data, at + 40)
        self.delay_s = u32_at(data, at + 44)
        self.ttr_s = u32_at(data, at + 48)
        self.body_crc = u32_at(data, at + 52)
        stored = self.body_bytes if not self.own else 0
        if name_bytes == 0 or self.id < 1 or not self._state_possible():
            return False
        if end - at != (fixed + name_bytes + stored + 7) & ~7:
            return False
        if self.kind == COPY:
            if not self._counts(data, at + 56):
                return False
        else:
            self.reserves = 0
            self.timeouts = 0
            self.releases = 0
            self.buries = 0
            self.kicks = 0
        self.name = data[at + fixed : at + fixed + name_bytes]
        self.body = data[at + fixed + name_bytes : at + fixed + name_bytes + stored]
        return True

    def _state_possible(self) -> bool:
        state = self.state
        return state == READY or state == DELAYED or state == BURIED

    def _counts(self, data: bytes, at: i64) -> bool:
        self.reserves = i64(read_i32_le(data, at))
        self.timeouts = i64(read_i32_le(data, at + 4))
        self.releases = i64(read_i32_le(data, at + 8))
        self.buries = i64(read_i32_le(data, at + 12))
        self.kicks = i64(read_i32_le(data, at + 16))
        return (self.reserves | self.timeouts | self.releases | self.buries | self.kicks) >= 0

    def _mark_fields(self, data: bytes, at: i64) -> bool:
        """MARK and END say where they are, and that must be so."""
        assert self.kind == MARK or self.kind == END
        self.position = read_i64_le(data, at + 16)
        if self.position != position_of(self.number, self.record_offset):
            return False
        if self.kind == MARK:
            self.synced_position = read_i64_le(data, at + 24)
            self.floor = read_i64_le(data, at + 32)
            self.created_ns = read_i64_le(data, at + 40)
            return 0 <= self.synced_position <= self.position and 1 <= self.floor <= self.number
        return True


@mypyc_attr(native_class=True)
class TailScan:
    """Everything behind the first bad record of a segment: is there anything, and does a mark there speak against it?

    Lengths cannot be trusted here, so each place where a mark could begin is tried. The CRC and the position in the
    mark make a chance hit, or one inside a job body, as good as impossible.
    """

    def __init__(self, number: i64, salt: i64, offset: i64) -> None:
        self.number: i64 = number
        self.salt: i64 = salt
        self.offset: i64 = offset  # of data[0] in the segment
        self.data: bytes = b""
        self.nonzero_end: i64 = offset  # behind the last byte that is not zero
        self.synced_position: i64 = -1  # the largest that a valid mark here names; -1: there is no mark

    def receive(self, piece: bytes) -> None:
        stripped: i64 = len(piece.rstrip(b"\0"))
        if stripped > 0:
            self.nonzero_end = self.offset + len(self.data) + stripped
        data = self.data + piece
        length: i64 = len(data)
        found: i64 = data.find(MARK_PATTERN)
        while found >= 0:
            at = found - 4
            if at >= 0 and (self.offset + at) & 7 == 0 and at + MARK_BYTES <= length:
                self._try_mark(data, at)
            found = data.find(MARK_PATTERN, found + 1)
        # A mark that lies over the border of two pieces is found with the next one.
        keep: i64 = MARK_BYTES - 1
        if length > keep:
            self.data = data[length - keep :]
            self.offset += length - keep
        else:
            self.data = data

    def _try_mark(self, data: bytes, at: i64) -> None:
        offset = self.offset + at
        computed: i64 = zlib.crc32(data[at + HEAD_BYTES : at + MARK_BYTES], start_value(self.salt, offset, MARK_BYTES))
        if computed != u32_at(data, at):
            return
        if read_i64_le(data, at + 16) != position_of(self.number, offset):
            return
        synced = read_i64_le(data, at + 24)
        if synced > self.synced_position:
            self.synced_position = synced
