"""The core of the load generator: connections that send commands in rounds, and the books of what came back.

    core.connection_opened(handle, number, commands)       for each; commands() first, then nothing until start()
    core.start(now_ns)  core.measure(now_ns, jobs)         begin to send; forget what was counted so far
    core.client_received(...) and so on                    called by the reactor
    core.turn(now_ns); reactor.flush(core.take_outbox())   after every poll
    core.stop(now_ns)                                      close the books

Without a rate every connection sends its next commands as soon as the last are answered, and a command's time runs
from the turn that sent it. With a rate, batches of `depth` commands are due at even intervals, each connection in its
turn; a batch that finds its connection busy is sent late, and its time runs from when it was due: a server that stalls
cannot hide the commands that would have come meanwhile. Those still unanswered at the end count with their time so far.

This module knows no sockets and no clock; it looks like a role's core to the reactor.
"""

from typing import Final, final

from mypy_extensions import i64

from beanfield.bench.histogram import Histogram
from beanfield.bench.replies import (
    NEED_MORE,
    REPLY_BROKEN,
    REPLY_INSERTED,
    REPLY_NAMES,
    REPLY_OTHER,
    REPLY_RESERVED,
    REPLY_TIMED_OUT,
    REPLY_USING,
    REPLY_WATCHING,
    ReplyReader,
)
from beanfield.bench.workload import (
    STEP_DELETE,
    STEP_NAMES,
    STEP_PUT,
    STEP_RELEASE,
    STEP_REPLIES,
    STEP_RESERVE,
    STEP_TOUCH,
    STEPS,
    Workload,
)
from beanfield.constants import NEVER_NS, NS_PER_S
from beanfield.ipc.actions import ACT_CLOSE

NO_LIMIT: Final = -1
OVERDUE_STEPS_MAX: Final = 10_000  # batches of one connection that never went out are counted in so many steps at most
UNEXPECTED_KINDS_MAX: Final = 20  # different unexpected replies told apart; the others are counted together
_SETUP: Final = -1  # the step of a connection that has not begun
_IDLE: Final = -2  # ... that waits for its next batch to be due, or for start()
_DONE: Final = -3  # ... that sends nothing more
# Due times are counted in 1/1024 ns, so that the interval's rounding does not add up.
_FRACTION_BITS: Final = 10


@final
class Connection(ReplyReader):
    """One connection: where it is in its round, and what it waits for."""

    def __init__(self, handle: int) -> None:
        super().__init__()
        self.handle = handle
        self.at: i64 = -1  # index of the step in the workload
        self.step: i64 = _SETUP
        self.wanted: i64 = 0  # the reply that all of the batch should get
        self.pending: i64 = 0  # commands not answered yet
        self.ids: list[bytes] = []
        self.since_ns: i64 = 0  # from when the batch's time runs
        self.stored: i64 = 0  # puts of this round that were accepted: so many are reserved
        self.sent: i64 = 0  # puts and releases so far: the place in the pattern of sizes and delays
        self.tick: i64 = 0  # with a rate: the number of its next batch among those of all
        self.open = True


