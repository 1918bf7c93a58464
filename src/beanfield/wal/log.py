"""The journal with files: records into batches, batches into write requests, and what may be answered when.

A turn: the engine's changes append records to one open batch in memory; `settle` copies jobs out of old segments if it
is time to, and closes the batch. Then the loop, not the core, goes on:

    for request in log.take_writes():        disk.write(...), then log.wrote(request, now); at once, in order
    for request in log.take_requests(now):   hand it to a helper; later log.completed(...) or log.refused(...)

Rules: a segment is finished by END and synced before its successor gets a byte, so batches behind a border wait in
`_chunks`. Everything unsynced lies in one segment. `position`, `written_position`, `synced_position` only grow, and
synced <= written. The same log in the same turns makes the same requests: there is no clock and no chance in here.

Knows no files beyond its requests. The parts it stands on: batches.py, cleaning.py.
"""

from typing import Final

from mypy_extensions import i64, mypyc_attr

from beanfield.constants import LONE_MARK_NS, NEVER_NS, SPACE_RETRY_NS, WRITE_RETRY_NS
from beanfield.wal.batches import LogConfig
from beanfield.wal.cleaning import CleanedJournal
from beanfield.wal.disk import Disk, DiskFault
from beanfield.wal.journal import LiveJobs
from beanfield.wal.lease import cell_offset
from beanfield.wal.opening import Opened, segment_salt
from beanfield.wal.requests import LEASE, MAKE, RECYCLE, RETIRE, SYNC, WRITE, Request
from beanfield.wal.segments import Segment, body_name, encode_header, segment_name

SYNC_EVERY_TURN: Final[i64] = 0  # -f 0
SYNC_NEVER: Final[i64] = -1  # -F
BODY_REMOVAL_NS: Final[i64] = 50_000_000  # bodies of deleted jobs are given back with a sync at most so much later
# What a RETIRE removes, in its `number`.
REMOVES_EMPTIED: Final[i64] = 1
REMOVES_SPARE: Final[i64] = 2
REMOVES_BODIES: Final[i64] = 3


