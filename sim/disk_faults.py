"""What goes wrong with disks, and with the whole server at once: a part of the faults of faults.py."""

from random import Random
from typing import TYPE_CHECKING

from beanfield.ipc.frames import ROLE_OWNER
from beanfield.wal.log import SYNC_EVERY_TURN
from sim.process import KILL_ALL, LOSE_POWER, STOP
from sim.world import NS_PER_MS

if TYPE_CHECKING:
    from sim.faults import FaultMaker
    from sim.storage import SlotStore

ENDS_MAX = 4  # of the whole server in a run
CALLS_AHEAD_MAX = 25


class DiskFaultMaker:
    """Round by round, with the chances of the run's options."""

    def __init__(self, faults: "FaultMaker") -> None:
        self.faults = faults
        self.server = faults.server
        self.world = faults.world
        self.random: Random = faults.server.world.side_random("disk faults")
        self.running = True

    def stop(self) -> None:
        self.running = False
        for store in self.server.storage.slots:
            store.whole_again()

    def round(self) -> None:
        options = self.server.options
        for chance, manner in (
            (options.power_loss, LOSE_POWER),
            (options.kill_all, KILL_ALL),
            (options.clean_stop, STOP),
        ):
            if self._drawn(chance) and self.server.restarts < ENDS_MAX:
                self.faults.drained = False
                self.server.end_all(manner)
        store = self.random.choice(self.server.storage.slots)
        if self._drawn(options.crash_in_call) and self.faults.may_crash(ROLE_OWNER, store.slot):
            self._trace(store, "kills its owner in a call")
            store.disk.stop_after_calls = store.disk.calls + self.random.randrange(CALLS_AHEAD_MAX)
        if self._drawn(options.disk_full):
            self._fill(store)
        if self._drawn(options.write_full):
            self._for_a_while(store, "refuse_writes", (50, 200, 800))
            store.full_for(1_000 * NS_PER_MS)
        if self._drawn(options.sync_fault):
            self._for_a_while(store, "fail_syncs", (5, 200, 2_000))
        if self._drawn(options.write_fault):
            self._for_a_while(store, "fail_writes", (5, 200, 2_000))
        if self._drawn(options.write_fault):
            store.disk.short_writes = 0.3
            self._after(20 * NS_PER_MS, lambda: setattr(store.disk, "short_writes", 0.0))
            store.in_trouble(20 * NS_PER_MS)
        if self._drawn(options.disk_stall):
            span_ns = self.random.choice((100, 400, 3_000)) * NS_PER_MS
            self._trace(store, f"stalls for {span_ns // NS_PER_MS} ms")
            store.stall_until_ns = self.world.now_ns + span_ns
            store.in_trouble(span_ns)

    def _drawn(self, chance: float) -> bool:
        return self.random.random() < chance

    def _trace(self, store: "SlotStore", what: str) -> None:
        self.world.trace(f"disk {store.slot}", what)

    def _after(self, span_ns: int, what: object) -> None:
        assert callable(what)
        self.world.after(span_ns, lambda: what() if self.running else None)

    def _fill(self, store: "SlotStore") -> None:
        """No space for anything new, or for little."""
        span_ns = self.random.choice((300, 1_000, 4_000)) * NS_PER_MS
        left = self.random.choice((0, 0, 5_000, 70_000))
        self._trace(store, f"is full but for {left} bytes for {span_ns // NS_PER_MS} ms")
        store.disk.capacity_bytes = store.disk.used_bytes() + left
        store.full_for(span_ns)
        self._after(span_ns, lambda: setattr(store.disk, "capacity_bytes", None))

    def _for_a_while(self, store: "SlotStore", fault: str, spans_ms: tuple[int, ...]) -> None:
        span_ns = self.random.choice(spans_ms) * NS_PER_MS
        self._trace(store, f"{fault} for {span_ns // NS_PER_MS} ms")
        setattr(store.disk, fault, True)
        store.in_trouble(span_ns)
        self._after(span_ns, lambda: self._mended(store, fault))

    def _mended(self, store: "SlotStore", fault: str) -> None:
        setattr(store.disk, fault, False)
        # Memory pressure may forget what a failed sync has left clean; with -f 0 no answer stands on that.
        failed = fault == "fail_syncs" and store.probe and self.server.owners[store.slot] is None
        if failed and self.server.options.sync_ns == SYNC_EVERY_TURN and self.random.random() < 0.5:
            self._trace(store, "forgets clean pages")
            store.cache_dropped()
