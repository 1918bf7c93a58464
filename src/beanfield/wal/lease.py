"""The id lease: which sequences of a slot may have been used, kept apart from the log so that ids never repeat.

The file has two cells, a block each, written in turn, in place, and synced. A cell says: every sequence below
`sequence_limit` may have been given out. It is durable before the first of them is. A clean stop writes the exact next
sequence; a crash skips what was left. The newest valid cell counts. If the other cell is neither valid nor empty, it
was torn in the middle of its write (then its limit was never used), or it has rotted (then it was): a whole block, the
most that it can have been ahead, is skipped.

    0 magic "BEANIDS\\n"   8 version u32   12 slot u32   16 serial i64   24 sequence_limit i64   32 cluster id
    48 zeros to 59        60 CRC-32 of bytes 0 to 59

Knows no files: bytes in, bytes and offsets out.
"""

import zlib
from typing import Final

from librt.strings import BytesWriter, read_i64_le, write_i64_le
from mypy_extensions import i64, mypyc_attr

from beanfield.constants import CLUSTER_ID_BYTES, LEASE_SEQUENCES
from beanfield.wal.codec import u32_at
from beanfield.wal.records import write_u32

LEASE_VERSION: Final = 1
LEASE_MAGIC: Final = b"BEANIDS\n"
CELL_SPACING_BYTES: Final[i64] = 4096
CELL_BYTES: Final[i64] = 64
LEASE_FILE_BYTES: Final[i64] = 2 * CELL_SPACING_BYTES

BLOCK: Final[i64] = LEASE_SEQUENCES
SEQUENCE_MAX: Final[i64] = 0x7FFFFFFFFFFFFFFF - 2 * LEASE_SEQUENCES  # a limit is never past it, so sums fit


def encode_cell(slot: i64, cluster_id: bytes, serial: i64, sequence_limit: i64) -> bytes:
    assert len(cluster_id) == CLUSTER_ID_BYTES
    assert serial >= 1
    assert sequence_limit >= 0
    out = BytesWriter()
    out.write(LEASE_MAGIC)
    write_u32(out, LEASE_VERSION)
    write_u32(out, slot)
    write_i64_le(out, serial)
    write_i64_le(out, sequence_limit)
    out.write(cluster_id)
    out.write(bytes(12))
    write_u32(out, zlib.crc32(out.getvalue()))
    return out.getvalue()


def cell_offset(serial: i64) -> i64:
    return (serial & 1) * CELL_SPACING_BYTES


def smaller(left: i64, right: i64) -> i64:
    return left if left < right else right


@mypyc_attr(native_class=True)
class LeaseFile:
    """A lease file as read. `fault` is empty, or says why it cannot be used."""

    def __init__(self, data: bytes, slot: i64, cluster_id: bytes) -> None:
        self.fault: str = ""
        self.serial: i64 = 0
        self.sequence_limit: i64 = 0
        self.bad_cells: i64 = 0
        if len(data) != LEASE_FILE_BYTES:
            self.fault = f"has {len(data)} bytes, must have {LEASE_FILE_BYTES}"
            return
        self._cell(data[:CELL_SPACING_BYTES], 0, slot, cluster_id)
        self._cell(data[CELL_SPACING_BYTES:], 1, slot, cluster_id)
        if self.fault == "" and self.serial == 0:
            self.fault = "has no valid cell"
        if self.bad_cells > 0:
            self.sequence_limit = smaller(self.sequence_limit + BLOCK, SEQUENCE_MAX)

    def _cell(self, block: bytes, parity: i64, slot: i64, cluster_id: bytes) -> None:
        cell = block[:CELL_BYTES]
        if cell[:8] != LEASE_MAGIC or zlib.crc32(cell[:60]) != u32_at(cell, 60):
            if block.count(b"\0") != len(block):
                self.bad_cells += 1
            return
        if u32_at(cell, 8) != LEASE_VERSION:
            self.fault = f"has format version {u32_at(cell, 8)}; this program reads version {LEASE_VERSION}"
        elif cell[32:48] != cluster_id or u32_at(cell, 12) != slot:
            self.fault = "belongs to another server or slot"
        serial = read_i64_le(cell, 16)
        if serial & 1 == parity and serial > self.serial:
            self.serial = serial
            self.sequence_limit = read_i64_le(cell, 24)


@mypyc_attr(native_class=True)
class Lease:
    """The lease in use. At most one cell is being written at a time; `limit` rises only when it is durable."""

    def __init__(self, slot: i64, cluster_id: bytes, serial: i64, next_sequence: i64) -> None:
        self.slot: i64 = slot
        self.cluster_id: bytes = cluster_id
        self.serial: i64 = serial
        self.next_sequence: i64 = next_sequence  # no sequence at or above it has been used
        self.limit: i64 = next_sequence  # sequences below it may be used: none until a cell is written
        self.asked_limit: i64 = 0  # of the cell being written; 0: none is

    def used(self, sequence: i64) -> None:
        assert sequence < self.limit
        if sequence >= self.next_sequence:
            self.next_sequence = sequence + 1

    def wanted(self) -> bool:
        """Half a block or less is left and none is asked for."""
        return self.asked_limit == 0 and self.limit - self.next_sequence <= BLOCK // 2 and self.limit < SEQUENCE_MAX

    def ask(self) -> bytes:
        """The cell to write next, at cell_offset(serial)."""
        assert self.asked_limit == 0
        self.serial += 1
        self.asked_limit = smaller(self.next_sequence + BLOCK, SEQUENCE_MAX)
        return encode_cell(self.slot, self.cluster_id, self.serial, self.asked_limit)

    def written(self) -> None:
        """What ask() gave is durable."""
        assert self.asked_limit != 0
        assert self.asked_limit >= self.limit
        self.limit = self.asked_limit
        self.asked_limit = 0

    def refused(self) -> None:
        """It could not be written for want of space (a copy-on-write file system): asked for again later.

        The cell may be half written, so the same cell is written again, never the other one.
        """
        assert self.asked_limit != 0
        self.asked_limit = 0
        self.serial -= 1

    def close(self) -> bytes:
        """The last cell of a clean stop: the exact next sequence."""
        assert self.asked_limit == 0
        self.serial += 1
        self.limit = self.next_sequence
        return encode_cell(self.slot, self.cluster_id, self.serial, self.next_sequence)
