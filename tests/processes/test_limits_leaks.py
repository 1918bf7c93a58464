"""Nothing leaks: the collector is off in owners and frontends, so a single cycle per command would.

BEANFIELD_LEAK_COMMANDS sets how many commands are sent; 10 million take minutes (docs/validation.md has the result).
Memory may grow while tables and the allocator find their size, so it is compared from a point well after the start.
"""

import gc
import os
import random
import socket

from beanfield.build import BUILD
from beanfield.combined.core import CombinedCore
from beanfield.constants import NS_PER_S
from beanfield.frontend.state import FrontendConfig
from beanfield.owner.core import OwnerConfig, OwnerCore
from beanfield.pages import FrontendCounters, OwnerCounters, PageReader, Snapshot
from beanfield.routing import Topology
from beanfield.wal.journal import MemoryJournal
from tests.processes.memory import MIB, own_bytes, server_bytes
from tests.processes.server import Server, wait_for

COMMANDS = int(os.environ.get("BEANFIELD_LEAK_COMMANDS", "300000" if BUILD == "compiled" else "60000"))
GROWTH_MAX = 3 * MIB
RUN_ID = bytes(16)

# One round: every command, every error reply that a command line alone can bring about, and what ends well between.
ROUND = (
    b"use leak\r\n"
    b"watch leak\r\n"
    b"put 0 0 1 5\r\nhello\r\n"
    b"put 0 0 1 5\r\nhello again\r\n"  # EXPECTED_CRLF and UNKNOWN_COMMAND
    b"put 0 0 1 200\r\n" + bytes(200) + b"\r\n"  # JOB_TOO_BIG
    b"put x 0 1 5\r\nhello\r\n"  # BAD_FORMAT and UNKNOWN_COMMAND
    b"reserve-with-timeout 0\r\n"
    b"reserve\r\n"  # DEADLINE_SOON
    b"reserve-with-timeout 5\r\n"
    b"reserve-with-timeout x\r\n"
    b"delete 999999999\r\n"
    b"delete 0\r\n"
    b"release 999999999 0 0\r\n"
    b"release 1\r\n"
    b"bury 999999999 0\r\n"
    b"touch 999999999\r\n"
    b"kick-job 999999999\r\n"
    b"reserve-job 999999999\r\n"
    b"peek 999999999\r\n"
    b"peek-ready\r\n"
    b"peek-delayed\r\n"
    b"peek-buried\r\n"
    b"stats-job 999999999\r\n"
    b"stats-tube nothing-of-the-kind\r\n"
    b"pause-tube nothing-of-the-kind 1\r\n"
    b"kick 10\r\n"
    b"kick x\r\n"
    b"list-tubes\r\n"
    b"list-tubes-watched\r\n"
    b"list-tube-used\r\n"
    b"stats\r\n"
    b"use -bad\r\n"
    b"watch " + b"x" * 201 + b"\r\n"  # too long a name
    b"x" + b"y" * 300 + b"\r\n"  # too long a line
    b"ignore nothing-of-the-kind\r\n"
    b"ignore default\r\n"
    b"ignore leak\r\n"  # NOT_IGNORED
    b"watch default\r\n"
    b"ignore leak\r\n"
    b"use default\r\n"
)
ERRORS = (
    b"EXPECTED_CRLF",
    b"UNKNOWN_COMMAND",
    b"JOB_TOO_BIG",
    b"BAD_FORMAT",
    b"DEADLINE_SOON",
    b"NOT_FOUND",
    b"NOT_IGNORED",
)
ROUND_COMMANDS = ROUND.count(b"\r\n") - 2


class Pages(PageReader):
    """The counters of the two cores."""

    def __init__(self) -> None:
        self.frontend = FrontendCounters()
        self.owner = OwnerCounters()

    def snapshot(self, now_ns: int) -> Snapshot:
        snapshot = Snapshot()
        frontend, owner = FrontendCounters(), OwnerCounters()
        frontend.decode(self.frontend.encode())
        owner.decode(self.owner.encode())
        snapshot.add_frontend(frontend, True)
        snapshot.add_owner(owner, True)
        return snapshot


class Cores:
    """Both cores of a server and all frames between them, without sockets; clients are numbers."""

    def __init__(self) -> None:
        topology = Topology(256, 1)
        pages = Pages()
        owner = OwnerCore(OwnerConfig(0, 1, RUN_ID, topology, 0, 0, 1 << 40), MemoryJournal(), pages.owner)
        self.core = CombinedCore(FrontendConfig(0, 1, RUN_ID, topology, 100, NS_PER_S, 1 << 20), pages, owner)
        pages.frontend = self.core.counters
        self.now_ns = 1_000 * NS_PER_S
        self.core.connect(self.now_ns)
        self.turns()

    def turns(self) -> bytes:
        """Until nothing is left to do at once; what clients were sent."""
        sent: list[bytes] = []
        while True:
            self.core.turn(self.now_ns)
            outbox = self.core.take_outbox()
            sent += [data for data in outbox[1::2] if isinstance(data, bytes)]
            self.core.take_actions()
            if self.core.next_deadline_ns() > self.now_ns:
                return b"".join(sent)

    def round(self, client: int) -> bytes:
        """One client comes, says everything, and leaves."""
        self.core.client_opened(client, self.now_ns)
        self.core.client_received(client, ROUND, self.now_ns)
        replies = self.turns()
        self.core.client_failed(client, self.now_ns)
        self.turns()
        # The job that was reserved is ready again; the next round begins as this one did.
        self.core.client_opened(client, self.now_ns)
        self.core.client_received(client, b"use leak\r\nwatch leak\r\nreserve-with-timeout 0\r\n", self.now_ns)
        job = self.turns().split(b"RESERVED ")[1].split()[0]
        self.core.client_received(client, b"delete %s\r\nquit\r\n" % job, self.now_ns)
        self.turns()
        self.now_ns += NS_PER_S // 100
        return replies


