"""Every line of the contract sheet's sections 0.1, 0.2, 1 and 2.1, each fed in every way it can be cut."""

import pytest

from beanfield.constants import LINE_BYTES_MAX, U32_MAX, U64_MAX
from tests.unit.parser_cases import Seen, check_every_way, feed, ways_to_cut

BAD: Seen = ("bad format", None)
UNKNOWN: Seen = ("unknown command", None)
BAD_COUNTED_PUT: Seen = ("bad format", "put")
BAD_COUNTED_PAUSE: Seen = ("bad format", "pause-tube")

NAME_200 = b"x" * 200
EVERY_NAME_BYTE = b"AZaz09-+/;.$_()"

COMMANDS: list[tuple[bytes, Seen]] = [
    (b"put 1 2 3 5\r\nhello\r\n", ("put", 1, 2, 3, b"hello")),
    (b"put 0 0 0 0\r\n\r\n", ("put", 0, 0, 1, b"")),
    (b"put 4294967295 4294967295 4294967295 1\r\n\0\r\n", ("put", U32_MAX, U32_MAX, U32_MAX, b"\0")),
    (b"put 1 2 3 4\r\n\r\n\r\n\r\n", ("put", 1, 2, 3, b"\r\n\r\n")),
    (b"put 1 2 3 9\r\nreserve\r\n\r\n", ("put", 1, 2, 3, b"reserve\r\n")),
    (b"put 1 2 3 1\r\n\r\r\n", ("put", 1, 2, 3, b"\r")),
    (b"put   007   0   00   01\r\na\r\n", ("put", 7, 0, 1, b"a")),
    (b"put 0 0 1 100\r\n" + b"z" * 100 + b"\r\n", ("put", 0, 0, 1, b"z" * 100)),
    (b"peek 1\r\n", ("peek", 1)),
    (b"peek-ready\r\n", ("peek-ready",)),
    (b"peek-delayed\r\n", ("peek-delayed",)),
    (b"peek-buried\r\n", ("peek-buried",)),
    (b"reserve\r\n", ("reserve",)),
    (b"reserve-with-timeout 0\r\n", ("reserve-with-timeout", 0)),
    (b"reserve-with-timeout 2147483647\r\n", ("reserve-with-timeout", 2147483647)),
    (b"reserve-with-timeout   12\r\n", ("reserve-with-timeout", 12)),
    (b"reserve-with-timeout 0abc\r\n", ("reserve-with-timeout", 0)),
    (b"reserve-with-timeout 0 1 2\r\n", ("reserve-with-timeout", 0)),
    (b"reserve-with-timeout 7 \r\n", ("reserve-with-timeout", 7)),
    (b"reserve-job 5\r\n", ("reserve-job", 5)),
    (b"delete 123456789\r\n", ("delete", 123456789)),
    (b"delete    5\r\n", ("delete", 5)),
    (b"release 1 2 3\r\n", ("release", 1, 2, 3)),
    (b"release  1  2  3\r\n", ("release", 1, 2, 3)),
    (b"bury 1 2\r\n", ("bury", 1, 2)),
    (b"kick 3\r\n", ("kick", 3)),
    (b"kick-job 4\r\n", ("kick-job", 4)),
    (b"touch 5\r\n", ("touch", 5)),
    (b"stats-job 6\r\n", ("stats-job", 6)),
    (b"stats-tube a\r\n", ("stats-tube", b"a")),
    (b"stats\r\n", ("stats",)),
    (b"use a\r\n", ("use", b"a")),
    (b"watch a\r\n", ("watch", b"a")),
    (b"ignore a\r\n", ("ignore", b"a")),
    (b"list-tubes\r\n", ("list-tubes",)),
    (b"list-tube-used\r\n", ("list-tube-used",)),
    (b"list-tubes-watched\r\n", ("list-tubes-watched",)),
    (b"quit\r\n", ("quit",)),
    (b"quitfoo\r\n", ("quit",)),
    (b"quit foo\r\n", ("quit",)),
    (b"pause-tube a 9\r\n", ("pause-tube", b"a", 9)),
    (b"pause-tube   a   9\r\n", ("pause-tube", b"a", 9)),
    (b"pause-tubedefault 0\r\n", ("pause-tube", b"default", 0)),
    (b"pause-tube a 4294967295\r\n", ("pause-tube", b"a", U32_MAX)),
    (b"pause-tube 12 3\r\n", ("pause-tube", b"12", 3)),
]

