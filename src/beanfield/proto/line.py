"""What one command line asks for: its words, numbers and names, checked as beanstalkd 1.13 checks them.

- Commands are recognised by prefix; so `reservefoo` is a badly formed reserve, `quitfoo` a quit, and `foo` unknown.
- Numbers are strict (blanks, then digits), but for kick's, which is what C's strtoul makes of the text.
- A line is read in place, data[at:end], and is followed by CR LF. No word, number or name holds a CR, so what reads
  one needs not watch for the end; only kick's white space may.

This file knows nothing of where lines begin and end, of bodies, or of what any command does. i64 must not overflow
(compiled that is undefined), so every number is checked before it grows.
"""

from typing import Final

from mypy_extensions import i64

from beanfield.constants import RESERVE_TIMEOUT_S_MAX, TUBE_NAME_BYTES_MAX, U32_MAX, U64_MAX
from beanfield.proto.ops import (
    OP_BAD_FORMAT,
    OP_BURY,
    OP_DELETE,
    OP_IGNORE,
    OP_KICK,
    OP_KICK_JOB,
    OP_LIST_TUBE_USED,
    OP_LIST_TUBES,
    OP_LIST_TUBES_WATCHED,
    OP_PAUSE_TUBE,
    OP_PEEK,
    OP_PEEK_BURIED,
    OP_PEEK_DELAYED,
    OP_PEEK_READY,
    OP_PUT,
    OP_QUIT,
    OP_RELEASE,
    OP_RESERVE,
    OP_RESERVE_JOB,
    OP_RESERVE_TIMEOUT,
    OP_STATS,
    OP_STATS_JOB,
    OP_STATS_TUBE,
    OP_TOUCH,
    OP_UNKNOWN_COMMAND,
    OP_USE,
    OP_WATCH,
)

_TAB: Final = 9
_CR: Final = 13
_SPACE: Final = 32
_PLUS: Final = 43
_DASH: Final = 45
_ZERO: Final = 48
_NINE: Final = 57
_B: Final = 98
_D: Final = 100
_I: Final = 105
_K: Final = 107
_L: Final = 108
_P: Final = 112
_Q: Final = 113
_R: Final = 114
_S: Final = 115
_T: Final = 116
_U: Final = 117
_W: Final = 119

_NAME_CHARACTERS: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-+/;.$_()"
# Indexed by byte: 1 where the byte may stand in a tube name.
_IN_NAME: Final = bytes([1 if byte in _NAME_CHARACTERS else 0 for byte in range(256)])

# What a scan for digits gives instead of a number below 2^63.
_ABOVE_I64: Final = -1  # 2^63 to 2^64 - 1
_NO_NUMBER: Final = -2  # no digit, or above 2^64 - 1

# One more digit may be added below the first of these; at it, only a digit up to the second.
_I64_TENTH: Final = 922_337_203_685_477_580
_I64_LAST_DIGIT: Final = 7


def _starts(data: bytes, at: i64, word: bytes) -> bool:
    """Needs no end: a line is followed by CR, which no word holds, so the comparison stops there at the latest."""
    length: i64 = len(word)
    index: i64 = 0
    while index < length:
        if data[at + index] != word[index]:
            return False
        index += 1
    return True


def _valid_name(data: bytes, at: i64, end: i64) -> bool:
    """Whether data[at:end] is a tube name."""
    if end <= at or end - at > TUBE_NAME_BYTES_MAX or data[at] == _DASH:
        return False
    while at < end:
        if _IN_NAME[data[at]] == 0:
            return False
        at += 1
    return True


