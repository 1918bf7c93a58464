"""The disks of a simulated server: one per slot, which outlives its owners, and what has been promised of it.

A SlotStore knows which answers may be missing after what has happened: nothing that was written when processes are
killed; after a loss of power (or of the page cache, once a sync has failed) what the mode allows. It has each recovery
compared with the slot's history, and tells the watcher what was found.
"""

from random import Random
from typing import TYPE_CHECKING, Any, Final

from beanfield.constants import NEVER_NS
from beanfield.wal.identity import encode_identity
from beanfield.wal.log import SYNC_EVERY_TURN, SYNC_NEVER
from beanfield.wal.recovery import Recovery
from beanfield.wal.segments import IDENTITY_NAME
from sim.disk import SimDisk
from sim.history import Ages, History, Key, WatchedJournal
from sim.slot_log import Facts
from sim.world import NS_PER_MS, NS_PER_S, Violation

if TYPE_CHECKING:
    from sim.server import Server

# A sync is due to the millisecond; timers, turns and the queue of the helper make it later.
LATE_NS: Final = 15 * NS_PER_MS
FELT_NS: Final = 3 * NS_PER_S  # trouble of a disk may be felt so long after its end


class SlotStore:
    """One slot's directory."""

    def __init__(self, server: "Server", slot: int, chance: Random) -> None:
        self.server = server
        self.world = server.world
        self.slot = slot
        self.disk = SimDisk(chance)
        self.disk.latency_ns_min, self.disk.latency_ns_max = server.options.disk_latency_ns
        self.disk.tears_writes = True
        self.history = History(f"slot {slot}")
        self.probe = False  # the last owner ended by a fault of the disk
        self.stall_until_ns = 0
        self.stopped_at_sequence = -1  # >= 0: after a clean stop, the sequence that comes next
        self.journal: WatchedJournal | None = None  # of the last generation that was opened
        self.cache_lost = False  # since then
        self.full_until_ns = 0  # the disk is or was full, as far as it can be felt
        self.trouble_until_ns = 0  # it does or did not do what it should, likewise
        topology = server.topology
        text = encode_identity(topology.cluster_id, slot, topology.fingerprint)
        self.disk.create(IDENTITY_NAME, len(text))
        self.disk.write(IDENTITY_NAME, 0, text)
        self.disk.sync(IDENTITY_NAME)
        self.disk.sync_directory()

    # ---------------------------------------------------------------- faults
    def draw_latency_ns(self) -> int:
        latency_ns = self.disk.draw_latency_ns()
        if self.world.now_ns < self.stall_until_ns:
            latency_ns += self.stall_until_ns - self.world.now_ns
        return latency_ns

    def in_trouble(self, span_ns: int) -> None:
        self.trouble_until_ns = max(self.trouble_until_ns, self.world.now_ns + span_ns + FELT_NS)

    def full_for(self, span_ns: int) -> None:
        self.full_until_ns = max(self.full_until_ns, self.world.now_ns + span_ns + FELT_NS)

    def power_lost(self) -> None:
        self.disk.power_lost()
        self.cache_lost = True

    def cache_dropped(self) -> None:
        self.disk.cache_dropped()
        self.cache_lost = True

    def whole_again(self) -> None:
        """No more faults."""
        disk = self.disk
        disk.fail_writes = disk.fail_syncs = disk.refuse_writes = False
        disk.short_writes = 0.0
        disk.capacity_bytes = None
        disk.stop_after_calls = -1
        self.stall_until_ns = 0

    # ---------------------------------------------------------------- generations
    def promised_position(self) -> int:
        """Everything up to here is found by the next recovery, whatever has happened since the last opening."""
        journal = self.journal
        if journal is None:
            return 0
        inner = journal.inner
        written, synced = int(inner.written_position), int(inner.synced_position)
        if not self.cache_lost:
            return written
        sync_ns = int(inner.sync_ns)
        if sync_ns == SYNC_NEVER:
            return synced
        released_ns, released = journal.releases[-1]
        if sync_ns == SYNC_EVERY_TURN:
            return max(synced, released)
        window_ns = released_ns - 2 * sync_ns - LATE_NS
        if self.server.stopped_since(self.slot, window_ns):
            return synced
        return max([synced, *(position for at_ns, position in journal.releases if at_ns < window_ns)])

    def safe_until_ns(self, promised: int) -> int:
        """What clients had heard before is not lost."""
        if self.journal is None:
            return NEVER_NS
        for at_ns, position in self.journal.releases:
            if position > promised:
                return at_ns
        return NEVER_NS

    def was_read(self, recovery: Recovery, found: dict[Key, Facts]) -> None:
        """A recovery has read what there is; nothing is written yet."""
        promised = self.promised_position()
        lost = self.history.check_found(found, promised, self.server.wall_ns(self.world.now_ns))
        self.server.storage.ages.found(found)
        torn_bytes = int(recovery.torn_bytes())
        jobs = sum(isinstance(key, int) for key in found)
        self.world.trace(f"slot {self.slot}", f"is read: {jobs} jobs, {lost} changes lost, {torn_bytes} torn")
        if self.stopped_at_sequence >= 0 and (lost or torn_bytes):
            raise Violation(f"slot {self.slot}: {lost} changes lost, {torn_bytes} bytes torn after a clean stop")
        if self.stopped_at_sequence >= 0 and recovery.next_sequence != self.stopped_at_sequence:
            raise Violation(f"slot {self.slot}: sequence {recovery.next_sequence} after {self.stopped_at_sequence}")
        jobs_found: dict[int, Any] = {key: facts for key, facts in found.items() if isinstance(key, int)}
        self.server.watcher.slot_read(self.slot, jobs_found, self.safe_until_ns(promised))

    def was_opened(self, found: dict[Key, Facts]) -> None:
        """Now all that was found is durable, and what was not found is gone for good."""
        self.history.begin(found)
        self.cache_lost = False

    def serves(self, journal: WatchedJournal) -> None:
        self.journal = journal


class Storage:
    """All slots. Empty without -b."""

    def __init__(self, server: "Server") -> None:
        random = server.world.side_random("disk")
        self.random = random
        self.ages = Ages()
        self.slots = [
            SlotStore(server, slot, Random(random.getrandbits(64)))
            for slot in range(server.options.slots if server.options.disk else 0)
        ]

    def of(self, slot: int) -> SlotStore | None:
        return self.slots[slot] if self.slots else None
