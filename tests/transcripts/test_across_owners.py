"""Each row of the routing table with sessions, tubes and jobs that are on different owners on purpose.

The transcripts pass in any shape; here names are chosen by the slot that owns them: A, B, C and D live on slots 0 to 3.
Two connections to two frontends land one on each, so every pair of connections also crosses frontends.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from beanfield.constants import PARTITIONS_DEFAULT
from beanfield.routing import Topology
from tests.processes.server import Client, Server

SLOTS = 4


def name_on_slot(slot: int, word: str) -> bytes:
    """A tube name with this word in it that this slot owns."""
    topology = Topology(PARTITIONS_DEFAULT, SLOTS, None, bytes(16))
    return next(
        name
        for name in (b"%s-%d" % (word.encode(), number) for number in range(1000))
        if topology.slot_of_name(name) == slot
    )


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(slots=SLOTS, frontends=2) as server:
        yield server


@pytest.fixture
def clients(server: Server) -> Iterator[list[Client]]:
    clients = [server.connect() for _ in range(4)]
    yield clients
    for client in clients:
        client.close()


@pytest.fixture
def tubes(request: pytest.FixtureRequest) -> list[bytes]:
    """One tube per slot, of this test only."""
    return [name_on_slot(slot, request.function.__name__[:60].replace("_", ".")) for slot in range(SLOTS)]


def put_into(client: Client, tube: bytes, body: bytes, priority: int = 0, delay: int = 0, ttr: int = 600) -> bytes:
    assert client.ask(b"use " + tube) == b"USING " + tube
    word, job = client.put(body, priority, delay, ttr).split()
    assert word == b"INSERTED"
    return job


def reserved(client: Client, command: bytes = b"reserve-with-timeout 0") -> tuple[bytes, bytes]:
    """The id and the body of a job that this command must bring."""
    word, _, rest = client.ask(command).partition(b" ")
    assert word == b"RESERVED"
    job, size = rest.split()
    return job, client.body(int(size))


def found(client: Client, command: bytes) -> tuple[bytes, bytes]:
    word, _, rest = client.ask(command).partition(b" ")
    assert word == b"FOUND"
    job, size = rest.split()
    return job, client.body(int(size))


def watch(client: Client, tubes: list[bytes]) -> None:
    for number, tube in enumerate(tubes, 2):
        assert client.ask(b"watch " + tube) == b"WATCHING %d" % number


# ---------------------------------------------------------------- use, watch, ignore


def test_use_and_watch_refer_to_tubes_on_all_owners(clients: list[Client], tubes: list[bytes]) -> None:
    one, two = clients[:2]
    watch(one, tubes)
    for tube in tubes:
        assert two.stats(b"stats-tube " + tube)["current-watching"] == "1"
        assert two.ask(b"use " + tube) == b"USING " + tube
        assert one.stats(b"stats-tube " + tube)["current-using"] == "1"
    assert one.ask(b"list-tubes-watched").startswith(b"OK")
    one.body(4 + len(b"- default\n") + sum(len(tube) + 3 for tube in tubes))
    for left, tube in zip((4, 3, 2, 1), tubes, strict=True):
        assert one.ask(b"ignore " + tube) == b"WATCHING %d" % left
    assert one.ask(b"ignore default") == b"NOT_IGNORED"
    assert one.ask(b"ignore " + tubes[1]) == b"WATCHING 1"
    # Only the last tube is still used by the second client.
    answers = [one.ask(b"stats-tube " + tube) for tube in tubes[:3]]
    assert answers == [b"NOT_FOUND"] * 3


def test_a_bad_name_leaves_references_on_all_owners_alone(clients: list[Client], tubes: list[bytes]) -> None:
    one, two = clients[:2]
    watch(one, tubes)
    assert one.ask(b"use " + tubes[2]) == b"USING " + tubes[2]
    for command in (b"use -x", b"watch " + b"x" * 201, b"ignore a b"):
        assert one.ask(command) == b"BAD_FORMAT"
    assert one.ask(b"list-tube-used") == b"USING " + tubes[2]
    assert [two.stats(b"stats-tube " + tube)["current-watching"] for tube in tubes] == ["1"] * 4


# ---------------------------------------------------------------- the tube in use


def test_commands_on_the_used_tube_go_to_its_owner_while_others_are_watched(
    clients: list[Client], tubes: list[bytes]
) -> None:
    one, two = clients[:2]
    watch(one, [tubes[1], tubes[3]])
    ready = put_into(one, tubes[2], b"ready")
    delayed = put_into(one, tubes[2], b"delayed", delay=1000)
    buried = put_into(one, tubes[2], b"buried")
    assert reserved(two, b"reserve-job " + buried) == (buried, b"buried")
    assert two.ask(b"bury " + buried + b" 0") == b"BURIED"
    assert found(one, b"peek-ready") == (ready, b"ready")
    assert found(one, b"peek-delayed") == (delayed, b"delayed")
    assert found(one, b"peek-buried") == (buried, b"buried")
    assert two.ask(b"use " + tubes[0]) == b"USING " + tubes[0]
    for command in (b"peek-ready", b"peek-delayed", b"peek-buried"):
        assert two.ask(command) == b"NOT_FOUND"
    assert two.ask(b"kick 10") == b"KICKED 0"
    assert one.ask(b"kick 10") == b"KICKED 1"
    assert one.ask(b"kick 10") == b"KICKED 1"
    assert one.ask(b"reserve-with-timeout 0") == b"TIMED_OUT"


# ---------------------------------------------------------------- reserve


def test_reserve_takes_the_best_job_of_all_owners(clients: list[Client], tubes: list[bytes]) -> None:
    producer, worker = clients[:2]
    watch(worker, tubes)
    expected = []
    for number in range(24):
        priority = (5, 1, 3, 1)[number % 4]
        expected.append((priority, number, put_into(producer, tubes[(number * 7) % 4], b"%d" % number, priority)))
    for _, number, job in sorted(expected):
        assert reserved(worker) == (job, b"%d" % number)
    assert worker.ask(b"reserve-with-timeout 0") == b"TIMED_OUT"
    for _, _, job in expected:
        assert producer.ask(b"delete " + job) == b"NOT_FOUND"
        assert worker.ask(b"delete " + job) == b"DELETED"


def test_a_waiting_reserve_hears_from_every_owner(clients: list[Client], tubes: list[bytes]) -> None:
    producer, worker = clients[:2]
    watch(worker, tubes)
    for tube in (*tubes, *reversed(tubes)):
        worker.send(b"reserve\r\n")
        job = put_into(producer, tube, tube)
        assert worker.line() == b"RESERVED %s %d" % (job, len(tube))
        assert worker.body(len(tube)) == tube
        assert worker.ask(b"delete " + job) == b"DELETED"


def test_workers_of_crossing_watch_lists_share_all_jobs(clients: list[Client], tubes: list[bytes]) -> None:
    producer, *workers = clients
    watch(workers[0], tubes)
    watch(workers[1], tubes[:2])
    watch(workers[2], tubes[2:])
    jobs = {put_into(producer, tubes[number % 4], b"x") for number in range(60)}
    got = []
    answered = True
    while answered:
        answered = False
        for worker in workers:
            worker.send(b"reserve-with-timeout 0\r\n")
        for worker in workers:
            word, *rest = worker.line().split()
            if word == b"RESERVED":
                worker.body(1)
                got.append((worker, rest[0]))
                answered = True
    assert len(got) == len(jobs)
    assert {job for _, job in got} == jobs
    for worker, job in got:
        assert worker.ask(b"delete " + job) == b"DELETED"


# ---------------------------------------------------------------- by id


def test_commands_by_id_find_the_owner_whatever_is_used_and_watched(clients: list[Client], tubes: list[bytes]) -> None:
    producer, worker = clients[:2]
    assert worker.ask(b"use " + tubes[0]) == b"USING " + tubes[0]
    jobs = [put_into(producer, tube, tube) for tube in tubes]
    for job, tube in zip(jobs, tubes, strict=True):
        assert found(worker, b"peek " + job) == (job, tube)
        for command in (b"release %s 0 0", b"bury %s 0", b"touch %s", b"kick-job %s"):
            assert worker.ask(command % job) == b"NOT_FOUND"
        assert reserved(worker, b"reserve-job " + job) == (job, tube)
        # Another connection's reservation cannot be touched.
        for command in (b"release %s 0 0", b"bury %s 0", b"touch %s", b"kick-job %s", b"delete %s", b"reserve-job %s"):
            assert producer.ask(command % job) == b"NOT_FOUND"
        assert producer.stats(b"stats-job " + job)["state"] == "reserved"
        assert worker.ask(b"touch " + job) == b"TOUCHED"
        assert worker.ask(b"release " + job + b" 9 1000") == b"RELEASED"
        assert producer.stats(b"stats-job " + job)["state"] == "delayed"
        assert worker.ask(b"kick-job " + job) == b"KICKED"
        assert reserved(producer, b"reserve-job " + job) == (job, tube)
        assert producer.ask(b"bury " + job + b" 1") == b"BURIED"
        assert worker.ask(b"kick-job " + job) == b"KICKED"
        assert worker.ask(b"delete " + job) == b"DELETED"
        for client in (producer, worker):
            for command in (b"peek ", b"delete ", b"stats-job ", b"reserve-job "):
                assert client.ask(command + job) == b"NOT_FOUND"


def test_malformed_ids_are_refused_and_impossible_ones_are_not_found(clients: list[Client]) -> None:
    client = clients[0]
    for word, rest in (
        (b"peek", b""),
        (b"delete", b""),
        (b"release", b" 0 0"),
        (b"bury", b" 0"),
        (b"touch", b""),
        (b"reserve-job", b""),
        (b"kick-job", b""),
        (b"stats-job", b""),
    ):
        assert client.ask(b"%s 12x%s" % (word, rest)) == b"BAD_FORMAT"
        for job in (0, 1 << 40, (1 << 53) + 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1):
            assert client.ask(b"%s %d%s" % (word, job, rest)) == b"NOT_FOUND"


def test_a_session_settles_reservations_of_all_owners_in_one_write(clients: list[Client], tubes: list[bytes]) -> None:
    producer, worker, other = clients[:3]
    jobs = [put_into(producer, tube, b"x") for tube in tubes]
    for job in jobs:
        reserved(worker, b"reserve-job " + job)
    a, b, c, d = jobs
    worker.send(
        b"touch %s\r\ndelete %s\r\nrelease %s 1 0\r\nbury %s 2\r\ntouch %s\r\npeek %s\r\nuse %s\r\ndelete %s\r\n"
        % (a, b, c, d, b, c, tubes[0], a)
    )
    replies = [worker.line() for _ in range(5)]
    assert replies == [b"TOUCHED", b"DELETED", b"RELEASED", b"BURIED", b"NOT_FOUND"]
    assert worker.line() == b"FOUND %s 1" % c
    assert worker.body(1) == b"x"
    assert [worker.line(), worker.line()] == [b"USING " + tubes[0], b"DELETED"]
    assert other.stats(b"stats-job " + c)["state"] == "ready"
    assert other.stats(b"stats-job " + d)["state"] == "buried"


# ---------------------------------------------------------------- by name; lists


def test_pause_and_stats_of_a_tube_are_asked_of_its_owner(clients: list[Client], tubes: list[bytes]) -> None:
    one, two = clients[:2]
    for tube in tubes:
        assert one.ask(b"stats-tube " + tube) == b"NOT_FOUND"
        assert one.ask(b"pause-tube " + tube + b" 10") == b"NOT_FOUND"
    jobs = [put_into(one, tube, b"x") for tube in tubes]
    watch(two, tubes)
    for tube in tubes[1:]:
        assert two.ask(b"pause-tube " + tube + b" 1000") == b"PAUSED"
        assert one.stats(b"stats-tube " + tube)["pause"] == "1000"
    assert reserved(two)[0] == jobs[0]
    assert two.ask(b"reserve-with-timeout 0") == b"TIMED_OUT"
    two.send(b"reserve\r\n")
    assert one.ask(b"pause-tube " + tubes[3] + b" 0") == b"PAUSED"
    assert two.line() == b"RESERVED %s 1" % jobs[3]
    two.body(1)


def test_lists_join_all_owners_and_name_default_once(clients: list[Client], tubes: list[bytes]) -> None:
    one, two = clients[:2]
    watch(one, tubes)
    assert two.ask(b"use default") == b"USING default"
    word, size = two.ask(b"list-tubes").split()
    names = two.body(int(size)).split(b"\n")
    assert word == b"OK"
    assert names[:2] == [b"---", b"- default"]
    assert names.count(b"- default") == 1
    # By time of creation, whoever owns them.
    assert [name for name in names if name[2:] in tubes] == [b"- " + tube for tube in tubes]


def test_connections_and_tubes_are_counted_once_whatever_they_touch() -> None:
    tubes = [name_on_slot(slot, "counted") for slot in range(SLOTS)]
    with Server(slots=SLOTS, frontends=2) as server, server.connect() as one, server.connect() as two:
        watch(one, tubes)
        for tube in tubes:
            put_into(two, tube, b"x")
        assert two.ask(b"reserve-with-timeout 0") == b"TIMED_OUT"
        stats = two.stats()
        assert {key: stats[key] for key in stats if key.startswith("current-")} == {
            "current-jobs-urgent": "4",
            "current-jobs-ready": "4",
            "current-jobs-reserved": "0",
            "current-jobs-delayed": "0",
            "current-jobs-buried": "0",
            "current-tubes": "5",
            "current-connections": "2",
            "current-producers": "1",
            "current-workers": "1",
            "current-waiting": "0",
        }
        assert (stats["total-jobs"], stats["cmd-put"], stats["cmd-watch"]) == ("4", "4", "4")
        assert stats["total-connections"] == "2"


# ---------------------------------------------------------------- quit and close


@pytest.mark.parametrize("ending", ["quit", "close"])
def test_the_end_of_a_session_is_seen_on_every_owner_at_once(
    server: Server, clients: list[Client], tubes: list[bytes], ending: str
) -> None:
    producer, worker = clients[:2]
    jobs = [put_into(producer, tube, b"x") for tube in tubes]
    assert producer.ask(b"use default") == b"USING default"
    leaving = server.connect()
    watch(leaving, tubes)
    for _ in jobs:
        reserved(leaving)
    assert leaving.ask(b"use " + tubes[1]) == b"USING " + tubes[1]
    watch(worker, tubes)
    if ending == "quit":
        leaving.send(b"quit\r\n")
        assert leaving.line() == b""
    leaving.close()
    assert [reserved(worker)[0] for _ in jobs] == jobs
    for tube, job in zip(tubes, jobs, strict=True):
        assert worker.stats(b"stats-tube " + tube)["current-watching"] == "1"
        assert worker.ask(b"delete " + job) == b"DELETED"
    for tube in tubes:
        assert worker.ask(b"ignore " + tube).startswith(b"WATCHING")
    assert producer.ask(b"stats-tube " + tubes[1]) == b"NOT_FOUND"


# ---------------------------------------------------------------- deadlines over owners


def test_deadline_soon_minds_reservations_of_every_owner(clients: list[Client], tubes: list[bytes]) -> None:
    producer, worker, other = clients[:3]
    short = put_into(producer, tubes[3], b"short", ttr=2)
    long = put_into(producer, tubes[1], b"long", ttr=600)
    reserved(worker, b"reserve-job " + short)
    reserved(worker, b"reserve-job " + long)
    watch(worker, tubes[:3])
    assert worker.ask(b"reserve") == b"DEADLINE_SOON"
    # A ready job of another owner wins over it.
    third = put_into(producer, tubes[0], b"third")
    assert reserved(worker, b"reserve")[0] == third
    assert worker.ask(b"touch " + short) == b"TOUCHED"
    assert worker.ask(b"reserve-with-timeout 0") == b"TIMED_OUT"
    assert worker.ask(b"reserve") == b"DEADLINE_SOON"
    watch(other, [tubes[3]])
    assert reserved(other, b"reserve")[0] == short
    assert worker.ask(b"touch " + short) == b"NOT_FOUND"
    assert worker.ask(b"reserve-with-timeout 0") == b"TIMED_OUT"
    assert other.ask(b"delete " + short) == b"DELETED"
