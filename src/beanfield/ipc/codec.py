"""Bytes to frames and frames to bytes. Layout and opcodes: frames.py.

Rules: knows no sockets and no meaning of a frame. Lengths are checked before anything is kept. FrameBuffer gives one
frame at a time through its attributes, so that reading a frame allocates nothing; a fault is a LinkFault, after which
the buffer must not be used again.
"""

from typing import Final

from librt.strings import BytesWriter, read_i64_le, write_i64_le
from mypy_extensions import i64, u8

from beanfield.constants import FRAME_BYTES_MAX
from beanfield.errors import LinkFault
from beanfield.ipc.frames import ERROR_FRAME, HEADER_BYTES, WORD_BYTES

# The codec's own integers must be i64 where they meet one, or each use would be boxed.
HEADER: Final[i64] = HEADER_BYTES
WORD: Final[i64] = WORD_BYTES
LIMIT: Final[i64] = FRAME_BYTES_MAX
# A body from this size on is passed on as it is, as a piece of its own behind the rest of its frame; below, copying it
# into the frame costs less.
OWN_PIECE_BYTES: Final[i64] = 4_096


class FrameBuffer:
    """Cuts received bytes into frames. After next() is true: opcode, flags, session, request, word(), body().

    A large piece that ends a frame exactly (as one handed over in memory does) is kept apart, in `tail`, instead of
    being joined to what came before it; offsets run on into it.
    """

    def __init__(self) -> None:
        self.data: bytes = b""
        self.tail: bytes = b""
        self.position: i64 = 0  # where the next frame begins; 0 <= position <= len(data) + len(tail)
        self.opcode: i64 = 0
        self.flags: i64 = 0
        self.session: i64 = 0
        self.request: i64 = 0
        self.at: i64 = 0  # first byte behind the header; the reader of fields moves it
        self.end: i64 = 0  # first byte behind the frame

    def receive(self, data: bytes) -> None:
        """Appends input. What is carried over is copied: an incomplete frame, or more where the reader had to stop.

        Whoever stops reading frames must stop receiving soon (owner/core.py pauses the link), or the copies add up.
        """
        rest: i64 = self.held_bytes()
        if rest == 0:
            self.data = data
        else:
            if len(self.tail) != 0:
                self._join()
            if len(data) >= OWN_PIECE_BYTES and rest >= HEADER:
                frame_bytes = read_i64_le(self.data, self.position) & 0xFFFFFFFF
                if frame_bytes == rest + len(data):
                    self.tail = data
                    return
            self.data = self.data[self.position :] + data
        self.tail = b""
        self.position = 0

    def next(self) -> bool:
        """Moves to the next complete frame, or returns False. Raises LinkFault for a length that cannot be."""
        data = self.data
        start = self.position
        rest: i64 = len(data) + len(self.tail) - start
        if rest < HEADER:
            return False
        word = read_i64_le(data, start)
        frame_bytes = word & 0xFFFFFFFF
        if frame_bytes < HEADER or frame_bytes > LIMIT or (word >> 48) != 0:
            raise LinkFault(ERROR_FRAME, f"frame header {word:#x} cannot be")
        if rest < frame_bytes:
            return False
        self.opcode = (word >> 32) & 0xFF
        self.flags = (word >> 40) & 0xFF
        self.session = read_i64_le(data, start + WORD)
        self.request = read_i64_le(data, start + 2 * WORD)
        self.at = start + HEADER
        self.end = start + frame_bytes
        self.position = self.end
        if self.session < 0 or self.request < 0:
            raise LinkFault(ERROR_FRAME, "negative session or request")
        return True

    def word(self) -> i64:
        """The next field. Raises LinkFault where the frame is too short for it."""
        at = self.at
        if at + WORD > self.end:
            raise LinkFault(ERROR_FRAME, f"opcode {self.opcode}: a field is missing")
        if at + WORD > len(self.data):
            self._join()
        self.at = at + WORD
        return read_i64_le(self.data, at)

    def body(self) -> bytes:
        """All that is left of the frame."""
        at = self.at
        self.at = self.end
        if len(self.tail) != 0:
            if at == len(self.data):
                return self.tail
            self._join()
        return self.data[at : self.end]

    def has_tail(self) -> bool:
        """Whether what is left of the frame came in two parts: front(), then body()."""
        return len(self.tail) != 0 and self.at < len(self.data)

    def front(self) -> bytes:
        """The part of what is left that stands before a tail; body() then gives the tail without copying it."""
        at = self.at
        self.at = len(self.data)
        return self.data[at:]

    def _join(self) -> None:
        self.data += self.tail
        self.tail = b""

    def body_bytes(self) -> i64:
        return self.end - self.at

    def done(self) -> None:
        """Raises LinkFault if the frame holds more than its reader took."""
        if self.at != self.end:
            raise LinkFault(ERROR_FRAME, f"opcode {self.opcode}: {self.end - self.at} bytes too many")

    def held_bytes(self) -> i64:
        return len(self.data) + len(self.tail) - self.position


