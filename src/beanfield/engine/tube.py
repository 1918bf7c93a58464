"""A tube: its jobs by state, who refers to it, and its heap of soonest events.

Knows Job and heaps only. The engine decides when a tube comes and goes.
"""

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64, mypyc_attr

from beanfield.constants import NEVER_NS
from beanfield.engine.heap import ReadyHeap, TimeHeap
from beanfield.engine.job import Job

if TYPE_CHECKING:
    from beanfield.engine.watchset import WatchSet

NEVER: Final[i64] = NEVER_NS
NOT_QUEUED: Final[i64] = -1
# Up to so many tubes with a job to grant are looked through; far enough apart not to change with every job.
HEADS_FEW_MAX: Final[i64] = 16
HEADS_MANY_MIN: Final[i64] = 8


@mypyc_attr(native_class=True)
class Tube:
    """One tube. It lives while it is used, watched, holds a job in any state, or is `default`."""

    def __init__(self, name: bytes, index: i64, partition: i64, created_ns: i64) -> None:
        self.name: bytes = name
        self.index: i64 = index  # in the engine's table; reused after the tube has gone
        self.partition: i64 = partition
        self.created_ns: i64 = created_ns
        self.permanent: bool = False
        self.ready: ReadyHeap = ReadyHeap()  # ready and free to be granted
        self.held: ReadyHeap = ReadyHeap()  # ready, but held for an offer
        self.delayed: TimeHeap = TimeHeap()
        self.buried: TimeHeap = TimeHeap()  # by burial number
        self.reserved_count: i64 = 0
        self.reserved_by: list[int] = []  # reserved jobs by link index, grown when needed
        self.urgent_count: i64 = 0  # ready (held ones too) with a priority below 1024
        self.job_count: i64 = 0  # in any state
        self.using_count: i64 = 0
        self.watching_count: i64 = 0
        self.total_jobs: i64 = 0  # puts since the tube was made
        self.delete_count: i64 = 0
        self.pause_count: i64 = 0
        self.pause_ns: i64 = 0  # length of the running pause
        self.pause_until_ns: i64 = 0  # 0: not paused
        self.sets: list[WatchSet] = []  # the watch sets this tube is in
        self.head_at: i64 = NOT_QUEUED  # position in the engine's list of tubes with a job to grant
        # The soonest of: first delay ends, pause ends. Key of the engine's heap of tubes.
        self.event_ns: i64 = NEVER
        self.event_at: i64 = NOT_QUEUED

    def ready_count(self) -> i64:
        return len(self.ready.items) + len(self.held.items)

    def first_ready(self) -> Job | None:
        """What peek-ready shows: the most urgent ready job, held or not."""
        items = self.ready.items
        held = self.held.items
        if len(items) == 0:
            if len(held) == 0:
                return None
            return held[0]
        if len(held) != 0:
            a = items[0]
            b = held[0]
            if b.priority_code < a.priority_code or (b.priority_code == a.priority_code and b.id < a.id):
                return b
        return items[0]

    def unused(self) -> bool:
        """True if nothing holds the tube any more."""
        return self.job_count == 0 and self.using_count == 0 and self.watching_count == 0 and not self.permanent

    def soonest_ns(self) -> i64:
        """When the next delay or the pause ends; NEVER if neither runs."""
        soonest = NEVER
        delayed = self.delayed.items
        if len(delayed) != 0:
            soonest = delayed[0].deadline_ns
        if self.pause_until_ns != 0 and self.pause_until_ns < soonest:
            soonest = self.pause_until_ns
        return soonest

    def reserved_elsewhere(self, link: i64) -> i64:
        """Jobs reserved through other links than this one."""
        if link < len(self.reserved_by):
            own: i64 = self.reserved_by[link]
            return self.reserved_count - own
        return self.reserved_count

    def count_reserved(self, link: i64, change: i64) -> None:
        """A reservation through `link` begins (+1) or ends (-1)."""
        while link >= len(self.reserved_by):
            self.reserved_by.append(0)
        before: i64 = self.reserved_by[link]
        self.reserved_by[link] = before + change
        self.reserved_count += change
        assert self.reserved_count >= 0


@mypyc_attr(native_class=True)
class Heads:
    """The tubes of the slot that have a job to grant now: ready, not held, not paused.

    While they are few, a watch set looks through them; only when they are many (`wide`) does each set keep a heap of
    its own, for which every better head must be told to every set. `era` counts how often they became many.
    """

    def __init__(self) -> None:
        self.tubes: list[Tube] = []
        self.wide: bool = False
        self.era: i64 = 0
        self.few_max: i64 = HEADS_FEW_MAX
        self.many_min: i64 = HEADS_MANY_MIN

    def update(self, tube: Tube) -> None:
        """After the ready heap of the tube has become empty or not, or its pause began or ended."""
        grantable = len(tube.ready.items) != 0 and tube.pause_until_ns == 0
        at = tube.head_at
        if grantable == (at != NOT_QUEUED):
            return
        tubes = self.tubes
        if grantable:
            tube.head_at = len(tubes)
            tubes.append(tube)
            if not self.wide and len(tubes) > self.few_max:
                self.wide = True
                self.era += 1
            return
        tube.head_at = NOT_QUEUED
        last = tubes.pop()
        if last is not tube:
            tubes[at] = last
            last.head_at = at
        if len(tubes) < self.many_min:
            self.wide = False


@mypyc_attr(native_class=True)
class TubeHeap:
    """Tubes by event_ns, then index; only those with an event are in it."""

    def __init__(self) -> None:
        self.items: list[Tube] = []

    def update(self, tube: Tube) -> None:
        """Puts the tube where its soonest event belongs."""
        event_ns = tube.soonest_ns()
        if event_ns == tube.event_ns:
            return
        at = tube.event_at
        tube.event_ns = event_ns
        if at == NOT_QUEUED:
            self.items.append(tube)
            self._up(tube, len(self.items) - 1)
        elif event_ns == NEVER:
            tube.event_at = NOT_QUEUED
            last = self.items.pop()
            if last is not tube:
                self._place(last, at)
        else:
            self._place(tube, at)

    def _place(self, tube: Tube, at: i64) -> None:
        if at > 0 and tube.event_ns < self.items[(at - 1) >> 1].event_ns:
            self._up(tube, at)
        else:
            self._down(tube, at)

    def _up(self, tube: Tube, at: i64) -> None:
        items = self.items
        while at > 0:
            parent_at = (at - 1) >> 1
            parent = items[parent_at]
            if tube.event_ns >= parent.event_ns:
                break
            items[at] = parent
            parent.event_at = at
            at = parent_at
        items[at] = tube
        tube.event_at = at

    def _down(self, tube: Tube, at: i64) -> None:
        items = self.items
        size: i64 = len(items)
        while True:
            child_at = 2 * at + 1
            if child_at >= size:
                break
            child = items[child_at]
            if child_at + 1 < size and items[child_at + 1].event_ns < child.event_ns:
                child_at += 1
                child = items[child_at]
            if child.event_ns >= tube.event_ns:
                break
            items[at] = child
            child.event_at = at
            at = child_at
        items[at] = tube
        tube.event_at = at
