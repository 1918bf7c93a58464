"""SYNC: before some answers, the other links are asked once to tell of clients that are gone.

A client that closed its connection on one frontend must be seen by a command that follows it on another. The owner
asks the other links to poll their sockets; what they found comes before their SYNCED on the same link. One SYNC per
link under way serves all who came before it was sent. A link that does not answer within SYNC_NS is answered without,
and not asked again until it has answered. Knows links and seats; what is answered is the core's business.
"""

from typing import Final

from mypy_extensions import i64, mypyc_attr

from beanfield.constants import NEVER_NS, SYNC_NS
from beanfield.owner.link import OwnerLink
from beanfield.owner.seat import Deferred, Seat

PATIENCE: Final[i64] = SYNC_NS
NEVER: Final[i64] = NEVER_NS


@mypyc_attr(native_class=True)
class SyncWait:
    """One command, or last word, that waits for some links."""

    def __init__(self, link: OwnerLink, seat: Seat, deferred: Deferred | None, until_ns: i64) -> None:
        self.link: OwnerLink = link
        self.seat: Seat = seat
        self.deferred: Deferred | None = deferred  # None: a last word ...
        self.request: i64 = seat.request  # ... of this request
        self.until_ns: i64 = until_ns
        self.links: list[OwnerLink] = []
        self.numbers: list[int] = []  # the SYNC of links[i] that serves this wait

    def over(self) -> bool:
        for position in range(len(self.links)):
            link = self.links[position]
            number: i64 = self.numbers[position]
            if link.welcome and not link.sync_missed and link.sync_done < number:
                return False
        return True


@mypyc_attr(native_class=True)
class SyncDesk:
    """All waits of one owner, in order of their ends."""

    def __init__(self) -> None:
        self.waits: list[SyncWait] = []

    def needed(self, link: OwnerLink, links: dict[int, OwnerLink]) -> bool:
        """True if there is another link that can be asked."""
        if len(links) < 2:
            return False
        for other in links.values():
            if other is not link and other.welcome and not other.sync_missed:
                return True
        return False

    def begin(
        self, link: OwnerLink, seat: Seat, deferred: Deferred | None, links: dict[int, OwnerLink], now_ns: i64
    ) -> None:
        """Asks; `needed` was true."""
        wait = SyncWait(link, seat, deferred, now_ns + PATIENCE)
        for other in links.values():
            if other is link or not other.welcome or other.sync_missed:
                continue
            if other.sync_sent > other.sync_done:
                other.sync_again = True
                number = other.sync_sent + 1
            else:
                number = self._ask(other)
            wait.links.append(other)
            wait.numbers.append(number)
        self.waits.append(wait)

    def _ask(self, link: OwnerLink) -> i64:
        link.sync_sent += 1
        link.sync_again = False
        link.sync(link.sync_sent)
        return link.sync_sent

    def answered(self, link: OwnerLink, number: i64) -> bool:
        """SYNCED. False if it answers nothing that was asked."""
        if number != link.sync_sent or number == link.sync_done:
            return False
        link.sync_done = number
        link.sync_missed = False
        if link.sync_again:
            self._ask(link)
        return True

    def forget(self, seat: Seat) -> None:
        """Its session is gone."""
        self.waits = [each for each in self.waits if each.seat is not seat]

    def take_over(self, now_ns: i64) -> list[SyncWait]:
        """The waits that are through, or have waited long enough; their links are marked then."""
        if len(self.waits) == 0:
            return []
        for wait in self.waits:
            if wait.until_ns <= now_ns:
                for position in range(len(wait.links)):
                    link = wait.links[position]
                    number: i64 = wait.numbers[position]
                    if link.welcome and link.sync_done < number:
                        link.sync_missed = True
        through: list[SyncWait] = []
        left: list[SyncWait] = []
        for wait in self.waits:
            if wait.until_ns <= now_ns or wait.over():
                through.append(wait)
            else:
                left.append(wait)
        self.waits = left
        return through

    def due_ns(self) -> i64:
        if len(self.waits) == 0:
            return NEVER
        return self.waits[0].until_ns
