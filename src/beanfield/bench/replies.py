"""What a server of the beanstalkd protocol answers: bytes in, reply codes out, however the bytes are cut.

    reader.receive(data)
    while (code := reader.next()) != NEED_MORE: ...       after REPLY_RESERVED, reader.job_id is the job's

Rules: a body is counted and passed over, never kept; of its bytes only the line end is looked at. A line that is no
reply this module knows is REPLY_OTHER, what cannot be a reply stream at all is REPLY_BROKEN, after which the reader
must not be used again; of both, `said` shows the words. It knows no commands: whether a reply fits is for the core to
say.
"""

from typing import Final

from mypy_extensions import i64

NEED_MORE: Final = 0
REPLY_INSERTED: Final = 1
REPLY_RESERVED: Final = 2
REPLY_DELETED: Final = 3
REPLY_RELEASED: Final = 4
REPLY_TOUCHED: Final = 5
REPLY_TIMED_OUT: Final = 6
REPLY_USING: Final = 7
REPLY_WATCHING: Final = 8
REPLY_OTHER: Final = 9
REPLY_BROKEN: Final = 10

# Of the replies up to REPLY_WATCHING, by code.
REPLY_NAMES: Final = (
    b"", b"INSERTED", b"RESERVED", b"DELETED", b"RELEASED", b"TOUCHED", b"TIMED_OUT", b"USING", b"WATCHING",
)  # fmt: skip

REPLY_LINE_BYTES_MAX: Final = 4_096  # without a line end in so many bytes this is no beanstalkd
REPLY_BODY_BYTES_MAX: Final = 1 << 32  # a longer body is not believed
SAID_BYTES_MAX: Final = 60  # of a line shown to people
ID_DIGITS_MAX: Final = 20
SIZE_DIGITS_MAX: Final = 18

_LF: Final = 10
_CR: Final = 13
_SPACE: Final = 32
_ZERO: Final = 48
_NINE: Final = 57
_D: Final = 68
_F: Final = 70
_I: Final = 73
_L: Final = 76
_O: Final = 79
_R: Final = 82
_S: Final = 83
_T: Final = 84
_U: Final = 85
_W: Final = 87

_NO_NUMBER: Final = -1
_NO_LINE_END: Final = b"(a body without its line end)"


def _is(data: bytes, at: i64, end: i64, word: bytes) -> bool:
    """Whether data[at:end] begins with the word."""
    length: i64 = len(word)
    if end - at < length:
        return False
    index: i64 = 0
    while index < length:
        if data[at + index] != word[index]:
            return False
        index += 1
    return True


def _is_id(data: bytes, at: i64, end: i64) -> bool:
    """Whether data[at:end] is digits. Ids may be larger than i64 holds, so their value is nobody's business here."""
    if at >= end or end - at > ID_DIGITS_MAX:
        return False
    while at < end:
        if data[at] < _ZERO or data[at] > _NINE:
            return False
        at += 1
    return True


def _size(data: bytes, at: i64, end: i64) -> i64:
    """data[at:end] as a number, or _NO_NUMBER."""
    if at >= end or end - at > SIZE_DIGITS_MAX:
        return _NO_NUMBER
    value: i64 = 0
    while at < end:
        byte: i64 = data[at]
        if byte < _ZERO or byte > _NINE:
            return _NO_NUMBER
        value = value * 10 + byte - _ZERO
        at += 1
    return value


