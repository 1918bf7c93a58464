"""A client side for comparing two servers: several connections, one command after the other, replies without ids.

A job is known by its number: the how-manieth successful put of this conversation it was. Ids and everything that the
contract leaves open or that depends on the clock are taken out of the replies, so that two servers with the same
behaviour give equal texts.
"""

from __future__ import annotations

import re
import select
import time

from tests.transcripts.runner import Address, connect

REPLY_SECONDS = 20.0
WITH_ID = re.compile(rb"^(INSERTED|BURIED|RESERVED|FOUND) (\d+)")
# Values that depend on the clock, the process or the machine, on how often the observer had to look (cmd-stats), or on
# how the test found out that the server is there (total-connections).
OPEN_KEYS = frozenset(
    "pid version rusage-utime rusage-stime uptime id hostname os platform age time-left pause-time-left"
    " cmd-stats total-connections".split()
)
CLOCK_KEYS = frozenset(("time-left", "pause-time-left"))
# Keys that Beanfield adds at the end of `stats`, and those of the log, are not compared.
STATS_KEYS_END = "binlog-oldest-index"


class Client:
    """One connection."""

    def __init__(self, address: Address) -> None:
        self._sock = connect(address)
        self._unread = b""
        self.waiting = False

    def send(self, data: bytes) -> None:
        self._sock.sendall(data)

    def reply(self) -> tuple[bytes, bytes]:
        """The next reply: its line, and the data or body that belongs to it."""
        line = self._line()
        words = line.split(b" ")
        if words[0] in (b"RESERVED", b"FOUND", b"OK"):
            return line, self._exactly(int(words[-1]) + 2)[:-2]
        return line, b""

    def has_input(self, seconds: float = 0.0) -> bool:
        return bool(self._unread) or bool(select.select([self._sock], [], [], seconds)[0])

    def close(self) -> None:
        self._sock.close()

    def _line(self) -> bytes:
        while b"\r\n" not in self._unread:
            self._receive()
        line, _, self._unread = self._unread.partition(b"\r\n")
        return line

    def _exactly(self, size: int) -> bytes:
        while len(self._unread) < size:
            self._receive()
        data, self._unread = self._unread[:size], self._unread[size:]
        return data

    def _receive(self) -> None:
        data = self._sock.recv(1 << 18)
        assert data, f"the server closed the connection; unread: {self._unread[:200]!r}"
        self._unread += data


class Conversation:
    """All connections to one server, and what its ids are."""

    def __init__(self, address: Address, clients: int) -> None:
        self._address = address
        self._ids: list[bytes] = []
        self._numbers: dict[bytes, int] = {}
        self._observer = Client(address)
        self.clients = [Client(address) for _ in range(clients)]
        self._await_connections(clients + 1)

    def id_of(self, number: int) -> bytes:
        return self._ids[number]

    def close(self) -> None:
        for client in (*self.clients, self._observer):
            client.close()

    def send(self, who: int, commands: list[bytes]) -> None:
        """Several commands in one write; `<n>` in one stands for the id of job n."""
        self.clients[who].send(b"".join(self._with_ids(each) for each in commands))

    def _with_ids(self, command: bytes) -> bytes:
        line, end, body = command.partition(b"\r\n")
        return re.sub(rb"<(\d+)>", lambda found: self._ids[int(found[1])], line) + end + body

    def reply(self, who: int, command: bytes) -> str:
        """The next reply in a form that can be compared."""
        line, data = self.clients[who].reply()
        found = WITH_ID.match(line)
        if found:
            if found[1] == b"INSERTED":
                assert found[2] not in self._numbers, f"id given twice: {line!r}"
                self._numbers[found[2]] = len(self._ids)
                self._ids.append(found[2])
            line = found[1] + b" job %d" % self._numbers[found[2]] + line[found.end() :]
        if line.startswith(b"OK "):
            return "OK " + self._without_what_is_open(command, data.decode("latin-1"))
        return f"{line.decode('latin-1')} {data!r}" if data else line.decode("latin-1")

    def _without_what_is_open(self, command: bytes, data: str) -> str:
        lines = data.split("\n")
        if command.startswith(b"list-tubes"):
            return " ".join(sorted(lines))
        kept = []
        for line in lines:
            key, _, value = line.partition(": ")
            if key == STATS_KEYS_END:
                break
            if command.startswith(b"stats-job") and key == "id":
                value = f"job {self._numbers[value.encode()]}"
            elif key in CLOCK_KEYS:
                value = "some" if value != "0" else "0"
            elif key in OPEN_KEYS:
                value = "*"
            kept.append(f"{key}: {value.strip(chr(34))}")
        return "\n".join(kept)

    def reopen(self, who: int) -> None:
        """Close one connection, wait until the server has noticed, and open it again."""
        before = self.observe("current-connections")
        self.clients[who].close()
        self._await_connections(before - 1)
        self.clients[who] = Client(self._address)
        self.clients[who].send(b"list-tube-used\r\n")
        assert self.clients[who].reply()[0] == b"USING default"

    def _await_connections(self, wanted: int) -> None:
        limit = time.monotonic() + REPLY_SECONDS
        while self.observe("current-connections") != wanted:
            assert time.monotonic() < limit, f"the server does not come to count {wanted} connections"

    def observe(self, key: str) -> int:
        self._observer.send(b"stats\r\n")
        found = re.search(rb"^%s: (\d+)$" % key.encode(), self._observer.reply()[1], re.MULTILINE)
        assert found, f"no {key} in stats"
        return int(found[1])
