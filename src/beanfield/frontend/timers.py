"""An indexed heap of things that become due: sessions in the frontend's clock, reservations in their session's.

Each item carries its own due time and its place in the one heap it may be in, so it can be moved and removed in
logarithmic time and nothing stale is ever kept. Knows nothing of what is due, and no clock.
"""

from typing import Final

from mypy_extensions import i64, mypyc_attr

from beanfield.constants import NEVER_NS

NOWHERE: Final[i64] = -1


@mypyc_attr(native_class=True, allow_interpreted_subclasses=True)
class Timed:
    """Base of what can be scheduled. An item is in at most one heap."""

    def __init__(self) -> None:
        self.due_ns: i64 = NEVER_NS
        self.place: i64 = NOWHERE  # index in the heap's list; NOWHERE: not scheduled


NOTHING: Final = Timed()
SPARE_MAX: Final[i64] = 16  # a heap smaller than this keeps its room


@mypyc_attr(native_class=True)
class TimerHeap:
    """Items in order of due_ns; equal times come in no promised order but always the same one."""

    def __init__(self) -> None:
        # The first `size` of items. The others are NOTHING: an only item that comes and goes costs no memory each time.
        self.items: list[Timed] = []
        self.size: i64 = 0

    def first_due_ns(self) -> i64:
        if self.size == 0:
            return NEVER_NS
        return self.items[0].due_ns

    def schedule(self, item: Timed, due_ns: i64) -> None:
        """Puts the item in, or moves it."""
        place = item.place
        if place == NOWHERE:
            item.due_ns = due_ns
            size = self.size
            if size == len(self.items):
                self.items.append(item)
            self.size = size + 1
            self._up(item, size)
            return
        assert self.items[place] is item
        earlier = due_ns < item.due_ns
        item.due_ns = due_ns
        if earlier:
            self._up(item, place)
        else:
            self._down(item, place)

    def cancel(self, item: Timed) -> None:
        """Takes the item out, if it is in."""
        place = item.place
        if place == NOWHERE:
            return
        items = self.items
        assert items[place] is item
        item.place = NOWHERE
        size = self.size - 1
        self.size = size
        last = items[size]
        items[size] = NOTHING
        if SPARE_MAX < size < len(items) >> 2:
            del items[size << 1 :]
        if last is item:
            return
        items[place] = last
        last.place = place
        self._up(last, place)
        self._down(last, last.place)

    def pop_due(self, now_ns: i64) -> Timed | None:
        """The first item that is due, taken out."""
        if self.size == 0:
            return None
        first = self.items[0]
        if first.due_ns > now_ns:
            return None
        self.cancel(first)
        return first

    def _up(self, item: Timed, place: i64) -> None:
        items = self.items
        due_ns = item.due_ns
        while place > 0:
            parent_place = (place - 1) >> 1
            parent = items[parent_place]
            if parent.due_ns <= due_ns:
                break
            items[place] = parent
            parent.place = place
            place = parent_place
        items[place] = item
        item.place = place

    def _down(self, item: Timed, place: i64) -> None:
        items = self.items
        due_ns = item.due_ns
        size = self.size
        while True:
            child_place = 2 * place + 1
            if child_place >= size:
                break
            child = items[child_place]
            if child_place + 1 < size and items[child_place + 1].due_ns < child.due_ns:
                child_place += 1
                child = items[child_place]
            if child.due_ns >= due_ns:
                break
            items[place] = child
            child.place = place
            place = child_place
        items[place] = item
        item.place = place


def check_heap(heap: TimerHeap) -> None:
    """Every item knows its place, and no item is due before its parent."""
    assert all(item is NOTHING for item in heap.items[heap.size :])
    for place in range(heap.size):
        item = heap.items[place]
        assert item.place == place
        if place > 0:
            assert heap.items[(place - 1) // 2].due_ns <= item.due_ns
