"""Real servers with a log: what was there before an end of any kind is there after it."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.processes.server import Client, Server, wait_for
from tests.processes.wal_root import (
    DataRoot,
    found,
    inserted,
    job_stats,
    kill_everything,
    kill_supervisor,
    reserved,
    stop,
)

SHAPES = [(1, 0), (1, 1), (3, 2)]  # slots, frontends
ENDS = [stop, kill_everything, kill_supervisor]
# The promise is one second; the rest is for a machine that runs many tests at once.
STOP_SECONDS = 1.0 + 2.0
KEPT = ("tube", "pri", "delay", "ttr", "reserves", "timeouts", "releases", "buries", "kicks")
# What -b costs after a crash: the rest of a block of sequences.
LEASE = 65_536


class Farm:
    """Jobs in every state and with every history, in several tubes of every slot."""

    def __init__(self, root: DataRoot, client: Client) -> None:
        self.tubes = [root.tube_of(slot, number) for slot in range(root.slots) for number in range(2)]
        self.bodies: dict[int, bytes] = {}
        self.buried: dict[str, list[int]] = {}
        self.delayed: list[int] = []
        self.deleted: list[int] = []
        for tube in self.tubes:
            self._fill(tube, client)

    def _fill(self, tube: str, client: Client) -> None:
        assert client.ask(b"use %s" % tube.encode()).startswith(b"USING")
        ids = [self._put(client, f"{tube} {number}".encode() * (1 + number * 40), number) for number in range(8)]
        client.ask(b"watch %s" % tube.encode())
        assert client.ask(b"ignore default") in (b"WATCHING 1", b"NOT_IGNORED")
        for id in ids:
            assert reserved(client)[0] == id
        # A history each: 0 stays reserved, 1 released with another priority, 2 released with a delay, 3 and 4 buried in
        # the order 4, 3, 5 buried and kicked, 6 deleted, 7 reserved twice.
        assert client.ask(b"release %d 77 0" % ids[1]) == b"RELEASED"
        assert client.ask(b"release %d 78 3600" % ids[2]) == b"RELEASED"
        for at, priority in ((5, 3), (4, 1), (3, 2)):
            assert client.ask(b"bury %d %d" % (ids[at], priority)) == b"BURIED"
        assert client.ask(b"kick 1") == b"KICKED 1"
        assert client.ask(b"delete %d" % ids[6]) == b"DELETED"
        assert client.ask(b"release %d 9 0" % ids[7]) == b"RELEASED"
        assert reserved(client, b"reserve-job %d" % ids[7])[0] == ids[7]
        self.buried[tube] = [ids[4], ids[3]]
        self.delayed += [ids[2], self._put(client, b"", 5, 3600)]
        self.deleted.append(ids[6])
        assert client.ask(b"ignore %s" % tube.encode()) == b"NOT_IGNORED"
        client.ask(b"watch default")
        client.ask(b"ignore %s" % tube.encode())

    def _put(self, client: Client, body: bytes, priority: int, delay: int = 0) -> int:
        id = inserted(client, body, priority, delay, 1000)
        self.bodies[id] = body
        return id

    def stats(self, client: Client) -> dict[int, dict[str, str]]:
        return {id: job_stats(client, id) for id in self.bodies if id not in self.deleted}

    def check(self, client: Client, before: dict[int, dict[str, str]]) -> None:
        """All of it, as it was; what was reserved is ready."""
        after = self.stats(client)
        for id, stats in after.items():
            assert {key: stats[key] for key in KEPT} == {key: before[id][key] for key in KEPT}, id
            state = before[id]["state"]
            assert stats["state"] == ("ready" if state == "reserved" else state), id
            assert int(stats["age"]) >= int(before[id]["age"])
            assert found(client, id) == self.bodies[id]
        for id in self.delayed:
            assert 3000 < int(after[id]["time-left"]) <= int(before[id]["time-left"])
        for id in self.deleted:
            assert found(client, id) is None
        for tube, ids in self.buried.items():
            client.ask(b"use %s" % tube.encode())
            for id in ids:
                assert int(client.ask(b"peek-buried").split()[1]) == id
                client.line()
                assert client.ask(b"kick-job %d" % id) == b"KICKED"


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_jobs_of_every_state_and_history_survive(
    tmp_path: Path, shape: tuple[int, int], end: Callable[[Server], None]
) -> None:
    root = DataRoot(tmp_path / "root", *shape)
    with root.serve() as server, server.connect() as client:
        farm = Farm(root, client)
        before = farm.stats(client)
        end(server)
    with root.serve() as server, server.connect() as client:
        assert client.stats()["current-jobs-reserved"] == "0"
        farm.check(client, before)
        assert client.stats()["current-jobs-buried"] == "0"
        # And once more, from a log with changes behind the jobs, and by the other kinds of end.
        before = farm.stats(client)
        farm.buried = {}
        stop(server)
    with root.serve() as server, server.connect() as client:
        farm.check(client, before)


@pytest.mark.parametrize("mode", [["-F"], ["-f", "50"], ["-f", "60000"]])
def test_kill_9_loses_nothing_that_was_answered_in_any_mode(tmp_path: Path, mode: list[str]) -> None:
    root = DataRoot(tmp_path / "root", 2, 1, mode)
    with root.serve() as server, server.connect() as client:
        tubes = [root.tube_of(slot) for slot in range(2)]
        ids = []
        for tube in tubes:
            client.ask(b"use %s" % tube.encode())
            ids += [inserted(client, b"%d" % number) for number in range(20)]
        assert client.ask(b"delete %d" % ids[0]) == b"DELETED"
        kill_everything(server)
    with root.serve() as server, server.connect() as client:
        assert [found(client, id) for id in ids] == [None, *[b"%d" % (n % 20) for n in range(1, 40)]]


@pytest.mark.parametrize("mode", [["-F"], ["-f", "50"], ["-f", "0"]])
def test_a_server_with_a_log_stops_within_a_second(tmp_path: Path, mode: list[str]) -> None:
    root = DataRoot(tmp_path / "root", 2, 1, mode)
    with root.serve() as server, server.connect() as client:
        ids = [inserted(client, b"y" * 1000) for _ in range(50)]
        began = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - began < STOP_SECONDS
        assert "did not answer in time" not in server.log()
    with root.serve() as server, server.connect() as client:
        assert all(found(client, id) == b"y" * 1000 for id in ids)


@pytest.mark.parametrize("shape", SHAPES)
def test_ids_never_repeat_though_every_job_was_deleted(tmp_path: Path, shape: tuple[int, int]) -> None:
    root = DataRoot(tmp_path / "root", *shape)
    given: list[int] = []
    for end in (stop, kill_everything, stop):
        with root.serve() as server, server.connect() as client:
            ids = [inserted(client) for _ in range(5)]
            assert not given or min(ids) > max(given)
            given += ids
            for id in ids:
                assert client.ask(b"delete %d" % id) == b"DELETED"
            end(server)
    # A clean stop goes on with the very next one; a crash skips what was left of a lease.
    assert given[:10] == [1 + 256 * number for number in range(10)]
    assert given[10] == 1 + 256 * (5 + LEASE)


def test_one_owner_comes_back_with_its_jobs_and_the_others_never_notice(tmp_path: Path) -> None:
    root = DataRoot(tmp_path / "root", 2, 2)
    with root.serve(["--slot-wait", "60"]) as server:
        near, far = root.tube_of(0).encode(), root.tube_of(1).encode()
        with server.connect() as holder, server.connect() as other, server.connect() as client:
            ids = {}
            for tube in (near, far):
                client.ask(b"use %s" % tube)
                ids[tube] = [inserted(client, tube + b"%d" % number, number) for number in range(3)]
            for worker, tube in ((holder, far), (other, near)):
                worker.ask(b"watch %s" % tube)
                worker.ask(b"ignore default")
                assert reserved(worker)[0] == ids[tube][0]
            old = server.kill("owner", 1)
            server.wait_for_log("owner 1 serves again")
            assert server.child("owner", 1).pid != old
            # Who held a job there is told by the end of the connection, and the job is ready again.
            assert holder.ended()
            assert job_stats(client, ids[far][0])["state"] == "ready"
            assert job_stats(client, ids[far][0])["reserves"] == "1"
            assert [found(client, id) for id in ids[far]] == [far + b"%d" % number for number in range(3)]
            # The other slot's holder still holds.
            assert job_stats(client, ids[near][0])["state"] == "reserved"
            assert other.ask(b"delete %d" % ids[near][0]) == b"DELETED"
            client.ask(b"use %s" % far)
            assert inserted(client) > max(ids[far])


def test_a_pause_comes_back_with_a_tube_that_has_jobs(tmp_path: Path) -> None:
    root = DataRoot(tmp_path / "root", 1, 0)
    with root.serve() as server, server.connect() as client:
        inserted(client)
        assert client.ask(b"pause-tube default 1000") == b"PAUSED"
        kill_everything(server)
    with root.serve() as server, server.connect() as client:
        stats = client.stats(b"stats-tube default")
        assert stats["pause"] == "1000" and 900 < int(stats["pause-time-left"]) <= 1000
        assert client.ask(b"reserve-with-timeout 0") == b"TIMED_OUT"


def test_delays_go_on_while_the_server_is_down(tmp_path: Path) -> None:
    root = DataRoot(tmp_path / "root", 1, 0)
    with root.serve() as server, server.connect() as client:
        short, long = inserted(client, delay=1), inserted(client, delay=1000)
        stop(server)
    until = time.time() + 1
    with root.serve() as server, server.connect() as client:
        wait_for(lambda: job_stats(client, short)["state"] == "ready", "the end of a delay")
        assert time.time() > until - 1.0
        assert job_stats(client, short)["delay"] == "1"
        assert job_stats(client, long)["state"] == "delayed"


def test_stats_of_several_logs(tmp_path: Path) -> None:
    root = DataRoot(tmp_path / "root", 2, 1, ["-f", "0", "-s", "70000"])
    with root.serve() as server, server.connect() as client:
        near, far = root.tube_of(0).encode(), root.tube_of(1).encode()
        stats = client.stats()
        assert stats["binlog-max-size"] == "70000"
        assert (stats["binlog-oldest-index"], stats["binlog-current-index"]) == ("1", "1")
        assert stats["binlog-records-written"] == "0"
        client.ask(b"use %s" % near)
        first = inserted(client)
        client.ask(b"use %s" % far)
        ids = [inserted(client, b"z" * 3000) for _ in range(60)]
        stats = client.stats()
        assert stats["binlog-records-written"] == "61"
        # The smallest and the largest number in use anywhere: slot 0 is still at its first, slot 1 went on.
        assert stats["binlog-oldest-index"] == "1"
        current = int(stats["binlog-current-index"])
        assert current > 2
        assert job_stats(client, first)["file"] == "1"
        assert job_stats(client, ids[-1])["file"] == str(current)
        for id in ids:
            assert client.ask(b"delete %d" % id) == b"DELETED"
        # Nothing is left to keep but a segment or two: the space goes back without further traffic.
        wait_for(lambda: len(root.segments(1)) <= 2, "the removal of old segments")
        stop(server)
    with root.serve() as server, server.connect() as client:
        assert client.stats()["binlog-records-written"] == "0"
        assert job_stats(client, first)["file"] == "1"


def test_totals_of_the_log_go_on_when_an_owner_is_replaced(tmp_path: Path) -> None:
    root = DataRoot(tmp_path / "root", 1, 1)
    with root.serve() as server, server.connect() as client:
        for _ in range(10):
            inserted(client)
        server.kill("owner", 0)
        server.wait_for_log("owner 0 serves again")
        inserted(client)
        assert client.stats()["binlog-records-written"] == "11"


def test_beanstalkds_log_options_are_taken_as_beanstalkd_takes_them(tmp_path: Path) -> None:
    root = DataRoot(tmp_path / "root")
    with Server(1, 0, ["-b", str(root.path), "-f60000", "-F", "-s0"]) as server, server.connect() as client:
        inserted(client)
        assert client.stats()["binlog-max-size"] == "0"
    # A segment has a least and a largest length, whatever was asked for.
    assert root.segments()[0].stat().st_size == 65_536


@pytest.mark.parametrize("size", ["-5", "18446744073709551615"])
def test_a_segment_size_beyond_all_limits_disturbs_nobody(size: str) -> None:
    """Without a log, whose files would take their time: the number still goes to every frontend."""
    with Server(1, 1, ["-s", size]) as server, server.connect() as client:
        assert client.stats()["binlog-max-size"] == str((1 << 63) - 1)


def test_bodies_of_all_sizes_survive(tmp_path: Path) -> None:
    """Also those longer than a segment, which have files of their own, and those at the size limit."""
    sizes = [0, 1, 4000, 4096, 65_534, 65_535, 200_000, 300_000]
    root = DataRoot(tmp_path / "root", 1, 1, ["-f", "0", "-s", "65536", "-z", "300000"])
    with root.serve() as server, server.connect() as client:
        ids = {size: inserted(client, bytes(range(256)) * (size // 256) + b"e" * (size % 256)) for size in sizes}
        gone = inserted(client, b"g" * 200_000)
        assert client.ask(b"delete %d" % gone) == b"DELETED"
        wait_for(lambda: not (root.slot(0) / f"body.{gone}").exists(), "the removal of a body")
        kill_everything(server)
    with root.serve() as server, server.connect() as client:
        for size, id in ids.items():
            assert found(client, id) == bytes(range(256)) * (size // 256) + b"e" * (size % 256), size
        assert found(client, gone) is None
