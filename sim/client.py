"""A simulated client connection: sends commands, reads replies at its own pace, and holds the server to the protocol.

It knows the protocol from the contract, not from the server's code. Every reply must be one that its command can have,
replies come in the order of the commands, exactly one each; what a reply means for jobs is the ledger's business.
"""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from sim.net import End, stream_pair
from sim.world import NS_PER_MS, Violation

if TYPE_CHECKING:
    from sim.process import SimProcess
    from sim.server import Server

# The words that each command may be answered with when the server is whole; None: a data reply.
WORDS: Final[dict[str, tuple[bytes, ...]]] = {
    "put": (b"INSERTED", b"JOB_TOO_BIG", b"EXPECTED_CRLF", b"DRAINING", b"OUT_OF_MEMORY"),
    "use": (b"USING",),
    "watch": (b"WATCHING",),
    "ignore": (b"WATCHING", b"NOT_IGNORED"),
    "reserve": (b"RESERVED", b"DEADLINE_SOON", b"TIMED_OUT"),
    "reserve-with-timeout": (b"RESERVED", b"DEADLINE_SOON", b"TIMED_OUT"),
    "reserve-job": (b"RESERVED", b"NOT_FOUND"),
    "delete": (b"DELETED", b"NOT_FOUND"),
    "release": (b"RELEASED", b"NOT_FOUND"),
    "bury": (b"BURIED", b"NOT_FOUND"),
    "touch": (b"TOUCHED", b"NOT_FOUND"),
    "kick": (b"KICKED",),
    "kick-job": (b"KICKED", b"NOT_FOUND"),
    "peek": (b"FOUND", b"NOT_FOUND"),
    "peek-ready": (b"FOUND", b"NOT_FOUND"),
    "peek-delayed": (b"FOUND", b"NOT_FOUND"),
    "peek-buried": (b"FOUND", b"NOT_FOUND"),
    "stats": (b"OK",),
    "stats-job": (b"OK", b"NOT_FOUND"),
    "stats-tube": (b"OK", b"NOT_FOUND"),
    "list-tubes": (b"OK",),
    "list-tube-used": (b"USING",),
    "list-tubes-watched": (b"OK",),
    "pause-tube": (b"PAUSED", b"NOT_FOUND"),
    "bad": (b"BAD_FORMAT",),
    "unknown": (b"UNKNOWN_COMMAND",),
    "quit": (),
}
WITHOUT_OWNER: Final = ("stats", "list-tube-used", "list-tubes-watched", "bad", "unknown", "quit")
WITH_BODY: Final = (b"RESERVED", b"FOUND", b"OK")


class Command:
    """One command and, in time, its answer."""

    __slots__ = (
        "answered_ns", "body", "delay_s", "id", "line", "none_seen", "number", "pending", "priority", "reply_args",
        "reply_body", "reply_word", "sent_ns", "steady", "timeout_s", "ttr_s", "tube", "verb", "watched",
    )  # fmt: skip

    def __init__(self, verb: str, line: bytes) -> None:
        self.verb = verb
        self.line = line  # all bytes, with the body
        self.body = b""
        self.id = 0
        self.tube = b""
        self.priority = 0
        self.delay_s = 0
        self.ttr_s = 0
        self.timeout_s = -1
        self.number = 0
        self.sent_ns = 0
        self.answered_ns = 0
        self.reply_word = b""
        self.reply_args: list[bytes] = []
        self.reply_body = b""
        self.watched: tuple[bytes, ...] = ()  # a reserve's tubes, as the client expects them to be
        self.none_seen = False  # there was an instant without a job in them for it
        # Instants with jobs that were all held for others: they count if each of these is granted next.
        self.pending: list[frozenset[int]] = []
        # Jobs that were there for it at every instant until now, with (priority, created_ns, id): see order.py.
        self.steady: dict[int, tuple[int, int, int]] = {}


def put(body: bytes, priority: int, delay_s: int, ttr_s: int) -> Command:
    command = Command("put", b"put %d %d %d %d\r\n%s\r\n" % (priority, delay_s, ttr_s, len(body), body))
    command.body, command.priority, command.delay_s, command.ttr_s = body, priority, delay_s, max(ttr_s, 1)
    return command


def reserve(timeout_s: int = -1) -> Command:
    if timeout_s < 0:
        return Command("reserve", b"reserve\r\n")
    command = Command("reserve-with-timeout", b"reserve-with-timeout %d\r\n" % timeout_s)
    command.timeout_s = timeout_s
    return command


def with_id(verb: str, id_: int, priority: int = 0, delay_s: int = 0) -> Command:
    arguments = {"release": b" %d %d" % (priority, delay_s), "bury": b" %d" % priority}.get(verb, b"")
    command = Command(verb, b"%s %d%s\r\n" % (verb.encode(), id_, arguments))
    command.id, command.priority, command.delay_s = id_, priority, delay_s
    return command


