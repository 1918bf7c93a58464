"""The frontend's core with one owner: what is sent, what is answered, in which order, and what is counted."""

import gc

from beanfield.constants import STREAM_COMMANDS_MAX
from beanfield.ipc import frames
from tests.unit.frontend_driver import LINK_HANDLES, RUN_ID, Frontend, S, made


def test_a_new_client_is_attached_with_its_references_to_default() -> None:
    f = Frontend()
    f.open()
    attach = f.frame()
    assert (attach.name, attach.flags, attach.session) == ("ATTACH", frames.FLAG_DEFAULT, 1)


def test_a_put_is_one_frame_and_the_owners_text_is_the_reply() -> None:
    f = Frontend()
    client = f.open()
    f.frames()
    assert f.say(client, b"put 7 2 0 5\r\nhello\r\n") == b""
    put = f.frame()
    assert put.said == ("PUT", 7, 2 * S, 1 * S, b"hello")
    f.reply(put, b"INSERTED 1\r\n")
    assert f.replies(client) == b"INSERTED 1\r\n"
    assert (f.core.counters.cmd_put, f.core.counters.producers) == (1, 1)


def test_commands_that_cannot_block_are_streamed_and_their_replies_may_come_as_one_run() -> None:
    f = Frontend()
    client = f.open()
    f.frames()
    f.say(client, b"put 0 0 9 1\r\na\r\ndelete 9\r\nrelease 9 1 2\r\nbury 9 3\r\ntouch 9\r\nkick 4\r\nkick-job 9\r\n")
    told = f.frames()
    assert [frame.said for frame in told] == [
        ("PUT", 0, 0, 9 * S, b"a"), ("DELETE", 9), ("RELEASE", 9, 1, 2 * S), ("BURY", 9, 3), ("TOUCH", 9), ("KICK", 4),
        ("KICK_JOB", 9),
    ]  # fmt: skip
    assert [frame.request for frame in told] == list(range(1, 8))
    f.answer(told[0], frames.REPLY, (4,), b"INSERTED 1\r\n" + b"NOT_FOUND\r\n" * 3)
    f.answer(told[4], frames.TOUCHED, (9, 9 * S), b"TOUCHED\r\n")
    f.answer(told[5], frames.REPLY, (2,), b"KICKED 0\r\nKICKED\r\n")
    assert f.replies(client) == b"INSERTED 1\r\n" + b"NOT_FOUND\r\n" * 3 + b"TOUCHED\r\nKICKED 0\r\nKICKED\r\n"


def test_no_more_commands_are_under_way_than_the_limit() -> None:
    f = Frontend()
    client = f.open()
    f.frames()
    f.say(client, b"delete 5\r\n" * (STREAM_COMMANDS_MAX + 10))
    told = f.frames()
    assert len(told) == STREAM_COMMANDS_MAX
    f.answer(told[0], frames.REPLY, (10,), b"NOT_FOUND\r\n" * 10)
    assert len(f.frames()) == 10


def test_replies_are_awaited_before_a_command_goes_to_another_owner() -> None:
    f = Frontend(slots=2)
    client = f.open()
    f.frames(0)
    f.say(client, b"delete %d\r\ndelete %d\r\n" % (f.id_in(0), f.id_in(1)))
    first = f.frame(0)
    assert f.frames(1) == []
    f.reply(first, b"DELETED\r\n")
    assert f.replies(client) == b"DELETED\r\n"
    attach, second = f.frames(1)
    assert (attach.name, attach.flags, second.said) == ("ATTACH", 0, ("DELETE", f.id_in(1)))


def test_local_answers_wait_for_those_under_way() -> None:
    f = Frontend()
    client = f.open()
    f.frames()
    assert f.say(client, b"delete 5\r\nlist-tube-used\r\nfoo\r\nput 1\r\ndelete 0\r\nlist-tubes-watched\r\n") == b""
    f.reply(f.frame(), b"NOT_FOUND\r\n")
    assert f.replies(client) == (
        b"NOT_FOUND\r\nUSING default\r\nUNKNOWN_COMMAND\r\nBAD_FORMAT\r\nNOT_FOUND\r\nOK 14\r\n---\n- default\n\r\n"
    )
    assert (f.core.counters.cmd_delete, f.core.counters.cmd_put) == (2, 0)


def test_ids_that_cannot_exist_are_not_found_without_an_owner_and_counted() -> None:
    f = Frontend(up=False)
    client = f.open()
    text = b"delete 0\r\npeek 18446744073709551615\r\nreserve-job 9223372036854775808\r\n"
    assert f.say(client, text) == b"NOT_FOUND\r\n" * 3
    assert (f.core.counters.cmd_delete, f.core.counters.cmd_peek, f.core.counters.workers) == (1, 1, 0)


