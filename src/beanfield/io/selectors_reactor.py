"""The reactor for systems without epoll: the pure one, over whatever `selectors` finds best.

What is lost: `selectors` cannot tell that a peer has left without reading to its end. A paused client's end is seen
after resume(), and a broken connection when it is read or written.
"""

import selectors

from beanfield.constants import NEVER_NS, NS_PER_S
from beanfield.io import reactor
from beanfield.io.reactor import CLIENT, LINK, RAW, READABLE, TIMEOUT_MS_MAX, WRITABLE
from beanfield.io.reactor_handle import Poller

__all__ = ["CLIENT", "LINK", "RAW", "Reactor"]


class SelectorPoller:
    """Looks like select.epoll to the reactor. A mask without READABLE and WRITABLE is not watched at all."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        self._watched: set[int] = set()

    def register(self, fd: int, eventmask: int) -> None:
        self.modify(fd, eventmask)

    def modify(self, fd: int, eventmask: int) -> None:
        events = 0
        if eventmask & READABLE:
            events |= selectors.EVENT_READ
        if eventmask & WRITABLE:
            events |= selectors.EVENT_WRITE
        if events == 0:
            self.unregister(fd)
        elif fd in self._watched:
            self._selector.modify(fd, events)
        else:
            self._selector.register(fd, events)
            self._watched.add(fd)

    def unregister(self, fd: int) -> None:
        if fd in self._watched:
            self._watched.discard(fd)
            self._selector.unregister(fd)

    def poll(self, timeout: float, maxevents: int) -> list[tuple[int, int]]:
        """All that is ready, also beyond maxevents: a selector does not rotate, so a cut would starve the last ones."""
        found: list[tuple[int, int]] = []
        for key, events in self._selector.select(None if timeout < 0 else timeout):
            mask = 0
            if events & selectors.EVENT_READ:
                mask |= READABLE
            if events & selectors.EVENT_WRITE:
                mask |= WRITABLE
            found.append((key.fd, mask))
        return found

    def close(self) -> None:
        self._selector.close()


class Reactor(reactor.Reactor):
    """The same class as everywhere, see beanfield.io.reactor."""

    def _new_poller(self) -> Poller:
        return SelectorPoller(selectors.DefaultSelector())

    def _timeout_s(self, timeout_ns: int) -> float:
        if timeout_ns >= NEVER_NS:
            return -1
        return min(max(timeout_ns, 0) / NS_PER_S, TIMEOUT_MS_MAX // 1_000)
