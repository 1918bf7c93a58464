"""Drives an OwnerCore by frames, as frontends would, and reads what it sends back."""

from librt.strings import BytesWriter

from beanfield.constants import IPC_VERSION, NS_PER_S
from beanfield.ipc import codec, frames
from beanfield.ipc.actions import ACT_CLOSE
from beanfield.owner.core import OwnerConfig, OwnerCore
from beanfield.routing import Topology
from beanfield.wal.journal import Journal, MemoryJournal

RUN_ID = b"r" * 16
TOPOLOGY = Topology(16, 2)


class Frame:
    """One received frame: opcode, flags, session, request and the raw rest."""

    def __init__(self, buffer: codec.FrameBuffer) -> None:
        self.opcode = buffer.opcode
        self.flags = buffer.flags
        self.session = buffer.session
        self.request = buffer.request
        self.payload = buffer.body()

    def words(self, count: int) -> list[int]:
        return [int.from_bytes(self.payload[i * 8 : i * 8 + 8], "little", signed=True) for i in range(count)]

    def __repr__(self) -> str:
        return f"<{self.opcode} {self.flags} s{self.session} r{self.request} {self.payload!r}>"


class LinkEnd:
    """The frontend's end of one link."""

    def __init__(self, owner: "Owner", handle: int) -> None:
        self.owner = owner
        self.handle = handle
        self.buffer = codec.FrameBuffer()

    def send(self, data: bytes, now_ns: int | None = None) -> None:
        self.owner.core.link_received(self.handle, data, self.owner.now_ns if now_ns is None else now_ns)

    def plain(self, opcode: int, session: int = 0, request: int = 0, flags: int = 0) -> None:
        writer = BytesWriter()
        codec.write_plain(writer, opcode, flags, session, request)
        self.send(writer.getvalue())

    def words(self, opcode: int, session: int, request: int, *words: int, body: bytes = b"", flags: int = 0) -> None:
        self.send(frame(opcode, session, request, *words, body=body, flags=flags))

    def hello(
        self, index: int = 0, generation: int = 1, fingerprint: bytes = TOPOLOGY.fingerprint, run_id: bytes = RUN_ID,
        version: int = IPC_VERSION, role: int = frames.ROLE_FRONTEND,
    ) -> None:  # fmt: skip
        writer = BytesWriter()
        codec.write_hello(writer, frames.HELLO, version, role, index, generation, fingerprint, run_id)
        self.send(writer.getvalue())

    def attach(self, session: int, default: bool = True) -> None:
        self.plain(frames.ATTACH, session, 0, frames.FLAG_DEFAULT if default else 0)

    def take(self) -> list[Frame]:
        """Ends the owner's turn and gives the frames that came to this end."""
        self.owner.turn()
        received = []
        self.buffer.receive(self.owner.sent.pop(self.handle, b""))
        while self.buffer.next():
            received.append(Frame(self.buffer))
        return received


def frame(opcode: int, session: int, request: int, *words: int, body: bytes = b"", flags: int = 0) -> bytes:
    writer = BytesWriter()
    payload = b"".join(word.to_bytes(8, "little", signed=True) for word in words) + body
    codec.write_body(writer, opcode, flags, session, request, payload)
    return writer.getvalue()


class Owner:
    """Slot 0 of two, with `default`, and its links. `keep_unsent`: nobody reads what is sent."""

    def __init__(
        self, journal: Journal | None = None, memory_bytes_max: int = 1 << 40, first_sequence: int = 0
    ) -> None:
        self.now_ns = 1_000 * NS_PER_S
        config = OwnerConfig(0, 1, RUN_ID, TOPOLOGY, 0, first_sequence, memory_bytes_max)
        self.core = OwnerCore(config, MemoryJournal() if journal is None else journal)
        self.sent: dict[int, bytes] = {}
        self.closed: list[int] = []
        self.actions: list[tuple[int, int]] = []
        self.handles = 0

    def link(self, index: int = 0, generation: int = 1) -> LinkEnd:
        """A link that has been made welcome."""
        end = self.raw_link()
        end.hello(index, generation)
        assert [each.opcode for each in end.take()] == [frames.WELCOME]
        return end

    def raw_link(self) -> LinkEnd:
        self.handles += 1
        self.core.link_opened(self.handles, self.now_ns)
        return LinkEnd(self, self.handles)

    def turn(self) -> None:
        """Turns until there is nothing left to do at once."""
        for _ in range(1_000):
            self.core.turn(self.now_ns)
            self.collect()
            if self.core.next_deadline_ns() > self.now_ns:
                return
        raise AssertionError("the owner never comes to rest")

    def collect(self) -> None:
        outbox = self.core.take_outbox()
        for at in range(0, len(outbox), 2):
            handle, data = outbox[at], outbox[at + 1]
            assert isinstance(handle, int) and isinstance(data, bytes)
            self.sent[handle] = self.sent.get(handle, b"") + data
        actions = self.core.take_actions()
        for at in range(0, len(actions), 2):
            self.actions.append((actions[at], actions[at + 1]))
            if actions[at] == ACT_CLOSE:
                self.closed.append(actions[at + 1])

    def later(self, ns: int) -> None:
        self.now_ns += ns
        self.turn()


def put(link: LinkEnd, session: int, request: int, body: bytes = b"x", delay_s: int = 0, ttr_s: int = 10) -> None:
    link.words(frames.PUT, session, request, 0, delay_s * NS_PER_S, ttr_s * NS_PER_S, body=body)


def texts(received: list[Frame]) -> list[bytes]:
    """The texts of REPLY frames."""
    return [each.payload[8:] for each in received if each.opcode == frames.REPLY]


def opcodes(received: list[Frame]) -> list[int]:
    return [each.opcode for each in received]
