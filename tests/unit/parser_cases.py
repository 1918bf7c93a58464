"""What the parser's tests share: operations in readable form, and every way to cut input into pieces."""

import random
from collections.abc import Iterator

from beanfield.proto import ops
from beanfield.proto.parser import ClientParser

# (name of the operation, its fields in the order of the protocol; for a fault: the command counted, or None)
Seen = tuple[object, ...]

JOB_BYTES_MAX = 100

_BY_ID = {"peek", "reserve-job", "delete", "kick-job", "touch", "stats-job"}
_BY_NAME = {"use", "watch", "ignore", "stats-tube"}
_FAULTS = {"bad format", "unknown command", "job too big", "expected crlf", "body refused"}


def seen(parser: ClientParser, op: int) -> Seen:
    """The operation that next() just returned, with the fields it has."""
    name = ops.op_names[op]
    if name == "put":
        return (name, parser.priority, parser.delay_s, parser.ttr_s, parser.body)
    if name in _BY_ID:
        return (name, parser.id)
    if name in _BY_NAME:
        return (name, parser.name)
    if name == "release":
        return (name, parser.id, parser.priority, parser.delay_s)
    if name == "bury":
        return (name, parser.id, parser.priority)
    if name == "kick":
        return (name, parser.bound)
    if name == "reserve-with-timeout":
        return (name, parser.timeout_s)
    if name == "pause-tube":
        return (name, parser.name, parser.delay_s)
    if name in _FAULTS:
        return (name, ops.op_names[parser.counted] if parser.counted else None)
    return (name,)


def drain(parser: ClientParser) -> list[Seen]:
    """All operations that are complete."""
    found = []
    while (op := parser.next()) != ops.NEED_MORE:
        found.append(seen(parser, op))
    return found


def feed(pieces: list[bytes], job_bytes_max: int = JOB_BYTES_MAX) -> list[Seen]:
    """The operations of a new client that sends these pieces, each read as far as possible when it comes."""
    parser = ClientParser(job_bytes_max)
    found = []
    for piece in pieces:
        parser.receive(piece)
        found += drain(parser)
    return found


def feed_late(pieces: list[bytes], job_bytes_max: int = JOB_BYTES_MAX) -> list[Seen]:
    """Likewise, but one operation is taken after each piece and the rest at the end: as behind a waiting reserve."""
    parser = ClientParser(job_bytes_max)
    found = []
    for piece in pieces:
        parser.receive(piece)
        op = parser.next()
        if op != ops.NEED_MORE:
            found.append(seen(parser, op))
    return found + drain(parser)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(set(places)), len(data)]
    pieces = [data[start:stop] for start, stop in zip(edges, edges[1:], strict=False)]
    return [piece for piece in pieces if piece]


def ways_to_cut(data: bytes) -> Iterator[list[bytes]]:
    """Whole, byte by byte, by twos and threes, in two at every place, and at random places (the same in every run)."""
    yield [data] if data else []
    yield [data[at : at + 1] for at in range(len(data))]
    yield [data[at : at + 2] for at in range(0, len(data), 2)]
    yield [data[at : at + 3] for at in range(0, len(data), 3)]
    for at in range(1, len(data)):
        yield [data[:at], data[at:]]
    rng = random.Random(len(data))
    for _ in range(10):
        yield cut(data, [rng.randrange(len(data) + 1) for _ in range(rng.randrange(1, 8))])


def check_every_way(data: bytes, expected: list[Seen], job_bytes_max: int = JOB_BYTES_MAX) -> None:
    """The operations are the expected ones however the input is cut, and so are those of whatever follows."""
    for pieces in ways_to_cut(data):
        assert feed(pieces, job_bytes_max) == expected, pieces
        assert feed_late(pieces, job_bytes_max) == expected, pieces
    trailing = b"list-tube-used\r\nput 1 2 3 4\r\na\r\nb\r\nquit\r\n"
    after = [("list-tube-used",), ("put", 1, 2, 3, b"a\r\nb"), ("quit",)]
    for pieces in [[data + trailing], [data, trailing], [bytes([byte]) for byte in data + trailing]]:
        assert feed(pieces, job_bytes_max) == expected + after, pieces
        assert feed_late(pieces, job_bytes_max) == expected + after, pieces
