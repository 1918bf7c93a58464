"""Records in order to the jobs that they leave: what a slot's log means, without its files.

The order of the log is the truth: the last full record of a job and the changes behind it say how it stands. A change,
count or delete of a job that is not there is no fault: its full record stood in a segment that has been given up, and
then either a copy follows or the job was deleted. Jobs come out as engine/job.py keeps them, except that
- `tube` is an index into `tube_names` here, and
- `deadline_ns` of a DELAYED job is wall clock until `wake` has been called.

Knows no files, and no clock but what `wake` is given.
"""

from mypy_extensions import i32, i64, mypyc_attr

from beanfield.engine.job import BURIED, DELAYED, READY, Job
from beanfield.routing import Topology
from beanfield.wal.codec import RecordReader, position_of
from beanfield.wal.records import CHANGE, CLAIM_BYTES, COPY, COUNT, DELETE, DELETE_BYTES, MARK, PAUSE, PUT, copy_bytes
from beanfield.wal.segments import Segment


@mypyc_attr(native_class=True)
class OwnBody:
    """A body with a file of its own, as its record describes it."""

    def __init__(self, position: i64, body_bytes: i64, crc: i64) -> None:
        self.position: i64 = position  # of the record that names it
        self.body_bytes: i64 = body_bytes
        self.crc: i64 = crc


@mypyc_attr(native_class=True)
class Pause:
    """The last pause-tube of a name."""

    def __init__(self, pause_s: i64, until_wall_ns: i64, segment: i64) -> None:
        self.pause_s: i64 = pause_s
        self.until_wall_ns: i64 = until_wall_ns
        self.segment: i64 = segment  # where its record is


@mypyc_attr(native_class=True)
class Replay:
    """Feed it records through apply(); then its attributes are the restored slot."""

    def __init__(self, slot: i64, topology: Topology) -> None:
        self.slot: i64 = slot
        self.topology: Topology = topology
        self.jobs: dict[int, Job] = {}
        self.tube_names: list[bytes] = []
        self.tube_partitions: list[int] = []
        self.tube_index: dict[bytes, int] = {}
        self.own_bodies: dict[int, OwnBody] = {}
        self.pauses: dict[bytes, Pause] = {}
        self.segments: dict[int, Segment] = {}
        self.records: i64 = 0
        self.created_ns_max: i64 = 0
        self.sequence_max: i64 = -1
        self.burial_max: i64 = 0
        self.synced_position: i64 = 0  # as the last mark says
        self.floor: i64 = 1  # likewise

    def segment_begun(self, segment: Segment) -> None:
        self.segments[segment.number] = segment

    def apply(self, reader: RecordReader, segment: Segment) -> str:
        """One valid record. Returns what is wrong with it, or an empty string."""
        kind = reader.kind
        self.records += 1
        segment.used = reader.offset
        if kind == PUT or kind == COPY:
            return self._put(reader, segment)
        if kind == MARK:
            self.synced_position = reader.synced_position
            self.floor = reader.floor
            if reader.created_ns > self.created_ns_max:
                self.created_ns_max = reader.created_ns
            return ""
        if kind == PAUSE:
            self.pauses[reader.name] = Pause(reader.pause_s, reader.when_ns, segment.number)
            return ""
        job = self.jobs.get(reader.id)
        if job is None:
            return ""
        if kind == DELETE:
            self._forget(job, True)
            del self.jobs[reader.id]
        elif kind == CHANGE:
            self._change(reader, job)
            job.set_priority(reader.priority)
            job.set_delay_s(reader.delay_s)
            self._counts(reader, job)
        elif kind == COUNT:
            job.reserves = i32(reader.reserves)
            job.timeouts = i32(reader.timeouts)
        return ""

    def _put(self, reader: RecordReader, segment: Segment) -> str:
        index = self.tube_index.get(reader.name, -1)
        if index < 0:
            index = self._tube(reader.name)
            if index < 0:
                slot = self.topology.slot_of_name(reader.name)
                return f"has a job of tube {reader.name!r}, which belongs to slot {slot}"
        id = reader.id
        partitions = self.topology.partitions
        if (id - 1) % partitions != self.tube_partitions[index]:
            return f"has job {id} in tube {reader.name!r}, whose partition is {self.tube_partitions[index]}"
        old = self.jobs.get(id)
        if old is not None:
            self._forget(old, False)
        job = Job(id, i32(index), reader.created_ns, reader.priority, reader.delay_s, reader.ttr_s, reader.body)
        self._change(reader, job)
        self._counts(reader, job)
        job.segment = i32(segment.number)
        self.jobs[id] = job
        stored: i64 = len(reader.body)
        if reader.own:
            self.own_bodies[id] = OwnBody(
                position_of(segment.number, reader.record_offset), reader.body_bytes, reader.body_crc
            )
        segment.job_added(id, copy_bytes(len(reader.name), stored) + CLAIM_BYTES)
        sequence = (id - 1) // partitions
        if sequence > self.sequence_max:
            self.sequence_max = sequence
        if reader.created_ns > self.created_ns_max:
            self.created_ns_max = reader.created_ns
        return ""

    def _tube(self, name: bytes) -> int:
        """A new name's index, or -1 if it is not of this slot."""
        if self.topology.slot_of_name(name) != self.slot:
            return -1
        index = len(self.tube_names)
        self.tube_index[name] = index
        self.tube_names.append(name)
        self.tube_partitions.append(int(self.topology.partition_of(name)))
        return index

    def _change(self, reader: RecordReader, job: Job) -> None:
        state = reader.state
        job.deadline_ns = reader.when_ns
        if state == DELAYED:
            job.state = DELAYED
        elif state == BURIED:
            job.state = BURIED
            if reader.when_ns > self.burial_max:
                self.burial_max = reader.when_ns
        else:
            job.state = READY

    def _counts(self, reader: RecordReader, job: Job) -> None:
        job.reserves = i32(reader.reserves)
        job.timeouts = i32(reader.timeouts)
        job.releases = i32(reader.releases)
        job.buries = i32(reader.buries)
        job.kicks = i32(reader.kicks)

    def _forget(self, job: Job, deleted: bool) -> None:
        """The job's full record is needed no more."""
        segment = self.segments[job.segment]
        segment.job_removed(copy_bytes(len(self.tube_names[job.tube]), len(job.body)) + CLAIM_BYTES)
        if deleted:
            segment.delete_bytes += DELETE_BYTES
        if job.id in self.own_bodies:
            del self.own_bodies[job.id]


def wake(replay: Replay, now_ns: i64, wall_offset_ns: i64) -> None:
    """Turns the deadlines of delayed jobs into this run's monotonic clock; a delay that is over is over."""
    for job in replay.jobs.values():
        if job.state == DELAYED:
            job.deadline_ns -= wall_offset_ns
            if job.deadline_ns <= now_ns:
                job.state = READY
                job.deadline_ns = 0
