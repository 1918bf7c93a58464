"""A slot's log in its owner's process, from the slot directory's lock to the clean stop.

    log = SlotLog(...)
    log.lock(), log.read()     writes nothing but an empty lock file
    log.open()                 after the supervisor's OPEN: now it writes
    core = OwnerCore(..., log.journal)
    log.restore_into(core.engine), log.restore()
    log.begin(counters)        then each turn: driver.collect, core.turn, log.turn, flush (log_driver.py)
    log.stop()                 at a clean end

`lock` to `restore` may take long: they run beside the control socket (io/beside.py), and `progress` says how far they
are. LogDamage and DiskFault become StartupErrors with the exit codes of docs/wal.md. It knows the order of things; what
is in a log, and what a job is, it does not.
"""

import gc
import os
import time

from beanfield.constants import EXIT_BAD_DATA, EXIT_DISK, NEVER_NS, NS_PER_S
from beanfield.engine.engine import Engine
from beanfield.errors import StartupError
from beanfield.io.clock import now_ns, wall_ns
from beanfield.io.disk import RealDisk
from beanfield.io.log import log
from beanfield.io.log_driver import LogDriver
from beanfield.owner.restoring import EngineJobs, Restoring
from beanfield.pages import OwnerCounters
from beanfield.routing import Topology
from beanfield.wal.batches import LogConfig
from beanfield.wal.damage import LogDamage
from beanfield.wal.disk import DiskFault
from beanfield.wal.log import WalJournal
from beanfield.wal.opening import Opened, open_log
from beanfield.wal.recovery import Recovery
from beanfield.wal.segments import SEGMENT_PREFIX, segment_bytes_for

LOCK_WAIT_S = 10.0  # for the lock of an owner that was killed: the kernel frees it once that process is gone
LOCK_POLL_S = 0.01
NONCE_BYTES = 16
PROBE_NAME = "probe.tmp"
PROBE_BYTES = 4096
NOTICE_NS = 1 * NS_PER_S  # the wall clock is compared, and the operator told, at most this often
LEFT_OUT_LOG_NS = 60 * NS_PER_S
STALLED_SYNC_NS = 2 * NS_PER_S  # a sync that takes longer is reported


