"""Crowds: clients that never read, that send a byte now and then, that idle, that wait behind a stopped process.

Memory is that of the server's own processes (USS), compared before and after. Bounds are generous: they are there to
tell "bounded" from "grows with what clients send".
"""

import contextlib
import resource
import signal
import socket
import time
from pathlib import Path

from beanfield.build import BUILD
from beanfield.constants import CLIENT_UNSENT_BYTES_MAX, LINK_UNSENT_BYTES_HIGH
from beanfield.routing import Topology
from tests.processes.load import server_side_inode, socket_inodes
from tests.processes.memory import MIB, assert_comes_to_rest, private_bytes, room_for_connections, server_bytes
from tests.processes.server import Client, Server, wait_for

# What a process may grow by for reasons of its own: buffers of the kernel's size, tables that double, the allocator.
SLACK = 24 * MIB
MANY = 1_000
# An idle connection: the compiled build keeps to 4 KiB (README); interpreted, objects have dictionaries.
IDLE_BYTES = 4_096 if BUILD == "compiled" else 16_384


def test_a_thousand_clients_that_never_read_cost_no_more_than_their_bounds() -> None:
    with Server(slots=1, frontends=2) as server, server.connect(timeout=60.0) as producer:
        body = bytes(16_384)
        job = producer.put(body, ttr=600).split()[1]
        asked = 48 * len(body)  # each asks for much more than is kept for it
        assert asked > 2 * CLIENT_UNSENT_BYTES_MAX
        before = server_bytes(server)
        clients = []
        for _ in range(room_for_connections(MANY)):
            connection = socket.socket()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            connection.connect(server.address)
            connection.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                connection.send(b"peek %s\r\n" % job * (asked // len(body)))
            clients.append(connection)
        wait_for(lambda: producer.stats()["current-connections"] == str(len(clients) + 1), "all of them", 60.0)
        assert_comes_to_rest(server, 60.0)
        grown = server_bytes(server) - before
        assert grown < len(clients) * (CLIENT_UNSENT_BYTES_MAX + 2 * len(body)) + SLACK
        # And nobody else notices.
        with server.connect(timeout=60.0) as other:
            assert other.ask(b"peek " + job) == b"FOUND %s %d" % (job, len(body))
            assert other.body(len(body)) == body
        for connection in clients:
            connection.close()
        wait_for(lambda: producer.stats()["current-connections"] == "1", "the end of all of them", 60.0)


def test_a_thousand_clients_that_send_one_byte_a_second_cost_little_and_are_served() -> None:
    command = b"put 0 0 60 5\r\nhello\r\n"
    slow_bytes = 3  # one a second; then the rest, byte by byte as fast as it goes
    with Server(slots=1, frontends=2) as server, server.connect(timeout=60.0) as other:
        clients = [server.connect(timeout=60.0) for _ in range(room_for_connections(MANY))]
        wait_for(lambda: other.stats()["current-connections"] == str(len(clients) + 1), "all of them", 60.0)
        before = server_bytes(server)
        for at in range(len(command)):
            began = time.monotonic()
            for client in clients:
                client.send(command[at : at + 1])
            if at < slow_bytes:
                assert other.ask(b"list-tube-used") == b"USING default"
                time.sleep(max(0.0, began + 1.0 - time.monotonic()))
            if at == len(command) - 4:
                grown = server_bytes(server) - before
                assert grown < len(clients) * IDLE_BYTES + SLACK
        for client in clients:
            assert client.line().startswith(b"INSERTED ")
        assert other.stats()["current-jobs-ready"] == str(len(clients))
        for client in clients:
            client.close()


def test_puts_for_an_owner_that_is_stopped_stay_with_their_clients() -> None:
    """A link whose other end does not read: what stands before it is bounded, and other slots are served."""
    topology = Topology(256, 2)
    stopped, other = (
        next(name for name in (b"tube-%d" % n for n in range(100)) if topology.slot_of_name(name) == slot)
        for slot in (0, 1)
    )
    count, each, size = 50, 40, 60_000
    with Server(slots=2, frontends=1, extra=["--hang-timeout", "0", "--slot-wait", "60"]) as server:
        frontend = server.child("frontend", 0).pid
        clients = [server.connect(timeout=60.0) for _ in range(count)]
        for client in clients:
            assert client.ask(b"use " + stopped) == b"USING " + stopped
        bystander = server.connect(timeout=60.0)
        assert bystander.ask(b"use " + other) == b"USING " + other
        server.signal("owner", 0, signal.SIGSTOP)
        before = private_bytes(frontend)
        unsent = {}
        for client in clients:
            data = b"put 0 0 60 %d\r\n%s\r\n" % (size, bytes(size)) * each
            client.socket.setblocking(False)
            unsent[client] = data
        for _ in range(20):
            for client in clients:
                with contextlib.suppress(BlockingIOError):
                    while unsent[client]:
                        unsent[client] = unsent[client][client.socket.send(unsent[client]) :]
            time.sleep(0.01)
        assert_comes_to_rest(server)
        # One receive and one body for each client, and the link's own bound.
        bound = LINK_UNSENT_BYTES_HIGH + count * (2 * 65_536 + 2 * size) + SLACK
        assert private_bytes(frontend) - before < bound < count * each * size
        assert bystander.put(b"x").startswith(b"INSERTED ")
        server.signal("owner", 0, signal.SIGCONT)
        for client in clients:
            client.socket.settimeout(60.0)
            client.send(unsent[client])
            for _ in range(each):
                assert client.line().startswith(b"INSERTED ")
            client.close()
        assert bystander.stats(b"stats-tube " + stopped)["current-jobs-ready"] == str(count * each)
        bystander.close()


def frontend_of(server: Server, client: Client) -> int:
    assert not isinstance(server.address, str)
    inode = server_side_inode(server.address[1], client.socket.getsockname()[1])
    return next(child.index for child in server.children("frontend") if inode in socket_inodes(child.pid))


def leave_no_room(server: Server, frontend: int) -> None:
    """From now on this frontend accepts nobody: it has no descriptor left."""
    pid = server.child("frontend", frontend).pid
    limit = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, limit))


