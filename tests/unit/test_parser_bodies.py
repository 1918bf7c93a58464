"""Bodies that come in pieces: what is open and held meanwhile, refusing them, and what the parser keeps."""

import sys
import tracemalloc

import pytest

from beanfield.constants import BODY_PIECE_BYTES_MIN, JOB_BYTES_CEILING, LINE_BYTES_MAX, U32_MAX
from beanfield.proto import ops
from beanfield.proto.parser import ClientParser
from tests.unit.parser_cases import drain, feed, seen

# (put_open, producer_open)
CLOSED = (False, False)
SWALLOWED = (True, False)
OPEN = (True, True)


def open_state(parser: ClientParser) -> tuple[bool, bool]:
    return (parser.put_open, parser.producer_open)


def parser_after(data: bytes, job_bytes_max: int = 100_000) -> ClientParser:
    """A parser that has read all of this and found nothing complete at the end."""
    parser = ClientParser(job_bytes_max)
    parser.receive(data)
    drain(parser)
    return parser


def test_put_is_open_from_its_line_to_its_operation() -> None:
    parser = parser_after(b"put 1 2 3 5\r")
    assert open_state(parser) == CLOSED
    for piece in [b"\n", b"he", b"llo", b"\r"]:
        parser.receive(piece)
        assert parser.next() == ops.NEED_MORE
        assert open_state(parser) == OPEN
    parser.receive(b"\n")
    assert seen(parser, parser.next()) == ("put", 1, 2, 3, b"hello")
    assert open_state(parser) == CLOSED


def test_put_too_big_is_open_and_makes_no_producer() -> None:
    parser = parser_after(b"put 0 0 0 101\r\n", job_bytes_max=100)
    assert open_state(parser) == SWALLOWED
    parser.receive(b"x" * 102)
    assert parser.next() == ops.NEED_MORE
    assert open_state(parser) == SWALLOWED and parser.held == 0
    parser.receive(b"x")
    assert parser.next() == ops.OP_JOB_TOO_BIG
    assert open_state(parser) == CLOSED


def test_put_behind_an_operation_not_taken_yet_is_not_open() -> None:
    parser = ClientParser(100)
    parser.receive(b"reserve\r\nput 0 0 0 5\r\nhel")
    assert parser.next() == ops.OP_RESERVE
    assert open_state(parser) == CLOSED and parser.body_held == 0 and parser.held == len(b"put 0 0 0 5\r\nhel")
    assert parser.next() == ops.NEED_MORE
    assert open_state(parser)[0] and parser.body_held == 3 and parser.held == 3


def test_held_counts_every_byte_once() -> None:
    parser = ClientParser(100)
    assert parser.held == 0
    parser.receive(b"sta")
    assert parser.held == 3
    assert parser.next() == ops.NEED_MORE
    assert parser.held == 3
    parser.receive(b"ts\r\nreserve\r\n")
    parser.receive(b"put 0 0 0 9\r\n")
    parser.receive(b"abc")
    assert parser.held == 7 + 9 + 13 + 3
    assert parser.next() == ops.OP_STATS
    assert parser.held == 9 + 13 + 3
    assert parser.next() == ops.OP_RESERVE
    assert parser.next() == ops.NEED_MORE
    assert parser.held == parser.body_held == 3
    parser.receive(b"defghi\r")
    assert parser.held == 10
    assert parser.next() == ops.NEED_MORE
    assert parser.held == parser.body_held == 10
    parser.receive(b"\nq")
    assert parser.next() == ops.OP_PUT
    assert parser.held == 1 and parser.body_held == 0


@pytest.mark.parametrize("before", range(7))
def test_refused_body_is_swallowed_to_its_end(before: int) -> None:
    whole = b"hello\r\n"
    parser = parser_after(b"put 0 0 0 5\r\n" + whole[:before])
    assert parser.body_held == before
    parser.refuse_body()
    assert parser.body_held == 0 and parser.held == 0
    assert open_state(parser) == OPEN
    assert parser.next() == ops.NEED_MORE
    parser.receive(whole[before:] + b"stats\r\n")
    assert seen(parser, parser.next()) == ("body refused", "put")
    assert open_state(parser) == CLOSED
    assert drain(parser) == [("stats",)]


def test_refusing_needs_no_line_end_and_may_be_repeated() -> None:
    parser = parser_after(b"put 0 0 0 5\r\nhe")
    parser.refuse_body()
    parser.refuse_body()
    parser.receive(b"llo##stats\r\n")
    assert drain(parser) == [("body refused", "put"), ("stats",)]


def test_refusing_takes_bytes_received_and_not_read_yet() -> None:
    parser = parser_after(b"put 0 0 0 5\r\nhe")
    parser.receive(b"llo")
    parser.receive(b"\r\nstats\r\n")
    parser.refuse_body()
    assert drain(parser) == [("body refused", "put"), ("stats",)]


def test_refusing_a_body_that_is_swallowed_as_too_big_changes_nothing() -> None:
    parser = parser_after(b"put 0 0 0 6\r\nhe", job_bytes_max=5)
    parser.refuse_body()
    parser.receive(b"llo!\r\nstats\r\n")
    assert drain(parser) == [("job too big", "put"), ("stats",)]


def test_refusing_without_a_body_is_a_fault_of_the_caller() -> None:
    with pytest.raises(AssertionError):
        ClientParser(5).refuse_body()