class SlotLog:
    """`sync_ns` as WalJournal has it; `segment_bytes_given` is -s."""

    def __init__(self, title: str, path: str, slot: int, topology: Topology, sync_ns: int, segment_bytes: int) -> None:
        self._title = title
        self._path = path
        self._slot = slot
        self._topology = topology
        self._sync_ns = sync_ns
        self._segment_bytes = segment_bytes
        self._nonce = os.urandom(NONCE_BYTES)
        self._jobs = EngineJobs()
        self._recovery: Recovery | None = None
        self._restoring: Restoring | None = None
        self._doing = "waits for its lock"
        self._began_ns = now_ns()
        self._wall_offset_ns = 0
        # Notices to the operator.
        self._next_notice_ns = 0
        self._left_out_shown = 0
        self._next_left_out_ns = 0
        self._full_shown = False
        self._stalled_shown = False
        try:
            self.disk = RealDisk(path)
        except DiskFault as fault:
            raise self._startup_error(fault) from fault

    # ---------------------------------------------------------------- start
    def lock(self) -> None:
        """The lock of an owner that was killed is waited for."""
        until = time.monotonic() + LOCK_WAIT_S
        try:
            while not self.disk.lock():
                if time.monotonic() > until:
                    fault = f"another process has held it for {LOCK_WAIT_S:.0f} s; end it, whatever it is"
                    raise StartupError(EXIT_DISK, f"{self._path}/lock: {fault}")
                time.sleep(LOCK_POLL_S)
        except DiskFault as fault:
            raise self._startup_error(fault) from fault

    def probe(self) -> None:
        """After a fault of the disk: whether it takes a write and a sync again. A full one does, as far as it can."""
        self._doing = "tries its disk"
        try:
            try:
                self.disk.create(PROBE_NAME, PROBE_BYTES)
                self.disk.write(PROBE_NAME, 0, self._nonce.ljust(PROBE_BYTES, b"\0"))
                self.disk.sync(PROBE_NAME)
                self.disk.remove(PROBE_NAME)
                self.disk.sync_directory()
            except DiskFault as fault:
                if not fault.full():
                    raise
        except DiskFault as fault:
            raise self._startup_error(fault) from fault

    def read(self) -> None:
        """All that the log has. Nothing is written."""
        # What is read holds no cycles; a collector that looked through it again and again would take most of the time.
        gc.disable()
        recovery = Recovery(self.disk, self._slot, self._topology)
        try:
            recovery.survey()
            self._doing = "reads its log"
            self._recovery = recovery
            while recovery.step():
                pass
        except LogDamage as damage:
            raise StartupError(EXIT_BAD_DATA, f"{self._path}/{damage}") from damage
        except DiskFault as fault:
            raise self._startup_error(fault) from fault
        for name in recovery.found.strangers:
            log(self._title, f"{self._path}/{name} is no file of the log: it is left alone")
        torn_bytes = int(recovery.torn_bytes())
        if torn_bytes > 0:
            where = f"{SEGMENT_PREFIX}{int(recovery.current):010d}, byte {int(recovery.end_offset)}"
            log(
                self._title,
                f"{self._path}/{where}: a torn tail of {torn_bytes} bytes, which had not been synced, is cut off",
            )

    def created_ns_max(self) -> int:
        """The largest creation time that was found."""
        assert self._recovery is not None
        return int(self._recovery.replay.created_ns_max)

    def open(self) -> None:
        """Every slot has been read: from here on it writes."""
        assert self._recovery is not None
        self._doing = "opens its log"
        size = segment_bytes_for(self._segment_bytes)
        try:
            opened = open_log(self._recovery, self.disk, size, self._nonce)
        except DiskFault as fault:
            raise self._startup_error(fault) from fault
        self._wall_offset_ns = wall_ns() - now_ns()
        self._make_journal(opened, size)

    def _make_journal(self, opened: Opened, size: int) -> None:
        topology = self._topology
        self.first_sequence = int(opened.lease.next_sequence)
        config = LogConfig(
            self._slot,
            topology.cluster_id,
            topology.partitions,
            size,
            self._segment_bytes,
            self._sync_ns,
            self._nonce,
        )
        self.journal = WalJournal(config, self.disk, opened, self._wall_offset_ns, self._jobs)

    def restore_into(self, engine: Engine) -> None:
        """The engine that restore() fills."""
        self._jobs.engine = engine

    def restore(self) -> None:
        """The jobs, into the engine of the core."""
        recovery, engine = self._recovery, self._jobs.engine
        assert recovery is not None and engine is not None
        jobs = len(recovery.replay.jobs)
        self._doing = "restores its jobs"
        self._restoring = Restoring(engine, recovery.replay, now_ns(), self._wall_offset_ns)
        while self._restoring.step():
            # Compiled, nothing in here lets go of the interpreter's lock, and the control socket waits for it.
            time.sleep(0)
        seconds = (now_ns() - self._began_ns) / NS_PER_S
        read_bytes = int(recovery.bytes_read)
        if jobs > 0 or recovery.replay.records > 0:
            log(self._title, f"{jobs} jobs restored from {read_bytes / 1e6:.1f} MB of log in {seconds:.2f} s")
        self._recovery = None
        self._restoring = None

    def progress(self) -> str:
        """How far the start is, for log and service manager."""
        recovery, restoring = self._recovery, self._restoring
        if restoring is not None:
            return f"{self._doing}, {int(restoring.done)} of {int(restoring.total)}"
        if recovery is not None and recovery.bytes_total > 0:
            total = int(recovery.bytes_total)
            percent = 100 * int(recovery.bytes_read) // total
            return f"{self._doing}, {percent} % of {total / 1e6:.0f} MB, {int(recovery.replay.records)} records"
        return self._doing

    def _startup_error(self, fault: DiskFault) -> StartupError:
        return StartupError(EXIT_DISK, f"{self._path}: {describe(fault)}")

    # ---------------------------------------------------------------- at work
    def begin(self, counters: OwnerCounters) -> None:
        """The threads, and the figures of `stats`."""
        self._counters = counters
        self._written_before = int(counters.binlog_records_written)
        self._migrated_before = int(counters.binlog_records_migrated)
        self.driver = LogDriver(self.disk, self.journal)
        self.count()

    def turn(self, now: int) -> None:
        """After the core's turn, before its answers leave: its records are written, and the disk is asked for more."""
        self.driver.write(now)
        self.driver.submit(now)
        self.count()

    def count(self) -> None:
        """What `stats` shows of the log, as it is now."""
        counters, journal = self._counters, self.journal
        counters.binlog_oldest_index = journal.stat_oldest_segment()
        counters.binlog_current_index = journal.stat_current_segment()
        counters.binlog_records_written = self._written_before + journal.stat_records_written()
        counters.binlog_records_migrated = self._migrated_before + journal.stat_records_migrated()

    def notice(self, now: int) -> None:
        """Now and then: the wall clock may have been set, and the operator may have to know something."""
        if now < self._next_notice_ns:
            return
        self._next_notice_ns = now + NOTICE_NS
        journal = self.journal
        journal.wall_offset_ns = wall_ns() - now_ns()
        left_out = int(journal.left_out)
        if left_out > self._left_out_shown and now >= self._next_left_out_ns:
            self._next_left_out_ns = now + LEFT_OUT_LOG_NS
            more = left_out - self._left_out_shown
            log(self._title, f"{more} records of counters and pauses left out: space is short")
            self._left_out_shown = left_out
        full = bool(journal.space.disk_full)
        if full != self._full_shown:
            self._full_shown = full
            log(self._title, "the disk is full: puts may be refused" if full else "the disk has space again")
        stalled = now - self.driver.sync_since_ns > STALLED_SYNC_NS
        if stalled != self._stalled_shown:
            self._stalled_shown = stalled
            log(self._title, "the disk stalls: a sync has not returned yet" if stalled else "the disk answers again")

    def next_notice_ns(self) -> int:
        """When notice() has something to look at though nothing happens."""
        watching = self._full_shown or self._stalled_shown or self.driver.sync_since_ns < NEVER_NS
        return self._next_notice_ns if watching else NEVER_NS

    def stop(self) -> None:
        """The engine has come to rest: everything written, synced and marked, the lease exact."""
        if not self.driver.stop():
            log(self._title, "the disk did not answer in time: the log ends without a last mark")


def describe(fault: DiskFault) -> str:
    """For the log: what was asked of which file, and the system's words."""
    return f"{fault.call} {fault.name}: {os.strerror(fault.number)}"


def die_of(title: str, path: str, fault: DiskFault) -> None:
    """The page cache is not to be trusted any more: nothing is written, flushed or answered from here on."""
    log(title, f"{path}: {describe(fault)}: ends at once, and starts anew when the disk takes a write and a sync again")
    os._exit(EXIT_DISK)
