"""What the log wants done on its disk, as values; and how each is done, step by step, on whatever disk there is.

WRITE is done by the loop at once, in order; one SYNC at a time by helpers (threads, or the simulator's virtual one),
and everything else by another helper, one after the other, so that no answer waits for housekeeping. `perform` runs in
any of them and raises DiskFault. What it does is written so that a crash between any two calls leaves a directory that
recovery understands (docs/wal.md, Crash windows).
"""

from typing import Final

from mypy_extensions import i64, mypyc_attr

from beanfield.wal.disk import Disk, DiskFault
from beanfield.wal.lease import CELL_SPACING_BYTES, LEASE_FILE_BYTES
from beanfield.wal.segments import LEASE_NAME, TEMPORARY_SUFFIX, segment_name

WRITE: Final = 1  # data at offset of name
SYNC: Final = 2  # names, in order; then what was written up to `position` is durable
MAKE: Final = 3  # segment `number` of `length` bytes with the header `data`, durable under its name
RETIRE: Final = 4  # removes names, durably
RECYCLE: Final = 5  # turns the file names[0] into segment `number`, zeros and header, durably
LEASE: Final = 6  # data at offset of the lease file, durable

REQUEST_NAMES: Final = ("", "write", "sync", "make", "retire", "recycle", "lease")

SPARE_TEMPORARY: Final = "spare" + TEMPORARY_SUFFIX
LEASE_TEMPORARY: Final = LEASE_NAME + TEMPORARY_SUFFIX
ZERO_BYTES: Final[i64] = 1_048_576


@mypyc_attr(native_class=True)
class Request:
    """One of the above. Fields that its kind does not name are empty."""

    def __init__(self, kind: i64) -> None:
        self.kind: i64 = kind
        self.name: str = ""
        self.names: list[str] = []
        self.offset: i64 = 0
        self.data: bytes = b""
        self.number: i64 = 0
        self.length: i64 = 0
        self.position: i64 = 0
        self.directory: bool = False  # SYNC: names were made since the last one


def perform(request: Request, disk: Disk) -> None:
    kind = request.kind
    if kind == WRITE:
        disk.write(request.name, request.offset, request.data)
    elif kind == SYNC:
        # Bodies come before the segment whose records name them, and their names before both.
        if request.directory:
            disk.sync_directory()
        for name in request.names:
            disk.sync(name)
    elif kind == MAKE:
        make_segment(disk, request.number, request.length, request.data)
    elif kind == RETIRE:
        for name in request.names:
            disk.remove(name)
        disk.sync_directory()
    elif kind == RECYCLE:
        recycle_segment(disk, request.names[0], request.number, request.length, request.data)
    else:
        assert kind == LEASE
        disk.write(LEASE_NAME, request.offset, request.data)
        disk.sync(LEASE_NAME)


def make_segment(disk: Disk, number: i64, length: i64, header: bytes) -> None:
    """Under its own name it is complete from the first moment. A disk that is full leaves no name behind.

    Zeros are really written: blocks that are only promised would make every later sync a change of metadata, and some
    file systems need space for that.
    """
    disk.create(SPARE_TEMPORARY, length)
    try:
        _write_zeros(disk, length)
    except DiskFault:
        disk.remove(SPARE_TEMPORARY)
        raise
    disk.write(SPARE_TEMPORARY, 0, header)
    disk.sync(SPARE_TEMPORARY)
    disk.rename(SPARE_TEMPORARY, segment_name(number))
    disk.sync_directory()


def recycle_segment(disk: Disk, old_name: str, number: i64, length: i64, header: bytes) -> None:
    """Needs no space. The old name must be durably gone before its contents are."""
    disk.rename(old_name, SPARE_TEMPORARY)
    disk.sync_directory()
    _write_zeros(disk, length)
    disk.write(SPARE_TEMPORARY, 0, header)
    disk.sync(SPARE_TEMPORARY)
    disk.rename(SPARE_TEMPORARY, segment_name(number))
    disk.sync_directory()


def _write_zeros(disk: Disk, length: i64) -> None:
    offset: i64 = 0
    while offset < length:
        part = length - offset
        if part > ZERO_BYTES:
            part = ZERO_BYTES
        disk.write(SPARE_TEMPORARY, offset, bytes(int(part)))
        offset += part


def make_lease(disk: Disk, cell: bytes, offset: i64) -> None:
    assert offset == 0 or offset == CELL_SPACING_BYTES
    disk.create(LEASE_TEMPORARY, LEASE_FILE_BYTES)
    disk.write(LEASE_TEMPORARY, offset, cell)
    disk.sync(LEASE_TEMPORARY)
    disk.rename(LEASE_TEMPORARY, LEASE_NAME)
    disk.sync_directory()
