"""Clients that break the rules of TCP manners: what they get, that nobody else notices, that nothing spins or grows.

Not run on the oracle: most of it beanstalkd does badly (contract sheet, 7.1).
"""

from __future__ import annotations

import random
import resource
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.server import Client, Server
from tests.transcripts.servers import OURS, Shape

TCP_SHAPES = [shape for shape in OURS if not shape.unix]
LARGE = 2_000_000
# An idle server uses far less; one that spins uses a whole core.
CPU_SECONDS_MAX = 0.15
CPU_WATCH_SECONDS = 0.4
CALM_SECONDS = 10.0
GROWTH_MAX = 16 << 20
LINE_GROWTH_MAX = 4 << 20


@pytest.fixture(scope="module", params=TCP_SHAPES, ids=lambda shape: shape.name)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    shape: Shape = request.param
    with Server(slots=shape.slots, frontends=shape.frontends, extra=["-z", str(LARGE)]) as server:
        yield server


def cpu_seconds(server: Server) -> float:
    """What all processes of the server have used."""
    total = 0
    for pid in (server.pid, *(child.pid for child in server.children())):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / 100


def resident_bytes(server: Server) -> int:
    total = 0
    for child in server.children():
        total += int(Path(f"/proc/{child.pid}/statm").read_text().split()[1]) * 4096
    return total


def assert_does_not_spin(server: Server) -> None:
    """It comes to rest: within CALM_SECONDS there is a while in which it uses next to nothing."""
    limit = time.monotonic() + CALM_SECONDS
    while True:
        before = cpu_seconds(server)
        time.sleep(CPU_WATCH_SECONDS)
        used = cpu_seconds(server) - before
        if used < CPU_SECONDS_MAX:
            return
        assert time.monotonic() < limit, f"{used} s of CPU time in {CPU_WATCH_SECONDS} s of doing nothing"


def assert_serves(server: Server) -> None:
    with server.connect() as client:
        assert client.ask(b"list-tube-used") == b"USING default"


def connect_with_small_window(server: Server) -> Client:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(20.0)
    connection.connect(server.address)
    return Client(connection)


def reset(client: Client) -> None:
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def test_an_urgent_byte_does_not_make_the_server_spin(server: Server) -> None:
    with server.connect() as client:
        client.socket.send(b"!", socket.MSG_OOB)
        assert client.ask(b"list-tube-used") == b"USING default"
        assert_does_not_spin(server)
        assert client.ask(b"list-tube-used") == b"USING default"


def test_a_half_closed_client_that_does_not_read_does_not_make_the_server_spin(server: Server) -> None:
    with server.connect() as producer:
        assert producer.ask(b"use half-closed") == b"USING half-closed"
        job = producer.put(bytes(LARGE)).split()[1]
        client = connect_with_small_window(server)
        client.send(b"peek %s\r\n" % job * 5)
        client.socket.shutdown(socket.SHUT_WR)
        assert_does_not_spin(server)
        # All that was asked before the half-close is still answered, then the connection ends.
        for _ in range(5):
            assert client.line() == b"FOUND %s %d" % (job, LARGE)
            assert client.body(LARGE) == bytes(LARGE)
        assert client.line() == b""
        client.close()
        assert producer.ask(b"delete " + job) == b"DELETED"


def test_a_line_without_end_costs_no_memory_and_is_one_bad_format(server: Server) -> None:
    with server.connect() as client:
        before = resident_bytes(server)
        for _ in range(8):
            client.send(b"x" * (1 << 20))
        assert resident_bytes(server) - before < LINE_GROWTH_MAX
        assert client.ask(b"") == b"BAD_FORMAT"
        assert client.ask(b"list-tube-used") == b"USING default"


def test_a_swallowed_body_costs_no_memory(server: Server) -> None:
    with server.connect() as client:
        size = 32 << 20
        before = resident_bytes(server)
        client.send(b"put 0 0 1 %d\r\n" % size)
        for _ in range(size >> 20):
            client.send(b"x" * (1 << 20))
        assert resident_bytes(server) - before < GROWTH_MAX
        assert client.ask(b"") == b"JOB_TOO_BIG"
        assert client.ask(b"list-tube-used") == b"USING default"


def test_a_job_whose_body_is_being_sent_comes_back_when_its_client_goes(server: Server) -> None:
    with server.connect() as producer:
        assert producer.ask(b"use going") == b"USING going"
        assert producer.ask(b"watch going") == b"WATCHING 2"
        job = producer.put(bytes(LARGE), ttr=1000).split()[1]
        for leave in (reset, Client.close):
            client = connect_with_small_window(server)
            assert client.ask(b"watch going") == b"WATCHING 2"
            assert client.ask(b"reserve") == b"RESERVED %s %d" % (job, LARGE)
            leave(client)
            assert producer.ask(b"reserve-with-timeout 10") == b"RESERVED %s %d" % (job, LARGE)
            assert producer.body(LARGE) == bytes(LARGE)
            assert producer.ask(b"release %s 0 0" % job) == b"RELEASED"
        assert producer.ask(b"delete " + job) == b"DELETED"


