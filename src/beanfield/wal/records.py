"""The records of a segment: kinds, fields, encoding. docs/wal.md draws them; the two change together, with a version.

Little-endian, no padding but the zeros that fill a record to whole words of 8 bytes:

    0  crc            u32   CRC-32 of everything behind it but the length, begun with `salt + offset + length * 2^8`
    4  record_bytes   u32   whole record
    8  kind           u8
    9  state          u8    READY, DELAYED, BURIED where it applies, as in engine/job.py
   10  flags          u8
   11  name_bytes     u8
   12  ...                  by kind

The start value ties a record to its place: bytes of an older segment, a misplaced sector, or a job body that holds a
copy of a log never pass for a record. The salt differs in every segment.

Knows no files and no segments, only bytes. Nothing here allocates more than the bytes it returns.
"""

import zlib
from typing import Final

from librt.strings import BytesWriter, write_i32_le, write_i64_le
from mypy_extensions import i32, i64

from beanfield.engine.job import BURIED, DELAYED, READY, RESERVED, Job

# ---------------------------------------------------------------- kinds
PUT: Final = 1  # a job as it was put: no counters
COPY: Final = 2  # a job as it is now, written when its old segment is given up
CHANGE: Final = 3  # everything of a job that can change
COUNT: Final = 4  # reserves and timeouts alone
DELETE: Final = 5
PAUSE: Final = 6
MARK: Final = 7  # first in each batch
END: Final = 8  # last in a finished segment
KINDS: Final = 8

KIND_NAMES: Final = ("", "put", "copy", "change", "count", "delete", "pause", "mark", "end")

FLAG_OWN: Final = 1  # PUT, COPY: the body is in a file of its own; its CRC-32 stands in the record

# Bytes of the fixed part, by kind.
HEAD_BYTES: Final[i64] = 8
PUT_BYTES: Final[i64] = 56
COPY_BYTES: Final[i64] = 80
CHANGE_BYTES: Final[i64] = 56
COUNT_BYTES: Final[i64] = 32
DELETE_BYTES: Final[i64] = 24
PAUSE_BYTES: Final[i64] = 24
MARK_BYTES: Final[i64] = 48
END_BYTES: Final[i64] = 24
FIXED_BYTES: Final = (0, 56, 80, 56, 32, 24, 24, 48, 24)

# A claim: one change and one delete of a job always find room.
CLAIM_BYTES: Final[i64] = 80

MASK32: Final[i64] = 0xFFFFFFFF
LIMIT31: Final[i64] = 0x80000000
RANGE32: Final[i64] = 0x100000000
I32_LOWEST: Final[i32] = -2147483648
NS_PER_S: Final[i64] = 1_000_000_000

_PADS: Final = (b"", b"\0", b"\0\0", b"\0\0\0", b"\0\0\0\0", b"\0\0\0\0\0", b"\0\0\0\0\0\0", b"\0\0\0\0\0\0\0")

# The states stand on disk as engine/job.py numbers them.
assert READY == 1
assert DELAYED == 3
assert BURIED == 4
assert CLAIM_BYTES == CHANGE_BYTES + DELETE_BYTES
assert COPY_BYTES >= PUT_BYTES


def aligned(length: i64) -> i64:
    return (length + 7) & ~7


def copy_bytes(name_bytes: i64, body_bytes: i64) -> i64:
    """The longest record this job can have; what it is counted as, so that copying it never costs more than claimed."""
    return (COPY_BYTES + name_bytes + body_bytes + 7) & ~7


def start_value(salt: i64, offset: i64, record_bytes: i64) -> i64:
    return (salt + offset + (record_bytes << 8)) & MASK32


def write_u32(out: BytesWriter, value: i64) -> None:
    assert 0 <= value < RANGE32
    if value >= LIMIT31:
        value -= RANGE32
    write_i32_le(out, i32(value))


def _finish(out: BytesWriter, fields: bytes, salt: i64, offset: i64) -> None:
    """Frames a record whose bytes behind the head are `fields`, whole words."""
    record_bytes: i64 = len(fields) + HEAD_BYTES
    assert record_bytes & 7 == 0
    crc: i64 = zlib.crc32(fields, start_value(salt, offset, record_bytes))
    write_u32(out, crc)
    write_u32(out, record_bytes)
    out.write(fields)


def _begin(kind: i64, state: i64, flags: i64, name_bytes: i64) -> BytesWriter:
    fields = BytesWriter()
    fields.append(kind)
    fields.append(state)
    fields.append(flags)
    fields.append(name_bytes)
    return fields


def logged_state(job: Job) -> i64:
    """No reservation outlives its owner: what is reserved is logged as ready."""
    state: i64 = i64(job.state)
    if state == RESERVED:
        return READY
    assert state == READY or state == DELAYED or state == BURIED
    return state


def logged_when(job: Job, wall_offset_ns: i64) -> i64:
    """End of the delay as wall clock, or the burial number."""
    if job.state == DELAYED:
        return job.deadline_ns + wall_offset_ns
    if job.state == BURIED:
        return job.deadline_ns
    return 0


