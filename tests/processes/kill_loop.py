"""Load and kill -9 on a server with a log, and a ledger of what it has answered: nothing lost, nothing back.

    python -m tests.processes.kill_loop --minutes 10

Several clients put, reserve, delete, release, bury and kick with -f 0. Every moment one process, or all of them, is
killed; a server that is gone as a whole is started anew on the same root. At the end every job of the books is looked
up: one whose put was answered must be there with its body unless its delete was sent; one whose delete was answered
must never be seen again, by a reserve neither. Ids must be unique over the whole loop.
"""

import argparse
import random
import sys
import tempfile
import threading
import time
from pathlib import Path

from beanfield.constants import CRASHES_MAX
from tests.processes.server import Client
from tests.processes.wal_root import DataRoot, found, kill_everything, kill_supervisor, stop

CLIENTS = 6
REPLY_SECONDS = 60.0  # a machine full of tests is slow; a client that hears nothing for longer is a finding
KILLS = ("owner", "owner", "frontend", "supervisor", "everything")
LIVE_JOBS_MAX = 400  # of one client; above, it deletes more than it puts


class Books:
    """What was sent and answered. Bodies are unique, so a job is known by its body."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.bodies: dict[int, bytes] = {}  # id -> body, of every put that was answered
        self.deleting: set[int] = set()  # a delete was sent
        self.deleted: dict[int, float] = {}  # and answered DELETED, when
        self.problems: list[str] = []
        self.put_count = 0
        self.deleted_count = 0

    def inserted(self, id: int, body: bytes) -> None:
        with self._lock:
            self.put_count += 1
            if id in self.bodies:
                self.problems.append(f"id {id} was given twice")
            self.bodies[id] = body

    def delete_sent(self, id: int) -> None:
        with self._lock:
            self.deleting.add(id)

    def delete_answered(self, id: int) -> None:
        with self._lock:
            self.deleted_count += 1
            self.deleted[id] = time.monotonic()

    def seen(self, id: int, body: bytes, asked_s: float) -> None:
        """In the answer to a command that was sent then: what was deleted later may have been there."""
        with self._lock:
            if self.deleted.get(id, asked_s) < asked_s:
                self.problems.append(f"job {id} is back, though its delete was answered")
            if self.bodies.get(id, body) != body:
                self.problems.append(f"job {id} has another body")

    def missing(self, id: int) -> None:
        with self._lock:
            if id not in self.deleting:
                self.problems.append(f"job {id} is lost, though its put was answered")

    def problem(self, text: str) -> None:
        with self._lock:
            self.problems.append(text)


class Worker(threading.Thread):
    """One client: connects again whenever its connection ends."""

    def __init__(self, loop: "KillLoop", number: int, seed: int) -> None:
        super().__init__(name=f"worker {number}", daemon=True)
        self._loop = loop
        self._number = number
        self._random = random.Random(seed * 1000 + number)
        self._put_number = 0
        self._mine: list[int] = []  # ids that may still be there
        self._client: Client | None = None

    def run(self) -> None:
        try:
            while not self._loop.ending.is_set():
                self._connected()
        except Exception as error:
            self._loop.books.problem(f"{self.name}: {error!r}")

    def _connected(self) -> None:
        try:
            self._client = self._loop.server.connect(REPLY_SECONDS)
            for tube in self._loop.tubes:
                self._client.ask(b"watch %s" % tube)
            while not self._loop.ending.is_set():
                self._command(self._client)
        except TimeoutError:
            self._loop.books.problem(f"{self.name}: no reply for {REPLY_SECONDS} s")
        except OSError:
            self._loop.ending.wait(0.005)
        finally:
            if self._client is not None:
                self._client.close()
                self._client = None

    def _command(self, client: Client) -> None:
        choice = self._random.random()
        if choice < (0.5 if len(self._mine) < LIVE_JOBS_MAX else 0.1):
            self._put(client)
        elif choice < 0.9:
            self._work(client)
        elif choice < 0.95:
            self._said(client.ask(b"kick %d" % self._random.randrange(1, 5)), b"KICKED", b"INTERNAL_ERROR")
        elif self._mine:
            self._end_job(client, self._random.choice(self._mine))

    def _said(self, line: bytes, *words: bytes) -> bytes:
        """The first word; an ended connection is an OSError."""
        if not line:
            raise ConnectionError
        word = line.split()[0]
        if word not in words:
            self._loop.books.problem(f"{self.name}: {line!r} instead of one of {words!r}")
        return word

    def _put(self, client: Client) -> None:
        self._put_number += 1
        self._said(client.ask(b"use %s" % self._random.choice(self._loop.tubes)), b"USING", b"INTERNAL_ERROR")
        body = b"%d of %d " % (self._put_number, self._number) + b"." * self._random.choice((0, 30, 500, 6000))
        line = client.put(body, self._random.randrange(5), self._random.choice((0, 0, 0, 1)), 600)
        if self._said(line, b"INSERTED", b"INTERNAL_ERROR") == b"INSERTED":
            id = int(line.split()[1])
            self._loop.books.inserted(id, body)
            self._mine.append(id)

    def _work(self, client: Client) -> None:
        asked_s = time.monotonic()
        line = client.ask(b"reserve-with-timeout 0")
        if self._said(line, b"RESERVED", b"TIMED_OUT", b"INTERNAL_ERROR") != b"RESERVED":
            return
        _, id, size = line.split()
        self._loop.books.seen(int(id), client.body(int(size)), asked_s)
        choice = self._random.random()
        if choice < 0.6:
            self._end_job(client, int(id))
        elif choice < 0.8:
            self._said(client.ask(b"release %s 3 0" % id), b"RELEASED", b"INTERNAL_ERROR", b"NOT_FOUND")
        else:
            self._said(client.ask(b"bury %s 3" % id), b"BURIED", b"INTERNAL_ERROR", b"NOT_FOUND")

    def _end_job(self, client: Client, id: int) -> None:
        self._loop.books.delete_sent(id)
        line = client.ask(b"delete %d" % id)
        if self._said(line, b"DELETED", b"NOT_FOUND", b"INTERNAL_ERROR") == b"DELETED":
            self._loop.books.delete_answered(id)
        if id in self._mine:
            self._mine.remove(id)


class KillLoop:
    """The server, its root, the clients, and the one who kills."""

    def __init__(self, path: Path, slots: int, frontends: int, seed: int) -> None:
        self.root = DataRoot(path, slots, frontends, ["-f", "0", "-s", "300000", "--slot-wait", "60"])
        self.books = Books()
        self.ending = threading.Event()
        self.kills = dict.fromkeys(KILLS, 0)
        self.tubes = [self.root.tube_of(slot, n).encode() for slot in range(slots) for n in range(2)]
        self._random = random.Random(seed)
        self._crashes: dict[tuple[str, int], int] = {}  # of this server's children
        self.server = self.root.serve()
        self._workers = [Worker(self, number, seed) for number in range(CLIENTS)]

    def run(self, kills: int = 1 << 30, seconds: float = 1e9, checks_every: int = 50) -> None:
        until = time.monotonic() + seconds
        for worker in self._workers:
            worker.start()
        for number in range(1, kills + 1):
            time.sleep(self._random.uniform(0.05, 0.6))
            self._kill(self._random.choice(KILLS))
            if number % checks_every == 0:
                self.say()
            if self.books.problems or time.monotonic() > until:
                break
        self.ending.set()
        for worker in self._workers:
            worker.join(REPLY_SECONDS + 10)
        self.server.stop()
        with self.server:
            pass
        self._restart(None)
        with self.server as server, server.connect(REPLY_SECONDS) as client:
            self.check(client)
            stop(server)

    def _kill(self, what: str) -> None:
        index = 0
        if what in ("owner", "frontend"):
            what = what if self.root.frontends else "owner"
            index = self._random.randrange(self.root.slots if what == "owner" else self.root.frontends)
            if self._crashes.get((what, index), 0) == CRASHES_MAX - 1:
                what = "everything"  # one more crash, and the server would leave it out for a while
            else:
                self._crashes[(what, index)] = self._crashes.get((what, index), 0) + 1
        self.kills[what] += 1
        if what == "everything":
            self._restart(kill_everything)
        elif what == "supervisor":
            self._restart(kill_supervisor)
        else:
            self.server.kill(what, index)

    def _restart(self, end: object) -> None:
        """The next server on the same root."""
        before = self.server
        if callable(end):
            end(before)
            with before:
                pass
        self._crashes = {}
        self.server = self.root.serve()

    def check(self, client: Client) -> None:
        """Every job of the books."""
        for id in list(self.books.bodies):
            asked_s = time.monotonic()
            there = found(client, id)
            if there is None:
                self.books.missing(id)
            else:
                self.books.seen(id, there, asked_s)

    def say(self) -> None:
        kills = ", ".join(f"{count} of {what}" for what, count in self.kills.items() if count)
        books = self.books
        answered = f"{books.put_count} puts and {books.deleted_count} deletes answered"
        print(f"{sum(self.kills.values())} kills ({kills}): {answered}, {len(books.problems)} problems", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Load and kill -9 on a server with -f 0: is anything lost, or back?")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--frontends", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="beanfield-kill-") as folder:
        loop = KillLoop(Path(folder) / "root", given.slots, given.frontends, given.seed)
        loop.run(seconds=given.minutes * 60)
    loop.say()
    for problem in loop.books.problems[:20]:
        print(problem)
    print("nothing lost, nothing back" if not loop.books.problems else "FAILED")
    return 1 if loop.books.problems else 0


if __name__ == "__main__":
    sys.exit(main())
