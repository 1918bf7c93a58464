"""Real clients written in Python (greenstalk, aiostalk, pystalk) work with every shape of the server and the oracle.

All timing has margins of seconds upwards; downwards a server may not be early.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import aiostalk  # type: ignore[import-untyped]
import greenstalk
import pystalk  # type: ignore[import-untyped]
import pytest

from tests.transcripts.servers import SHAPES, RunningServer, Shape, start

TCP_SHAPES = [shape for shape in SHAPES if not shape.unix]
# What clients' read buffers stumble over; the last one is the largest body allowed.
BODIES = [b"", b"x", b"\r\n", bytes(range(256)), bytes(8192), b"\r\n" * 8192, b"\xff" * 65534, bytes(range(255)) * 257]
EARLY_SECONDS = 0.05
LATE_SECONDS = 4.0
SETTLE_SECONDS = 5.0


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[Shape, RunningServer]]:
    running: dict[Shape, RunningServer] = {}
    yield running
    for server in running.values():
        server.stop()


def address_of(servers: dict[Shape, RunningServer], shape: Shape) -> tuple[str, int] | str:
    if shape not in servers:
        servers[shape] = start(shape)
    return servers[shape].address


def host_and_port_of(servers: dict[Shape, RunningServer], shape: Shape) -> tuple[str, int]:
    address = address_of(servers, shape)
    assert not isinstance(address, str)
    return address


def took(began: float, seconds: float) -> bool:
    return seconds - EARLY_SECONDS <= time.monotonic() - began <= seconds + LATE_SECONDS


every_shape = pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
every_tcp_shape = pytest.mark.parametrize("shape", TCP_SHAPES, ids=lambda shape: shape.name)


@every_shape
def test_greenstalk_takes_a_job_through_its_life(servers: dict[Shape, RunningServer], shape: Shape) -> None:
    with greenstalk.Client(address_of(servers, shape), use="green", watch="green") as client:
        job = client.put("hello", priority=7, ttr=90)
        assert client.peek(job).body == "hello"
        assert client.peek_ready().id == job
        reserved = client.reserve()
        assert (reserved.id, reserved.body) == (job, "hello")
        client.touch(reserved)
        client.release(reserved, priority=5, delay=600)
        assert client.peek_delayed().id == job
        assert client.kick(10) == 1
        client.bury(client.reserve(timeout=0), priority=3)
        assert client.peek_buried().id == job
        client.kick_job(job)
        again = client.reserve_job(job)
        stats = client.stats_job(again)
        assert (stats["state"], stats["pri"], stats["reserves"], stats["kicks"]) == ("reserved", 3, 3, 2)
        assert (stats["tube"], stats["buries"], stats["releases"], stats["time-left"] > 80) == ("green", 1, 1, True)
        client.delete(again)
        with pytest.raises(greenstalk.NotFoundError):
            client.peek(job)
        with pytest.raises(greenstalk.NotFoundError):
            client.delete(job)


@every_shape
def test_greenstalk_statistics_have_exactly_the_keys_it_knows(
    servers: dict[Shape, RunningServer], shape: Shape
) -> None:
    with greenstalk.Client(address_of(servers, shape), use="green-stats", watch=["green-stats", "other"]) as client:
        job = client.put("x")
        assert set(client.stats_job(job)) == set(greenstalk.StatsJob.__annotations__)
        assert set(client.stats_tube("green-stats")) == set(greenstalk.StatsTube.__annotations__)
        assert set(client.stats()) >= set(greenstalk.Stats.__annotations__)
        assert client.stats()["draining"] == "false"
        assert client.using() == "green-stats"
        assert client.watching() == ["green-stats", "other"] or shape.is_oracle
        assert {"default", "green-stats", "other"} <= set(client.tubes())
        client.delete(job)
        with pytest.raises(greenstalk.NotFoundError):
            client.stats_tube("never-seen")


@every_shape
def test_greenstalk_carries_any_body(servers: dict[Shape, RunningServer], shape: Shape) -> None:
    with greenstalk.Client(address_of(servers, shape), encoding=None, use="green-body", watch="green-body") as client:
        for body in BODIES:
            job = client.put(body)
            assert client.peek(job).body == body
            reserved = client.reserve()
            assert (reserved.id, reserved.body) == (job, body)
            client.delete(reserved)
        with pytest.raises(greenstalk.JobTooBigError):
            client.put(bytes(65536))
        assert client.using() == "green-body"


@every_shape
def test_greenstalk_waits_times_out_and_hears_of_deadlines(servers: dict[Shape, RunningServer], shape: Shape) -> None:
    with greenstalk.Client(address_of(servers, shape), use="green-time", watch="green-time") as client:
        began = time.monotonic()
        with pytest.raises(greenstalk.TimedOutError):
            client.reserve(timeout=1)
        assert took(began, 1.0)
        client.put("x", ttr=2)
        job = client.reserve()
        began = time.monotonic()
        with pytest.raises(greenstalk.DeadlineSoonError):
            client.reserve(timeout=30)
        assert took(began, 1.0)
        client.touch(job)
        with pytest.raises(greenstalk.DeadlineSoonError):
            client.reserve()
        client.release(job, delay=1)
        began = time.monotonic()
        assert client.reserve().id == job.id
        assert took(began, 1.0)
        client.delete(job)
        client.put("y")
        client.pause_tube("green-time", 1)
        began = time.monotonic()
        assert client.reserve().body == "y"
        assert took(began, 1.0)


@every_shape
def test_greenstalk_reserves_over_several_tubes_in_order_of_priority(
    servers: dict[Shape, RunningServer], shape: Shape
) -> None:
    address = address_of(servers, shape)
    tubes = [f"green-{number}" for number in range(8)]
    with greenstalk.Client(address) as producer, greenstalk.Client(address, watch=tubes) as worker:
        wanted = []
        for number, tube in enumerate(tubes):
            producer.use(tube)
            wanted.append((number % 3, producer.put(tube, priority=number % 3)))
        # Equal priority: in the order of the puts, over all tubes.
        wanted.sort(key=lambda each: each[0])
        for _, job in wanted:
            reserved = worker.reserve(timeout=0)
            assert reserved.id == job
            worker.delete(reserved)
        with pytest.raises(greenstalk.TimedOutError):
            worker.reserve(timeout=0)


@every_shape
def test_a_job_of_a_closed_greenstalk_client_goes_to_the_next(
    servers: dict[Shape, RunningServer], shape: Shape
) -> None:
    address = address_of(servers, shape)
    with greenstalk.Client(address, use="green-close", watch="green-close") as second:
        job = second.put("x", ttr=1000)
        first = greenstalk.Client(address, watch="green-close")
        assert first.reserve().id == job
        with pytest.raises(greenstalk.TimedOutError):
            second.reserve(timeout=0)
        first.close()
        assert second.reserve(timeout=5).id == job
        second.delete(job)


@every_tcp_shape
def test_aiostalk_workers_share_the_jobs_of_a_producer(servers: dict[Shape, RunningServer], shape: Shape) -> None:
    address = address_of(servers, shape)
    jobs = 200

    async def work(done: list[int]) -> None:
        async with aiostalk.Client(address, watch=["aio-a", "aio-b", "aio-c"]) as client:
            while True:
                try:
                    job = await client.reserve(timeout=2)
                except aiostalk.TimedOutError:
                    return
                await client.touch(job)
                await client.delete(job)
                done.append(job.id)

    async def everything() -> None:
        done: list[int] = []
        workers = [asyncio.create_task(work(done)) for _ in range(6)]
        put: list[int] = []
        async with aiostalk.Client(address) as client:
            for number in range(jobs):
                await client.use(("aio-a", "aio-b", "aio-c")[number % 3])
                put.append(await client.put(f"job {number}"))
            await asyncio.gather(*workers)
            assert sorted(done) == sorted(put)
            # The workers' connections are closed by now on their side; the server is given time to read that.
            deadline = time.monotonic() + SETTLE_SECONDS
            while {"aio-a", "aio-c"} & set(await client.tubes()) and not shape.is_oracle:
                assert time.monotonic() < deadline

    asyncio.run(everything())


@every_tcp_shape
def test_aiostalk_takes_a_job_through_its_life(servers: dict[Shape, RunningServer], shape: Shape) -> None:
    address = address_of(servers, shape)

    async def everything() -> None:
        async with aiostalk.Client(address, encoding=None, use="aio", watch="aio") as client:
            for body in BODIES:
                job = await client.put(body, ttr=90)
                reserved = await client.reserve()
                assert (reserved.id, reserved.body) == (job, body)
                await client.touch(reserved)
                await client.release(reserved, delay=1000)
                assert await client.kick(1) == 1
                await client.bury(await client.reserve())
                assert (await client.peek_buried()).id == job
                # Not kick_job: this version of the client forgets to send it.
                await client.delete(await client.reserve_job(job))
            waiting = asyncio.create_task(client.reserve())
            async with aiostalk.Client(address, encoding=None, use="aio") as other:
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(asyncio.shield(waiting), 0.2)
                late = await other.put(b"late", ttr=2)
            assert (await waiting).id == late
            began = time.monotonic()
            with pytest.raises(aiostalk.DeadlineSoonError):
                await client.reserve()
            assert took(began, 1.0)
            await client.delete(late)

    asyncio.run(everything())


@every_tcp_shape
def test_pystalk_takes_jobs_through_their_lives(servers: dict[Shape, RunningServer], shape: Shape) -> None:
    client = pystalk.BeanstalkClient(*host_and_port_of(servers, shape))
    try:
        client.use("py")
        client.watch("py")
        client.watch("py-other")
        assert set(client.watchlist) == {"py", "py-other"}
        for body in BODIES:
            _, job_id = client.put_job(body, pri=3, ttr=90)
            job = client.reserve_job(0)
            assert (job.job_id, job.job_data) == (job_id, body)
            client.release_job(job.job_id, pri=2, delay=600)
            assert client.peek_delayed().job_id == job_id
            client.kick_job(job_id)
            client.bury_job(client.reserve_job(0).job_id)
            assert client.stats_job(job_id)["state"] == "buried"
            client.kick_jobs(10)
            assert client.stats_job(job_id)["state"] == "ready"
            client.delete_job(job_id)
        with client.using("py-other") as inserter:
            inserter.put_job(b"there", ttr=2)
        client.pause_tube("py-other", 1000)
        with pytest.raises(pystalk.BeanstalkError, match="TIMED_OUT"):
            client.reserve_job(0)
        client.unpause_tube("py-other")
        held = client.reserve_job(5)
        assert held.job_data == b"there"
        began = time.monotonic()
        with pytest.raises(pystalk.BeanstalkError, match="DEADLINE_SOON"):
            client.reserve_job(30)
        assert took(began, 1.0)
        client.delete_job(held.job_id)
        assert client.stats_tube("py-other")["name"] == "py-other"
        with pytest.raises(pystalk.BeanstalkError, match="NOT_FOUND"):
            client.stats_tube("py-never")
        assert client.stats()["max-job-size"] == 65535
        assert "py" in client.list_tubes()
    finally:
        client.close()


@every_tcp_shape
def test_pystalk_reads_every_list_and_table_as_yaml(servers: dict[Shape, RunningServer], shape: Shape) -> None:
    client = pystalk.BeanstalkClient(*host_and_port_of(servers, shape))
    try:
        client.use("110234")
        client.put_job(b"x")
        stats = client.stats()
        assert stats["draining"] is False
        assert isinstance(stats["id"], str) or shape.is_oracle
        job = client.peek_ready()
        table = client.stats_job(job.job_id)
        assert len(table) == 14
        assert table["tube"] == "110234" or shape.is_oracle
        client.delete_job(job.job_id)
    finally:
        client.close()
