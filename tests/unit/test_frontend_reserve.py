"""Reserve over one owner and over several: docs/ipc.md, rule by rule, from the frontend's side."""

from beanfield.constants import ASK_NS, LAST_WORD_NS
from beanfield.ipc import frames
from tests.unit.frontend_driver import MS, Frontend, S, asked, cancelled, empty, made, offer, two_owners

# ---------------------------------------------------------------- one owner


def test_one_owner_is_told_to_grant_and_its_text_is_the_reply() -> None:
    f = Frontend()
    client = f.open()
    f.frames()
    assert f.say(client, b"reserve\r\n") == b""
    reserve = f.frame()
    assert (reserve.name, reserve.flags, f.core.counters.waiting) == ("RESERVE", 0, 1)
    text = f.reserved(reserve, 1)
    assert f.replies(client) == text
    assert (f.core.counters.waiting, f.core.counters.workers, f.core.counters.cmd_reserve) == (0, 1, 1)


def test_a_time_out_asks_for_the_last_word_and_waits_for_it() -> None:
    f = Frontend()
    client = f.open()
    f.frames()
    f.say(client, b"reserve-with-timeout 2\r\n")
    f.frames()
    f.pass_time(2 * S - 1)
    assert f.frames() == []
    f.pass_time(1)
    last = f.frame()
    assert (last.name, f.replies(client)) == ("LAST", b"")
    cancelled(f, last, 0)
    assert f.replies(client) == b"TIMED_OUT\r\n"


def test_a_grant_in_flight_wins_over_the_time_out() -> None:
    f = Frontend()
    client = f.open()
    f.frames()
    f.say(client, b"reserve-with-timeout 1\r\n")
    reserve = f.frame()
    f.pass_time(1 * S)
    assert f.frame().name == "LAST"
    assert f.reserved(reserve, 4) == f.replies(client)


def test_timeout_0_is_one_frame_that_may_not_wait() -> None:
    f = Frontend()
    client = f.open()
    f.frames()
    f.say(client, b"reserve-with-timeout 0\r\n")
    reserve = f.frame()
    assert (reserve.name, reserve.flags, f.core.counters.waiting) == ("RESERVE", frames.FLAG_NOWAIT, 0)
    cancelled(f, reserve, 0)
    assert f.replies(client) == b"TIMED_OUT\r\n"


def test_in_the_margin_a_reserve_may_not_wait_and_ends_in_deadline_soon() -> None:
    f = Frontend()
    client = f.open()
    f.holding(client, 5, ttr_ns=1 * S)
    f.frames()
    f.say(client, b"reserve-with-timeout 0\r\n")
    reserve = f.frame()
    assert reserve.flags == frames.FLAG_NOWAIT
    cancelled(f, reserve, 0)
    assert f.replies(client) == b"DEADLINE_SOON\r\n"


def test_a_waiting_reserve_ends_when_the_margin_begins() -> None:
    f = Frontend()
    client = f.open()
    f.holding(client, 5, ttr_ns=3 * S)
    f.frames()
    f.say(client, b"reserve\r\n")
    f.frames()
    f.pass_time(2 * S - 1)
    assert f.frames() == []
    f.pass_time(1)
    cancelled(f, f.frame(), 0)
    assert f.replies(client) == b"DEADLINE_SOON\r\n"


def test_a_reserve_goes_on_when_the_reservation_that_began_the_margin_is_over() -> None:
    f = Frontend()
    client = f.open()
    f.holding(client, 5, ttr_ns=3 * S)
    f.frames()
    f.say(client, b"reserve\r\n")
    f.frames()
    f.pass_time(2 * S)
    last = f.frame()
    f.deliver(0, made(frames.EXPIRED, last.session, 0, (5,)))
    cancelled(f, last, 0)
    again = f.frame()
    assert (again.name, again.flags, f.replies(client)) == ("RESERVE", 0, b"")


