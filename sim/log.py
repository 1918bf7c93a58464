"""A slot's log in a simulated owner: the order of events of io/slot_log.py and io/log_driver.py, in virtual time.

    read()        lock, perhaps a probe, Recovery: nothing is written
    open()        after OPEN: the first writes, the journal
    restore()     jobs into the engine
    each turn     collect, core.turn, write, submit, frames leave
    stop()        a clean end;  abandoned() any other one

Writes are done at once. Syncs are one helper's and everything else another's, each one request at a time; a request
takes effect somewhere between its being handed over and its answer, and a killed process leaves it half done.
"""

from collections import deque
from random import Random
from typing import TYPE_CHECKING, Any

from beanfield.owner.restoring import EngineJobs, restore_jobs
from beanfield.pages import OwnerCounters
from beanfield.wal.batches import LogConfig
from beanfield.wal.damage import LogDamage
from beanfield.wal.disk import DiskFault
from beanfield.wal.log import WalJournal
from beanfield.wal.opening import Opened, open_log
from beanfield.wal.recovery import Recovery
from beanfield.wal.requests import REQUEST_NAMES, SYNC, Request, perform
from sim.disk import SimStopped
from sim.history import WatchedJournal, facts_found
from sim.world import NS_PER_MS, Event, Violation

if TYPE_CHECKING:
    from sim.process import SimProcess
    from sim.storage import SlotStore

PROBE_NAME = "probe.tmp"
CALLS_HALF_DONE_MAX = 8


