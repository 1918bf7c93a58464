"""A frontend's core between scripted clients and scripted owners: virtual handles, virtual time, no sockets.

`Frontend` runs the loop's part (turn, flush, actions) and keeps what each client was sent and each owner was told.
An owner here answers nothing by itself: a test takes the frames that came (`frames`) and sends what it wants back.
`Frame.said` is what a test compares: the opcode's name, then the fields that the frame has.
"""

from typing import Final, NamedTuple

from librt.strings import BytesWriter, read_i64_le, write_i64_le

from beanfield.constants import NEVER_NS, NS_PER_MS, NS_PER_S
from beanfield.frontend.core import FrontendCore
from beanfield.frontend.invariants import check_frontend
from beanfield.frontend.state import FrontendConfig
from beanfield.ipc import frames
from beanfield.ipc.actions import ACT_CLOSE, ACT_PAUSE, ACT_RESUME
from beanfield.ipc.codec import FrameBuffer, write_body, write_header, write_welcome
from beanfield.pages import FrontendCounters, OwnerCounters, PageReader, Snapshot
from beanfield.routing import Topology

S: Final = NS_PER_S
MS: Final = NS_PER_MS
RUN_ID: Final = b"0123456789abcdef"
LINK_HANDLES: Final = 10_000  # links have handles from here on, clients below

NAMES: Final = {
    value: name
    for name, value in vars(frames).items()
    if isinstance(value, int)
    and name.isupper()
    and not name.startswith(("FLAG", "ROLE", "ERROR_", "HEADER", "WORD", "IPC"))
}
FIELDS: Final = {
    frames.PUT: 3, frames.PUT_PART: 1, frames.RESERVE_RUN: 1, frames.TAKE: 3, frames.RESERVE_JOB: 1, frames.DELETE: 1,
    frames.RELEASE: 3, frames.BURY: 2, frames.TOUCH: 1, frames.KICK: 1, frames.KICK_JOB: 1, frames.PEEK: 1,
    frames.STATS_JOB: 1, frames.PAUSE_TUBE: 1, frames.SYNCED: 1, frames.HELLO: 4,
}  # fmt: skip


class Frame(NamedTuple):
    name: str
    flags: int
    session: int
    request: int
    fields: tuple[int, ...]
    body: bytes

    @property
    def said(self) -> tuple[object, ...]:
        return (self.name, *self.fields) if not self.body else (self.name, *self.fields, self.body)


class Pages(PageReader):
    """Shows the counters of this one frontend, and of no owner."""

    def __init__(self) -> None:
        self.counters = FrontendCounters()

    def snapshot(self, now_ns: int) -> Snapshot:
        snapshot = Snapshot()
        counters = FrontendCounters()
        counters.decode(self.counters.encode())
        snapshot.add_frontend(counters, True)
        snapshot.add_owner(OwnerCounters(), True)
        return snapshot