def test_half_close_gives_the_waiting_reserve_its_last_word_then_executes_the_rest() -> None:
    f = Frontend()
    client = f.open()
    f.frames()
    f.say(client, b"reserve\r\nreserve\r\nlist-tube-used\r\n")
    run = f.frame()
    assert run.name == "RESERVE_RUN"
    cancelled(f, run, 0)
    first = f.frame()
    f.end(client)
    last = f.frame()
    assert (first.name, last.name, last.request) == ("RESERVE", "LAST", first.request)
    cancelled(f, last, 0)
    second = f.frame()
    assert (second.name, second.flags) == ("RESERVE", frames.FLAG_NOWAIT)
    text = f.reserved(second, 9)
    assert f.replies(client) == b"TIMED_OUT\r\n" + text + b"USING default\r\n"
    assert (f.closed, f.frame().name) == ([client], "DETACH")


def test_pipelined_reserves_travel_as_a_run_and_go_on_one_by_one() -> None:
    f = Frontend()
    client = f.open()
    f.frames()
    f.say(client, b"reserve\r\n" * 3 + b"reserve-with-timeout 5\r\nlist-tube-used\r\n")
    run = f.frame()
    assert run.said == ("RESERVE_RUN", 4)
    text = b"RESERVED 1 1\r\na\r\nRESERVED 2 1\r\nb\r\n"
    f.answer(run, frames.RESERVED, (2, 1, 60 * S, 2, 60 * S), text)
    assert f.replies(client) == text
    third = f.frame()
    assert third.name == "RESERVE"
    f.pass_time(20 * S)
    assert f.frames() == []
    text = f.reserved(third, 3)
    fourth = f.frame()
    f.pass_time(5 * S - 1)
    assert (fourth.name, f.frames()) == ("RESERVE", [])
    f.pass_time(1)
    cancelled(f, f.frame(), 0)
    assert f.replies(client) == text + b"TIMED_OUT\r\nUSING default\r\n"
    assert f.core.counters.cmd_reserve == 3 and f.core.counters.cmd_reserve_with_timeout == 1


def test_a_run_that_was_granted_whole_is_followed_by_another_run() -> None:
    f = Frontend()
    client = f.open()
    f.frames()
    for job_id in (1, 3):
        f.say(client, b"reserve\r\nreserve\r\n")
        run = f.frame()
        assert run.said == ("RESERVE_RUN", 2)
        f.answer(run, frames.RESERVED, (2, job_id, 60 * S, job_id + 1, 60 * S), b"text")
        assert f.replies(client) == b"text"


def test_a_grant_for_a_client_that_is_gone_is_returned_by_the_detach_behind() -> None:
    f = Frontend()
    client = f.open()
    f.frames()
    f.say(client, b"reserve\r\n")
    reserve = f.frame()
    f.core.client_failed(client, f.now)
    f.turn()
    assert f.frame().name == "DETACH"
    f.reserved(reserve, 1)
    assert (f.core.counters.waiting, f.replies(client)) == (0, b"")


# ---------------------------------------------------------------- several owners


def test_the_smallest_offer_is_taken_and_the_others_dropped_when_it_is_granted() -> None:
    f, client = two_owners()
    f.say(client, b"reserve\r\n")
    first, second = asked(f)
    offer(f, first, 5, 100, f.id_in(0), 0)
    assert (f.frames(0), f.frames(1)) == ([], [])
    offer(f, second, 5, 90, f.id_in(1), 1)
    take = f.frame(1)
    assert (take.said, take.request) == (("TAKE", 5, 90, f.id_in(1)), second.request)
    assert f.frames(0) == []
    text = f.reserved(take, f.id_in(1), slot=1)
    assert (f.replies(client), f.frame(0).name, f.frames(1)) == (text, "DROP", [])


