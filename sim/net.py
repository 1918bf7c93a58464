"""Byte streams between simulated processes and clients, and the simulated reactor that hands them to a core.

A stream may cut and join what was written in any way, delay it, take only so much (a clogged reader), end, or be reset
at any byte; it never loses or reorders bytes. `SimReactor` calls a core as io/reactor.py does; one difference in what
either promises is a bug of this file.
"""

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any, Final, Protocol

from beanfield.constants import CLIENT_RECEIVE_BYTES, LINK_RECEIVE_BYTES
from sim.world import NS_PER_US, World

CLIENT: Final = 0
LINK: Final = 1
FRAME_LENGTH_BYTES: Final = 4  # a frame begins with its length, 32 bits little-endian


class Nature:
    """How a stream behaves: delays of pieces, how finely it cuts, how much it holds."""

    def __init__(self, delay_ns: int, jitter_ns: int, cut: float, capacity: int) -> None:
        self.delay_ns = delay_ns
        self.jitter_ns = jitter_ns
        self.cut = cut  # chance that a write is cut once more
        self.capacity = capacity


class Waker(Protocol):
    """Whoever owns an end."""

    def wake(self) -> None: ...


class End:
    """One end of a stream. `incoming` has arrived and is not read; `flying` counts what the peer wrote, unread."""

    def __init__(self, world: World, random: Random, nature: Nature, name: str) -> None:
        self.world = world
        self.random = random
        self.nature = nature
        self.name = name
        self.peer: End = self
        self.waker: Waker | None = None
        self.incoming = bytearray()
        self.flying = 0
        self.at_eof = False  # the peer's end of data has arrived (behind `incoming`)
        self.was_reset = False
        self.write_closed = False
        self.read_closed = False
        self.wants_space = False
        self._last_arrival_ns = 0

    # ---------------------------------------------------------------- writing
    def space(self) -> int:
        return max(self.nature.capacity - self.peer.flying, 0)

    def send(self, data: bytes) -> int:
        """Bytes taken. The rest: `wants_space`, and a wake-up when there is some."""
        assert not self.write_closed
        if self.was_reset:
            return len(data)
        taken = min(len(data), self.space())
        self.wants_space = taken < len(data)
        at = 0
        while at < taken:
            piece = taken - at
            while piece > 1 and self.random.random() < self.nature.cut:
                piece = self.random.randrange(1, piece)
            self._fly(data[at : at + piece])
            at += piece
        return taken

    def _fly(self, piece: bytes) -> None:
        peer = self.peer
        peer.flying += len(piece)
        self.world.at(self._arrival_ns(), lambda: peer._arrive(piece))

    def _arrival_ns(self) -> int:
        delay_ns = self.nature.delay_ns + self.random.randrange(self.nature.jitter_ns + 1)
        self._last_arrival_ns = max(self._last_arrival_ns, self.world.now_ns + delay_ns)
        return self._last_arrival_ns

    def end_writing(self) -> None:
        """Half-close: everything written still arrives, then the end."""
        if self.write_closed:
            return
        self.write_closed = True
        peer = self.peer
        self.world.at(self._arrival_ns(), peer._arrive_eof)

    def close(self) -> None:
        """Full close. Unread input, or input that still comes, makes it a reset, as in TCP."""
        self.read_closed = True
        if self.incoming and not self.was_reset:
            self.reset()
            return
        self.end_writing()

    def reset(self) -> None:
        """The peer loses what is still on its way."""
        self.read_closed = True
        if self.was_reset:
            return
        self.write_closed = True
        self.was_reset = True
        peer = self.peer
        self.world.at(self.world.now_ns + self.nature.delay_ns, peer._arrive_reset)

    # ---------------------------------------------------------------- arriving
    def _arrive(self, piece: bytes) -> None:
        if self.was_reset:
            return
        if self.read_closed:
            # Data for a closed socket: the sender is told by a reset.
            self.flying -= len(piece)
            self.write_closed = True
            self.was_reset = True
            peer = self.peer
            self.world.at(self.world.now_ns + self.nature.delay_ns, peer._arrive_reset)
            return
        self.incoming += piece
        self._wake()

    def _arrive_eof(self) -> None:
        if not self.was_reset and not self.read_closed:
            self.at_eof = True
            self._wake()

    def _arrive_reset(self) -> None:
        if self.was_reset:
            return
        self.was_reset = True
        if self.random.random() < 0.5:
            self.incoming.clear()
        self._wake()

    def _wake(self) -> None:
        if self.waker is not None:
            self.waker.wake()

    # ---------------------------------------------------------------- reading
    def receive(self, size: int) -> bytes:
        data = bytes(self.incoming[:size])
        del self.incoming[: len(data)]
        self.flying -= len(data)
        peer = self.peer
        if data and peer.wants_space and not peer.was_reset:
            peer.wants_space = False
            self.world.after(self.nature.delay_ns, peer._wake)
        return data