class Frontend:
    def __init__(
        self,
        slots: int = 1,
        up: bool = True,
        slot_wait_ns: int = 10 * S,
        job_bytes_max: int = 65_535,
        body_memory_bytes: int = 1 << 28,
    ) -> None:
        self.now = 100 * S
        self.topology = Topology(256, slots)
        pages = Pages()
        config = FrontendConfig(
            0, 1, RUN_ID, self.topology, job_bytes_max, slot_wait_ns, body_memory_bytes, b"1.13", b"a" * 16
        )
        self.core = FrontendCore(config, pages)
        pages.counters = self.core.counters
        self.sent: dict[int, bytes] = {}
        self.told: dict[int, list[Frame]] = {slot: [] for slot in range(slots)}
        self.buffers: dict[int, FrameBuffer] = {}
        self.handles: dict[int, int] = {}
        self.next_link_handle = LINK_HANDLES
        self.closed: list[int] = []
        self.paused: set[int] = set()
        self.clients = 0
        if up:
            for slot in range(slots):
                self.bring_up(slot)
                self.frames(slot)

    # ---------------------------------------------------------------- the loop
    def turn(self) -> None:
        """Turns until the core asks for no more at once."""
        for _ in range(1_000):
            self.one_turn()
            if self.core.next_deadline_ns() != 0:
                return
        raise AssertionError("the core never comes to rest")

    def one_turn(self) -> None:
        self.core.turn(self.now)
        outbox = self.core.take_outbox()
        for handle, data in zip(outbox[::2], outbox[1::2], strict=True):
            assert isinstance(handle, int) and isinstance(data, bytes)
            assert handle not in self.closed
            if handle >= LINK_HANDLES:
                self._told(handle, data)
            else:
                self.sent[handle] = self.sent.get(handle, b"") + data
        actions = self.core.take_actions()
        for action, handle in zip(actions[::2], actions[1::2], strict=True):
            if action == ACT_CLOSE:
                self.closed.append(handle)
            elif action == ACT_PAUSE:
                self.paused.add(handle)
            else:
                assert action == ACT_RESUME
                self.paused.discard(handle)
        check_frontend(self.core)

    def _told(self, handle: int, data: bytes) -> None:
        buffer = self.buffers[handle]
        buffer.receive(data)
        slot = next(slot for slot, other in self.handles.items() if other == handle)
        while buffer.next():
            opcode = int(buffer.opcode)
            fields = tuple(int(buffer.word()) for _ in range(FIELDS.get(opcode, 0)))
            self.told[slot].append(
                Frame(NAMES[opcode], int(buffer.flags), int(buffer.session), int(buffer.request), fields, buffer.body())
            )

    def pass_time(self, span_ns: int) -> None:
        """Turns at each moment the core asks for, up to the end of the span."""
        end = self.now + span_ns
        while self.core.next_deadline_ns() <= end and self.core.next_deadline_ns() != NEVER_NS:
            self.now = max(self.now, self.core.next_deadline_ns())
            self.turn()
        self.now = end
        self.turn()

    # ---------------------------------------------------------------- clients
    def open(self) -> int:
        self.clients += 1
        self.core.client_opened(self.clients, self.now)
        self.turn()
        return self.clients

    def say(self, client: int, data: bytes) -> bytes:
        """What the client has been sent when all is quiet again."""
        self.core.client_received(client, data, self.now)
        self.turn()
        return self.replies(client)

    def replies(self, client: int) -> bytes:
        return self.sent.pop(client, b"")

    def end(self, client: int) -> None:
        self.core.client_ended(client, self.now)
        self.turn()

    # ---------------------------------------------------------------- owners
    def bring_up(self, slot: int, generation: int = 1) -> None:
        """A new link, welcomed; what the frontend tells on it stays to be looked at."""
        handle = self.next_link_handle
        self.next_link_handle += 1
        self.handles[slot] = handle
        self.buffers[handle] = FrameBuffer()
        self.core.link_opened(slot, handle, self.now)
        self.turn()
        hello = self.told[slot].pop()
        assert hello.name == "HELLO" and hello.body == self.topology.fingerprint + RUN_ID
        writer = BytesWriter()
        write_welcome(writer, frames.WELCOME, 1, slot, generation, self.topology.fingerprint, RUN_ID)
        self.deliver(slot, writer.getvalue())

    def bring_down(self, slot: int) -> None:
        self.core.link_ended(self.handles[slot], self.now)
        self.turn()

    def deliver(self, slot: int, data: bytes) -> None:
        self.core.link_received(self.handles[slot], data, self.now)
        self.turn()

    def frames(self, slot: int = 0) -> list[Frame]:
        """All that this owner has been told since the last look."""
        told = self.told[slot]
        self.told[slot] = []
        return told

    def frame(self, slot: int = 0) -> Frame:
        told = self.frames(slot)
        assert len(told) == 1, told
        return told[0]

    def answer(
        self, frame: Frame, opcode: int, fields: tuple[int, ...] = (), body: bytes = b"", flags: int = 0, slot: int = 0
    ) -> None:
        self.deliver(slot, made(opcode, frame.session, frame.request, fields, body, flags))

    def reply(self, frame: Frame, text: bytes = b"", flags: int = 0, slot: int = 0) -> None:
        self.answer(frame, frames.REPLY, (1,), text, flags, slot)

    def reserved(self, frame: Frame, job_id: int, ttr_ns: int = 60 * S, body: bytes = b"x", slot: int = 0) -> bytes:
        text = b"RESERVED %d %d\r\n%b\r\n" % (job_id, len(body), body)
        self.answer(frame, frames.RESERVED, (1, job_id, ttr_ns), text, slot=slot)
        return text

    def holding(self, client: int, job_id: int, ttr_ns: int = 60 * S, slot: int = 0) -> None:
        """The client gets this job by reserve-job."""
        self.core.client_received(client, b"reserve-job %d\r\n" % job_id, self.now)
        self.turn()
        self.reserved(self.frames(slot)[-1], job_id, ttr_ns, slot=slot)
        assert self.replies(client).startswith(b"RESERVED")

    def watch(self, client: int, *names: bytes) -> None:
        """Watches these tubes besides what is watched, with the owners' consent."""
        for name in names:
            self.core.client_received(client, b"watch " + name + b"\r\n", self.now)
            self.turn()
            slot = int(self.topology.slot_of_name(name))
            self.reply(self.frames(slot)[-1], slot=slot)
        self.replies(client)

    def name_in(self, slot: int, nth: int = 0) -> bytes:
        """A tube name of this slot."""
        names = [name for name in (b"t%d" % i for i in range(1_000)) if self.topology.slot_of_name(name) == slot]
        return names[nth]

    def id_in(self, slot: int, nth: int = 0) -> int:
        """A job id of this slot."""
        ids = [job_id for job_id in range(1, 4_000) if self.topology.slot_of_id(job_id) == slot]
        return ids[nth]