UNKNOWN_LINES = [
    b"", b" ", b"\n", b"foo", b"STATS", b"Put 0 0 0 0", b" stats", b"put", b"peek", b"delete", b"release", b"bury",
    b"kick", b"kick-job", b"touch", b"use", b"watch", b"ignore", b"put\t0 0 0 0", b"peek-foo", b"peek-", b"peek-read",
    b"list-tube", b"list-tubs", b"kick-jobs 9", b"kick-jo", b"reserv", b"rel", b"stat", b"qui", b"pause-tub", b"pause",
    b"u", b"usea", b"foo\nlist-tube-used", b"\xff\xfe", b"put\xff", b"release1 2 3", b"\r", b"\rstats", b"x\r",
    b"touch5",
]  # fmt: skip

BAD_LINES = [
    # with one trailing blank and nothing else
    b"put ", b"peek ", b"delete ", b"release ", b"bury ", b"kick ", b"kick-job ", b"touch ", b"use ", b"watch ",
    b"ignore ", b"stats ", b"reserve ", b"list-tubes ", b"list-tube-used ", b"list-tubes-watched ", b"peek-ready ",
    b"pause-tube ", b"reserve-job ", b"reserve-with-timeout ", b"stats-job ", b"stats-tube ",
    # a known prefix with something else behind it
    b"reserve-with-timeout", b"reserve-job", b"reservefoo", b"reserve-with-timeout5", b"reserve-job5", b"stats-job",
    b"stats-tube", b"stats-job9", b"statsx", b"stats\nlist-tube-used", b"list-tubesx", b"list-tubes-watchedx",
    b"list-tube-usedx", b"list-tubes-watche", b"peek-readyx", b"peek-delayedx", b"peek-buriedx", b"pause-tube",
    b"pause-tubex", b"pause-tube 0",
    # numbers
    b"put 0 0 0", b"put 0 0 0 x", b"put x 0 0 0", b"put 0 x 0 0", b"put 0 0 x 0", b"put -1 0 0 0", b"put +1 0 0 0",
    b"put 0\t0 0 0", b"put 0 0 0 \t1", b"put 0,0 0 0", b"put 4294967296 0 0 0", b"put 0 4294967296 0 0",
    b"put 0 0 4294967296 0", b"put 0 0 0 4294967296", b"put 0 0 0 99999999999999999999999999", b"put 0 0 0 -1",
    b"delete x", b"delete 1 ", b"delete 1x", b"delete 1 2", b"delete -1", b"delete +1", b"delete \t1", b"delete 1\n",
    b"delete 0x1", b"delete 1\xb9", b"release 1", b"release 1 2", b"release 1 2 3 ", b"release 1 2 3 4",
    b"release 1 4294967296 0", b"release 1 0 4294967296", b"release x 2 3", b"release 1 x 3", b"bury 1", b"bury 1 2 ",
    b"bury 1 2 3", b"bury x 2", b"bury 1 4294967296", b"touch 1 ", b"peek 1 ", b"stats-job x", b"kick-job x",
    b"reserve-job 1 2", b"reserve-with-timeout x", b"reserve-with-timeout -1", b"reserve-with-timeout 2147483648",
    b"reserve-with-timeout 4294967296", b"reserve-with-timeout 99999999999999999999",
    # names
    b"use -a", b"use a ", b"use  a", b"use a b", b"use a\tb", b"use a\n", b"use \xe4", b"use a,b", b"use a*",
    b"use " + NAME_200 + b"x", b"watch -", b"watch a:b", b"ignore a=b", b"ignore  a", b"stats-tube  a",
    b"stats-tube a ", b"stats-tube -a", b"pause-tube a", b"pause-tube a ", b"pause-tube a x", b"pause-tube a 1 ",
    b"pause-tube a 1 2", b"pause-tube a 4294967296", b"pause-tube a\t1", b"pause-tube ~ 1", b"pause-tube -a x",
    b"pause-tube " + b"x" * 201, b"pause-tube a -1",
    # a NUL anywhere comes first
    b"\0", b"foo\0", b"\0stats", b"stats\0", b"use a\0", b"quit\0", b"kick 3\0", b"reserve-with-timeout 0\0",
    b"put 0 0 0 1\0", b"put 0 0 0 9999 \0",
    # a CR that no LF follows is an illegal character
    b"use a\rb", b"use a\r", b"stats\r", b"reserve\r", b"delete 1\r", b"put 0 0 0\r1",
]  # fmt: skip


