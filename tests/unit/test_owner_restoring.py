"""An owner with a log on a simulated disk: answers wait for it, and another owner takes up where the log ends."""

import random

from beanfield.constants import NS_PER_S
from beanfield.engine.invariants import check_engine
from beanfield.engine.job import BURIED, DELAYED, READY
from beanfield.ipc import frames
from beanfield.owner.restoring import EngineJobs, restore_jobs
from beanfield.wal.batches import LogConfig
from beanfield.wal.disk import DiskFault
from beanfield.wal.identity import encode_identity
from beanfield.wal.log import SYNC_EVERY_TURN, WalJournal
from beanfield.wal.opening import open_log
from beanfield.wal.recovery import Recovery
from beanfield.wal.requests import Request, perform
from beanfield.wal.segments import IDENTITY_NAME
from sim.disk import SimDisk
from tests.unit.owner_driver import TOPOLOGY, Frame, LinkEnd, Owner, put, texts

SLOT = 0
SEGMENT = 65_536
WALL_OFFSET_NS = 1_700_000_000 * NS_PER_S


class DurableOwner(Owner):
    """An Owner whose journal is a log. `hold_syncs`: the disk takes its time."""

    def __init__(self, disk: SimDisk, now_ns: int = 1_000 * NS_PER_S) -> None:
        self.disk = disk
        self.hold_syncs = False
        self.queue: list[Request] = []
        if IDENTITY_NAME not in disk.names():
            text = encode_identity(TOPOLOGY.cluster_id, SLOT, TOPOLOGY.fingerprint)
            disk.create(IDENTITY_NAME, len(text))
            disk.write(IDENTITY_NAME, 0, text)
            disk.sync(IDENTITY_NAME)
            disk.sync_directory()
        recovery = Recovery(disk, SLOT, TOPOLOGY)
        recovery.survey()
        while recovery.step():
            pass
        opened = open_log(recovery, disk, SEGMENT, b"nonce")
        config = LogConfig(SLOT, TOPOLOGY.cluster_id, TOPOLOGY.partitions, SEGMENT, SEGMENT, SYNC_EVERY_TURN, b"nonce")
        jobs = EngineJobs()
        self.log = WalJournal(config, disk, opened, WALL_OFFSET_NS, jobs)
        super().__init__(self.log, first_sequence=int(opened.lease.next_sequence))
        self.now_ns = now_ns
        jobs.engine = self.core.engine
        restore_jobs(self.core.engine, recovery.replay, now_ns, WALL_OFFSET_NS)
        check_engine(self.core.engine)

    def turn(self) -> None:
        """As the loop does it: turn, writes, frames that may leave, requests; until nothing is left to do at once."""
        for _ in range(1_000):
            self.core.turn(self.now_ns)
            for request in self.log.take_writes():
                self.disk.write(request.name, request.offset, request.data)
                self.log.wrote(request, self.now_ns)
            self.collect()
            self.queue.extend(self.log.take_requests(self.now_ns))
            if self.hold_syncs:
                return
            while self.queue:
                request = self.queue.pop(0)
                try:
                    perform(request, self.disk)
                except DiskFault as fault:
                    assert self.log.refused(request, fault, self.now_ns)
                else:
                    self.log.completed(request, self.now_ns)
            self.collect()
            if self.core.next_deadline_ns() > self.now_ns:
                return
        raise AssertionError("the owner never comes to rest")


def lines(received: list[Frame]) -> list[bytes]:
    """The replies, one by one: a frame may carry those to a run of requests."""
    return b"".join(texts(received)).splitlines()


def client(owner: Owner) -> LinkEnd:
    link = owner.link()
    link.attach(1)
    return link


def test_an_answer_waits_for_its_sync_and_so_does_what_comes_after_it() -> None:
    owner = DurableOwner(SimDisk(random.Random(1)))
    link = client(owner)
    link.take()
    owner.hold_syncs = True
    put(link, 1, 1)
    assert lines(link.take()) == []
    link.words(frames.PEEK, 1, 2, 999 * 16 + 1)
    assert lines(link.take()) == [], "a link is one FIFO"
    owner.hold_syncs = False
    assert lines(link.take()) == [b"INSERTED 1", b"NOT_FOUND"]


def test_nothing_is_handed_to_a_worker_before_it_is_durable() -> None:
    owner = DurableOwner(SimDisk(random.Random(1)))
    producer = client(owner)
    worker = owner.link(index=1)
    worker.attach(1)
    worker.plain(frames.RESERVE, 1, 1)
    worker.take()
    owner.hold_syncs = True
    put(producer, 1, 1, body=b"precious")
    producer.take()
    assert worker.take() == []
    owner.hold_syncs = False
    assert [each.opcode for each in worker.take()] == [frames.RESERVED]


