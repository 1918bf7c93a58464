"""The owner's core by frames: who is let in, what is refused before any change, large replies, long kicks."""

import random

import pytest

from beanfield.constants import CHUNK_BYTES, LINK_UNSENT_BYTES_HIGH, NS_PER_S, RECENT_SEATS
from beanfield.engine.invariants import check_engine
from beanfield.ipc import frames
from beanfield.ipc.actions import ACT_PAUSE, ACT_RESUME
from beanfield.ipc.codec import OWN_PIECE_BYTES
from beanfield.wal.journal import Journal
from tests.unit.owner_driver import TOPOLOGY, LinkEnd, Owner, frame, opcodes, put, texts

SECOND = NS_PER_S


def refused(owner: Owner, end: LinkEnd) -> int:
    """The code of the ERROR that came; the link is closed."""
    received = end.take()
    assert opcodes(received)[-1] == frames.ERROR
    assert end.handle in owner.closed
    return received[-1].words(1)[0]


# ---------------------------------------------------------------- who is let in


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"version": 2}, frames.ERROR_VERSION),
        ({"fingerprint": b"f" * 16}, frames.ERROR_FINGERPRINT),
        ({"run_id": b"q" * 16}, frames.ERROR_RUN_ID),
        ({"role": frames.ROLE_OWNER}, frames.ERROR_ROLE),
        ({"index": 256}, frames.ERROR_ROLE),
        ({"index": -1}, frames.ERROR_ROLE),
    ],
)
def test_a_hello_that_does_not_fit_is_refused(wrong: dict[str, int], code: int) -> None:
    owner = Owner()
    end = owner.raw_link()
    end.hello(**wrong)  # type: ignore[arg-type]
    assert refused(owner, end) == code
    assert not owner.core.links


def test_an_older_generation_is_refused_and_the_newer_goes_on() -> None:
    owner = Owner()
    newer = owner.link(index=3, generation=7)
    newer.attach(1)
    older = owner.raw_link()
    older.hello(index=3, generation=6)
    assert refused(owner, older) == frames.ERROR_GENERATION
    put(newer, 1, 1)
    assert texts(newer.take()) == [b"INSERTED 1\r\n"]


@pytest.mark.parametrize("generation", [5, 6])
def test_a_hello_again_ends_the_older_link_and_what_it_says_later_changes_nothing(generation: int) -> None:
    owner = Owner()
    older = owner.link(index=0, generation=5)
    older.attach(1)
    put(older, 1, 1)
    older.plain(frames.RESERVE, 1, 2)
    assert opcodes(older.take()) == [frames.REPLY, frames.RESERVED]
    newer = owner.link(index=0, generation=generation)
    assert older.handle in owner.closed
    put(older, 1, 3)  # delivered after the newer WELCOME
    assert owner.core.counters.total_jobs == 1
    assert owner.core.counters.jobs_reserved == 0
    newer.attach(1)
    newer.plain(frames.RESERVE, 1, 1)
    assert opcodes(newer.take()) == [frames.RESERVED]


def test_frames_before_hello_are_refused() -> None:
    owner = Owner()
    end = owner.raw_link()
    end.attach(1)
    assert refused(owner, end) == frames.ERROR_FRAME


def test_sessions_never_opened_are_refused_and_ended_ones_are_dropped() -> None:
    owner = Owner()
    end = owner.link()
    end.attach(1)
    end.plain(frames.DETACH, 1)
    end.plain(frames.DETACH, 1)
    put(end, 1, 1)
    assert end.take() == []
    assert owner.core.counters.total_jobs == 0
    put(end, 2, 1)
    assert refused(owner, end) == frames.ERROR_FRAME
    assert owner.core.counters.total_jobs == 0


def test_attach_after_detach_of_the_same_id_is_an_error() -> None:
    owner = Owner()
    end = owner.link()
    end.attach(4)
    end.plain(frames.DETACH, 4)
    end.attach(4)
    assert refused(owner, end) == frames.ERROR_FRAME


FOREIGN = next(name for name in (b"t%d" % i for i in range(99)) if TOPOLOGY.slot_of_name(name) == 1)

