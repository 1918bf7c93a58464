"""Back-pressure and budgets: nothing a peer does or fails to do makes a frontend's memory grow without bound."""

import pytest

from beanfield.constants import (
    CHUNK_BYTES,
    CLIENT_INPUT_BYTES_MAX,
    CLIENT_UNSENT_BYTES_MAX,
    LINK_UNSENT_BYTES_HIGH,
    LINK_UNSENT_BYTES_LOW,
    RECENT_SEATS,
)
from beanfield.ipc import frames
from tests.unit.frontend_driver import Frame, Frontend, S, made, piece


def test_a_large_body_goes_in_pieces_one_a_turn_with_other_sessions_between() -> None:
    f = Frontend(job_bytes_max=1_000_000)
    client, other = f.open(), f.open()
    f.frames()
    body = bytes(range(256)) * 800
    f.core.client_received(client, b"put 3 0 4 %d\r\n%b\r\n" % (len(body), body), f.now)
    f.core.client_received(other, b"delete 5\r\n", f.now)
    f.one_turn()
    f.core.client_received(other, b"delete 6\r\n", f.now)
    f.turn()
    told = f.frames()
    assert [frame.name for frame in told] == ["DELETE", "PUT_PART", "DELETE", "PUT_PART", "PUT_PART", "PUT"]
    assert [frame.fields for frame in told if frame.name == "PUT_PART"] == [(len(body),)] * 3
    assert b"".join(frame.body for frame in told) == body
    assert told[-1].fields == (3, 0, 4 * S)
    f.reply(told[-1], b"INSERTED 1\r\n")
    assert f.replies(client) == b"INSERTED 1\r\n"


def test_a_large_body_waits_for_the_answers_before_it_and_nothing_waits_for_its_own() -> None:
    f = Frontend(job_bytes_max=1_000_000)
    client = f.open()
    f.frames()
    f.say(client, b"kick 9\r\nput 0 0 10 200000\r\n" + b"b" * 200_000 + b"\r\ndelete 1\r\n")
    kick = f.frame()
    assert kick.name == "KICK"
    f.reply(kick, b"KICKED 9\r\n")
    assert [frame.name for frame in f.frames()] == ["PUT_PART", "PUT_PART", "PUT_PART", "PUT", "DELETE"]


def test_a_put_in_pieces_begins_anew_when_its_owner_is_lost_before_the_end() -> None:
    f = Frontend(job_bytes_max=1_000_000)
    client = f.open()
    f.frames()
    f.core.client_received(client, b"put 0 0 4 200000\r\n" + b"x" * 200_000 + b"\r\n", f.now)
    f.one_turn()
    assert f.frame().name == "PUT_PART"
    f.bring_down(0)
    f.bring_up(0, 2)
    assert client not in f.closed
    told = f.frames()
    assert [frame.name for frame in told] == ["ATTACH", "PUT_PART", "PUT_PART", "PUT_PART", "PUT"]
    assert sum(len(frame.body) for frame in told) == 200_000


def test_a_large_reply_is_asked_for_piece_by_piece_as_the_client_takes_it() -> None:
    f = Frontend()
    client = f.open()
    f.frames()
    f.say(client, b"peek 1\r\nlist-tube-used\r\n")
    peek = f.frame()
    text = b"FOUND 1 150000\r\n" + b"y" * 150_000 + b"\r\n"
    f.core.client_unsent(client, 0, f.now)
    f.core.link_received(f.handles[0], _large(peek.session, peek.request, text), f.now)
    f.one_turn()
    assert f.frames() == []  # before the flush nobody knows what the client takes
    f.core.client_unsent(client, 10_000, f.now)
    f.turn()
    assert f.frames() == []
    f.core.client_unsent(client, 0, f.now)
    f.turn()
    more = f.frame()
    assert (more.name, more.request) == ("MORE", peek.request)
    f.deliver(0, piece(peek.session, peek.request, text[CHUNK_BYTES : 2 * CHUNK_BYTES]))
    assert f.frame().name == "MORE"
    f.deliver(0, piece(peek.session, peek.request, text[2 * CHUNK_BYTES :]))
    assert f.replies(client) == text + b"USING default\r\n"