def write_job(
    out: BytesWriter,
    salt: i64,
    offset: i64,
    kind: i64,
    job: Job,
    tube_name: bytes,
    own: bool,
    wall_offset_ns: i64,
) -> i64:
    """PUT or COPY. Returns the length of the record."""
    name_bytes: i64 = len(tube_name)
    body_bytes: i64 = len(job.body)
    assert kind == PUT or kind == COPY
    fields = _begin(kind, logged_state(job), FLAG_OWN if own else 0, name_bytes)
    write_u32(fields, body_bytes)
    write_i64_le(fields, job.id)
    write_i64_le(fields, job.created_ns)
    write_i64_le(fields, logged_when(job, wall_offset_ns))
    # The codes of a job are its unsigned numbers less 2^31; turning the top bit gives the unsigned bytes again.
    write_i32_le(fields, job.priority_code ^ I32_LOWEST)
    write_i32_le(fields, job.delay_code ^ I32_LOWEST)
    write_i32_le(fields, job.ttr_code ^ I32_LOWEST)
    write_u32(fields, zlib.crc32(job.body) if own else 0)
    if kind == COPY:
        _write_counts(fields, job)
        write_i32_le(fields, job.kicks)
        write_i32_le(fields, 0)
    fields.write(tube_name)
    record_bytes: i64 = HEAD_BYTES + len(fields)
    if own:
        fields.write(_PADS[-record_bytes & 7])
        record_bytes = (record_bytes + 7) & ~7
        _finish(out, fields.getvalue(), salt, offset)
        return record_bytes
    # The body goes straight into the batch: it is copied once.
    pad = _PADS[-(record_bytes + body_bytes) & 7]
    record_bytes = (record_bytes + body_bytes + 7) & ~7
    front = fields.getvalue()
    crc = zlib.crc32(front, start_value(salt, offset, record_bytes))
    crc = zlib.crc32(pad, zlib.crc32(job.body, crc))
    write_u32(out, crc)
    write_u32(out, record_bytes)
    out.write(front)
    out.write(job.body)
    out.write(pad)
    return record_bytes


def _write_counts(fields: BytesWriter, job: Job) -> None:
    write_i32_le(fields, job.reserves)
    write_i32_le(fields, job.timeouts)
    write_i32_le(fields, job.releases)
    write_i32_le(fields, job.buries)


def write_change(out: BytesWriter, salt: i64, offset: i64, job: Job, wall_offset_ns: i64) -> i64:
    fields = _begin(CHANGE, logged_state(job), 0, 0)
    write_i32_le(fields, job.priority_code ^ I32_LOWEST)
    write_i64_le(fields, job.id)
    write_i64_le(fields, logged_when(job, wall_offset_ns))
    write_i32_le(fields, job.delay_code ^ I32_LOWEST)
    _write_counts(fields, job)
    write_i32_le(fields, job.kicks)
    _finish(out, fields.getvalue(), salt, offset)
    return CHANGE_BYTES


def write_count(out: BytesWriter, salt: i64, offset: i64, job: Job) -> i64:
    fields = _begin(COUNT, 0, 0, 0)
    write_i32_le(fields, 0)
    write_i64_le(fields, job.id)
    write_i32_le(fields, job.reserves)
    write_i32_le(fields, job.timeouts)
    _finish(out, fields.getvalue(), salt, offset)
    return COUNT_BYTES


def write_delete(out: BytesWriter, salt: i64, offset: i64, id: i64) -> i64:
    fields = _begin(DELETE, 0, 0, 0)
    write_i32_le(fields, 0)
    write_i64_le(fields, id)
    _finish(out, fields.getvalue(), salt, offset)
    return DELETE_BYTES


def write_pause(out: BytesWriter, salt: i64, offset: i64, tube_name: bytes, pause_s: i64, until_wall_ns: i64) -> i64:
    fields = _begin(PAUSE, 0, 0, len(tube_name))
    write_u32(fields, pause_s)
    write_i64_le(fields, until_wall_ns)
    fields.write(tube_name)
    record_bytes: i64 = HEAD_BYTES + len(fields)
    fields.write(_PADS[-record_bytes & 7])
    _finish(out, fields.getvalue(), salt, offset)
    return (record_bytes + 7) & ~7


def write_mark(
    out: BytesWriter, salt: i64, offset: i64, position: i64, synced_position: i64, floor: i64, created_ns: i64
) -> i64:
    """created_ns: the largest ever given out, so that time never runs back when its job is gone."""
    assert 0 <= synced_position <= position
    fields = _begin(MARK, 0, 0, 0)
    write_i32_le(fields, 0)
    write_i64_le(fields, position)
    write_i64_le(fields, synced_position)
    write_i64_le(fields, floor)
    write_i64_le(fields, created_ns)
    _finish(out, fields.getvalue(), salt, offset)
    return MARK_BYTES


def write_end(out: BytesWriter, salt: i64, offset: i64, position: i64) -> i64:
    fields = _begin(END, 0, 0, 0)
    write_i32_le(fields, 0)
    write_i64_le(fields, position)
    _finish(out, fields.getvalue(), salt, offset)
    return END_BYTES
