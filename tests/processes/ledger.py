"""What clients under load know, written down so that it can be held against what the server says afterwards.

One ledger for all sessions of a load; they call it from their own threads. A job that a session is about to give up is
struck out before the command leaves, for the server may hand it on before the reply is read. So whoever is written
here as holder holds the job, or its connection has ended and it does not know yet.
"""

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(eq=False)
class Connection:
    """One connection of a session: what it holds, refers to and waits for."""

    session: int
    frontend: int = -1  # by index
    frontend_pid: int = 0
    held: set[int] = field(default_factory=set)
    watched: set[str] = field(default_factory=lambda: {"default"})
    used: str = "default"
    producer: bool = False
    worker: bool = False
    changing: int = -1  # the slot of a change that was sent and is not answered
    suspected: bool = False  # another connection was given a job that this one holds


class Ledger:
    """Jobs, their holders, ended connections, and what was found wrong."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.bodies: dict[int, bytes] = {}  # of every job whose put was answered
        self.unanswered: set[bytes] = set()  # bodies of puts whose connection ended before the answer
        self.seen: dict[bytes, int] = {}  # body -> the one job that had it
        self.deleted: set[int] = set()
        self.perhaps_deleted: set[int] = set()
        self.holders: dict[int, Connection] = {}
        self.ended: list[Connection] = []
        self.problems: list[str] = []

    def problem(self, text: str) -> None:
        with self._lock:
            self.problems.append(text)

    # ---------------------------------------------------------------- puts
    def put(self, job: int, body: bytes) -> None:
        """INSERTED."""
        with self._lock:
            if job in self.bodies:
                self.problems.append(f"id {job} was given to two jobs")
            self.bodies[job] = body
            self._is_of(body, job)

    def put_unanswered(self, body: bytes) -> None:
        with self._lock:
            self.unanswered.add(body)

    # ---------------------------------------------------------------- reservations
    def took(self, connection: Connection, job: int, body: bytes) -> None:
        """RESERVED."""
        with self._lock:
            if job in self.deleted:
                self.problems.append(f"job {job} was reserved after it was deleted")
            self._is_of(body, job)
            before = self.holders.get(job)
            if before is not None:
                # Its connection may have ended without its knowing; if not, an answer to what it asks next shows it.
                before.suspected = True
            self.holders[job] = connection
            connection.held.add(job)

    def giving(self, connection: Connection, job: int) -> None:
        """About to delete, release or bury it."""
        with self._lock:
            connection.held.discard(job)
            if self.holders.get(job) is connection:
                del self.holders[job]

    def delete_answered(self, job: int, deleted: bool) -> None:
        """Or not: then its connection ended."""
        with self._lock:
            (self.deleted if deleted else self.perhaps_deleted).add(job)

    def connection_ended(self, connection: Connection) -> None:
        with self._lock:
            self.ended.append(connection)
            for job in connection.held:
                if self.holders.get(job) is connection:
                    del self.holders[job]

    def _is_of(self, body: bytes, job: int) -> None:
        other = self.seen.setdefault(body, job)
        if other != job:
            self.problems.append(f"the body of job {other} is that of job {job} too")

    # ---------------------------------------------------------------- afterwards
    def must_be_there(self) -> set[int]:
        """Jobs that only a death of their owner can have taken away."""
        return set(self.bodies) - self.deleted - self.perhaps_deleted

    def may_be_there(self, job: int, body: bytes) -> bool:
        """Whether a job found in the server is one that clients put and did not delete."""
        if job in self.deleted:
            return False
        return self.bodies.get(job) == body or body in self.unanswered

    def assert_sound(self) -> None:
        assert not self.problems, "\n".join(self.problems[:20])

    def unexplained(self, explained: Iterable[Connection]) -> list[Connection]:
        known = set(explained)
        return [connection for connection in self.ended if connection not in known]