@pytest.mark.parametrize(("data", "expected"), COMMANDS)
def test_command_is_recognised_with_its_fields(data: bytes, expected: Seen) -> None:
    check_every_way(data, [expected])


@pytest.mark.parametrize("line", UNKNOWN_LINES)
def test_line_is_unknown(line: bytes) -> None:
    check_every_way(line + b"\r\n", [UNKNOWN])


@pytest.mark.parametrize("line", BAD_LINES)
def test_line_is_badly_formed_and_not_counted(line: bytes) -> None:
    check_every_way(line + b"\r\n", [BAD])


def test_line_feed_alone_never_ends_a_line() -> None:
    check_every_way(b"stats\nlist-tube-used\r\n", [BAD])
    check_every_way(b"foo\nlist-tube-used\r\n", [UNKNOWN])
    check_every_way(b"put 0 0 0 1\na\n\r\n", [BAD_COUNTED_PUT])


def test_carriage_return_before_the_line_end_is_a_character() -> None:
    check_every_way(b"use a\r\r\n", [BAD])
    check_every_way(b"foo\r\r\r\r\r\n", [UNKNOWN])
    check_every_way(b"quit\r\r\n", [("quit",)])
    check_every_way(b"kick \r\r3\r\r\n", [("kick", 3)])


# ---------------------------------------------------------------- numbers
@pytest.mark.parametrize(
    ("written", "job_id"),
    [
        (b"0", 0),
        (b"1", 1),
        (b"000000000000000000000000000000000000000000000000000000000000000012", 12),
        (b"999999999999999999", 999999999999999999),
        (b"1000000000000000000", 1000000000000000000),
        (b"9223372036854775799", 9223372036854775799),
        (b"9223372036854775800", 9223372036854775800),
        (b"9223372036854775806", 9223372036854775806),
        (b"9223372036854775807", 9223372036854775807),
        (b"0000000009223372036854775807", 9223372036854775807),
        (b"9223372036854775808", -1),
        (b"9223372036854775809", -1),
        (b"9223372036854775810", -1),
        (b"9999999999999999999", -1),
        (b"10000000000000000000", -1),
        (b"18446744073709551615", -1),
        (b"000018446744073709551615", -1),
    ],
)
def test_id_is_read_up_to_64_bits(written: bytes, job_id: int) -> None:
    check_every_way(b"delete " + written + b"\r\n", [("delete", job_id)])
    check_every_way(b"release " + written + b" 1 2\r\n", [("release", job_id, 1, 2)])
    check_every_way(b"bury " + written + b" 1\r\n", [("bury", job_id, 1)])
    check_every_way(b"delete " + written + b"x\r\n", [BAD])


@pytest.mark.parametrize(
    "written", [b"18446744073709551616", b"18446744073709551620", b"99999999999999999999", b"9" * 60]
)
def test_id_above_64_bits_is_badly_formed(written: bytes) -> None:
    assert int(written) > U64_MAX
    check_every_way(b"delete " + written + b"\r\n", [BAD])
    check_every_way(b"release " + written + b" 1 2\r\n", [BAD])
    check_every_way(b"kick " + written + b"\r\n", [BAD])
    check_every_way(b"kick -" + written + b"\r\n", [BAD])


