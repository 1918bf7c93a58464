"""The id lease: no sequence is used before a cell that covers it is durable, whatever happens to either cell."""

import pytest

from beanfield.constants import LEASE_SEQUENCES
from beanfield.wal.lease import (
    CELL_BYTES,
    LEASE_FILE_BYTES,
    SEQUENCE_MAX,
    Lease,
    LeaseFile,
    cell_offset,
    encode_cell,
)

CLUSTER = bytes(range(16))
B = LEASE_SEQUENCES


def file_of(cells: dict[int, int]) -> bytearray:
    """serial -> sequence_limit, written in order."""
    data = bytearray(LEASE_FILE_BYTES)
    for serial, limit in cells.items():
        data[cell_offset(serial) : cell_offset(serial) + CELL_BYTES] = encode_cell(3, CLUSTER, serial, limit)
    return data


def read(data: bytes | bytearray) -> LeaseFile:
    return LeaseFile(bytes(data), 3, CLUSTER)


def test_the_newest_cell_counts() -> None:
    found = read(file_of({1: B, 2: 2 * B, 3: 100}))
    assert (found.fault, found.serial, found.sequence_limit) == ("", 3, 100)


def test_a_file_with_one_cell_so_far_skips_nothing() -> None:
    found = read(file_of({1: B}))
    assert (found.fault, found.serial, found.sequence_limit) == ("", 1, B)


@pytest.mark.parametrize("kept", range(CELL_BYTES))
def test_a_cell_torn_at_any_byte_leaves_no_id_to_be_used_twice(kept: int) -> None:
    # Cell 3 was being written over cell 1 when the power went. Nobody used a sequence from 2 B on.
    data = file_of({1: B, 2: 2 * B})
    data[cell_offset(3) : cell_offset(3) + kept] = encode_cell(3, CLUSTER, 3, 3 * B)[:kept]
    found = read(data)
    assert found.fault == ""
    assert 2 * B <= found.sequence_limit <= 3 * B


@pytest.mark.parametrize("at", range(CELL_BYTES))
def test_a_cell_that_rots_after_its_write_skips_a_block(at: int) -> None:
    data = file_of({1: B, 2: 2 * B})
    data[cell_offset(2) + at] ^= 4
    found = read(data)
    assert (found.fault, found.sequence_limit) == ("", 2 * B)


def test_two_bad_cells_stop_the_slot() -> None:
    data = file_of({1: B, 2: 2 * B})
    data[cell_offset(1) + 30] ^= 1
    data[cell_offset(2) + 30] ^= 1
    assert read(data).fault == "has no valid cell"
    assert read(bytes(LEASE_FILE_BYTES)).fault == "has no valid cell"


def test_other_lengths_slots_and_servers_stop_the_slot() -> None:
    data = bytes(file_of({1: B}))
    assert "bytes, must have" in read(data[:-1]).fault
    assert "another server or slot" in LeaseFile(data, 2, CLUSTER).fault
    assert "another server or slot" in LeaseFile(data, 3, bytes(16)).fault


def test_a_lease_is_asked_for_at_half_a_block_and_counts_once_written() -> None:
    lease = Lease(3, CLUSTER, 0, 0)
    assert lease.limit == 0 and lease.wanted()
    cell = lease.ask()
    assert cell == encode_cell(3, CLUSTER, 1, B)
    assert lease.limit == 0 and not lease.wanted()
    lease.written()
    assert lease.limit == B and not lease.wanted()
    lease.used(B // 2 - 2)
    assert not lease.wanted()
    lease.used(B // 2 - 1)
    assert lease.wanted()
    assert lease.ask() == encode_cell(3, CLUSTER, 2, B // 2 + B)
    lease.used(B - 1)  # no put waits for it
    lease.written()
    assert lease.limit == B // 2 + B


def test_a_refused_write_is_repeated_in_the_same_cell() -> None:
    lease = Lease(3, CLUSTER, 7, 100)
    first = lease.ask()
    lease.refused()
    assert lease.wanted()
    assert lease.ask() == first


def test_a_clean_stop_names_the_next_sequence_exactly() -> None:
    lease = Lease(3, CLUSTER, 1, 0)
    lease.ask()
    lease.written()
    lease.used(41)
    assert lease.close() == encode_cell(3, CLUSTER, 3, 42)


def test_limits_stay_in_range_at_the_end_of_the_ids() -> None:
    lease = Lease(3, CLUSTER, 1, SEQUENCE_MAX - 5)
    lease.ask()
    lease.written()
    assert lease.limit == SEQUENCE_MAX
    lease.used(SEQUENCE_MAX - 1)
    assert not lease.wanted()
    data = file_of({1: SEQUENCE_MAX, 2: SEQUENCE_MAX})
    data[cell_offset(2)] ^= 1
    assert read(data).sequence_limit == SEQUENCE_MAX
