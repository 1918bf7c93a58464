"""An owner: links in, frames out, the engine and the journal between them. Pure: the loop around it does all I/O.

Life of a turn: received bytes become frames and are executed as they come (link_received), as far as the turn's budget
goes; `turn` then does what is due by itself, goes on with what had to wait, and closes the output. Until all due timers
and begun detaches are through, no client frame is executed; a link whose peer does not read is not read either.

A link is nobody until its HELLO is accepted. A HELLO from a frontend that has a link already ends the older link, and
what it had not been read; a HELLO of an older generation is refused.
"""

from typing import Final

from mypy_extensions import i64, mypyc_attr

from beanfield.constants import (
    FRONTENDS_MAX,
    IPC_VERSION,
    JOBS_PER_TURN_MAX,
    LINK_RECEIVE_BYTES,
    LINK_UNSENT_BYTES_LOW,
)
from beanfield.engine.engine import Engine
from beanfield.errors import LinkFault
from beanfield.ipc import frames
from beanfield.ipc.actions import ACT_CLOSE, ACT_PAUSE, ACT_RESUME
from beanfield.ipc.codec import FrameBuffer, write_welcome, write_word_body
from beanfield.owner.commands import Commands
from beanfield.owner.link import OwnerLink, Waiting
from beanfield.owner.looks import fault
from beanfield.owner.seat import Deferred, Seat
from beanfield.pages import OwnerCounters
from beanfield.routing import Topology
from beanfield.wal.journal import Journal

UNSENT_LOW: Final[i64] = LINK_UNSENT_BYTES_LOW
RECEIVE: Final[i64] = LINK_RECEIVE_BYTES
BUDGET: Final[i64] = JOBS_PER_TURN_MAX
RECENT: Final = 32  # a power of two
RECENT_MASK: Final[i64] = RECENT - 1

# How many words of fields an opcode has (-1: not an opcode of a session), and whether a body follows.
FIELDS: Final = [
    -1, -1, -1, -1, 0, 0, 0, 0, 3, 1, 0, 1, 0, 3, 0, 0, 1, 1, 3, 2, 1, 1, 1, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, -1,
]  # fmt: skip
BODY: Final = [
    False, False, False, False, True, False, True, True, True, True, False, False, False, False, False, False, False,
    False, False, False, False, False, False, False, False, False, False, False, True, True, False, False, False, False,
]  # fmt: skip
OPCODES: Final[i64] = 34

assert len(FIELDS) == OPCODES
assert len(BODY) == OPCODES


class OwnerConfig:
    """What an owner is told at its start. Bytes of run_id: 16; times in ns."""

    def __init__(
        self,
        slot: int,
        generation: int,
        run_id: bytes,
        topology: Topology,
        created_offset_ns: int,
        first_sequence: int,
        memory_bytes_max: int,
    ) -> None:
        assert len(run_id) == 16
        assert 0 <= slot < topology.slots
        self.slot = slot
        self.generation = generation
        self.run_id = run_id
        self.topology = topology
        self.created_offset_ns = created_offset_ns
        self.first_sequence = first_sequence
        self.memory_bytes_max = memory_bytes_max


