"""Client bytes in, operations out: what each command line asks for, checked, and the body of each put.

    parser.receive(data)
    while (op := parser.next()) != NEED_MORE: ...        the operation's fields are attributes until the following next()

Rules:
- A line ends at its first CR LF and has at most LINE_BYTES_MAX bytes with it. A longer one is swallowed to its CR LF
  and is one OP_BAD_FORMAT. CR and LF apart from each other are characters, which no token may hold.
- Commands are recognised by prefix, numbers are strict, and what is wrong comes out as one of the fault operations,
  all as the contract of beanstalkd 1.13 has it. A fault never ends the connection here.
- The same bytes give the same operations however they are cut into pieces, in time linear in their number.
- Nothing is kept for an idle client. A line is parsed inside the bytes that brought it, which are not copied; bodies
  that come in pieces are kept as pieces and joined once.

States:  LINE --put line, body incomplete--> BODY --all there--> LINE          (OP_PUT or OP_EXPECTED_CRLF)
         LINE --put line, body too big--> SWALLOW --all there--> LINE          (OP_JOB_TOO_BIG)
         BODY --refuse_body()--> SWALLOW --all there--> LINE                   (OP_BODY_REFUSED)
         LINE --no CR LF in LINE_BYTES_MAX bytes--> LONG_LINE --CR LF--> LINE  (OP_BAD_FORMAT)

This file knows no sockets, no time, no replies, and not what any command does.
"""

from typing import Final, final

from mypy_extensions import i64

