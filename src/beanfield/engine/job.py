"""A job: what is stored of it, and where it stands.

There may be millions, so the fields are narrow: numbers of 32 unsigned bits are kept as signed ones, shifted by 2^31
(order stays as it is), and links to tubes and sessions are indexes. A job refers to no object that refers back, so it
needs no collector. Which heap `heap_at` is a position in follows from the state.
"""

from typing import Final

from mypy_extensions import i32, i64, mypyc_attr, u8

READY: Final = 1  # in its tube's ready heap or, held for an offer, in its tube's held heap
RESERVED: Final = 2  # in the engine's deadline heap
DELAYED: Final = 3  # in its tube's delay heap
BURIED: Final = 4  # in its tube's burial heap
GONE: Final = 5  # deleted

STATE_NAMES: Final = (b"", b"ready", b"reserved", b"delayed", b"buried", b"")

SHIFT: Final[i64] = 2_147_483_648
COUNT_MAX: Final[i32] = 2_147_483_647
NS_PER_S: Final[i64] = 1_000_000_000
NOWHERE: Final[i32] = -1


@mypyc_attr(native_class=True, acyclic=True)
class Job:
    """One job. Priority, delay and TTR are 0 .. 2^32 - 1; delay and TTR in whole seconds, times in nanoseconds."""

    def __init__(
        self, id: i64, tube: i32, created_ns: i64, priority: i64, delay_s: i64, ttr_s: i64, body: bytes
    ) -> None:
        self.id: i64 = id
        self.created_ns: i64 = created_ns  # on the server's own time line: comparable over all slots
        self.deadline_ns: i64 = 0  # RESERVED: end of the TTR; DELAYED: end of the delay; BURIED: burial number
        self.body: bytes = body
        self.priority_code: i32 = i32(priority - SHIFT)
        self.delay_code: i32 = i32(delay_s - SHIFT)
        self.ttr_code: i32 = i32(ttr_s - SHIFT)
        self.tube: i32 = tube  # index in the engine's table of tubes
        self.heap_at: i32 = NOWHERE  # position in the heap of its state
        self.holder: i32 = NOWHERE  # RESERVED: session that holds it; READY: session it is held for, or NOWHERE
        self.holder_at: i32 = NOWHERE  # RESERVED: position in that session's list
        self.reserves: i32 = 0
        self.timeouts: i32 = 0
        self.releases: i32 = 0
        self.buries: i32 = 0
        self.kicks: i32 = 0
        self.segment: i32 = 0  # number of the log segment with its full record; 0 without a log
        self.state: u8 = GONE

    def priority(self) -> i64:
        return i64(self.priority_code) + SHIFT

    def delay_s(self) -> i64:
        return i64(self.delay_code) + SHIFT

    def ttr_s(self) -> i64:
        return i64(self.ttr_code) + SHIFT

    def ttr_ns(self) -> i64:
        return (i64(self.ttr_code) + SHIFT) * NS_PER_S

    def set_priority(self, priority: i64) -> None:
        self.priority_code = i32(priority - SHIFT)

    def set_delay_s(self, delay_s: i64) -> None:
        self.delay_code = i32(delay_s - SHIFT)


def counted(count: i32) -> i32:
    """One more, stopping at the largest value that fits."""
    if count < COUNT_MAX:
        return count + 1
    return count
