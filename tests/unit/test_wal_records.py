"""Records as bytes: each kind against bytes put together by hand, then everything a reader must not believe."""

import struct
import zlib

import pytest
from librt.strings import BytesWriter

from beanfield.engine.job import BURIED, DELAYED, READY, RESERVED, Job
from beanfield.wal.codec import BAD, NEED_MORE, ODD, RECORD, ZERO, RecordReader, TailScan, position_of
from beanfield.wal.records import (
    CHANGE,
    COPY,
    COUNT,
    DELETE,
    END,
    MARK,
    PAUSE,
    PUT,
    copy_bytes,
    write_change,
    write_count,
    write_delete,
    write_end,
    write_job,
    write_mark,
    write_pause,
)

SALT = 0xFEDCBA98
NUMBER = 7
SEGMENT_BYTES = 65_536
OFFSET = 512
OFFSET_WALL = 1_000_000


def framed(fields: bytes, offset: int = OFFSET, salt: int = SALT) -> bytes:
    """A record as docs/wal.md draws it, written without the code under test."""
    fields += bytes(-len(fields) % 8)
    length = 8 + len(fields)
    start = (salt + offset + (length << 8)) & 0xFFFFFFFF
    return struct.pack("<II", zlib.crc32(fields, start), length) + fields


def job(state: int = READY, body: bytes = b"hello", deadline_ns: int = 0) -> Job:
    made = Job(4711, 0, 1234567890123456789, 4294967295, 4294967294, 2147483648, body)
    made.state = state
    made.deadline_ns = deadline_ns
    made.reserves, made.timeouts, made.releases, made.buries, made.kicks = 1, 2, 3, 2147483647, 5
    return made


PUT_FIELDS = struct.pack(
    "<BBBBIqqqIIII", 1, 1, 0, 5, 5, 4711, 1234567890123456789, 0, 4294967295, 4294967294, 2147483648, 0
)
COPY_FIELDS = struct.pack(
    "<BBBBIqqqIIIIIIIIII",
    *(2, 4, 0, 5, 5, 4711, 1234567890123456789, 17),
    *(4294967295, 4294967294, 2147483648, 0, 1, 2, 3, 2147483647, 5, 0),
)
OWN_FIELDS = struct.pack(
    "<BBBBIqqqIIII",
    *(1, 3, 1, 5, 5, 4711, 1234567890123456789, 77 + OFFSET_WALL),
    *(4294967295, 4294967294, 2147483648, zlib.crc32(b"hello")),
)
CHANGE_FIELDS = struct.pack(
    "<BBBBIqqIIIIII", 3, 3, 0, 0, 4294967295, 4711, 77 + OFFSET_WALL, 4294967294, 1, 2, 3, 2147483647, 5
)
COUNT_FIELDS = struct.pack("<BBBBIqII", 4, 0, 0, 0, 0, 4711, 1, 2)
DELETE_FIELDS = struct.pack("<BBBBIq", 5, 0, 0, 0, 0, 4711)
PAUSE_FIELDS = struct.pack("<BBBBIq", 6, 0, 0, 5, 4294967295, 99) + b"tubes"
MARK_FIELDS = struct.pack("<BBBBIqqqq", 7, 0, 0, 0, 0, position_of(NUMBER, OFFSET), 3 << 32, 2, 55)
END_FIELDS = struct.pack("<BBBBIq", 8, 0, 0, 0, 0, position_of(NUMBER, OFFSET))

ALL = {
    PUT: framed(PUT_FIELDS + b"tubes" + b"hello"),
    COPY: framed(COPY_FIELDS + b"tubes" + b"hello"),
    CHANGE: framed(CHANGE_FIELDS),
    COUNT: framed(COUNT_FIELDS),
    DELETE: framed(DELETE_FIELDS),
    PAUSE: framed(PAUSE_FIELDS),
    MARK: framed(MARK_FIELDS),
    END: framed(END_FIELDS),
}


def reader(data: bytes = b"", offset: int = OFFSET, salt: int = SALT) -> RecordReader:
    made = RecordReader(NUMBER, salt, SEGMENT_BYTES, offset)
    made.receive(data)
    return made