def stream_pair(world: World, random: Random, nature: Nature, near: str, far: str) -> tuple[End, End]:
    a = End(world, random, nature, near)
    b = End(world, random, nature, far)
    a.peer = b
    b.peer = a
    return a, b


class _Handle:
    def __init__(self, number: int, end: End, kind: int) -> None:
        self.number = number
        self.end = end
        self.kind = kind
        self.paused = False
        self.closing = False
        self.ended = False
        self.failed = False
        self.noted = False
        self.unsent: deque[bytes] = deque()
        self.unsent_bytes = 0
        self.frame_left = 0  # bytes of the present frame still to come; 0: between frames
        self.frame_head = b""  # the first bytes of its length


class SimReactor:
    """The interface of io/reactor.py over simulated streams; `add` takes an End instead of a descriptor."""

    def __init__(self, world: World, random: Random, owner: Waker) -> None:
        self.world = world
        self.random = random
        self.owner = owner
        self.handles: list[_Handle | None] = []
        self.full = False  # the last poll stopped early
        self.stops_early = 0.0  # chance of that
        self.batch_handles: list[int] = []  # what clients have sent in this poll, and the core has not been told
        self.batch_pieces: list[bytes] = []
        self.unsent_bytes_max = [0, 0]  # by kind: the most that ever stood unsent
        # If set, link data is handed over in pieces that end with a frame (or earlier), with a call after each.
        self.after_frame: Callable[[], None] | None = None

    def add(self, end: End, kind: int) -> int:
        number = self.handles.index(None) if None in self.handles else len(self.handles)
        if number == len(self.handles):
            self.handles.append(None)
        self.handles[number] = _Handle(number, end, kind)
        end.waker = self.owner
        if end.incoming or end.at_eof or end.was_reset:
            self.owner.wake()
        return number

    def close(self, handle: int) -> None:
        entry = self.handles[handle]
        assert entry is not None and not entry.closing, f"handle {handle} is not open"
        if entry.unsent_bytes > 0 and entry.kind == CLIENT and not entry.end.was_reset:
            entry.closing = True
            return
        entry.end.close()
        self.handles[handle] = None

    def pause(self, handle: int) -> None:
        entry = self.handles[handle]
        if entry is not None and not entry.closing:
            entry.paused = True

    def resume(self, handle: int) -> None:
        entry = self.handles[handle]
        if entry is not None and not entry.closing:
            entry.paused = False
            self.owner.wake()

    def flush(self, outbox: list[Any]) -> None:
        touched: list[_Handle] = []
        for i in range(0, len(outbox), 2):
            handle, data = outbox[i], outbox[i + 1]
            assert type(data) is bytes
            entry = self.handles[handle]
            if entry is None or entry.closing or entry.end.was_reset or not data:
                continue
            waits = entry.unsent_bytes > 0
            entry.unsent.append(data)
            entry.unsent_bytes += len(data)
            self.unsent_bytes_max[entry.kind] = max(self.unsent_bytes_max[entry.kind], entry.unsent_bytes)
            # Behind an older rest it waits, as in the real one: the poll goes on with it, and says so.
            if entry not in touched and not waits:
                touched.append(entry)
        for entry in touched:
            self._send(entry)
            if entry.unsent_bytes > 0:
                entry.noted = True
                self.owner.wake()

    def _send(self, entry: _Handle) -> bool:
        """True if something went out."""
        before = entry.unsent_bytes
        while entry.unsent and not entry.end.was_reset:
            piece = entry.unsent.popleft()
            taken = entry.end.send(piece)
            entry.unsent_bytes -= taken
            if taken < len(piece):
                entry.unsent.appendleft(piece[taken:])
                break
        if entry.end.was_reset:
            entry.unsent.clear()
            entry.unsent_bytes = 0
        return entry.unsent_bytes < before

    def poll(self, core: Any) -> None:
        """One round: ends before data, in any order otherwise, as epoll may report them."""
        entries = [entry for entry in self.handles if entry is not None]
        self.random.shuffle(entries)
        entries.sort(key=lambda entry: not (entry.end.at_eof or entry.end.was_reset))
        self.full = self.random.random() < self.stops_early
        if self.full:
            entries = entries[: self.random.randrange(1, 4)]
            self.owner.wake()
        for entry in entries:
            if entry.unsent_bytes > 0 and (self._send(entry) or entry.noted) and not entry.closing:
                entry.noted = False
                if not entry.end.was_reset:
                    self._say_unsent(core, entry)
            if entry.closing and entry.unsent_bytes == 0:
                entry.end.close()
                self.handles[entry.number] = None
                continue
            if not entry.closing:
                self._read(core, entry)
        self._deliver(core)

    def _deliver(self, core: Any) -> None:
        """What clients have sent, before anything else that the core is told."""
        handles, pieces = self.batch_handles, self.batch_pieces
        if handles:
            self.batch_handles, self.batch_pieces = [], []
            core.clients_received(handles, pieces, self.world.now_ns)

    def _say_unsent(self, core: Any, entry: _Handle) -> None:
        self._deliver(core)
        if entry.kind == CLIENT:
            core.client_unsent(entry.number, entry.unsent_bytes, self.world.now_ns)
        else:
            core.link_unsent(entry.number, entry.unsent_bytes, self.world.now_ns)

    def _read(self, core: Any, entry: _Handle) -> None:
        end = entry.end
        now_ns = self.world.now_ns
        if end.incoming and not entry.paused:
            if entry.kind == CLIENT:
                self.batch_handles.append(entry.number)
                self.batch_pieces.append(end.receive(CLIENT_RECEIVE_BYTES))
            else:
                self._deliver(core)
                for piece in self._pieces(entry, end.receive(LINK_RECEIVE_BYTES)):
                    core.link_received(entry.number, piece, now_ns)
                    if self.after_frame is not None:
                        self.after_frame()
            if end.incoming:
                self.owner.wake()
        if self.handles[entry.number] is not entry or entry.closing:
            return
        over = end.was_reset or end.at_eof
        if over and not entry.ended and (entry.paused or not end.incoming):
            entry.ended = True
            self._deliver(core)
            if entry.kind == CLIENT:
                core.client_ended(entry.number, now_ns)
            else:
                core.link_ended(entry.number, now_ns)
                return
        if end.was_reset and not entry.failed and entry.kind == CLIENT and (entry.paused or not end.incoming):
            entry.failed = True
            self._deliver(core)
            core.client_failed(entry.number, now_ns)

    def _pieces(self, entry: _Handle, data: bytes) -> list[bytes]:
        if self.after_frame is None:
            return [data]
        pieces = []
        start = at = 0
        while at < len(data):
            if entry.frame_left == 0:
                head = data[at : at + FRAME_LENGTH_BYTES - len(entry.frame_head)]
                at += len(head)
                entry.frame_head += head
                if len(entry.frame_head) < FRAME_LENGTH_BYTES:
                    break
                entry.frame_left = int.from_bytes(entry.frame_head, "little") - FRAME_LENGTH_BYTES
                entry.frame_head = b""
                if entry.frame_left < 0:  # not a frame: the core will say so
                    entry.frame_left = 1 << 40
            taken = min(entry.frame_left, len(data) - at)
            entry.frame_left -= taken
            at += taken
            if entry.frame_left == 0:
                pieces.append(data[start:at])
                start = at
        if start < len(data):
            pieces.append(data[start:])
        return pieces

    def abandon(self) -> None:
        """The process has ended: the kernel closes everything it had."""
        for number, entry in enumerate(self.handles):
            if entry is not None:
                entry.end.waker = None
                entry.end.close()
                self.handles[number] = None


LOCAL: Final = Nature(5 * NS_PER_US, 20 * NS_PER_US, 0.0, 212_992)