def test_leading_zeros_have_no_limit_but_the_line() -> None:
    zeros = b"0" * (LINE_BYTES_MAX - len(b"delete 7\r\n"))
    check_every_way(b"delete " + zeros + b"7\r\n", [("delete", 7)])
    check_every_way(b"delete 0" + zeros + b"7\r\n", [BAD])
    zeros = zeros[:200]
    check_every_way(b"put " + zeros + b"1 0 1 1\r\nx\r\n", [("put", 1, 0, 1, b"x")])


@pytest.mark.parametrize(
    ("written", "bound"),
    [
        (b"0", 0),
        (b"-0", 0),
        (b"+5", 5),
        (b"\t 5", 5),
        (b" \t\n\v\f\r 5", 5),
        (b"-1", 4294967295),
        (b"4294967295", 4294967295),
        (b"4294967296", 0),
        (b"4294967297", 1),
        (b"-4294967294", 2),
        (b"-4294967295", 1),
        (b"-4294967296", 0),
        (b"3abc", 3),
        (b"3 4", 3),
        (b"3-", 3),
        (b"0x10", 0),
        (b"007", 7),
        (b"9223372036854775807", 4294967295),
        (b"-9223372036854775807", 1),
        (b"9223372036854775808", 0),
        (b"-9223372036854775808", 0),
        (b"9223372036854775809", 1),
        (b"18446744073709551615", 4294967295),
        (b"-18446744073709551615", 1),
        (b"18446744073709551615x", 4294967295),
        (b"-18446744073709551613 ", 3),
    ],
)
def test_kick_reads_its_bound_as_c_does_and_keeps_32_bits(written: bytes, bound: int) -> None:
    check_every_way(b"kick " + written + b"\r\n", [("kick", bound)])


@pytest.mark.parametrize(
    "written", [b"", b" ", b"\t", b"-", b"+", b"+-5", b"--5", b"- 5", b"x", b"x5", b"\r", b"\xa05"]
)
def test_kick_without_digits_is_badly_formed(written: bytes) -> None:
    check_every_way(b"kick " + written + b"\r\n", [BAD])


# ---------------------------------------------------------------- names
@pytest.mark.parametrize("name", [b"a", b"A", b"0", EVERY_NAME_BYTE, b"+-", NAME_200, b"123"])
def test_name_is_taken_as_it_is(name: bytes) -> None:
    for word in ["use", "watch", "ignore", "stats-tube"]:
        check_every_way(word.encode() + b" " + name + b"\r\n", [(word, name)])
    check_every_way(b"pause-tube " + name + b" 5\r\n", [("pause-tube", name, 5)])


def test_exactly_the_documented_bytes_may_stand_in_a_name() -> None:
    for byte in range(256):
        legal = bytes([byte]).isalnum() or byte in b"-+/;.$_()"
        check_every_way(b"use a" + bytes([byte]) + b"\r\n", [("use", b"a" + bytes([byte]))] if legal else [BAD])
        first_legal = legal and byte != ord("-")
        check_every_way(b"use " + bytes([byte]) + b"\r\n", [("use", bytes([byte]))] if first_legal else [BAD])


@pytest.mark.parametrize(
    "line", [b"pause-tube -a 0", b"pause-tube-a 0", b"pause-tube " + b"x" * 201 + b" 0", b"pause-tube - 5"]
)
def test_pause_of_an_impossible_name_is_counted_before_it_is_refused(line: bytes) -> None:
    check_every_way(line + b"\r\n", [BAD_COUNTED_PAUSE])


# ---------------------------------------------------------------- the limit of a line
def test_longest_line_is_accepted() -> None:
    line = b"pause-tube " + NAME_200 + b" 4294967295\r\n"
    assert len(line) == LINE_BYTES_MAX
    check_every_way(line, [("pause-tube", NAME_200, U32_MAX)])


@pytest.mark.parametrize("length", [225, 226, 227, 447, 448, 449, 450, 451, 672, 673, 674, 1000])
def test_line_over_the_limit_is_swallowed_and_answered_once(length: int) -> None:
    for filling in [b"x", b"\r", b"\n", b"\0"]:
        line = b"delete " + filling * (length - 9) + b"\r\n"
        assert len(line) == length
        check_every_way(line, [BAD])


