"""Virtual time, the order of events, chance, and the trace: what every other part of the simulation stands on.

Everything happens in one thread, from one seed. Each part has its own generator, seeded from the main one, so that a
new draw in one part does not move the others. Nothing here, and nothing that uses it, may depend on hash(), id(), the
order of a set, or a clock: the same seed gives the same trace in every build of the cores.
"""

import heapq
from collections import deque
from collections.abc import Callable
from hashlib import blake2b
from random import Random
from typing import Final
from zlib import crc32

NS_PER_US: Final = 1_000
NS_PER_MS: Final = 1_000_000
NS_PER_S: Final = 1_000_000_000
FIRST_NS: Final = 1_000 * NS_PER_S  # the monotonic clock does not start at 0, and neither does this one
LINES_KEPT: Final = 400

Action = Callable[[], None]


class Violation(Exception):
    """A checker's complaint: the run ends and the seed is to be kept."""


class Event:
    """An action with its time; `cancelled` ones are passed over."""

    __slots__ = ("action", "at_ns", "cancelled", "number")

    def __init__(self, at_ns: int, number: int, action: Action) -> None:
        self.at_ns = at_ns
        self.number = number
        self.action = action
        self.cancelled = False

    def __lt__(self, other: "Event") -> bool:
        return (self.at_ns, self.number) < (other.at_ns, other.number)


class World:
    """One run. `steps` counts executed events."""

    def __init__(self, seed: int, echo: bool = False) -> None:
        self.seed = seed
        self.now_ns = FIRST_NS
        self.steps = 0
        self.trace_lines = 0
        self.last_lines: deque[str] = deque(maxlen=LINES_KEPT)
        self._main = Random(seed)
        self._events: list[Event] = []
        self._number = 0
        self._hash = blake2b(digest_size=16)
        self._echo = echo

    def random(self, name: str) -> Random:
        """A generator for one part. Parts ask in a fixed order; the name only tells apart those of one seed."""
        return Random(self._main.getrandbits(64) ^ crc32(name.encode()))

    def side_random(self, name: str) -> Random:
        """Likewise, for a part that came later: those that ask `random` draw as if it were not there."""
        return Random((self.seed << 32) ^ crc32(name.encode()))

    def at(self, at_ns: int, action: Action) -> Event:
        self._number += 1
        event = Event(max(at_ns, self.now_ns), self._number, action)
        heapq.heappush(self._events, event)
        return event

    def after(self, delay_ns: int, action: Action) -> Event:
        assert delay_ns >= 0
        return self.at(self.now_ns + delay_ns, action)

    def step(self) -> bool:
        """Run the next event. False when there is none."""
        while self._events:
            event = heapq.heappop(self._events)
            if event.cancelled:
                continue
            assert event.at_ns >= self.now_ns
            self.now_ns = event.at_ns
            self.steps += 1
            event.action()
            return True
        return False

    def run_until(self, until_ns: int) -> None:
        """Run everything that is due by then, then let the time be then."""
        while self._events and self._events[0].at_ns <= until_ns:
            self.step()
        self.now_ns = max(self.now_ns, until_ns)

    def trace(self, who: str, what: str, data: bytes = b"") -> None:
        """One canonical line. Of data, its length and checksum count; the beginning is shown when it is text."""
        line = f"{self.now_ns} {who} {what}"
        if data:
            shown = data[:60].decode("ascii", "backslashreplace").encode("unicode_escape").decode()
            line += f" {len(data)}:{crc32(data):08x} {shown}"
        self.trace_lines += 1
        self._hash.update(line.encode())
        self._hash.update(b"\n")
        self.last_lines.append(line)
        if self._echo:
            print(line)

    def trace_hash(self) -> str:
        return self._hash.hexdigest()