def test_use_is_confirmed_by_the_owner_and_local_when_nothing_changes() -> None:
    f = Frontend()
    client = f.open()
    f.frames()
    assert f.say(client, b"use default\r\n") == b"USING default\r\n"
    f.say(client, b"use a\r\nlist-tube-used\r\n")
    use = f.frame()
    assert use.said == ("USE", b"a")
    f.reply(use)
    assert f.replies(client) == b"USING a\r\nUSING a\r\n"


def test_use_of_another_owners_tube_is_confirmed_there_and_given_up_here() -> None:
    f = Frontend(slots=2)
    client = f.open()
    f.frames(0)
    name = f.name_in(1)
    f.say(client, b"use " + name + b"\r\n")
    attach, use = f.frames(1)
    assert (attach.name, use.said) == ("ATTACH", ("USE", name))
    assert f.frames(0) == []
    f.reply(use, slot=1)
    assert f.replies(client) == b""
    unuse = f.frame(0)
    assert unuse.said == ("UNUSE",)
    f.reply(unuse)
    assert f.replies(client) == b"USING " + name + b"\r\n"
    f.say(client, b"put 0 0 1 1\r\nx\r\n")
    assert f.frame(1).name == "PUT"


def test_watch_and_ignore_keep_the_list_of_the_contract() -> None:
    f = Frontend()
    client = f.open()
    f.frames()
    assert f.say(client, b"ignore default\r\nignore zz\r\nwatch default\r\n") == (
        b"NOT_IGNORED\r\nWATCHING 1\r\nWATCHING 1\r\n"
    )
    f.say(client, b"watch a\r\nignore default\r\nlist-tubes-watched\r\n")
    f.reply(f.frame())
    ignore = f.frame()
    assert ignore.said == ("IGNORE", b"default")
    f.reply(ignore)
    assert f.replies(client) == b"WATCHING 2\r\nWATCHING 1\r\nOK 8\r\n---\n- a\n\r\n"


def test_a_data_reply_may_follow_streamed_commands_and_nothing_follows_it() -> None:
    f = Frontend()
    client = f.open()
    f.frames()
    f.say(client, b"put 0 0 1 1\r\na\r\npeek-ready\r\ndelete 1\r\n")
    put, peek = f.frames()
    f.answer(put, frames.REPLY, (2,), b"INSERTED 1\r\nFOUND 1 1\r\na\r\n")
    assert f.replies(client) == b"INSERTED 1\r\nFOUND 1 1\r\na\r\n"
    assert (peek.name, f.frame().said) == ("PEEK_READY", ("DELETE", 1))


def test_each_look_has_its_frame() -> None:
    f = Frontend()
    client = f.open()
    f.frames()
    for line, said in (
        (b"peek 3", ("PEEK", 3)),
        (b"peek-delayed", ("PEEK_DELAYED",)),
        (b"peek-buried", ("PEEK_BURIED",)),
        (b"stats-job 3", ("STATS_JOB", 3)),
        (b"stats-tube a", ("STATS_TUBE", b"a")),
        (b"reserve-job 3", ("RESERVE_JOB", 3)),
        (b"pause-tube a 5", ("PAUSE_TUBE", 5 * S, b"a")),
    ):
        assert f.say(client, line + b"\r\n") == b""
        frame = f.frame()
        assert frame.said == said
        f.reply(frame, b"NOT_FOUND\r\n")
        assert f.replies(client) == b"NOT_FOUND\r\n"


def test_a_drain_is_answered_here_behind_what_is_under_way_and_ends_again() -> None:
    f = Frontend()
    client = f.open()
    f.frames()
    f.say(client, b"put 0 0 1 1\r\na\r\n")
    f.core.drain(True)
    assert f.say(client, b"put 0 0 1 1\r\nabc\r\nput 0 0 1 1\r\na\r\n") == b""
    f.reply(f.frame(), b"INSERTED 1\r\n")
    # The bytes between are those that an EXPECTED_CRLF leaves behind.
    assert f.replies(client) == b"INSERTED 1\r\nEXPECTED_CRLF\r\nUNKNOWN_COMMAND\r\nDRAINING\r\n"
    f.core.drain(False)
    f.say(client, b"put 0 0 1 1\r\na\r\n")
    assert f.frame().name == "PUT"


def test_a_put_counts_with_its_line_and_once() -> None:
    f = Frontend()
    client = f.open()
    f.say(client, b"put 0 0 1 3\r\na")
    assert (f.core.counters.cmd_put, f.core.counters.producers) == (1, 1)
    f.say(client, b"bc\r\n")
    other = f.open()
    f.say(other, b"put 0 0 1 70000\r\nab")
    assert (f.core.counters.cmd_put, f.core.counters.producers) == (2, 1)
    f.core.client_failed(client, f.now)
    f.turn()
    assert (f.core.counters.producers, f.core.counters.connections) == (0, 1)