class ReplyReader:
    """One connection's replies."""

    def __init__(self) -> None:
        self.job_id: bytes = b""  # the digits, as they go back into commands
        self.said: bytes = b""
        self.body_bytes: i64 = 0  # of the reply just returned; 0 for one without
        self._data: bytes = b""
        self._at: i64 = 0  # where the next line, or the rest of a body, begins
        self._reply: i64 = NEED_MORE  # the reply whose body is on its way, with so many bytes of it missing
        self._missing: i64 = 0

    def receive(self, data: bytes) -> None:
        """More input. At most one incomplete line is carried over, so the copy is small."""
        self._data = data if self._at == len(self._data) else self._data[self._at :] + data
        self._at = 0

    def next(self) -> i64:
        if self._reply != NEED_MORE:
            return self._rest_of_body()
        data = self._data
        at = self._at
        last: i64 = len(data) - 1
        index = at
        while index < last:
            if data[index] == _CR and data[index + 1] == _LF:
                break
            index += 1
        else:
            if last - at < REPLY_LINE_BYTES_MAX:
                return NEED_MORE
            return self._other(data, at, last, REPLY_BROKEN)
        self._at = index + 2
        self.body_bytes = 0
        return self._understand(data, at, index)

    def _understand(self, data: bytes, at: i64, end: i64) -> i64:
        """The line data[at:end]. It is followed by CR, so its first byte may be looked at even if it is empty."""
        first: i64 = data[at]
        if first == _I:
            if _is(data, at, end, b"INSERTED ") and _is_id(data, at + 9, end):
                return REPLY_INSERTED
        elif first == _R:
            if _is(data, at, end, b"RESERVED "):
                return self._with_body(data, at, at + 9, end, REPLY_RESERVED)
            if _is(data, at, end, b"RELEASED") and end - at == 8:
                return REPLY_RELEASED
        elif first == _D:
            if _is(data, at, end, b"DELETED") and end - at == 7:
                return REPLY_DELETED
        elif first == _T:
            if _is(data, at, end, b"TOUCHED") and end - at == 7:
                return REPLY_TOUCHED
            if _is(data, at, end, b"TIMED_OUT") and end - at == 9:
                return REPLY_TIMED_OUT
        elif first == _U:
            if _is(data, at, end, b"USING "):
                return REPLY_USING
        elif first == _W:
            if _is(data, at, end, b"WATCHING "):
                return REPLY_WATCHING
        elif first == _F:
            if _is(data, at, end, b"FOUND "):
                return self._with_body(data, at, at + 6, end, REPLY_OTHER)
        elif first == _O:
            if _is(data, at, end, b"OK "):
                self.said = b"OK"
                return self._body(data, at, at + 3, end, REPLY_OTHER)
        return self._other(data, at, end, REPLY_OTHER)

    def _other(self, data: bytes, at: i64, end: i64, reply: i64) -> i64:
        if end - at > SAID_BYTES_MAX:
            end = at + SAID_BYTES_MAX
        self.said = data[at:end]
        return reply

    def _with_body(self, data: bytes, line: i64, at: i64, end: i64, reply: i64) -> i64:
        """The line begins at `line`; from `at` on an id and a size, then the body."""
        space = at
        while space < end and data[space] != _SPACE:
            space += 1
        if reply == REPLY_OTHER:
            self.said = b"FOUND"
        if not _is_id(data, at, space):
            return self._other(data, line, end, REPLY_BROKEN)
        self.job_id = data[at:space]
        return self._body(data, line, space + 1, end, reply)

    def _body(self, data: bytes, line: i64, at: i64, end: i64, reply: i64) -> i64:
        size = _size(data, at, end)
        if size < 0 or size > REPLY_BODY_BYTES_MAX:
            return self._other(data, line, end, REPLY_BROKEN)
        self.body_bytes = size
        self._reply = reply
        self._missing = size
        return self._rest_of_body()

    def _rest_of_body(self) -> i64:
        here: i64 = len(self._data) - self._at
        if here < self._missing:
            self._missing -= here
            self._at += here
            return NEED_MORE
        self._at += self._missing
        self._missing = 0
        if len(self._data) - self._at < 2:
            return NEED_MORE
        reply = self._reply
        self._reply = NEED_MORE
        if self._data[self._at] != _CR or self._data[self._at + 1] != _LF:
            self.said = _NO_LINE_END
            return REPLY_BROKEN
        self._at += 2
        return reply
