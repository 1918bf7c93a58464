"""Where connections land, and connections that end at bad moments: nothing of them stays."""

import random
import signal
import socket
import struct
from collections.abc import Callable

import pytest

from beanfield.routing import Topology
from tests.processes.load import server_side_inode, socket_inodes
from tests.processes.server import Client, Server, wait_for

LARGE = 3_000_000
TRIES = 8
TOPOLOGY = Topology(256, 2)


def counts(server: Server, clients: list[Client]) -> list[int]:
    """How many of the connections each frontend has."""
    assert not isinstance(server.address, str)
    inodes = {server_side_inode(server.address[1], client.socket.getsockname()[1]) for client in clients}
    return [len(inodes & socket_inodes(child.pid)) for child in server.children("frontend")]


def spread(server: Server, number: int) -> list[int]:
    """So many connections, each served before the next comes; how many each frontend got."""
    clients: list[Client] = []
    for _ in range(number):
        clients.append(server.connect(timeout=30.0))
        assert clients[-1].ask(b"list-tube-used") == b"USING default"
    found = counts(server, clients)
    for client in clients[1:]:
        client.close()
    wait_for(lambda: clients[0].stats()["current-connections"] == "1", "the end of the others")
    clients[0].close()
    return found


def test_two_connections_land_on_two_frontends_and_sixty_four_spread_evenly() -> None:
    with Server(slots=1, frontends=2) as server:
        # A frontend that a busy machine keeps from running for 20 ms is passed over: one good try of TRIES is enough.
        pairs = []
        while [1, 1] not in pairs:
            pairs.append(spread(server, 2))
            assert len(pairs) <= TRIES, pairs
        many = spread(server, 64)
        assert all(abs(count - 32) <= 4 for count in many), many


def test_a_crowd_that_comes_at_once_spreads_over_frontends() -> None:
    with Server(slots=1, frontends=2) as server:
        clients = [server.connect(timeout=30.0) for _ in range(64)]
        for client in clients:
            assert client.ask(b"list-tube-used") == b"USING default"
        assert all(count >= 16 for count in counts(server, clients)), counts(server, clients)
        for client in clients:
            client.close()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_no_connection_is_stuck_behind_a_frontend_that_is_gone(number: signal.Signals) -> None:
    with Server(slots=1, frontends=2, extra=["--hang-timeout", "0"]) as server:
        for _ in range(10):
            server.connect().close()
        old = server.signal("frontend", 0, number)
        # None of them waits for the other frontend to come back: while it is stopped it never does.
        clients = [server.connect(timeout=30.0) for _ in range(20)]
        for client in clients:
            assert client.ask(b"list-tube-used") == b"USING default"
            client.close()
        if number == signal.SIGSTOP:
            assert server.child("frontend", 0).pid == old


# ---------------------------------------------------------------- ends at bad moments


def close(client: Client) -> None:
    client.close()


def reset(client: Client) -> None:
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def quit_(client: Client) -> None:
    client.send(b"quit\r\n")
    client.close()


def tube_of(slot: int) -> bytes:
    return next(name for name in (b"tube-%d" % n for n in range(1_000)) if TOPOLOGY.slot_of_name(name) == slot)


def half_close(client: Client) -> None:
    """Ends what it sends and reads on until the server closes."""
    client.socket.shutdown(socket.SHUT_WR)
    client.ended()
    client.close()