@mypyc_attr(native_class=True)
class WalJournal(CleanedJournal):
    """One slot's log, open for writing."""

    def __init__(self, config: LogConfig, disk: Disk, opened: Opened, wall_offset_ns: i64, jobs: LiveJobs) -> None:
        super().__init__(config, disk, opened, wall_offset_ns, jobs)
        assert config.sync_ns >= SYNC_NEVER
        self.sync_ns: i64 = config.sync_ns
        # Syncs.
        self._syncing: bool = False
        self._sync_begun_ns: i64 = 0
        self._durable_written: i64 = self.written_position  # of what was written, what somebody waits for
        self._unsynced_ns: i64 = NEVER_NS  # when the first record that somebody waits for was written, unsynced
        self._finished_position: i64 = 0  # end of a finished segment, if the written part ends there
        self._bodies_to_sync: list[str] = []
        self._remove_ns: i64 = NEVER_NS  # when a sync is due for the sake of bodies_to_remove
        # Requests under way, beside _making.
        self._removing: i64 = 0  # emptied segments being removed
        self._dropping: bool = False  # a spare
        self._space_retry_ns: i64 = 0
        self._lease_retry_ns: i64 = 0
        self._judge()

    # ---------------------------------------------------------------- each turn
    def settle(self, now_ns: i64) -> None:
        self._clean(now_ns)
        if len(self._batch) == 0 and self._lone_mark_ns <= now_ns:
            self._lone_mark_ns = NEVER_NS
            if self._begin_record(0):
                self._marked_position = self.synced_position
        self._close_batch(False)
        self._appended = 0
        if len(self._bodies_to_remove) > 0 and self._remove_ns == NEVER_NS:
            self._remove_ns = now_ns + BODY_REMOVAL_NS
        self._judge()

    def next_deadline_ns(self) -> i64:
        if self._can_clean_more():
            return self._clean_blocked_ns
        if len(self._chunks) > 0 and self._write_retry_ns == NEVER_NS and not self._at_border():
            return 0  # a finished segment has been synced, and what waited behind it can be written
        deadline = self._lone_mark_ns if len(self._chunks) == 0 else NEVER_NS
        if self._write_retry_ns < deadline:
            deadline = self._write_retry_ns
        if not self._syncing:
            due = self._sync_due_ns()
            if due < deadline:
                deadline = due
        if not self._making and (self._wants_segment or self.space.wants_segment()):
            if self._space_retry_ns < deadline:
                deadline = self._space_retry_ns
        if self.lease.wanted() and self._lease_retry_ns < deadline:
            deadline = self._lease_retry_ns
        return deadline

    def stat_oldest_segment(self) -> i64:
        return self.space.segments[0].number

    def stat_current_segment(self) -> i64:
        return self.space.current().number

    def stat_segment_bytes(self) -> i64:
        return self.config.segment_bytes_given

    def stat_records_written(self) -> i64:
        return self.records_written

    def stat_records_migrated(self) -> i64:
        return self.records_migrated

    # ---------------------------------------------------------------- between the log and its loop: writes
    def take_writes(self) -> list[Request]:
        """All that may be written now, in order. What is not reported by `wrote` is given again next time."""
        writes: list[Request] = []
        if self._at_border():
            return writes
        for chunk in self._chunks:
            for job in chunk.bodies:
                # A body file may be long gone when a chunk is repeated; its delete record comes later in the log.
                write = Request(WRITE)
                write.name = body_name(job.id)
                write.data = job.body
                writes.append(write)
            write = Request(WRITE)
            write.name = segment_name(chunk.segment.number)
            write.offset = chunk.offset
            write.data = chunk.data
            write.position = chunk.end_position
            writes.append(write)
            if chunk.last:
                break
        return writes

    def _at_border(self) -> bool:
        """What is written ends in a finished segment that is not synced: its successor must not get a byte."""
        return self._finished_position > self.synced_position

    def wrote(self, request: Request, now_ns: i64) -> None:
        """One write of take_writes is done."""
        assert request.kind == WRITE
        self._write_retry_ns = NEVER_NS
        if request.position == 0:
            self._bodies_to_sync.append(request.name)
            return
        chunk = self._chunks.pop(0)
        assert chunk.end_position == request.position
        assert chunk.end_position > self.written_position
        self._waiting_bytes -= len(chunk.data)
        self.written_position = chunk.end_position
        self._finished_position = chunk.end_position if chunk.last else 0
        self._durable_written = chunk.durable_position
        if self._unsynced_ns == NEVER_NS and self._unsynced():
            self._unsynced_ns = now_ns
        self._release(now_ns)
        self._judge()

    def write_refused(self, now_ns: i64) -> None:
        """A write found the disk full (a copy-on-write file system): it is tried again; clients wait."""
        self._write_retry_ns = now_ns + WRITE_RETRY_NS
        self._judge()

    # ---------------------------------------------------------------- between the log and its loop: helpers
    def take_requests(self, now_ns: i64) -> list[Request]:
        """What a helper should do. Each is answered by `completed` or `refused`."""
        requests: list[Request] = []
        if not self._syncing and self._sync_due_ns() <= now_ns:
            requests.append(self._sync_request(now_ns))
        if self.lease.wanted() and now_ns >= self._lease_retry_ns:
            cell = self.lease.ask()
            request = Request(LEASE)
            request.data = cell
            request.offset = cell_offset(self.lease.serial)
            requests.append(request)
        self._removal_requests(requests)
        if not self._making and not self._dropping and now_ns >= self._space_retry_ns:
            if self._wants_segment or self.space.wants_segment():
                requests.append(self._make_request(MAKE, self.space.segment_bytes))
        self._wants_segment = False
        self._judge()
        return requests

    def completed(self, request: Request, now_ns: i64) -> None:
        kind = request.kind
        if kind == SYNC:
            self._synced(request.position, now_ns)
        elif kind == LEASE:
            self.lease.written()
            self.sequence_limit = self.lease.limit
        elif kind == MAKE:
            self._spare_made(request)
        elif kind == RECYCLE:
            self._emptied_removed(1)
            self._spare_made(request)
        else:
            assert kind == RETIRE
            if request.number == REMOVES_EMPTIED:
                self._emptied_removed(len(request.names))
            elif request.number == REMOVES_SPARE:
                self._dropping = False
        self._release(now_ns)
        self._judge()

    def refused(self, request: Request, fault: DiskFault, now_ns: i64) -> bool:
        """A request failed. False: the owner must stop, the page cache is not to be trusted any more."""
        kind = request.kind
        if not fault.full() or kind == SYNC or kind == WRITE:
            return False
        if kind == MAKE:
            self._making = False
            self.space.disk_full = True
            self._space_retry_ns = now_ns + SPACE_RETRY_NS
        elif kind == LEASE:
            self.lease.refused()
            self._lease_retry_ns = now_ns + SPACE_RETRY_NS
        else:
            return False
        self._judge()
        return True

    # ---------------------------------------------------------------- stopping
    def sync_all(self, now_ns: i64) -> Request:
        """A sync although none is due. No other one is under way."""
        assert not self._syncing
        return self._sync_request(now_ns)

    def close_cell(self) -> Request:
        """After everything is written and synced and no request is under way: the lease's last cell."""
        request = Request(LEASE)
        request.data = self.lease.close()
        request.offset = cell_offset(self.lease.serial)
        return request

    def last_mark(self) -> None:
        """The next settle writes a mark alone."""
        self._lone_mark_ns = 0

    def idle(self) -> bool:
        """Nothing waits to be written, or for a sync that the mode makes, and no request is under way."""
        busy = self._syncing or self._making or self._removing > 0 or self._dropping or self.lease.asked_limit != 0
        waits = self._unsynced() and self.sync_ns != SYNC_NEVER
        return not busy and len(self._chunks) == 0 and len(self._batch) == 0 and not waits

    # ---------------------------------------------------------------- durability
    def _unsynced(self) -> bool:
        return self._durable_written > self.synced_position

    def _release(self, now_ns: i64) -> None:
        """The release rule. With -f MS, answers wait while a sync is under way for longer than MS."""
        released = self.written_position
        if self.sync_ns == SYNC_EVERY_TURN:
            released = self.synced_position
        elif self.sync_ns > 0 and self._syncing and now_ns - self._sync_begun_ns > self.sync_ns:
            return
        if released > self.released_position:
            self.released_position = released

    def _sync_due_ns(self) -> i64:
        """When the next sync should begin; NEVER_NS: there is no reason for one."""
        if self._at_border():
            return 0
        if self._clean_position > self.synced_position and self.written_position >= self._clean_position:
            return 0
        due: i64 = NEVER_NS
        if self._unsynced() and self.sync_ns >= 0:
            due = self._unsynced_ns + self.sync_ns if self.sync_ns > 0 else 0
        removable = self.written_position >= self._remove_position > self.synced_position
        if len(self._bodies_to_remove) > 0 and removable and self._remove_ns < due:
            due = self._remove_ns
        return due

    def _sync_request(self, now_ns: i64) -> Request:
        request = Request(SYNC)
        request.position = self.written_position
        request.directory = len(self._bodies_to_sync) > 0
        request.names = self._bodies_to_sync
        # What is written ends in this segment, and everything unsynced is in it.
        request.names.append(segment_name(self.written_position >> 32))
        self._bodies_to_sync = []
        self._syncing = True
        self._sync_begun_ns = now_ns
        self._unsynced_ns = NEVER_NS
        return request

    def _synced(self, position: i64, now_ns: i64) -> None:
        assert self._syncing
        assert self.synced_position <= position <= self.written_position
        self._syncing = False
        self.synced_position = position
        if position > self._marked_position and self._lone_mark_ns == NEVER_NS:
            self._lone_mark_ns = now_ns + LONE_MARK_NS
        if not self._unsynced():
            self._unsynced_ns = NEVER_NS

    # ---------------------------------------------------------------- space
    def _make_request(self, kind: i64, length: i64) -> Request:
        number = self.space.highest() + 1
        request = Request(kind)
        request.number = number
        request.length = length
        request.data = encode_header(
            number, self.config.slot, self.config.cluster_id, length, segment_salt(self.config.nonce, number)
        )
        self._making = True
        return request

    def _spare_made(self, request: Request) -> None:
        assert self._making
        self._making = False
        salt = segment_salt(self.config.nonce, request.number)
        self.space.spare_made(Segment(request.number, request.length, salt))

    def _removal_requests(self, requests: list[Request]) -> None:
        """Segments that are emptied, bodies of deleted jobs, spares too many; each once what makes it so is synced."""
        space = self.space
        ready: i64 = 0
        for position in self._emptied_positions:
            if position <= self.synced_position:
                ready += 1
        if ready > 0 and self._removing == 0 and not self._dropping:
            # A segment of an older -s is given back where a new one can be made.
            outdated = space.segments[0].bytes != space.segment_bytes and not space.disk_full
            if outdated or not space.keeps_emptied():
                self._removing = ready
                retire = Request(RETIRE)
                retire.number = REMOVES_EMPTIED
                for segment in space.segments[: int(ready)]:
                    retire.names.append(segment_name(segment.number))
                requests.append(retire)
            elif not self._making:
                self._removing = 1
                emptied = space.segments[0]
                recycle = self._make_request(RECYCLE, emptied.bytes)
                recycle.names.append(segment_name(emptied.number))
                requests.append(recycle)
        if len(self._bodies_to_remove) > 0 and self._remove_position <= self.synced_position:
            retire = Request(RETIRE)
            retire.number = REMOVES_BODIES
            retire.names = self._bodies_to_remove
            self._bodies_to_remove = []
            self._remove_ns = NEVER_NS
            requests.append(retire)
        if not self._making and not self._dropping and space.wants_fewer_spares():
            self._dropping = True
            retire = Request(RETIRE)
            retire.number = REMOVES_SPARE
            retire.names.append(segment_name(space.drop_spare().number))
            requests.append(retire)

    def _emptied_removed(self, count: i64) -> None:
        assert count == self._removing
        self._removing = 0
        for _ in range(count):
            self.space.removed()
            self._emptied_positions.pop(0)
