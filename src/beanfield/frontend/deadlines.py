"""The deadlines of a session's own reservations, wherever they are held, and the margin before them.

The owner of a job is the truth about its reservation; what is kept here follows from RESERVED, TOUCHED, EXPIRED and
the replies that end a reservation. Nothing here chooses between owners (that is reserve.py), and nothing there keeps a
deadline.

In the margin: deadline - MARGIN_NS <= now < deadline of any own reservation. A reservation whose deadline has passed
and whose EXPIRED has not come yet is still a reservation, but no reason for DEADLINE_SOON.
"""

from mypy_extensions import i64

from beanfield.constants import MARGIN_NS, NEVER_NS
from beanfield.frontend.session import Reservation, Seat, Session
from beanfield.frontend.timers import TimerHeap


def began(session: Session, seat: Seat, job_id: i64, deadline_ns: i64) -> None:
    """The owner has given this job to the session."""
    heap = session.deadlines
    if heap is None:
        heap = TimerHeap()
        session.deadlines = heap
    reservation = session.reservations.get(job_id)
    if reservation is None:
        reservation = Reservation(job_id, seat)
        session.reservations[job_id] = reservation
        seat.reserved_count += 1
    heap.schedule(reservation, deadline_ns)


def touched(session: Session, job_id: i64, deadline_ns: i64) -> None:
    """A new deadline; nothing if the reservation is over already."""
    reservation = session.reservations.get(job_id)
    heap = session.deadlines
    if reservation is None or heap is None:
        return
    heap.schedule(reservation, deadline_ns)


def over(session: Session, job_id: i64) -> None:
    """Ended in whatever way; may be said twice."""
    reservation = session.reservations.pop(job_id, None)
    if reservation is None:
        return
    reservation.seat.reserved_count -= 1
    assert reservation.seat.reserved_count >= 0
    heap = session.deadlines
    assert heap is not None
    heap.cancel(reservation)


def margin_ns(session: Session, now_ns: i64) -> i64:
    """When the margin begins: not later than now if the session is in it, NEVER_NS if no deadline lies ahead."""
    heap = session.deadlines
    if heap is None:
        return NEVER_NS
    while True:
        first_ns = heap.first_due_ns()
        if first_ns == NEVER_NS:
            return NEVER_NS
        if first_ns > now_ns:
            return first_ns - MARGIN_NS
        heap.pop_due(now_ns)


def in_margin(session: Session, now_ns: i64) -> bool:
    if len(session.reservations) == 0:
        return False
    return margin_ns(session, now_ns) <= now_ns


def held_beside(session: Session, seat: Seat) -> bool:
    """Whether the session holds a reservation anywhere but at this seat."""
    return len(session.reservations) > seat.reserved_count


def check_deadlines(session: Session) -> None:
    """Seats count what the table holds; every deadline that lies ahead is in the heap."""
    counted = 0
    for seat in session.seats:
        counted += seat.reserved_count
    assert counted == len(session.reservations)
    for job_id in session.reservations:
        reservation = session.reservations[job_id]
        assert reservation.job_id == job_id
        assert reservation.seat in session.seats
