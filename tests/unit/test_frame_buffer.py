"""Cutting bytes into frames: whole, cut anywhere, with large pieces kept apart, and what cannot be a frame."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from librt.strings import BytesWriter

from beanfield.constants import FRAME_BYTES_MAX
from beanfield.errors import LinkFault
from beanfield.ipc.codec import (
    OWN_PIECE_BYTES,
    FrameBuffer,
    write_body,
    write_plain,
    write_put,
    write_put_head,
    write_word_body,
    write_words3,
)

Cut = tuple[int, int, int, int, list[int], bytes]


def frames(buffer: FrameBuffer, words: dict[int, int]) -> list[Cut]:
    """All complete frames; `words` says how many fields an opcode has."""
    found: list[Cut] = []
    while buffer.next():
        fields = [int(buffer.word()) for _ in range(words.get(int(buffer.opcode), 0))]
        front = buffer.front() if buffer.has_tail() else b""
        body = front + buffer.body()
        buffer.done()
        found.append((buffer.opcode, buffer.flags, buffer.session, buffer.request, fields, body))
    return found


def stream() -> tuple[bytes, list[Cut], dict[int, int]]:
    writer = BytesWriter()
    large = random.Random(1).randbytes(OWN_PIECE_BYTES + 10)
    write_plain(writer, 1, 3, 1, 2)
    write_words3(writer, 2, 7, 8, -1, 1 << 62, 0)
    write_body(writer, 3, 0, 1, 1, b"a name")
    write_put(writer, 4, 5, 6, 1, 2, 3, large)
    write_word_body(writer, 5, 1, 2, 3, 4, b"")
    expected: list[Cut] = [
        (1, 3, 1, 2, [], b""),
        (2, 0, 7, 8, [-1, 1 << 62, 0], b""),
        (3, 0, 1, 1, [], b"a name"),
        (4, 0, 5, 6, [1, 2, 3], large),
        (5, 1, 2, 3, [4], b""),
    ]
    return writer.getvalue(), expected, {2: 3, 4: 3, 5: 1}


def test_frames_whole_and_byte_by_byte() -> None:
    data, expected, words = stream()
    buffer = FrameBuffer()
    buffer.receive(data)
    assert frames(buffer, words) == expected
    buffer = FrameBuffer()
    found: list[Cut] = []
    for at in range(len(data)):
        buffer.receive(data[at : at + 1])
        found += frames(buffer, words)
    assert found == expected
    assert buffer.held_bytes() == 0


def test_frames_cut_once_anywhere() -> None:
    data, expected, words = stream()
    for cut in range(1, len(data)):
        buffer = FrameBuffer()
        buffer.receive(data[:cut])
        found = frames(buffer, words)
        assert buffer.held_bytes() <= cut
        buffer.receive(data[cut:])
        assert found + frames(buffer, words) == expected


@given(st.lists(st.integers(1, 9_000), max_size=12))
def test_frames_cut_at_random(sizes: list[int]) -> None:
    data, expected, words = stream()
    buffer = FrameBuffer()
    found: list[Cut] = []
    for size in [*sizes, len(data)]:
        piece, data = data[:size], data[size:]
        if piece:
            buffer.receive(piece)
            found += frames(buffer, words)
    assert found == expected


def test_a_large_piece_that_ends_a_frame_is_not_copied() -> None:
    body = bytes(OWN_PIECE_BYTES)
    writer = BytesWriter()
    write_plain(writer, 1, 0, 1, 1)
    write_put_head(writer, 4, 1, 2, 1, 2, 3, len(body))
    buffer = FrameBuffer()
    buffer.receive(writer.getvalue())
    assert buffer.next() and buffer.opcode == 1
    assert not buffer.next()
    buffer.receive(body)
    assert buffer.next() and buffer.opcode == 4
    assert [buffer.word(), buffer.word(), buffer.word()] == [1, 2, 3]
    assert buffer.body_bytes() == len(body)
    assert buffer.body() is body
    assert not buffer.next()
    buffer.receive(writer.getvalue())
    assert buffer.next() and buffer.opcode == 1


def test_a_large_piece_cut_within_the_fields_is_joined() -> None:
    writer = BytesWriter()
    write_put(writer, 4, 1, 2, 11, 12, 13, bytes(OWN_PIECE_BYTES))
    data = writer.getvalue()
    for cut in (24, 25, 31, 32, 47, 48, 49):
        buffer = FrameBuffer()
        buffer.receive(data[:cut])
        buffer.receive(data[cut:])
        assert frames(buffer, {4: 3}) == [(4, 0, 1, 2, [11, 12, 13], bytes(OWN_PIECE_BYTES))]


def test_more_bytes_behind_a_piece_kept_apart_lose_nothing() -> None:
    writer = BytesWriter()
    write_put(writer, 4, 1, 2, 11, 12, 13, bytes(OWN_PIECE_BYTES))
    data = writer.getvalue()
    buffer = FrameBuffer()
    buffer.receive(data[:48])
    buffer.receive(data[48:])
    buffer.receive(data)  # before anybody asked for the first
    assert len(frames(buffer, {4: 3})) == 2


def header(frame_bytes: int, opcode: int = 1, high: int = 0, session: int = 0, request: int = 0) -> bytes:
    word = frame_bytes | opcode << 32 | high << 48
    return b"".join(each.to_bytes(8, "little", signed=True) for each in (word, session, request))


@pytest.mark.parametrize(
    "data",
    [
        header(0),
        header(23),
        header(FRAME_BYTES_MAX + 1),
        header((1 << 32) - 1),
        header(24, high=1),
        header(24, session=-1),
        header(24, request=-1),
        b"\xff" * 24,
    ],
)
def test_a_header_that_cannot_be_is_a_fault_before_its_body_has_come(data: bytes) -> None:
    buffer = FrameBuffer()
    buffer.receive(data)
    with pytest.raises(LinkFault):
        buffer.next()


def test_fields_that_are_missing_or_too_many_are_faults() -> None:
    writer = BytesWriter()
    write_words3(writer, 2, 1, 1, 1, 2, 3)
    buffer = FrameBuffer()
    buffer.receive(writer.getvalue())
    assert buffer.next()
    buffer.word()
    with pytest.raises(LinkFault):
        buffer.done()
    buffer.word()
    buffer.word()
    buffer.done()
    with pytest.raises(LinkFault):
        buffer.word()


def test_the_largest_frame_passes() -> None:
    writer = BytesWriter()
    write_body(writer, 3, 0, 1, 1, bytes(FRAME_BYTES_MAX - 24))
    buffer = FrameBuffer()
    buffer.receive(writer.getvalue())
    assert buffer.next()
    assert buffer.body_bytes() == FRAME_BYTES_MAX - 24


@given(st.binary(max_size=200), st.integers(1, 40))
def test_random_bytes_are_frames_or_a_fault(data: bytes, step: int) -> None:
    buffer = FrameBuffer()
    try:
        for at in range(0, len(data), step):
            buffer.receive(data[at : at + step])
            while buffer.next():
                buffer.body()
    except LinkFault:
        return
    assert buffer.held_bytes() <= len(data)
