"""Runs one transcript (see script.py) against a server's address. Knows sockets, not how a server is started.

Rules: every wait is bounded (REPLY_SECONDS unless the step says otherwise); replies are compared byte for byte; at the
end every connection must be in step: nothing unread, and one whose last send was answered gets `list-tube-used`, which
must be answered by exactly one USING.
"""

from __future__ import annotations

import re
import select
import socket
import struct
import time
from collections.abc import Callable

from tests.transcripts.script import BadTranscript, Step, Transcript, Words

REPLY_SECONDS = 20.0
# A server may not be early; this much is forgiven for the clocks' different starting points.
EARLY_SECONDS = 0.03
QUOTED_KEYS = ("name", "tube", "version", "hostname", "os", "platform")

Address = tuple[str, int] | str


class Mismatch(AssertionError):
    """The server did something else than the transcript says."""


def connect(address: Address) -> socket.socket:
    """A new connection; a str is the path of a unix socket."""
    if isinstance(address, str):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.connect(address)
    else:
        sock = socket.create_connection(address, timeout=REPLY_SECONDS)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.settimeout(REPLY_SECONDS)
    return sock


class Connection:
    """One client connection with what it has received and not yet consumed."""

    def __init__(self, address: Address) -> None:
        self._sock = connect(address)
        self.unread = b""
        self.sent_at = time.monotonic()
        self.answered = True
        self.open = True
        self.ended = False

    def send(self, data: bytes) -> None:
        self.sent_at = time.monotonic()
        self.answered = False
        # Read while sending: a server may stop reading a client that does not take its replies.
        view = memoryview(data)
        limit = self.sent_at + REPLY_SECONDS
        while view:
            readable, writable, _ = select.select([self._sock], [self._sock], [], max(0.0, limit - time.monotonic()))
            if not readable and not writable:
                raise Mismatch("the server does not read")
            if readable and not self.ended:
                self._receive()
            if writable:
                view = view[self._sock.send(view[:65536], socket.MSG_DONTWAIT) :]

    def wait(self, seconds: float) -> bool:
        """Receive once, within so many seconds. False: nothing came, or the other side has ended."""
        if self.ended:
            return False
        readable, _, _ = select.select([self._sock], [], [], max(0.0, seconds))
        return bool(readable) and self._receive()

    def _receive(self) -> bool:
        try:
            data = self._sock.recv(1 << 18)
        except (ConnectionResetError, BrokenPipeError):
            data = b""
        self.unread += data
        self.ended = not data
        return bool(data)

    def half_close(self) -> None:
        self._sock.shutdown(socket.SHUT_WR)
        self.sent_at = time.monotonic()
        self.answered = False

    def close(self) -> None:
        self.open = False
        self._sock.close()

    def reset(self) -> None:
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()


