"""The frontend's core: client bytes and owner frames in, replies and frames out. Sans I/O; the interface of a loop.

    every callback                  sets the time, does its part at once, and lets sessions go on that it woke
    turn(now_ns)                    what the last flush has shown, timers, large bodies, SYNCED; then all frames written
                                    since the last turn go into the outbox, one piece per link
    take_outbox(), take_actions()   to be flushed and applied in this order

Rules: never crashes on a peer's bytes (LinkFault closes that link, client faults are replies); knows no sockets, and
not whether its owners live in other processes.
"""

from mypy_extensions import mypyc_attr

from beanfield.constants import CLIENT_UNSENT_BYTES_MAX, DEFAULT_TUBE, IPC_VERSION, SYNC_POLLS
from beanfield.errors import LinkFault
from beanfield.frontend import parking, reserve
from beanfield.frontend.answers import ask_more, session_frame
from beanfield.frontend.commands import advance, end, send_piece
from beanfield.frontend.session import CLOSED, FREE, LARGE, PARKED, PIECES, RESERVE, WORD, Session
from beanfield.frontend.slots import LINK_DOWN, LINK_HELLO, LINK_RESTORING, SLOT_RESTARTING, SLOT_UP, SlotLink
from beanfield.frontend.state import NO_FLAGS, FrontendConfig, FrontendState
from beanfield.frontend.stats import answer_stats
from beanfield.ipc import frames
from beanfield.ipc.actions import ACT_CLOSE
from beanfield.ipc.codec import write_hello, write_word
from beanfield.ipc.frames import (
    ERROR_FINGERPRINT,
    ERROR_FRAME,
    ERROR_GENERATION,
    ERROR_RUN_ID,
    ERROR_VERSION,
    ROLE_FRONTEND,
)
from beanfield.pages import PageReader
from beanfield.proto.ops import OP_STATS


