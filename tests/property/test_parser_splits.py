"""Whatever bytes come, and however they are cut: the operations are those of the reference parser."""

from hypothesis import example, given
from hypothesis import strategies as st

from beanfield.proto.ops import op_names
from tests.property.parser_reference import operations
from tests.unit.parser_cases import JOB_BYTES_MAX, cut, feed, feed_late

WORDS = [name.encode() for name in op_names[1:26]]
NUMBERS = [
    b"0", b"1", b"5", b"12", b"99", b"100", b"101", b"102", b"007", b"255", b"2147483647", b"2147483648",
    b"4294967295", b"4294967296", b"9223372036854775807", b"9223372036854775808", b"18446744073709551615",
    b"18446744073709551616", b"-1", b"+3", b"0" * 100,
]  # fmt: skip
NAMES = [b"a", b"default", b"-a", b"x" * 199, b"x" * 200, b"x" * 201, b"a-b+c/d;e.f$g_h(i)", b"a,b", b""]
NOISE = [
    b" ",
    b"  ",
    b"\t",
    b"\r",
    b"\n",
    b"\r\n",
    b"\r\r\n",
    b"\0",
    b"x",
    b"\xff",
    b"x" * 215,
    b"x" * 223,
    b"\r" * 224,
]

fragments = st.one_of(
    st.sampled_from(WORDS),
    st.sampled_from(NUMBERS),
    st.sampled_from(NAMES),
    st.sampled_from(NOISE),
    st.binary(max_size=5),
)
number = st.one_of(st.sampled_from(NUMBERS), st.integers(0, 300).map(lambda value: b"%d" % value))
blanks = st.sampled_from([b" ", b" ", b" ", b"  ", b"", b"\t"])
ending = st.sampled_from([b"\r\n", b"\r\n", b"\r\n", b"\r\n", b" \r\n", b"\r\r\n", b"\n", b"x\r\n", b"\0\r\n", b""])


@st.composite
def lines(draw: st.DrawFn) -> bytes:
    """Something near a command: a word, arguments, an end, each right most of the time."""
    line = draw(st.sampled_from(WORDS))
    for _ in range(draw(st.integers(0, 4))):
        line += draw(blanks) + draw(st.one_of(number, st.sampled_from(NAMES)))
    return line + draw(ending)


@st.composite
def puts(draw: st.DrawFn) -> bytes:
    """A put with a body of about the announced size."""
    size = draw(st.integers(0, JOB_BYTES_MAX + 3))
    filling = draw(st.sampled_from([b"x", b"\r", b"\n", b"\r\n", b"stats\r\n"]))
    body = (filling * (size + 1))[: max(0, size + draw(st.sampled_from([0, 0, 0, 0, -1, 1, 5])))]
    return (
        b"put 1 2 3 %d" % size + draw(ending) + body + draw(st.sampled_from([b"\r\n", b"\r\n", b"\r\n", b"\n\r", b""]))
    )


inputs = st.lists(st.one_of(lines(), lines(), puts(), fragments), max_size=8).map(b"".join)
places = st.lists(st.integers(0, 3000), max_size=12)


@given(data=inputs, where=places)
@example(data=b"x" * 222 + b"\r\r\n", where=[223, 224])
@example(data=b"put 0 0 0 1\r\nx\r\n", where=[14, 15])
def test_operations_do_not_depend_on_how_input_is_cut(data: bytes, where: list[int]) -> None:
    expected = operations(data, JOB_BYTES_MAX)
    pieces = cut(data, [place % (len(data) + 1) for place in where])
    assert feed(pieces) == expected
    assert feed_late(pieces) == expected
    assert feed([data] if data else []) == expected
    assert feed([data[at : at + 1] for at in range(len(data))]) == expected


@given(data=st.binary(max_size=600), where=places)
def test_any_bytes_at_all_give_the_reference_operations(data: bytes, where: list[int]) -> None:
    expected = operations(data, JOB_BYTES_MAX)
    assert feed(cut(data, [place % (len(data) + 1) for place in where])) == expected


@given(alphabet=st.lists(st.sampled_from([b"\r", b"\n", b"\0", b"x", b"\r\n"]), max_size=700))
def test_line_ends_are_found_in_any_mixture_of_their_bytes(alphabet: list[bytes]) -> None:
    data = b"".join(alphabet)
    assert feed(alphabet) == operations(data, JOB_BYTES_MAX)
    assert feed_late(alphabet) == operations(data, JOB_BYTES_MAX)
