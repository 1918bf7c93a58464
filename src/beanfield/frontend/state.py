"""All that one frontend has, and the few primitives every part of it is built on: answer, seat, wake, close.

Parts never call each other in circles: one that lets a session go on puts it on `runnable`, and core.py looks at these
when the current input has been dealt with. Time is `now_ns`, set at each entry from outside; nothing here reads a
clock. Bytes leave through `outbox`, other wishes through `actions`.
"""

from typing import Final

from mypy_extensions import i64, mypyc_attr

from beanfield.constants import CLIENT_UNSENT_BYTES_MAX, DEFAULT_TUBE, STREAM_COMMANDS_MAX, WORD_WAIT_NS
from beanfield.frontend import slots
from beanfield.frontend.session import CLOSED, FREE, Seat, Session
from beanfield.frontend.slots import SlotLink
from beanfield.frontend.timers import TimerHeap
from beanfield.ipc.actions import ACT_CLOSE
from beanfield.ipc.codec import write_plain
from beanfield.ipc.frames import ATTACH, DETACH, FLAG_DEFAULT
from beanfield.ipc.role import RoleCore
from beanfield.pages import FrontendCounters, PageReader
from beanfield.routing import Topology

NO_FLAGS: Final[i64] = 0


@mypyc_attr(native_class=True)
class FrontendConfig:
    """What a frontend is told at its start. The last six are only shown, by stats."""

    def __init__(
        self,
        index: int,
        generation: int,
        run_id: bytes,
        topology: Topology,
        job_bytes_max: int,
        slot_wait_ns: int,
        body_memory_bytes: int,
        version: bytes = b"",
        server_id: bytes = b"",
        hostname: bytes = b"",
        os: bytes = b"",
        platform: bytes = b"",
        segment_bytes: int = 0,
    ) -> None:
        assert len(run_id) == 16
        assert slot_wait_ns >= 0
        self.index: i64 = index
        self.generation: i64 = generation
        self.run_id: bytes = run_id
        self.topology: Topology = topology
        self.job_bytes_max: i64 = job_bytes_max
        self.slot_wait_ns: i64 = slot_wait_ns
        # For words of owners that are up: --slot-wait may be 0, and an owner may first ask other links or withhold.
        self.word_wait_ns: i64 = max(slot_wait_ns, WORD_WAIT_NS)
        # One job of the largest size must always fit.
        self.body_memory_bytes: i64 = max(body_memory_bytes, job_bytes_max + 2)
        self.version: bytes = version
        self.server_id: bytes = server_id
        self.hostname: bytes = hostname
        self.os: bytes = os
        self.platform: bytes = platform
        self.segment_bytes: i64 = segment_bytes


