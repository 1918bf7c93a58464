"""A load on a server while something happens to it, and the check afterwards.

    with Load(server, slots=2, frontends=2) as load:
        load.run_for(0.5)
        server.kill("owner", 1)
        load.owner_ended(1)
        ...
        load.settle()                 # sessions stop between two commands, connections open, jobs in hand
        load.check()                  # nothing held twice or by nobody, references and counters exact, nothing lost

Sessions are threads with a connection each: they put, reserve from several tubes of all slots, delete, release, bury,
kick and touch, and connect again when their connection ends. TTRs are longer than any test, so every change of holder
has a cause that the ledger knows. Which frontend has a connection is looked up in /proc.
"""

import random
import threading
import time
from pathlib import Path
from typing import Self

from beanfield.routing import Topology
from tests.processes.ledger import Connection, Ledger
from tests.processes.server import Client, Server, wait_for

TTR = 600
REPLY_SECONDS = 40.0  # a session that hears nothing for longer is a hang, even on a busy machine
CHECK_SECONDS = 20.0
TUBES = 4
HELD_MAX = 4
NOWHERE = (-1, 0)  # a connection that ended before its frontend could be looked up
PAUSE_SECONDS = 0.002  # between two commands of a session: the load is to meet the fault, not to exhaust the machine


