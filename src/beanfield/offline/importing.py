"""What becomes of the jobs of a binlog in a new root: their new ids, times and states, and what cannot be taken over.

- With one partition ids are kept. Else they are given in the order of the old ids: one sequence counter over all
  slots, so that the order of ids is the old one over all tubes, as is then the order of jobs of equal priority.
- `created_ns` is the old creation time, cut to the time of the import, raised to that of the job before it.
- Reserved is ready; a delay that is over is over; buried jobs keep their order. Counters, delay and TTR are kept.

Knows no files and no clock but the time it is given.
"""

from typing import Final

from beanfield.constants import LEASE_SEQUENCES, NS_PER_S, U32_MAX
from beanfield.engine.job import BURIED, COUNT_MAX, DELAYED, READY, Job
from beanfield.offline import binlog_records
from beanfield.offline.binlog import Binlog, Fault, OldJob, file_name
from beanfield.offline.tube_names import printable, repaired_name, valid_name
from beanfield.routing import Topology

# Ids are kept below it: behind it the new server would soon have none left to give.
SEQUENCE_KEPT_MAX: Final = 0x7FFF_FFFF_FFFF_FFFF - 4 * LEASE_SEQUENCES

MAPPING_NAME: Final = "imported-ids.txt"
MAPPING_HEAD: Final = (
    b"# Ids of imported jobs: the id in beanstalkd, the id now, the tube. One job a line, oldest first, tabs between.\n"
)


class Entry:
    """A job that will be written."""

    __slots__ = ("old", "old_id", "id", "created_ns", "tube")

    def __init__(self, old: OldJob, old_id: int, id: int, created_ns: int, tube: bytes) -> None:
        self.old: OldJob = old
        self.old_id: int = old_id
        self.id: int = id
        self.created_ns: int = created_ns
        self.tube: bytes = tube


class ImportPlan:
    """The jobs in the order in which they are written, and where the new root's ids go on."""

    def __init__(self, binlog: Binlog, topology: Topology, now_ns: int, repair_names: bool) -> None:
        self.topology: Final = topology
        self.now_ns: Final = now_ns
        self.entries: Final[list[Entry]] = []
        self.faults: Final[list[Fault]] = []
        self.keeps_ids: Final = topology.partitions == 1
        self.next_sequence = 0
        self._repair_names = repair_names
        self._created_ns = 0
        for id in sorted(binlog.jobs):
            self._take(id, binlog.jobs[id])
        if self.keeps_ids:
            # No id of the old server comes again, deleted ones included; what is past the end was left out above.
            highest = min(binlog.id_max, SEQUENCE_KEPT_MAX)
            self.next_sequence = max(self.next_sequence, highest)

    def _take(self, id: int, old: OldJob) -> None:
        tube = old.tube
        if not valid_name(tube):
            if not self._repair_names:
                self._note(id, old, f"tube name {printable(tube)} is not allowed: left out; see --repair-names")
                return
            tube = repaired_name(tube)
            self._note(id, old, f"tube name {printable(old.tube)} is not allowed: {printable(tube)} instead", False)
        new_id = id
        if self.keeps_ids:
            if id - 1 > SEQUENCE_KEPT_MAX:
                self._note(
                    id, old, "the id is too large to be kept: left out; with --partitions 2 or more it gets a new one"
                )
                return
            self.next_sequence = id
        else:
            new_id = int(self.topology.make_id(self.next_sequence, self.topology.partition_of(tube)))
            self.next_sequence += 1
        self._created_ns = max(self._created_ns, min(old.record.created_ns, self.now_ns))
        if old.record.delay_ns > U32_MAX * NS_PER_S or old.record.ttr_ns > U32_MAX * NS_PER_S:
            self._note(id, old, "its delay or TTR is longer than can be: cut", False)
        self.entries.append(Entry(old, id, new_id, self._created_ns, tube))

    def _note(self, id: int, old: OldJob, text: str, lost: bool = True) -> None:
        self.faults.append(Fault(file_name(old.file), old.body_offset, f"job {id}: {text}", lost))

    def job(self, entry: Entry, body: bytes) -> Job:
        """As it is written: deadlines are wall clock."""
        record = entry.old.record
        delay_s = min(record.delay_ns // NS_PER_S, U32_MAX)
        ttr_s = min(max(record.ttr_ns // NS_PER_S, 1), U32_MAX)
        job = Job(entry.id, 0, entry.created_ns, record.priority, delay_s, ttr_s, body)
        job.reserves = min(record.reserves, COUNT_MAX)
        job.timeouts = min(record.timeouts, COUNT_MAX)
        job.releases = min(record.releases, COUNT_MAX)
        job.buries = min(record.buries, COUNT_MAX)
        job.kicks = min(record.kicks, COUNT_MAX)
        job.state = READY
        if record.state == binlog_records.BURIED:
            job.state = BURIED
            job.deadline_ns = entry.old.burial
        elif record.state == binlog_records.DELAYED and record.deadline_ns > self.now_ns:
            job.state = DELAYED
            # A deadline past what a delay could reach is damage that nothing else shows.
            job.deadline_ns = min(record.deadline_ns, self.now_ns + U32_MAX * NS_PER_S)
        return job

    def mapping_line(self, entry: Entry) -> bytes:
        return b"%d\t%d\t%s\n" % (entry.old_id, entry.id, entry.tube)

    def states(self) -> dict[str, int]:
        """Jobs by the state they will have."""
        found = {"ready": 0, "delayed": 0, "buried": 0}
        for entry in self.entries:
            record = entry.old.record
            if record.state == binlog_records.BURIED:
                found["buried"] += 1
            elif record.state == binlog_records.DELAYED and record.deadline_ns > self.now_ns:
                found["delayed"] += 1
            else:
                found["ready"] += 1
        return found
