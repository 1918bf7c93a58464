"""Segments: their names, their headers, and how much of each is still needed.

A segment is a file of a fixed length with a header in its first sector and records behind it. Segments are numbered
from 1 without gaps; a number is never used twice. Files of the slot directory (docs/wal.md, Directory):

    segment.0000000007    a segment
    body.1234             the body of job 1234, too long for a segment
    lease                 the sequences that may be used (lease.py)
    identity              which slot this is (identity.py)
    lock                  held by the owner
    *.tmp                 something unfinished; removed when the log is opened

Header, little-endian:

    0 magic "BEANWAL\\n"   8 version u32   12 slot u32   16 number u64   24 cluster id, 16 bytes
    40 segment_bytes u64   48 salt u32     52 zeros      60 CRC-32 of bytes 0 to 59     then zeros to byte 511
"""

import zlib
from typing import Final

from librt.strings import BytesWriter, read_i64_le, write_i64_le
from mypy_extensions import i64, mypyc_attr

from beanfield.constants import (
    CLUSTER_ID_BYTES,
    SEGMENT_BLOCK_BYTES,
    SEGMENT_BYTES_MAX,
    SEGMENT_BYTES_MIN,
    SEGMENT_PARTS,
)
from beanfield.wal.codec import u32_at
from beanfield.wal.records import CLAIM_BYTES, COPY_BYTES, END_BYTES, MARK_BYTES, copy_bytes, write_u32

VERSION: Final = 1
MAGIC: Final = b"BEANWAL\n"
HEADER_BYTES: Final[i64] = 512  # a sector of its own: no write of records ever touches it
_HEADER_USED: Final[i64] = 64
PARTS: Final[i64] = SEGMENT_PARTS
# Kept free at the end of each segment, so that it can always be finished.
CLOSING_BYTES: Final[i64] = MARK_BYTES + END_BYTES

SEGMENT_PREFIX: Final = "segment."
BODY_PREFIX: Final = "body."
TEMPORARY_SUFFIX: Final = ".tmp"
LEASE_NAME: Final = "lease"
IDENTITY_NAME: Final = "identity"
LOCK_NAME: Final = "lock"

_NUMBER_DIGITS: Final = 10


def segment_name(number: i64) -> str:
    return SEGMENT_PREFIX + str(number).rjust(_NUMBER_DIGITS, "0")


def body_name(id: i64) -> str:
    return BODY_PREFIX + str(id)


def segment_number(name: str) -> int:
    """The number in a segment's name, or -1: any other spelling is not ours."""
    digits = name[len(SEGMENT_PREFIX) :]
    if not name.startswith(SEGMENT_PREFIX) or not digits.isdigit() or not digits.isascii():
        return -1
    if len(digits) > _NUMBER_DIGITS or int(digits) < 1 or int(digits) > 0x7FFFFFFF or segment_name(int(digits)) != name:
        return -1
    return int(digits)


def body_id(name: str) -> int:
    """The job whose body this is, or -1."""
    digits = name[len(BODY_PREFIX) :]
    if not name.startswith(BODY_PREFIX) or not digits.isdigit() or not digits.isascii():
        return -1
    if len(digits) > 19 or int(digits) < 1 or int(digits) > 0x7FFFFFFFFFFFFFFF or body_name(int(digits)) != name:
        return -1
    return int(digits)


def segment_bytes_for(wanted: int) -> int:
    """-s as given to the length that is used: whole blocks, between the limits."""
    if wanted < SEGMENT_BYTES_MIN:
        return SEGMENT_BYTES_MIN
    if wanted > SEGMENT_BYTES_MAX:
        return SEGMENT_BYTES_MAX
    return (wanted + SEGMENT_BLOCK_BYTES - 1) // SEGMENT_BLOCK_BYTES * SEGMENT_BLOCK_BYTES


def needs_own_file(segment_bytes: i64, name_bytes: i64, body_bytes: i64) -> bool:
    return copy_bytes(name_bytes, body_bytes) > segment_bytes // PARTS


