"""What may go wrong in a run, and how the world is shaped: drawn once per seed, whole classes on or off (swarm)."""

from random import Random
from typing import TYPE_CHECKING

from beanfield.ipc.frames import ROLE_FRONTEND, ROLE_OWNER
from beanfield.wal.log import SYNC_EVERY_TURN, SYNC_NEVER
from sim.disk_faults import DiskFaultMaker
from sim.net import Nature
from sim.world import NS_PER_MS, NS_PER_US

if TYPE_CHECKING:
    from sim.server import Server

SHAPES = ("any", "plain", "disk", "combined", "memory")
MEMORY_BYTES = 1 << 30
BODY_MEMORY_BYTES = 4 << 20
LEASE_NEARLY_USED = 3  # so few ids left that puts are refused until the next lease is written
LEASE_HALF_USED = 32_770


class Options:
    """The shape and the faults of one run. `later`: chance for all that came after the first seeds were kept."""

    def __init__(self, random: Random, later: Random, shape: str = "any") -> None:
        assert shape in SHAPES
        self.slots = random.choice((1, 1, 2, 2, 3, 4))
        self.frontends = random.choice((1, 2, 2, 3))
        self.partitions = random.choice((4, 16, 256))
        self.clients = random.choice((2, 4, 8, 12))
        self.tubes = random.choice((1, 2, 4, 8))
        self.job_bytes_max = random.choice((40, 1_000, 65_535, 400_000))
        self.slot_wait_ns = random.choice((0, 300 * NS_PER_MS, 2_000 * NS_PER_MS))
        self.hang_timeout_ns = 2_000 * NS_PER_MS
        self.turn_jitter_ns = random.choice((10 * NS_PER_US, 200 * NS_PER_US, 3 * NS_PER_MS))
        self.stops_early = random.choice((0.0, 0.0, 0.3))
        self.client_nature = _nature(random, small=True)
        self.link_nature = _nature(random, small=random.random() < 0.3)
        # Chances per fault round; a round is every `fault_every_ns`.
        faulty = random.random() < 0.6
        self.fault_every_ns = random.choice((50, 300, 1_500)) * NS_PER_MS
        self.owner_crash = _chance(random, faulty)
        self.frontend_crash = _chance(random, faulty)
        self.link_cut = _chance(random, faulty)
        self.pause_short = _chance(random, faulty) * 2
        self.pause_long = _chance(random, faulty) / 3
        self.drain = _chance(random, faulty) / 4
        # What clients do to us.
        self.rude = random.choice((0.0, 0.0, 0.02, 0.1))  # per command: leave, reset, half-close
        self.slow = random.choice((0.0, 0.0, 0.2, 0.6))  # share of clients that read slowly
        self.pipelining = random.choice((1, 1, 3, 16, 80))
        self.large_bodies = random.choice((0.0, 0.0, 0.1))
        if self.large_bodies:
            for nature in (self.client_nature, self.link_nature):
                nature.capacity = max(nature.capacity, 4_096)
        self.put_share = random.choice((2, 5, 9))
        self.bad_input = random.choice((0.0, 0.03))
        self.wide_watch = random.choice((0.2, 0.8))

        # Many impatient workers over several owners, few jobs: holds, words and ends cross all the time.
        self.crowd = random.random() < 0.2
        if self.crowd:
            self._draw_crowd(random)
        self._begin_plain()
        drawn = [later.random() for _ in range(3)]
        if shape == "combined" or (shape in ("any", "disk", "memory") and drawn[0] < 0.15):
            self._draw_combined()
        if shape == "disk" or (shape in ("any", "combined", "memory") and drawn[1] < 0.5):
            self._draw_disk(later)
        if shape == "memory" or (shape in ("any", "combined", "disk") and drawn[2] < 0.15):
            self._draw_memory(later)
        if shape != "plain":
            # Crowds may delete just what is held; the others may see frontends stop just when something is.
            self.aims = self.crowd and later.random() < 0.7
            if self.aims:
                self.slots, self.put_share = max(self.slots, 2 - self.combined), 8
            self.ambush = 0.0 if self.crowd or self.combined or later.random() < 0.7 else 0.5

    def _begin_plain(self) -> None:
        """Two roles, no disk, memory for all: what the first seeds were."""
        self.combined = False
        self.aims = False
        self.ambush = 0.0
        self.memory_bytes = MEMORY_BYTES
        self.body_memory_bytes = BODY_MEMORY_BYTES
        self.disk = False
        self.sync_ns = SYNC_EVERY_TURN
        self.segment_bytes = 65_536
        self.disk_latency_ns = (0, 0)
        self.disk_bodies = 0.0  # share of puts with bodies that fill segments, or get a file of their own
        self.lease_left = 0  # owners start with so many sequences left of what is leased; 0: as the lease says
        self.power_loss = self.kill_all = self.clean_stop = 0.0
        self.crash_in_call = self.disk_full = self.write_full = 0.0
        self.sync_fault = self.write_fault = self.disk_stall = 0.0

    def _draw_combined(self) -> None:
        self.combined = True
        self.slots, self.frontends = 1, 0
        self.frontend_crash = self.link_cut = 0.0

    def _draw_disk(self, random: Random) -> None:
        self.disk = True
        self.sync_ns = random.choice((SYNC_EVERY_TURN, SYNC_EVERY_TURN, 10 * NS_PER_MS, 50 * NS_PER_MS, SYNC_NEVER))
        latencies = ((0, 0), (20, 300), (20, 300), (500, 8_000), (2_000, 60_000))
        low_us, high_us = random.choice(latencies[:3] if self.crowd else latencies)
        self.disk_latency_ns = (low_us * NS_PER_US, high_us * NS_PER_US)
        self.disk_bodies = random.choice((0.0, 0.4, 0.8))
        self.lease_left = random.choice((0, LEASE_HALF_USED, LEASE_HALF_USED, LEASE_NEARLY_USED))
        if self.disk_bodies:
            self.job_bytes_max = max(self.job_bytes_max, 65_535)
            for nature in (self.client_nature, self.link_nature):
                nature.capacity = max(nature.capacity, 4_096)
        faulty = random.random() < 0.8
        self.power_loss = _chance(random, faulty) / 3
        self.kill_all = _chance(random, faulty) / 3
        self.clean_stop = _chance(random, faulty) / 4
        self.crash_in_call = _chance(random, faulty)
        self.disk_full = _chance(random, faulty)
        self.write_full = _chance(random, faulty) / 2
        self.sync_fault = _chance(random, faulty) / 3
        self.write_fault = _chance(random, faulty) / 3
        self.disk_stall = _chance(random, faulty) / 2

    def _draw_memory(self, random: Random) -> None:
        if random.random() < 0.7:
            self.memory_bytes = random.choice((2_000, 6_000, 20_000))
        if random.random() < 0.5:
            self.body_memory_bytes = random.choice((1, 100_000, 500_000))

    def _draw_crowd(self, random: Random) -> None:
        self.slots, self.frontends, self.clients, self.tubes = random.choice((2, 3)), 2, 12, 4
        self.pipelining, self.wide_watch, self.slow = 1, 0.9, 0.0
        self.put_share = random.choice((2, 4, 6))
        self.large_bodies, self.bad_input = 0.0, 0.0
        self.turn_jitter_ns = 200 * NS_PER_US
        self.client_nature = Nature(5 * NS_PER_US, 100 * NS_PER_US, 0.0, 65_536)
        self.link_nature = Nature(5 * NS_PER_US, random.choice((100, 4_000)) * NS_PER_US, 0.2, 65_536)
        self.pause_short = self.pause_long = 0.0

    def holds_are_short(self) -> bool:
        """True if no hold or withheld word ever reaches its 100 ms: then no TIMED_OUT is excused by them."""
        link = self.link_nature
        quick = link.delay_ns + link.jitter_ns <= 5 * NS_PER_MS and link.capacity >= 65_536
        quick = quick and self.disk_latency_ns[1] <= NS_PER_MS
        return quick and self.turn_jitter_ns <= 200 * NS_PER_US and self.calm()

    def words_may_be_late(self) -> bool:
        """True if a last word may stand behind a large body for longer than a reserve waits for it (WORD_WAIT_NS)."""
        link = self.link_nature
        slow = link.capacity < 65_536 and link.delay_ns + link.jitter_ns > NS_PER_MS
        return slow and self.large_bodies > 0 and self.slot_wait_ns < 2_000 * NS_PER_MS

    def calm(self) -> bool:
        """True if the server itself has no faults: then it never closes a connection of its own accord."""
        faults = (self.owner_crash, self.frontend_crash, self.link_cut, self.pause_short, self.pause_long)
        return not any(chance > 0 for chance in (*faults, self.ambush, *self._disk_faults()))

    def _disk_faults(self) -> tuple[float, ...]:
        """A full disk is none of them: it is answered."""
        ends = (self.power_loss, self.kill_all, self.clean_stop, self.crash_in_call)
        return (*ends, self.write_full, self.sync_fault, self.write_fault, self.disk_stall)

    def shape(self) -> str:
        """In one word."""
        processes = "combined" if self.combined else f"{self.slots}+{self.frontends}"
        return processes + (" disk" if self.disk else "") + (" memory" if self.memory_bytes < MEMORY_BYTES else "")

    def describe(self) -> str:
        return " ".join(
            f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"
            for name, value in vars(self).items()
            if not isinstance(value, Nature)
        )


