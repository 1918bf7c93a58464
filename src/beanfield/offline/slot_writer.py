"""Fills the log of a new slot with jobs from elsewhere, through the same journal as an owner: formats cannot diverge.

Everything is done at once, in one thread: what an owner's helpers would do is done in between. The end is that of a
clean stop: all synced, a last mark, and a lease with the exact next sequence.

Deadlines come and go as wall clock here, so the journal is told that wall and monotonic clock are the same.
"""

from typing import Final

from beanfield.engine.job import BURIED, READY, Job
from beanfield.routing import Topology
from beanfield.wal.batches import LogConfig
from beanfield.wal.disk import Disk, DiskFault
from beanfield.wal.journal import LiveJobs
from beanfield.wal.log import SYNC_NEVER, WalJournal
from beanfield.wal.opening import open_log
from beanfield.wal.recovery import Recovery
from beanfield.wal.requests import perform
from beanfield.wal.segments import needs_own_file, segment_bytes_for

BATCH_BYTES: Final = 1 << 20  # what is gathered before it is written
BATCH_JOBS: Final = 1_000
OWN_FILES_MAX: Final = 64  # bodies in files of their own that are not synced; their descriptors stay open until then


class SlotFull(Exception):
    """The disk has no room for what should be written."""


class NoOldJobs(LiveJobs):
    """A log that is only filled never gives anything up, so it never asks."""

    def find(self, id: int) -> Job | None:
        raise AssertionError("a new log would copy jobs")

    def tube_name(self, job: Job) -> bytes:
        raise AssertionError("a new log would copy jobs")


class SlotWriter:
    """One slot of a new root. `next_sequence`: what the slot will give out first, above all sequences written here."""

    def __init__(
        self, disk: Disk, slot: int, topology: Topology, segment_bytes: int, next_sequence: int, nonce: bytes
    ) -> None:
        recovery = Recovery(disk, slot, topology)
        recovery.survey()
        while recovery.step():
            pass
        assert recovery.fresh and recovery.current == 0, "a slot that is filled must be new"
        recovery.next_sequence = next_sequence
        length = segment_bytes_for(segment_bytes)
        config = LogConfig(
            slot, topology.cluster_id, int(topology.partitions), length, segment_bytes, int(SYNC_NEVER), nonce
        )
        self._disk = disk
        self._segment_bytes = length
        try:
            opened = open_log(recovery, disk, length, nonce)
        except DiskFault as fault:
            if fault.full():
                raise SlotFull from fault
            raise
        self._log = WalJournal(config, disk, opened, 0, NoOldJobs())
        self._batch_bytes = 0
        self._batch_jobs = 0
        self._own_files = 0
        self.jobs = 0
        self.body_bytes = 0

    def add(self, job: Job, tube_name: bytes) -> None:
        """A job that no other record of this log names; its deadline_ns is wall clock, or its burial number."""
        counted = bool(job.reserves or job.timeouts or job.releases or job.buries or job.kicks)
        state = job.state
        when = int(job.deadline_ns)
        if not self._log.can_put(job.id, tube_name, job.body):
            self._work()
            if not self._log.can_put(job.id, tube_name, job.body):
                raise SlotFull
        # A put makes no buried job and counts nothing: what has happened to the job since is a change.
        if state == BURIED:
            job.state = READY
            job.deadline_ns = 0
        self._log.put(job, tube_name)
        if counted or state == BURIED:
            if not self._log.can_change():
                self._work()
                if not self._log.can_change():
                    raise SlotFull
            job.state = state
            job.deadline_ns = when
            self._log.change(job, tube_name)
        self.jobs += 1
        self.body_bytes += len(job.body)
        self._batch_bytes += len(job.body) + len(tube_name)
        self._batch_jobs += 1
        if needs_own_file(self._segment_bytes, len(tube_name), len(job.body)):
            self._own_files += 1
            if self._own_files >= OWN_FILES_MAX:
                self._work()
                self._sync()
        if self._log.stalled or self._batch_bytes >= BATCH_BYTES or self._batch_jobs >= BATCH_JOBS:
            self._work()

    def pause(self, tube_name: bytes, pause_s: int, until_wall_ns: int) -> None:
        if self._log.stalled:
            self._work()  # a pause is left out where clients would have to wait
        self._log.pause(tube_name, pause_s, until_wall_ns)

    def created(self, created_ns: int) -> None:
        """No job of this slot will ever be made at or before it."""
        self._log.created_ns_max = max(self._log.created_ns_max, created_ns)

    def finish(self) -> None:
        """A clean stop."""
        self._work()
        self._sync()
        self._log.last_mark()
        self._log.settle(0)
        self._write()
        self._sync()
        perform(self._log.close_cell(), self._disk)
        self._disk.close()

    def abandon(self) -> None:
        """Closes the files; nothing is promised of them."""
        self._disk.close()

    def _work(self) -> None:
        """Writes the batch and does what the log wants done, until it wants nothing more."""
        self._batch_bytes = 0
        self._batch_jobs = 0
        self._log.settle(0)
        while True:
            self._write()
            requests = self._log.take_requests(0)
            if not requests:
                break
            for request in requests:
                try:
                    perform(request, self._disk)
                except DiskFault as fault:
                    if not self._log.refused(request, fault, 0):
                        raise
                    raise SlotFull from fault
                self._log.completed(request, 0)
            self._log.settle(0)
        assert self._log.idle() or self._log.written_position > self._log.synced_position

    def _write(self) -> None:
        for request in self._log.take_writes():
            try:
                self._disk.write(request.name, request.offset, request.data)
            except DiskFault as fault:
                if fault.full():
                    raise SlotFull from fault
                raise
            self._log.wrote(request, 0)

    def _sync(self) -> None:
        self._own_files = 0
        request = self._log.sync_all(0)
        perform(request, self._disk)
        self._log.completed(request, 0)
