"""From the files of a slot back to its jobs, reading only: order of the segments, their end, torn tail or damage.

`Recovery.survey` looks at the directory, then `step` reads one piece at a time (so that the caller can report
progress), then `result` holds everything that wal/opening.py and the engine need. Whatever is wrong is a LogDamage, and
not one byte has been written by then.

The rules, with the reasons in docs/wal.md, Recovery:
1. The floor F of the last mark in the valid part of the log says which segments count: those below it are leftovers.
2. Segments F .. last are all there, each ending in END, but for the last one with records.
3. At the first bad record X of that one: a later mark that says "synced beyond X" means damage, else X is the end and
   what lies behind it is the torn tail.
4. A body in a file of its own that is missing or differs is a bad record at the place that names it.
"""

import zlib
from typing import Final

from mypy_extensions import i64, mypyc_attr

from beanfield.constants import REPLAY_PIECE_BYTES, SEGMENT_BYTES_MAX
from beanfield.routing import Topology
from beanfield.wal.codec import BAD, NEED_MORE, ODD, RECORD, RecordReader, TailScan, position_of
from beanfield.wal.damage import LogDamage
from beanfield.wal.disk import Disk
from beanfield.wal.identity import identity_fault
from beanfield.wal.lease import LeaseFile
from beanfield.wal.records import END, KIND_NAMES, MARK
from beanfield.wal.replay import Replay
from beanfield.wal.segments import (
    BODY_PREFIX,
    HEADER_BYTES,
    IDENTITY_NAME,
    LEASE_NAME,
    SEGMENT_PREFIX,
    TEMPORARY_SUFFIX,
    Header,
    Segment,
    body_id,
    body_name,
    segment_name,
    segment_number,
)

PIECE: Final[i64] = REPLAY_PIECE_BYTES
HEAD_WORD: Final[i64] = 8
NO_END: Final[i64] = 0x7FFFFFFFFFFFFFFF


@mypyc_attr(native_class=True)
class Survey:
    """The directory as found."""

    def __init__(self) -> None:
        self.headers: dict[int, Header] = {}
        self.lowest: i64 = 0  # segment numbers; 0: there is none
        self.highest: i64 = 0
        self.last: i64 = 0  # the highest one with a first record; 0: there is none
        self.body_ids: list[int] = []
        self.temporaries: list[str] = []
        self.strangers: list[str] = []  # names that are not ours; left alone and reported


