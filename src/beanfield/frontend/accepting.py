"""When a frontend accepts a connection: evenly over frontends, never stuck behind one that does not.

All frontends watch the same listeners. One that sees a connection waiting takes it when no other that accepts has
fewer connections; otherwise it declines, and leaves the listeners out of its poll set for a moment so that it does not
spin. When a connection has waited through ACCEPT_ANYWAY_NS of declining, it is taken all the same: the frontend that
should have may be busy or stopped. Out of descriptors, the listeners stay out of the poll set longer.

Pure: the loop tells it what it sees and asks. It knows no sockets.
"""

from mypy_extensions import i64

from beanfield.constants import ACCEPT_ANYWAY_NS, ACCEPT_DECLINE_NS, ACCEPT_EXHAUSTED_NS


class AcceptPolicy:
    """One frontend's view of its listeners."""

    def __init__(self) -> None:
        self.away_until_ns: i64 = 0  # the listeners stay out of the poll set until then
        self.exhausted = False  # the last attempt found no room
        self._declined_since_ns: i64 = -1

    def takes(self, own: i64, elsewhere_min: i64, now_ns: i64) -> bool:
        """A connection waits: whether to accept it. `elsewhere_min` is the smallest count of the other frontends."""
        assert own >= 0
        overdue = self._declined_since_ns >= 0 and now_ns - self._declined_since_ns >= ACCEPT_ANYWAY_NS
        if own <= elsewhere_min or overdue:
            self._declined_since_ns = -1
            return True
        if self._declined_since_ns < 0:
            self._declined_since_ns = now_ns
        self.away_until_ns = now_ns + ACCEPT_DECLINE_NS
        return False

    def nothing_waits(self) -> None:
        """The listeners were watched, and nobody waited: whoever was declined has been served elsewhere."""
        self._declined_since_ns = -1

    def accepted(self) -> None:
        """An attempt succeeded."""
        self.exhausted = False

    def no_room(self, now_ns: i64) -> None:
        """An attempt failed for want of descriptors or memory."""
        self.exhausted = True
        self.away_until_ns = now_ns + ACCEPT_EXHAUSTED_NS
