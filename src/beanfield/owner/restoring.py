"""Between a slot's log and its engine: what was read goes in, and what the log asks of the engine later.

Knows no files and no clock. Nothing is told to the journal while jobs are restored: they are in the log already.
"""

from typing import Final

from mypy_extensions import i64, mypyc_attr

from beanfield.constants import NS_PER_S
from beanfield.engine.engine import Engine
from beanfield.engine.job import Job
from beanfield.wal.journal import LiveJobs
from beanfield.wal.replay import Replay, wake

SECOND: Final[i64] = NS_PER_S


@mypyc_attr(native_class=True)
class EngineJobs(LiveJobs):
    """The engine's jobs, for a log that copies them. The journal is made before the engine, so that comes later."""

    def __init__(self) -> None:
        self.engine: Engine | None = None

    def find(self, id: i64) -> Job | None:
        engine = self.engine
        assert engine is not None
        return engine.jobs.find(id)

    def tube_name(self, job: Job) -> bytes:
        engine = self.engine
        assert engine is not None
        return engine.tube_of(job).name


def restore_jobs(engine: Engine, replay: Replay, now_ns: i64, wall_offset_ns: i64) -> None:
    """Everything that was read, oldest job first. The replay is used up: its jobs are the engine's now."""
    wake(replay, now_ns, wall_offset_ns)
    for id in sorted(replay.jobs):
        job = replay.jobs[id]
        tube = engine.make_tube(replay.tube_names[i64(job.tube)], now_ns)
        engine.restore(tube, job, now_ns)
    if replay.created_ns_max > engine.created_last_ns:
        engine.created_last_ns = replay.created_ns_max
    for name, pause in replay.pauses.items():
        # A pause comes back only with a tube that has jobs: an empty tube would have been forgotten, pause and all.
        paused = engine.tubes.get(name)
        until_ns = pause.until_wall_ns - wall_offset_ns
        if paused is not None and paused.job_count > 0 and until_ns > now_ns:
            paused.pause_ns = pause.pause_s * SECOND
            paused.pause_until_ns = until_ns
            engine.events.update(paused)
    replay.jobs = {}
