"""Makes a session's references in one slot again: after its link came back, or to leave an unanswered request behind.

References live in the session; nothing is remembered of what an earlier link had been told. The answers are counted,
not looked at: an owner that cannot make a reference answers the commands that need it.
"""

from beanfield.constants import DEFAULT_TUBE
from beanfield.frontend.session import Seat
from beanfield.frontend.state import NO_FLAGS, FrontendState
from beanfield.ipc.codec import write_body, write_plain
from beanfield.ipc.frames import DETACH, USE, WATCH


def make_again(state: FrontendState, seat: Seat) -> None:
    """ATTACH, USE, WATCH*; nothing for a seat without references, which is attached when it is needed."""
    session = seat.session
    if not seat.uses and seat.watch_count == 0:
        return
    with_default = state.attach(seat)
    if seat.uses and not with_default:
        _ask(seat, USE, session.use_name)
    for name in session.watched:
        if session.watched[name] is seat and not (with_default and name == DEFAULT_TUBE):
            _ask(seat, WATCH, name)


def leave_behind(state: FrontendState, seat: Seat) -> None:
    """A new number on the same link: whatever is unanswered under the old one returns to where it came from."""
    assert seat.number != 0 and seat.reserved_count == 0
    link = seat.link
    write_plain(link.writer, DETACH, NO_FLAGS, seat.number, 0)
    link.detach(seat)
    link.restoring_count -= seat.restoring_count
    seat.restoring_count = 0
    make_again(state, seat)


def _ask(seat: Seat, opcode: int, name: bytes) -> None:
    link = seat.link
    write_body(link.writer, opcode, NO_FLAGS, seat.number, seat.next_request, name)
    seat.next_request += 1
    seat.restoring_count += 1
    link.restoring_count += 1