@pytest.mark.parametrize("leave", [close, reset, half_close], ids=lambda leave: leave.__name__)
def test_what_a_client_had_is_back_whenever_it_goes(leave: Callable[[Client], None]) -> None:
    """During a put's body, while waiting, holding jobs, while a large body is sent to it."""
    with Server(slots=2, frontends=2, extra=["-z", str(LARGE)]) as server, server.connect() as watcher:
        first, second = tube_of(0), tube_of(1)
        assert watcher.ask(b"use " + second) == b"USING " + second
        large = watcher.put(bytes(LARGE), ttr=600).split()[1]

        inside_body = server.connect()
        inside_body.send(b"use %s\r\nput 0 0 60 %d\r\n" % (first, LARGE) + bytes(LARGE // 2))
        assert inside_body.line() == b"USING " + first

        waiting = server.connect()
        waiting.send(b"watch %s\r\nreserve\r\n" % first)
        assert waiting.line() == b"WATCHING 2"

        taking = server.connect()
        if leave is not half_close:  # who reads it all has no small window
            taking.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        assert taking.ask(b"watch " + second) == b"WATCHING 2"
        assert taking.ask(b"reserve") == b"RESERVED %s %d" % (large, LARGE)
        if leave is half_close:
            assert taking.body(LARGE) == bytes(LARGE)

        holding = server.connect()
        job = watcher.ask(b"use " + first) and watcher.put(b"x", ttr=600).split()[1]
        # The waiter is first in line for it.
        assert waiting.line() == b"RESERVED %s 1" % job
        assert waiting.body(1) == b"x"
        waiting.send(b"reserve\r\n")
        other = watcher.put(b"y", ttr=600, delay=600).split()[1]
        assert holding.ask(b"reserve-job " + other) == b"RESERVED %s 1" % other
        assert holding.body(1) == b"y"

        wait_for(lambda: watcher.stats()["current-waiting"] == "1", "the waiting session")
        assert watcher.stats()["current-jobs-reserved"] == "3"
        for client in (inside_body, waiting, taking, holding):
            leave(client)
        wait_for(lambda: watcher.stats()["current-connections"] == "1", "the end of all others")
        stats = watcher.stats()
        assert (stats["current-jobs-reserved"], stats["current-jobs-ready"]) == ("0", "3")
        assert (stats["current-waiting"], stats["current-workers"], stats["current-producers"]) == ("0", "0", "1")
        assert stats["total-jobs"] == "3"
        assert watcher.stats(b"stats-tube " + first)["current-watching"] == "0"


def test_a_job_on_its_way_to_a_client_that_goes_is_given_to_the_next() -> None:
    """Handed out at the moment of the end: whatever crosses, each job is deleted by exactly one."""
    pick = random.Random(5)
    with Server(slots=2, frontends=2) as server, server.connect() as producer, server.connect() as heir:
        tube = tube_of(1)
        assert producer.ask(b"use " + tube) == b"USING " + tube
        assert heir.ask(b"watch " + tube) == b"WATCHING 2"
        for _ in range(60):
            leaving = server.connect()
            leaving.send(b"watch %s\r\nreserve\r\n" % tube)
            assert leaving.line() == b"WATCHING 2"
            producer.send(b"put 0 0 600 1\r\nx\r\n")
            pick.choice((close, reset, quit_))(leaving)
            word, job = producer.line().split()
            assert word == b"INSERTED"
            assert heir.ask(b"reserve-with-timeout 30") == b"RESERVED %s 1" % job
            assert heir.body(1) == b"x"
            assert heir.ask(b"delete " + job) == b"DELETED"
        stats = producer.stats()
        assert (stats["current-jobs-ready"], stats["current-jobs-reserved"]) == ("0", "0")


def test_a_session_with_jobs_of_several_owners_keeps_what_lives_and_ends_with_what_dies() -> None:
    with Server(slots=2, frontends=1) as server, server.connect(timeout=30.0) as producer:
        tubes = [tube_of(0), tube_of(1)]
        jobs = []
        for tube in tubes:
            assert producer.ask(b"use " + tube) == b"USING " + tube
            jobs.append(producer.put(b"x", ttr=4).split()[1])
        holder = server.connect(timeout=30.0)
        for tube in tubes:
            assert holder.ask(b"watch " + tube).startswith(b"WATCHING ")
        got = []
        for _ in jobs:
            got.append(holder.ask(b"reserve-with-timeout 5").split()[1])
            assert holder.body(1) == b"x"
        assert sorted(got) == sorted(jobs)
        # Touched on both owners, then in the margin of one of them, whatever is watched by then.
        for job in jobs:
            assert holder.ask(b"touch " + job) == b"TOUCHED"
        for tube in tubes:
            assert holder.ask(b"ignore " + tube).startswith(b"WATCHING ")
        assert holder.ask(b"reserve") == b"DEADLINE_SOON"
        for job in jobs:
            assert holder.ask(b"touch " + job) == b"TOUCHED"
        bystander = server.connect(timeout=30.0)
        for tube in tubes:
            assert bystander.ask(b"watch " + tube).startswith(b"WATCHING ")
        bystander.send(b"reserve\r\n")
        server.kill("owner", 1)
        # The holder's connection ends; its other job, on the owner that lives, is ready at once.
        assert holder.ended()
        assert bystander.line() == b"RESERVED %s 1" % jobs[0]
        assert bystander.body(1) == b"x"
        server.wait_for_log("owner 1 serves again")
        assert bystander.ask(b"delete " + jobs[0]) == b"DELETED"
        assert producer.ask(b"stats-job " + jobs[1]) == b"NOT_FOUND"
        bystander.close()
