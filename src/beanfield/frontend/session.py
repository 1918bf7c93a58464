"""A client connection as the frontend knows it: what it asked for, what it holds, what it is waiting for.

Plain state with the few operations that keep it whole; the other modules of this package act on it. A Seat is the
session's share in one slot: its number on that slot's link, its references there, and that owner's word in a reserve
over several owners. Seats outlive a link: references are what is made again on the next one.

Sessions and seats refer to each other; dismantle() cuts these circles, as the collector is off.
"""

from typing import Final

from mypy_extensions import i64, mypyc_attr

from beanfield.constants import DEFAULT_TUBE, NEVER_NS
from beanfield.frontend.numbers import Numbers
from beanfield.frontend.slots import SlotLink
from beanfield.frontend.timers import Timed, TimerHeap
from beanfield.proto.parser import ClientParser

# What a session waits for before its next command. Only with FREE are commands taken from its parser.
FREE: Final[i64] = 0
WORD: Final[i64] = 1  # the answer to Session.op, sent to Session.flight_seat
RESERVE: Final[i64] = 2  # the reserve under way; see reserve.py
RUN: Final[i64] = 3  # the answer to a run of reserves
LARGE: Final[i64] = 4  # a reply that crosses in pieces
PIECES: Final[i64] = 5  # its put is on its way in pieces
PARKED: Final[i64] = 6  # Session.op needs a slot that is down
CLOSED: Final[i64] = 7

# An owner's word in a reserve.
NO_WORD: Final[i64] = 0  # not asked
ASKED: Final[i64] = 1
OFFERED: Final[i64] = 2
EMPTY: Final[i64] = 3  # nothing now; the request waits there
TAKING: Final[i64] = 4
CANCELLED: Final[i64] = 5  # its last word
MISSING: Final[i64] = 6  # its slot is down

# The phase of a reserve.
CHOOSING: Final[i64] = 1  # the owners have been asked; the choice waits for all of them
WAITING: Final[i64] = 2  # the first offer is taken at once
LAST: Final[i64] = 3  # the last words have been asked for

# How far a `use` of a tube of another owner has come.
USE_NEW: Final[i64] = 0
UNUSE_OLD: Final[i64] = 1


@mypyc_attr(native_class=True)
class Seat:
    """One session at one slot."""

    def __init__(self, session: "Session", link: SlotLink) -> None:
        self.session: Session = session
        self.link: SlotLink = link
        self.number: i64 = 0  # on the current link; 0: not attached
        self.next_request: i64 = 1
        self.uses: bool = False  # the tube in use lives here
        self.watch_count: i64 = 0  # watched tubes that live here
        self.reserved_count: i64 = 0  # reservations of the session held here
        self.restoring_count: i64 = 0  # references asked for again and not confirmed yet
        # ---- this owner in the reserve under way
        self.word: i64 = NO_WORD
        self.request: i64 = 0  # of ASK or RESERVE
        self.offer_priority: i64 = 0
        self.offer_created_ns: i64 = 0
        self.offer_id: i64 = 0


@mypyc_attr(native_class=True)
class Reservation(Timed):
    """A job the session holds; due_ns is its deadline."""

    def __init__(self, job_id: i64, seat: Seat) -> None:
        super().__init__()
        self.job_id: i64 = job_id
        self.seat: Seat = seat


