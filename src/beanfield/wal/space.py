"""How much of a slot's segments is needed, and what follows: take a put, make a segment, clean an old one, or wait.

Terms (docs/wal.md, Space, has the argument):
- live: the longest record of every job with its claims, and every delete record whose put's segment still exists;
- total: bytes of all segments, spares included; those that are emptied and wait for removal are not counted;
- allocated: total without one segment, which is kept for copying. Puts keep live <= 80 % of it;
- slack: room in the current segment and the spares, less what copying the oldest segment takes. Copying leaves it as
  it is, records of clients use it up, a cleaned segment gives back what was dead in it. It must never fall so low that
  the oldest segment could not be copied: below `_slack_min` clients wait (`stalled`) while there is something to do.

Knows segments and numbers, no records, files or requests.
"""

from typing import Final

from mypy_extensions import i64, mypyc_attr

from beanfield.wal.records import CLAIM_BYTES
from beanfield.wal.segments import Segment

NO_CLEANING: Final = 0
PACED: Final = 1  # a little for each byte that is written
URGENT: Final = 2  # as fast as turns allow


@mypyc_attr(native_class=True)
class Space:
    """The ledger. `segments` are oldest first and numbered without gaps; the last one is being written."""

    def __init__(self, segment_bytes: i64, segments: list[Segment], spares: list[Segment]) -> None:
        assert len(segments) >= 1
        self.segment_bytes: i64 = segment_bytes  # of the segments that will be made
        self.segments: list[Segment] = segments
        self.spares: list[Segment] = spares
        self.emptied: i64 = 0  # so many at the front hold nothing that is needed; they are being removed
        self.live: i64 = 0
        self.total: i64 = 0
        self.emptied_bytes: i64 = 0
        self.spare_room: i64 = 0
        # Bytes of records in finished segments (emptied ones left out), and what copying the live ones of them takes.
        self.closed_used: i64 = 0
        self.closed_copy: i64 = 0
        self.disk_full: bool = False  # the last attempt to make a segment failed for want of space
        for segment in segments:
            self.live += segment.live_bytes()
            self.total += segment.bytes
        for segment in segments[: len(segments) - 1]:
            self.closed_used += segment.used
            self.closed_copy += segment.copy_bytes
        for spare in spares:
            self.total += spare.bytes
            self.spare_room += spare.room()

    def current(self) -> Segment:
        return self.segments[len(self.segments) - 1]

    def oldest(self) -> Segment:
        """The oldest segment that is not emptied; the current one if there is no other."""
        return self.segments[self.emptied]

    def segment(self, number: i64) -> Segment:
        found = self.segments[number - self.segments[0].number]
        assert found.number == number
        return found

    def closed(self) -> bool:
        """There is a finished segment that is not emptied."""
        return i64(len(self.segments)) - self.emptied > 1

    # ---------------------------------------------------------------- judgements
    def slack(self) -> i64:
        room = self.current().room() + self.spare_room
        if self.closed():
            return room - self.oldest().copy_bytes
        return room

    def _slack_min(self) -> i64:
        # A put may waste the end of one segment and take as much again, and copying may waste the end of another one:
        # 3/16, and something for marks.
        return self.segment_bytes // 5

    def _headroom(self) -> i64:
        """What live may still grow by: 80 % of the allocated segments. An emptied one will be recycled if it counts."""
        return (self.total + self.emptied_bytes - self.segment_bytes) * 4 // 5 - self.live

    def can_hold(self, cost: i64) -> bool:
        return self._headroom() >= cost

    def _within_bound(self, more: i64) -> bool:
        return self.total + more <= 2 * self.live + 2 * self.segment_bytes

    def wants_segment(self) -> bool:
        """One more segment should be made, if the disk lets us."""
        size = self.segment_bytes
        if self._headroom() < size * 3 // 10:
            return True
        may = self._within_bound(size)
        if len(self.spares) == 0:
            return may or self.current().room() < size // 2
        return may and self.slack() < size * 2 // 5

    def wants_fewer_spares(self) -> bool:
        size = self.segment_bytes
        if len(self.spares) < 2 or self._within_bound(0) or self.emptied > 0:
            return False
        return self.slack() >= size * 7 // 5 and self._headroom() - size * 4 // 5 >= size * 3 // 10

    def keeps_emptied(self) -> bool:
        """The emptied segment must become a spare: without it puts could be refused, or there would be none."""
        size = self.segment_bytes
        return len(self.spares) == 0 or self._headroom() - size * 4 // 5 < size * 3 // 10

    def _worth_cleaning(self) -> bool:
        """Enough is dead in finished segments. Without this, a log that is packed full would be copied for ever."""
        return self.closed() and self.closed_used - self.closed_copy >= self.segment_bytes // 8

    def cleaning(self) -> i64:
        """Whether the oldest segment should be emptied now, and how hard."""
        if not self.closed():
            return NO_CLEANING
        size = self.segment_bytes
        spares: i64 = len(self.spares)
        # More than one spare is no reason to copy anything: they are given back (wants_fewer_spares).
        needed = self.total - (spares - 1) * size if spares > 1 else self.total
        if needed > 2 * self.live + 2 * size:
            return URGENT
        if spares == 0 and not self._within_bound(size):
            return URGENT
        if self.disk_full or not self._within_bound(size):
            if self.slack() < size * 2 // 5 and self._worth_cleaning():
                return URGENT
        if needed * 4 > 7 * self.live + 8 * size:
            return PACED
        return NO_CLEANING

    def short(self, making: bool) -> bool:
        """Clients should wait: space is short and more is on its way. making: a segment is being made."""
        if self.slack() < self._slack_min():
            return making or self.emptied > 0 or self._worth_cleaning() or not self.disk_full
        return not self.disk_full and self._headroom() < self.segment_bytes // 10

    # ---------------------------------------------------------------- changes
    def job_added(self, segment: Segment, id: i64, cost: i64) -> None:
        segment.job_added(id, cost)
        self.live += cost

    def job_moved(self, number: i64, cost: i64) -> None:
        """The job has a full record elsewhere now."""
        segment = self.segment(number)
        segment.job_removed(cost)
        self.live -= cost
        self._copied_less(segment, cost)

    def job_deleted(self, number: i64, cost: i64, delete_bytes: i64) -> None:
        segment = self.segment(number)
        segment.job_removed(cost)
        segment.delete_bytes += delete_bytes
        self.live += delete_bytes - cost
        self._copied_less(segment, cost)

    def _copied_less(self, segment: Segment, cost: i64) -> None:
        if segment is not self.current():
            self.closed_copy -= cost - CLAIM_BYTES
            assert self.closed_copy >= 0

    def begin_spare(self) -> None:
        """The first spare becomes the current segment."""
        spare = self.spares.pop(0)
        assert spare.number == self.current().number + 1
        self.spare_room -= spare.room()
        finished = self.current()
        self.closed_used += finished.used
        self.closed_copy += finished.copy_bytes
        self.segments.append(spare)

    def spare_made(self, segment: Segment) -> None:
        assert segment.number == self.highest() + 1
        self.spares.append(segment)
        self.spare_room += segment.room()
        self.total += segment.bytes
        self.disk_full = False

    def drop_spare(self) -> Segment:
        spare = self.spares.pop()
        self.spare_room -= spare.room()
        self.total -= spare.bytes
        return spare

    def oldest_emptied(self) -> None:
        segment = self.oldest()
        assert self.closed()
        assert segment.job_count == 0
        assert segment.job_bytes == 0
        self.emptied += 1
        self.emptied_bytes += segment.bytes
        self.total -= segment.bytes
        self.closed_used -= segment.used

    def removed(self) -> None:
        """The first emptied segment is durably gone, and so the delete records of its jobs are needed no more."""
        assert self.emptied >= 1
        segment = self.segments.pop(0)
        self.emptied -= 1
        self.emptied_bytes -= segment.bytes
        self.live -= segment.delete_bytes

    def highest(self) -> i64:
        if len(self.spares) > 0:
            return self.spares[len(self.spares) - 1].number
        return self.current().number
