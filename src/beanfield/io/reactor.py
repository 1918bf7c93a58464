"""The event loop's lower half in plain Python: sockets in, `bytes` to a core, outboxes out.

This is the twin of `_reactor.pyx`: the same class with the same behaviour, over `select.epoll`. One suite runs against
both. It is what serves where no C compiler was at hand, and the readable form of the rules:

1. Level-triggered. One receive per handle and turn, so a busy peer cannot starve the others; what a turn may receive in
   all is limited, and those who were put off come first in the next turn.
2. Peers that leave (RDHUP, HUP, ERR) are handled before the others of the same batch: what they held is free before
   anybody else asks for it.
3. Bytes before the end, always, while reading is on. While paused, the end of the peer is told at once and the bytes
   follow after resume(). For links nothing follows the end.
4. Nothing that epoll goes on reporting is left in the poll set: RDHUP leaves the mask once told, EPOLLIN once the end
   was read, and a handle with HUP or ERR (these cannot be masked) leaves the set unless there are bytes to read.
5. flush() calls nobody. What it left unsent, and sends that failed, are told at the start of the next poll(), which
   then does not wait.
6. A core may call any method but poll() from inside a callback. An exception out of a callback leaves poll() at once;
   what was not handled yet is still ready, and is reported by the next poll().
7. A core with `clients_received` is given what clients have sent in lists, as many as there are before it must be told
   anything else (its code and the kernel's then do not push each other out of the caches); one without is given each
   by `client_received`. What is in a list has been received: the core is given it whatever it does to these handles
   meanwhile, and an exception out of `clients_received` loses the rest of its list.

This module knows sockets, and nothing of what the bytes mean.
"""

import select
import socket
import time
from collections import deque
from typing import Any, Final

from beanfield.constants import (
    CLIENT_RECEIVE_BYTES,
    EVENTS_PER_TURN_MAX,
    LINK_RECEIVE_BYTES,
    NEVER_NS,
    NS_PER_MS,
    TURN_RECEIVE_BYTES_MAX,
)
from beanfield.io.reactor_handle import Handle, Poller

CLIENT: Final = 0
LINK: Final = 1
RAW: Final = 2

# The numbers of Linux, spelled out so that this module loads where select has no epoll.
READABLE: Final = 0x001
WRITABLE: Final = 0x004
BROKEN: Final = 0x008 | 0x010  # ERR and HUP: always reported, whatever the mask says
PEER_ENDED: Final = 0x2000  # RDHUP

IOVECS_MAX: Final = 1_024  # pieces in one sendmsg; IOV_MAX of Linux
TIMEOUT_MS_MAX: Final = 0x7FFF_FFFF  # epoll_wait takes no more; a wait may end before such a deadline, for nothing
SEND_FLAGS: Final = getattr(socket, "MSG_NOSIGNAL", 0)

NOTHING: Final = 0  # what a send attempt came to
SENT_SOME: Final = 1
SEND_FAILED: Final = 2


