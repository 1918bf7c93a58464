"""Runs the requests of a WalJournal on a disk: writes at once, everything else in threads.

The owner's loop, once per turn:

    raw = reactor.poll(...)
    if driver.descriptor is among them:  driver.collect(now_ns)
    core.turn(now_ns)                    ends in journal.settle
    driver.write(now_ns)
    driver.submit(now_ns)                the disk is busy with this turn while the answers of the last one leave
    reactor.flush(core.take_outbox())    the core lets go of frames up to journal.released_position

Three threads, each with one thing to do at a time:
- syncs of the segment in use alone, which answers wait for and which are nearly all there is (sync_thread.py);
- syncs of more than that: bodies with files of their own, and the directory;
- all housekeeping.

A DiskFault out of any of these is the end of the owner: it exits at once with its own code, and what the kernel
still shows of unsynced pages is not to be trusted (docs/wal.md, Faults). Threads never touch the log.
"""

import os
import queue
import select
import threading
import time
from collections import deque

from beanfield.constants import NEVER_NS
from beanfield.io.disk import RealDisk
from beanfield.io.sync_thread import NOT_DONE, SyncThread
from beanfield.wal.disk import Disk, DiskFault
from beanfield.wal.log import WalJournal
from beanfield.wal.requests import SYNC, Request, perform

_STOP_POLL_MS = 5
STOP_SECONDS_MAX = 30.0  # a clean stop gives up on a stalled disk after this; what is acknowledged is written anyway


class DiskThread:
    """A thread that performs one request after the other, and says so through a descriptor."""

    def __init__(self, name: str, disk: Disk, descriptor: int) -> None:
        self._disk = disk
        self._descriptor = descriptor
        self._requests: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self.answers: deque[tuple[Request, DiskFault | None]] = deque()
        # Not `_thread`: compiled that is a word of the C compiler.
        self._runner = threading.Thread(target=self._run, name=name, daemon=True)
        self._runner.start()

    def submit(self, request: Request) -> None:
        self._requests.put(request)

    def stop(self) -> None:
        self._requests.put(None)
        self._runner.join()

    def _run(self) -> None:
        while True:
            request = self._requests.get()
            if request is None:
                return
            fault: DiskFault | None = None
            try:
                perform(request, self._disk)
            except DiskFault as caught:
                fault = caught
            self.answers.append((request, fault))
            os.eventfd_write(self._descriptor, 1)


class LogDriver:
    """One slot's log at work."""

    def __init__(self, disk: RealDisk, log: WalJournal) -> None:
        self._disk = disk
        self._log = log
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._segment_syncs = SyncThread(self.descriptor)
        self._segment_sync: Request | None = None  # under way
        self._syncs = DiskThread("log syncs", disk, self.descriptor)
        self._others = DiskThread("log housekeeping", disk, self.descriptor)
        self.sync_since_ns = NEVER_NS  # when the sync that is under way was asked for; NEVER_NS: none is

    def write(self, now_ns: int) -> None:
        """Writes what the turn left, in order. A full disk (copy-on-write file systems) stops it until the next try."""
        for request in self._log.take_writes():
            try:
                self._disk.write(request.name, request.offset, request.data)
            except DiskFault as fault:
                if not fault.full():
                    raise
                self._log.write_refused(now_ns)
                return
            self._log.wrote(request, now_ns)

    def submit(self, now_ns: int) -> None:
        for request in self._log.take_requests(now_ns):
            if request.kind == SYNC:
                self.sync_since_ns = now_ns
                if not self._began_segment_sync(request):
                    self._syncs.submit(request)
            else:
                self._others.submit(request)

    def _began_segment_sync(self, request: Request) -> bool:
        if request.directory or len(request.names) > 1:
            return False
        file = self._disk.begin_sync(request.names[0])
        if file < 0:
            return False
        self._segment_sync = request
        self._segment_syncs.begin(file)
        return True

    def collect(self, now_ns: int) -> None:
        """Takes in what the helpers have done."""
        try:
            os.eventfd_read(self.descriptor)
        except BlockingIOError:
            return
        self._collect_segment_sync(now_ns)
        for helper in (self._syncs, self._others):
            while helper.answers:
                request, fault = helper.answers.popleft()
                self._answered(request, fault, now_ns)

    def _collect_segment_sync(self, now_ns: int) -> None:
        request = self._segment_sync
        if request is None:
            return
        number = self._segment_syncs.take()
        if number == NOT_DONE:
            return
        self._segment_sync = None
        self._disk.end_sync(request.names[0], number)
        self._answered(request, None, now_ns)

    def _answered(self, request: Request, fault: DiskFault | None, now_ns: int) -> None:
        if request.kind == SYNC:
            self.sync_since_ns = NEVER_NS
        if fault is None:
            self._log.completed(request, now_ns)
        elif not self._log.refused(request, fault, now_ns):
            raise fault

    def stop(self) -> bool:
        """A clean stop: everything written, synced and marked, the lease exact. False: the disk did not answer in time.

        The engine must have come to rest: nothing is told to the log any more.
        """
        until = time.monotonic() + STOP_SECONDS_MAX
        if not self._drain(until):
            return False
        if self._log.written_position > self._log.synced_position:
            self._sync_now()
        self._log.last_mark()
        self._log.settle(time.monotonic_ns())
        self.write(time.monotonic_ns())
        self._sync_now()
        perform(self._log.close_cell(), self._disk)
        self._segment_syncs.stop()
        self._syncs.stop()
        self._others.stop()
        os.close(self.descriptor)
        self._disk.close()
        return True

    def _drain(self, until: float) -> bool:
        """Until nothing is under way and nothing waits."""
        waiting = select.poll()
        waiting.register(self.descriptor, select.POLLIN)
        while True:
            self._log.settle(time.monotonic_ns())
            self.write(time.monotonic_ns())
            if self._log.idle():
                return True
            if time.monotonic() > until:
                return False
            self.submit(time.monotonic_ns())
            waiting.poll(_STOP_POLL_MS)  # woken by a helper, or for what is due by time
            self.collect(time.monotonic_ns())

    def _sync_now(self) -> None:
        request = self._log.sync_all(time.monotonic_ns())
        perform(request, self._disk)
        self._log.completed(request, time.monotonic_ns())