@mypyc_attr(native_class=True)
class FrontendCore(FrontendState):
    """See the module's text and the interface of the reactor."""

    def __init__(self, config: FrontendConfig, pages: PageReader) -> None:
        super().__init__(config, pages)
        self.poll_full: bool = False  # set by the loop before turn(): the poll left something ready behind
        self.due_looks: list[Session] = []  # sessions to be looked at in this turn
        self.ended: list[Session] = []  # clients that have ended; those closed meanwhile leave it with the turn
        self.due_stats: list[Session] = []  # `stats` to be answered in this turn

    # ---------------------------------------------------------------- clients

    def client_opened(self, handle: int, now_ns: int) -> None:
        self.now_ns = now_ns
        session = Session(self.next_serial, handle, self.config.job_bytes_max)
        self.next_serial += 1
        while len(self.clients) <= handle:
            self.clients.append(None)
        assert self.clients[handle] is None
        self.clients[handle] = session
        self.counters.connections += 1
        self.counters.total_connections += 1
        seat = session.seat_at(self.default_link)
        session.use(DEFAULT_TUBE, seat)
        session.watch(DEFAULT_TUBE, seat)
        if self.default_link.is_connected():
            self.attach(seat)

    def clients_received(self, handles: list[int], pieces: list[bytes], now_ns: int) -> None:
        """As client_received, of so many clients, in this order."""
        assert len(handles) == len(pieces)
        for at in range(len(handles)):
            self.client_received(handles[at], pieces[at], now_ns)

    def client_received(self, handle: int, data: bytes, now_ns: int) -> None:
        session = self.clients[handle]
        if session is None:
            return
        self.now_ns = now_ns
        session.received_ns = now_ns
        session.received_turn = self.turn_number
        session.parser.receive(data)
        advance(self, session)
        if len(self.runnable) != 0:
            self._run()

    def client_ended(self, handle: int, now_ns: int) -> None:
        """Half-close, or the first sign of a close. What it sent before is still executed, but for a parked command."""
        session = self.clients[handle]
        if session is None or session.ended:
            return
        self.now_ns = now_ns
        session.ended = True
        self.ended.append(session)
        # While paused there may be more to read, which comes after the pause.
        session.input_over = not session.paused
        if session.wait == PARKED:
            self.close(session)
            return
        reserve.look(self, session)
        if session.is_idle():
            end(self, session)
        self._run()

    def client_failed(self, handle: int, now_ns: int) -> None:
        session = self.clients[handle]
        if session is None:
            return
        self.now_ns = now_ns
        self.close(session)

    def client_unsent(self, handle: int, unsent_bytes: int, now_ns: int) -> None:
        session = self.clients[handle]
        if session is None:
            return
        self.now_ns = now_ns
        session.unsent_bytes = unsent_bytes
        if session.wait == LARGE:
            ask_more(self, session)
        elif session.wait == FREE and unsent_bytes <= CLIENT_UNSENT_BYTES_MAX:
            self.wake(session)
            self._run()

    # ---------------------------------------------------------------- slots

    def link_opened(self, slot: int, handle: int, now_ns: int) -> None:
        self.now_ns = now_ns
        link = self.links[slot]
        if link.state != LINK_DOWN:
            self._drop_link(link)
        link.handle = handle
        link.state = LINK_HELLO
        link.heard_ns = now_ns
        self.link_of_handle[handle] = link
        config = self.config
        write_hello(
            link.writer, frames.HELLO, IPC_VERSION, ROLE_FRONTEND, config.index, config.generation,
            config.topology.fingerprint, config.run_id,
        )  # fmt: skip
        self._run()

    def link_received(self, handle: int, data: bytes, now_ns: int) -> None:
        link = self.link_of_handle.get(handle)
        if link is None:
            return
        self.now_ns = now_ns
        link.heard_ns = now_ns
        link.silent = False
        received = link.frames
        received.receive(data)
        try:
            while received.next():
                if received.session != 0:
                    session_frame(self, link)
                else:
                    self._link_frame(link)
        except LinkFault:
            self._drop_link(link)
        if link.state == LINK_RESTORING and link.restoring_count == 0:
            parking.go_on_restoring(self, link)
        self._run()

    def link_ended(self, handle: int, now_ns: int) -> None:
        link = self.link_of_handle.get(handle)
        if link is None:
            return
        self.now_ns = now_ns
        self._drop_link(link)
        self._run()

    def link_unsent(self, handle: int, unsent_bytes: int, now_ns: int) -> None:
        link = self.link_of_handle.get(handle)
        if link is None:
            return
        self.now_ns = now_ns
        link.unsent_bytes = unsent_bytes
        link.flushed_bytes = 0
        self._look_at_link(link)
        self._run()

    def slot_state(self, slot: int, state: int, now_ns: int) -> None:
        """The supervisor's word: SLOT_UP, SLOT_RESTARTING, SLOT_UNAVAILABLE."""
        self.now_ns = now_ns
        parking.slot_word(self, self.links[slot], state)
        self._run()

    def drain(self, on: bool) -> None:
        self.draining = on

    def _drop_link(self, link: SlotLink) -> None:
        """Its owner's process, or only the link, is gone; the slot is down until a new link is welcomed."""
        self.actions.append(ACT_CLOSE)
        self.actions.append(link.handle)
        if link.word == SLOT_UP:
            link.word = SLOT_RESTARTING
        parking.link_lost(self, link)

    def _link_frame(self, link: SlotLink) -> None:
        """A frame that concerns the link itself."""
        received = link.frames
        opcode = received.opcode
        if opcode == frames.WELCOME and link.state == LINK_HELLO:
            self._welcome(link)
        elif opcode == frames.SYNC and link.is_connected():
            link.sync_number = received.word()
            link.sync_polls = SYNC_POLLS
            received.done()
            if link.sync_number < 1:
                raise LinkFault(ERROR_FRAME, "SYNC without a number")
        elif opcode == frames.ERROR:
            raise LinkFault(received.word(), "the owner refuses this link")
        else:
            raise LinkFault(ERROR_FRAME, f"opcode {opcode} from an owner, for the link")

    def _welcome(self, link: SlotLink) -> None:
        received = link.frames
        version = received.word()
        slot = received.word()
        generation = received.word()
        proof = received.body()
        if version != IPC_VERSION:
            raise LinkFault(ERROR_VERSION, f"version {version}")
        if len(proof) != 32 or slot != link.slot:
            raise LinkFault(ERROR_FRAME, f"WELCOME of slot {slot} on the link of slot {link.slot}")
        if proof[:16] != self.config.topology.fingerprint:
            raise LinkFault(ERROR_FINGERPRINT, "another topology")
        if proof[16:] != self.config.run_id:
            raise LinkFault(ERROR_RUN_ID, "another run of the server")
        if generation < link.generation:
            raise LinkFault(ERROR_GENERATION, f"generation {generation} after {link.generation}")
        link.generation = generation
        link.word = SLOT_UP
        parking.begin_restoring(self, link)

    def _look_at_link(self, link: SlotLink) -> None:
        """Less of it may be unsent now."""
        if link.state == LINK_RESTORING:
            parking.go_on_restoring(self, link)
        if link.may_go_on():
            link.held = False
            room = link.waiting_room
            link.waiting_room = {}
            for session in room.values():
                session.held_back = False
                self.wake(session)

    # ---------------------------------------------------------------- the turn

    def _run(self) -> None:
        """Lets all sessions go on that were woken; they may wake others."""
        runnable = self.runnable
        index = 0
        while index < len(runnable):
            session = runnable[index]
            index += 1
            session.runnable = False
            if session.wait != CLOSED:
                advance(self, session)
        runnable.clear()

    def turn(self, now_ns: int) -> None:
        self.now_ns = now_ns
        for link in self.links:
            link.flushed_bytes = 0
            if link.held or link.state == LINK_RESTORING:
                self._look_at_link(link)
        self._look_again_at_sessions()
        self._expire_timers()
        self._run()
        if len(self.due_stats) != 0:
            self._answer_stats()
            self._run()
        if len(self.in_pieces) != 0:
            self._send_pieces()
            self._run()
        if len(self.ended) != 0:
            self.ended = [session for session in self.ended if session.wait != CLOSED]
        for link in self.links:
            self._finish_link(link)
        self.counters.body_memory_bytes = self.body_bytes
        self.due_looks = self.revisit
        self.revisit = []
        self.due_stats = self.stats_words
        self.stats_words = []
        self.turn_number += 1

    def _look_again_at_sessions(self) -> None:
        """Those that were looked at before the last flush: what of it was not taken has been reported since."""
        for session in self.due_looks:
            session.revisit = False
            if session.wait == LARGE:
                ask_more(self, session)
            elif session.wait == FREE:
                if session.ended and not session.input_over and not session.paused:
                    # A whole poll without bytes from it: all it ever sent has been seen.
                    session.input_over = session.received_turn != self.turn_number and not self.poll_full
                self.wake(session)
        self.due_looks = []

    def _answer_stats(self) -> None:
        """Their owner's word came before the last turn, so what had ended by then has been answered and closed."""
        for session in self.due_stats:
            if session.wait != CLOSED:
                assert session.wait == WORD and session.op == OP_STATS
                answer_stats(self, session)
                session.op = 0
                self.free(session)

    def _expire_timers(self) -> None:
        while True:
            session = self.timers.pop_due(self.now_ns)
            if session is None:
                return
            assert isinstance(session, Session)
            if session.wait == RESERVE:
                reserve.timer(self, session)
            else:
                parking.timer(self, session)

    def _send_pieces(self) -> None:
        """One piece of each large put, so that the frames of other sessions go between them."""
        waiting = self.in_pieces
        self.in_pieces = []
        for session in waiting:
            if session.wait == PIECES:
                send_piece(self, session)
                if session.wait == PIECES:
                    self.in_pieces.append(session)

    def _finish_link(self, link: SlotLink) -> None:
        """Its frames of this turn; SYNCED behind the DETACHes that the polls of the clients have brought."""
        if link.sync_number != 0 and not self.poll_full:
            if link.sync_polls == 0 and self._ends_are_told():
                write_word(link.writer, frames.SYNCED, NO_FLAGS, 0, 0, link.sync_number)
                link.sync_number = 0
            else:
                link.sync_polls = max(link.sync_polls - 1, 0)
        if link.has_frames() and link.handle >= 0:
            self._send_frames(link)

    def _send_frames(self, link: SlotLink) -> None:
        for piece in link.take_frames():
            self.outbox.append(link.handle)
            self.outbox.append(piece)
            link.flushed_bytes += len(piece)

    def _ends_are_told(self) -> bool:
        """Whether the DETACH of every client known to have ended is written, as far as only owners can hold it up.

        A client that waited for a job first has its last word said; a job granted meanwhile goes back with it. The word
        of a reserve that could not wait may itself need a SYNC: for that one nobody else is held up.
        """
        for session in self.ended:
            if session.revisit or (session.wait == RESERVE and session.timeout_ns > session.began_ns):
                return False
        return True

    def next_deadline_ns(self) -> int:
        """When turn() must be called again at the latest; 0: at once, after a poll that does not wait."""
        if len(self.due_looks) != 0 or len(self.due_stats) != 0 or len(self.stats_words) != 0:
            return 0
        for link in self.links:
            if link.sync_number != 0 and (link.sync_polls != 0 or self.poll_full or self._ends_are_told()):
                return 0
            if link.waits_for_report():
                return 0
        for session in self.in_pieces:
            seat = session.use_seat
            if seat is not None and not seat.link.held:
                return 0
        return self.timers.first_due_ns()

    def take_outbox(self) -> list[object]:
        outbox = self.outbox
        self.outbox = []
        return outbox

    def take_actions(self) -> list[int]:
        actions = self.actions
        self.actions = []
        return actions