@mypyc_attr(native_class=True)
class Session(Timed):
    """One client. Its place in the clock (Timed) is for the one thing it waits for with a limit in time."""

    def __init__(self, serial: int, handle: int, job_bytes_max: i64) -> None:
        super().__init__()
        self.serial: int = serial  # order of the connections of this frontend; never used again
        self.handle: int = handle
        self.parser: ClientParser = ClientParser(job_bytes_max)
        self.seats: list[Seat] = []
        # ---- the command under way
        self.wait: i64 = FREE
        self.op: i64 = 0  # taken from the parser and not finished; its fields are still in the parser
        self.received_ns: i64 = 0  # of the last bytes, or the end of a reserve if that was later
        self.arrived_ns: i64 = 0  # of the command under way: received_ns when it was taken
        self.parked_seat: Seat | None = None
        self.repeated: bool = False  # parked, and had been sent before
        self.use_stage: i64 = USE_NEW
        # ---- requests whose answers are awaited: `flight` of them, to flight_seat, numbered from flight_first
        self.flight: i64 = 0
        self.flight_first: i64 = 0
        self.flight_seat: Seat | None = None
        # The reserved job each of them names, or 0; those behind its end name none. Most flights never fill it.
        self.flight_ids: Numbers = Numbers()
        # ---- references
        self.use_name: bytes = DEFAULT_TUBE
        self.use_seat: Seat | None = None  # None only when dismantled
        self.watched: dict[bytes, Seat] = {}
        self.watch_seats: list[Seat] = []  # those with watch_count > 0
        # ---- reservations
        self.reservations: dict[int, Reservation] = {}
        self.deadlines: TimerHeap | None = None  # of reservations whose deadline has not passed, once there was one
        # ---- the reserve under way, and those parsed ahead behind it
        self.ahead: Numbers = Numbers()  # timeout in seconds of each, the current one first; -1: waits for ever
        self.run_allowed: bool = True  # the next reserves may travel as a run
        self.several: bool = False  # owners are asked, not told to grant
        self.phase: i64 = 0
        self.began_ns: i64 = 0
        self.timeout_ns: i64 = NEVER_NS  # the moment, not the span
        self.asked_ns: i64 = 0
        self.over_ns: i64 = NEVER_NS  # since when there is no time left
        self.last_ns: i64 = 0  # when LAST went
        self.again: bool = False  # a last word of this round was no ground for TIMED_OUT
        self.down_ns: i64 = NEVER_NS  # since when all slots of the request are down
        self.counted_waiting: bool = False
        # ---- a large reply or a put in pieces
        self.large_seat: Seat | None = None
        self.large_request: i64 = 0
        self.large_asked: bool = False  # MORE is out
        self.large_bytes: i64 = 0  # still to come
        self.piece_at: i64 = 0  # bytes of the put's body that are written
        self.gathered: list[tuple[int, bytes]] | None = None  # list-tubes: (created_ns, name) of the slots before
        self.gather_text: list[bytes] = []  # pieces of the current slot's list
        self.gather_slot: i64 = 0
        # ---- the connection
        self.producer: bool = False
        self.worker: bool = False
        self.put_counted: bool = False  # the put whose body is coming stands in cmd-put already
        self.paused: bool = False
        self.ended: bool = False  # its client sends no more; bytes may still come when it was paused
        self.input_over: bool = False  # and they have all been seen
        self.received_turn: i64 = 0  # the turn of the last bytes
        self.unsent_bytes: i64 = 0  # as last reported
        self.turn: i64 = 0  # turn_bytes are of this turn
        self.turn_bytes: i64 = 0  # replies handed out in it
        self.held_back: bool = False  # in the waiting room of a link
        self.revisit: bool = False  # the next turn looks at it
        self.runnable: bool = False  # in the list of those to be looked at now
        self.body_bytes: i64 = 0  # its share in the budget of --body-memory

    def seat_at(self, link: SlotLink) -> Seat:
        """Its seat at a slot; made when there is none."""
        for seat in self.seats:
            if seat.link is link:
                return seat
        seat = Seat(self, link)
        self.seats.append(seat)
        link.members[self.serial] = seat
        return seat

    def watch(self, name: bytes, seat: Seat) -> None:
        assert name not in self.watched
        self.watched[name] = seat
        if seat.watch_count == 0:
            self.watch_seats.append(seat)
        seat.watch_count += 1

    def ignore(self, name: bytes) -> None:
        seat = self.watched.pop(name)
        seat.watch_count -= 1
        assert seat.watch_count >= 0
        if seat.watch_count == 0:
            self.watch_seats.remove(seat)

    def use(self, name: bytes, seat: Seat) -> None:
        if self.use_seat is not None:
            self.use_seat.uses = False
        self.use_name = name
        self.use_seat = seat
        seat.uses = True

    def is_idle(self) -> bool:
        """Nothing taken from its input is unfinished."""
        return self.wait == FREE and self.op == 0 and self.flight == 0 and self.ahead.count == 0

    def is_blocked(self) -> bool:
        """More input would not be looked at."""
        return self.wait != FREE or self.op != 0 or self.ahead.count != 0

    def landed(self, count: i64) -> None:
        """The first `count` requests of the flight have been answered."""
        assert 0 < count <= self.flight
        self.flight -= count
        self.flight_first += count
        if self.flight == 0:
            self.flight_seat = None
        if self.flight_ids.count != 0:
            self.flight_ids.drop(count)

    def dismantle(self) -> None:
        """Cuts the circles; the session is not used again."""
        assert self.wait == CLOSED
        for seat in self.seats:
            del seat.link.members[self.serial]
            if self.held_back:
                seat.link.waiting_room.pop(self.serial, None)
        self.seats = []
        self.parked_seat = None
        self.flight_seat = None
        self.use_seat = None
        self.watched = {}
        self.watch_seats = []
        self.reservations = {}
        self.deadlines = None
        self.large_seat = None
        self.gathered = None
        self.parser.release()