def test_quit_closes_behind_earlier_replies_and_ignores_what_follows() -> None:
    f = Frontend()
    client = f.open()
    f.frames()
    f.say(client, b"delete 5\r\nquit\r\ndelete 6\r\n")
    assert f.closed == []
    f.reply(f.frame(), b"NOT_FOUND\r\n")
    assert (f.replies(client), f.closed, f.frame().name) == (b"NOT_FOUND\r\n", [client], "DETACH")
    f.core.client_received(client, b"delete 7\r\n", f.now)
    f.turn()
    assert f.frames() == []


def test_a_half_closed_client_gets_all_its_answers_and_then_the_end() -> None:
    f = Frontend()
    client = f.open()
    f.frames()
    f.say(client, b"delete 5\r\nlist-tube-used\r\nput 0 0 1 9\r\nabc")
    f.end(client)
    assert f.closed == []
    f.reply(f.frame(), b"NOT_FOUND\r\n")
    assert (f.replies(client), f.closed) == (b"NOT_FOUND\r\nUSING default\r\n", [client])


def test_an_idle_client_that_ends_is_detached_in_the_same_turn() -> None:
    f = Frontend()
    client = f.open()
    f.frames()
    f.core.client_ended(client, f.now)
    f.one_turn()
    assert ([frame.name for frame in f.frames()], f.closed) == (["DETACH"], [client])


def test_a_failed_client_is_closed_and_detached_at_every_owner() -> None:
    f = Frontend(slots=2)
    client = f.open()
    f.watch(client, f.name_in(1))
    f.frames(0)
    f.core.client_failed(client, f.now)
    f.turn()
    assert (f.frame(0).name, f.frame(1).name, f.closed) == ("DETACH", "DETACH", [client])


def test_answers_that_cross_the_end_of_a_session_are_dropped() -> None:
    f = Frontend()
    client = f.open()
    f.frames()
    f.say(client, b"delete 5\r\n")
    delete = f.frame()
    f.core.client_failed(client, f.now)
    f.reply(delete, b"NOT_FOUND\r\n")
    assert f.core.links[0].is_up()


def test_stats_has_the_figures_of_the_pages_and_asks_the_lowest_slot_first() -> None:
    f = Frontend(slots=2)
    client = f.open()
    f.frames(0)
    f.say(client, b"stats\r\n")
    stats = f.frame(0)
    assert stats.said == ("STATS",)
    f.reply(stats)
    text = f.replies(client)
    assert text.startswith(b"OK ")
    for line in (b"cmd-stats: 1", b"current-connections: 1", b'version: "1.13"', b"slots: 1", b"id: " + b"a" * 16):
        assert b"\n" + line + b"\n" in text


def test_stats_counts_no_client_whose_end_came_with_the_word_of_the_owner() -> None:
    f = Frontend(slots=2)
    waiter, client = f.open(), f.open()
    f.watch(waiter, f.name_in(1))
    f.say(waiter, b"reserve\r\n")
    asks = [f.frames(slot)[-1] for slot in (0, 1)]
    for slot in (0, 1):
        f.answer(asks[slot], frames.EMPTY, slot=slot)
    f.end(waiter)
    f.answer(asks[1], frames.CANCELLED, slot=1)
    f.say(client, b"stats\r\n")
    stats = f.frames(0)[-1]
    # Both in one read: the last word that the waiter's end needed, and the word that the statistics waited for.
    ends = made(frames.CANCELLED, asks[0].session, asks[0].request)
    f.deliver(0, ends + made(frames.REPLY, stats.session, stats.request, (1,)))
    text = f.replies(client)
    for line in (b"current-connections: 1", b"current-waiting: 0", b"current-workers: 0"):
        assert b"\n" + line + b"\n" in text
    assert f.closed == [waiter]


def test_list_tubes_joins_all_slots_default_first_then_by_creation() -> None:
    f = Frontend(slots=2)
    client = f.open()
    f.frames(0)
    f.say(client, b"list-tubes\r\n")
    first = made(0, 0, 0, (30, 1), b"c")[24:] + made(0, 0, 0, (5, 7), b"default")[24:]
    f.answer(f.frame(0), frames.LARGE, (len(first),), first)
    assert f.replies(client) == b""
    second = made(0, 0, 0, (10, 1), b"b")[24:]
    ask = f.frames(1)[-1]
    f.answer(ask, frames.LARGE, (len(second),), second[:5], slot=1)
    more = f.frame(1)
    assert (more.name, more.request) == ("MORE", ask.request)
    f.answer(more, frames.CHUNK, (), second[5:], slot=1)
    assert f.replies(client) == b"OK 22\r\n---\n- default\n- b\n- c\n\r\n"