@mypyc_attr(native_class=True)
class OwnerCore(Commands):
    """The whole behaviour of one owner process."""

    def __init__(self, config: OwnerConfig, journal: Journal, counters: OwnerCounters | None = None) -> None:
        self.counters: OwnerCounters = OwnerCounters() if counters is None else counters
        self.counters.clear_gauges()
        if self.counters.next_sequence < config.first_sequence:
            self.counters.next_sequence = config.first_sequence
        engine = Engine(config.topology, config.slot, config.created_offset_ns, self.counters, journal)
        super().__init__(engine, journal, config.memory_bytes_max)
        self.config: OwnerConfig = config
        self.opcodes: list[int] = [0] * RECENT  # of the last frames, in a ring: for the log of a crash
        self.opcode_count: i64 = 0
        self.generations: dict[int, int] = {}  # newest generation seen of each frontend
        self.first_link: i64 = 0  # by its place among the links: the one that goes on first in this turn
        self.outbox: list[object] = []
        self.actions: list[int] = []

    # ---------------------------------------------------------------- links come and go

    def link_opened(self, handle: int, now_ns: int) -> None:
        assert handle not in self.links
        self.links[handle] = OwnerLink(handle, self.counters)

    def link_ended(self, handle: int, now_ns: int) -> None:
        link = self.links.get(handle)
        if link is not None:
            self.actions.append(ACT_CLOSE)
            self.actions.append(handle)
            self._end_link(link, now_ns)

    def _end_link(self, link: OwnerLink, now_ns: int) -> None:
        """Its frontend is gone, for this owner: so are all its sessions."""
        del self.links[link.handle]
        # What one of its sessions sets free must not go to the next of them.
        link.gate.blocked = True
        for seat in list(link.seats.values()):
            self._end_seat(link, seat, now_ns)
        link.dismantle()
        self.engine.return_reservations(now_ns)

    def _close_link(self, link: OwnerLink, error: LinkFault, now_ns: int) -> None:
        """A peer's fault: it is told, and the link closes. Nothing that waited for the journal is sent any more."""
        self.log.append(f"link {link.handle}: {error.message}")
        write_word_body(link.frame_writer(), frames.ERROR, 0, 0, 0, error.code, error.message.encode())
        self._send(link, link.take_output())
        self.actions.append(ACT_CLOSE)
        self.actions.append(link.handle)
        self._end_link(link, now_ns)

    def _hello(self, link: OwnerLink, buffer: FrameBuffer, now_ns: int) -> None:
        config = self.config
        version = buffer.word()
        role = buffer.word()
        index = buffer.word()
        generation = buffer.word()
        identity = buffer.body()
        if len(identity) != 32:
            raise LinkFault(frames.ERROR_FRAME, "HELLO of another length")
        if version != IPC_VERSION:
            raise LinkFault(frames.ERROR_VERSION, f"IPC version {version}, this is {IPC_VERSION}")
        if identity[:16] != config.topology.fingerprint:
            raise LinkFault(frames.ERROR_FINGERPRINT, "another topology")
        if identity[16:] != config.run_id:
            raise LinkFault(frames.ERROR_RUN_ID, "another run of the server")
        if role != frames.ROLE_FRONTEND or index < 0 or index >= FRONTENDS_MAX:
            raise LinkFault(frames.ERROR_ROLE, f"role {role}, index {index}")
        if generation < self.generations.get(index, 0):
            raise LinkFault(frames.ERROR_GENERATION, f"frontend {index}: generation {generation} is over")
        self.generations[index] = generation
        for other in list(self.links.values()):
            if other.welcome and other.frontend == index:
                self.actions.append(ACT_CLOSE)
                self.actions.append(other.handle)
                self._end_link(other, now_ns)
        link.frontend = index
        link.generation = generation
        link.gate.index = index
        link.welcome = True
        write_welcome(
            link.frame_writer(),
            frames.WELCOME,
            IPC_VERSION,
            config.slot,
            config.generation,
            config.topology.fingerprint,
            config.run_id,
        )

    # ---------------------------------------------------------------- frames

    def link_received(self, handle: int, data: bytes, now_ns: int) -> None:
        link = self.links.get(handle)
        if link is None:
            return
        link.buffer.receive(data)
        engine = self.engine
        engine.heard(link.gate, now_ns)
        if engine.due_ns() <= now_ns:
            engine.work_off(now_ns)
        self._run(link, now_ns)

    def link_unsent(self, handle: int, unsent_bytes: int, now_ns: int) -> None:
        link = self.links.get(handle)
        if link is not None:
            link.unsent_bytes = unsent_bytes
            link.wrote()

    def unread_bytes(self, handle: int) -> int:
        """What was received on this link and is not executed yet."""
        return self.links[handle].buffer.held_bytes()

    def _run(self, link: OwnerLink, now_ns: i64) -> None:
        """Executes the frames in the link's buffer, as long as it may go on."""
        engine = self.engine
        buffer = link.buffer
        link.rest = False
        try:
            while True:
                if engine.budget <= 0 or link.gate.blocked or self.journal.stalled or len(engine.detaching) != 0:
                    link.rest = True
                    break
                if not buffer.next():
                    break
                engine.budget -= 1
                self._frame(link, buffer, now_ns)
        except LinkFault as error:
            self._close_link(link, error, now_ns)
            return
        if link.rest and not link.paused and buffer.held_bytes() > RECEIVE:
            link.paused = True
            self.actions.append(ACT_PAUSE)
            self.actions.append(link.handle)

    def _frame(self, link: OwnerLink, buffer: FrameBuffer, now_ns: i64) -> None:
        opcode = buffer.opcode
        self.opcodes[self.opcode_count & RECENT_MASK] = opcode
        self.opcode_count += 1
        if opcode <= frames.DETACH or opcode >= frames.SYNCED or not link.welcome:
            self._link_frame(link, buffer, opcode, now_ns)
            return
        seat = link.seat_of(buffer.session)
        if seat is None:
            if buffer.session > link.session_high or buffer.session == 0:
                raise fault(f"session {buffer.session} was never opened")
            return  # it crossed the end of its session
        words: i64 = FIELDS[opcode]
        a: i64 = 0
        b: i64 = 0
        c: i64 = 0
        if words > 0:
            a = buffer.word()
            if words > 1:
                b = buffer.word()
                if words > 2:
                    c = buffer.word()
        if BODY[opcode]:
            body = buffer.body()
        else:
            buffer.done()
            body = b""
        if seat.blocked:
            self.set_aside(seat, Deferred(opcode, buffer.flags, buffer.request, a, b, c, body))
        else:
            self.execute(link, seat, opcode, buffer.flags, buffer.request, a, b, c, body, now_ns)

    def _link_frame(self, link: OwnerLink, buffer: FrameBuffer, opcode: i64, now_ns: i64) -> None:
        if not link.welcome:
            if opcode != frames.HELLO:
                raise fault(f"opcode {opcode} before HELLO")
            self._hello(link, buffer, now_ns)
        elif opcode == frames.ATTACH:
            buffer.done()
            self._attach(link, buffer.session, buffer.flags, now_ns)
        elif opcode == frames.DETACH:
            buffer.done()
            self._detach(link, buffer.session, now_ns)
        elif opcode == frames.SYNCED:
            number = buffer.word()
            buffer.done()
            if not self.syncs.answered(link, number):
                raise fault("SYNCED that was not asked for")
            self.sync_on(now_ns)
        else:
            raise fault(f"opcode {opcode} on a link that is welcome")

    def _attach(self, link: OwnerLink, number: i64, flags: i64, now_ns: i64) -> None:
        if number <= link.session_high:
            raise fault(f"session {number} attached again")
        seat = Seat(number, link.gate)
        if flags == frames.FLAG_DEFAULT:
            default = self.engine.tubes.get(b"default")
            if default is None:
                raise fault("`default` is not of this slot")
        link.session_high = number
        link.seats[number] = seat
        self.engine.open_session(seat)
        if flags == frames.FLAG_DEFAULT:
            self.engine.use(seat, b"default", now_ns)
            self.engine.watch(seat, b"default", now_ns)

    def _detach(self, link: OwnerLink, number: i64, now_ns: i64) -> None:
        seat = link.seat_of(number)
        if seat is None:
            if number > link.session_high or number == 0:
                raise fault(f"session {number} was never opened")
            return
        self._end_seat(link, seat, now_ns)
        self.engine.return_reservations(now_ns)

    def _end_seat(self, link: OwnerLink, seat: Seat, now_ns: i64) -> None:
        link.unpin(seat)
        seat.backlog = []
        seat.pieces = []
        if seat.blocked or seat.syncing:
            self.syncs.forget(seat)
        link.forget(seat)
        self.engine.detach(seat, now_ns)

    # ---------------------------------------------------------------- turns

    def turn(self, now_ns: int) -> None:
        """Everything that is due, what had to wait, and the end of this turn's output."""
        engine = self.engine
        engine.budget = BUDGET
        through = engine.work_off(now_ns)
        for link in list(self.links.values()):
            if link.gate.blocked and link.output_bytes() < UNSENT_LOW:
                engine.set_blocked(link.gate, False, now_ns)
        if through:
            self._go_on(now_ns)
        self.journal.settle(now_ns)
        position = self.journal.position
        released = self.journal.released_position
        for link in self.links.values():
            self._close_output(link, position, released)

    def _go_on(self, now_ns: int) -> None:
        """Kicks, commands that waited for SYNC, and links whose frames could not be executed when they came."""
        try:
            self.sync_on(now_ns)
            if len(self.kicks) != 0:
                self.kick_on(now_ns)
        except LinkFault as error:
            # A frame set aside was wrong. Which link sent it is in the fault's words only, so all of them that have
            # something set aside end: a frontend that breaks the contract here is a bug.
            for link in list(self.links.values()):
                for seat in link.seats.values():
                    if len(seat.backlog) != 0 or seat.synced:
                        self._close_link(link, error, now_ns)
                        break
        for link in self._links_in_turn():
            if link.handle not in self.links:
                continue  # ended by the HELLO of one before it
            if link.rest:
                self._run(link, now_ns)
            if link.paused and not link.rest:
                link.paused = False
                self.actions.append(ACT_RESUME)
                self.actions.append(link.handle)

    def _links_in_turn(self) -> list[OwnerLink]:
        """All links, each turn another one first: the first of them may use up the turn."""
        links = list(self.links.values())
        if len(links) < 2:
            return links
        self.first_link = (self.first_link + 1) % len(links)
        return links[self.first_link :] + links[: self.first_link]

    def _close_output(self, link: OwnerLink, position: i64, released: i64) -> None:
        """The frames of this turn carry its position; they leave now, or once the journal has released it."""
        pieces = link.take_output()
        if len(pieces) == 0:
            return
        if position <= released and len(link.waiting) == 0:
            self._send(link, pieces)
            return
        size: i64 = 0
        for piece in pieces:
            size += len(piece)
        link.waiting_bytes += size
        link.waiting.append(Waiting(position, pieces, size))

    def _let_go(self, link: OwnerLink, released: i64) -> None:
        waiting = link.waiting
        while len(waiting) != 0 and waiting[0].position <= released:
            first = waiting.popleft()
            link.waiting_bytes -= first.pieces_bytes
            self._send(link, first.pieces)

    def _send(self, link: OwnerLink, pieces: list[bytes]) -> None:
        for piece in pieces:
            self.outbox.append(link.handle)
            self.outbox.append(piece)

    def next_deadline_ns(self) -> int:
        """When `turn` wants to be called again though nothing came; 0: at once; NEVER_NS: not."""
        if len(self.kicks) != 0:
            return 0
        for link in self.links.values():
            if link.gate.blocked:
                if link.output_bytes() < UNSENT_LOW:
                    return 0
            elif link.rest and not self.journal.stalled:
                return 0
        due = self.engine.due_ns()
        sync = self.syncs.due_ns()
        if sync < due:
            due = sync
        journal = self.journal.next_deadline_ns()
        if journal < due:
            due = journal
        return due

    def take_outbox(self) -> list[object]:
        """What may leave now. The loop has written the journal's batch since the turn, so this may be more."""
        released = self.journal.released_position
        for link in self.links.values():
            if len(link.waiting) != 0:
                self._let_go(link, released)
        outbox = self.outbox
        self.outbox = []
        return outbox

    def take_actions(self) -> list[int]:
        actions = self.actions
        self.actions = []
        return actions

    def recent_opcodes(self) -> list[int]:
        """The opcodes of the last frames executed, oldest first."""
        count = self.opcode_count
        first = count - RECENT if count > RECENT else 0
        return [self.opcodes[number & RECENT_MASK] for number in range(first, count)]

    def take_log(self) -> list[str]:
        log = self.log
        self.log = []
        return log