def encode_header(number: i64, slot: i64, cluster_id: bytes, segment_bytes: i64, salt: i64) -> bytes:
    assert len(cluster_id) == CLUSTER_ID_BYTES
    assert number >= 1
    out = BytesWriter()
    out.write(MAGIC)
    write_u32(out, VERSION)
    write_u32(out, slot)
    write_i64_le(out, number)
    out.write(cluster_id)
    write_i64_le(out, segment_bytes)
    write_u32(out, salt)
    write_u32(out, 0)
    write_u32(out, 0)
    used = out.getvalue()
    write_u32(out, zlib.crc32(used))
    assert len(out) == _HEADER_USED
    out.write(bytes(int(HEADER_BYTES - _HEADER_USED)))
    return out.getvalue()


@mypyc_attr(native_class=True)
class Header:
    """A header as read. `fault` says in words what is wrong with it, or is empty."""

    def __init__(self, data: bytes) -> None:
        self.fault: str = ""
        self.version: i64 = 0
        self.slot: i64 = 0
        self.number: i64 = 0
        self.cluster_id: bytes = b""
        self.segment_bytes: i64 = 0
        self.salt: i64 = 0
        if len(data) < HEADER_BYTES:
            self.fault = "shorter than its header"
            return
        if data[:8] != MAGIC:
            self.fault = "does not begin like a segment"
            return
        self.version = u32_at(data, 8)
        if self.version != VERSION:
            # The version comes before the checksum: another version may have another header.
            self.fault = f"has format version {self.version}; this program reads version {VERSION}"
            return
        if zlib.crc32(data[:60]) != u32_at(data, 60):
            self.fault = "has a damaged header"
            return
        self.slot = u32_at(data, 12)
        self.number = read_i64_le(data, 16)
        self.cluster_id = data[24:40]
        self.segment_bytes = read_i64_le(data, 40)
        self.salt = u32_at(data, 48)


@mypyc_attr(native_class=True)
class Segment:
    """What the log remembers of a segment while it exists.

    Invariants: used <= bytes; job_bytes is the sum of job_cost, and copy_bytes that of what copying them writes, of
    the live jobs whose full record is here; delete_bytes those of the delete records (anywhere) of jobs whose put was
    here, which are needed for as long as this segment exists.
    """

    def __init__(self, number: i64, bytes_: i64, salt: i64) -> None:
        self.number: i64 = number
        self.bytes: i64 = bytes_
        self.salt: i64 = salt
        self.used: i64 = HEADER_BYTES
        self.ids: BytesWriter = BytesWriter()  # of all jobs ever recorded here in full, 8 bytes each
        self.job_count: i64 = 0
        self.job_bytes: i64 = 0
        self.copy_bytes: i64 = 0
        self.delete_bytes: i64 = 0

    def room(self) -> i64:
        """For records; what finishing takes is kept back."""
        return self.bytes - CLOSING_BYTES - self.used

    def live_bytes(self) -> i64:
        return self.job_bytes + self.delete_bytes

    def job_added(self, id: i64, cost: i64) -> None:
        write_i64_le(self.ids, id)
        self.job_count += 1
        self.job_bytes += cost
        self.copy_bytes += cost - CLAIM_BYTES

    def job_removed(self, cost: i64) -> None:
        self.job_count -= 1
        self.job_bytes -= cost
        self.copy_bytes -= cost - CLAIM_BYTES
        assert self.job_count >= 0
        assert self.job_bytes >= 0
        assert self.copy_bytes >= 0


def job_cost(segment_bytes: i64, name_bytes: i64, body_bytes: i64) -> i64:
    """What one live job is counted as: its longest record and its claims, without a body that has its own file."""
    whole = copy_bytes(name_bytes, body_bytes)
    if whole > segment_bytes // PARTS:
        whole = copy_bytes(name_bytes, 0)
    return whole + CLAIM_BYTES


assert COPY_BYTES + CLAIM_BYTES + 256 <= SEGMENT_BYTES_MIN // SEGMENT_PARTS
