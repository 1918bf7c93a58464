"""Reserve while slots are down or come back: who is left out, what is asked again, and when the answer is an error."""

from beanfield.frontend.slots import SLOT_UNAVAILABLE
from beanfield.ipc import frames
from tests.unit.frontend_driver import Frontend, S, asked, cancelled, empty, offer, two_owners


def test_an_owner_that_is_down_is_left_out_and_asked_when_it_is_back() -> None:
    f, client = two_owners()
    f.bring_down(1)
    f.say(client, b"reserve\r\n")
    first = f.frame(0)
    empty(f, first, 0)
    f.pass_time(60 * S)
    assert f.replies(client) == b""
    f.bring_up(1, 2)
    attach, watch = f.frames(1)
    assert (attach.name, watch.said) == ("ATTACH", ("WATCH", f.name_in(1)))
    f.reply(watch, slot=1)
    ask = f.frame(1)
    assert ask.name == "ASK"
    offer(f, ask, 1, 1, f.id_in(1), 1)
    assert f.frame(1).name == "TAKE"


def test_a_time_out_waits_for_the_word_of_a_slot_that_is_down() -> None:
    f, client = two_owners()
    f.bring_down(1)
    f.say(client, b"reserve-with-timeout 1\r\n")
    first = f.frame(0)
    empty(f, first, 0)
    f.pass_time(3 * S)
    assert f.replies(client) == b""
    f.bring_up(1, 2)
    f.reply(f.frames(1)[-1], slot=1)
    ask = f.frame(1)
    assert ask.flags == frames.FLAG_NOWAIT
    empty(f, ask, 1)
    assert (f.frame(0).name, f.frame(1).name) == ("LAST", "LAST")
    cancelled(f, first, 0)
    cancelled(f, ask, 1)
    assert f.replies(client) == b"TIMED_OUT\r\n"


def test_with_all_slots_down_a_reserve_ends_after_the_slot_wait() -> None:
    f, client = two_owners()
    f.bring_down(0)
    f.bring_down(1)
    f.say(client, b"reserve\r\n")
    f.pass_time(10 * S - 1)
    assert f.replies(client) == b""
    f.pass_time(1)
    assert f.replies(client) == b"INTERNAL_ERROR\r\n"


def test_slots_that_cannot_start_are_not_waited_for() -> None:
    f, client = two_owners()
    f.bring_down(1)
    f.core.slot_state(1, SLOT_UNAVAILABLE, f.now)
    f.say(client, b"reserve-with-timeout 0\r\n")
    first = f.frame(0)
    empty(f, first, 0)
    assert f.replies(client) == b"INTERNAL_ERROR\r\n"
    f.say(client, b"reserve\r\n")
    f.frames(0)
    f.bring_down(0)
    assert f.replies(client) == b""
    f.core.slot_state(0, SLOT_UNAVAILABLE, f.now)
    f.turn()
    assert f.replies(client) == b"INTERNAL_ERROR\r\n"


def test_an_owner_lost_under_take_is_left_out_and_the_next_offer_taken() -> None:
    f, client = two_owners()
    f.say(client, b"reserve\r\n")
    first, second = asked(f)
    offer(f, first, 1, 1, f.id_in(0), 0)
    offer(f, second, 2, 1, f.id_in(1), 1)
    assert f.frame(0).name == "TAKE"
    f.bring_down(0)
    take = f.frame(1)
    assert take.name == "TAKE"
    f.reserved(take, f.id_in(1), slot=1)
    assert f.replies(client)[:8] == b"RESERVED"


def test_a_reserve_of_one_owner_is_sent_again_with_the_time_it_has_left() -> None:
    f = Frontend()
    client = f.open()
    f.frames()
    f.say(client, b"reserve-with-timeout 5\r\n")
    f.frames()
    f.pass_time(2 * S)
    f.bring_down(0)
    f.pass_time(1 * S)
    f.bring_up(0, 2)
    attach, reserve = f.frames(0)
    assert (attach.flags, reserve.name) == (frames.FLAG_DEFAULT, "RESERVE")
    f.pass_time(2 * S)
    cancelled(f, f.frame(), 0)
    assert f.replies(client) == b"TIMED_OUT\r\n"


def test_a_run_that_was_lost_goes_on_one_by_one() -> None:
    f = Frontend()
    client = f.open()
    f.frames()
    f.say(client, b"reserve\r\nreserve\r\n")
    assert f.frame().name == "RESERVE_RUN"
    f.bring_down(0)
    f.bring_up(0, 2)
    reserve = f.frames()[-1]
    assert reserve.name == "RESERVE"
    f.reserved(reserve, 1)
    assert f.frame().name == "RESERVE"


def test_the_word_of_a_silent_single_owner_is_left_behind_after_the_slot_wait() -> None:
    """INTERNAL_ERROR although a grant may be on its way: a new session number makes sure that it returns."""
    f = Frontend(slot_wait_ns=2 * S)
    client = f.open()
    f.frames()
    f.say(client, b"reserve-with-timeout 1\r\n")
    reserve = f.frame()
    f.pass_time(1 * S)
    assert f.frame().name == "LAST"
    f.pass_time(2 * S)
    detach, attach = f.frames()
    assert (detach.name, detach.session, attach.name, attach.session) == ("DETACH", 1, "ATTACH", 2)
    assert f.replies(client) == b"INTERNAL_ERROR\r\n"
    f.reserved(reserve, 1)
    assert f.replies(client) == b""
