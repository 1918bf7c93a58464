"""The part of a log that gives old segments up: jobs are copied out of the oldest one, in small steps, oldest first.

Order of the log is what makes this simple: in the oldest segment nothing is needed but full records of live jobs.
Changes and deletes in it concern jobs whose full record is in it too, or was copied later. Once its jobs are copied, a
mark behind the copies names the new floor; once that is synced, the segment may go (docs/wal.md, Giving segments up).

How hard to work is decided by space.py; a turn's share is bounded. Knows no files and no clock.
"""

from typing import Final

from librt.strings import read_i64_le
from mypy_extensions import i64, mypyc_attr

from beanfield.constants import CLEAN_TURN_BYTES_MAX, CLEAN_TURN_JOBS_MAX, SPACE_RETRY_NS
from beanfield.engine.job import Job
from beanfield.wal.batches import BatchedJournal, LogConfig
from beanfield.wal.codec import position_of
from beanfield.wal.disk import Disk, DiskFault
from beanfield.wal.journal import LiveJobs
from beanfield.wal.opening import Opened
from beanfield.wal.records import CLAIM_BYTES, COPY, MARK_BYTES, PAUSE_BYTES
from beanfield.wal.segments import Segment, body_name
from beanfield.wal.space import NO_CLEANING, PACED

PACE: Final[i64] = 4  # bytes copied for each byte written, when cleaning is PACED
STEPS_PER_JOB: Final[i64] = 20  # ids looked up in a turn for each job that may be copied in it


@mypyc_attr(native_class=True)
class CleanedJournal(BatchedJournal):
    """Adds copying to batches."""

    def __init__(self, config: LogConfig, disk: Disk, opened: Opened, wall_offset_ns: i64, jobs: LiveJobs) -> None:
        super().__init__(config, disk, opened, wall_offset_ns)
        self.jobs: LiveJobs = jobs
        self._clean_at: i64 = 0  # in the ids of the oldest segment
        self._clean_ids: bytes = b""
        self._clean_blocked_ns: i64 = 0  # no copying before: the disk was full
        self._emptied_positions: list[int] = []  # for each emptied segment, what must be synced before it may go
        self._clean_position: i64 = 0  # the last of them

    def _can_clean_more(self) -> bool:
        return self.space.cleaning() > PACED and self._fits(self._record_bytes_max())

    def _clean(self, now_ns: i64) -> None:
        """Copies jobs out of the oldest segments, within the turn's budget; an emptied one raises the floor."""
        space = self.space
        urgency = space.cleaning()
        if urgency == NO_CLEANING or now_ns < self._clean_blocked_ns:
            return
        budget: i64 = CLEAN_TURN_BYTES_MAX
        if urgency == PACED and self._appended * PACE < budget:
            budget = self._appended * PACE
        copied_jobs: i64 = 0
        steps: i64 = 0
        while budget > 0 and copied_jobs < CLEAN_TURN_JOBS_MAX and steps < STEPS_PER_JOB * CLEAN_TURN_JOBS_MAX:
            segment = space.oldest()
            steps += 1
            if segment.job_count == 0:
                self._copy_pauses(segment.number, now_ns)
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

    def _copy_pauses(self, number: i64, now_ns: i64) -> None:
        """Pauses that are over, or find no room, end here."""
        for name, pause in list(self._pauses.items()):
            if pause.segment != number:
                continue
            del self._pauses[name]
            if pause.until_wall_ns > now_ns + self.wall_offset_ns:
                if self._begin_record(PAUSE_BYTES + 8 + len(name)):
                    self._write_pause(name, pause.pause_s, pause.until_wall_ns)
                else:
                    self.left_out += 1

    def _emptied(self, segment: Segment) -> None:
        """All its jobs are copied, in this batch or before.

        The mark says so, and it must stand behind the copies: a mark counts only if the log before it is valid, so
        whoever sees the new floor has the copies too.
        """
        self._floor = segment.number + 1
        self._mark()
        self.space.oldest_emptied()
        self._clean_at = 0
        self._clean_ids = b""
        current = self.space.current()
        self._clean_position = position_of(current.number, current.used)
        self._emptied_positions.append(self._clean_position)