# ---------------------------------------------------------------- writing
def test_each_kind_is_written_as_the_document_draws_it() -> None:
    written: dict[int, bytes] = {}
    for kind in ALL:
        out = BytesWriter()
        if kind == PUT:
            length = write_job(out, SALT, OFFSET, PUT, job(), b"tubes", False, OFFSET_WALL)
        elif kind == COPY:
            length = write_job(out, SALT, OFFSET, COPY, job(BURIED, deadline_ns=17), b"tubes", False, OFFSET_WALL)
        elif kind == CHANGE:
            length = write_change(out, SALT, OFFSET, job(DELAYED, deadline_ns=77), OFFSET_WALL)
        elif kind == COUNT:
            length = write_count(out, SALT, OFFSET, job())
        elif kind == DELETE:
            length = write_delete(out, SALT, OFFSET, 4711)
        elif kind == PAUSE:
            length = write_pause(out, SALT, OFFSET, b"tubes", 4294967295, 99)
        elif kind == MARK:
            length = write_mark(out, SALT, OFFSET, position_of(NUMBER, OFFSET), 3 << 32, 2, 55)
        else:
            length = write_end(out, SALT, OFFSET, position_of(NUMBER, OFFSET))
        written[kind] = out.getvalue()
        assert length == len(written[kind])
    assert written == ALL


def test_a_body_with_its_own_file_leaves_its_checksum() -> None:
    out = BytesWriter()
    write_job(out, SALT, OFFSET, PUT, job(DELAYED, deadline_ns=77), b"tubes", True, OFFSET_WALL)
    assert out.getvalue() == framed(OWN_FIELDS + b"tubes")
    read = reader(out.getvalue())
    assert read.next() == RECORD
    assert (read.own, read.body, read.body_bytes, read.body_crc) == (True, b"", 5, zlib.crc32(b"hello"))


def test_a_reserved_job_is_written_as_ready() -> None:
    out = BytesWriter()
    write_change(out, SALT, OFFSET, job(RESERVED, deadline_ns=12345), OFFSET_WALL)
    read = reader(out.getvalue())
    assert read.next() == RECORD
    assert (read.state, read.when_ns) == (READY, 0)


@pytest.mark.parametrize("body_bytes", range(0, 18))
def test_every_length_of_a_body_is_padded_to_words(body_bytes: int) -> None:
    body = b"\xff" * body_bytes
    out = BytesWriter()
    length = write_job(out, SALT, OFFSET, COPY, job(body=body), b"tubes", False, 0)
    assert length == copy_bytes(5, body_bytes) == len(out.getvalue())
    read = reader(out.getvalue())
    assert read.next() == RECORD
    assert (read.name, read.body) == (b"tubes", body)


# ---------------------------------------------------------------- reading
def test_fields_come_back() -> None:
    read = reader(ALL[COPY])
    assert read.next() == RECORD
    assert (read.kind, read.state, read.id, read.created_ns) == (COPY, BURIED, 4711, 1234567890123456789)
    assert (read.priority, read.delay_s, read.ttr_s, read.when_ns) == (4294967295, 4294967294, 2147483648, 17)
    assert (read.reserves, read.timeouts, read.releases, read.buries, read.kicks) == (1, 2, 3, 2147483647, 5)
    read = reader(ALL[MARK])
    assert read.next() == RECORD
    assert (read.synced_position, read.floor, read.created_ns) == (3 << 32, 2, 55)
    read = reader(ALL[PAUSE])
    assert read.next() == RECORD
    assert (read.name, read.pause_s, read.when_ns) == (b"tubes", 4294967295, 99)


@pytest.mark.parametrize("kind", ALL)
def test_a_record_given_byte_by_byte_is_the_same(kind: int) -> None:
    read = reader()
    for at, byte in enumerate(ALL[kind]):
        assert read.next() == NEED_MORE, at
        read.receive(bytes([byte]))
    assert read.next() == RECORD
    assert read.kind == kind
    assert read.offset == OFFSET + len(ALL[kind])


@pytest.mark.parametrize("kind", ALL)
def test_no_flipped_bit_passes(kind: int) -> None:
    whole = ALL[kind]
    for bit in range(len(whole) * 8):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << (bit % 8)
        # Behind it, zeros: a length that became longer finds its bytes.
        read = reader(bytes(damaged) + bytes(4096))
        assert read.next() == BAD, bit