def test_fields_of_an_operation_are_gone_after_the_next_call() -> None:
    parser = parser_after(b"")
    parser.receive(b"put 0 0 0 1\r\nx\r\nuse a\r\nput 0 0 0 1\r\nabcstats\r\n")
    assert parser.next() == ops.OP_PUT
    assert (parser.body, parser.name, parser.counted) == (b"x", b"", 0)
    assert parser.next() == ops.OP_USE
    assert (parser.body, parser.name, parser.counted) == (b"", b"a", 0)
    assert parser.next() == ops.OP_EXPECTED_CRLF
    assert (parser.body, parser.name, parser.counted) == (b"", b"", ops.OP_PUT)
    assert parser.next() == ops.OP_STATS
    assert parser.counted == 0
    assert parser.next() == ops.NEED_MORE


def test_body_taken_is_kept_no_longer() -> None:
    body = bytes(range(256))
    parser = parser_after(b"put 0 0 0 256\r\n" + body)
    parser.receive(b"\r\n")
    assert parser.next() == ops.OP_PUT
    assert parser.take_body() == body
    assert parser.body == b"" and parser.take_body() == b""


@pytest.mark.parametrize(
    "data",
    [b"put 0 0 0 500\r\nabc", b"stats\r\nsta", b"x" * 300, b"put 0 0 0 200000\r\nabc", b"a\0b", b"stats\r\nstats\r\n"],
)
def test_release_lets_go_of_everything(data: bytes) -> None:
    parser = ClientParser(1000)
    parser.receive(data)
    parser.receive(data)
    parser.next()
    parser.receive(data)
    parser.release()
    assert parser.held == 0 and parser.body_held == 0 and open_state(parser) == CLOSED
    assert parser.body == b"" and parser.name == b""
    parser.receive(b"stats\r\n")
    assert drain(parser) == [("stats",)]


def test_received_bytes_are_let_go_once_read() -> None:
    """An idle client costs no buffer: neither after whole commands nor behind an incomplete line."""
    for last in [b"", b"sta", b"x" * 223, b"x" * 300, b"x" * 222 + b"\r"]:
        chunk = b"delete 12345\r\n" * 1000 + last
        before = sys.getrefcount(chunk)
        parser = ClientParser(100)
        parser.receive(chunk)
        assert len(drain(parser)) == 1000
        assert sys.getrefcount(chunk) == before
        assert parser.held <= LINE_BYTES_MAX


def test_pieces_of_a_body_refused_or_of_a_client_gone_are_let_go() -> None:
    for let_go in [ClientParser.refuse_body, ClientParser.release]:
        chunk = bytes(5000)
        before = sys.getrefcount(chunk)
        parser = parser_after(b"put 0 0 0 90000\r\n")
        parser.receive(chunk)
        assert parser.next() == ops.NEED_MORE
        assert sys.getrefcount(chunk) == before + 1
        let_go(parser)
        assert sys.getrefcount(chunk) == before


def test_endless_line_is_not_kept() -> None:
    parser = ClientParser(100)
    for _ in range(100):
        parser.receive(b"x" * 1000 + b"\r")
        assert parser.next() == ops.NEED_MORE
        assert parser.held <= 1
    parser.receive(b"\nstats\r\n")
    assert drain(parser) == [("bad format", None), ("stats",)]


@pytest.mark.parametrize("step", [1, 2, 7, 1000])
def test_body_in_small_pieces_costs_about_its_size(step: int) -> None:
    body = bytes(range(256)) * 400
    data = body + b"\r\n"
    pieces = [data[at : at + step] for at in range(0, len(data), step)]
    parser = parser_after(b"put 0 0 9 %d\r\n" % len(body), job_bytes_max=len(body))
    tracemalloc.start()
    for piece in pieces[:-1]:
        parser.receive(piece)
        assert parser.next() == ops.NEED_MORE
    # The pieces above exist already, so what is traced is what the parser made of them.
    held_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held_bytes < 2 * len(body)
    parser.receive(pieces[-1])
    assert seen(parser, parser.next()) == ("put", 0, 0, 9, body)


def test_body_in_pieces_around_the_joining_size_is_whole() -> None:
    body = bytes(range(256)) * 100
    for step in [BODY_PIECE_BYTES_MIN - 1, BODY_PIECE_BYTES_MIN, BODY_PIECE_BYTES_MIN + 1, 2 * BODY_PIECE_BYTES_MIN]:
        data = b"put 0 0 1 %d\r\n%s\r\nstats\r\n" % (len(body), body)
        pieces = [data[at : at + step] for at in range(0, len(data), step)]
        assert feed(pieces, len(body)) == [("put", 0, 0, 1, body), ("stats",)]
        mixed = [piece for at, piece in enumerate(pieces) for piece in ([piece] if at % 2 else [piece[:5], piece[5:]])]
        assert feed([piece for piece in mixed if piece], len(body)) == [("put", 0, 0, 1, body), ("stats",)]


def test_announced_bytes_are_not_allocated() -> None:
    parser = parser_after(b"put 0 0 0 %d\r\nabc" % JOB_BYTES_CEILING, job_bytes_max=JOB_BYTES_CEILING)
    assert open_state(parser)[0] and parser.held == 3
    parser = parser_after(b"put 0 0 0 %d\r\nabc" % U32_MAX, job_bytes_max=JOB_BYTES_CEILING)
    assert open_state(parser)[0] and parser.held == 0
