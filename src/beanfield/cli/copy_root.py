"""From old slots into a new root: what `resize` and `wal salvage` share."""

import argparse
import time
from collections.abc import Iterator

from beanfield.cli.progress import BYTES, JOBS, Progress
from beanfield.io.new_root import NewRoot
from beanfield.io.read_only_disk import ReadOnlyDisk
from beanfield.io.root_view import RootView
from beanfield.offline.copying import Copying
from beanfield.offline.inspection import SlotFigures, read_slot
from beanfield.routing import Topology
from beanfield.wal.segments import segment_number

PROGRESS_JOBS = 500


def segment_bytes_of(disk: ReadOnlyDisk) -> int:
    """What reading a slot will take, for progress."""
    return sum(disk.size(name) for name in disk.names() if segment_number(name) > 0)


def read_slots(view: RootView, quiet: bool) -> Iterator[SlotFigures]:
    """One slot after the other, each with its jobs; keep none longer than needed."""
    now_ns = time.time_ns()
    disks = {slot: ReadOnlyDisk(path) for slot, path in view.slots.items()}
    progress = Progress("reading", sum(segment_bytes_of(disk) for disk in disks.values()), BYTES, quiet)
    try:
        for slot, disk in disks.items():
            yield read_slot(disk, slot, view.slots[slot], view.topology, now_ns, progress.advance)
            disk.close()
    finally:
        progress.end()


def copy_slots(
    view: RootView, topology: Topology, next_sequence: int, total_jobs: int, given: argparse.Namespace
) -> None:
    """Everything that can be read, into the new root `given.to`."""
    root = NewRoot(given.to, topology, given.segment_bytes, next_sequence)
    progress = Progress("writing", total_jobs, JOBS, given.quiet)
    copying = Copying(topology, time.time_ns())
    try:
        for figures in read_slots(view, quiet=True):
            replay = figures.replay
            assert replay is not None
            for count, (job, tube_name) in enumerate(copying.jobs(replay), 1):
                root.add(job, tube_name)
                if count % PROGRESS_JOBS == 0:
                    progress.advance(PROGRESS_JOBS)
            for tube_name, pause_s, until_ns in copying.pauses(replay):
                root.pause(tube_name, pause_s, until_ns)
            figures.replay = None
        root.finish(copying.created_ns_max)
    except BaseException:
        root.abandon()
        raise
    finally:
        progress.end()