class Reactor:
    """See the module's text. Handles are small numbers that are used again after close() or remove()."""

    def __init__(
        self, turn_receive_bytes_max: int = TURN_RECEIVE_BYTES_MAX, events_max: int = EVENTS_PER_TURN_MAX
    ) -> None:
        assert turn_receive_bytes_max > 0
        assert events_max > 0
        self.full = False
        self.closing_count = 0
        self._turn_receive_bytes_max = turn_receive_bytes_max
        self._events_max = events_max
        self._poller = self._new_poller()
        self._handles: list[Handle | None] = []
        self._free: list[int] = []
        self._by_fd: dict[int, Handle] = {}
        self._attention: deque[Handle] = deque()
        self._later: deque[Handle] = deque()
        self._turn = 1
        self._budget = 0
        self._polling = False
        self._batch_handles: list[int] = []
        self._batch_pieces: list[bytes] = []

    def _new_poller(self) -> Poller:
        return select.epoll(flags=select.EPOLL_CLOEXEC)

    # ------------------------------------------------------------ handles

    def add(self, fd: int, kind: int) -> int:
        """Watch fd for reading. A client's or link's descriptor is the reactor's from here on (not if this raises)."""
        assert kind in (CLIENT, LINK, RAW)
        if fd in self._by_fd:
            raise FileExistsError(f"descriptor {fd} is watched already")
        sock = None
        if kind != RAW:
            sock = socket.socket(fileno=fd)
            sock.setblocking(False)
        number = self._free.pop() if self._free else len(self._handles)
        entry = Handle(number, fd, sock, kind)
        try:
            self._watch(entry)
        except OSError:
            if sock is not None:
                sock.detach()
            if number < len(self._handles):
                self._free.append(number)
            raise
        if number == len(self._handles):
            self._handles.append(entry)
        else:
            self._handles[number] = entry
        self._by_fd[fd] = entry
        return number

    def remove(self, handle: int) -> None:
        """A RAW descriptor is no longer watched; it stays the caller's."""
        entry = self._open_handle(handle)
        if entry.kind != RAW:
            raise ValueError(f"handle {handle} is closed, not removed")
        self._forget(entry)

    def close(self, handle: int) -> None:
        """No more events for this client or link. What a client has not been sent yet is still sent, if it takes it."""
        entry = self._open_handle(handle)
        if entry.kind == RAW:
            raise ValueError(f"handle {handle} is removed, not closed")
        if entry.unsent == 0 or entry.kind == LINK:
            self._forget(entry)
            return
        assert not entry.failing
        entry.closing = True
        self.closing_count += 1
        self._watch(entry)

    def pause(self, handle: int) -> None:
        """Stop reading. Of a handle that is closed already: no effect, a core may have decided both in one turn."""
        self._set_paused(handle, True)

    def resume(self, handle: int) -> None:
        self._set_paused(handle, False)

    def unsent(self, handle: int) -> int:
        entry = self._entry(handle)
        return 0 if entry is None else entry.unsent

    def in_use(self) -> int:
        """Handles not free for reuse, those that are closing included."""
        return len(self._handles) - len(self._free)

    def now_ns(self) -> int:
        return time.monotonic_ns()

    def shut_down(self) -> None:
        """Close every client and link at once, and the poll set. The reactor is of no use afterwards."""
        for entry in self._handles:
            if entry is not None:
                self._forget(entry)
        self._poller.close()

    def _entry(self, handle: int) -> Handle | None:
        if not 0 <= handle < len(self._handles):
            raise ValueError(f"handle {handle} never existed")
        return self._handles[handle]

    def _open_handle(self, handle: int) -> Handle:
        entry = self._entry(handle)
        if entry is None or entry.closing:
            raise ValueError(f"handle {handle} is not open")
        return entry

    def _set_paused(self, handle: int, paused: bool) -> None:
        entry = self._entry(handle)
        if entry is None or entry.closing:
            return
        entry.paused = paused
        self._watch(entry)

    def _forget(self, entry: Handle) -> None:
        assert entry.open
        # Unregistered by hand: close() alone leaves the registration alive while another process has the socket too.
        if entry.watched:
            self._poller.unregister(entry.fd)
            entry.watched = False
        if entry.closing:
            self.closing_count -= 1
        if entry.sock is not None:
            entry.sock.close()
        entry.open = False
        entry.unsent = 0
        entry.pieces = []
        del self._by_fd[entry.fd]
        self._handles[entry.number] = None
        self._free.append(entry.number)

    def _watch(self, entry: Handle) -> None:
        """Bring the poll set in line with what is wanted of this handle."""
        mask = 0
        if entry.closing:
            mask = WRITABLE
        else:
            if not entry.paused and not entry.at_end:
                mask = READABLE
            if not entry.ended and entry.kind != RAW:
                mask |= PEER_ENDED
            if entry.unsent > 0:
                mask |= WRITABLE
        if entry.hung and not mask & READABLE:
            if entry.watched:
                self._poller.unregister(entry.fd)
                entry.watched = False
        elif not entry.watched:
            self._poller.register(entry.fd, mask)
            entry.watched = True
        elif mask != entry.mask:
            self._poller.modify(entry.fd, mask)
        entry.mask = mask

    # ------------------------------------------------------------ sending

    def flush(self, outbox: list[Any]) -> None:
        """Send [handle, bytes, handle, bytes, ...] with one call per handle; calls no core (rule 5)."""
        if len(outbox) % 2 != 0:
            raise ValueError("an outbox holds handles and bytes in turn")
        touched: dict[Handle, list[bytes]] = {}
        for i in range(0, len(outbox), 2):
            data = outbox[i + 1]
            if not isinstance(data, bytes):
                raise TypeError("an outbox holds handles and bytes in turn")
            entry = self._entry(outbox[i])
            if entry is not None and data:
                touched.setdefault(entry, []).append(data)
        for entry, pieces in touched.items():
            if entry.kind == RAW or entry.closing or entry.failing:
                continue
            waiting = entry.unsent > 0
            entry.pieces.extend(pieces)
            entry.unsent += sum(map(len, pieces))
            # With an older rest the socket is full; EPOLLOUT will tell when to go on.
            if not waiting and self._send(entry) == SEND_FAILED:
                continue
            if entry.unsent > 0:
                entry.noted = True
                self._attend_to(entry)
                self._watch(entry)

    def _send(self, entry: Handle) -> int:
        """Send until all is out or the socket is full. A failure drops the rest and is told at the next poll."""
        assert entry.sock is not None
        result = NOTHING
        while entry.unsent > 0:
            vector: list[bytes | memoryview] = list(entry.pieces[:IOVECS_MAX])
            wanted = sum(map(len, vector))
            if entry.offset > 0:
                vector[0] = memoryview(entry.pieces[0])[entry.offset :]
                wanted -= entry.offset
            try:
                sent = entry.sock.sendmsg(vector, (), SEND_FLAGS)
            except BlockingIOError:
                return result
            except OSError:
                self._fail(entry)
                return SEND_FAILED
            result = SENT_SOME
            self._drop_sent(entry, sent)
            if sent < wanted:
                return result
        return result

    def _drop_sent(self, entry: Handle, sent: int) -> None:
        assert sent <= entry.unsent
        entry.unsent -= sent
        sent += entry.offset
        whole = 0
        while whole < len(entry.pieces) and sent >= len(entry.pieces[whole]):
            sent -= len(entry.pieces[whole])
            whole += 1
        del entry.pieces[:whole]
        entry.offset = sent
        assert (entry.unsent == 0) == (not entry.pieces)

    def _fail(self, entry: Handle) -> None:
        """Nothing can be sent any more. The core hears of it in the next poll, after what can still be read."""
        entry.failing = True
        entry.unsent = 0
        entry.offset = 0
        entry.pieces = []
        if not entry.closing:
            self._attend_to(entry)
            self._watch(entry)

    def _attend_to(self, entry: Handle) -> None:
        if not entry.attended:
            entry.attended = True
            self._attention.append(entry)

    # ------------------------------------------------------------ polling

    def poll(self, core: Any, timeout_ns: int) -> list[int]:
        """One round: wait, receive, call the core. Returns the RAW handles that are readable."""
        if self._polling:
            raise RuntimeError("poll() is not reentrant")
        self._polling = True
        self.full = True  # until known better: an exception leaves work behind
        self._turn += 1
        self._budget = self._turn_receive_bytes_max
        try:
            return self._poll(core, timeout_ns)
        finally:
            self._polling = False

    def _poll(self, core: Any, timeout_ns: int) -> list[int]:
        self._deliver(core)  # nothing, unless an exception ended the last poll
        if self._attention:
            timeout_ns = 0
            self._attend(core)
        if self._later:
            timeout_ns = 0
        ready: list[int] = []
        others: list[tuple[Handle, int]] = []
        events = self._poller.poll(self._timeout_s(timeout_ns), self._events_max)
        leaving: list[tuple[Handle, int]] = []
        for fd, mask in events:
            entry = self._by_fd[fd]
            if entry.kind == RAW:
                if not entry.paused:
                    ready.append(entry.number)
                elif mask & BROKEN:
                    entry.hung = True
                    self._watch(entry)
            elif mask & (PEER_ENDED | BROKEN):
                leaving.append((entry, mask))
            else:
                others.append((entry, mask))
        for entry, mask in leaving:
            self._handle(core, entry, mask)
        for _ in range(len(self._later)):
            entry = self._later.popleft()
            entry.put_off = False
            if entry.open and not entry.closing and not entry.paused and not entry.at_end:
                self._receive(core, entry, 0)
        for entry, mask in others:
            self._handle(core, entry, mask)
        self._deliver(core)
        self.full = len(events) >= self._events_max or bool(self._later) or bool(self._attention)
        return ready

    def _timeout_s(self, timeout_ns: int) -> float:
        """For select.epoll, which rounds seconds up to whole ms: half a ms less keeps float dust from adding one."""
        if timeout_ns >= NEVER_NS:
            return -1
        if timeout_ns <= 0:
            return 0
        return (min(-(-timeout_ns // NS_PER_MS), TIMEOUT_MS_MAX) - 0.5) / 1_000

    def _attend(self, core: Any) -> None:
        """Tell what flush() left unsent, and failures of sends (after the bytes that were there before)."""
        for _ in range(len(self._attention)):
            entry = self._attention.popleft()
            entry.attended = False
            if not entry.open or entry.closing:
                continue
            if entry.failing:
                if not entry.failed:
                    self._attend_to(entry)
                    self._handle(core, entry, BROKEN)
            elif entry.noted:
                entry.noted = False
                if entry.unsent > 0:
                    self._tell_unsent(core, entry)

    def _handle(self, core: Any, entry: Handle, events: int) -> None:
        if not entry.open:
            return  # closed by a callback earlier in this batch
        if entry.closing:
            if events & BROKEN or self._send(entry) == SEND_FAILED or entry.unsent == 0:
                self._forget(entry)
            return
        if entry.paused or entry.at_end:
            if events & BROKEN:
                entry.hung = True
                self._tell_failed(core, entry)
            elif events & PEER_ENDED:
                self._tell_ended(core, entry)
        elif events & (READABLE | PEER_ENDED | BROKEN):
            self._receive(core, entry, events)
        if events & WRITABLE and entry.open and not entry.closing and entry.unsent > 0:
            if self._send(entry) == SENT_SOME:
                self._watch(entry)
                self._tell_unsent(core, entry)

    def _receive(self, core: Any, entry: Handle, events: int) -> None:
        assert entry.sock is not None
        if entry.received == self._turn:
            return
        if entry.kind == LINK:
            self._deliver(core)
            if entry.gone() or entry.paused:
                return
        if self._budget <= 0:
            if not entry.put_off:
                entry.put_off = True
                self._later.append(entry)
            return
        entry.received = self._turn
        broken = entry.failing or events & BROKEN != 0
        try:
            data = entry.sock.recv(CLIENT_RECEIVE_BYTES if entry.kind == CLIENT else LINK_RECEIVE_BYTES)
        except BlockingIOError:
            if not broken:
                self._discard_urgent(entry)
                return
            data = b""
        except OSError:
            broken = True
            data = b""
        if data:
            self._budget -= len(data)
            if entry.kind == LINK:
                core.link_received(entry.number, data, time.monotonic_ns())
            elif hasattr(core, "clients_received"):
                self._batch_handles.append(entry.number)
                self._batch_pieces.append(data)
            else:
                core.client_received(entry.number, data, time.monotonic_ns())
            return
        entry.at_end = True
        if broken:
            entry.hung = True
            self._tell_failed(core, entry)
        else:
            self._tell_ended(core, entry)

    def _discard_urgent(self, entry: Handle) -> None:
        """Readable, and nothing to read: an urgent byte (MSG_OOB) may stand in the way. Nobody here wants it."""
        assert entry.sock is not None
        try:
            entry.sock.recv(1, socket.MSG_OOB)
        except OSError:
            pass

    # ------------------------------------------------------------ words to the core

    def _deliver(self, core: Any) -> None:
        """What clients have sent, before anything else that the core is told."""
        handles, pieces = self._batch_handles, self._batch_pieces
        if handles:
            self._batch_handles, self._batch_pieces = [], []
            core.clients_received(handles, pieces, time.monotonic_ns())

    def _tell_ended(self, core: Any, entry: Handle) -> None:
        self._deliver(core)
        if entry.gone():
            return
        if entry.kind == LINK:
            self._tell_failed(core, entry)  # a link with one end is no link
            return
        told = entry.ended
        entry.ended = True
        self._watch(entry)
        if not told:
            core.client_ended(entry.number, time.monotonic_ns())

    def _tell_failed(self, core: Any, entry: Handle) -> None:
        self._deliver(core)
        if entry.gone():
            return
        if not entry.failing:
            self._fail(entry)
        told = entry.failed if entry.kind == LINK else entry.ended
        if entry.kind == LINK:
            entry.hung = entry.at_end = entry.ended = entry.failed = True
            self._watch(entry)
            if not told:
                core.link_ended(entry.number, time.monotonic_ns())
            return
        entry.ended = True
        self._watch(entry)
        if not told:
            core.client_ended(entry.number, time.monotonic_ns())
            if entry.gone():
                return
        if not entry.failed:
            entry.failed = True
            core.client_failed(entry.number, time.monotonic_ns())

    def _tell_unsent(self, core: Any, entry: Handle) -> None:
        self._deliver(core)
        if entry.gone():
            return
        tell = core.client_unsent if entry.kind == CLIENT else core.link_unsent
        tell(entry.number, entry.unsent, time.monotonic_ns())