def _chance(random: Random, faulty: bool) -> float:
    drawn = random.choice((0.0, 0.0, 0.1, 0.4))
    return drawn if faulty else 0.0


def _nature(random: Random, small: bool) -> Nature:
    delay_ns = random.choice((5 * NS_PER_US, 50 * NS_PER_US, 2 * NS_PER_MS))
    jitter_ns = random.choice((0, 100 * NS_PER_US, 20 * NS_PER_MS))
    cut = random.choice((0.0, 0.2, 0.6))
    capacity = random.choice((300, 4_096, 65_536) if small else (65_536, 212_992))
    return Nature(delay_ns, jitter_ns, cut, capacity)


class FaultMaker:
    """Does to a server what its options say, round by round."""

    CRASHES_PER_CHILD_MAX = 3  # the supervisor gives up a child that crashes five times a minute

    def __init__(self, server: "Server") -> None:
        self.server = server
        self.world = server.world
        self.random: Random = server.world.random("faults")
        self.crashes: dict[tuple[int, int], int] = {}
        self.running = True
        self.drained = False
        self.disks = DiskFaultMaker(self)

    def start(self) -> None:
        self.world.after(self.server.options.fault_every_ns, self._round)

    def stop(self) -> None:
        self.running = False
        self.server.ambush_ns = 0
        self.disks.stop()
        if self.drained:
            self.server.supervisor.drain(False)

    def _round(self) -> None:
        if not self.running:
            return
        options = self.server.options
        if self._drawn(options.owner_crash):
            self._crash(ROLE_OWNER, self.random.randrange(options.slots))
        if self._drawn(options.frontend_crash):
            self._crash(ROLE_FRONTEND, self.random.randrange(options.frontends))
        if self._drawn(options.link_cut):
            self.server.cut_link(self.random.randrange(options.slots), self.random.randrange(options.frontends))
        if self._drawn(options.pause_short):
            self._stop_one(self.random.choice((1, 30, 150, 600)) * NS_PER_MS)
        if self._drawn(options.pause_long):
            self._stop_one(options.hang_timeout_ns * 2)
        if self._drawn(options.drain):
            self.drained = not self.drained
            self.server.supervisor.drain(self.drained)
        if options.disk:
            self.disks.round()
        if options.ambush and self._drawn(options.ambush):
            self.server.ambush_ns = self.random.choice((150, 400)) * NS_PER_MS
        self.world.after(self.random.randrange(1, 2 * options.fault_every_ns), self._round)

    def _drawn(self, chance: float) -> bool:
        return self.random.random() < chance

    def _crash(self, role: int, index: int) -> None:
        if self.may_crash(role, index):
            self.server.crash(role, index)

    def may_crash(self, role: int, index: int) -> bool:
        count = self.crashes.get((role, index), 0)
        if count < self.CRASHES_PER_CHILD_MAX:
            self.crashes[(role, index)] = count + 1
            return True
        return False

    def _stop_one(self, span_ns: int) -> None:
        options = self.server.options
        if span_ns >= options.hang_timeout_ns:
            # It will be killed: that counts as a crash.
            role, index = self._any_child()
            count = self.crashes.get((role, index), 0)
            if count >= self.CRASHES_PER_CHILD_MAX:
                return
            self.crashes[(role, index)] = count + 1
        else:
            role, index = self._any_child()
        self.server.stop_for(role, index, span_ns)

    def _any_child(self) -> tuple[int, int]:
        options = self.server.options
        if options.combined:
            return ROLE_OWNER, 0
        role = self.random.choice((ROLE_OWNER, ROLE_FRONTEND))
        return role, self.random.randrange(options.slots if role == ROLE_OWNER else options.frontends)
