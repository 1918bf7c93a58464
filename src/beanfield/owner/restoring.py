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
STEP_JOBS: Final[i64] = 20_000  # restored between two looks at the control socket


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


@mypyc_attr(native_class=True)
class Restoring:
    """Everything that was read, oldest job first, in steps. The replay is used up: its jobs are the engine's now."""

    def __init__(self, engine: Engine, replay: Replay, now_ns: i64, wall_offset_ns: i64) -> None:
        wake(replay, now_ns, wall_offset_ns)
        self.engine: Engine = engine
        self.replay: Replay = replay
        self.now_ns: i64 = now_ns
        self.wall_offset_ns: i64 = wall_offset_ns
        self.total: i64 = len(replay.jobs)
        self.done: i64 = 0
        self._jobs: dict[int, Job] = replay.jobs
        self._ids: list[int] = sorted(replay.jobs)
        replay.jobs = {}

    def step(self) -> bool:
        """A good number of jobs. False: that was all."""
        engine = self.engine
        names = self.replay.tube_names
        end = self.done + STEP_JOBS
        if end > self.total:
            end = self.total
        for at in range(self.done, end):
            job = self._jobs.pop(self._ids[at])
            engine.restore(engine.make_tube(names[i64(job.tube)], self.now_ns), job, self.now_ns)
        self.done = end
        if end < self.total:
            return True
        self._finish(engine)
        return False

    def _finish(self, engine: Engine) -> None:
        replay = self.replay
        if replay.created_ns_max > engine.created_last_ns:
            engine.created_last_ns = replay.created_ns_max
        for name, pause in replay.pauses.items():
            # It comes back only with a tube that has jobs: an empty tube would have been forgotten, pause and all.
            paused = engine.tubes.get(name)
            until_ns = pause.until_wall_ns - self.wall_offset_ns
            if paused is not None and paused.job_count > 0 and until_ns > self.now_ns:
                paused.pause_ns = pause.pause_s * SECOND
                paused.pause_until_ns = until_ns
                engine.heads.update(paused)
                engine.events.update(paused)


def restore_jobs(engine: Engine, replay: Replay, now_ns: i64, wall_offset_ns: i64) -> None:
    """All steps at once."""
    restoring = Restoring(engine, replay, now_ns, wall_offset_ns)
    while restoring.step():
        pass