@mypyc_attr(native_class=True)
class Recovery:
    """One slot's log, read."""

    def __init__(self, disk: Disk, slot: i64, topology: Topology) -> None:
        self.disk: Disk = disk
        self.slot: i64 = slot
        self.topology: Topology = topology
        self.found: Survey = Survey()
        self.fresh: bool = False  # nothing was ever written here
        self.lease_serial: i64 = 0
        self.next_sequence: i64 = 0
        self.bytes_total: i64 = 0  # to be read; for progress
        self.bytes_read: i64 = 0
        # The result, once step() has returned False.
        self.replay: Replay = Replay(slot, topology)
        self.current: i64 = 0  # the segment to go on writing; 0: none has been made yet
        self.end_offset: i64 = 0  # of its valid part
        self.torn_end: i64 = 0  # behind the last byte of its torn tail; end_offset: there is none
        self.cut_position: i64 = NO_END  # a record that names a torn body: the log ends before it
        # What is being read.
        self._reader: RecordReader | None = None
        self._scan: TailScan | None = None
        self._segment: Segment | None = None
        self._at: i64 = 0
        self._complete: bool = False  # this segment has its END

    # ---------------------------------------------------------------- survey
    def survey(self) -> None:
        """Names, headers, identity, lease, floor. Must come first."""
        names = sorted(self.disk.names())
        self._check_identity(names)
        for name in names:
            self._classify(name)
        self._read_headers()
        self._read_lease(names)
        self._find_last()
        self._begin_at_floor()

    def _begin_at_floor(self) -> None:
        floor = self._find_floor()
        if self.found.highest > 0:
            for number in range(floor, self.found.highest + 1):
                if number not in self.found.headers:
                    raise LogDamage(segment_name(number), -1, "is missing; segments before and behind it are needed")
        self.replay.floor = floor
        self._begin(floor if self.found.highest > 0 else 0)

    def _check_identity(self, names: list[str]) -> None:
        if IDENTITY_NAME not in names:
            raise LogDamage(IDENTITY_NAME, -1, "is missing", "nothing was changed; is this a slot's directory?")
        found = self.disk.read(IDENTITY_NAME, 0, 4096)
        fault = identity_fault(found, self.topology.cluster_id, self.slot, self.topology.fingerprint)
        if fault != "":
            raise LogDamage(IDENTITY_NAME, -1, fault, "nothing was changed; is this the directory that was meant?")

    def _classify(self, name: str) -> None:
        found = self.found
        number = segment_number(name)
        if number > 0:
            found.headers[number] = Header(self.disk.read(name, 0, HEADER_BYTES))
            return
        id = body_id(name)
        if id > 0:
            found.body_ids.append(id)
        elif name.endswith(TEMPORARY_SUFFIX):
            found.temporaries.append(name)
        elif name.startswith(SEGMENT_PREFIX) or name.startswith(BODY_PREFIX) or name.startswith("binlog."):
            raise LogDamage(name, -1, "is no file of this log", "nothing was changed; move it away if it is not needed")
        elif name not in (IDENTITY_NAME, LEASE_NAME, "lock"):
            found.strangers.append(name)

    def _read_headers(self) -> None:
        found = self.found
        for number, header in found.headers.items():
            name = segment_name(number)
            if header.fault == "":
                self._check_header(number, header, name)
            if header.fault != "":
                raise LogDamage(name, 0, header.fault)
            self.bytes_total += header.segment_bytes
            if found.lowest == 0 or number < found.lowest:
                found.lowest = number
            if number > found.highest:
                found.highest = number

    def _check_header(self, number: i64, header: Header, name: str) -> None:
        size = self.disk.size(name)
        if header.cluster_id != self.topology.cluster_id:
            header.fault = f"belongs to another server (cluster id {header.cluster_id.hex()})"
        elif header.slot != self.slot:
            header.fault = f"belongs to slot {header.slot}, not to slot {self.slot}"
        elif header.number != number:
            header.fault = f"is segment {header.number}, under the name of another one"
        elif header.segment_bytes <= HEADER_BYTES or header.segment_bytes > SEGMENT_BYTES_MAX:
            header.fault = f"says that it has {header.segment_bytes} bytes, which cannot be"
        elif size != header.segment_bytes:
            header.fault = f"has {size} bytes, must have {header.segment_bytes}"

    def _read_lease(self, names: list[str]) -> None:
        if LEASE_NAME not in names:
            self.fresh = True  # unless a record is found: see _find_last
            return
        lease = LeaseFile(self.disk.read(LEASE_NAME, 0, 1 << 16), self.slot, self.topology.cluster_id)
        if lease.fault != "":
            raise LogDamage(LEASE_NAME, -1, lease.fault)
        if self.found.highest == 0:
            raise LogDamage(LEASE_NAME, -1, "ids have been leased, but there is no segment: they are missing")
        self.lease_serial = lease.serial
        self.next_sequence = lease.sequence_limit

    def _find_last(self) -> None:
        """The segment behind it may hold a torn first batch; reading goes on there after its END (`_finished`)."""
        found = self.found
        for number in range(found.highest, found.lowest - 1, -1):
            if number not in found.headers:
                continue
            head = self.disk.read(segment_name(number), HEADER_BYTES, HEAD_WORD)
            if head != bytes(int(HEAD_WORD)):
                found.last = number
                break
        if found.last != 0 and self.fresh:
            raise LogDamage(LEASE_NAME, -1, f"is missing, but {segment_name(found.last)} has records")

    def _find_floor(self) -> i64:
        """From the last mark that is valid and has nothing invalid before it."""
        number = self.found.last
        while number > 0 and number in self.found.headers:
            header = self.found.headers[number]
            reader = RecordReader(number, header.salt, header.segment_bytes, HEADER_BYTES)
            floor: i64 = 0
            status: i64 = NEED_MORE
            offset: i64 = HEADER_BYTES
            while status == NEED_MORE and offset < header.segment_bytes:
                piece = self.disk.read(segment_name(number), offset, PIECE)
                offset += len(piece)
                reader.receive(piece)
                status = reader.next()
                while status == RECORD and position_of(number, reader.record_offset) < self.cut_position:
                    if reader.kind == MARK:
                        floor = reader.floor
                    if reader.kind == END:
                        break
                    status = reader.next()
            if floor > 0:
                return floor
            number -= 1
        return 1

    # ---------------------------------------------------------------- reading
    def _begin(self, number: i64) -> None:
        """Reads segment `number` from its start; 0: there is nothing to read."""
        self.current = number
        self._complete = False
        self._scan = None
        if number == 0:
            self._reader = None
            self._segment = None
            return
        header = self.found.headers[number]
        self._reader = RecordReader(number, header.salt, header.segment_bytes, HEADER_BYTES)
        self._segment = Segment(number, header.segment_bytes, header.salt)
        self.replay.segment_begun(self._segment)
        self._at = HEADER_BYTES

    def step(self) -> bool:
        """Reads one piece. False: everything has been read, and the result is there."""
        segment = self._segment
        reader = self._reader
        if segment is None or reader is None:
            return False
        name = segment_name(segment.number)
        if self._at < segment.bytes:
            piece = self.disk.read(name, self._at, PIECE)
            self._at += len(piece)
            self.bytes_read += len(piece)
            if len(piece) == 0:
                raise LogDamage(name, self._at, "became shorter while it was read")
            scan = self._scan
            if scan is not None:
                scan.receive(piece)
            else:
                reader.receive(piece)
                self._records(reader, segment)
        if self._at >= segment.bytes or self._complete:
            return self._finished(reader, segment)
        return True

    def _records(self, reader: RecordReader, segment: Segment) -> None:
        """Applies what is complete; at the first thing that is no record, begins the scan of what lies behind."""
        status: i64 = NEED_MORE
        while True:
            if position_of(segment.number, reader.offset) >= self.cut_position:
                status = BAD
                break
            status = reader.next()
            if status != RECORD:
                break
            fault = self.replay.apply(reader, segment)
            if fault != "":
                raise LogDamage(segment_name(segment.number), int(reader.record_offset), fault)
            if reader.kind == END:
                self._complete = True
                return
        if status == NEED_MORE:
            return
        name = segment_name(segment.number)
        if status == ODD:
            kind = reader.kind
            what = KIND_NAMES[kind] if 0 < kind < len(KIND_NAMES) else str(kind)
            raise LogDamage(name, int(reader.record_offset), f"a valid record of kind {what} has impossible fields")
        if segment.number < self.found.last:
            raise LogDamage(
                name, int(reader.offset), f"not a record, though {segment_name(self.found.last)} was written later"
            )
        scan = TailScan(segment.number, segment.salt, reader.offset)
        scan.receive(reader.rest())
        self._scan = scan

    def _finished(self, reader: RecordReader, segment: Segment) -> bool:
        """The segment has been read. True: go on with the next one."""
        name = segment_name(segment.number)
        following = segment.number + 1
        if self._complete:
            if following not in self.found.headers:
                raise LogDamage(segment_name(following), -1, f"is missing: {name} is finished, and it comes next")
            self._begin(following)
            return True
        scan = self._scan
        if scan is None:
            # The bytes ran out inside a record.
            raise LogDamage(name, int(reader.offset), "ends inside a record")
        if scan.synced_position > position_of(segment.number, reader.offset):
            raise LogDamage(name, int(reader.offset), "not a record, though a later mark says that it had been synced")
        if following in self.found.headers:
            self._check_untouched(following)
        self.end_offset = reader.offset
        self.torn_end = scan.nonzero_end
        segment.used = reader.offset
        if not self._load_bodies(scan):
            return True
        self._check_sequences()
        self._segment = None
        self._reader = None
        return False

    def _check_untouched(self, number: i64) -> None:
        """The segment before it is not finished, so this one never got a byte: the next records will go there."""
        offset: i64 = HEADER_BYTES
        name = segment_name(number)
        segment_bytes = self.found.headers[number].segment_bytes
        while offset < segment_bytes:
            piece = self.disk.read(name, offset, PIECE)
            if piece.count(b"\0") != len(piece):
                raise LogDamage(name, int(offset), f"has bytes, though {segment_name(number - 1)} is not finished")
            offset += len(piece)
            if len(piece) == 0:
                raise LogDamage(name, int(offset), "became shorter while it was read")

    def _load_bodies(self, scan: TailScan) -> bool:
        """Bodies with files of their own. False: the log must be read again, and ends earlier (rule 4)."""
        synced = self.replay.synced_position
        if scan.synced_position > synced:
            synced = scan.synced_position
        if synced < position_of(self.found.last, 0):
            synced = position_of(self.found.last, 0)  # it has records, so those before it had been synced
        cut: i64 = NO_END
        for id, own in self.replay.own_bodies.items():
            name = body_name(id)
            body = b""
            if id in self.found.body_ids:
                body = self.disk.read(name, 0, own.body_bytes + 1)
            if len(body) == own.body_bytes and zlib.crc32(body) == own.crc:
                self.replay.jobs[id].body = body
            elif own.position < synced:
                raise LogDamage(name, -1, f"is missing or damaged; job {id} needs it, and it had been synced")
            elif own.position < cut:
                cut = own.position
        if cut == NO_END:
            return True
        assert cut < self.cut_position
        self.cut_position = cut
        # A floor that was only named behind the cut does not count: what it gave up has not been removed yet.
        self.replay = Replay(self.slot, self.topology)
        self.bytes_read = 0
        self._begin_at_floor()
        return False

    def _check_sequences(self) -> None:
        if self.replay.sequence_max >= self.next_sequence and self.found.last != 0:
            raise LogDamage(
                LEASE_NAME,
                -1,
                f"allows sequences below {self.next_sequence}, but the log has {self.replay.sequence_max}: it is old",
            )

    # ---------------------------------------------------------------- result
    def torn_bytes(self) -> i64:
        return self.torn_end - self.end_offset

    def leftovers(self) -> list[str]:
        """Files that no job needs: given-up segments, bodies of deleted jobs, temporaries."""
        names = list(self.found.temporaries)
        for number in sorted(self.found.headers):
            if number not in self.replay.segments and number < self.current:
                names.append(segment_name(number))
        for id in self.found.body_ids:
            if id not in self.replay.own_bodies:
                names.append(body_name(id))
        return names

    def spares(self) -> list[int]:
        """Numbers of the empty segments behind the current one."""
        return [number for number in sorted(self.found.headers) if number > self.current]