from beanfield.constants import (
    BODY_PIECE_BYTES_MIN,
    LINE_BYTES_MAX,
    RESERVE_TIMEOUT_S_MAX,
    TUBE_NAME_BYTES_MAX,
    U32_MAX,
    U64_MAX,
)
from beanfield.proto.ops import (
    NEED_MORE,
    OP_BAD_FORMAT,
    OP_BODY_REFUSED,
    OP_BURY,
    OP_DELETE,
    OP_EXPECTED_CRLF,
    OP_IGNORE,
    OP_JOB_TOO_BIG,
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

_LINE: Final = 0
_LONG_LINE: Final = 1
_BODY: Final = 2
_SWALLOW: Final = 3

_NUL: Final = 0
_LF: Final = 10
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


@final
class ClientParser:
    """One client's input. Readers use the attributes; only the methods change them."""

    def __init__(self, job_bytes_max: i64) -> None:
        assert 0 <= job_bytes_max <= U32_MAX
        # Fields of the operation that next() returned last.
        self.id: i64 = 0  # -1: an id that can never exist
        self.priority: i64 = 0
        self.delay_s: i64 = 0
        self.ttr_s: i64 = 0  # never 0: at least one second
        self.timeout_s: i64 = 0
        self.bound: i64 = 0
        self.name: bytes = b""
        self.body: bytes = b""
        # For a fault: the command whose counter rises all the same, 0 for none.
        self.counted: i64 = 0
        # A put line has been accepted (and is to be counted), and its operation has not come out of next() yet.
        self.put_open = False
        # The same, and it made the connection a producer: not for a body that is swallowed as too big.
        self.producer_open = False
        # Bytes of an incomplete body that are here, not those announced.
        self.body_held: i64 = 0

        self._job_bytes_max: Final[i64] = job_bytes_max
        self._state: i64 = _LINE
        # Input not consumed yet: _data from _at on, then the chunks of _queue. A chunk is queued when something is
        # before it, and joined to at most an incomplete line when its turn comes: so no byte is copied twice.
        self._data: bytes = b""
        self._at: i64 = 0
        self._queue: list[bytes] | None = None
        self._queued_bytes: i64 = 0
        # In _LINE and _LONG_LINE: no line end begins between _at and here; at or after _at always.
        self._scanned: i64 = 0
        self._nul_seen = False  # in the scanned part of the line
        # In _BODY: the bytes announced, without CRLF, and the pieces here, body_held together, CR included if here.
        self._body_bytes: i64 = 0
        self._pieces: list[bytes] | None = None
        # In _SWALLOW: the bytes still to come, and what to return after them.
        self._swallow_bytes: i64 = 0
        self._swallow_op: i64 = 0
        # Where the number or name read last ended.
        self._end: i64 = 0

    # ------------------------------------------------------------ input
    @property
    def held(self) -> i64:
        """All bytes that are here and not consumed."""
        return len(self._data) - self._at + self._queued_bytes + self.body_held

    def receive(self, data: bytes) -> None:
        if self._queue is not None:
            self._queue.append(data)
            self._queued_bytes += len(data)
        elif self._at != len(self._data):
            self._queue = [data]
            self._queued_bytes = len(data)
        else:
            self._data = data
            self._at = 0
            self._scanned = 0

    def refuse_body(self) -> None:
        """Lets go of an incomplete body: the rest is swallowed too, then next() returns OP_BODY_REFUSED."""
        if self._state == _SWALLOW:
            return
        assert self._state == _BODY
        self._state = _SWALLOW
        self._swallow_bytes = self._body_bytes + 2 - self.body_held
        self._swallow_op = OP_BODY_REFUSED
        self._pieces = None
        self.body_held = 0

    def release(self) -> None:
        """Lets go of everything: the client is gone, or what it says no longer matters."""
        self.name = b""
        self.body = b""
        self._data = b""
        self._at = 0
        self._scanned = 0
        self._queue = None
        self._queued_bytes = 0
        self._nul_seen = False
        self._end_body()

    # ------------------------------------------------------------ operations
    def next(self) -> i64:
        self.name = b""
        self.body = b""
        self.counted = 0
        while True:
            if self._state == _LINE:
                op = self._next_line()
            elif self._state == _BODY:
                op = self._next_body()
            elif self._state == _SWALLOW:
                op = self._next_swallowed()
            else:
                op = self._next_long_line()
            if op != NEED_MORE or not self._refill():
                return op

    def _refill(self) -> bool:
        """Brings the queued chunks behind what is left; False if there are none, and then nothing consumed is kept."""
        rest = b""
        if self._at != len(self._data):
            rest = self._data if self._at == 0 else self._data[self._at :]
        self._scanned -= self._at
        self._at = 0
        chunks = self._queue
        if chunks is None:
            self._data = rest
            return False
        self._queue = None
        self._queued_bytes = 0
        if len(rest) > 0:
            chunks.insert(0, rest)
        self._data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        return True

    def _next_line(self) -> i64:
        data = self._data
        at = self._at
        length: i64 = len(data)
        # The last place where a CR could end this line is one before `stop`: its LF must be there and within the limit.
        stop = length - 1
        if stop > at + LINE_BYTES_MAX - 1:
            stop = at + LINE_BYTES_MAX - 1
        index = self._scanned
        while index < stop:
            byte: i64 = data[index]
            if byte <= _CR:
                if byte == _CR and data[index + 1] == _LF:
                    return self._parse_line(data, at, index)
                if byte == _NUL:
                    self._nul_seen = True
            index += 1
        self._scanned = index
        if length - at < LINE_BYTES_MAX:
            return NEED_MORE
        self._state = _LONG_LINE
        return self._next_long_line()

    def _next_long_line(self) -> i64:
        data = self._data
        stop: i64 = len(data) - 1
        index = self._scanned
        while index < stop:
            if data[index] == _CR and data[index + 1] == _LF:
                self._at = index + 2
                self._scanned = index + 2
                self._nul_seen = False
                self._state = _LINE
                return OP_BAD_FORMAT
            index += 1
        # The last byte may be the CR of the line end; all before it is of no interest any more.
        self._at = index
        self._scanned = index
        return NEED_MORE

    def _next_body(self) -> i64:
        data = self._data
        at = self._at
        here: i64 = len(data) - at
        if self.body_held + here < self._body_bytes + 2:
            if here > 0:
                self._hold(data if at == 0 else data[at:])
                self._at = len(data)
                self._scanned = self._at
            return NEED_MORE
        pieces = self._pieces
        assert pieces is not None
        missing = self._body_bytes - self.body_held
        if missing >= 0:
            if missing > 0:
                pieces.append(data[at : at + missing])
            body = b"".join(pieces)
            complete = data[at + missing] == _CR and data[at + missing + 1] == _LF
        else:
            # The byte after the body came with an earlier piece.
            assert missing == -1
            body = b"".join(pieces)
            complete = body[self._body_bytes] == _CR and data[at] == _LF
            body = body[: self._body_bytes]
        self._at = at + missing + 2
        self._scanned = self._at
        self._end_body()
        if complete:
            self.body = body
            return OP_PUT
        self.counted = OP_PUT
        return OP_EXPECTED_CRLF

    def _hold(self, piece: bytes) -> None:
        """Adds a piece of the body. Small ones are joined, or a client sending few bytes at a time would cost many
        times what it sends: every piece is an object."""
        pieces = self._pieces
        assert pieces is not None
        self.body_held += len(piece)
        if len(pieces) > 0 and len(pieces[-1]) < BODY_PIECE_BYTES_MIN and len(piece) < BODY_PIECE_BYTES_MIN:
            pieces[-1] = pieces[-1] + piece
        else:
            pieces.append(piece)

    def _next_swallowed(self) -> i64:
        here: i64 = len(self._data) - self._at
        if here < self._swallow_bytes:
            self._swallow_bytes -= here
            self._at += here
            self._scanned = self._at
            return NEED_MORE
        self._at += self._swallow_bytes
        self._scanned = self._at
        op = self._swallow_op
        self._end_body()
        self.counted = OP_PUT
        return op

    def _end_body(self) -> None:
        self._state = _LINE
        self._pieces = None
        self._body_bytes = 0
        self._swallow_bytes = 0
        self.body_held = 0
        self.put_open = False
        self.producer_open = False

    # ------------------------------------------------------------ one line, data[at:end]; CR LF stands at end
    def _parse_line(self, data: bytes, at: i64, end: i64) -> i64:
        assert data[end] == _CR and end + 2 - at <= LINE_BYTES_MAX
        self._at = end + 2
        self._scanned = end + 2
        if self._nul_seen:
            self._nul_seen = False
            return OP_BAD_FORMAT
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
                return self._parse_kick(data, at + 5)
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
        # From here on the put counts. A body too big goes before trailing text: it is then swallowed all the same.
        if body_bytes > self._job_bytes_max:
            self.put_open = True
            self._state = _SWALLOW
            self._swallow_bytes = body_bytes + 2
            self._swallow_op = OP_JOB_TOO_BIG
            return self._next_swallowed()
        if self._end != end:
            self.counted = OP_PUT
            return OP_BAD_FORMAT
        if self.ttr_s == 0:
            self.ttr_s = 1
        start = end + 2
        stop = start + body_bytes
        if stop + 2 > len(data):
            self.put_open = True
            self.producer_open = True
            self._state = _BODY
            self._body_bytes = body_bytes
            self._pieces = []
            return self._next_body()
        # The common case: all is here, and only the body is copied.
        self._at = stop + 2
        self._scanned = stop + 2
        if data[stop] == _CR and data[stop + 1] == _LF:
            self.body = data[start:stop]
            return OP_PUT
        self.counted = OP_PUT
        return OP_EXPECTED_CRLF

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

    def _parse_kick(self, data: bytes, at: i64) -> i64:
        """C's strtoul, then cut to 32 bits: white space, a sign, digits, and whatever follows them."""
        while data[at] == _SPACE or (9 <= data[at] <= 13 and not self._at_line_end(at)):
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

    def _at_line_end(self, at: i64) -> bool:
        """Of the line just taken off: it is the one that ended before _at."""
        return at == self._at - 2

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
