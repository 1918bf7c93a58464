"""The owner's core by frames: what waits for another link, and reserves over several owners: holds, last words."""

from beanfield.constants import NS_PER_MS, NS_PER_S, SYNC_NS
from beanfield.engine.invariants import check_engine
from beanfield.ipc import frames
from tests.unit.owner_driver import LinkEnd, Owner, frame, opcodes, put, texts

SECOND = NS_PER_S


# ---------------------------------------------------------------- SYNC


def reserved_through_another_link(owner: Owner) -> tuple[LinkEnd, LinkEnd]:
    """Job 1 is reserved by session 1 of the first link; session 1 of the second link looks on."""
    first = owner.link(index=0)
    second = owner.link(index=1)
    first.attach(1)
    second.attach(1)
    put(first, 1, 1)
    first.plain(frames.RESERVE, 1, 2)
    assert opcodes(first.take()) == [frames.REPLY, frames.RESERVED]
    return first, second


def answer_sync(end: LinkEnd, before: bytes = b"") -> None:
    received = end.take()
    assert opcodes(received) == [frames.SYNC]
    end.send(before + frame(frames.SYNCED, 0, 0, received[0].words(1)[0]))


def test_not_found_waits_for_the_other_link_and_sees_the_close_before_it() -> None:
    owner = Owner()
    first, second = reserved_through_another_link(owner)
    second.words(frames.DELETE, 1, 1, 1)
    put(second, 1, 2)
    assert second.take() == []
    answer_sync(first, frame(frames.DETACH, 1, 0))
    assert b"".join(texts(second.take())) == b"DELETED\r\nINSERTED 17\r\n"


def test_not_found_follows_when_the_other_link_knows_of_no_close() -> None:
    owner = Owner()
    first, second = reserved_through_another_link(owner)
    second.words(frames.TOUCH, 1, 1, 1)
    second.words(frames.BURY, 1, 2, 1, 0)
    second.take()
    answer_sync(first)
    answer_sync(first)  # the second command waited for its own
    assert b"".join(texts(second.take())) == b"NOT_FOUND\r\nNOT_FOUND\r\n"


def test_one_sync_serves_all_who_came_before_it_was_sent() -> None:
    owner = Owner()
    first, second = reserved_through_another_link(owner)
    for session in range(2, 6):
        second.attach(session)
        second.words(frames.DELETE, session, 1, 1)
    received = first.take()
    assert opcodes(received) == [frames.SYNC]  # the first asked; the others came after it was sent
    first.send(frame(frames.SYNCED, 0, 0, 1))
    assert len(texts(second.take())) == 1
    answer_sync(first)
    assert len(texts(second.take())) == 3


def test_a_link_that_does_not_answer_is_waited_for_once() -> None:
    owner = Owner()
    first, second = reserved_through_another_link(owner)
    second.words(frames.DELETE, 1, 1, 1)
    assert second.take() == []
    owner.later(SYNC_NS - 1)
    assert second.take() == []
    owner.later(1)
    assert texts(second.take()) == [b"NOT_FOUND\r\n"]
    second.words(frames.DELETE, 1, 2, 1)
    assert texts(second.take()) == [b"NOT_FOUND\r\n"]
    answer_sync(first)
    second.words(frames.DELETE, 1, 3, 1)
    assert second.take() == []


def test_the_end_of_the_other_link_ends_the_wait() -> None:
    owner = Owner()
    first, second = reserved_through_another_link(owner)
    second.plain(frames.LIST_TUBES, 1, 1)
    assert second.take() == []
    owner.core.link_ended(first.handle, owner.now_ns)
    received = second.take()
    assert opcodes(received) == [frames.LARGE]
    assert received[0].payload.endswith(b"default")


def test_a_reserve_that_may_not_wait_gets_the_job_of_a_client_that_left_before() -> None:
    owner = Owner()
    first, second = reserved_through_another_link(owner)
    second.plain(frames.RESERVE, 1, 1, frames.FLAG_NOWAIT)
    assert second.take() == []
    answer_sync(first, frame(frames.DETACH, 1, 0))
    assert opcodes(second.take()) == [frames.RESERVED]


