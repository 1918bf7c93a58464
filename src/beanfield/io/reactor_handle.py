"""What the pure reactor keeps of each watched descriptor, and what it wants of a poller. Data only."""

import socket
from typing import Protocol


class Poller(Protocol):
    """The part of select.epoll that is used here."""

    def register(self, fd: int, eventmask: int) -> None: ...
    def modify(self, fd: int, eventmask: int) -> None: ...
    def unregister(self, fd: int) -> None: ...
    def poll(self, timeout: float, maxevents: int) -> list[tuple[int, int]]: ...
    def close(self) -> None: ...


class Handle:
    """One watched descriptor. `failing` is decided, `failed` has been told; likewise `at_end` and `ended`."""

    __slots__ = (
        "number", "fd", "sock", "kind", "mask", "watched", "received", "open", "paused", "closing", "at_end", "ended",
        "failing", "failed", "hung", "put_off", "attended", "noted", "pieces", "offset", "unsent",
    )  # fmt: skip

    def __init__(self, number: int, fd: int, sock: socket.socket | None, kind: int) -> None:
        self.number = number
        self.fd = fd
        self.sock = sock  # None for RAW
        self.kind = kind
        self.mask = 0
        self.watched = False
        self.received = 0  # the turn of the last receive
        self.open = True
        self.paused = False
        self.closing = False  # the core is done with it; only the rest is still sent
        self.at_end = False  # nothing more will be read
        self.ended = False
        self.failing = False  # nothing more will be sent
        self.failed = False
        self.hung = False  # epoll reports HUP or ERR for ever
        self.put_off = False  # in the queue of those whose receive did not fit into the turn
        self.attended = False  # in the queue of those that need a word at the next poll
        self.noted = False  # ... because flush() left something unsent
        self.pieces: list[bytes] = []
        self.offset = 0  # bytes of the first piece that are out
        self.unsent = 0

    def gone(self) -> bool:
        """The core must hear nothing more of it."""
        return not self.open or self.closing
