"""Owners that go and come back: who is closed, what is parked, what is sent again and in which order."""

import pytest

from beanfield.frontend.slots import SLOT_RESTARTING, SLOT_UNAVAILABLE
from beanfield.ipc import frames
from tests.unit.frontend_driver import Frontend, S, made


def test_with_the_slot_of_default_down_all_else_works_and_default_is_attached_later() -> None:
    f = Frontend(slots=2)
    f.bring_down(0)
    client = f.open()
    f.say(client, b"use " + f.name_in(1) + b"\r\n")
    attach, use = f.frames(1)
    assert (attach.name, attach.flags) == ("ATTACH", 0)
    f.reply(use, slot=1)
    assert f.replies(client) == b"USING " + f.name_in(1) + b"\r\n"  # giving up default there is confirmed at once
    f.say(client, b"put 0 0 1 1\r\nx\r\n")
    f.reply(f.frame(1), b"INSERTED 2\r\n", slot=1)
    assert f.replies(client) == b"INSERTED 2\r\n"
    other = f.open()
    f.bring_up(0, 2)
    attach, watch, attach_other = f.frames(0)
    assert (attach.flags, watch.said) == (0, ("WATCH", b"default"))
    assert (attach_other.name, attach_other.flags) == ("ATTACH", frames.FLAG_DEFAULT)
    assert other == 2


def test_a_command_waits_for_its_slot_and_goes_when_it_is_back() -> None:
    f = Frontend()
    client = f.open()
    f.bring_down(0)
    assert f.say(client, b"put 0 0 1 1\r\nx\r\nlist-tube-used\r\n") == b""
    f.pass_time(9 * S)
    f.frames()
    f.bring_up(0, 2)
    attach, put = f.frames()
    assert (attach.name, put.name) == ("ATTACH", "PUT")
    f.reply(put, b"INSERTED 1\r\n")
    assert f.replies(client) == b"INSERTED 1\r\nUSING default\r\n"


def test_after_the_slot_wait_a_parked_command_is_answered_and_the_next_one_has_its_own_time() -> None:
    f = Frontend()
    client = f.open()
    f.bring_down(0)
    f.say(client, b"put 0 0 1 1\r\nx\r\n")
    f.pass_time(4 * S)
    f.say(client, b"delete 1\r\ndelete 2\r\n")
    f.pass_time(6 * S)
    assert f.replies(client) == b"INTERNAL_ERROR\r\n"
    f.pass_time(4 * S - 1)
    assert f.replies(client) == b""
    f.pass_time(1)
    assert f.replies(client) == b"INTERNAL_ERROR\r\n" * 2


@pytest.mark.parametrize("unavailable", [True, False])
def test_nothing_waits_for_a_slot_that_cannot_start_or_with_a_slot_wait_of_0(unavailable: bool) -> None:
    f = Frontend(slot_wait_ns=10 * S if unavailable else 0)
    client = f.open()
    f.bring_down(0)
    if unavailable:
        f.core.slot_state(0, SLOT_UNAVAILABLE, f.now)
    assert f.say(client, b"put 0 0 1 1\r\nx\r\nwatch a\r\nreserve\r\nlist-tubes\r\n") == b"INTERNAL_ERROR\r\n" * 4
    assert f.say(client, b"stats\r\n").startswith(b"OK ")


def test_parked_commands_are_answered_when_the_slot_turns_out_unable_to_start() -> None:
    f = Frontend()
    client = f.open()
    f.bring_down(0)
    f.core.slot_state(0, SLOT_RESTARTING, f.now)
    assert f.say(client, b"kick 1\r\n") == b""
    f.core.slot_state(0, SLOT_UNAVAILABLE, f.now)
    f.turn()
    assert f.replies(client) == b"INTERNAL_ERROR\r\n"


def test_a_client_that_leaves_takes_its_parked_command_with_it() -> None:
    f = Frontend()
    client = f.open()
    f.bring_down(0)
    f.say(client, b"put 0 0 1 1\r\nx\r\n")
    f.end(client)
    assert client in f.closed
    f.frames()
    f.bring_up(0, 2)
    assert f.frames() == []


@pytest.mark.parametrize(
    "line",
    [b"put 0 0 1 1\r\nx", b"delete 5", b"release 5 1 1", b"bury 5 1", b"touch 5", b"kick 1", b"kick-job 5",
     b"pause-tube a 1", b"reserve-job 5"],
)  # fmt: skip
def test_an_unanswered_mutation_closes_its_session(line: bytes) -> None:
    f = Frontend()
    client = f.open()
    other = f.open()
    f.say(client, line + b"\r\n")
    handle = f.handles[0]
    f.bring_down(0)
    assert f.closed == [handle, client]
    assert f.say(other, b"list-tube-used\r\n") == b"USING default\r\n"


def test_a_session_with_a_reservation_at_the_lost_owner_is_closed() -> None:
    f = Frontend(slots=2)
    holder, other = f.open(), f.open()
    f.holding(holder, f.id_in(1), slot=1)
    f.holding(other, f.id_in(0))
    f.bring_down(1)
    assert holder in f.closed and other not in f.closed
    assert [frame.name for frame in f.frames(0)][-1] == "DETACH"


