"""What an owner says to its log, whichever log it is: told at each change of a job, asked whether a frame may leave.

`Journal` is the interface and, without `-b`, the implementation too (`MemoryJournal`): it keeps nothing, its positions
stay 0, and everything may be answered at once. The log with files is `wal/log.py`. A replicated log would be another.

Rules for the caller (the owner's core):
- The engine's state changes first, then the matching method is called with the Job as it now is. Before a change that
  could be refused for want of space, `can_put` or `can_change` is asked; after a yes the record always finds room.
- A frame made now carries `position`; it leaves when `position <= released_position` (the release rule). A link is
  one FIFO, so one number per queued frame is enough. `count` does not move `position`: nobody waits for counters.
- No client frame is executed while `stalled` is true (ask before each; false in the usual case). Timers may run.
- `settle(now_ns)` ends every turn, before frames are released. What a log wants of the disk afterwards is between it
  and the loop that owns it (`wal/log.py`); the core need not know.

It knows no files, no clock, and of a job only what engine/job.py stores.
"""

from typing import Final

from mypy_extensions import i64, mypyc_attr

from beanfield.constants import NEVER_NS
from beanfield.engine.job import Job

# More sequences than the id space has: every put is limited by ID_MAX alone.
SEQUENCE_LIMIT_NONE: Final[i64] = 0x7FFF_FFFF_FFFF_FFFF


@mypyc_attr(native_class=True, allow_interpreted_subclasses=True)
class LiveJobs:
    """What a log may ask the engine when it copies jobs out of an old segment."""

    def find(self, id: i64) -> Job | None:
        """The job, or None if it is gone."""
        raise NotImplementedError

    def tube_name(self, job: Job) -> bytes:
        raise NotImplementedError


@mypyc_attr(native_class=True, allow_interpreted_subclasses=True)
class Journal:
    """The interface. Its own methods do what a journal in memory does: nothing."""

    def __init__(self) -> None:
        self.position: i64 = 0  # grows with every record that somebody waits for
        self.released_position: i64 = 0  # frames made at or before it may leave; <= position
        self.stalled: bool = False  # no client frame may be executed now
        self.sequence_limit: i64 = SEQUENCE_LIMIT_NONE  # ids may use sequences below it; else put is OUT_OF_MEMORY

    # ---------------------------------------------------------------- asked before a change
    def can_put(self, id: i64, tube_name: bytes, body: bytes) -> bool:
        """Whether a put finds space now. After a yes the caller puts exactly this job, in the same turn."""
        return True

    def can_change(self) -> bool:
        """Whether one more change or delete finds space. No is rare: see docs/wal.md, Space."""
        return True

    # ---------------------------------------------------------------- told after a change
    def put(self, job: Job, tube_name: bytes) -> None:
        """A new job, READY or DELAYED. Sets job.segment."""

    def change(self, job: Job, tube_name: bytes) -> None:
        """After release, bury, kick, kick-job, and reserve-job of a delayed or buried job: all that can change.

        A BURIED job has its burial number in deadline_ns, a DELAYED one the end of its delay. RESERVED is logged as
        READY, since no reservation outlives its owner.
        """

    def count(self, job: Job) -> None:
        """reserves or timeouts rose and nothing else is told. May be left out of the log when there is no room."""

    def delete(self, job: Job, tube_name: bytes) -> None:
        """The job is gone for good."""

    def pause(self, tube_name: bytes, pause_s: i64, until_ns: i64) -> None:
        """pause-tube, with the monotonic end of the pause. Comes back only with a tube that has jobs."""

    # ---------------------------------------------------------------- each turn
    def settle(self, now_ns: i64) -> None:
        """The turn's changes are complete: copies jobs if it is time to, closes the batch, moves released_position."""

    def next_deadline_ns(self) -> i64:
        """When settle wants to be called again though nothing came; 0 = at once, NEVER_NS = not."""
        return NEVER_NS

    # ---------------------------------------------------------------- for stats
    def stat_oldest_segment(self) -> i64:
        """binlog-oldest-index"""
        return 0

    def stat_current_segment(self) -> i64:
        """binlog-current-index"""
        return 0

    def stat_segment_bytes(self) -> i64:
        """binlog-max-size: -s as given"""
        return 0

    def stat_records_written(self) -> i64:
        """binlog-records-written"""
        return 0

    def stat_records_migrated(self) -> i64:
        """binlog-records-migrated"""
        return 0


@mypyc_attr(native_class=True)
class MemoryJournal(Journal):
    """Without -b. Costs a call that returns."""
