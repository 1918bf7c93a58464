"""Messages between the supervisor and its children: one JSON object per line, with descriptors passed beside it.

A control socket is a stream socketpair. Its messages are few and small, so they are readable: lines of JSON, in order.
Descriptors travel as SCM_RIGHTS with the first byte of their line; a line says how many are its own ("fds"), so the
receiver takes that many from the front of those that have come. End of the stream means that the other side is gone:
a child exits at once.

    from the supervisor                                                          descriptors
      start     role, index, generation, run_id, topology fields, settings,      shared memory, listeners (frontend)
                probe: the disk has failed, an owner tries it first
      open      offset_ns: the owner may write; created_ns = monotonic + offset  -
      link      peer (the other side's index), number                            the socket
      slot      slot, state (SLOT_UP, SLOT_RESTARTING, SLOT_UNAVAILABLE)         -
      accept    begin to accept clients                                          -
      drain     number, on                                                       -
      ping      number                                                           -
      stop      flush and exit                                                   -
    from a child
      started   a frontend is ready for links
      replayed  created_ns: an owner has read all it has, and waits for open; the largest created_ns it found
      ready     an owner serves
      progress  text: alive, in a long replay
      pong      number
      drained   number, on: no job is taken any more (or again), seen from this frontend
      link_lost peer, number: that link has ended
      failed    text: it cannot start; it exits with its own code

This file knows the lines and checks them; it knows no sockets and decides nothing.
"""

import json
from typing import Final

LINE_BYTES_MAX: Final = 1_048_576  # a longer line is a fault of the peer: the control socket closes

SLOT_UP: Final = 0  # a link will follow
SLOT_RESTARTING: Final = 1
SLOT_UNAVAILABLE: Final = 2  # cannot start; nobody waits for it

# What each message must carry, with its type. A message may not carry anything else.
_FIELDS: Final[dict[str, dict[str, type]]] = {
    "start": {
        "role": str,
        "index": int,
        "generation": int,
        "run_id": str,
        "partitions": int,
        "slots": int,
        "frontends": int,
        "map": list,
        "cluster_id": str,
        "settings": dict,
        "probe": bool,
    },
    "open": {"offset_ns": int},
    "link": {"peer": int, "number": int},
    "slot": {"slot": int, "state": int},
    "accept": {},
    "drain": {"number": int, "on": bool},
    "ping": {"number": int},
    "stop": {},
    "started": {},
    "replayed": {"created_ns": int},
    "ready": {},
    "progress": {"text": str},
    "pong": {"number": int},
    "drained": {"number": int, "on": bool},
    "link_lost": {"peer": int, "number": int},
    "failed": {"text": str},
}


class ControlFault(Exception):
    """The other side sent something that is no message."""


class Message:
    """One message: its kind, its fields, and how many descriptors belong to it."""

    def __init__(self, kind: str, fields: dict[str, object], fds: int = 0) -> None:
        _check(kind, fields)
        assert fds >= 0
        self.kind = kind
        self.fields = fields
        self.fds = fds

    def number(self, name: str) -> int:
        """A field that is an integer."""
        value = self.fields[name]
        assert isinstance(value, int)
        return value

    def text(self, name: str) -> str:
        """A field that is a string."""
        value = self.fields[name]
        assert isinstance(value, str)
        return value

    def encode(self) -> bytes:
        """The line of this message."""
        line = json.dumps({"kind": self.kind, "fds": self.fds, **self.fields}, separators=(",", ":")).encode() + b"\n"
        assert len(line) <= LINE_BYTES_MAX
        return line


class MessageReader:
    """Cuts what a control socket delivers into messages."""

    def __init__(self) -> None:
        self._buffer = b""

    def receive(self, data: bytes) -> None:
        """Add what has come."""
        self._buffer += data

    def next(self) -> Message | None:
        """The next whole message, None when more must come first. Raises ControlFault."""
        line, newline, rest = self._buffer.partition(b"\n")
        if not newline:
            if len(self._buffer) > LINE_BYTES_MAX:
                raise ControlFault("control line too long")
            return None
        self._buffer = rest
        return decode(line)


def decode(line: bytes) -> Message:
    """The message of one line, without its newline. Raises ControlFault."""
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise ControlFault(f"control line is no JSON: {line[:80]!r}") from error
    if not isinstance(fields, dict):
        raise ControlFault(f"control line is no object: {line[:80]!r}")
    kind = fields.pop("kind", None)
    fds = fields.pop("fds", None)
    if not isinstance(kind, str) or not isinstance(fds, int) or isinstance(fds, bool) or fds < 0:
        raise ControlFault(f"control line without kind or fds: {line[:80]!r}")
    return Message(kind, fields, fds)


def _check(kind: str, fields: dict[str, object]) -> None:
    expected = _FIELDS.get(kind)
    if expected is None:
        raise ControlFault(f"unknown control message: {kind[:40]}")
    if fields.keys() != expected.keys():
        raise ControlFault(f"control message {kind} with fields {sorted(fields)}")
    for name, wanted in expected.items():
        value = fields[name]
        if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
            raise ControlFault(f"control message {kind}: {name} is no {wanted.__name__}")
