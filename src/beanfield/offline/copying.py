"""Jobs of one slot on their way into a new root: as they are, with ids, deadlines as wall clock, in order of burial.

All jobs of a tube come from one old slot and go into one new slot. So the order of burial within a tube is kept by
numbering the buried jobs of each new slot anew, old slot by old slot. Knows no files.
"""

from typing import Final

from beanfield.engine.job import BURIED, DELAYED, READY, Job
from beanfield.routing import Topology
from beanfield.wal.replay import Replay


class Copying:
    """One per new root; give it one old slot's replay after the other."""

    def __init__(self, topology: Topology, now_ns: int) -> None:
        self._topology: Final = topology
        self._now_ns: Final = now_ns
        self._burials = [0] * int(topology.slots)
        self.created_ns_max = 0

    def jobs(self, replay: Replay) -> list[tuple[Job, bytes]]:
        """Oldest first, each with its tube; a delay that is over is over."""
        self.created_ns_max = max(self.created_ns_max, int(replay.created_ns_max))
        buried = [job for job in replay.jobs.values() if job.state == BURIED]
        for job in sorted(buried, key=_burial):
            slot = self._topology.slot_of_name(replay.tube_names[int(job.tube)])
            self._burials[slot] += 1
            job.deadline_ns = self._burials[slot]
        copied = []
        for id in sorted(replay.jobs):
            job = replay.jobs[id]
            if job.state == DELAYED and job.deadline_ns <= self._now_ns:
                job.state = READY
                job.deadline_ns = 0
            copied.append((job, replay.tube_names[int(job.tube)]))
        return copied

    def pauses(self, replay: Replay) -> list[tuple[bytes, int, int]]:
        """Name, seconds, end: of pauses that are not over, of tubes with jobs."""
        with_jobs = {int(job.tube) for job in replay.jobs.values()}
        return [
            (name, int(pause.pause_s), int(pause.until_wall_ns))
            for name, pause in replay.pauses.items()
            if replay.tube_index.get(name, -1) in with_jobs and pause.until_wall_ns > self._now_ns
        ]


def _burial(job: Job) -> tuple[int, int]:
    return int(job.deadline_ns), int(job.id)