def test_a_last_word_waits_for_links_asked_after_its_own_request_not_after_one_dropped_before() -> None:
    owner = Owner()
    first, second = reserved_through_another_link(owner)
    for request in (1, 2):
        second.plain(frames.ASK, 1, request, frames.FLAG_NOWAIT)
        second.plain(frames.LAST, 1, request)
        assert opcodes(second.take()) == [frames.EMPTY]
        if request == 1:
            assert opcodes(first.take()) == [frames.SYNC]
            second.plain(frames.DROP, 1, request)
    # The first SYNC was sent before the second request came; the client of the other link left in between.
    first.send(frame(frames.SYNCED, 0, 0, 1))
    assert second.take() == []
    answer_sync(first, frame(frames.DETACH, 1, 0))
    assert opcodes(second.take()) == [frames.OFFER]


def test_a_session_that_leaves_takes_its_waiting_command_with_it() -> None:
    owner = Owner()
    first, second = reserved_through_another_link(owner)
    second.words(frames.DELETE, 1, 1, 1)
    second.plain(frames.DETACH, 1)
    answer_sync(first)
    assert second.take() == []
    check_engine(owner.core.engine)


# ---------------------------------------------------------------- reserve over several owners


def asked(owner: Owner) -> tuple[LinkEnd, int]:
    """Two sessions; session 1 has asked and holds job 1. Returns the link and the creation time of job 1."""
    end = owner.link()
    end.attach(1)
    end.attach(2)
    put(end, 1, 1)
    end.take()
    end.plain(frames.ASK, 1, 2)
    offer = end.take()[0]
    assert offer.opcode == frames.OFFER
    priority, created_ns, id = offer.words(3)
    assert (priority, id) == (0, 1)
    return end, created_ns


def test_a_held_job_is_ready_for_everybody_but_a_reserve() -> None:
    owner = Owner()
    end, _ = asked(owner)
    end.words(frames.STATS_JOB, 2, 1, 1)
    assert b"state: ready" in texts(end.take())[0]
    end.plain(frames.PEEK_READY, 2, 2)
    assert texts(end.take())[0].startswith(b"FOUND 1 ")
    end.plain(frames.RESERVE, 2, 3)
    assert end.take() == []
    end.plain(frames.DROP, 1, 2)
    received = end.take()
    assert opcodes(received) == [frames.RESERVED] and received[0].session == 2


def test_a_last_word_is_withheld_while_the_job_may_come_back() -> None:
    owner = Owner()
    end, created_ns = asked(owner)
    end.plain(frames.RESERVE, 2, 1, frames.FLAG_NOWAIT)
    assert end.take() == []
    end.words(frames.TAKE, 1, 2, 0, created_ns, 1)
    assert [(each.opcode, each.session, each.flags) for each in end.take()] == [
        (frames.RESERVED, 1, 0),
        (frames.CANCELLED, 2, 0),
    ]


def test_a_last_word_is_withheld_no_longer_than_its_time() -> None:
    owner = Owner()
    end, _ = asked(owner)
    owner.later(50 * NS_PER_MS)
    end.plain(frames.RESERVE, 2, 1, frames.FLAG_NOWAIT)
    assert end.take() == []
    owner.later(50 * NS_PER_MS)  # the hold is taken back
    assert opcodes(end.take()) == [frames.RESERVED]


def test_a_hold_taken_back_is_offered_to_nobody_else_of_the_same_request() -> None:
    owner = Owner()
    end, created_ns = asked(owner)
    owner.later(100 * NS_PER_MS)
    put(end, 1, 3)
    assert opcodes(end.take()) == [frames.REPLY]
    end.words(frames.TAKE, 1, 2, 0, created_ns, 1)
    assert opcodes(end.take()) == [frames.RESERVED]


def test_a_take_of_a_deleted_job_offers_the_next_or_says_empty() -> None:
    owner = Owner()
    end, created_ns = asked(owner)
    put(end, 2, 1)
    end.words(frames.DELETE, 2, 2, 1)
    end.take()
    end.words(frames.TAKE, 1, 2, 0, created_ns, 1)
    offer = end.take()[0]
    assert offer.opcode == frames.OFFER and offer.words(3)[2] == 17
    end.words(frames.DELETE, 2, 3, 17)
    end.words(frames.TAKE, 1, 2, *offer.words(3))
    assert opcodes(end.take()) == [frames.REPLY, frames.EMPTY]
    put(end, 2, 4)
    assert opcodes(end.take()) == [frames.OFFER, frames.REPLY]


def test_a_take_that_fails_after_last_is_no_ground_for_timed_out() -> None:
    owner = Owner()
    end, created_ns = asked(owner)
    end.plain(frames.LAST, 1, 2)
    assert end.take() == []  # the offer is the last word
    end.words(frames.DELETE, 2, 1, 1)
    end.words(frames.TAKE, 1, 2, 0, created_ns, 1)
    received = end.take()
    assert (received[1].opcode, received[1].flags) == (frames.CANCELLED, frames.FLAG_AGAIN)


