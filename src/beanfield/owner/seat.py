"""What an owner keeps of one session beside the engine's part: frames that must wait, bodies and replies in pieces."""

from mypy_extensions import i64, mypyc_attr

from beanfield.engine.session import Gate, Session


@mypyc_attr(native_class=True)
class Deferred:
    """A frame set aside: its opcode, up to three fields and its body."""

    def __init__(self, opcode: i64, flags: i64, request: i64, first: i64, second: i64, third: i64, body: bytes) -> None:
        self.opcode: i64 = opcode
        self.flags: i64 = flags
        self.request: i64 = request
        self.first: i64 = first
        self.second: i64 = second
        self.third: i64 = third
        self.body: bytes = body


@mypyc_attr(native_class=True)
class LargeReply:
    """A reply that crosses in pieces: head, body and tail, never joined. Pins the body, whatever becomes of its job."""

    def __init__(self, request: i64, head: bytes, body: bytes, tail: bytes) -> None:
        self.request: i64 = request
        self.head: bytes = head
        self.body: bytes = body
        self.tail: bytes = tail
        self.reply_bytes: i64 = len(head) + len(body) + len(tail)
        self.sent_bytes: i64 = 0

    def next_piece(self, piece_bytes: i64) -> bytes:
        """The next bytes of the reply, at most `piece_bytes`; never empty before the end."""
        at = self.sent_bytes
        end = at + piece_bytes
        if end > self.reply_bytes:
            end = self.reply_bytes
        self.sent_bytes = end
        pieces: list[bytes] = []
        offset: i64 = 0
        for part in (self.head, self.body, self.tail):
            part_end = offset + len(part)
            if at < part_end and end > offset:
                start = at - offset
                if start < 0:
                    start = 0
                pieces.append(part[start : end - offset])
            offset = part_end
        return b"".join(pieces)

    def through(self) -> bool:
        return self.sent_bytes == self.reply_bytes


@mypyc_attr(native_class=True)
class Seat(Session):
    """A session at its owner."""

    def __init__(self, number: i64, gate: Gate) -> None:
        super().__init__(number, gate)
        self.blocked: bool = False  # a command of it is under way over several turns; those behind wait in backlog
        self.synced: bool = False  # the command being done now has waited for SYNC
        self.backlog: list[Deferred] = []  # in order; at most STREAM_COMMANDS_MAX and a few that end things
        self.pieces: list[bytes] = []  # of a body that comes in pieces
        self.pieces_bytes: i64 = 0
        self.large: LargeReply | None = None
