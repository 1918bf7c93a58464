"""The load generator's reader of replies: the same replies however their bytes are cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beanfield.bench import replies
from beanfield.bench.replies import (
    NEED_MORE,
    REPLY_BROKEN,
    REPLY_DELETED,
    REPLY_INSERTED,
    REPLY_LINE_BYTES_MAX,
    REPLY_OTHER,
    REPLY_RELEASED,
    REPLY_RESERVED,
    REPLY_TIMED_OUT,
    REPLY_TOUCHED,
    REPLY_USING,
    REPLY_WATCHING,
    ReplyReader,
)

STREAM = [
    (b"INSERTED 1\r\n", (REPLY_INSERTED, b"")),
    (b"INSERTED 18446744073709551615\r\n", (REPLY_INSERTED, b"")),
    (b"RESERVED 18446744073709551615 5\r\nhello\r\n", (REPLY_RESERVED, b"18446744073709551615")),
    (b"RESERVED 12 0\r\n\r\n", (REPLY_RESERVED, b"12")),
    (b"RESERVED 13 13\r\nDELETED\r\nOK 1\r\n", (REPLY_RESERVED, b"13")),
    (b"RESERVED 14 2\r\n\r\n\r\n", (REPLY_RESERVED, b"14")),
    (b"DELETED\r\n", (REPLY_DELETED, b"")),
    (b"RELEASED\r\n", (REPLY_RELEASED, b"")),
    (b"TOUCHED\r\n", (REPLY_TOUCHED, b"")),
    (b"TIMED_OUT\r\n", (REPLY_TIMED_OUT, b"")),
    (b"USING t-1\r\n", (REPLY_USING, b"")),
    (b"WATCHING 2\r\n", (REPLY_WATCHING, b"")),
    (b"NOT_FOUND\r\n", (REPLY_OTHER, b"NOT_FOUND")),
    (b"BURIED 7\r\n", (REPLY_OTHER, b"BURIED 7")),
    (b"DEADLINE_SOON\r\n", (REPLY_OTHER, b"DEADLINE_SOON")),
    (b"FOUND 3 4\r\n\r\n\r\n\r\n", (REPLY_OTHER, b"FOUND")),
    (b"OK 6\r\n---\r\n1\r\n", (REPLY_OTHER, b"OK")),
    (b"\r\n", (REPLY_OTHER, b"")),
    (b"INSERTED one\r\n", (REPLY_OTHER, b"INSERTED one")),
    (b"DELETED 5\r\n", (REPLY_OTHER, b"DELETED 5")),
    (b"lone \r and \n stay\r\n", (REPLY_OTHER, b"lone \r and \n stay")),
]
BYTES = b"".join(data for data, _ in STREAM)
MEANING = [meaning for _, meaning in STREAM]


def read_all(pieces):
    """Each reply with what it brought: the id of a reservation, the words of an unknown line."""
    reader = ReplyReader()
    found = []
    for piece in pieces:
        reader.receive(piece)
        while (reply := reader.next()) != NEED_MORE:
            brought = reader.job_id if reply == REPLY_RESERVED else reader.said if reply >= REPLY_OTHER else b""
            found.append((reply, brought))
            if reply == REPLY_BROKEN:
                return found
    return found


def test_replies_come_out_in_order():
    assert read_all([BYTES]) == MEANING


def test_replies_come_out_the_same_byte_by_byte():
    assert read_all(bytes([byte]) for byte in BYTES) == MEANING


@given(st.lists(st.integers(0, len(BYTES)), max_size=20))
def test_replies_come_out_the_same_however_they_are_cut(places):
    cuts = [0, *sorted(set(places)), len(BYTES)]
    assert read_all(BYTES[a:b] for a, b in zip(cuts, cuts[1:], strict=False) if a < b) == MEANING


def test_a_large_body_is_passed_over_and_not_kept():
    reader = ReplyReader()
    reader.receive(b"RESERVED 1 1000000\r\n")
    for _ in range(10):
        assert reader.next() == NEED_MORE
        reader.receive(b"x" * 100_000)
    assert reader.next() == NEED_MORE
    reader.receive(b"\r\nDELETED\r\n")
    assert (reader.next(), reader.body_bytes) == (REPLY_RESERVED, 1_000_000)
    assert (reader.next(), reader.body_bytes) == (REPLY_DELETED, 0)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"RESERVED 1 2\r\nabc\r\n", b"(a body without its line end)"),
        (b"RESERVED x 2\r\nab\r\n", b"RESERVED x 2"),
        (b"RESERVED 1\r\n", b"RESERVED 1"),
        (b"RESERVED 1 -2\r\n", b"RESERVED 1 -2"),
        (b"OK 99999999999999999\r\n", b"OK 99999999999999999"),
        (b"x" * (REPLY_LINE_BYTES_MAX + 1), b"x" * replies.SAID_BYTES_MAX),
    ],
)
def test_what_cannot_be_a_reply_is_broken(data, said):
    for pieces in ([data], [bytes([byte]) for byte in data]):
        assert read_all(pieces) == [(REPLY_BROKEN, said)]


def test_names_of_replies_stand_at_their_codes():
    assert replies.REPLY_NAMES[REPLY_INSERTED] == b"INSERTED"
    assert replies.REPLY_NAMES[REPLY_WATCHING] == b"WATCHING"
    assert len(replies.REPLY_NAMES) == REPLY_WATCHING + 1 == REPLY_OTHER