@pytest.mark.parametrize("kind", ALL)
def test_a_record_is_only_valid_at_its_place_and_in_its_segment(kind: int) -> None:
    assert reader(ALL[kind], offset=OFFSET + 8).next() == BAD
    assert reader(ALL[kind], salt=SALT + 8).next() == BAD


@pytest.mark.parametrize(
    "fields",
    [
        struct.pack("<BBBBIq", 9, 0, 0, 0, 0, 4711),  # no such kind
        struct.pack("<BBBBIq", 0, 0, 0, 0, 0, 4711),
        struct.pack("<BBBBIq", 5, 0, 0, 0, 0, 0),  # no such id
        struct.pack("<BBBBIq", 5, 0, 1, 0, 0, 4711),  # no such flag
        struct.pack("<BBBBIq", 5, 0, 0, 0, 0, 4711) + bytes(8),  # too long
        struct.pack("<BBBBIq", 6, 0, 0, 0, 5, 99),  # a pause of nothing
        struct.pack("<BBBBIq", 6, 0, 0, 201, 5, 99) + bytes(208),  # a name too long
        PUT_FIELDS[:1] + b"\x02" + PUT_FIELDS[2:] + b"tubes" + b"hello",  # no such state on disk
        PUT_FIELDS + b"tubes" + b"hello" * 3,  # longer than it says
        PUT_FIELDS[:2] + b"\x01" + PUT_FIELDS[3:] + b"tubes" + b"hello",  # own file, and a body
        PUT_FIELDS[:3] + b"\x00" + PUT_FIELDS[4:] + b"hello",  # no tube
        COUNT_FIELDS[:-1] + b"\xff",  # a negative count
        MARK_FIELDS[:8] + bytes(8) + MARK_FIELDS[16:],  # a mark that is not where it says
        MARK_FIELDS[:24] + struct.pack("<qq", 8, 55),  # a floor in the future
        END_FIELDS[:8] + bytes(8),
    ],
)
def test_a_valid_checksum_over_impossible_fields_is_not_taken_for_a_torn_write(fields: bytes) -> None:
    assert reader(framed(fields)).next() == ODD


def test_lengths_are_checked_before_anything_is_waited_for() -> None:
    for length in (0, 8, 16, 25, 4104, 0xFFFFFFF8):
        assert reader(struct.pack("<II", 1, length)).next() == BAD
    assert reader(struct.pack("<II", 1, 24), offset=SEGMENT_BYTES - 16).next() == BAD


def test_zeros_and_the_end_of_the_segment_are_no_records() -> None:
    assert reader(bytes(8)).next() == ZERO
    assert reader(b"", offset=SEGMENT_BYTES).next() == ZERO
    assert reader(b"").next() == NEED_MORE


# ---------------------------------------------------------------- behind the first bad record
def mark_at(offset: int, synced: int, number: int = NUMBER, salt: int = SALT) -> bytes:
    out = BytesWriter()
    write_mark(out, salt, offset, position_of(number, offset), synced, 1, 0)
    return out.getvalue()


@pytest.mark.parametrize("piece_bytes", [1, 7, 48, 100, 5000])
def test_a_scan_finds_the_best_mark_and_the_last_byte_however_it_is_fed(piece_bytes: int) -> None:
    tail = b"garbage." * 4
    tail += mark_at(1000 + len(tail), 5)
    tail += b"\xff" * 16
    tail += mark_at(1000 + len(tail), 9)
    tail += mark_at(1000 + len(tail), 7)
    used = len(tail)
    tail += bytes(300)
    scan = TailScan(NUMBER, SALT, 1000)
    for at in range(0, len(tail), piece_bytes):
        scan.receive(tail[at : at + piece_bytes])
    assert scan.synced_position == 9
    assert scan.nonzero_end == 1000 + len(tail[:used].rstrip(b"\0"))


@pytest.mark.parametrize(
    "tail",
    [
        mark_at(1008, 5),  # a copy of a mark from somewhere else in this segment
        mark_at(1000, 5, salt=SALT + 1),  # from another segment
        mark_at(1000, 5, number=NUMBER + 1),
        b"\0\0\0\0" + mark_at(1004, 5),  # not at a word
        mark_at(1000, 5)[:-1],
    ],
)
def test_a_scan_is_not_fooled_by_marks_of_other_places(tail: bytes) -> None:
    scan = TailScan(NUMBER, SALT, 1000)
    scan.receive(tail)
    assert scan.synced_position == -1