def _large(session: int, request: int, text: bytes) -> bytes:
    return made(frames.LARGE, session, request, (len(text),), text[:CHUNK_BYTES])


def test_a_large_grant_begins_its_reservation_and_holds_the_session_until_its_end() -> None:
    f = Frontend()
    client = f.open()
    f.frames()
    f.say(client, b"reserve\r\ndelete 7\r\n")
    reserve = f.frame()
    text = b"RESERVED 7 100000\r\n" + b"z" * 100_000 + b"\r\n"
    f.answer(reserve, frames.RESERVED, (1, 7, 60 * S, len(text)), text[:CHUNK_BYTES], frames.FLAG_LARGE)
    assert f.frame().name == "MORE"
    f.deliver(0, piece(1, reserve.request, text[CHUNK_BYTES:]))
    assert f.replies(client) == text
    delete = f.frame()
    f.reply(delete, b"DELETED\r\n", frames.FLAG_ENDED)
    f.bring_down(0)
    assert client not in f.closed


@pytest.mark.parametrize("apart", [False, True])
def test_a_bare_grant_gets_its_last_line_end_here(apart: bool) -> None:
    f = Frontend()
    client = f.open()
    f.frames()
    f.say(client, b"reserve\r\nlist-tube-used\r\n")
    reserve = f.frame()
    body = b"z" * 5_000
    head = b"RESERVED 7 5000\r\n"
    whole = made(frames.RESERVED, reserve.session, reserve.request, (1, 7, 60 * S), head + body, frames.FLAG_BARE)
    if apart:
        # As the combined core hands it over: the body as a piece of its own.
        f.deliver(0, whole[: -len(body)])
        f.deliver(0, body)
    else:
        f.deliver(0, whole)
    assert f.replies(client) == head + body + b"\r\nUSING default\r\n"


@pytest.mark.parametrize(
    ("fields", "flags"),
    [((2, 7, 60 * S, 8, 60 * S), frames.FLAG_BARE), ((1, 7, 60 * S, 900), frames.FLAG_BARE | frames.FLAG_LARGE)],
)
def test_a_bare_grant_that_is_not_one_whole_reply_is_the_owners_fault(fields: tuple[int, ...], flags: int) -> None:
    f = Frontend()
    client = f.open()
    f.frames()
    f.say(client, b"reserve\r\n")
    reserve = f.frame()
    f.deliver(0, made(frames.RESERVED, reserve.session, reserve.request, fields, b"RESERVED 7 5\r\nabcde", flags))
    assert f.replies(client) == b""
    assert f.core.links[0].handle < 0


def test_a_reply_cut_off_in_the_middle_closes_its_session() -> None:
    f = Frontend()
    client = f.open()
    f.frames()
    f.say(client, b"peek 1\r\n")
    peek = f.frame()
    f.deliver(0, _large(peek.session, peek.request, b"FOUND 1 150000\r\n" + b"y" * 150_000 + b"\r\n"))
    f.bring_down(0)
    assert client in f.closed


def test_nothing_more_is_sent_for_a_client_that_does_not_read() -> None:
    f = Frontend()
    client = f.open()
    f.frames()
    f.core.client_unsent(client, CLIENT_UNSENT_BYTES_MAX + 1, f.now)
    assert f.say(client, b"delete 5\r\nlist-tube-used\r\n") == b""
    assert f.frames() == []
    f.core.client_unsent(client, CLIENT_UNSENT_BYTES_MAX, f.now)
    f.turn()
    assert f.frame().said == ("DELETE", 5)