WRONG = [
    frame(frames.USE, 1, 1, body=FOREIGN),
    frame(frames.USE, 1, 1, body=b""),
    frame(frames.WATCH, 1, 1, body=b"x" * 201),
    frame(frames.PUT, 1, 1, -1, 0, SECOND, body=b"x"),
    frame(frames.PUT, 1, 1, 0, 0, 0, body=b"x"),
    frame(frames.PUT, 1, 1, 4_294_967_296, 0, SECOND, body=b"x"),
    frame(frames.PUT, 1, 1, 0, 0),
    frame(frames.DELETE, 1, 1),
    frame(frames.DELETE, 1, 1, 5, 6),
    frame(frames.RESERVE_RUN, 1, 1, 0),
    frame(frames.RESERVE_RUN, 1, 1, 65),
    frame(frames.PUT_PART, 1, 0, 3, body=b"four"),
    frame(frames.PUT_PART, 1, 0, 1 << 40, body=b"four"),
    frame(frames.MORE, 1, 1),
    frame(frames.SYNCED, 0, 0, 1),
    frame(frames.WELCOME, 0, 0),
    frame(0, 1, 1),
    frame(200, 1, 1),
    b"\x17\0\0\0\0\0\0\0" + bytes(16),
    b"\xff\xff\xff\x7f\x08\0\0\0" + bytes(16),
    b"\x18\0\0\0\x08\0\x01\0" + bytes(16),
    frame(frames.RESERVE, 1, 1) + frame(frames.RESERVE, 1, 2),
    frame(frames.RESERVE, 1, 1) + frame(frames.WATCH, 1, 2, body=b"default"),
]


@pytest.mark.parametrize("data", WRONG)
def test_what_a_frontend_cannot_have_sent_closes_the_link_and_changes_nothing(data: bytes) -> None:
    owner = Owner()
    end = owner.link()
    end.attach(1)
    before = owner.core.counters.encode()
    end.send(data)
    assert refused(owner, end) == frames.ERROR_FRAME
    assert owner.core.counters.encode() == before
    check_engine(owner.core.engine)