def test_a_list_with_a_broken_entry_is_asked_for_again_whole() -> None:
    f = Frontend()
    client = f.open()
    f.frames()
    f.say(client, b"list-tubes\r\n")
    good = made(0, 0, 0, (1, 1), b"a")[24:]
    f.answer(f.frame(), frames.LARGE, (len(good) + 3,), good + b"xyz")
    assert not f.core.links[0].is_up()
    f.bring_up(0)
    f.answer(f.frames()[-1], frames.LARGE, (len(good),), good)
    assert f.replies(client) == b"OK 18\r\n---\n- default\n- a\n\r\n"


def test_broken_frames_from_an_owner_close_only_its_link() -> None:
    for data in (
        b"\xff" * 24,
        made(frames.PUT, 1, 1),
        made(frames.REPLY, 1, 1, (1,), b"x"),  # never asked for
        made(frames.REPLY, 99, 1, (1,), b"x"),  # a session that never was
        made(frames.OFFER, 1, 0, (1,)),
        made(frames.RESERVED, 1, 0, (1_000_000,)),
        made(frames.ERROR, 0, 0, (3,), b"no"),
        made(frames.WELCOME, 0, 0, (1, 0, 1), b"f" * 32),
    ):
        f = Frontend()
        client = f.open()
        handle = f.handles[0]
        f.deliver(0, data)
        assert f.closed == [handle], data
        assert not f.core.links[0].is_up()
        assert f.say(client, b"list-tube-used\r\n") == b"USING default\r\n"


def test_a_welcome_of_another_server_or_an_older_owner_is_refused() -> None:
    f = Frontend()
    f.bring_down(0)
    good = f.topology.fingerprint + RUN_ID
    for slot, generation, proof in ((0, 0, good), (1, 1, good), (0, 1, b"x" * 16 + RUN_ID), (0, 1, good[:16] * 2)):
        handle = f.next_link_handle
        f.next_link_handle += 1
        f.handles[0] = handle
        f.buffers[handle] = type(f.buffers[LINK_HANDLES])()
        f.core.link_opened(0, handle, f.now)
        f.turn()
        f.deliver(0, made(frames.WELCOME, 0, 0, (1, slot, generation), proof))
        assert f.closed[-1] == handle
        assert not f.core.links[0].is_connected()


def test_sync_is_confirmed_after_full_polls_and_behind_what_they_brought() -> None:
    f = Frontend()
    client = f.open()
    f.frames()
    f.core.link_received(f.handles[0], made(frames.SYNC, 0, 0, (7,)), f.now)
    f.one_turn()
    assert (f.frames(), f.core.next_deadline_ns()) == ([], 0)
    f.core.poll_full = True
    f.one_turn()
    f.core.poll_full = False
    f.one_turn()
    assert f.frames() == []
    f.core.client_ended(client, f.now)
    f.one_turn()
    assert [frame.said for frame in f.frames()] == [("DETACH",), ("SYNCED", 7)]


def test_sync_is_confirmed_behind_the_last_word_of_a_waiting_client_that_left() -> None:
    f = Frontend()
    client = f.open()
    f.say(client, b"reserve\r\n")
    waiting = f.frames()[-1]
    f.core.client_ended(client, f.now)
    f.core.link_received(f.handles[0], made(frames.SYNC, 0, 0, (7,)), f.now)
    f.turn()
    assert [frame.said for frame in f.frames()] == [("LAST",)]
    assert f.core.next_deadline_ns() > f.now  # it does not spin meanwhile
    f.reserved(waiting, 1)
    assert [frame.said for frame in f.frames()] == [("DETACH",), ("SYNCED", 7)]


def test_sync_is_not_held_up_by_a_reserve_that_could_not_wait() -> None:
    f = Frontend()
    client = f.open()
    f.say(client, b"reserve-with-timeout 0\r\n")
    f.frames()
    f.core.client_ended(client, f.now)
    f.core.link_received(f.handles[0], made(frames.SYNC, 0, 0, (7,)), f.now)
    f.turn()
    assert [frame.said for frame in f.frames()] == [("SYNCED", 7)]


def test_a_session_leaves_nothing_behind() -> None:
    """The collector is off in a frontend: whatever it would have to find is a leak."""
    f = Frontend(slots=2)
    gc.collect()
    gc.disable()
    try:
        for _ in range(20):
            client = f.open()
            f.watch(client, f.name_in(1))
            f.holding(client, f.id_in(0))
            f.say(client, b"reserve\r\n")
            f.core.client_failed(client, f.now)
            f.turn()
        assert gc.collect() == 0
    finally:
        gc.enable()
    assert f.core.links[0].members == {}