@mypyc_attr(native_class=True, allow_interpreted_subclasses=True)
class FrontendState(RoleCore):
    """See the module's text. FrontendCore is built on it; the other modules take it as their first argument."""

    def __init__(self, config: FrontendConfig, pages: PageReader) -> None:
        self.config: FrontendConfig = config
        self.pages: PageReader = pages
        self.topology: Topology = config.topology
        self.counters: FrontendCounters = FrontendCounters()
        self.links: list[SlotLink] = []
        for slot in range(config.topology.slots):
            self.links.append(SlotLink(slot))
        self.default_link: SlotLink = self.links[config.topology.slot_of_name(DEFAULT_TUBE)]
        self.link_of_handle: dict[int, SlotLink] = {}
        self.clients: list[Session | None] = []  # by handle
        self.next_serial: int = 1
        self.timers: TimerHeap = TimerHeap()  # of sessions
        self.now_ns: i64 = 0
        self.turn_number: i64 = 1
        self.draining: bool = False
        self.body_bytes: i64 = 0  # of all sessions; those on links that are not sent come on top
        self.runnable: list[Session] = []
        self.revisit: list[Session] = []  # to be looked at in the next turn
        self.in_pieces: list[Session] = []  # with a put that leaves piece by piece
        self.stats_words: list[Session] = []  # the owner's word for their `stats` came since the last turn
        self.outbox: list[object] = []
        self.actions: list[int] = []
        # For tracing.py, while `tracing`: handle, then an operation (int) or bytes for the client.
        self.tracing: bool = False
        self.trace: list[object] = []

    # ---------------------------------------------------------------- replies

    def answer(self, session: Session, text: bytes) -> None:
        """The next reply for this client, or the front of one that goes on in pieces."""
        self.go_on_answering(session, text)
        if self.tracing:
            self.trace.append(session.handle)
            self.trace.append(text)

    def go_on_answering(self, session: Session, text: bytes) -> None:
        """The next bytes of a reply that has begun."""
        assert session.wait != CLOSED
        if session.turn != self.turn_number:
            session.turn = self.turn_number
            session.turn_bytes = 0
        session.turn_bytes += len(text)
        self.outbox.append(session.handle)
        self.outbox.append(text)

    def unsent_bytes(self, session: Session) -> i64:
        """What the client has not taken, as far as is known: all of this turn's counts."""
        if session.turn != self.turn_number:
            return session.unsent_bytes
        return session.unsent_bytes + session.turn_bytes

    def has_room(self, session: Session) -> bool:
        """Whether anything more may be asked for this client. If not, the session is looked at again in time."""
        if self.unsent_bytes(session) <= CLIENT_UNSENT_BYTES_MAX:
            return True
        if session.unsent_bytes <= CLIENT_UNSENT_BYTES_MAX:
            self.look_again(session)  # only this turn's replies are in the way
        return False

    # ---------------------------------------------------------------- order of work

    def wake(self, session: Session) -> None:
        """Something the session may have waited for has come."""
        if not session.runnable:
            session.runnable = True
            self.runnable.append(session)

    def free(self, session: Session) -> None:
        """The session waits no longer."""
        assert session.wait != CLOSED
        session.wait = FREE
        self.timers.cancel(session)
        self.wake(session)

    def look_again(self, session: Session) -> None:
        """In the next turn: by then it is known what of this turn's replies the client has taken."""
        if not session.revisit:
            session.revisit = True
            self.revisit.append(session)

    # ---------------------------------------------------------------- links

    def may_send(self, session: Session, seat: Seat) -> bool:
        """Whether a command may go to a link that is up. If not, the session is woken when it may."""
        if session.flight != 0 and (session.flight_seat is not seat or session.flight >= STREAM_COMMANDS_MAX):
            return False
        link = seat.link
        assert link.state == slots.LINK_UP
        if link.is_full():
            if not session.held_back:
                session.held_back = True
                link.waiting_room[session.serial] = session
            return False
        if seat.number == 0:
            self.attach(seat)
        return True

    def attach(self, seat: Seat) -> bool:
        """Just before the first frame of the session on this link. True: with the two references to `default`."""
        link = seat.link
        assert seat.number == 0 and link.is_connected()
        session = seat.session
        with_default = (
            link is self.default_link and session.use_name == DEFAULT_TUBE and DEFAULT_TUBE in session.watched
        )
        seat.number = link.next_number
        seat.next_request = 1
        link.next_number += 1
        link.table[seat.number] = seat
        write_plain(link.writer, ATTACH, FLAG_DEFAULT if with_default else NO_FLAGS, seat.number, 0)
        return with_default

    def requested(self, session: Session, seat: Seat, job_id: i64) -> i64:
        """The number of the next request; its answer is awaited as part of the flight."""
        request = seat.next_request
        seat.next_request = request + 1
        if session.flight == 0:
            session.flight_seat = seat
            session.flight_first = request
        if job_id != 0 and len(session.reservations) != 0 and job_id in session.reservations:
            session.flight_ids.fill(session.flight)
            session.flight_ids.push(job_id)
        session.flight += 1
        return request

    def links_bytes(self) -> i64:
        """What the links have not handed to the kernel."""
        total: i64 = 0
        for link in self.links:
            total += link.bytes_here()
        return total

    # ---------------------------------------------------------------- the end of a session

    def close(self, session: Session) -> None:
        """The connection ends after what it was sent. All owners are told; nothing of the session is left here."""
        if session.wait == CLOSED:
            return
        self._uncount(session)
        for seat in session.seats:
            link = seat.link
            if seat.number != 0:
                write_plain(link.writer, DETACH, NO_FLAGS, seat.number, 0)
                link.detach(seat)
            link.restoring_count -= seat.restoring_count
            seat.restoring_count = 0
        self.timers.cancel(session)
        self.body_bytes -= session.body_bytes
        session.body_bytes = 0
        assert self.clients[session.handle] is session
        self.clients[session.handle] = None
        self.actions.append(ACT_CLOSE)
        self.actions.append(session.handle)
        session.wait = CLOSED
        session.dismantle()

    def _uncount(self, session: Session) -> None:
        counters = self.counters
        counters.connections -= 1
        if session.producer:
            counters.producers -= 1
        if session.worker:
            counters.workers -= 1
        if session.counted_waiting:
            counters.waiting -= 1

    def mark_worker(self, session: Session) -> None:
        if not session.worker:
            session.worker = True
            self.counters.workers += 1

    def mark_producer(self, session: Session) -> None:
        if not session.producer:
            session.producer = True
            self.counters.producers += 1