def test_a_new_offer_in_answer_to_take_goes_back_to_the_choice() -> None:
    f, client = two_owners()
    f.say(client, b"reserve\r\n")
    first, second = asked(f)
    offer(f, first, 1, 1, f.id_in(0), 0)
    offer(f, second, 2, 1, f.id_in(1), 1)
    assert f.frame(0).name == "TAKE"
    offer(f, first, 3, 1, f.id_in(0, 1), 0)
    assert (f.frames(0), f.frame(1).name) == ([], "TAKE")
    empty(f, second, 1)
    assert f.frame(0).said == ("TAKE", 3, 1, f.id_in(0, 1))


def test_while_waiting_the_first_offer_is_taken_at_once() -> None:
    f, client = two_owners()
    f.say(client, b"reserve\r\n")
    first, second = asked(f)
    empty(f, first, 0)
    empty(f, second, 1)
    assert f.core.counters.waiting == 1
    offer(f, second, 9, 9, f.id_in(1), 1)
    take = f.frame(1)
    offer(f, first, 1, 1, f.id_in(0), 0)
    assert f.frames(0) == []
    f.reserved(take, f.id_in(1), slot=1)
    assert (f.replies(client)[:8], f.frame(0).name) == (b"RESERVED", "DROP")


def test_timed_out_comes_only_after_every_last_word() -> None:
    f, client = two_owners()
    f.say(client, b"reserve-with-timeout 0\r\n")
    first, second = asked(f)
    assert first.flags == second.flags == frames.FLAG_NOWAIT
    empty(f, first, 0)
    assert (f.frames(0), f.frames(1)) == ([], [])
    empty(f, second, 1)
    assert (f.frame(0).name, f.frame(1).name) == ("LAST", "LAST")
    cancelled(f, first, 0)
    assert f.replies(client) == b""
    cancelled(f, second, 1)
    assert f.replies(client) == b"TIMED_OUT\r\n"


def test_an_offer_after_last_is_taken_at_once_and_wins() -> None:
    f, client = two_owners()
    f.say(client, b"reserve-with-timeout 0\r\n")
    first, second = asked(f)
    empty(f, first, 0)
    empty(f, second, 1)
    f.frames(0)
    f.frames(1)
    cancelled(f, first, 0)
    offer(f, second, 1, 1, f.id_in(1), 1)
    take = f.frame(1)
    assert take.name == "TAKE"
    text = f.reserved(take, f.id_in(1), slot=1)
    assert (f.replies(client), f.frames(0)) == (text, [])


def test_a_last_word_with_again_is_no_ground_for_timed_out() -> None:
    f, client = two_owners()
    f.say(client, b"reserve-with-timeout 0\r\n")
    first, second = asked(f)
    empty(f, first, 0)
    empty(f, second, 1)
    f.frames(0)
    f.frames(1)
    cancelled(f, first, 0, frames.FLAG_AGAIN)
    cancelled(f, second, 1)
    third, fourth = asked(f)
    assert (f.replies(client), third.request, fourth.request) == (b"", first.request + 1, second.request + 1)


def test_words_for_an_ended_request_are_dropped() -> None:
    f, client = two_owners()
    f.say(client, b"reserve\r\n")
    first, second = asked(f)
    offer(f, first, 1, 1, f.id_in(0), 0)
    empty(f, second, 1)
    f.reserved(f.frame(0), f.id_in(0))
    assert f.frame(1).name == "DROP"
    offer(f, second, 1, 1, f.id_in(1), 1)
    assert (f.frames(1), f.core.links[1].is_up()) == ([], True)


def test_a_silent_owner_is_left_out_and_not_waited_for_again_until_it_speaks() -> None:
    f, client = two_owners()
    f.pass_time(1)
    f.say(client, b"reserve\r\n")
    first, second = asked(f)
    offer(f, first, 7, 7, f.id_in(0), 0)
    f.pass_time(ASK_NS - 1)
    assert f.frames(0) == []
    f.pass_time(1)
    take = f.frame(0)
    assert take.name == "TAKE"
    f.reserved(take, f.id_in(0))
    assert f.frame(1).name == "DROP"
    f.replies(client)
    f.say(client, b"reserve\r\n")
    third, _ = asked(f)
    offer(f, third, 7, 7, f.id_in(0, 1), 0)
    assert f.frame(0).name == "TAKE"  # at once
    assert f.core.links[1].silent
    empty(f, second, 1)  # of the request before; but it speaks
    assert not f.core.links[1].silent