def test_a_reservation_that_was_answered_as_ended_closes_nobody() -> None:
    f = Frontend()
    client = f.open()
    for ending in (b"delete 5", b"release 5 1 0", b"bury 5 1"):
        f.holding(client, 5)
        f.frames()
        f.say(client, ending + b"\r\n")
        f.reply(f.frame(), b"DONE\r\n", frames.FLAG_ENDED)
        assert f.replies(client) == b"DONE\r\n"
    f.holding(client, 5)
    f.deliver(0, made(frames.EXPIRED, 1, 0, (5,)))
    f.bring_down(0)
    assert client not in f.closed


@pytest.mark.parametrize(
    ("line", "name"),
    [(b"use a", "USE"), (b"watch a", "WATCH"), (b"peek 1", "PEEK"), (b"peek-ready", "PEEK_READY"),
     (b"stats-job 1", "STATS_JOB"), (b"stats-tube a", "STATS_TUBE"), (b"list-tubes", "LIST_TUBES")],
)  # fmt: skip
def test_an_unanswered_command_that_changes_nothing_is_sent_again(line: bytes, name: str) -> None:
    f = Frontend()
    client = f.open()
    f.say(client, line + b"\r\n")
    f.frames()
    f.bring_down(0)
    assert f.replies(client) == b""
    f.bring_up(0, 2)
    attach, again = f.frames()
    assert (attach.name, again.name, client in f.closed) == ("ATTACH", name, False)


def test_giving_up_a_reference_on_a_lost_slot_is_confirmed_at_once() -> None:
    f = Frontend(slots=2)
    client = f.open()
    f.watch(client, f.name_in(1))
    f.frames(1)
    f.say(client, b"ignore " + f.name_in(1) + b"\r\n")
    assert f.frame(1).name == "IGNORE"
    f.bring_down(1)
    assert f.replies(client) == b"WATCHING 1\r\n"
    f.bring_up(1, 2)
    assert f.frames(1) == []


def test_stats_goes_to_the_next_slot_when_the_asked_one_is_lost() -> None:
    f = Frontend(slots=2)
    client = f.open()
    f.say(client, b"stats\r\n")
    assert f.frames(0)[-1].name == "STATS"
    f.bring_down(0)
    stats = f.frames(1)[-1]
    assert stats.name == "STATS"
    f.bring_down(1)
    assert f.replies(client).startswith(b"OK ")


def test_references_come_first_then_what_had_been_sent_then_what_was_parked_in_the_order_of_the_connections() -> None:
    f = Frontend(slots=2)
    clients = [f.open() for _ in range(3)]
    for client in clients:
        f.watch(client, f.name_in(1))
    f.say(clients[2], b"stats-tube " + f.name_in(1) + b"\r\n")
    f.frames(1)
    f.bring_down(1)
    f.say(clients[1], b"delete %d\r\n" % f.id_in(1, 1))
    f.say(clients[0], b"delete %d\r\n" % f.id_in(1, 0))
    f.bring_up(1, 2)
    told = f.frames(1)
    assert [frame.name for frame in told] == ["ATTACH", "WATCH"] * 3
    assert [frame.session for frame in told if frame.name == "ATTACH"] == [1, 2, 3]
    f.reply(told[1], slot=1)
    f.reply(told[3], slot=1)
    assert f.frames(1) == []
    f.reply(told[5], slot=1)
    assert [(frame.name, frame.session) for frame in f.frames(1)] == [("STATS_TUBE", 3), ("DELETE", 1), ("DELETE", 2)]


def test_a_client_that_goes_while_references_are_made_again_does_not_keep_the_link_waiting() -> None:
    f = Frontend(slots=2)
    client, other = f.open(), f.open()
    f.watch(client, f.name_in(1))
    f.bring_down(1)
    f.say(other, b"delete %d\r\n" % f.id_in(1))
    f.frames(1)
    f.bring_up(1, 2)
    f.frames(1)
    f.core.client_failed(client, f.now)
    f.turn()
    f.core.link_unsent(f.handles[1], 0, f.now)
    f.turn()
    assert [frame.name for frame in f.frames(1)] == ["DETACH", "ATTACH", "DELETE"]


def test_a_second_link_replaces_the_first_as_if_the_owner_had_gone() -> None:
    f = Frontend()
    client, idle = f.open(), f.open()
    f.say(client, b"delete 5\r\n")
    first = f.handles[0]
    f.frames()
    f.bring_up(0)
    assert f.closed == [first, client]
    assert [frame.name for frame in f.frames()] == ["ATTACH"]
    assert idle not in f.closed


def test_use_across_owners_ends_when_the_old_owner_is_lost() -> None:
    f = Frontend(slots=2)
    client = f.open()
    f.say(client, b"use " + f.name_in(1) + b"\r\n")
    f.reply(f.frames(1)[-1], slot=1)
    assert f.frames(0)[-1].name == "UNUSE"
    f.bring_down(0)
    assert f.replies(client) == b"USING " + f.name_in(1) + b"\r\n"