def test_a_paused_tube_gives_up_its_hold_at_take() -> None:
    owner = Owner()
    end, created_ns = asked(owner)
    end.words(frames.PAUSE_TUBE, 2, 1, 5 * SECOND, body=b"default")
    end.words(frames.TAKE, 1, 2, 0, created_ns, 1)
    assert opcodes(end.take()) == [frames.REPLY, frames.EMPTY]
    owner.later(5 * SECOND)
    assert opcodes(end.take()) == [frames.OFFER]


def test_less_than_a_job_held_through_another_link_is_not_given_before_that_link_was_asked() -> None:
    owner = Owner()
    first, _ = asked(owner)
    put(first, 2, 1)
    first.take()
    second = owner.link(index=1)
    second.attach(1)
    second.plain(frames.RESERVE, 1, 1)
    assert second.take() == []
    answer_sync(first, frame(frames.DROP, 1, 2))
    received = second.take()
    assert opcodes(received) == [frames.RESERVED]
    assert received[0].words(2)[1] == 1


def test_statistics_wait_for_the_other_link() -> None:
    owner = Owner()
    first, second = reserved_through_another_link(owner)
    second.words(frames.STATS_JOB, 1, 1, 1)
    second.take()
    answer_sync(first, frame(frames.DETACH, 1, 0))
    assert b"state: ready" in texts(second.take())[0]
    second.words(frames.STATS_TUBE, 1, 2, body=b"default")
    second.take()
    answer_sync(first)
    assert b"current-using: 1\n" in texts(second.take())[0]


def test_a_frontend_that_lets_a_hold_run_out_is_passed_over_until_it_speaks() -> None:
    owner = Owner()
    stopped, other = owner.link(index=0), owner.link(index=1)
    for end, sessions in ((stopped, (1, 2, 3)), (other, (1,))):
        for session in sessions:
            end.attach(session)
            end.plain(frames.ASK, session, 1)
            owner.now_ns += 1
        assert opcodes(end.take()) == [frames.EMPTY] * len(sessions)
    other.attach(2)
    put(other, 2, 1)
    assert opcodes(stopped.take()) == [frames.OFFER]
    assert opcodes(other.take()) == [frames.REPLY]
    # Not held for each of the three in turn: the second to be asked is somebody of the other frontend.
    owner.later(100 * NS_PER_MS)
    offer = other.take()[0]
    assert offer.opcode == frames.OFFER
    other.words(frames.TAKE, 1, 1, *offer.words(3))
    assert opcodes(other.take()) == [frames.RESERVED]
    put(other, 2, 2)
    owner.later(SECOND)
    assert stopped.take() == []
    check_engine(owner.core.engine)
    # Its first word brings its waiters back; the one whose hold ran out is not offered anything before it has spoken.
    stopped.plain(frames.DETACH, 3)
    assert [(each.opcode, each.session) for each in stopped.take()] == [(frames.OFFER, 2)]


def test_jobs_that_others_take_leave_a_wide_watch_list_as_it_was() -> None:
    owner = Owner()
    end = owner.link()
    end.attach(1)
    end.attach(2)
    owner.core.engine.heads.few_max = 0  # as if many other tubes had jobs
    owner.core.engine.heads.many_min = 0
    names = [name for name in (b"t%d" % n for n in range(100)) if owner.core.config.topology.slot_of_name(name) == 0]
    for request, name in enumerate(names[:5], 1):
        end.words(frames.WATCH, 1, request, body=name)
    end.words(frames.USE, 2, 1, body=names[0])
    end.words(frames.WATCH, 2, 2, body=names[0])
    put(end, 2, 3)
    end.take()
    wide = [each for same in owner.core.engine.sets.values() for each in same if len(each.tubes) == 6]
    assert [each.best() is not None for each in wide] == [True]  # from here on it is told of better heads
    for request in range(4, 304, 3):
        put(end, 2, request)
        end.plain(frames.RESERVE, 2, request + 1)
        job = end.take()[-1].words(2)[1]
        end.words(frames.DELETE, 2, request + 2, job)
        assert opcodes(end.take()) == [frames.REPLY]
    assert [len(each.candidates) for each in wide] == [1]
    check_engine(owner.core.engine)