def write_header(
    w: BytesWriter, payload_bytes: i64, opcode: i64, flags: i64, session: i64, request: i64
) -> None:
    """The header of a frame whose fields and body are payload_bytes long; the caller writes exactly these next."""
    frame_bytes = payload_bytes + HEADER
    assert frame_bytes <= LIMIT
    write_i64_le(w, frame_bytes | (opcode << 32) | (flags << 40))
    write_i64_le(w, session)
    write_i64_le(w, request)


def write_plain(w: BytesWriter, opcode: i64, flags: i64, session: i64, request: i64) -> None:
    """A frame without fields or body."""
    write_header(w, 0, opcode, flags, session, request)


def write_word(w: BytesWriter, opcode: i64, flags: i64, session: i64, request: i64, word: i64) -> None:
    """A frame of one field."""
    write_header(w, WORD, opcode, flags, session, request)
    write_i64_le(w, word)


def write_words2(w: BytesWriter, opcode: i64, session: i64, request: i64, first: i64, second: i64) -> None:
    write_header(w, 2 * WORD, opcode, 0, session, request)
    write_i64_le(w, first)
    write_i64_le(w, second)


def write_words3(
    w: BytesWriter, opcode: i64, session: i64, request: i64, first: i64, second: i64, third: i64
) -> None:
    write_header(w, 3 * WORD, opcode, 0, session, request)
    write_i64_le(w, first)
    write_i64_le(w, second)
    write_i64_le(w, third)


def write_body(w: BytesWriter, opcode: i64, flags: i64, session: i64, request: i64, body: bytes) -> None:
    """A frame of a body alone (a name, a piece)."""
    write_header(w, len(body), opcode, flags, session, request)
    w.write(body)


def write_word_body(
    w: BytesWriter, opcode: i64, flags: i64, session: i64, request: i64, word: i64, body: bytes
) -> None:
    write_header(w, WORD + len(body), opcode, flags, session, request)
    write_i64_le(w, word)
    w.write(body)


def write_put(
    w: BytesWriter, opcode: i64, session: i64, request: i64, priority: i64, delay_ns: i64, ttr_ns: i64, body: bytes
) -> None:
    write_header(w, 3 * WORD + len(body), opcode, 0, session, request)
    write_i64_le(w, priority)
    write_i64_le(w, delay_ns)
    write_i64_le(w, ttr_ns)
    w.write(body)


def write_put_head(
    w: BytesWriter, opcode: i64, session: i64, request: i64, priority: i64, delay_ns: i64, ttr_ns: i64, body_bytes: i64
) -> None:
    """A put whose body follows as a piece of its own."""
    write_header(w, 3 * WORD + body_bytes, opcode, 0, session, request)
    write_i64_le(w, priority)
    write_i64_le(w, delay_ns)
    write_i64_le(w, ttr_ns)


def write_hello(
    w: BytesWriter, opcode: i64, version: i64, role: i64, index: i64, generation: i64, fingerprint: bytes, run_id: bytes
) -> None:
    """HELLO: four words, then fingerprint and run id of 16 bytes each."""
    assert len(fingerprint) == 16
    assert len(run_id) == 16
    write_header(w, 4 * WORD + 32, opcode, 0, 0, 0)
    write_i64_le(w, version)
    write_i64_le(w, role)
    write_i64_le(w, index)
    write_i64_le(w, generation)
    w.write(fingerprint)
    w.write(run_id)


def write_welcome(
    w: BytesWriter, opcode: i64, version: i64, slot: i64, generation: i64, fingerprint: bytes, run_id: bytes
) -> None:
    """WELCOME: three words, then fingerprint and run id of 16 bytes each."""
    assert len(fingerprint) == 16
    assert len(run_id) == 16
    write_header(w, 3 * WORD + 32, opcode, 0, 0, 0)
    write_i64_le(w, version)
    write_i64_le(w, slot)
    write_i64_le(w, generation)
    w.write(fingerprint)
    w.write(run_id)


def patch_word(w: BytesWriter, at: i64, value: i64) -> None:
    """Writes over the non-negative word at `at`: for a header whose length is known only when its text is complete."""
    assert value >= 0
    for _ in range(8):
        w[at] = u8(value & 0xFF)
        value >>= 8
        at += 1
