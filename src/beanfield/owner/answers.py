"""The text of answers about jobs and tubes: from the engine's state to final reply bytes."""

from typing import Final

from librt.strings import BytesWriter, write_i64_le
from mypy_extensions import i64

from beanfield.constants import NS_PER_S
from beanfield.engine.engine import Engine
from beanfield.engine.job import DELAYED, RESERVED, STATE_NAMES, Job
from beanfield.engine.tube import Tube
from beanfield.proto.yaml import stats_job, stats_tube

SECOND: Final[i64] = NS_PER_S


def whole_seconds(ns: i64) -> i64:
    """Truncated towards zero, as beanstalkd shows times."""
    if ns < 0:
        return -((-ns) // SECOND)
    return ns // SECOND


def seconds_left(until_ns: i64, now_ns: i64) -> i64:
    """Of something that was set before: 99 right after `pause-tube x 100`, also when both came in one packet."""
    return whole_seconds(until_ns - now_ns - 1)


def job_stats(engine: Engine, job: Job, now_ns: i64) -> bytes:
    """The 14 keys of stats-job."""
    state: i64 = i64(job.state)
    left: i64 = 0
    if state == RESERVED or state == DELAYED:
        left = seconds_left(job.deadline_ns, now_ns)
    return stats_job(
        job.id,
        engine.tube_of(job).name,
        STATE_NAMES[state],
        job.priority(),
        whole_seconds(now_ns + engine.created_offset_ns - job.created_ns),
        job.delay_s(),
        job.ttr_s(),
        left,
        i64(job.segment),
        i64(job.reserves),
        i64(job.timeouts),
        i64(job.releases),
        i64(job.buries),
        i64(job.kicks),
    )


def tube_stats(tube: Tube, now_ns: i64) -> bytes:
    """The 14 keys of stats-tube."""
    waiting: i64 = 0
    for each in tube.sets:
        waiting += each.waiting_count
    pause_s: i64 = 0
    pause_left_s: i64 = 0
    if tube.pause_until_ns != 0:
        pause_s = tube.pause_ns // SECOND
        pause_left_s = seconds_left(tube.pause_until_ns, now_ns)
    return stats_tube(
        tube.name,
        tube.urgent_count,
        tube.ready_count(),
        tube.reserved_count,
        len(tube.delayed.items),
        len(tube.buried.items),
        tube.total_jobs,
        tube.using_count,
        tube.watching_count,
        waiting,
        tube.delete_count,
        tube.pause_count,
        pause_s,
        pause_left_s,
    )


def tube_names(engine: Engine) -> bytes:
    """For LIST_TUBES: (creation time, name length, name) of each tube, in order of creation."""
    writer = BytesWriter()
    for tube in engine.tubes.values():
        write_i64_le(writer, tube.created_ns)
        write_i64_le(writer, len(tube.name))
        writer.write(tube.name)
    return writer.getvalue()


