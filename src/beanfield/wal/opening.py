"""The first writes on a log that has been read: its tail made sure, leftovers removed, a spare and a lease made.

Only called once every slot of the server has been read without a fault (OPEN). Each step may be repeated: a crash
anywhere in here leaves a log that reads the same. Order matters, see docs/wal.md, Opening:
1. what was read but perhaps never reached the disk is written again, the torn tail is overwritten with zeros, synced;
2. only then leftovers are removed, since the records that make them leftovers are durable now;
3. a first segment, then a lease: a lease beside no segment means that segments are missing.
"""

import zlib
from typing import Final

from mypy_extensions import i64, mypyc_attr

from beanfield.wal.codec import position_of
from beanfield.wal.disk import Disk, DiskFault
from beanfield.wal.lease import Lease, cell_offset
from beanfield.wal.recovery import Recovery
from beanfield.wal.replay import Pause
from beanfield.wal.requests import make_lease, make_segment
from beanfield.wal.segments import HEADER_BYTES, LEASE_NAME, Segment, body_name, encode_header, segment_name

PIECE: Final[i64] = 1_048_576


@mypyc_attr(native_class=True)
class Opened:
    """A log ready to be written, for WalJournal."""

    def __init__(self, lease: Lease) -> None:
        self.lease: Lease = lease
        self.segments: list[Segment] = []  # oldest first; the last one is the current one
        self.spares: list[Segment] = []
        self.own_bodies: list[int] = []
        self.pauses: dict[bytes, Pause] = {}
        self.burial_max: i64 = 0
        self.created_ns_max: i64 = 0
        self.full: bool = False  # no spare could be made


def segment_salt(nonce: bytes, number: i64) -> i64:
    """Different for every segment, and not known to clients (records.py says what for). nonce: random, per process."""
    return zlib.crc32(str(number).encode(), zlib.crc32(nonce))


def open_log(recovery: Recovery, disk: Disk, segment_bytes: i64, nonce: bytes) -> Opened:
    """Raises DiskFault; of those only a fresh slot on a full disk is `full`."""
    topology = recovery.topology
    lease = Lease(recovery.slot, topology.cluster_id, recovery.lease_serial, recovery.next_sequence)
    opened = Opened(lease)
    if recovery.current > 0:
        _secure_tail(recovery, disk)
    leftovers = recovery.leftovers()
    for name in leftovers:
        disk.remove(name)
    if len(leftovers) > 0:
        disk.sync_directory()
    replay = recovery.replay
    for number in sorted(replay.segments):
        opened.segments.append(replay.segments[number])
    for number in recovery.spares():
        header = recovery.found.headers[number]
        opened.spares.append(Segment(number, header.segment_bytes, header.salt))
    if recovery.current == 0:
        opened.segments.append(_make(recovery, disk, 1, segment_bytes, nonce))
    if len(opened.spares) == 0:
        following = opened.segments[len(opened.segments) - 1].number + 1
        try:
            opened.spares.append(_make(recovery, disk, following, segment_bytes, nonce))
        except DiskFault as fault:
            if not fault.full():
                raise
            opened.full = True
    _lease(recovery, disk, lease)
    opened.own_bodies = list(replay.own_bodies)
    opened.pauses = replay.pauses
    opened.burial_max = replay.burial_max
    opened.created_ns_max = replay.created_ns_max
    return opened


def _make(recovery: Recovery, disk: Disk, number: i64, segment_bytes: i64, nonce: bytes) -> Segment:
    salt = segment_salt(nonce, number)
    header = encode_header(number, recovery.slot, recovery.topology.cluster_id, segment_bytes, salt)
    make_segment(disk, number, segment_bytes, header)
    return Segment(number, segment_bytes, salt)


def _secure_tail(recovery: Recovery, disk: Disk) -> None:
    """After a failed write-back the kernel shows pages as clean that are not on the disk; it does so to a later process
    too. So everything that no mark calls synced is written again, with the bytes it has: harmless wherever a crash cuts
    it. The finished segment before an untouched current one may be in that state as well.
    """
    number = recovery.current
    if recovery.end_offset == HEADER_BYTES and number - 1 in recovery.replay.segments:
        previous = recovery.replay.segments[number - 1]
        _rewrite(disk, recovery, number - 1, previous.used)
        disk.sync(segment_name(number - 1))
    names_made = False
    for id, own in recovery.replay.own_bodies.items():
        if own.position >= recovery.replay.synced_position:
            name = body_name(id)
            disk.write(name, 0, recovery.replay.jobs[id].body)
            disk.sync(name)
            names_made = True
    if names_made:
        disk.sync_directory()
    name = segment_name(number)
    _rewrite(disk, recovery, number, recovery.end_offset)
    at = recovery.end_offset
    while at < recovery.torn_end:
        part = min(recovery.torn_end - at, PIECE)
        disk.write(name, at, bytes(int(part)))
        at += part
    disk.sync(name)


def _rewrite(disk: Disk, recovery: Recovery, number: i64, end: i64) -> None:
    """Writes the bytes from the last synced position to `end` again."""
    at = HEADER_BYTES
    synced = recovery.replay.synced_position
    if synced > position_of(number, at):
        at = synced - position_of(number, 0)
    name = segment_name(number)
    while at < end:
        data = disk.read(name, at, min(end - at, PIECE))
        assert len(data) > 0
        disk.write(name, at, data)
        at += len(data)


def _lease(recovery: Recovery, disk: Disk, lease: Lease) -> None:
    """The first block of this run. Without space for it (copy-on-write file systems) puts wait for WalJournal's try."""
    cell = lease.ask()
    offset = cell_offset(lease.serial)
    try:
        if recovery.lease_serial == 0:
            make_lease(disk, cell, offset)
        else:
            disk.write(LEASE_NAME, offset, cell)
            disk.sync(LEASE_NAME)
    except DiskFault as fault:
        if not fault.full():
            raise
        lease.refused()
        return
    lease.written()