class DiskWorker:
    """A thread that performs one request after the other."""

    def __init__(self, log: "SimLog") -> None:
        self.log = log
        self.queue: deque[Request] = deque()
        self.answers: deque[tuple[Request, DiskFault | None]] = deque()
        self.event: Event | None = None
        self.answer: tuple[Request, DiskFault | None] | None = None  # performed, and not yet said

    def submit(self, request: Request) -> None:
        self.queue.append(request)
        if self.event is None:
            self._begin()

    def _begin(self) -> None:
        log = self.log
        latency_ns = log.store.draw_latency_ns()
        before_ns = log.random.choice((0, latency_ns // 2, latency_ns))
        self.event = log.process.world.after(before_ns, lambda: self._perform(latency_ns - before_ns))

    def _perform(self, rest_ns: int) -> None:
        self.answer = self.log.perform(self.queue[0])
        if self.log.process.alive:
            self.event = self.log.process.world.after(rest_ns, self._say)

    def _say(self) -> None:
        assert self.answer is not None
        self.event = None
        self.queue.popleft()
        self.answers.append(self.answer)
        self.answer = None
        self.log.process.wake()
        if self.queue:
            self._begin()

    def abandoned(self) -> None:
        """The process is killed: what it had in hand is done, half done, or not begun."""
        if self.event is not None:
            self.event.cancelled = True
        if self.queue and self.answer is None and self.log.random.random() < 0.7:
            disk = self.log.store.disk
            disk.stop_after_calls = disk.calls + self.log.random.randrange(CALLS_HALF_DONE_MAX)
            try:
                perform(self.queue[0], disk)
            except (SimStopped, DiskFault):
                pass  # nobody is left to be told
            disk.stop_after_calls = -1
        self.queue.clear()


class SimLog:
    """The log of one generation of an owner."""

    def __init__(self, process: "SimProcess", store: "SlotStore", random: Random) -> None:
        self.process = process
        self.store = store
        self.random = random
        self.jobs = EngineJobs()
        self.recovery: Recovery | None = None
        self.wall_offset_ns = 0
        self.syncs = DiskWorker(self)
        self.others = DiskWorker(self)
        self.opened: Opened | None = None
        self.ahead_ns = 0  # a clean stop lets time pass for itself alone

    # ---------------------------------------------------------------- start
    def read(self) -> None:
        """A DiskFault ends the start; damage is never the consequence of a crash."""
        disk = self.store.disk
        if not disk.lock():
            raise Violation(f"{self.process.title}: the lock is held by an owner that has ended")
        if self.store.probe:
            self._probe()
        recovery = Recovery(disk, self.store.slot, self.process.server.topology)
        try:
            recovery.survey()
            while recovery.step():
                pass
        except LogDamage as damage:
            raise Violation(f"{self.process.title}: a crash has left damage: {damage}") from damage
        self.recovery = recovery
        self.store.was_read(recovery, facts_found(recovery.replay))

    def _probe(self) -> None:
        disk = self.store.disk
        try:
            disk.create(PROBE_NAME, 4_096)
            disk.write(PROBE_NAME, 0, bytes(4_096))
            disk.sync(PROBE_NAME)
            disk.remove(PROBE_NAME)
            disk.sync_directory()
        except DiskFault as fault:
            if not fault.full():
                raise

    def created_ns_max(self) -> int:
        assert self.recovery is not None
        return 0 if self.process.server.planted == "age-forgotten" else int(self.recovery.replay.created_ns_max)

    def open(self) -> None:
        """Every slot has been read: from here on it writes."""
        recovery, options = self.recovery, self.process.server.options
        assert recovery is not None
        found = facts_found(recovery.replay)
        self.store.stopped_at_sequence = -1  # even if it is killed in here: it leases
        nonce = b"%s %d" % (self.process.title.encode(), self.random.getrandbits(32))
        opened = open_log(recovery, self.store.disk, options.segment_bytes, nonce)
        self.opened = opened
        self.wall_offset_ns = self.process.server.wall_offset_ns
        topology = self.process.server.topology
        config = LogConfig(
            self.store.slot, topology.cluster_id, topology.partitions, options.segment_bytes, options.segment_bytes,
            options.sync_ns, nonce,
        )  # fmt: skip
        self.inner = WalJournal(config, self.store.disk, opened, self.wall_offset_ns, self.jobs)
        self.store.was_opened(found)
        server = self.process.server
        self.journal = WatchedJournal(server.world, self.inner, self.store.history, server.storage.ages, server.planted)
        self.store.serves(self.journal)

    def first_sequence(self) -> int:
        """What the lease says; sometimes near the end of what is leased, so that more is asked for."""
        assert self.opened is not None and self.recovery is not None
        lease = self.opened.lease
        if self.process.server.planted == "ids-again":
            return int(self.recovery.replay.sequence_max) + 1
        skipped = self.process.server.options.lease_left
        if skipped and lease.limit - lease.next_sequence > skipped:
            return int(lease.limit) - skipped
        return int(lease.next_sequence)

    def restore_into(self, engine: Any) -> None:
        assert self.recovery is not None
        self.jobs.engine = engine
        restore_jobs(engine, self.recovery.replay, self.process.world.now_ns, self.wall_offset_ns)
        self.recovery = None

    # ---------------------------------------------------------------- each turn
    def now_ns(self) -> int:
        return self.process.world.now_ns + self.ahead_ns

    def collect(self) -> None:
        now_ns = self.now_ns()
        for helper in (self.syncs, self.others):
            while helper.answers:
                request, fault = helper.answers.popleft()
                if fault is None:
                    self.inner.completed(request, now_ns)
                elif not self.inner.refused(request, fault, now_ns):
                    raise fault
        self.journal.refresh()

    def write(self) -> None:
        now_ns = self.now_ns()
        for request in self.inner.take_writes():
            try:
                self.store.disk.write(request.name, request.offset, request.data)
            except DiskFault as fault:
                if not fault.full():
                    raise
                self.inner.write_refused(now_ns)
                break
            self.inner.wrote(request, now_ns)
        self.journal.refresh()

    def submit(self) -> None:
        for request in self.inner.take_requests(self.now_ns()):
            (self.syncs if request.kind == SYNC else self.others).submit(request)
        self.journal.refresh()

    def count(self, counters: OwnerCounters) -> None:
        counters.binlog_oldest_index = self.inner.stat_oldest_segment()
        counters.binlog_current_index = self.inner.stat_current_segment()

    def perform(self, request: Request) -> tuple[Request, DiskFault | None]:
        """In a helper."""
        process = self.process
        process.world.trace(process.title, f"log does {REQUEST_NAMES[request.kind]} {int(request.position)}")
        if request.kind == SYNC and process.server.planted == "no-sync":
            return request, None
        try:
            perform(request, self.store.disk)
        except DiskFault as fault:
            return request, fault
        except SimStopped:
            process.killed_in_call()
        return request, None

    # ---------------------------------------------------------------- ends
    def stop(self) -> None:
        """A clean stop, in no time; a disk that is full for writes does not let it be one. A fault is raised."""
        for _ in range(1_000):
            self.ahead_ns += NS_PER_MS
            self.inner.settle(self.now_ns())
            self.write()
            if self.inner.idle():
                break
            self.submit()
            self._finish(self.syncs)
            self._finish(self.others)
            if not self.process.alive:
                return
            self.collect()
        else:
            if not self.store.disk.refuse_writes:
                raise Violation(f"{self.process.title}: the log does not come to rest")
            return
        if self.inner.written_position > self.inner.synced_position:
            self._sync_now()
        self.inner.last_mark()
        self.inner.settle(self.now_ns())
        self.write()
        self._sync_now()
        perform(self.inner.close_cell(), self.store.disk)
        self.store.stopped_at_sequence = int(self.inner.lease.next_sequence)

    def _finish(self, helper: DiskWorker) -> None:
        if helper.event is not None:
            helper.event.cancelled = True
            helper.event = None
        while helper.queue:
            helper.answers.append(helper.answer or self.perform(helper.queue[0]))
            helper.answer = None
            if helper.queue:
                helper.queue.popleft()

    def _sync_now(self) -> None:
        request = self.inner.sync_all(self.now_ns())
        perform(request, self.store.disk)
        self.inner.completed(request, self.now_ns())
        self.journal.refresh()

    def abandoned(self) -> None:
        """The process has ended in whatever way; the kernel gives its lock back."""
        self.syncs.abandoned()
        self.others.abandoned()
        self.store.disk.killed()
