"""The spelling of every reply."""

import pytest
from librt.strings import BytesWriter

from beanfield.proto import replies

WORDS = [
    "DELETED", "RELEASED", "BURIED", "TOUCHED", "KICKED", "PAUSED", "NOT_FOUND", "NOT_IGNORED", "TIMED_OUT",
    "DEADLINE_SOON", "DRAINING", "JOB_TOO_BIG", "EXPECTED_CRLF", "OUT_OF_MEMORY", "INTERNAL_ERROR", "BAD_FORMAT",
    "UNKNOWN_COMMAND",
]  # fmt: skip


@pytest.mark.parametrize("word", WORDS)
def test_reply_without_arguments_is_its_word_and_a_line_end(word: str) -> None:
    assert getattr(replies, word) == word.encode() + b"\r\n"


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (replies.buried_id(12), b"BURIED 12\r\n"),
        (replies.reserved(7, b"a\r\n\0"), b"RESERVED 7 4\r\na\r\n\0\r\n"),
        (replies.reserved(7, b""), b"RESERVED 7 0\r\n\r\n"),
        (replies.found(7, b"abc"), b"FOUND 7 3\r\nabc\r\n"),
        (replies.kicked(0), b"KICKED 0\r\n"),
        (replies.kicked(4294967295), b"KICKED 4294967295\r\n"),
        (replies.watching(1), b"WATCHING 1\r\n"),
        (replies.using(b"a"), b"USING a\r\n"),
        (replies.ok(b"---\n- default\n"), b"OK 14\r\n---\n- default\n\r\n"),
        (replies.ok(b""), b"OK 0\r\n\r\n"),
    ],
)
def test_reply_with_arguments_is_spelled_as_beanstalkd_does(reply: bytes, text: bytes) -> None:
    assert reply == text


@pytest.mark.parametrize("power", range(19))
def test_digits_written_without_an_object_are_those_of_the_number(power: int) -> None:
    for number in (10**power - 1, 10**power, 10**power + 1, 3 * 10**power, 9 * 10**power, 2**63 - 1, 2**63 - 1 - power):
        w = BytesWriter()
        w.write(b"before ")
        replies.write_digits(w, number)
        assert w.getvalue() == b"before %d" % number
        assert replies.count_digits(number) == len(str(number))


@pytest.mark.parametrize("job_id", [1, 9, 10, 2**32, 10**18 - 1, 10**18, 2**63 - 1])
def test_replies_written_in_place_have_the_length_that_is_said_before(job_id: int) -> None:
    w = BytesWriter()
    replies.write_inserted(w, job_id)
    assert w.getvalue() == b"INSERTED %d\r\n" % job_id
    assert replies.inserted_bytes(job_id) == len(w)
    for body_bytes in (0, 9, 10, 65_535, 2**32):
        w = BytesWriter()
        replies.write_reserved_head(w, job_id, body_bytes)
        assert w.getvalue() == b"RESERVED %d %d\r\n" % (job_id, body_bytes)
        assert replies.reserved_head_bytes(job_id, body_bytes) == len(w)


@pytest.mark.parametrize("body", [b"", b"x", b"x" * 65535, bytes(range(256))])
def test_reply_in_pieces_is_the_whole_reply(body: bytes) -> None:
    w = BytesWriter()
    replies.write_reserved_head(w, 300, len(body))
    assert w.getvalue() + body + replies.CRLF == replies.reserved(300, body)
    assert replies.found_head(300, len(body)) + body + replies.CRLF == replies.found(300, body)


def test_digits_are_those_of_the_number() -> None:
    numbers = [0, 1, 9, 10, 99, 100, 255, 65535, 2**31, 2**32 - 1, 2**53, 2**63 - 1, -1, -8, -(2**63)]
    for power in range(19):
        numbers += [10**power - 1, 10**power, 10**power + 1]
    for number in numbers:
        assert replies.digits(number) == str(number).encode()
