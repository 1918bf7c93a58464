"""Client bytes in, operations out: what each command line asks for, checked, and the body of each put.

    parser.receive(data)
    while (op := parser.next()) != NEED_MORE: ...     the fields are attributes until the following next()

Rules:
- A line ends at its first CR LF and has at most LINE_BYTES_MAX bytes with it. A longer one is swallowed to its CR LF
  and is one OP_BAD_FORMAT. CR and LF apart from each other are characters, which no token may hold.
- What is wrong with a line or a body comes out as one of the fault operations; it never ends the connection here.
- The same bytes give the same operations however they are cut into pieces, in time linear in their number.
- Nothing is kept for an idle client. A line is parsed inside the bytes that brought it, which are not copied; bodies
  that come in pieces are kept as pieces and joined once.

States:  LINE --put line, body incomplete--> BODY --all there--> LINE          (OP_PUT or OP_EXPECTED_CRLF)
         LINE --put line, body too big--> SWALLOW --all there--> LINE          (OP_JOB_TOO_BIG)
         BODY --refuse_body()--> SWALLOW --all there--> LINE                   (OP_BODY_REFUSED)
         LINE --no CR LF in LINE_BYTES_MAX bytes--> LONG_LINE --CR LF--> LINE  (OP_BAD_FORMAT)

This file knows no sockets, no time, no replies, and neither the words of the protocol (that is line.py) nor what
any command does.
"""

from typing import Final, final

from mypy_extensions import i64

from beanfield.constants import BODY_PIECE_BYTES_MIN, LINE_BYTES_MAX, U32_MAX
from beanfield.proto.line import CommandLine
from beanfield.proto.ops import NEED_MORE, OP_BAD_FORMAT, OP_BODY_REFUSED, OP_EXPECTED_CRLF, OP_JOB_TOO_BIG, OP_PUT

_LINE: Final = 0
_LONG_LINE: Final = 1
_BODY: Final = 2
_SWALLOW: Final = 3

_NUL: Final = 0
_LF: Final = 10
_CR: Final = 13


@final
class ClientParser(CommandLine):
    """One client's input. Readers use the attributes; only the methods change them."""

    def __init__(self, job_bytes_max: i64) -> None:
        assert 0 <= job_bytes_max <= U32_MAX
        super().__init__()
        # Of the operation that next() returned last, as all fields of CommandLine.
        self.body: bytes = b""
        # A put line has been accepted (and is to be counted), and its operation has not come out of next() yet.
        self.put_open = False
        # The same, and it made the connection a producer: not for a body that is swallowed as too big.
        self.producer_open = False
        # Bytes of an incomplete body that are here, not those announced.
        self.body_held: i64 = 0

        self._job_bytes_max: Final[i64] = job_bytes_max
        self._state: i64 = _LINE
        # Input not consumed yet: _data from _at on, then the chunks of _queue. A chunk is queued when something is
        # before it, and joined to at most an incomplete line when its turn comes: no byte is copied over and over.
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

    def take_body(self) -> bytes:
        """The body of the put just returned, which is then no longer kept here while the put is on its way."""
        body = self.body
        self.body = b""
        return body

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
                    return self._end_line(data, at, index)
                if byte == _NUL:
                    self._nul_seen = True
            index += 1
        self._scanned = index
        if length - at < LINE_BYTES_MAX:
            return NEED_MORE
        self._state = _LONG_LINE
        return self._next_long_line()

    def _end_line(self, data: bytes, at: i64, end: i64) -> i64:
        """The line data[at:end] is complete."""
        assert end + 2 - at <= LINE_BYTES_MAX
        self._at = end + 2
        self._scanned = end + 2
        if self._nul_seen:
            self._nul_seen = False
            return OP_BAD_FORMAT
        op = self.parse_line(data, at, end)
        return self._begin_body(data, end + 2) if op == OP_PUT else op

    def _begin_body(self, data: bytes, start: i64) -> i64:
        # The put counts. A body too big goes before text behind the line: it is then swallowed all the same.
        body_bytes = self.announced_bytes
        if body_bytes > self._job_bytes_max:
            self.put_open = True
            self._state = _SWALLOW
            self._swallow_bytes = body_bytes + 2
            self._swallow_op = OP_JOB_TOO_BIG
            return self._next_swallowed()
        if self.text_follows:
            self.counted = OP_PUT
            return OP_BAD_FORMAT
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