def test_line_at_the_limit_is_looked_at_and_one_byte_more_is_not() -> None:
    check_every_way(b"x" * 222 + b"\r\n", [UNKNOWN])
    check_every_way(b"x" * 223 + b"\r\n", [BAD])
    check_every_way(b"quit" + b"x" * 218 + b"\r\n", [("quit",)])
    check_every_way(b"quit" + b"x" * 219 + b"\r\n", [BAD])
    check_every_way(b"x" * 222 + b"\r\r\n", [BAD])


def test_put_line_over_the_limit_has_no_body() -> None:
    line = b"put " + b"0" * 220 + b" 0 0 3"
    check_every_way(line + b"\r\nfoo\r\n", [BAD, UNKNOWN])


def test_line_without_end_gives_nothing() -> None:
    for data in [
        b"x",
        b"x" * 222,
        b"x" * 223,
        b"x" * 224,
        b"x" * 225,
        b"x" * 1000,
        b"x" * 222 + b"\r",
        b"stats",
        b"stats\r",
    ]:
        for pieces in ways_to_cut(data):
            assert feed(pieces) == []


def test_nul_seen_in_one_line_is_forgotten_in_the_next() -> None:
    check_every_way(b"a\0\r\nstats\r\n" + b"\0" * 300 + b"\r\nstats\r\n", [BAD, ("stats",), BAD, ("stats",)])


# ---------------------------------------------------------------- the order of put's checks
def test_malformed_put_is_not_counted_and_its_body_is_parsed() -> None:
    check_every_way(b"put 0 0 0 x\r\nstats\r\n", [BAD, ("stats",)])
    check_every_way(b"put 0 0 0 4294967296\r\nfoo\r\n", [BAD, UNKNOWN])


@pytest.mark.parametrize("trailing", [b" ", b"x", b" 1", b"\r", b"\t", b" junk"])
def test_put_with_trailing_text_is_counted_and_its_body_is_parsed(trailing: bytes) -> None:
    check_every_way(b"put 0 0 0 5" + trailing + b"\r\nstats\r\n", [BAD_COUNTED_PUT, ("stats",)])


def test_body_too_big_is_swallowed_exactly_and_then_answered() -> None:
    too_big: Seen = ("job too big", "put")
    check_every_way(b"put 0 0 0 101\r\n" + b"x" * 101 + b"\r\n", [too_big])
    check_every_way(b"put 0 0 0 101\r\n" + b"\r\n" * 50 + b"stats" + b"\r\n", [too_big, UNKNOWN])
    check_every_way(b"put 0 0 0 101\r\n" + b"x" * 103 + b"stats\r\n", [too_big, ("stats",)])
    check_every_way(b"put 0 0 0 101 junk\r\n" + b"x" * 103, [too_big])


def test_largest_body_is_accepted() -> None:
    check_every_way(b"put 0 0 5 100\r\n" + b"x" * 100 + b"\r\n", [("put", 0, 0, 5, b"x" * 100)])
    check_every_way(b"put 0 0 5 4\r\nabcd\r\n", [("put", 0, 0, 5, b"abcd")], job_bytes_max=4)
    check_every_way(b"put 0 0 5 5\r\nabcde\r\n", [("job too big", "put")], job_bytes_max=4)
    assert feed([b"put 0 0 5 0\r\n\r\nput 0 0 5 1\r\nx\r\n"], 0) == [("put", 0, 0, 5, b""), ("job too big", "put")]


def test_body_without_its_line_end_is_consumed_and_refused() -> None:
    expected_crlf: Seen = ("expected crlf", "put")
    check_every_way(b"put 0 0 0 1\r\nabc\r\n", [expected_crlf, UNKNOWN])
    check_every_way(b"put 0 0 0 0\r\nab", [expected_crlf])
    check_every_way(b"put 0 0 0 3\r\nabc\r\r", [expected_crlf])
    check_every_way(b"put 0 0 0 3\r\nabc\n\n", [expected_crlf])
    check_every_way(b"put 0 0 0 3\r\nabcd\n", [expected_crlf])
    check_every_way(b"put 0 0 0 9\r\nx\r\nstats\r\nquit\r\n", [expected_crlf, UNKNOWN])