def test_time_out_with_a_missing_word_still_takes_offers_and_ends_in_internal_error() -> None:
    f, client = two_owners(slot_wait_ns=2 * S)
    f.say(client, b"reserve-with-timeout 1\r\n")
    first, _ = asked(f)
    empty(f, first, 0)
    f.pass_time(1 * S + 500 * MS)
    assert (f.frames(0), f.replies(client)) == ([], b"")  # no LAST: the waiter at the other owner stays
    f.pass_time(1 * S + 499 * MS)
    assert f.replies(client) == b""
    f.pass_time(1 * MS)
    assert f.replies(client) == b"INTERNAL_ERROR\r\n"
    assert (f.frame(0).name, f.frame(1).name) == ("DROP", "DROP")


def test_last_words_that_stay_away_make_the_frontend_ask_anew() -> None:
    f, client = two_owners()
    f.say(client, b"reserve-with-timeout 1\r\n")
    first, second = asked(f)
    empty(f, first, 0)
    empty(f, second, 1)
    f.pass_time(1 * S)
    assert (f.frame(0).name, f.frame(1).name) == ("LAST", "LAST")
    cancelled(f, first, 0)
    f.pass_time(LAST_WORD_NS)
    again = f.frame(0)
    drop, ask = f.frames(1)
    assert (again.name, drop.name, ask.name) == ("ASK", "DROP", "ASK")
    offer(f, again, 1, 1, f.id_in(0), 0)
    assert f.frame(0).name == "TAKE"  # the silent owner is not waited for


def test_deadline_soon_waits_100_ms_for_missing_words() -> None:
    f, client = two_owners()
    f.holding(client, f.id_in(0), ttr_ns=1 * S)
    f.frames(0)
    f.say(client, b"reserve\r\n")
    first, _ = asked(f)
    empty(f, first, 0)
    f.pass_time(ASK_NS - 1)
    assert f.replies(client) == b""
    f.pass_time(1)
    assert f.replies(client) == b"DEADLINE_SOON\r\n"


def test_a_session_that_holds_a_job_elsewhere_asks_even_one_owner() -> None:
    """Its DEADLINE_SOON must not depend on the owner that it waits for: only TAKE grants, so DROP is always safe."""
    f = Frontend(slots=2)
    client = f.open()
    f.holding(client, f.id_in(1), ttr_ns=2 * S, slot=1)
    f.frames(0)
    f.say(client, b"reserve\r\n")
    ask = f.frame(0)
    assert ask.name == "ASK"
    empty(f, ask, 0)
    f.pass_time(1 * S)
    assert f.frame(0).name == "LAST"
    f.pass_time(ASK_NS)
    assert (f.replies(client), f.frame(0).name) == (b"DEADLINE_SOON\r\n", "DROP")


def test_a_pipelined_reserve_counts_when_its_turn_comes() -> None:
    f = Frontend()
    client = f.open()
    f.frames()
    f.say(client, b"reserve-with-timeout 5\r\nreserve\r\nreserve\r\n")
    run = f.frame()
    assert run.name == "RESERVE_RUN"
    assert (f.core.counters.cmd_reserve, f.core.counters.cmd_reserve_with_timeout) == (0, 0)
    f.reserved(run, 1)  # one of three
    assert (f.core.counters.cmd_reserve, f.core.counters.cmd_reserve_with_timeout) == (1, 1)
    f.reserved(f.frame(), 2)
    assert (f.core.counters.cmd_reserve, f.core.counters.cmd_reserve_with_timeout) == (2, 1)