def test_ten_thousand_waiters_behind_a_stopped_frontend_cost_little_and_hold_up_nobody() -> None:
    size = 500
    with Server(slots=1, frontends=2, extra=["--hang-timeout", "0"]) as server:
        near = server.connect(timeout=60.0)
        assert near.ask(b"list-tube-used") == b"USING default"
        here = frontend_of(server, near)
        leave_no_room(server, here)
        waiters = []
        for _ in range(room_for_connections(10_000)):
            connection = server.connect(timeout=60.0).socket
            connection.send(b"watch t\r\nignore default\r\nreserve\r\n")
            waiters.append(connection)
        wait_for(lambda: near.stats()["current-waiting"] == str(len(waiters)), "all waiters", 90.0)
        server.signal("frontend", 1 - here, signal.SIGSTOP)
        owner = server.child("owner", 0).pid
        before = private_bytes(owner)
        assert near.ask(b"use t") == b"USING t"
        jobs = len(waiters) + 100
        for _hundred in range(0, jobs, 100):
            near.send(b"put 0 0 600 %d\r\n%s\r\n" % (size, bytes(size)) * 100)
            for _ in range(100):
                assert near.line().startswith(b"INSERTED ")
        # The jobs themselves, and what is on its way to the stopped frontend: bounded, so that jobs are left.
        assert private_bytes(owner) - before < jobs * (2 * size + 1_024) + 2 * LINK_UNSENT_BYTES_HIGH + SLACK
        assert near.ask(b"watch t") == b"WATCHING 2"
        assert near.ask(b"reserve-with-timeout 60").startswith(b"RESERVED ")
        near.body(size)
        server.signal("frontend", 1 - here, signal.SIGCONT)
        # All waiters get theirs, none gets two, and none is left.
        wait_for(lambda: near.stats()["current-waiting"] == "0", "all waiters served", 90.0)
        stats = near.stats(b"stats-tube t")
        assert (stats["current-jobs-ready"], stats["current-jobs-reserved"]) == ("99", str(len(waiters) + 1))
        for connection in waiters:
            connection.close()
        wait_for(lambda: near.stats()["current-connections"] == "1", "the end of all waiters", 90.0)
        # So many ends at once may take longer than the 100 ms that statistics wait for them.
        wait_for(lambda: near.stats()["current-jobs-reserved"] == "1", "their jobs to be back", 90.0)
        near.close()


def test_an_idle_connection_costs_no_more_than_promised() -> None:
    count = room_for_connections(10_000)
    with Server(slots=1, frontends=1) as server, server.connect(timeout=60.0) as other:
        assert other.stats()["current-connections"] == "1"
        before = server_bytes(server)
        idle = [server.connect(timeout=60.0).socket for _ in range(count)]
        wait_for(lambda: other.stats()["current-connections"] == str(count + 1), "all of them", 90.0)
        # Each has done something once, as real ones have.
        for connection in idle:
            connection.send(b"list-tube-used\r\n")
        for connection in idle:
            assert connection.recv(100) == b"USING default\r\n"
        each = (server_bytes(server) - before) / count
        print(f"{each:.0f} bytes for an idle connection, {BUILD}")
        assert each <= IDLE_BYTES
        for connection in idle:
            connection.close()
        wait_for(lambda: other.stats()["current-connections"] == "1", "the end of all of them", 90.0)