def test_local_replies_of_one_turn_are_bounded_too() -> None:
    f = Frontend()
    client = f.open()
    names = [b"n%02d" % i + b"x" * 190 for i in range(20)]
    f.watch(client, *names)
    f.core.client_received(client, b"list-tubes-watched\r\n" * 3_000, f.now)
    f.one_turn()
    first = f.replies(client)
    assert CLIENT_UNSENT_BYTES_MAX < len(first) < CLIENT_UNSENT_BYTES_MAX + 8_192
    f.core.client_unsent(client, len(first), f.now)
    f.turn()
    assert f.replies(client) == b""
    assert client in f.paused
    f.core.client_unsent(client, 0, f.now)
    f.turn()
    assert (first + f.replies(client)).count(b"OK ") == 3_000
    assert client not in f.paused


def test_a_blocked_client_with_much_input_is_not_read_from_until_it_goes_on() -> None:
    f = Frontend()
    client = f.open()
    f.frames()
    f.say(client, b"reserve\r\n")
    reserve = f.frame()
    f.say(client, b"delete 5\r\n" * 100)
    assert client not in f.paused
    f.say(client, b"foo\r\n" * (CLIENT_INPUT_BYTES_MAX // 5))
    assert client in f.paused
    f.reserved(reserve, 1)
    for _ in range(2):
        told = f.frames()
        f.answer(told[0], frames.REPLY, (len(told),), b"NOT_FOUND\r\n" * len(told))
    assert client not in f.paused
    assert f.replies(client).count(b"UNKNOWN_COMMAND\r\n") == CLIENT_INPUT_BYTES_MAX // 5


def test_what_a_paused_client_sent_before_its_end_is_still_executed() -> None:
    f = Frontend()
    client = f.open()
    f.frames()
    f.say(client, b"reserve\r\n")
    reserve = f.frame()
    f.say(client, b"foo\r\n" * (CLIENT_INPUT_BYTES_MAX // 5 + 1))
    assert client in f.paused
    f.core.client_ended(client, f.now)
    f.one_turn()
    f.core.link_received(f.handles[0], _cancelled(reserve.session, reserve.request), f.now)
    f.one_turn()
    assert client not in f.paused and client not in f.closed
    f.core.client_received(client, b"list-tube-used\r\n", f.now)
    f.turn()
    assert f.replies(client).endswith(b"UNKNOWN_COMMAND\r\nUSING default\r\n")
    assert client in f.closed


def _cancelled(session: int, request: int) -> bytes:
    return made(frames.CANCELLED, session, request)


def test_commands_for_a_link_with_much_unsent_wait_until_it_is_below_the_low_mark() -> None:
    f = Frontend()
    client, other = f.open(), f.open()
    f.frames()
    f.core.link_unsent(f.handles[0], LINK_UNSENT_BYTES_HIGH + 1, f.now)
    f.say(client, b"delete 5\r\n")
    f.say(other, b"reserve\r\n")
    assert f.frames() == []
    f.core.link_unsent(f.handles[0], LINK_UNSENT_BYTES_LOW + 1, f.now)
    f.turn()
    assert f.frames() == []
    f.core.link_unsent(f.handles[0], LINK_UNSENT_BYTES_LOW, f.now)
    f.turn()
    assert [frame.name for frame in f.frames()] == ["DELETE", "RESERVE"]


def test_clients_that_come_wait_for_a_full_link_and_go_again_leave_nothing_behind() -> None:
    f = Frontend()
    stays = f.open()
    f.frames()
    f.core.link_unsent(f.handles[0], LINK_UNSENT_BYTES_HIGH + 1, f.now)
    f.say(stays, b"delete 5\r\n")
    for _ in range(20):
        client = f.open()
        f.say(client, b"put 0 0 10 1\r\nx\r\n")
        f.core.client_failed(client, f.now)
        f.turn()
    assert [session.handle for session in f.core.links[0].waiting_room.values()] == [stays]
    f.core.link_unsent(f.handles[0], 0, f.now)
    f.turn()
    assert [frame.name for frame in f.frames() if frame.name not in ("ATTACH", "DETACH")] == ["DELETE"]


def test_the_end_of_a_session_goes_to_a_full_link_all_the_same() -> None:
    f = Frontend()
    client = f.open()
    f.frames()
    f.core.link_unsent(f.handles[0], LINK_UNSENT_BYTES_HIGH + 1, f.now)
    f.say(client, b"delete 5\r\n")
    f.core.client_failed(client, f.now)
    f.turn()
    assert f.frame().name == "DETACH"
    f.core.link_unsent(f.handles[0], 0, f.now)
    f.turn()
    assert f.frames() == []


def test_beyond_the_body_budget_a_put_is_swallowed_and_answered_out_of_memory() -> None:
    f = Frontend(job_bytes_max=100_000, body_memory_bytes=100_000)
    first, second = f.open(), f.open()
    f.frames()
    f.say(first, b"put 0 0 1 90000\r\n" + b"x" * 60_000)
    f.say(second, b"put 0 0 1 90000\r\n" + b"y" * 50_000)
    assert f.say(second, b"y" * 40_000 + b"\r\nlist-tube-used\r\n") == b"OUT_OF_MEMORY\r\nUSING default\r\n"
    f.say(first, b"x" * 30_000 + b"\r\n")
    assert [frame.name for frame in f.frames()] == ["PUT_PART", "PUT"]
    assert (f.core.body_bytes, f.core.counters.cmd_put, f.core.counters.producers) == (0, 2, 2)


def test_announced_bytes_cost_nothing_and_a_client_that_goes_gives_its_share_back() -> None:
    f = Frontend(job_bytes_max=100_000, body_memory_bytes=100_002)
    clients = [f.open() for _ in range(5)]
    for client in clients:
        f.say(client, b"put 0 0 1 100000\r\n")
    assert f.core.body_bytes == 0
    f.say(clients[0], b"x" * 70_000)
    assert f.core.body_bytes == 70_000
    f.core.client_failed(clients[0], f.now)
    f.turn()
    assert f.core.body_bytes == 0


def test_bodies_that_a_link_has_not_taken_count_in_the_budget() -> None:
    f = Frontend(job_bytes_max=100_000, body_memory_bytes=100_002)
    client = f.open()
    f.frames()
    f.core.link_unsent(f.handles[0], 90_000, f.now)
    f.say(client, b"put 0 0 1 50000\r\n" + b"x" * 20_000)
    assert f.say(client, b"x" * 30_000 + b"\r\n") == b"OUT_OF_MEMORY\r\n"


def test_whole_bodies_that_wait_for_their_slot_stay_within_the_budget() -> None:
    f = Frontend(job_bytes_max=60_000, body_memory_bytes=100_000)
    clients = [f.open() for _ in range(4)]
    f.frames()
    f.bring_down(0)
    body = b"x" * 40_000
    replies = [f.say(client, b"put 0 0 1 40000\r\n%b\r\n" % body) for client in clients]
    assert replies == [b"", b"", b"OUT_OF_MEMORY\r\n", b"OUT_OF_MEMORY\r\n"]
    assert f.core.body_bytes == 80_000
    f.bring_up(0, 2)
    assert [frame.name for frame in f.frames()].count("PUT") == 2
    assert f.core.body_bytes == 0


def test_sessions_whose_numbers_share_a_place_are_told_apart() -> None:
    f = Frontend()
    clients = [f.open() for _ in range(RECENT_SEATS + 1)]
    f.frames()
    first, last = clients[0], clients[-1]
    for client in (first, last, first, last):
        f.say(client, b"peek 9\r\n")
        f.reply(f.frame(), b"FOUND %d\r\n" % client)
        assert f.replies(client) == b"FOUND %d\r\n" % client
    f.say(last, b"peek 9\r\n")
    asked = f.frame()
    f.say(first, b"quit\r\n")  # detaches the one whose place the other stands in
    assert [frame.name for frame in f.frames()] == ["DETACH"]
    f.reply(asked, b"NOT_FOUND\r\n")
    assert f.replies(last) == b"NOT_FOUND\r\n"
    f.reply(Frame("", 0, 1, asked.request, (), b""), b"late\r\n")  # of a session that has ended: dropped
    f.say(last, b"peek 9\r\n")
    f.reply(f.frame(), b"NOT_FOUND\r\n")
    assert f.replies(last) == b"NOT_FOUND\r\n"
