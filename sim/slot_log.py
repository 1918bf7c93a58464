"""A slot reduced to its log: a dumb engine that only keeps jobs, the real WalJournal, and a simulated disk.

Every change is also entered in a history: a hash of all jobs after it, and the log position that its answer waits for.
After a crash the log is read again, and what comes out must be the slot as it was after some prefix of that history, no
shorter than what had been answered (`check_recovered`). That is the whole promise in one comparison: nothing
acknowledged is lost, nothing deleted comes back, and nothing is half there.

The helpers of the loop are two queues here; `run_helpers` performs what is in them when the test says so.
"""

import random

from beanfield.engine.job import BURIED, DELAYED, READY, RESERVED, Job
from beanfield.routing import Topology
from beanfield.wal.batches import LogConfig
from beanfield.wal.disk import Disk, DiskFault
from beanfield.wal.identity import encode_identity
from beanfield.wal.journal import LiveJobs
from beanfield.wal.log import WalJournal
from beanfield.wal.opening import open_log
from beanfield.wal.recovery import Recovery
from beanfield.wal.requests import SYNC, Request, perform
from beanfield.wal.segments import IDENTITY_NAME

SLOT = 0
TOPOLOGY = Topology(1, 1, cluster_id=bytes(range(16)))
WALL_OFFSET_NS = 1_700_000_000_000_000_000
MS = 1_000_000

Facts = tuple[int | bytes, ...]


def facts_of(job: Job, tube_name: bytes, wall_offset_ns: int) -> Facts:
    """What must survive of a job."""
    state = READY if job.state == RESERVED else job.state
    when = 0
    if state == DELAYED:
        when = job.deadline_ns + wall_offset_ns
    elif state == BURIED:
        when = job.deadline_ns
    counts = (job.reserves, job.timeouts, job.releases, job.buries, job.kicks)
    fixed = (job.id, job.created_ns, job.priority(), job.delay_s(), job.ttr_s(), int(state), when)
    return (*fixed, *counts, tube_name, job.body)


class Stopped(Exception):
    """The owner would have exited: a write or a sync failed."""