def test_a_body_on_its_way_stays_whole_though_its_job_expires_and_is_deleted(server: Server) -> None:
    body = random.Random(1).randbytes(LARGE)
    with server.connect() as other:
        assert other.ask(b"use slow") == b"USING slow"
        assert other.ask(b"watch slow") == b"WATCHING 2"
        job = other.put(body, ttr=1).split()[1]
        slow = connect_with_small_window(server)
        assert slow.ask(b"watch slow") == b"WATCHING 2"
        assert slow.ask(b"reserve") == b"RESERVED %s %d" % (job, LARGE)
        # It does not read on; the job expires, goes to somebody else and is deleted.
        assert other.ask(b"reserve-with-timeout 20") == b"RESERVED %s %d" % (job, LARGE)
        assert other.body(LARGE) == body
        assert other.ask(b"delete " + job) == b"DELETED"
        assert slow.body(LARGE) == body
        assert slow.ask(b"touch " + job) == b"NOT_FOUND"
        slow.close()


def test_clients_that_never_read_their_replies_cost_little_and_disturb_nobody(server: Server) -> None:
    with server.connect() as producer:
        assert producer.ask(b"use unread") == b"USING unread"
        job = producer.put(bytes(60_000)).split()[1]
        before = resident_bytes(server)
        clients = [connect_with_small_window(server) for _ in range(50)]
        for client in clients:
            client.socket.setblocking(False)
            try:
                for _ in range(20):
                    client.socket.send(b"peek %s\r\n" % job * 100)
            except BlockingIOError:
                pass
        assert_serves(server)
        assert_does_not_spin(server)
        # A client may have 256 KiB of unsent replies and one more reply, and its input is bounded likewise.
        assert resident_bytes(server) - before < GROWTH_MAX + len(clients) * (512 << 10)
        for client in clients:
            client.close()
        assert producer.ask(b"delete " + job) == b"DELETED"


def test_random_bytes_never_hang_or_crash_anything(server: Server) -> None:
    pick = random.Random(4)
    words = (
        b"put ",
        b"reserve-with-timeout 0",
        b"use ",
        b"watch ",
        b"\r\n",
        b"\r",
        b"\n",
        b"\0",
        b" ",
        b"1",
        b"kick ",
        b"peek ",
    )
    pids = [child.pid for child in server.children()]
    for number in range(90):
        client = server.connect()
        if number % 3:
            data = b"".join(pick.choice(words) for _ in range(pick.randrange(1, 400)))
        else:
            data = pick.randbytes(pick.randrange(1, 4000))
        client.send(data)
        if number % 2:
            reset(client)
        else:
            client.socket.shutdown(socket.SHUT_WR)
            assert client.ended()
            client.close()
    assert_serves(server)
    assert [child.pid for child in server.children()] == pids


def test_bytes_one_at_a_time_from_many_clients_come_to_the_same(server: Server) -> None:
    data = b"use bytewise\r\nput 0 0 100 5\r\nhello\r\nwatch bytewise\r\nreserve-with-timeout 0\r\n"
    clients = [server.connect() for _ in range(10)]
    for at in range(len(data)):
        for client in clients:
            client.send(data[at : at + 1])
    for client in clients:
        assert client.line() == b"USING bytewise"
        assert client.line().startswith(b"INSERTED ")
        assert client.line() == b"WATCHING 2"
        word, _, size = client.line().split()
        assert (word, client.body(int(size))) == (b"RESERVED", b"hello")
        client.close()


def test_out_of_descriptors_new_clients_wait_or_go_and_the_others_do_not_notice() -> None:
    with Server(slots=1, frontends=2) as server, server.connect() as first:
        for child in server.children("frontend"):
            open_now = len(list(Path(f"/proc/{child.pid}/fd").iterdir()))
            limit = open_now + 10
            resource.prlimit(child.pid, resource.RLIMIT_NOFILE, (limit, limit))
        crowd = [server.connect() for _ in range(40)]
        for client in crowd:
            client.send(b"list-tube-used\r\n")
        assert first.ask(b"put 0 0 10 1\r\nx").startswith(b"INSERTED ")
        assert_does_not_spin(server)
        assert first.ask(b"list-tube-used") == b"USING default"
        # Room again: who waited is served, or was closed and comes again.
        for client in crowd[:30]:
            client.close()
        for client in crowd[30:]:
            assert client.line() in (b"USING default", b"")
            client.close()
        assert_serves(server)