class Run:
    """One run of one transcript.

    For beanstalkd 1.12 `quoted` is False, its YAML has no quotes, and `settle_seconds` is its time to notice a close:
    under load it may read another connection's next command first. Beanfield promises that it does not.
    """

    def __init__(
        self,
        transcript: Transcript,
        address: Address,
        tube_prefix: str,
        send_signal: Callable[[str], None] | None = None,
        quoted: bool = True,
        settle_seconds: float = 0.0,
    ) -> None:
        self._transcript = transcript
        self._address = address
        self._words = Words(tube_prefix)
        self._send_signal = send_signal
        self._quoted = quoted
        self._settle_seconds = settle_seconds
        self._connections: dict[str, Connection] = {}
        self._moments: dict[str, float] = {}

    def run(self) -> None:
        try:
            for step in self._transcript.steps:
                try:
                    self._step(step)
                except (Mismatch, BadTranscript, OSError) as error:
                    raise Mismatch(f"{self._transcript.name}.txt:{step.line}: {step.who}: {error}") from error
            self._check_in_step()
        finally:
            for connection in self._connections.values():
                connection.close()

    def _step(self, step: Step) -> None:
        if not step.who:
            self._step_of_no_connection(step)
            return
        connection = self._connections.get(step.who)
        if connection is None or (not connection.open and step.verb == "open"):
            connection = self._connections[step.who] = Connection(self._address)
        if step.verb == ">":
            connection.send(self._words.to_send(step.text) + b"\r\n")
        elif step.verb == ">>":
            connection.send(self._words.to_send(step.text))
        elif step.verb == "<":
            self._expect(connection, step)
        elif step.verb in ("=", "~"):
            self._expect_fields(connection, step)
        elif step.verb in ("list", "names"):
            self._expect_names(connection, step)
        elif step.verb == "nothing":
            self._expect_nothing(connection, step.low)
        elif step.verb == "half-close":
            connection.half_close()
        elif step.verb == "close":
            connection.close()
            time.sleep(self._settle_seconds)
        elif step.verb == "reset":
            connection.reset()
            time.sleep(self._settle_seconds)

    def _step_of_no_connection(self, step: Step) -> None:
        if step.verb == "mark":
            self._moments[step.text] = time.monotonic()
        elif step.verb == "wait":
            start = self._moments[step.since] if step.since else time.monotonic()
            time.sleep(max(0.0, start + step.low - time.monotonic()))
        elif self._send_signal is None:
            raise BadTranscript("signal needs a server of its own")
        else:
            self._send_signal(step.text)

    def _expect(self, connection: Connection, step: Step) -> None:
        start = self._moments[step.since] if step.since else connection.sent_at
        limit = start + step.high if step.high else time.monotonic() + REPLY_SECONDS
        if step.text == "EOF":
            self._expect_end(connection, limit)
        else:
            pattern = self._words.to_expect(step.text + "\\r\\n")
            self._words.bind(self._take(connection, pattern, step.text, limit))
            connection.answered = True
        elapsed = time.monotonic() - start
        if step.high and elapsed < step.low - EARLY_SECONDS:
            raise Mismatch(f"{step.text} came after {elapsed:.3f} s, not within {step.low}..{step.high} s")

    def _take(self, connection: Connection, pattern: re.Pattern[bytes], text: str, limit: float) -> re.Match[bytes]:
        lines = 1 + text.count("\\r\\n")
        while True:
            found = pattern.match(connection.unread)
            if found:
                connection.unread = connection.unread[found.end() :]
                return found
            if connection.unread.count(b"\r\n") >= lines + 256 * ("{bytes}" in text):
                raise Mismatch(f"expected {text[:300]}, received {connection.unread[:300]!r}")
            if not connection.wait(limit - time.monotonic()):
                what = "the end of the connection" if connection.ended else "no more in time"
                raise Mismatch(f"expected {text[:300]}, received {connection.unread[:300]!r} and {what}")

    def _expect_end(self, connection: Connection, limit: float) -> None:
        while connection.wait(limit - time.monotonic()):
            pass
        if connection.unread:
            raise Mismatch(f"expected the end of the connection, received {connection.unread[:300]!r}")
        if not connection.ended:
            raise Mismatch("expected the end of the connection; it stays open")

    def _expect_nothing(self, connection: Connection, seconds: float) -> None:
        limit = time.monotonic() + seconds
        while time.monotonic() < limit and not connection.unread and not connection.ended:
            connection.wait(limit - time.monotonic())
        if connection.unread or connection.ended:
            what = repr(connection.unread[:300]) if connection.unread else "the end of the connection"
            raise Mismatch(f"expected nothing, received {what}")

    def _take_data(self, connection: Connection) -> list[str]:
        """The lines of an `OK <bytes>` reply, after the first one (`---`)."""
        limit = time.monotonic() + REPLY_SECONDS
        head = self._take(connection, re.compile(rb"OK (\d+)\r\n"), "OK <bytes>", limit)
        size = int(head[1])
        while len(connection.unread) < size + 2:
            if not connection.wait(limit - time.monotonic()):
                raise Mismatch(f"data of {size} bytes announced, received {connection.unread[:300]!r}")
        data, end = connection.unread[:size], connection.unread[size : size + 2]
        connection.unread = connection.unread[size + 2 :]
        connection.answered = True
        if not data.startswith(b"---\n") or not data.endswith(b"\n") or end != b"\r\n":
            raise Mismatch(f"badly framed data: {data + end!r}")
        return data.decode("latin-1")[4:-1].split("\n") if size > 4 else []

    def _expect_names(self, connection: Connection, step: Step) -> None:
        rows = self._take_data(connection)
        wanted = ["- " + name for name in self._words.to_send(step.text).decode().split()]
        if rows != wanted and (step.verb == "list" or sorted(rows) != sorted(wanted)):
            raise Mismatch(f"expected {wanted}, received {rows}")

    def _expect_fields(self, connection: Connection, step: Step) -> None:
        rows = self._take_data(connection)
        values = dict(row.split(": ", 1) for row in rows)
        wanted = dict(row.split(": ", 1) for row in step.rows)
        if step.verb == "=" and list(wanted) != [row.split(": ", 1)[0] for row in rows]:
            raise Mismatch(f"expected exactly the keys {list(wanted)}, received {rows}")
        for key, value in wanted.items():
            if key not in values or not self._same(key, value, values[key]):
                raise Mismatch(f"expected {key}: {value}, received {values.get(key)} in {rows}")

    def _same(self, key: str, wanted: str, value: str) -> bool:
        if not self._quoted and key in QUOTED_KEYS:
            wanted = wanted.strip('"')
        spread = re.fullmatch(r"(-?\d+)\.\.(-?\d+)", wanted)
        if wanted == "*":
            return True
        if spread:
            return re.fullmatch(r"-?\d+", value) is not None and int(spread[1]) <= int(value) <= int(spread[2])
        found = self._words.to_expect(wanted).fullmatch(value.encode("latin-1"))
        if found:
            self._words.bind(found)
        return found is not None

    def _check_in_step(self) -> None:
        for name, connection in self._connections.items():
            if not connection.open or connection.ended:
                continue
            if connection.answered:
                connection.send(b"list-tube-used\r\n")
                try:
                    answer = re.compile(rb"USING [^\r\n]*\r\n")
                    self._take(connection, answer, "USING", connection.sent_at + REPLY_SECONDS)
                except Mismatch as error:
                    raise Mismatch(f"{self._transcript.name}.txt: {name} is not in step at the end: {error}") from error
            connection.wait(0.0)
            if connection.unread:
                raise Mismatch(f"{self._transcript.name}.txt: {name} has unread {connection.unread[:300]!r}")
