"""The part of a log that takes records: where each goes, batches, segments that end, what is kept of the ledger.

Changes append to one open batch in memory; a batch becomes a chunk per segment that it touches; chunks wait in order to
be written. A batch begins with a mark. A segment is ended by END as soon as a record does not fit any more.

Knows no files beyond names and no time, with one exception: space for a body of its own is taken from the disk in
`can_put`, because the answer to the client depends on it.
"""

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i32, i64, mypyc_attr

from beanfield.constants import NEVER_NS, SEGMENT_PARTS
from beanfield.engine.job import Job
from beanfield.wal.codec import position_of
from beanfield.wal.disk import Disk, DiskFault
from beanfield.wal.journal import Journal
from beanfield.wal.lease import Lease
from beanfield.wal.opening import Opened
from beanfield.wal.records import (
    CHANGE_BYTES,
    CLAIM_BYTES,
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
from beanfield.wal.replay import Pause
from beanfield.wal.segments import Segment, body_name
from beanfield.wal.space import Space

PARTS: Final[i64] = SEGMENT_PARTS
WAITING_BYTES_MAX: Final[i64] = 8_388_608  # of batches behind a segment that is being synced; above, clients wait


@mypyc_attr(native_class=True)
class LogConfig:
    """What a log is told about itself."""

    def __init__(
        self,
        slot: i64,
        cluster_id: bytes,
        partitions: i64,
        segment_bytes: i64,
        segment_bytes_given: i64,
        sync_ns: i64,
        nonce: bytes,
    ) -> None:
        self.slot: i64 = slot
        self.cluster_id: bytes = cluster_id
        self.partitions: i64 = partitions
        self.segment_bytes: i64 = segment_bytes  # segments.segment_bytes_for(-s)
        self.segment_bytes_given: i64 = segment_bytes_given
        self.sync_ns: i64 = sync_ns  # log.SYNC_EVERY_TURN, SYNC_NEVER, or -f in nanoseconds
        self.nonce: bytes = nonce  # random, for this process; the salts of new segments come from it


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
class BatchedJournal(Journal):
    """Records and batches. What is done with them, and when: cleaning.py and log.py, which extend it."""

    def __init__(self, config: LogConfig, disk: Disk, opened: Opened, wall_offset_ns: i64) -> None:
        super().__init__()
        self.config: LogConfig = config
        self.disk: Disk = disk
        self.wall_offset_ns: i64 = wall_offset_ns  # wall clock less monotonic clock; the loop may correct it
        self.space: Space = Space(config.segment_bytes, opened.segments, opened.spares)
        self.space.disk_full = opened.full
        self.lease: Lease = opened.lease
        self.sequence_limit = self.lease.limit
        self.created_ns_max: i64 = opened.created_ns_max
        current = self.space.current()
        self.written_position: i64 = position_of(current.number, current.used)
        self.synced_position: i64 = self.written_position
        self.position = self.written_position
        self.released_position = self.written_position
        self._floor: i64 = self.space.oldest().number
        # The open batch lies at _batch_offset of the current segment.
        self._batch: BytesWriter = BytesWriter()
        self._batch_offset: i64 = current.used
        self._batch_bodies: list[Job] = []
        self._chunks: list[Chunk] = []
        self._waiting_bytes: i64 = 0
        self._appended: i64 = 0  # bytes since the last settle
        self._marked_position: i64 = -1  # the synced position in the last mark
        self._lone_mark_ns: i64 = 0  # when a mark alone is due; NEVER_NS: it is not
        # Bodies with files of their own.
        self._own: set[int] = set(opened.own_bodies)
        self._own_granted: i64 = 0  # the job whose file can_put has made
        self._bodies_to_remove: list[str] = []
        self._remove_position: i64 = 0  # all of them may go once this is synced
        self._pauses: dict[bytes, Pause] = opened.pauses  # copied like jobs, if they are not over
        # State of log.py that decides about `stalled`.
        self._making: bool = False  # a segment
        self._write_retry_ns: i64 = NEVER_NS  # a write found the disk full
        self._wants_segment: bool = False
        # Statistics; `left_out` is for the log of the process.
        self.records_written: i64 = 0
        self.records_migrated: i64 = 0
        self.left_out: i64 = 0

    # ---------------------------------------------------------------- asked before a change
    def can_put(self, id: i64, tube_name: bytes, body: bytes) -> bool:
        self._own_granted = 0
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
        lease.used((job.id - 1) // self.config.partitions)
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
        self._write_pause(tube_name, pause_s, until_ns + self.wall_offset_ns)
        self._durable()

    def _write_pause(self, tube_name: bytes, pause_s: i64, until_wall_ns: i64) -> None:
        current = self.space.current()
        self._appended_record(write_pause(self._batch, current.salt, current.used, tube_name, pause_s, until_wall_ns))
        self._pauses[tube_name] = Pause(pause_s, until_wall_ns, current.number)

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

    def _judge(self) -> None:
        """Brings `stalled` up to date."""
        self.stalled = (
            self._write_retry_ns != NEVER_NS
            or self._waiting_bytes > WAITING_BYTES_MAX
            or self.space.short(self._making)
        )