def test_another_owner_goes_on_with_everything() -> None:
    disk = SimDisk(random.Random(1))
    owner = DurableOwner(disk)
    link = client(owner)
    for request in range(1, 6):
        put(link, 1, request, body=b"body %d" % request, delay_s=30 if request == 5 else 0)
    ids = [int(text.split()[1]) for text in lines(link.take())]
    for request in range(6, 9):
        link.plain(frames.RESERVE, 1, request)
        assert [each.opcode for each in link.take()] == [frames.RESERVED]
    link.words(frames.BURY, 1, 9, ids[0], 7)
    link.words(frames.RELEASE, 1, 10, ids[1], 99, 0)
    link.words(frames.DELETE, 1, 11, ids[3])
    link.words(frames.PAUSE_TUBE, 1, 12, 60 * NS_PER_S, body=b"default")
    assert lines(link.take()) == [b"BURIED", b"RELEASED", b"DELETED", b"PAUSED"]
    disk.power_lost(keep=0.0)
    # Ten seconds later. ids[2] was reserved.
    later = DurableOwner(disk, owner.now_ns + 10 * NS_PER_S)
    engine = later.core.engine
    jobs = {job.id: job for job in engine.jobs.jobs()}
    assert sorted(jobs) == [ids[0], ids[1], ids[2], ids[4]]
    assert (jobs[ids[0]].state, jobs[ids[0]].buries, jobs[ids[0]].priority()) == (BURIED, 1, 7)
    assert (jobs[ids[1]].state, jobs[ids[1]].releases, jobs[ids[1]].priority()) == (READY, 1, 99)
    assert (jobs[ids[2]].state, jobs[ids[2]].reserves) == (READY, 1)
    assert (jobs[ids[4]].state, jobs[ids[4]].deadline_ns) == (DELAYED, owner.now_ns + 30 * NS_PER_S)
    tube = engine.tubes[b"default"]
    assert tube.pause_until_ns == owner.now_ns + 60 * NS_PER_S
    link = client(later)
    put(link, 1, 1)
    (reply,) = lines(link.take())
    assert int(reply.split()[1]) > ids[4]


def test_nobody_is_given_a_job_of_a_tube_that_was_paused_before_the_restart() -> None:
    disk = SimDisk(random.Random(1))
    owner = DurableOwner(disk)
    link = client(owner)
    put(link, 1, 1)
    link.words(frames.PAUSE_TUBE, 1, 2, 60 * NS_PER_S, body=b"default")
    assert lines(link.take())[-1] == b"PAUSED"
    later = DurableOwner(disk, owner.now_ns + 10 * NS_PER_S)
    link = client(later)
    link.plain(frames.RESERVE, 1, 1, frames.FLAG_NOWAIT)
    assert [each.opcode for each in link.take()] == [frames.CANCELLED]
    later.now_ns += 50 * NS_PER_S
    link.plain(frames.RESERVE, 1, 2, frames.FLAG_NOWAIT)
    assert [each.opcode for each in link.take()] == [frames.RESERVED]


def test_a_pause_does_not_outlive_its_tube() -> None:
    disk = SimDisk(random.Random(1))
    owner = DurableOwner(disk)
    link = client(owner)
    name = next(b"tube-%d" % n for n in range(100) if TOPOLOGY.slot_of_name(b"tube-%d" % n) == SLOT)
    link.words(frames.USE, 1, 1, body=name)
    link.words(frames.PAUSE_TUBE, 1, 2, 60 * NS_PER_S, body=name)
    link.plain(frames.UNUSE, 1, 3)
    link.words(frames.USE, 1, 4, body=name)
    put(link, 1, 5)
    assert lines(link.take())[-1].startswith(b"INSERTED ")
    disk.power_lost(keep=0.0)
    tube = DurableOwner(disk, owner.now_ns).core.engine.tubes[name]
    assert (tube.job_count, tube.pause_until_ns) == (1, 0)


def test_old_segments_are_given_up_while_the_engine_serves() -> None:
    disk = SimDisk(random.Random(1))
    owner = DurableOwner(disk)
    link = client(owner)
    request = 0
    kept: list[int] = []
    for round_number in range(300):
        request += 1
        put(link, 1, request, body=b"k" * 900)
        (reply,) = lines(link.take())
        id = int(reply.split()[1])
        if round_number % 30 == 0:
            kept.append(id)
            continue
        request += 1
        link.words(frames.DELETE, 1, request, id)
        assert lines(link.take()) == [b"DELETED"]
    assert owner.log.space.oldest().number > 2
    assert owner.log.records_migrated > 0
    check_engine(owner.core.engine)
    disk.power_lost(keep=0.0)
    assert sorted(job.id for job in DurableOwner(disk).core.engine.jobs.jobs()) == kept


def test_a_full_disk_refuses_puts_alone_and_ends_by_itself() -> None:
    disk = SimDisk(random.Random(1), capacity_bytes=3 * SEGMENT + 20_000)
    owner = DurableOwner(disk)
    link = client(owner)
    ids: list[int] = []
    request = 0
    while True:
        request += 1
        put(link, 1, request, body=b"f" * 2_000)
        (reply,) = lines(link.take())
        if reply == b"OUT_OF_MEMORY":
            break
        ids.append(int(reply.split()[1]))
    assert len(ids) > 20
    request += 1
    link.plain(frames.RESERVE, 1, request)
    assert [each.opcode for each in link.take()] == [frames.RESERVED]
    link.words(frames.BURY, 1, request + 1, ids[0], 1)
    link.words(frames.KICK, 1, request + 2, 5)
    link.words(frames.DELETE, 1, request + 3, ids[1])
    assert lines(link.take()) == [b"BURIED", b"KICKED 1", b"DELETED"]
    disk.capacity_bytes = None
    owner.later(NS_PER_S)
    put(link, 1, request + 4)
    assert lines(link.take())[0].startswith(b"INSERTED ")


def test_without_a_lease_a_put_is_refused_and_burns_no_id() -> None:
    owner = DurableOwner(SimDisk(random.Random(1)))
    link = client(owner)
    put(link, 1, 1)
    assert lines(link.take()) == [b"INSERTED 1"]
    owner.log.sequence_limit = 1
    put(link, 1, 2)
    assert lines(link.take()) == [b"OUT_OF_MEMORY"]
    owner.log.sequence_limit = owner.log.lease.limit
    put(link, 1, 3)
    assert lines(link.take()) == [b"INSERTED 17"]