class CommandLine:
    """Reads lines, and holds the fields of the one read last. Its only subclass adds input and bodies."""

    def __init__(self) -> None:
        self.id: i64 = 0  # -1: an id that can never exist
        self.priority: i64 = 0
        self.delay_s: i64 = 0
        self.ttr_s: i64 = 0  # never 0: at least one second
        self.timeout_s: i64 = 0
        self.bound: i64 = 0
        self.name: bytes = b""
        # For a fault: the command whose counter rises all the same, 0 for none.
        self.counted: i64 = 0
        # Of a put line: the size of the body, and whether something follows it, which the size may excuse.
        self.announced_bytes: i64 = 0
        self.text_follows = False
        # Where the number read last ended.
        self._end: i64 = 0

    def parse_line(self, data: bytes, at: i64, end: i64) -> i64:
        assert data[end] == _CR
        first: i64 = data[at]
        if first == _P:
            if _starts(data, at, b"put "):
                return self._parse_put(data, at + 4, end)
            return self._parse_p(data, at, end)
        if first == _R:
            return self._parse_r(data, at, end)
        if first == _D:
            if _starts(data, at, b"delete "):
                return self._parse_id(data, at + 7, end, OP_DELETE)
        elif first == _U:
            if _starts(data, at, b"use "):
                return self._parse_name(data, at + 4, end, OP_USE)
        elif first == _W:
            if _starts(data, at, b"watch "):
                return self._parse_name(data, at + 6, end, OP_WATCH)
        elif first == _I:
            if _starts(data, at, b"ignore "):
                return self._parse_name(data, at + 7, end, OP_IGNORE)
        elif first == _B:
            if _starts(data, at, b"bury "):
                return self._parse_bury(data, at + 5, end)
        elif first == _T:
            if _starts(data, at, b"touch "):
                return self._parse_id(data, at + 6, end, OP_TOUCH)
        elif first == _K:
            if _starts(data, at, b"kick "):
                return self._parse_kick(data, at + 5, end)
            if _starts(data, at, b"kick-job "):
                return self._parse_id(data, at + 9, end, OP_KICK_JOB)
        elif first == _S:
            return self._parse_s(data, at, end)
        elif first == _L:
            return self._parse_l(data, at, end)
        elif first == _Q:
            if _starts(data, at, b"quit"):
                return OP_QUIT
        return OP_UNKNOWN_COMMAND

    def _parse_p(self, data: bytes, at: i64, end: i64) -> i64:
        if _starts(data, at, b"peek "):
            return self._parse_id(data, at + 5, end, OP_PEEK)
        if _starts(data, at, b"peek-ready"):
            return OP_PEEK_READY if at + 10 == end else OP_BAD_FORMAT
        if _starts(data, at, b"peek-delayed"):
            return OP_PEEK_DELAYED if at + 12 == end else OP_BAD_FORMAT
        if _starts(data, at, b"peek-buried"):
            return OP_PEEK_BURIED if at + 11 == end else OP_BAD_FORMAT
        if _starts(data, at, b"pause-tube"):
            return self._parse_pause_tube(data, at + 10, end)
        return OP_UNKNOWN_COMMAND

    def _parse_r(self, data: bytes, at: i64, end: i64) -> i64:
        if _starts(data, at, b"reserve"):
            if at + 7 == end:
                return OP_RESERVE
            if _starts(data, at + 7, b"-with-timeout "):
                # Whatever follows the number is ignored.
                self.timeout_s = self._read_u32(data, at + 21)
                if self.timeout_s < 0 or self.timeout_s > RESERVE_TIMEOUT_S_MAX:
                    return OP_BAD_FORMAT
                return OP_RESERVE_TIMEOUT
            if _starts(data, at + 7, b"-job "):
                return self._parse_id(data, at + 12, end, OP_RESERVE_JOB)
            return OP_BAD_FORMAT
        if _starts(data, at, b"release "):
            self.id = self._read_id(data, at + 8)
            if self.id == _NO_NUMBER:
                return OP_BAD_FORMAT
            self.priority = self._read_u32(data, self._end)
            if self.priority < 0:
                return OP_BAD_FORMAT
            self.delay_s = self._read_u32(data, self._end)
            if self.delay_s < 0 or self._end != end:
                return OP_BAD_FORMAT
            return OP_RELEASE
        return OP_UNKNOWN_COMMAND

    def _parse_s(self, data: bytes, at: i64, end: i64) -> i64:
        if not _starts(data, at, b"stats"):
            return OP_UNKNOWN_COMMAND
        if at + 5 == end:
            return OP_STATS
        if _starts(data, at + 5, b"-job "):
            return self._parse_id(data, at + 10, end, OP_STATS_JOB)
        if _starts(data, at + 5, b"-tube "):
            return self._parse_name(data, at + 11, end, OP_STATS_TUBE)
        return OP_BAD_FORMAT

    def _parse_l(self, data: bytes, at: i64, end: i64) -> i64:
        if _starts(data, at, b"list-tubes-watched"):
            return OP_LIST_TUBES_WATCHED if at + 18 == end else OP_BAD_FORMAT
        if _starts(data, at, b"list-tube-used"):
            return OP_LIST_TUBE_USED if at + 14 == end else OP_BAD_FORMAT
        if _starts(data, at, b"list-tubes"):
            return OP_LIST_TUBES if at + 10 == end else OP_BAD_FORMAT
        return OP_UNKNOWN_COMMAND

    def _parse_put(self, data: bytes, at: i64, end: i64) -> i64:
        self.priority = self._read_u32(data, at)
        if self.priority < 0:
            return OP_BAD_FORMAT
        self.delay_s = self._read_u32(data, self._end)
        if self.delay_s < 0:
            return OP_BAD_FORMAT
        self.ttr_s = self._read_u32(data, self._end)
        if self.ttr_s < 0:
            return OP_BAD_FORMAT
        body_bytes = self._read_u32(data, self._end)
        if body_bytes < 0:
            return OP_BAD_FORMAT
        self.announced_bytes = body_bytes
        self.text_follows = self._end != end
        if self.ttr_s == 0:
            self.ttr_s = 1
        return OP_PUT

    def _parse_id(self, data: bytes, at: i64, end: i64, op: i64) -> i64:
        self.id = self._read_id(data, at)
        if self.id == _NO_NUMBER or self._end != end:
            return OP_BAD_FORMAT
        return op

    def _parse_name(self, data: bytes, at: i64, end: i64, op: i64) -> i64:
        """The whole rest of the line is the name, blanks included: so none may be there."""
        if not _valid_name(data, at, end):
            return OP_BAD_FORMAT
        self.name = data[at:end]
        return op

    def _parse_bury(self, data: bytes, at: i64, end: i64) -> i64:
        self.id = self._read_id(data, at)
        if self.id == _NO_NUMBER:
            return OP_BAD_FORMAT
        self.priority = self._read_u32(data, self._end)
        if self.priority < 0 or self._end != end:
            return OP_BAD_FORMAT
        return OP_BURY

    def _parse_kick(self, data: bytes, at: i64, end: i64) -> i64:
        """C's strtoul, then cut to 32 bits: white space, a sign, digits, and whatever follows them."""
        while data[at] == _SPACE or (_TAB <= data[at] <= _CR and at < end):
            at += 1
        negative = data[at] == _DASH
        if negative or data[at] == _PLUS:
            at += 1
        number = self._read_digits(data, at)
        if number == _NO_NUMBER:
            return OP_BAD_FORMAT
        if number == _ABOVE_I64:
            number = int(data[at : self._end]) & U32_MAX
        if negative:
            number = -number
        self.bound = number & U32_MAX
        return OP_KICK

    def _parse_pause_tube(self, data: bytes, at: i64, end: i64) -> i64:
        """The name may follow the word without a blank, and a name that is none is found out only after counting."""
        while data[at] == _SPACE:
            at += 1
        name_end = at
        while _IN_NAME[data[name_end]] == 1:
            name_end += 1
        self.delay_s = self._read_u32(data, name_end)
        if name_end == at or self.delay_s < 0 or self._end != end:
            return OP_BAD_FORMAT
        if not _valid_name(data, at, name_end):
            self.counted = OP_PAUSE_TUBE
            return OP_BAD_FORMAT
        self.name = data[at:name_end]
        return OP_PAUSE_TUBE

    # ------------------------------------------------------------ numbers; each leaves the place after it in _end
    def _read_u32(self, data: bytes, at: i64) -> i64:
        """Blanks, then digits; -1 if there is none or the number is too big."""
        while data[at] == _SPACE:
            at += 1
        byte: i64 = data[at]
        if byte < _ZERO or byte > _NINE:
            return -1
        number: i64 = 0
        while _ZERO <= byte <= _NINE:
            number = number * 10 + byte - _ZERO
            if number > U32_MAX:
                return -1
            at += 1
            byte = data[at]
        self._end = at
        return number

    def _read_id(self, data: bytes, at: i64) -> i64:
        """Blanks, then digits; -1 for an id that can never exist, _NO_NUMBER if there is none or it is too big."""
        while data[at] == _SPACE:
            at += 1
        return self._read_digits(data, at)

    def _read_digits(self, data: bytes, at: i64) -> i64:
        """A number below 2^63, or _ABOVE_I64, or _NO_NUMBER. Adding a digit is checked first: i64 must not overflow."""
        start = at
        byte: i64 = data[at]
        number: i64 = 0
        while _ZERO <= byte <= _NINE:
            digit = byte - _ZERO
            if number >= _I64_TENTH and (number > _I64_TENTH or digit > _I64_LAST_DIGIT):
                number = _ABOVE_I64
                break
            number = number * 10 + digit
            at += 1
            byte = data[at]
        if at == start:
            return _NO_NUMBER
        if number == _ABOVE_I64:
            while _ZERO <= data[at] <= _NINE:
                at += 1
            if int(data[start:at]) > U64_MAX:
                return _NO_NUMBER
        self._end = at
        return number


assert _ABOVE_I64 == -1  # what the id of a command is then