def made(
    opcode: int, session: int, request: int, fields: tuple[int, ...] = (), body: bytes = b"", flags: int = 0
) -> bytes:
    writer = BytesWriter()
    write_header(writer, 8 * len(fields) + len(body), opcode, flags, session, request)
    for field in fields:
        write_i64_le(writer, field)
    writer.write(body)
    return writer.getvalue()


def piece(session: int, request: int, body: bytes) -> bytes:
    writer = BytesWriter()
    write_body(writer, frames.CHUNK, 0, session, request, body)
    return writer.getvalue()


def words(data: bytes) -> list[int]:
    return [read_i64_le(data, at) for at in range(0, len(data), 8)]


# ---------------------------------------------------------------- reserve over two owners


def two_owners(slot_wait_ns: int = 10 * S) -> tuple[Frontend, int]:
    """A client that watches a tube of each of two owners."""
    f = Frontend(slots=2, slot_wait_ns=slot_wait_ns)
    client = f.open()
    f.watch(client, f.name_in(1))
    f.frames(0)
    f.frames(1)
    return f, client


def asked(f: Frontend) -> tuple[Frame, Frame]:
    first, second = f.frame(0), f.frame(1)
    assert (first.name, second.name) == ("ASK", "ASK")
    return first, second


def offer(f: Frontend, frame: Frame, priority: int, created: int, job_id: int, slot: int) -> None:
    f.answer(frame, frames.OFFER, (priority, created, job_id), slot=slot)


def empty(f: Frontend, frame: Frame, slot: int) -> None:
    f.answer(frame, frames.EMPTY, slot=slot)


def cancelled(f: Frontend, frame: Frame, slot: int, flags: int = 0) -> None:
    f.answer(frame, frames.CANCELLED, flags=flags, slot=slot)
