"""A server that stood still past deadlines: afterwards every client knows exactly the jobs that it holds.

beanstalkd answers DEADLINE_SOON to a client that it has just given a job (contract sheet, 7.1.2), and forgets to send a
RESERVED (7.1.3). Here the processes of a role are stopped for longer than a ttr and go on.
"""

from __future__ import annotations

import signal
import time

import pytest

from tests.processes.server import Client, Server

TTR_SECONDS = 2
# Past the deadline and its margin; well below the hang timeout of 10 s.
STALL_SECONDS = 3.0


def stall(server: Server, roles: tuple[str, ...]) -> None:
    children = [child for child in server.children() if child.role in roles]
    for child in children:
        server.signal(child.role, child.index, signal.SIGSTOP)
    time.sleep(STALL_SECONDS)
    for child in children:
        server.signal(child.role, child.index, signal.SIGCONT)


def watcher(server: Server) -> Client:
    client = server.connect(timeout=20.0)
    assert client.ask(b"watch stalled") == b"WATCHING 2"
    assert client.ask(b"ignore default") == b"WATCHING 1"
    return client


def held_after(client: Client, held: set[bytes]) -> set[bytes]:
    """What the client holds by its own knowledge: touch tells which of the jobs it once got are still its own."""
    return {job for job in held if client.ask(b"touch " + job) == b"TOUCHED"}


@pytest.mark.parametrize("roles", [("owner",), ("frontend",), ("owner", "frontend")], ids="-and-".join)
def test_after_a_stall_each_reserved_job_is_known_to_exactly_one_client(roles: tuple[str, ...]) -> None:
    with Server(slots=2, frontends=2) as server, server.connect(timeout=20.0) as producer:
        holder, other = watcher(server), watcher(server)
        assert producer.ask(b"use stalled") == b"USING stalled"
        word, job = producer.put(b"x", ttr=TTR_SECONDS).split()
        assert word == b"INSERTED"
        assert holder.ask(b"reserve") == b"RESERVED %s 1" % job
        holder.body(1)
        # Both wait while the reservation of one of them expires.
        holder.send(b"reserve-with-timeout 60\r\n")
        other.send(b"reserve-with-timeout 60\r\n")
        stall(server, roles)
        # A second job, so that both are answered whoever gets the first.
        second = producer.put(b"y", priority=9, ttr=600).split()[1]
        known: dict[Client, set[bytes]] = {holder: {job}, other: set()}
        for client in (holder, other):
            while True:
                reply = client.line()
                if reply == b"DEADLINE_SOON":
                    # Its own job of before is near its end or past it; it asks again, as workers do.
                    client.send(b"reserve-with-timeout 60\r\n")
                    continue
                assert reply.startswith(b"RESERVED "), reply
                known[client].add(reply.split()[1])
                client.body(1)
                break
        holds = {client: held_after(client, jobs) for client, jobs in known.items()}
        assert not holds[holder] & holds[other]
        for each in (job, second):
            state = producer.stats(b"stats-job " + each)["state"]
            holders = [client for client in holds if each in holds[client]]
            assert (state, len(holders)) in (("reserved", 1), ("ready", 0)), (each, state, holders)
        holder.close()
        other.close()
        assert producer.ask(b"watch stalled") == b"WATCHING 2"
        got = {producer.ask(b"reserve-with-timeout 5").split()[1]}
        producer.body(1)
        got.add(producer.ask(b"reserve-with-timeout 5").split()[1])
        producer.body(1)
        assert got == {job, second}