class SlotLog(LiveJobs):
    """Open it, change jobs, end turns, crash the disk, open another one on it."""

    def __init__(self, disk: Disk, segment_bytes: int = 65536, sync_ns: int = 0, now_ns: int = 0) -> None:
        self.disk = disk
        self.now_ns = now_ns
        self.names = [b"default", b"emails", b"x" * 200]
        self.job_by_id: dict[int, Job] = {}
        self.next_burial = 1
        self.next_sequence = 0
        self.sync_queue: list[Request] = []
        self.other_queue: list[Request] = []
        self.refused = 0
        self.waited = 0
        if IDENTITY_NAME not in disk.names():
            text = encode_identity(TOPOLOGY.cluster_id, SLOT, TOPOLOGY.fingerprint)
            disk.create(IDENTITY_NAME, len(text))
            disk.write(IDENTITY_NAME, 0, text)
            disk.sync(IDENTITY_NAME)
            disk.sync_directory()
        self.recovery = read_log(disk)
        self._load()
        self.hash = 0
        for job in self.job_by_id.values():
            self.hash ^= self._hash_of(job)
        # (hash of all jobs, position an answer waits for; 0: nobody waits)
        self.history: list[tuple[int, int]] = [(self.hash, 0)]
        nonce = b"nonce" + str(self.recovery.lease_serial).encode()
        opened = open_log(self.recovery, disk, segment_bytes, nonce)
        config = LogConfig(SLOT, TOPOLOGY.cluster_id, TOPOLOGY.partitions, segment_bytes, segment_bytes, sync_ns, nonce)
        self.log = WalJournal(config, disk, opened, WALL_OFFSET_NS, self)
        self.next_burial = opened.burial_max + 1
        self.next_sequence = opened.lease.next_sequence

    def _load(self) -> None:
        replay = self.recovery.replay
        for job in replay.jobs.values():
            name = replay.tube_names[job.tube]
            if name not in self.names:
                self.names.append(name)
            job.tube = self.names.index(name)
            if job.state == DELAYED:
                job.deadline_ns -= WALL_OFFSET_NS
            self.job_by_id[job.id] = job

    # ---------------------------------------------------------------- LiveJobs
    def find(self, id: int) -> Job | None:
        return self.job_by_id.get(id)

    def tube_name(self, job: Job) -> bytes:
        return self.names[job.tube]

    # ---------------------------------------------------------------- changes
    def put(self, body: bytes, delay_s: int = 0, priority: int = 0, tube: int = 0) -> int:
        """The id, or 0 if refused."""
        self.wait_while_stalled()
        id = int(TOPOLOGY.make_id(self.next_sequence, 0))
        if self.next_sequence >= self.log.sequence_limit or not self.log.can_put(id, self.names[tube], body):
            self.refused += 1
            return 0
        self.next_sequence += 1
        job = Job(id, tube, WALL_OFFSET_NS + self.now_ns + id, priority, delay_s, 60, body)
        job.state = DELAYED if delay_s > 0 else READY
        job.deadline_ns = self.now_ns + delay_s * 1000 * MS if delay_s > 0 else 0
        self.job_by_id[id] = job
        self.log.put(job, self.names[tube])
        self._enter(job)
        return id

    def delete(self, id: int) -> None:
        self.wait_while_stalled()
        job = self.job_by_id.pop(id)
        self.hash ^= self._hash_of(job)
        self.log.delete(job, self.names[job.tube])
        self.history.append((self.hash, int(self.log.position)))

    def bury(self, id: int, priority: int = 7) -> bool:
        job = self._before_change(id)
        if job is None:
            return False
        job.state = BURIED
        job.deadline_ns = self.next_burial
        job.buries += 1
        job.set_priority(priority)
        self.next_burial += 1
        return self._changed(job)

    def release(self, id: int, delay_s: int = 0, priority: int = 9) -> bool:
        job = self._before_change(id)
        if job is None:
            return False
        job.state = DELAYED if delay_s > 0 else READY
        job.deadline_ns = self.now_ns + delay_s * 1000 * MS if delay_s > 0 else 0
        job.set_priority(priority)
        job.set_delay_s(delay_s)
        job.releases += 1
        return self._changed(job)

    def reserve(self, id: int) -> None:
        """Of a ready job: only counted."""
        job = self.job_by_id[id]
        self.hash ^= self._hash_of(job)
        was = job.reserves
        left_out = self.log.left_out
        job.reserves += 1
        self.log.count(job)
        if self.log.left_out > left_out:
            job.reserves = was  # the history is about what is in the log
        self.hash ^= self._hash_of(job)
        self.history.append((self.hash, 0))

    def _before_change(self, id: int) -> Job | None:
        self.wait_while_stalled()
        if not self.log.can_change():
            self.refused += 1
            return None
        job = self.job_by_id[id]
        self.hash ^= self._hash_of(job)
        return job

    def _changed(self, job: Job) -> bool:
        self.log.change(job, self.names[job.tube])
        self._enter(job)
        return True

    def _enter(self, job: Job) -> None:
        self.hash ^= self._hash_of(job)
        self.history.append((self.hash, int(self.log.position)))

    def _hash_of(self, job: Job) -> int:
        return hash(facts_of(job, self.names[job.tube], WALL_OFFSET_NS))

    # ---------------------------------------------------------------- turns
    def turn(self) -> None:
        """Ends a turn: settles, writes, hands requests to the helpers. Nothing of theirs is done yet."""
        self.log.settle(self.now_ns)
        self.write()
        for request in self.log.take_requests(self.now_ns):
            (self.sync_queue if request.kind == SYNC else self.other_queue).append(request)

    def write(self) -> None:
        for request in self.log.take_writes():
            try:
                self.disk.write(request.name, request.offset, request.data)
            except DiskFault as fault:
                if not fault.full():
                    raise Stopped(str(fault)) from fault
                self.log.write_refused(self.now_ns)
                return
            self.log.wrote(request, self.now_ns)

    def run_helpers(self, syncs: bool = True, others: bool = True) -> bool:
        """Performs one request of each helper. False: there was none."""
        did = False
        for queue, wanted in ((self.sync_queue, syncs), (self.other_queue, others)):
            if wanted and queue:
                did = True
                request = queue[0]
                try:
                    perform(request, self.disk)
                except DiskFault as fault:
                    queue.pop(0)
                    if not self.log.refused(request, fault, self.now_ns):
                        raise Stopped(str(fault)) from fault
                    continue
                queue.pop(0)
                self.log.completed(request, self.now_ns)
        return did

    def wait_while_stalled(self) -> None:
        """What the owner does: no client frame is executed, turns go on."""
        for _ in range(10_000):
            if not self.log.stalled:
                return
            self.waited += 1
            self.turn()
            if not self.run_helpers():
                self.now_ns += 10 * MS
        raise AssertionError("stalled for ever")

    def settle_down(self, seconds: int = 5) -> None:
        """So much virtual time without a client. What is asked for again and again on a full disk may go on."""
        end_ns = self.now_ns + seconds * 1000 * MS
        for _ in range(20_000):
            self.turn()
            if self.run_helpers():
                continue
            self.now_ns = max(self.now_ns, int(self.log.next_deadline_ns()))
            if self.now_ns > end_ns:
                self.now_ns = end_ns
                return
        raise AssertionError("busy without end")

    def stop(self) -> None:
        """A clean stop."""
        self.settle_down()
        if self.log.written_position > self.log.synced_position:
            self._sync_now()
        self.log.last_mark()
        self.log.settle(self.now_ns)
        self.write()
        self._sync_now()
        perform(self.log.close_cell(), self.disk)
        assert self.log.idle()
        self.disk.close()

    def _sync_now(self) -> None:
        request = self.log.sync_all(self.now_ns)
        perform(request, self.disk)
        self.log.completed(request, self.now_ns)

    # ---------------------------------------------------------------- promises
    def answered(self, position: int) -> int:
        """How many entries of the history are no longer secret, once the log is released up to `position`."""
        count = 0
        for index, (_, wanted) in enumerate(self.history):
            if 0 < wanted <= position:
                count = index
        return count

    def check_recovered(self, promised_position: int, disk: Disk | None = None) -> "SlotLog":
        """Opens the log anew, from a copy of the disk if one is given, and compares; returns the new slot."""
        least = self.answered(promised_position)
        segment_bytes, sync_ns = int(self.log.space.segment_bytes), int(self.log.sync_ns)
        successor = SlotLog(self.disk if disk is None else disk, segment_bytes, sync_ns, self.now_ns)
        hashes = [entry[0] for entry in self.history[least:]]
        assert successor.hash in hashes, (
            f"not a state that this slot was in since answer {least} of {len(self.history)}"
        )
        assert successor.next_sequence >= self.next_sequence, "an id would be used again"
        return successor


def read_log(disk: Disk) -> Recovery:
    recovery = Recovery(disk, SLOT, TOPOLOGY)
    recovery.survey()
    while recovery.step():
        pass
    return recovery


def random_change(slot: SlotLog, chance: random.Random, body_bytes_max: int) -> None:
    """One change that the slot's state allows."""
    ids = sorted(slot.job_by_id)
    choice = chance.random()
    if choice < 0.45 or not ids:
        length = chance.choice((0, 1, 100, chance.randrange(body_bytes_max + 1)))
        slot.put(chance.randbytes(length), chance.choice((0, 0, 5)), chance.randrange(1 << 32), chance.randrange(3))
        return
    id = chance.choice(ids)
    if choice < 0.7:
        slot.delete(id)
    elif choice < 0.8:
        slot.bury(id, chance.randrange(1 << 32))
    elif choice < 0.9:
        slot.release(id, chance.choice((0, 5, (1 << 32) - 1)))
    else:
        slot.reserve(id)