def with_tube(verb: str, tube: bytes, delay_s: int = 0) -> Command:
    argument = b" %d" % delay_s if verb == "pause-tube" else b""
    command = Command(verb, b"%s %s%s\r\n" % (verb.encode(), tube, argument))
    command.tube, command.delay_s = tube, delay_s
    return command


def kick(bound: int) -> Command:
    command = Command("kick", b"kick %d\r\n" % bound)
    command.number = bound
    return command


def plain(verb: str) -> Command:
    return Command(verb, verb.encode() + b"\r\n")


class SimClient:
    """One connection. `on_answer` and `on_end` are told after the client's own checks."""

    def __init__(
        self, server: "Server", name: str, on_answer: Callable[["SimClient", Command], None],
        on_end: Callable[["SimClient"], None],
    ) -> None:  # fmt: skip
        self.server = server
        self.world = server.world
        self.name = name
        self.on_answer = on_answer
        self.on_end = on_end
        random = server.net_random
        self.end, far = stream_pair(self.world, random, server.options.client_nature, name, name + "'")
        self.end.waker = self
        self.far: End = far
        self.process: SimProcess | None = None  # its frontend, once accepted
        self.handle = -1  # there
        self.outstanding: deque[Command] = deque()
        self.unsent = bytearray()
        self.received = bytearray()
        self.slow_bytes = 0  # reads only so much at a time when not 0
        self.reading = True
        self.over = False  # this connection has ended, from either side
        self.left = False  # ... because the client went away
        self.half_closed = False
        self.quit_sent = False
        self.broken_ns = 0  # when something on its way to the jobs last failed
        self.excused = False  # a fault of the server may have closed it, if that fault concerned it
        self.faulty: set[int] = set()  # slots whose owner, or link to its frontend, has failed
        self.cut_off = False  # its frontend has ended
        self.used = b"default"
        self.watched: list[bytes] = [b"default"]
        self.commands_sent = 0
        self._read_planned = False
        server.connect(self)

    def excuse(self, slot: int) -> None:
        """This slot has failed it: it may be closed for what it held or asked for there."""
        self.excused = True
        self.faulty.add(slot)
        self.broken_ns = self.world.now_ns

    # ---------------------------------------------------------------- sending
    def send(self, command: Command) -> None:
        assert not self.over and not self.half_closed and not self.quit_sent
        command.sent_ns = self.world.now_ns
        command.watched = self._watched_then()
        if command.verb == "quit":
            self.quit_sent = True
        else:
            self.outstanding.append(command)
        self.commands_sent += 1
        self.world.trace(self.name, "says", command.line)
        self.unsent += command.line
        self._write()

    def _watched_then(self) -> tuple[bytes, ...]:
        """The watch list when all commands ahead are done."""
        watched = list(self.watched)
        for command in self.outstanding:
            _follow(watched, command)
        return tuple(watched)

    def _write(self) -> None:
        if self.unsent and not self.end.write_closed and not self.end.was_reset:
            taken = self.end.send(bytes(self.unsent))
            del self.unsent[:taken]

    def may_speak(self) -> bool:
        return not (self.over or self.half_closed or self.quit_sent)

    # ---------------------------------------------------------------- leaving
    def half_close(self) -> None:
        """shutdown(SHUT_WR): even with a command half said."""
        self.world.trace(self.name, "half-closes")
        self.half_closed = True
        self.unsent.clear()
        self.end.end_writing()

    def leave(self, reset: bool) -> None:
        if self.over:
            return
        self.world.trace(self.name, "resets" if reset else "leaves")
        self.left = True
        self.over = True
        if reset:
            self.end.reset()
        else:
            self.end.close()
        self.on_end(self)

    # ---------------------------------------------------------------- receiving
    def wake(self) -> None:
        if self.over:
            return
        self._write()
        if self.slow_bytes == 0:
            self._read(1 << 20)
        elif not self._read_planned:
            self._read_planned = True
            self.world.after(30 * NS_PER_MS, self._slow_read)

    def _slow_read(self) -> None:
        self._read_planned = False
        if not self.over:
            self._read(self.slow_bytes)
            if not self.over and (self.end.incoming or self.end.at_eof):
                self.wake()

    def _read(self, size: int) -> None:
        if not self.reading:
            return
        data = self.end.receive(size)
        if data:
            self.received += data
            self._parse()
        if not self.over and not self.end.incoming and (self.end.at_eof or self.end.was_reset):
            self._server_closed()

    def _server_closed(self) -> None:
        self.world.trace(self.name, "is closed by the server")
        self.over = True
        if self.end.was_reset and (self.half_closed or self.quit_sent):
            self.excused = True
        if not (self.quit_sent or self.half_closed or self._may_be_closed()):
            raise Violation(f"{self.name}: the server closed the connection without a reason")
        # A command that waits for a slot goes with its client; a half-close looks like leaving.
        if self.half_closed and self.outstanding and self.server.options.calm():
            raise Violation(f"{self.name}: half-closed, and {self.outstanding[0].verb} was not answered")
        self.end.close()
        self.on_end(self)

    def _may_be_closed(self) -> bool:
        """Only what it held or asked for in a slot that failed."""
        if self.cut_off or self.server.over:
            return True
        return bool(self.faulty & self.server.watcher.concerned_slots(self, None))

    def lose_input(self) -> None:
        """What is on its way to it never arrives."""
        self.end.was_reset = True
        self.end.incoming.clear()
        self.received.clear()
        self.wake()

    def _parse(self) -> None:
        while self.received:
            line_end = self.received.find(b"\r\n")
            if line_end < 0:
                if len(self.received) > 300:
                    raise Violation(f"{self.name}: a reply line without end: {bytes(self.received[:80])!r}")
                return
            words = bytes(self.received[:line_end]).split(b" ")
            end = line_end + 2
            body = b""
            if words[0] in WITH_BODY:
                size = int(words[-1])
                if len(self.received) < end + size + 2:
                    return
                body = bytes(self.received[end : end + size])
                if self.received[end + size : end + size + 2] != b"\r\n":
                    raise Violation(f"{self.name}: a body that does not end where it should")
                end += size + 2
            del self.received[:end]
            self._answer(words, body)
            if self.over:
                return

    def _answer(self, words: list[bytes], body: bytes) -> None:
        if not self.outstanding:
            raise Violation(f"{self.name}: {words!r} answers nothing")
        command = self.outstanding.popleft()
        command.answered_ns = self.world.now_ns
        command.reply_word, command.reply_args, command.reply_body = words[0], words[1:], body
        self.world.trace(self.name, f"hears {b' '.join(words).decode('ascii', 'backslashreplace')} to {command.verb}")
        allowed = WORDS[command.verb]
        if words[0] not in allowed and not self._excuse(command, words[0]):
            raise Violation(f"{self.name}: {command.line[:60]!r} is answered {words!r}")
        if words[0] == b"OUT_OF_MEMORY" and not self.server.watcher.may_refuse_put(self, command):
            raise Violation(f"{self.name}: {command.line[:60]!r} is answered OUT_OF_MEMORY, and nothing was full")
        self._check_lists(command)
        self.on_answer(self, command)

    def _excuse(self, command: Command, word: bytes) -> bool:
        """INTERNAL_ERROR is the answer for a slot that is down; other slots do not notice."""
        if word != b"INTERNAL_ERROR" or command.verb in WITHOUT_OWNER:
            return False
        options = self.server.options
        if options.words_may_be_late() and command.verb.startswith("reserve"):
            return True
        if options.calm():
            return False
        slots = self.server.watcher.concerned_slots(self, command)
        return any(self.server.troubled_since(slot, command.sent_ns) for slot in slots)

    def _check_lists(self, command: Command) -> None:
        """What the client knows of its own tubes."""
        word = command.reply_word
        if word == b"INTERNAL_ERROR":
            return
        if command.verb in ("watch", "ignore"):
            before = list(self.watched)
            _follow(self.watched, command)
            expected = [b"WATCHING", b"%d" % len(self.watched)]
            if command.verb == "ignore" and before == [command.tube]:
                expected = [b"NOT_IGNORED"]
            self._expect(command, expected)
        elif command.verb == "use":
            self.used = command.tube
            self._expect(command, [b"USING", self.used])
        elif command.verb == "list-tube-used":
            self._expect(command, [b"USING", self.used])
        elif command.verb == "list-tubes-watched":
            text = b"---\n" + b"".join(b"- %s\n" % name for name in self.watched)
            if sorted(text.split(b"\n")) != sorted(command.reply_body.split(b"\n")):
                raise Violation(f"{self.name}: watches {self.watched!r}, is told {command.reply_body!r}")

    def _expect(self, command: Command, words: list[bytes]) -> None:
        if [command.reply_word, *command.reply_args] != words:
            said = [command.reply_word, *command.reply_args]
            raise Violation(f"{self.name}: {command.line!r} is answered {said!r}, not {words!r}")


def _follow(watched: list[bytes], command: Command) -> None:
    if command.verb == "watch" and command.tube not in watched:
        watched.append(command.tube)
    elif command.verb == "ignore" and command.tube in watched and len(watched) > 1:
        watched.remove(command.tube)
