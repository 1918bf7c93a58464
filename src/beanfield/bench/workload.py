"""What a load consists of: the steps of one round of a connection, and the bytes of their commands.

A round is a list of steps; each step sends up to `depth` commands of one kind at once and ends when all are answered.
Reserve steps ask for as many jobs as the round has put, or for `depth` in a load without puts, and give the ids that
touch, release and delete steps use; a step that has nothing to do is passed over. This module knows
no connections and no time.
"""

from typing import Final

from mypy_extensions import i64

from beanfield.bench.replies import (
    REPLY_DELETED,
    REPLY_INSERTED,
    REPLY_RELEASED,
    REPLY_RESERVED,
    REPLY_TOUCHED,
)

STEP_PUT: Final = 0
STEP_RESERVE: Final = 1
STEP_TOUCH: Final = 2
STEP_RELEASE: Final = 3
STEP_DELETE: Final = 4
STEPS: Final = 5
STEP_NAMES: Final = ("put", "reserve", "touch", "release", "delete")
# The reply that a step's commands get when all is well, by step.
STEP_REPLIES: Final[list[int]] = [REPLY_INSERTED, REPLY_RESERVED, REPLY_TOUCHED, REPLY_RELEASED, REPLY_DELETED]

PRIORITY: Final = 100
TTR_S: Final = 120
DELAY_S: Final = 1  # of the delayed puts and releases of a mixed load
RESERVE_TIMEOUT_S: Final = 10

# Which tubes a connection watches.
WATCH_OWN: Final = 0  # the tube it uses
WATCH_ALL: Final = 1  # every tube of the load
WATCH_PAIR: Final = 2  # its own and default, as clients that never ignore it


def put_command(body_bytes: int, delay_s: int) -> bytes:
    return b"put %d %d %d %d\r\n%s\r\n" % (PRIORITY, delay_s, TTR_S, body_bytes, b"x" * body_bytes)


def setup_commands(prefix: bytes, number: int, tubes: int, watch: int) -> list[bytes]:
    """The commands with which connection `number` begins; each has one reply of one line."""
    own = prefix + b"%d" % (number % tubes)
    commands = [b"use " + own + b"\r\n"]
    if watch == WATCH_ALL:
        for index in range(tubes):
            commands.append(b"watch " + prefix + b"%d\r\n" % index)
    else:
        commands.append(b"watch " + own + b"\r\n")
    if watch != WATCH_PAIR:
        commands.append(b"ignore default\r\n")
    return commands


class Workload:
    """The commands of one load, ready made where they can be."""

    def __init__(
        self, steps: list[int], depth: int, body_sizes: list[int], delayed_every: int, reserve_timeout_s: int
    ) -> None:
        assert len(steps) > 0 and (STEP_PUT in steps or STEP_RESERVE in steps)
        assert depth > 0 and len(body_sizes) > 0
        self.steps = steps
        self.has_puts = STEP_PUT in steps
        self.depth: i64 = depth
        self.body_bytes = body_sizes
        self._puts: list[bytes] = []
        self._put_bytes: list[int] = []
        # The sizes in turn, and every so many-th put delayed: one pattern, repeated.
        pattern = len(body_sizes) * max(1, delayed_every)
        for index in range(pattern):
            size = body_sizes[index % len(body_sizes)]
            delay_s = DELAY_S if delayed_every > 0 and index % delayed_every == delayed_every - 1 else 0
            self._puts.append(put_command(size, delay_s))
            self._put_bytes.append(size)
        self._full_put: bytes = self._puts[0] * depth if pattern == 1 else b""
        self._reserve: bytes = b"reserve-with-timeout %d\r\n" % reserve_timeout_s
        self._full_reserve: bytes = self._reserve * depth
        self._delayed_every: i64 = delayed_every
        self._plain_release: bytes = b" %d 0\r\n" % PRIORITY
        self._delayed_release: bytes = b" %d %d\r\n" % (PRIORITY, DELAY_S)

    def puts(self, first: i64, count: i64) -> bytes:
        """`count` puts; `first` is the number of those that the connection has sent before."""
        if count == self.depth and len(self._full_put) > 0:
            return self._full_put
        pattern: i64 = len(self._puts)
        parts: list[bytes] = []
        index = first
        while index < first + count:
            parts.append(self._puts[index % pattern])
            index += 1
        return b"".join(parts)

    def put_bytes(self, first: i64, count: i64) -> i64:
        """The bytes of the bodies of those puts."""
        pattern: i64 = len(self._puts)
        if pattern == 1:
            return count * self._put_bytes[0]
        total: i64 = 0
        index = first
        while index < first + count:
            total += self._put_bytes[index % pattern]
            index += 1
        return total

    def reserves(self, count: i64) -> bytes:
        return self._full_reserve if count == self.depth else self._reserve * count

    def deletes(self, ids: list[bytes]) -> bytes:
        return b"delete " + b"\r\ndelete ".join(ids) + b"\r\n"

    def touches(self, ids: list[bytes]) -> bytes:
        return b"touch " + b"\r\ntouch ".join(ids) + b"\r\n"

    def releases(self, ids: list[bytes], first: i64) -> bytes:
        """Every so many-th of all that the connection sends is delayed."""
        parts: list[bytes] = []
        number = first
        for job_id in ids:
            parts.append(b"release " + job_id)
            delayed = self._delayed_every > 0 and number % self._delayed_every == self._delayed_every - 1
            parts.append(self._delayed_release if delayed else self._plain_release)
            number += 1
        return b"".join(parts)