class BenchCore:
    """All connections of one generator process."""

    def __init__(self, workload: Workload, rate: int) -> None:
        """rate: commands per second of all connections together; 0 for as fast as they are answered."""
        self.workload = workload
        self.connections: list[Connection] = []
        self.opening: i64 = 0  # connections that are not set up yet
        self.active: i64 = 0  # connections that still send
        self.lost: i64 = 0  # connections that the server has ended
        self.failure: bytes = b""  # why it makes no sense to go on; what the server said
        self.histograms: list[Histogram] = [Histogram() for _ in range(STEPS)]
        self.late = Histogram()  # commands due and unanswered at the end
        self.oldest_ns: i64 = 0  # without a rate: the longest time that one was unanswered at the end
        self.unanswered: i64 = 0
        self.timed_out: i64 = 0
        self.sent_bytes: i64 = 0  # of bodies
        self.received_bytes: i64 = 0
        self.unexpected: dict[bytes, int] = {}
        self._by_handle: list[Connection | None] = []
        self._rate: i64 = rate
        self._interval: i64 = 0 if rate == 0 else (workload.depth * NS_PER_S << _FRACTION_BITS) // rate
        self._next_tick: i64 = 0
        self._start_ns: i64 = 0
        self._running = False
        self._jobs_left: i64 = NO_LIMIT
        self._outbox: list[object] = []
        self._actions: list[int] = []
        self._begun: list[Connection] = []

    # ------------------------------------------------------------ the course of a run
    def connection_opened(self, handle: int, commands: list[bytes]) -> None:
        """Send the commands that set a connection up."""
        assert not self._running
        connection = Connection(handle)
        connection.pending = len(commands)
        connection.tick = len(self.connections)
        self.connections.append(connection)
        while len(self._by_handle) <= handle:
            self._by_handle.append(None)
        self._by_handle[handle] = connection
        self.opening += 1
        self._send(connection, b"".join(commands))

    def start(self, now_ns: i64) -> None:
        """Begin, once all are set up."""
        assert self.opening == 0 and not self._running
        self._running = True
        self._start_ns = now_ns
        for connection in self.connections:
            if connection.open:
                self.active += 1
                if self._rate == 0:
                    self._next_batch(connection)
        self.turn(now_ns)

    def measure(self, jobs: i64) -> None:
        """What was counted so far was warming up, but for unexpected replies. From here on at most so many puts, or
        NO_LIMIT."""
        for index in range(STEPS):
            self.histograms[index] = Histogram()
        self.timed_out = 0
        self.sent_bytes = 0
        self.received_bytes = 0
        self._jobs_left = jobs

    def stop(self, now_ns: i64) -> None:
        """Count what was not answered. With a rate its time so far belongs to the measurement."""
        for connection in self.connections:
            if not connection.open:
                continue
            if connection.pending > 0 and connection.step >= 0:
                self.unanswered += connection.pending
                waited = now_ns - connection.since_ns
                if self._rate > 0:
                    self.late.record(waited, connection.pending)
                elif waited > self.oldest_ns:
                    self.oldest_ns = waited
                connection.tick += len(self.connections)
            if self._rate > 0 and connection.step != _DONE:
                self._count_overdue(connection, now_ns)

    def _count_overdue(self, connection: Connection, now_ns: i64) -> None:
        """The batches that were due and never went out, as their connection was busy."""
        last = (now_ns - self._start_ns << _FRACTION_BITS) // self._interval
        connections: i64 = len(self.connections)
        if connection.tick > last:
            return
        batches = (last - connection.tick) // connections + 1
        step = batches // OVERDUE_STEPS_MAX + 1
        while batches > 0:
            if step > batches:
                step = batches
            commands = step * self.workload.depth
            self.unanswered += commands
            self.late.record(now_ns - self._due_ns(connection.tick), commands)
            connection.tick += step * connections
            batches -= step

    @property
    def commands(self) -> int:
        """Answered so far."""
        total = 0
        for histogram in self.histograms:
            total += histogram.count
        return total

    def everything(self) -> Histogram:
        """The times of all commands together."""
        histogram = Histogram()
        for one in self.histograms:
            histogram.add(one)
        histogram.add(self.late)
        return histogram

    # ------------------------------------------------------------ what the loop asks after each poll
    def turn(self, now_ns: i64) -> None:
        """Begin the batches that are due, and note when all that goes out now goes out."""
        if self._rate > 0 and self._running:
            while self._due_ns(self._next_tick) <= now_ns:
                connection = self.connections[self._next_tick % len(self.connections)]
                # A busy connection goes on by itself when it is answered.
                if connection.step == _IDLE and connection.open:
                    assert connection.tick == self._next_tick
                    self._next_batch(connection)
                self._next_tick += 1
        elif len(self._begun) > 0:
            for connection in self._begun:
                connection.since_ns = now_ns
            self._begun = []

    def next_deadline_ns(self) -> int:
        if self._rate == 0 or not self._running:
            return NEVER_NS
        return self._due_ns(self._next_tick)

    def take_outbox(self) -> list[object]:
        outbox = self._outbox
        self._outbox = []
        return outbox

    def take_actions(self) -> list[int]:
        actions = self._actions
        self._actions = []
        return actions

    # ------------------------------------------------------------ what the reactor says
    def client_received(self, handle: i64, data: bytes, now_ns: i64) -> None:
        connection = self._by_handle[handle]
        if connection is None or not connection.open:
            return
        connection.receive(data)
        answered: i64 = 0
        while True:
            reply = connection.next()
            if reply == NEED_MORE:
                break
            if connection.step < 0 or reply != connection.wanted:
                if not self._unusual(connection, reply):
                    break
                if connection.step == _SETUP:
                    continue
            elif reply == REPLY_RESERVED:
                connection.ids.append(connection.job_id)
                self.received_bytes += connection.body_bytes
            elif reply == REPLY_INSERTED:
                connection.stored += 1
            answered += 1
            connection.pending -= 1
            if connection.pending == 0:
                self.histograms[connection.step].record(now_ns - connection.since_ns, answered)
                answered = 0
                self._end_batch(connection, now_ns)
        if answered > 0:
            self.histograms[connection.step].record(now_ns - connection.since_ns, answered)

    def client_ended(self, handle: i64, now_ns: i64) -> None:
        connection = self._by_handle[handle]
        if connection is not None and connection.open:
            self.lost += 1
            self._drop(connection)

    def client_failed(self, handle: i64, now_ns: i64) -> None:
        self.client_ended(handle, now_ns)

    def client_unsent(self, handle: i64, unsent_bytes: i64, now_ns: i64) -> None:
        """A server that does not read is waited for: nothing more is sent before it answers."""

    # ------------------------------------------------------------ replies
    def _unusual(self, connection: Connection, reply: i64) -> bool:
        """A reply that is not simply the wanted one. False: this connection is not listened to any more."""
        if connection.step == _SETUP and (reply == REPLY_USING or reply == REPLY_WATCHING):
            connection.pending -= 1
            if connection.pending == 0:
                connection.step = _IDLE
                self.opening -= 1
            return True
        if connection.step == STEP_RESERVE and reply == REPLY_TIMED_OUT:
            self.timed_out += 1
            return True
        said = connection.said if reply >= REPLY_OTHER else REPLY_NAMES[reply]
        if connection.step < 0:
            # In the setup, or to nothing that was asked.
            self.failure = said
            self._drop(connection)
            return False
        to = STEP_NAMES[connection.step].encode() + b": "
        if to + said not in self.unexpected and len(self.unexpected) >= UNEXPECTED_KINDS_MAX:
            said = b"(others)"
        self.unexpected[to + said] = self.unexpected.get(to + said, 0) + 1
        if reply == REPLY_BROKEN:
            self.lost += 1
            self._drop(connection)
            return False
        return True

    def _drop(self, connection: Connection) -> None:
        connection.open = False
        if connection.step == _SETUP:
            self.opening -= 1
        elif self._running and connection.step != _DONE:
            self.active -= 1
        self._actions.append(ACT_CLOSE)
        self._actions.append(connection.handle)

    # ------------------------------------------------------------ batches
    def _end_batch(self, connection: Connection, now_ns: i64) -> None:
        if self._rate == 0:
            self._next_batch(connection)
            return
        connection.tick += len(self.connections)
        if connection.tick < self._next_tick:
            self._next_batch(connection)
        else:
            connection.step = _IDLE

    def _next_batch(self, connection: Connection) -> None:
        """Send the next step of the round that has something to do."""
        workload = self.workload
        steps = workload.steps
        while True:
            at = connection.at + 1
            if at == len(steps):
                at = 0
            connection.at = at
            step: i64 = steps[at]
            if step == STEP_PUT:
                if not self._put(connection):
                    self._finish(connection)
                    return
                break
            if step == STEP_RESERVE:
                connection.ids = []
                count = connection.stored if workload.has_puts else workload.depth
                if count > 0:
                    connection.pending = count
                    self._send(connection, workload.reserves(count))
                    break
            elif len(connection.ids) > 0:
                self._send_with_ids(connection, step)
                break
            if at == len(steps) - 1 and steps[0] == STEP_RESERVE:
                # A load that puts nothing ends where nothing is left.
                self._finish(connection)
                return
        connection.step = step
        connection.wanted = STEP_REPLIES[step]
        if self._rate > 0:
            connection.since_ns = self._due_ns(connection.tick)
        else:
            self._begun.append(connection)

    def _send_with_ids(self, connection: Connection, step: i64) -> None:
        workload = self.workload
        ids = connection.ids
        connection.pending = len(ids)
        if step == STEP_DELETE:
            self._send(connection, workload.deletes(ids))
        elif step == STEP_TOUCH:
            self._send(connection, workload.touches(ids))
        else:
            assert step == STEP_RELEASE
            self._send(connection, workload.releases(ids, connection.sent))
            connection.sent += connection.pending

    def _put(self, connection: Connection) -> bool:
        connection.stored = 0
        count = self.workload.depth
        if self._jobs_left != NO_LIMIT:
            if count > self._jobs_left:
                count = self._jobs_left
            if count == 0:
                return False
            self._jobs_left -= count
        connection.pending = count
        self.sent_bytes += self.workload.put_bytes(connection.sent, count)
        self._send(connection, self.workload.puts(connection.sent, count))
        connection.sent += count
        return True

    def _finish(self, connection: Connection) -> None:
        connection.step = _DONE
        connection.pending = 0
        self.active -= 1

    def _send(self, connection: Connection, data: bytes) -> None:
        self._outbox.append(connection.handle)
        self._outbox.append(data)

    def _due_ns(self, tick: i64) -> i64:
        return self._start_ns + (tick * self._interval >> _FRACTION_BITS)
