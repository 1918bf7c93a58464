"""A short queue of numbers that keeps its room when it is empty.

A list that is empty, has one item and is empty again asks for memory and returns it each time: with one command at a
time that is each time. Knows nothing of what the numbers mean.
"""

from mypy_extensions import i64, mypyc_attr


@mypyc_attr(native_class=True)
class Numbers:
    """First in, first out. Its users bound it; its room is never more than about twice the longest it has been."""

    def __init__(self) -> None:
        self.count: i64 = 0
        self._first: i64 = 0
        self._slots: list[int] = []  # those of the queue are from _first on, count of them; the others mean nothing

    def at(self, index: i64) -> i64:
        """0 <= index < count"""
        assert 0 <= index < self.count
        number: i64 = self._slots[self._first + index]
        return number

    def push(self, number: i64) -> None:
        end = self._first + self.count
        if end == len(self._slots):
            self._slots.append(number)
        else:
            self._slots[end] = number
        self.count += 1

    def fill(self, count: i64) -> None:
        """Zeros behind it, until it has so many."""
        while self.count < count:
            self.push(0)

    def drop(self, count: i64) -> None:
        """The first so many, or all when there are fewer."""
        if count >= self.count:
            self.count = 0
            self._first = 0
            return
        self.count -= count
        self._first += count
        if self._first > self.count:
            # No more than twice what it needs, however long it is never empty.
            del self._slots[: self._first]
            self._first = 0