def test_random_bytes_never_break_an_owner() -> None:
    rng = random.Random(7)
    owner = Owner()
    for _ in range(300):
        end = owner.link(index=rng.randrange(3), generation=1)
        end.attach(1)
        data = bytearray(b"".join(rng.choice(WRONG[:13]) for _ in range(3)))
        for _ in range(rng.randrange(1, 12)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        whole = bytes(data)
        cut = rng.randrange(len(whole))
        end.send(whole[:cut] or b"\0")
        if end.handle in owner.core.links:
            end.send(whole[cut:])
        end.take()
        check_engine(owner.core.engine)


def test_frames_cut_anywhere_are_the_same_frames() -> None:
    stream = frame(frames.ATTACH, 1, 0, flags=frames.FLAG_DEFAULT)
    for request in range(1, 6):
        stream += frame(frames.PUT, 1, request, request, 0, 10 * SECOND, body=b"b" * request)
    for cut in range(1, len(stream)):
        owner = Owner()
        end = owner.link()
        end.send(stream[:cut])
        end.send(stream[cut:])
        received = end.take()
        assert b"".join(texts(received)) == b"".join(b"INSERTED %d\r\n" % (16 * i + 1) for i in range(5))


# ---------------------------------------------------------------- replies


def test_replies_to_commands_in_a_row_share_one_frame() -> None:
    owner = Owner()
    end = owner.link()
    end.attach(1)
    for request in range(1, 17):
        put(end, 1, request)
    received = end.take()
    assert len(received) == 1
    assert received[0].words(1) == [16] and received[0].request == 1
    end.words(frames.RESERVE_RUN, 1, 17, 20)
    received = end.take()
    assert opcodes(received) == [frames.RESERVED]
    assert received[0].words(1) == [16]
    assert received[0].words(33)[1::2] == [16 * i + 1 for i in range(16)]
    for request in range(16):
        end.words(frames.DELETE, 1, 37 + request, 16 * request + 1)
    received = end.take()
    assert [(each.opcode, each.flags, each.words(1)) for each in received] == [(frames.REPLY, frames.FLAG_ENDED, [16])]


def test_a_body_that_is_not_copied_comes_without_the_last_line_end() -> None:
    owner = Owner()
    end = owner.link()
    end.attach(1)
    for request, size in ((1, OWN_PIECE_BYTES - 1), (3, OWN_PIECE_BYTES)):
        body = b"b" * size
        put(end, 1, request, body)
        end.take()
        end.words(frames.RESERVE, 1, request + 1)
        received = end.take()[0]
        job_id = received.words(3)[1]
        bare = size >= OWN_PIECE_BYTES
        assert received.flags == (frames.FLAG_BARE if bare else 0)
        assert received.payload[24:] == b"RESERVED %d %d\r\n%s" % (job_id, size, body) + (b"" if bare else b"\r\n")


def test_a_run_ends_at_its_bytes_and_before_a_body_that_comes_alone() -> None:
    owner = Owner()
    end = owner.link()
    end.attach(1)
    for request in range(1, 5):
        put(end, 1, request, b"y" * 30_000)
    end.take()
    end.words(frames.RESERVE_RUN, 1, 5, 4)
    assert end.take()[0].words(1) == [3]
    large = b"z" * (CHUNK_BYTES + 1)
    end.words(frames.PUT_PART, 1, 0, len(large), body=large[:CHUNK_BYTES])
    put(end, 1, 6, large[CHUNK_BYTES:])
    end.take()
    end.words(frames.RESERVE_RUN, 1, 7, 4)
    assert end.take()[0].words(1) == [1]
    end.words(frames.RESERVE_RUN, 1, 9, 4)
    received = end.take()[0]
    assert received.flags == frames.FLAG_LARGE and received.words(1) == [1]


def test_a_large_reply_comes_in_pieces_and_outlives_its_job() -> None:
    owner = Owner()
    end = owner.link()
    end.attach(1)
    body = random.Random(3).randbytes(3 * CHUNK_BYTES + 17)
    for at in range(0, 3 * CHUNK_BYTES, CHUNK_BYTES):
        end.words(frames.PUT_PART, 1, 0, len(body), body=body[at : at + CHUNK_BYTES])
    put(end, 1, 1, body[3 * CHUNK_BYTES :])
    assert texts(end.take()) == [b"INSERTED 1\r\n"]
    end.words(frames.PEEK, 1, 2, 1)
    first = end.take()[0]
    assert first.opcode == frames.LARGE
    total = first.words(1)[0]
    text = first.payload[8:]
    memory = owner.core.counters.memory_bytes
    end.words(frames.DELETE, 1, 3, 1)
    assert texts(end.take()) == [b"DELETED\r\n"]
    assert owner.core.counters.memory_bytes == memory - 256 - len(body)
    while len(text) < total:
        end.plain(frames.MORE, 1, 2)
        piece = end.take()[0]
        assert piece.opcode == frames.CHUNK and 0 < len(piece.payload) <= CHUNK_BYTES
        text += piece.payload
    assert text == b"FOUND 1 %d\r\n" % len(body) + body + b"\r\n"
    assert owner.core.counters.memory_bytes == 0


def test_a_detach_lets_go_of_a_reply_in_pieces_and_of_a_body_in_pieces() -> None:
    owner = Owner()
    end = owner.link()
    end.attach(1)
    end.words(frames.PUT_PART, 1, 0, 2 * CHUNK_BYTES, body=b"a" * CHUNK_BYTES)
    put(end, 1, 1, b"a" * CHUNK_BYTES)
    end.plain(frames.PEEK_READY, 1, 2)
    end.take()
    end.words(frames.PUT_PART, 1, 0, 2 * CHUNK_BYTES, body=b"a" * CHUNK_BYTES)
    end.plain(frames.DETACH, 1)
    end.attach(2)
    end.words(frames.DELETE, 2, 1, 1)
    assert texts(end.take()) == [b"DELETED\r\n"]
    assert owner.core.counters.memory_bytes == 0


def test_put_is_refused_above_the_memory_limit_and_all_else_works() -> None:
    owner = Owner(memory_bytes_max=1_000)
    end = owner.link()
    end.attach(1)
    for request in range(1, 6):
        put(end, 1, request, b"m" * 100)
    assert (
        b"".join(texts(end.take())) == b"INSERTED 1\r\nINSERTED 17\r\nINSERTED 33\r\nOUT_OF_MEMORY\r\nOUT_OF_MEMORY\r\n"
    )
    end.plain(frames.RESERVE, 1, 6)
    end.words(frames.DELETE, 1, 7, 1)
    put(end, 1, 8)
    assert texts(end.take())[-1] == b"INSERTED 49\r\n"
    owner.core.memory_elsewhere_bytes = 1_000
    put(end, 1, 9)
    assert texts(end.take()) == [b"OUT_OF_MEMORY\r\n"]


def test_ids_run_out_without_wrapping() -> None:
    owner = Owner(first_sequence=((1 << 63) - 2) // 16)
    end = owner.link()
    end.attach(1)
    put(end, 1, 1)
    put(end, 1, 2)
    put(end, 1, 3)
    assert b"".join(texts(end.take())) == b"INSERTED 9223372036854775793\r\nINTERNAL_ERROR\r\nINTERNAL_ERROR\r\n"
    assert any("used up" in line for line in owner.core.take_log())


# ---------------------------------------------------------------- turns


def test_a_long_kick_shares_turns_and_stops_at_what_was_there() -> None:
    owner = Owner()
    end = owner.link()
    end.attach(1)
    end.attach(2)
    for request in range(1, 1_501):
        put(end, 1, request, delay_s=100)
    end.take()
    end.words(frames.KICK, 1, 1_501, 4_294_967_295)
    end.words(frames.DELETE, 1, 1_502, 999)
    owner.core.turn(owner.now_ns)
    assert 0 < owner.core.counters.jobs_ready < 1_500
    put(end, 2, 1, delay_s=100)
    owner.core.turn(owner.now_ns)
    assert owner.core.counters.jobs_ready < 1_500
    received = end.take()
    assert [(each.session, each.payload[8:]) for each in received] == [
        (2, b"INSERTED 24001\r\n"),
        (1, b"KICKED 1500\r\n" + b"NOT_FOUND\r\n"),
    ]
    assert owner.core.counters.jobs_delayed == 1


def test_a_kick_is_answered_with_all_of_its_jobs_when_those_who_wait_use_up_the_turn() -> None:
    owner = Owner()
    end = owner.link()
    names = [name for name in (b"t%d" % i for i in range(100)) if owner.core.engine.topology.slot_of_name(name) == 0]
    for session in range(1, 5):
        end.attach(session)
        end.words(frames.USE, session, 1, body=names[session])
        for request in range(2, 202):
            put(end, session, request, delay_s=100)
    for session in range(5, 805):
        end.attach(session, default=False)
        end.words(frames.WATCH, session, 1, body=names[session % 4 + 1])
        end.plain(frames.RESERVE, session, 2)
    end.take()
    for session in range(1, 5):
        end.words(frames.KICK, session, 202, 200)
        end.words(frames.KICK, session, 203, 1)
    assert b"".join(texts(end.take())) == b"KICKED 200\r\nKICKED 0\r\n" * 4
    assert owner.core.counters.jobs_reserved == 800


def test_without_space_in_the_log_reserve_job_still_takes_a_ready_job_and_knows_a_reserved_one() -> None:
    class FullJournal(Journal):
        def can_change(self) -> bool:
            return False

    owner = Owner(FullJournal())
    end = owner.link()
    end.attach(1)
    put(end, 1, 1)
    put(end, 1, 2, delay_s=100)
    end.take()
    end.words(frames.RESERVE_JOB, 1, 3, 1)
    end.words(frames.RESERVE_JOB, 1, 4, 1)
    end.words(frames.RESERVE_JOB, 1, 5, 17)
    received = end.take()
    assert opcodes(received) == [frames.RESERVED, frames.REPLY]
    assert texts(received) == [b"NOT_FOUND\r\nOUT_OF_MEMORY\r\n"]


def test_no_client_frame_is_executed_while_a_detach_goes_on() -> None:
    owner = Owner()
    end = owner.link()
    end.attach(1)
    end.attach(2)
    for request in range(1, 2_501):
        put(end, 1, request)
    for request in range(2_501, 5_001, 50):
        end.words(frames.RESERVE_RUN, 1, request, 50)
    end.take()
    assert owner.core.counters.jobs_reserved == 2_500
    owner.turn()
    end.plain(frames.DETACH, 1)
    put(end, 2, 1)
    assert owner.core.counters.jobs_reserved == 1_501  # the frame counts, too
    owner.core.turn(owner.now_ns)
    assert owner.core.counters.total_jobs == 2_500
    assert owner.core.next_deadline_ns() == 0
    assert texts(end.take()) == [b"INSERTED 40001\r\n"]
    assert owner.core.counters.jobs_ready == 2_501


def test_a_peer_that_does_not_read_is_given_nothing_more_and_jobs_go_to_others() -> None:
    owner = Owner()
    stuck = owner.link(index=0)
    other = owner.link(index=1)
    stuck.attach(1)
    stuck.attach(2)
    other.attach(1)
    stuck.plain(frames.RESERVE, 1, 1)
    other.plain(frames.RESERVE, 1, 1)
    owner.turn()
    owner.core.link_unsent(stuck.handle, LINK_UNSENT_BYTES_HIGH + 1, owner.now_ns)
    put(stuck, 2, 1)  # read by nobody
    other.attach(2)
    put(other, 2, 1)
    received = other.take()
    assert sorted(opcodes(received)) == [frames.REPLY, frames.RESERVED]
    put(other, 2, 2)
    assert opcodes(other.take()) == [frames.REPLY]
    assert stuck.take() == []
    owner.core.link_unsent(stuck.handle, 0, owner.now_ns)
    assert opcodes(stuck.take()) == [frames.RESERVED, frames.REPLY]


def test_a_link_that_may_not_go_on_is_not_read_either() -> None:
    owner = Owner()
    end = owner.link()
    end.attach(1)
    owner.core.link_unsent(end.handle, LINK_UNSENT_BYTES_HIGH + 1, owner.now_ns)
    for request in range(1, 7):
        put(end, 1, request, b"b" * CHUNK_BYTES)
    owner.turn()
    assert owner.actions == [(ACT_PAUSE, end.handle)]
    owner.core.link_unsent(end.handle, 0, owner.now_ns)
    assert len(b"".join(texts(end.take())).split()) == 12
    assert owner.actions[-1] == (ACT_RESUME, end.handle)


def test_the_last_opcodes_are_remembered_for_the_log_of_a_crash() -> None:
    owner = Owner()
    end = owner.link()
    end.attach(1)
    put(end, 1, 1)
    assert owner.core.recent_opcodes() == [frames.HELLO, frames.ATTACH, frames.PUT]
    for request in range(2, 40):
        end.words(frames.DELETE, 1, request, 1)
    assert owner.core.recent_opcodes() == [frames.DELETE] * 32


def test_what_was_sent_before_a_deadline_but_comes_after_it_is_late() -> None:
    owner = Owner()
    end = owner.link()
    end.attach(1)
    put(end, 1, 1, ttr_s=1)
    end.plain(frames.RESERVE, 1, 2)
    end.take()
    end.send(frame(frames.TOUCH, 1, 3, 1), owner.now_ns + SECOND)
    assert opcodes(end.take()) == [frames.EXPIRED, frames.REPLY]


def test_sessions_whose_numbers_share_a_place_are_told_apart() -> None:
    owner = Owner()
    end = owner.link()
    for session in range(1, RECENT_SEATS + 2):
        end.attach(session)
    end.take()
    ids = {}
    for request, session in enumerate((1, RECENT_SEATS + 1, 1, RECENT_SEATS + 1), 1):
        put(end, session, request, b"x")
        received = end.take()[0]
        assert (received.session, received.request) == (session, request)
        ids[session] = received.payload
    assert len(set(ids.values())) == 2
    end.words(frames.DETACH, 1, 0)
    put(end, RECENT_SEATS + 1, 9, b"y")
    assert end.take()[0].session == RECENT_SEATS + 1
    put(end, 1, 10, b"z")  # it crossed the end of its session
    assert end.take() == []