class Load:
    """Sessions, tubes in every slot, and what is known of faults."""

    def __init__(self, server: Server, slots: int, frontends: int, sessions: int = 10, seed: int = 1) -> None:
        self.server = server
        self.slots = slots
        self.frontends = frontends  # 0: the owner serves the clients
        self.topology = Topology(256, slots)
        self.tubes = [name for slot in range(slots) for name in self.tubes_of(slot, TUBES // slots)]
        self.ledger = Ledger()
        self.stopping = threading.Event()
        self.unavailable: set[int] = set()  # slots that INTERNAL_ERROR may be said of
        self._faults: list[tuple[str, int, int]] = []
        self._markers: dict[int, int] = {}  # slot -> the first id that the last death of its owner cannot have taken
        self._sessions = [LoadSession(self, number, seed) for number in range(sessions)]

    def tubes_of(self, slot: int, count: int) -> list[str]:
        """Names of tubes that live there."""
        names = (f"load-{number}" for number in range(10_000))
        found = (name for name in names if self.topology.slot_of_name(name.encode()) == slot)
        return [next(found) for _ in range(count)]

    def slot_of(self, what: str | int) -> int:
        """Of a tube's name or a job."""
        return int(
            self.topology.slot_of_id(what) if isinstance(what, int) else self.topology.slot_of_name(what.encode())
        )

    # ---------------------------------------------------------------- what happens
    def run_for(self, seconds: float) -> None:
        """Let the load run. Its length is no part of what a test asserts."""
        time.sleep(seconds)

    def progress(self, commands: int = 200) -> None:
        """Until the sessions have had so many more commands answered: the server goes on."""
        before = sum(session.answered for session in self._sessions)
        wait_for(
            lambda: sum(session.answered for session in self._sessions) >= before + commands,
            f"{commands} more answers",
            REPLY_SECONDS,
        )

    def owner_ended(self, slot: int) -> None:
        """Its jobs are gone; who held one there or waited for a change there may find its connection ended."""
        self._faults.append(("owner", slot, -1))

    def frontend_ended(self, index: int, pid: int) -> None:
        self._faults.append(("frontend", index, pid))

    def link_cut(self, slot: int, frontend: int) -> None:
        self._faults.append(("link", slot, frontend))

    def settle(self) -> None:
        """All sessions stop between two commands, with their connections open."""
        self.stopping.set()
        for session in self._sessions:
            session.join(REPLY_SECONDS)
            assert not session.is_alive(), f"session {session.number} hangs in {session.doing!r}"
        self.ledger.assert_sound()

    # ---------------------------------------------------------------- afterwards
    def check(self) -> None:
        """Everything that must hold after a fault, of all slots that are there."""
        self.ledger.assert_sound()
        unexplained = self.ledger.unexplained(c for c in self.ledger.ended if self._is_explained(c))
        assert not unexplained, f"connections ended that had nothing to do with a fault: {unexplained}"
        with self.server.connect(REPLY_SECONDS) as client:
            self._check_references(client)
            self._check_reservations(client)
            for session in self._sessions:
                session.close()
            self._check_jobs(client)

    def _is_explained(self, ended: Connection) -> bool:
        for kind, index, detail in self._faults:
            if kind == "frontend" and (ended.frontend, ended.frontend_pid) in ((index, detail), NOWHERE):
                return True
            if kind == "link" and ended.frontend != detail:
                continue
            if kind != "frontend" and index in {ended.changing, *(self.slot_of(job) for job in ended.held)}:
                return True
        return False

    def _check_references(self, client: Client) -> None:
        """Each tube's counts and those of the whole server, against what the sessions have."""
        connections = [session.connection for session in self._sessions]
        for tube in self.tubes:
            if self.slot_of(tube) in self.unavailable:
                continue
            using = sum(connection.used == tube for connection in connections)
            watching = sum(tube in connection.watched for connection in connections)
            if using + watching == 0:
                continue
            stats = client.stats(b"stats-tube " + tube.encode())
            assert (stats["current-using"], stats["current-watching"]) == (str(using), str(watching)), tube
            assert stats["current-waiting"] == "0", tube
        stats = client.stats()
        assert int(stats["current-connections"]) == len(connections) + 1
        assert int(stats["current-producers"]) == sum(connection.producer for connection in connections)
        assert int(stats["current-workers"]) == sum(connection.worker for connection in connections)
        assert stats["current-waiting"] == "0"

    def _check_reservations(self, client: Client) -> None:
        """Every job in somebody's hand is reserved, and no other."""
        held = [job for session in self._sessions for job in session.connection.held]
        there = [job for job in held if self.slot_of(job) not in self.unavailable]
        for job in there:
            assert client.stats(b"stats-job %d" % job)["state"] == "reserved", job
        assert int(client.stats()["current-jobs-reserved"]) == len(there)

    def _check_jobs(self, client: Client) -> None:
        """With all sessions closed every job is free; taken out one by one they are just those that must be there."""
        wait_for(lambda: client.stats()["current-connections"] == "1", "the end of all sessions", CHECK_SECONDS)
        wait_for(lambda: client.stats()["current-jobs-reserved"] == "0", "their jobs to be free", CHECK_SECONDS)
        found: dict[int, bytes] = {}
        # A session whose tube could not be had put into `default`.
        for tube in ["default", *self.tubes]:
            if self.slot_of(tube) not in self.unavailable:
                found |= take_all(client, tube.encode())
        for job, body in found.items():
            assert self.ledger.may_be_there(job, body), f"job {job} should not be there"
        dead = {index for kind, index, _ in self._faults if kind == "owner"}
        missing = [
            job
            for job in self.ledger.must_be_there() - set(found)
            if self.slot_of(job) not in self.unavailable
            and (self.slot_of(job) not in dead or job >= self._markers.get(self.slot_of(job), 1 << 63))
        ]
        assert not missing, f"lost: {missing[:20]}"
        client.ask(b"use default")
        if not self.unavailable:
            assert client.stats()["current-tubes"] == "1"

    def mark(self, slot: int) -> None:
        """The owner that is there now will not die: what is put from here on must be found."""
        with self.server.connect(REPLY_SECONDS) as client:
            assert client.ask(b"use load-mark-%d" % self._tube_number(slot)).startswith(b"USING ")
            word, job = client.put(b"mark").split()
            assert word == b"INSERTED"
            assert client.ask(b"delete " + job) == b"DELETED"
            # Ids of other partitions may be smaller by less than their number.
            self._markers[slot] = int(job) + int(self.topology.partitions)

    def _tube_number(self, slot: int) -> int:
        return next(n for n in range(10_000) if self.slot_of(f"load-mark-{n}") == slot)

    def place(self, connection: Connection, local_port: int) -> None:
        """Find out which frontend has it."""
        assert not isinstance(self.server.address, str)
        inode = server_side_inode(self.server.address[1], local_port)
        for child in self.server.children("frontend" if self.frontends else "owner"):
            if inode in socket_inodes(child.pid):
                connection.frontend, connection.frontend_pid = child.index, child.pid

    def __enter__(self) -> Self:
        for session in self._sessions:
            session.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        for session in self._sessions:
            session.close()
        for session in self._sessions:
            session.join(REPLY_SECONDS)


class LoadSession(threading.Thread):
    """One client: whatever it does, its ledger knows before the server can tell anybody."""

    def __init__(self, load: Load, number: int, seed: int) -> None:
        super().__init__(daemon=True)
        self.number = number
        self.answered = 0
        self.doing = b""
        self.connection = Connection(number)
        self._load = load
        self._ledger = load.ledger
        self._pick = random.Random(seed * 1_000 + number)
        self._client: Client | None = None
        self._closed = False
        self._puts = 0

    def close(self) -> None:
        self._closed = True
        if self._client is not None:
            self._client.close()

    def run(self) -> None:
        try:
            while not self._load.stopping.is_set():
                if self._client is None:
                    self._connect()
                    continue
                try:
                    self._one_thing()
                    time.sleep(PAUSE_SECONDS)
                except (ConnectionError, EOFError):
                    self._end()
            while self._client is None and not self._closed:
                self._connect()
        except Exception as error:
            if not self._closed:
                self._ledger.problem(f"session {self.number} in {self.doing!r}: {error!r}")

    # ---------------------------------------------------------------- the connection
    def _connect(self) -> None:
        self.connection = Connection(self.number)
        try:
            self._client = self._load.server.connect(REPLY_SECONDS)
            self._ask(b"list-tube-used")
            self._load.place(self.connection, self._client.socket.getsockname()[1])
            self._use(self._pick.choice(self._load.tubes))
            for tube in self._pick.sample(self._load.tubes, 3):
                if self._ask(b"watch " + tube.encode(), b"WATCHING ") != b"INTERNAL_ERROR":
                    self.connection.watched.add(tube)
        except (ConnectionError, EOFError):
            self._end()
            time.sleep(0.02)

    def _end(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
            self._ledger.connection_ended(self.connection)

    def _ask(self, command: bytes, *expected: bytes, change: int = -1) -> bytes:
        """A command and its answer; EOFError at the end of the connection. `change`: the slot that it changes."""
        assert self._client is not None
        suspected = self.connection.suspected
        self.doing = command
        self.connection.changing = change
        self._client.send(command + b"\r\n")
        reply = self._client.line()
        if not reply:
            raise EOFError
        self.connection.changing = -1
        self.answered += 1
        if suspected:
            self._ledger.problem(f"session {self.number} goes on, though a job of its own is another's")
        if reply == b"INTERNAL_ERROR" and self._load.unavailable:
            return reply
        if expected and not reply.startswith(expected):
            self._ledger.problem(f"session {self.number}: {command!r} was answered {reply!r}")
        return reply

    # ---------------------------------------------------------------- what it does
    def _one_thing(self) -> None:
        chosen = self._pick.random()
        held = self.connection.held
        if chosen < 0.45 or not held and chosen < 0.5:
            self._put()
        elif len(held) < HELD_MAX and chosen < 0.8:
            self._reserve()
        elif chosen < 0.82:
            self._use(self._pick.choice(self._load.tubes))
        elif held:
            self._settle_one(self._pick.choice(sorted(held)))

    def _use(self, tube: str) -> None:
        if self._ask(b"use " + tube.encode(), b"USING ") != b"INTERNAL_ERROR":
            self.connection.used = tube

    def _put(self) -> None:
        self._puts += 1
        body = b"session %d job %d of connection %d" % (self.number, self._puts, id(self.connection))
        priority = self._pick.randrange(4)
        self.connection.producer = True
        command = b"put %d 0 %d %d\r\n%s" % (priority, TTR, len(body), body)
        try:
            reply = self._ask(command, b"INSERTED ", change=self._load.slot_of(self.connection.used))
        except (ConnectionError, EOFError):
            self._ledger.put_unanswered(body)
            raise
        if reply.startswith(b"INSERTED "):
            self._ledger.put(int(reply.split()[1]), body)

    def _reserve(self) -> None:
        self.connection.worker = True
        timeout = self._pick.choice((0, 0, 1))
        reply = self._ask(b"reserve-with-timeout %d" % timeout, b"RESERVED ", b"TIMED_OUT")
        if reply.startswith(b"RESERVED "):
            assert self._client is not None
            _, job, size = reply.split()
            self._ledger.took(self.connection, int(job), self._client.body(int(size)))

    def _settle_one(self, job: int) -> None:
        slot = self._load.slot_of(job)
        what = self._pick.choice((b"delete", b"delete", b"delete", b"release", b"bury", b"touch"))
        if what == b"touch":
            self._ask(b"touch %d" % job, b"TOUCHED", change=slot)
            return
        self._ledger.giving(self.connection, job)
        if what == b"delete":
            try:
                reply = self._ask(b"delete %d" % job, b"DELETED", change=slot)
            except (ConnectionError, EOFError):
                self._ledger.delete_answered(job, False)
                raise
            self._ledger.delete_answered(job, reply == b"DELETED")
        elif what == b"release":
            self._ask(b"release %d %d 0" % (job, self._pick.randrange(4)), b"RELEASED", change=slot)
        else:
            self._ask(b"bury %d 0" % job, b"BURIED", change=slot)
            # Nobody else kicks one job; a whole tube is kicked only at the end.
            self._ask(b"kick-job %d" % job, b"KICKED", change=slot)


def take_all(client: Client, tube: bytes) -> dict[int, bytes]:
    """Empty a tube with a client that watches `default` alone: bodies by job."""
    found: dict[int, bytes] = {}
    assert client.ask(b"use " + tube) == b"USING " + tube
    client.ask(b"kick 1000000")
    if tube != b"default":
        assert client.ask(b"watch " + tube) == b"WATCHING 2"
        assert client.ask(b"ignore default") == b"WATCHING 1"
    while (reply := client.ask(b"reserve-with-timeout 0")) != b"TIMED_OUT":
        word, job, size = reply.split()
        assert word == b"RESERVED", reply
        found[int(job)] = client.body(int(size))
        assert client.ask(b"delete " + job) == b"DELETED"
    if tube != b"default":
        assert client.ask(b"watch default") == b"WATCHING 2"
        assert client.ask(b"ignore " + tube) == b"WATCHING 1"
    return found


# ---------------------------------------------------------------- who has a connection


def server_side_inode(server_port: int, client_port: int) -> str:
    """Of the socket that a server has for a client, both on the loopback; empty when it is gone."""
    local, remote = f"0100007F:{server_port:04X}", f"0100007F:{client_port:04X}"
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1] == local and fields[2] == remote:
            return fields[9]
    return ""


def socket_inodes(pid: int) -> set[str]:
    found = set()
    try:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            try:
                target = entry.readlink().name
            except OSError:
                continue
            if target.startswith("socket:["):
                found.add(target[8:-1])
    except OSError:
        pass
    return found
