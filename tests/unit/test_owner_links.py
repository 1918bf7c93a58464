"""The owner's core by frames: what the end of a link leaves behind, and how links share a turn."""

import gc
from collections import Counter

from beanfield.constants import JOBS_PER_TURN_MAX, NS_PER_S
from beanfield.engine.invariants import check_engine
from beanfield.engine.session import Gate
from beanfield.engine.watchset import WatchSet
from beanfield.ipc import frames
from beanfield.ipc.codec import FrameBuffer
from beanfield.owner.link import OwnerLink
from beanfield.owner.seat import Seat
from tests.unit.owner_driver import Owner, frame, opcodes, put, texts


def test_a_link_that_is_gone_leaves_nothing_behind_without_the_collector() -> None:
    owner = Owner()
    gc.collect()
    gc.disable()
    try:
        kinds = {OwnerLink, Gate, Seat, WatchSet, FrameBuffer}
        before = Counter(type(each) for each in gc.get_objects() if type(each) in kinds)
        for generation in range(1, 4):
            end = owner.link(0, generation)
            for session in (1, 2, 3):
                end.attach(session)
            put(end, 1, 1)
            end.plain(frames.RESERVE, 1, 2)
            end.plain(frames.ASK, 2, 1)
            end.plain(frames.RESERVE, 3, 1)
            put(end, 1, 3, body=b"b" * 100_000)
            end.take()
            if generation == 1:
                owner.core.link_ended(end.handle, owner.now_ns)
            elif generation == 2:
                end.words(99, 1, 1)
            owner.later(NS_PER_S)
        end = owner.link(0, 4)
        owner.core.link_ended(end.handle, owner.now_ns)
        owner.later(NS_PER_S)
        del end
        assert Counter(type(each) for each in gc.get_objects() if type(each) in kinds) == before
    finally:
        gc.enable()
    check_engine(owner.core.engine)


def test_a_job_held_for_a_session_of_a_link_that_ends_goes_to_no_other_session_of_it() -> None:
    owner = Owner()
    end, other = owner.link(0), owner.link(1)
    for session in range(1, 4):
        end.attach(session)
    other.attach(1)
    put(other, 1, 1)
    end.plain(frames.ASK, 1, 1)
    end.plain(frames.RESERVE, 2, 1)
    end.plain(frames.RESERVE, 3, 1)
    end.take()
    owner.core.link_ended(end.handle, owner.now_ns)
    other.words(frames.STATS_JOB, 1, 2, 1)
    assert b"state: ready" in texts(other.take())[-1]
    assert owner.core.engine.jobs.jobs()[0].reserves == 0
    check_engine(owner.core.engine)


def test_a_link_ended_by_the_hello_of_one_before_it_is_not_run_in_the_same_turn() -> None:
    owner = Owner()
    newer, older = owner.raw_link(), owner.link(0, 1)
    older.attach(1)
    owner.core.engine.budget = 0
    put(older, 1, 1)
    newer.hello(0, 2)
    assert opcodes(newer.take()) == [frames.WELCOME]
    assert owner.core.counters.jobs_ready == 0


# ---------------------------------------------------------------- sharing turns


def executed(owner: Owner, handle: int) -> int:
    """Commands answered on this link so far."""
    buffer = FrameBuffer()
    buffer.receive(owner.sent.get(handle, b""))
    count = 0
    while buffer.next():
        count += buffer.word() if buffer.opcode == frames.REPLY else 0
    return count


def test_no_turn_executes_more_frames_than_its_budget_and_all_are_executed_in_order() -> None:
    owner = Owner()
    end = owner.link()
    end.attach(1)
    owner.turn()
    end.send(b"".join(frame(frames.DELETE, 1, request, 1) for request in range(1, 5_001)))
    before = 0
    for _ in range(5):
        owner.core.turn(owner.now_ns)
        owner.collect()
        assert executed(owner, end.handle) - before <= 2 * JOBS_PER_TURN_MAX
        before = executed(owner, end.handle)
        assert owner.core.next_deadline_ns() == 0 or before == 5_000
    owner.turn()
    assert executed(owner, end.handle) == 5_000


def test_a_busy_link_does_not_keep_the_others_from_their_turn() -> None:
    owner = Owner()
    ends = [owner.link(index) for index in range(3)]
    for end in ends:
        end.attach(1)
    owner.turn()
    for turn in range(12):
        for end in ends:
            if turn % 4 == 0:
                first = turn * 750 + 1
                end.send(b"".join(frame(frames.DELETE, 1, first + at, 1) for at in range(3_000)))
        owner.core.turn(owner.now_ns)
        owner.collect()
        if turn >= 3:
            counts = [executed(owner, end.handle) for end in ends]
            assert max(counts) - min(counts) <= 2 * JOBS_PER_TURN_MAX, counts
