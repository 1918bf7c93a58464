"""The journal with files: records into batches, batches into write requests, and what may be answered when.

A turn: the engine's changes append records to one open batch in memory; `settle` copies jobs out of old segments if it
is time to, and closes the batch. Then the loop, not the core, goes on:

    for request in log.take_writes():   disk.write(...); log.wrote(request, now)    at once, in order; `wrote` only on success
    for request in log.take_requests(now):   hand it to a helper;    later log.completed(request, now) or log.refused(...)

Rules: a segment is finished by END and synced before its successor gets a byte, so batches behind a border wait in
`_chunks`. Everything unsynced lies in one segment. `position`, `written_position`, `synced_position` only grow, and
synced <= written. The same log in the same turns makes the same requests: there is no clock and no chance in here.

Knows no files beyond the requests, with one exception: space for a body of its own is taken in can_put, because the
answer to the client depends on it.
"""

from typing import Final

from librt.strings import BytesWriter, read_i64_le
from mypy_extensions import i32, i64, mypyc_attr

from beanfield.constants import (
    CLEAN_TURN_BYTES_MAX,
    CLEAN_TURN_JOBS_MAX,
    LONE_MARK_NS,
    NEVER_NS,
    SEGMENT_PARTS,
    SPACE_RETRY_NS,
    WRITE_RETRY_NS,
)
from beanfield.engine.job import Job
from beanfield.wal.codec import position_of
from beanfield.wal.disk import Disk, DiskFault
from beanfield.wal.journal import Journal, LiveJobs
from beanfield.wal.lease import Lease, cell_offset
from beanfield.wal.opening import Opened, segment_salt
from beanfield.wal.records import (
    CHANGE_BYTES,
    CLAIM_BYTES,
    COPY,
    COUNT_BYTES,
    DELETE_BYTES,
    MARK_BYTES,
    PAUSE_BYTES,
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
from beanfield.wal.requests import LEASE, MAKE, RECYCLE, RETIRE, SYNC, WRITE, Request
from beanfield.wal.segments import Segment, body_name, encode_header, segment_name
from beanfield.wal.space import NO_CLEANING, PACED, Space

SYNC_EVERY_TURN: Final[i64] = 0  # -f 0
SYNC_NEVER: Final[i64] = -1  # -F
PARTS: Final[i64] = SEGMENT_PARTS
WAITING_BYTES_MAX: Final[i64] = 8_388_608  # of batches behind a segment that is being synced; above, clients wait
BODY_REMOVAL_NS: Final[i64] = 50_000_000  # bodies of deleted jobs are given back with a sync at most so much later
# What a RETIRE removes, in its `number`.
REMOVES_EMPTIED: Final[i64] = 1
REMOVES_SPARE: Final[i64] = 2
REMOVES_BODIES: Final[i64] = 3
PACE: Final[i64] = 4  # bytes copied for each byte written, when cleaning is PACED


@mypyc_attr(native_class=True)
class Chunk:
    """A closed batch, or the part of one that lies in one segment."""

    def __init__(
        self, segment: Segment, offset: i64, data: bytes, bodies: list[Job], last: bool, durable_position: i64
    ) -> None:
        self.segment: Segment = segment
        self.offset: i64 = offset
        self.data: bytes = data
        self.bodies: list[Job] = bodies  # written into their own files first
        self.last: bool = last  # ends in END
        self.end_position: i64 = position_of(segment.number, offset + len(data))
        self.durable_position: i64 = durable_position  # behind the last record that somebody waits for


@mypyc_attr(native_class=True)
class WalJournal(Journal):
    """One slot's log, open for writing."""

    def __init__(
        self,
        disk: Disk,
        opened: Opened,
        jobs: LiveJobs,
        slot: i64,
        cluster_id: bytes,
        partitions: i64,
        segment_bytes: i64,
        segment_bytes_given: i64,
        sync_ns: i64,
        nonce: bytes,
        wall_offset_ns: i64,
    ) -> None:
        super().__init__()
        assert sync_ns >= SYNC_NEVER
        self.disk: Disk = disk
        self.jobs: LiveJobs = jobs
        self.slot: i64 = slot
        self.cluster_id: bytes = cluster_id
        self.partitions: i64 = partitions
        self.segment_bytes_given: i64 = segment_bytes_given
        self.sync_ns: i64 = sync_ns
        self.nonce: bytes = nonce
        self.wall_offset_ns: i64 = wall_offset_ns  # wall clock less monotonic clock; the loop may correct it
        self.space: Space = Space(segment_bytes, opened.segments, opened.spares)
        self.space.disk_full = opened.full
        self.lease: Lease = opened.lease
        self.sequence_limit = self.lease.limit
        self.created_ns_max: i64 = opened.created_ns_max
        current = self.space.current()
        self.written_position: i64 = position_of(current.number, current.used)
        self.synced_position: i64 = self.written_position
        self.position = self.written_position
        self.released_position = self.written_position
        self._durable_written: i64 = self.written_position  # of what was written, what somebody waits for
        self._floor: i64 = self.space.oldest().number
        # The open batch lies at _batch_offset of the current segment.
        self._batch: BytesWriter = BytesWriter()
        self._batch_offset: i64 = current.used
        self._batch_bodies: list[Job] = []
        self._chunks: list[Chunk] = []
        self._waiting_bytes: i64 = 0
        self._marked_position: i64 = -1  # the synced position in the last mark
        self._lone_mark_ns: i64 = 0  # when a mark alone is due; NEVER_NS: no
        # Bodies with their own files.
        self._own: set[int] = set(opened.own_bodies)
        self._own_granted: i64 = 0  # the job whose file can_put has made
        self._bodies_to_sync: list[str] = []
        self._bodies_to_remove: list[str] = []
        self._remove_position: i64 = 0  # all of them are deletable once this is synced
        self._remove_ns: i64 = NEVER_NS  # when that sync is due
        # Syncs.
        self._syncing: bool = False
        self._sync_begun_ns: i64 = 0
        self._unsynced_ns: i64 = NEVER_NS  # when the first record that somebody waits for was written, unsynced
        self._finished_position: i64 = 0  # end of a finished segment, if the written part ends there
        # Cleaning.
        self._clean_at: i64 = 0  # in the ids of the oldest segment
        self._clean_ids: bytes = b""
        self._emptied_positions: list[int] = []  # for each emptied segment, what must be synced before it may go
        self._clean_position: i64 = 0  # the last emptied segment may go once this is synced
        self._appended: i64 = 0  # bytes since the last settle
        self._clean_blocked_ns: i64 = 0
        # Requests under way.
        self._making: bool = False
        self._removing: i64 = 0  # emptied segments being removed
        self._dropping: bool = False
        self._space_retry_ns: i64 = 0
        self._write_retry_ns: i64 = NEVER_NS  # a write found the disk full
        self._lease_retry_ns: i64 = 0
        self._wants_segment: bool = False
        # Statistics; `left_out` is for the log of the process.
        self.records_written: i64 = 0
        self.records_migrated: i64 = 0
        self.left_out: i64 = 0
        self._judge()

    # ---------------------------------------------------------------- asked before a change
    def can_put(self, id: i64, tube_name: bytes, body: bytes) -> bool:
        whole = copy_bytes(len(tube_name), len(body))
        own = whole > self._record_bytes_max()
        if own:
            whole = copy_bytes(len(tube_name), 0)
        if not self.space.can_hold(whole + CLAIM_BYTES) or not self._fits(whole):
            self._wants_segment = True
            return False
        if own:
            try:
                self.disk.create(body_name(id), len(body))
            except DiskFault as fault:
                if not fault.full():
                    raise
                return False
            self._own_granted = id
        return True

    def can_change(self) -> bool:
        # Twice: what a change costs, and the delete that must still be possible.
        return self._fits(CHANGE_BYTES + DELETE_BYTES)

    # ---------------------------------------------------------------- told after a change
    def put(self, job: Job, tube_name: bytes) -> None:
        own = job.id == self._own_granted
        if own:
            self._own_granted = 0
            self._own.add(job.id)
        if job.created_ns > self.created_ns_max:
            self.created_ns_max = job.created_ns
        lease = self.lease
        lease.used((job.id - 1) // self.partitions)
        self._write_job(PUT, job, tube_name, own)
        self._durable()

    def change(self, job: Job, tube_name: bytes) -> None:
        if self._begin_record(CHANGE_BYTES):
            current = self.space.current()
            self._appended_record(write_change(self._batch, current.salt, current.used, job, self.wall_offset_ns))
            self._durable()
        else:
            assert False, "a change was told without room for it: can_change was not asked"

    def count(self, job: Job) -> None:
        # Room that only just suffices belongs to changes and deletes.
        if self.stalled or not self._begin_record(COUNT_BYTES):
            self.left_out += 1
            return
        current = self.space.current()
        self._appended_record(write_count(self._batch, current.salt, current.used, job))

    def delete(self, job: Job, tube_name: bytes) -> None:
        fits = self._begin_record(DELETE_BYTES)
        assert fits, "no room for a delete record, though every job has a claim to it"
        current = self.space.current()
        self._appended_record(write_delete(self._batch, current.salt, current.used, job.id))
        self._durable()
        own = self._is_own(job)
        self.space.job_deleted(i64(job.segment), self._cost(job, tube_name, own), DELETE_BYTES)
        if own:
            self._own.remove(job.id)
            self._bodies_to_remove.append(body_name(job.id))
            self._remove_position = self.position
        self._judge()

    def pause(self, tube_name: bytes, pause_s: i64, until_ns: i64) -> None:
        if self.stalled or not self._begin_record(PAUSE_BYTES + 8 + len(tube_name)):
            self.left_out += 1
            return
        current = self.space.current()
        until_wall_ns = until_ns + self.wall_offset_ns
        self._appended_record(write_pause(self._batch, current.salt, current.used, tube_name, pause_s, until_wall_ns))
        self._durable()

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
        return self.segment_bytes_given

    def stat_records_written(self) -> i64:
        return self.records_written

    def stat_records_migrated(self) -> i64:
        return self.records_migrated

    # ---------------------------------------------------------------- between the log and its loop: writes
    def take_writes(self) -> list[Request]:
        """All that may be written now, in order. What is not reported by `wrote` is given again next time."""
        writes: list[Request] = []
        finished = self._finished_position
        for chunk in self._chunks:
            if finished != 0 and self.synced_position < finished:
                break
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
        """Nothing waits to be written or synced, and no request is under way."""
        busy = self._syncing or self._making or self._removing > 0 or self._dropping or self.lease.asked_limit != 0
        return not busy and len(self._chunks) == 0 and len(self._batch) == 0 and not self._unsynced()

    # ---------------------------------------------------------------- appending
    def _record_bytes_max(self) -> i64:
        """The longest record that fits into any segment it could land in (an older one may be shorter)."""
        smallest = self.space.current().bytes
        for spare in self.space.spares:
            if spare.bytes < smallest:
                smallest = spare.bytes
        if self.space.segment_bytes < smallest:
            smallest = self.space.segment_bytes
        return smallest // PARTS

    def _fits(self, record_bytes: i64) -> bool:
        return record_bytes + MARK_BYTES <= self.space.current().room() or len(self.space.spares) > 0

    def _begin_record(self, record_bytes: i64) -> bool:
        """Finds room in the current segment, going on to the next one if need be; a mark if the batch is new."""
        space = self.space
        if record_bytes + MARK_BYTES > space.current().room():
            if len(space.spares) == 0:
                return False
            self._finish_segment()
        if len(self._batch) == 0:
            self._mark()
        return True

    def _mark(self) -> None:
        current = self.space.current()
        position = position_of(current.number, current.used)
        current.used += write_mark(
            self._batch, current.salt, current.used, position, self.synced_position, self._floor, self.created_ns_max
        )
        self._marked_position = self.synced_position
        self._lone_mark_ns = NEVER_NS

    def _finish_segment(self) -> None:
        current = self.space.current()
        position = position_of(current.number, current.used)
        current.used += write_end(self._batch, current.salt, current.used, position)
        assert current.used <= current.bytes
        self._close_batch(True)
        self.space.begin_spare()
        self._batch_offset = self.space.current().used

    def _appended_record(self, record_bytes: i64) -> None:
        current = self.space.current()
        current.used += record_bytes
        assert current.room() >= 0
        self._appended += record_bytes
        self.records_written += 1

    def _durable(self) -> None:
        """Somebody waits for the record just appended."""
        current = self.space.current()
        self.position = position_of(current.number, current.used)
        self._judge()

    def _close_batch(self, last: bool) -> None:
        if len(self._batch) == 0:
            return
        data = self._batch.getvalue()
        current = self.space.current()
        assert self._batch_offset + len(data) == current.used
        self._chunks.append(Chunk(current, self._batch_offset, data, self._batch_bodies, last, self.position))
        self._waiting_bytes += len(data)
        self._batch = BytesWriter()
        self._batch_bodies = []
        self._batch_offset = current.used

    def _cost(self, job: Job, tube_name: bytes, own: bool) -> i64:
        return copy_bytes(len(tube_name), 0 if own else len(job.body)) + CLAIM_BYTES

    def _is_own(self, job: Job) -> bool:
        return len(self._own) > 0 and job.id in self._own

    def _write_job(self, kind: i64, job: Job, tube_name: bytes, own: bool) -> None:
        cost = self._cost(job, tube_name, own)
        fits = self._begin_record(cost - CLAIM_BYTES)
        assert fits, "a job was told without room for it: can_put was not asked"
        current = self.space.current()
        if own and kind == PUT:
            self._batch_bodies.append(job)
        self._appended_record(
            write_job(self._batch, current.salt, current.used, kind, job, tube_name, own, self.wall_offset_ns)
        )
        self.space.job_added(current, job.id, cost)
        job.segment = i32(current.number)

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
        if self._finished_position > self.synced_position:
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

    # ---------------------------------------------------------------- cleaning
    def _can_clean_more(self) -> bool:
        return self.space.cleaning() > PACED and self._fits(self._record_bytes_max())

    def _clean(self, now_ns: i64) -> None:
        """Copies jobs out of the oldest segment, within the turn's budget; a segment that is emptied raises the floor."""
        space = self.space
        urgency = space.cleaning()
        if urgency == NO_CLEANING or now_ns < self._clean_blocked_ns:
            return
        budget: i64 = CLEAN_TURN_BYTES_MAX
        if urgency == PACED and self._appended * PACE < budget:
            budget = self._appended * PACE
        copied_jobs: i64 = 0
        steps: i64 = 0
        while budget > 0 and copied_jobs < CLEAN_TURN_JOBS_MAX and steps < 20 * CLEAN_TURN_JOBS_MAX:
            segment = space.oldest()
            steps += 1
            if segment.job_count == 0:
                if not self._begin_record(MARK_BYTES):
                    return
                self._emptied(segment)
                if space.cleaning() == NO_CLEANING:
                    return
                continue
            id = self._next_id(segment)
            job = self.jobs.find(id)
            if job is None or job.segment != segment.number:
                continue
            cost = self._copy(job, segment, now_ns)
            if cost == 0:
                return
            copied_jobs += 1
            budget -= cost

    def _next_id(self, segment: Segment) -> i64:
        if self._clean_at == 0:
            self._clean_ids = segment.ids.getvalue()
        assert self._clean_at < len(self._clean_ids), "a segment counts more jobs than it has recorded"
        id = read_i64_le(self._clean_ids, self._clean_at)
        self._clean_at += 8
        return id

    def _copy(self, job: Job, segment: Segment, now_ns: i64) -> i64:
        """Returns the bytes it took; 0: there was no room."""
        tube_name = self.jobs.tube_name(job)
        own = self._is_own(job)
        cost = self._cost(job, tube_name, own)
        becomes_own = not own and cost - CLAIM_BYTES > self._record_bytes_max()
        if becomes_own:
            # -s is smaller than it was when this job came.
            if not self._give_own_file(job, now_ns):
                self._clean_at -= 8
                return 0
        if not self._fits(cost - CLAIM_BYTES):
            self._clean_at -= 8
            return 0
        space = self.space
        space.job_moved(segment.number, cost)
        self._write_job(COPY, job, tube_name, own or becomes_own)
        self.records_migrated += 1
        return cost

    def _give_own_file(self, job: Job, now_ns: i64) -> bool:
        try:
            self.disk.create(body_name(job.id), len(job.body))
        except DiskFault as fault:
            if not fault.full():
                raise
            self._clean_blocked_ns = now_ns + SPACE_RETRY_NS
            return False
        self._own.add(job.id)
        self._batch_bodies.append(job)
        return True

    def _emptied(self, segment: Segment) -> None:
        """All its jobs are copied, in this batch or before. The mark behind the copies says so: a valid mark has a valid
        log before it, so whoever sees the new floor has the copies too."""
        self._floor = segment.number + 1
        self._mark()
        self.space.oldest_emptied()
        self._clean_at = 0
        self._clean_ids = b""
        current = self.space.current()
        self._clean_position = position_of(current.number, current.used)
        self._emptied_positions.append(self._clean_position)

    # ---------------------------------------------------------------- space
    def _make_request(self, kind: i64, length: i64) -> Request:
        number = self.space.highest() + 1
        request = Request(kind)
        request.number = number
        request.length = length
        request.data = encode_header(number, self.slot, self.cluster_id, length, segment_salt(self.nonce, number))
        self._making = True
        return request

    def _spare_made(self, request: Request) -> None:
        assert self._making
        self._making = False
        salt = segment_salt(self.nonce, request.number)
        self.space.spare_made(Segment(request.number, request.length, salt))

    def _removal_requests(self, requests: list[Request]) -> None:
        """Segments that are emptied, bodies of deleted jobs, spares too many; each once what makes it so is synced."""
        space = self.space
        ready: i64 = 0
        for position in self._emptied_positions:
            if position <= self.synced_position:
                ready += 1
        if ready > 0 and self._removing == 0 and not self._dropping:
            if not space.keeps_emptied():
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

    def _judge(self) -> None:
        """Brings `stalled` up to date."""
        self.stalled = (
            self._write_retry_ns != NEVER_NS
            or self._waiting_bytes > WAITING_BYTES_MAX
            or self.space.short(self._making)
        )