def test_no_command_and_no_error_reply_leaves_anything_behind() -> None:
    cores = Cores()
    rounds = max(40, COMMANDS // (ROUND_COMMANDS + 5))
    replies = cores.round(1)
    for word in ERRORS:
        assert word + b"\r\n" in replies
    lines = replies.count(b"\r\n")
    assert lines >= ROUND_COMMANDS
    gc.collect()
    gc.disable()
    try:
        for number in range(rounds):
            if number == rounds // 4:
                before = own_bytes()
            cores.core.drain(number % 10 == 9)
            if number % 10 == 9:
                # A put that is refused leaves no job to be reserved: only what refuses is asked for.
                cores.core.client_opened(2, cores.now_ns)
                cores.core.client_received(2, b"put 0 0 1 1\r\nx\r\nreserve-with-timeout 0\r\nquit\r\n", cores.now_ns)
                assert cores.turns() == b"DRAINING\r\nTIMED_OUT\r\n"
                cores.core.drain(False)
                cores.core.owner.memory_elsewhere_bytes = 1 << 50
                cores.core.client_opened(2, cores.now_ns)
                cores.core.client_received(2, b"put 0 0 1 1\r\nx\r\nquit\r\n", cores.now_ns)
                assert cores.turns() == b"OUT_OF_MEMORY\r\n"
                cores.core.owner.memory_elsewhere_bytes = 0
            assert cores.round(1 + number % 3).count(b"\r\n") == lines
        grown = own_bytes() - before
    finally:
        gc.enable()
    print(f"{rounds * (ROUND_COMMANDS + 5)} commands: memory grew by {grown} bytes from the first quarter on")
    assert grown < GROWTH_MAX
    assert gc.collect() < 1_000  # of this test's own


def test_no_command_leaves_anything_behind_in_real_processes() -> None:
    with Server(slots=2, frontends=1, extra=["-z", "100"]) as server, server.connect(timeout=60.0) as other:
        rounds = max(40, COMMANDS // 3 // ROUND_COMMANDS)
        # Here time passes: a longer ttr, and nothing that would wait for the margin.
        script = ROUND.replace(b"put 0 0 1 5\r\nhello\r\n", b"put 0 0 60 5\r\nhello\r\n", 1)
        script = script.replace(b"reserve\r\n", b"").replace(b"reserve-with-timeout 5\r\n", b"")
        for number in range(rounds):
            if number == rounds // 4:
                before = server_bytes(server)
            with server.connect(timeout=60.0) as client:
                client.send(script + b"quit\r\n")
                assert client.ended()
            with server.connect(timeout=60.0) as cleaner:
                assert cleaner.ask(b"watch leak") == b"WATCHING 2"
                word, job, size = cleaner.ask(b"reserve-with-timeout 60").split()
                cleaner.body(int(size))
                assert cleaner.ask(b"delete " + job) == b"DELETED"
        wait_for(lambda: other.stats()["current-connections"] == "1", "the end of all others")
        assert server_bytes(server) - before < GROWTH_MAX


def test_random_bytes_leave_nothing_behind() -> None:
    pick = random.Random(21)
    words = [b"put 0 0 1 ", b"reserve-with-timeout 0\r\n", b"use ", b"watch ", b"peek "]
    words += [b"\r\n", b"\r", b"\0", b" ", b"7"]
    with Server(slots=2, frontends=2) as server, server.connect(timeout=60.0) as other:
        pids = [child.pid for child in server.children()]
        for number in range(800):
            if number == 300:
                before = server_bytes(server)
            with server.connect(timeout=60.0) as client:
                if number % 2:
                    data = b"".join(pick.choice(words) for _ in range(pick.randrange(1, 300)))
                else:
                    data = pick.randbytes(pick.randrange(1, 4_000))
                client.send(data)
                client.socket.shutdown(socket.SHUT_WR)
                assert client.ended()
        wait_for(lambda: other.stats()["current-connections"] == "1", "the end of all others")
        jobs = int(other.stats()["total-jobs"]) * 4_096
        assert server_bytes(server) - before < GROWTH_MAX + jobs
        assert [child.pid for child in server.children()] == pids
