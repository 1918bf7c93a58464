"""A server with a log when its processes are killed or its disk is full, failing, stalled or read-only."""

import subprocess
import time
from pathlib import Path

import pytest

from tests.processes.faulty_disk import FaultyDisks
from tests.processes.kill_loop import KillLoop
from tests.processes.server import SERVE, Client, program_environment, wait_for, where_options
from tests.processes.small_disk import SmallDisk, small_disk
from tests.processes.wal_root import (
    DataRoot,
    found,
    inserted,
    job_stats,
    kill_everything,
    reserved,
    stop,
    wait_until_served,
)

EXIT_DISK = 74
KILLS = 24
# Space is asked for again every half second; the rest is for a machine that runs many tests at once.
SPACE_SECONDS = 0.5 + 9.5


# ---------------------------------------------------------------- kills
@pytest.mark.parametrize("shape", [(1, 0), (2, 2)])
def test_kill_9_of_anything_under_load_loses_nothing_and_brings_nothing_back(
    tmp_path: Path, shape: tuple[int, int]
) -> None:
    loop = KillLoop(tmp_path / "root", *shape, seed=shape[0])
    loop.run(kills=KILLS)
    loop.say()
    assert not loop.books.problems, "\n".join(loop.books.problems[:20])
    assert loop.books.put_count > KILLS and loop.books.deleted_count > 0


# ---------------------------------------------------------------- a full disk
def fill_with_puts(client: Client, disk: SmallDisk) -> list[int]:
    """Puts until one is refused; the ids of the others."""
    disk.fill()
    ids = []
    while True:
        line = client.put(b"f" * 1000, 9)
        if line == b"OUT_OF_MEMORY":
            return ids
        assert line.startswith(b"INSERTED"), line
        ids.append(int(line.split()[1]))


def put_when_there_is_space(client: Client) -> int:
    def put() -> int:
        line = client.put(b"again")
        return int(line.split()[1]) if line.startswith(b"INSERTED") else 0

    return wait_for(put, "space for a put", SPACE_SECONDS)


@pytest.mark.parametrize("own_file_system", [True, False])
@pytest.mark.parametrize("shape", [(1, 0), (1, 1)])
def test_a_full_disk_refuses_puts_and_nothing_else(
    tmp_path: Path, shape: tuple[int, int], own_file_system: bool
) -> None:
    with small_disk(tmp_path, own_file_system) as disk:
        root = DataRoot(disk.path / "root", *shape, ["-f", "0", "-s", "65536"])
        with root.serve(environment=disk.environment) as server, server.connect() as client:
            held, kept, hurt, slow = (inserted(client, b"k", 0, delay) for delay in (0, 0, 0, 500))
            assert [reserved(client)[0] for _ in range(3)] == [held, kept, hurt]
            ids = fill_with_puts(client, disk)
            assert len(ids) > 10
            work_on_a_full_disk(client, held, kept, hurt, slow, ids)
            disk.give_back()
            last = put_when_there_is_space(client)
            kill_everything(server)
        with root.serve(environment=disk.environment) as server, server.connect() as client:
            assert found(client, last) == b"again"
            assert found(client, ids[0]) is None
            assert job_stats(client, hurt)["state"] == "buried"
            assert job_stats(client, kept)["pri"] == "3"


def work_on_a_full_disk(client: Client, held: int, kept: int, hurt: int, slow: int, ids: list[int]) -> None:
    """Every command but put does what it always does."""
    assert client.ask(b"touch %d" % held) == b"TOUCHED"
    assert client.ask(b"release %d 2 0" % held) == b"RELEASED"
    assert client.ask(b"release %d 3 0" % kept) == b"RELEASED"
    assert client.ask(b"bury %d 4" % hurt) == b"BURIED"
    assert client.ask(b"kick 5") == b"KICKED 1"
    assert client.ask(b"kick-job %d" % slow) == b"KICKED"
    assert job_stats(client, slow)["state"] == "ready"
    assert reserved(client, b"reserve-job %d" % hurt)[0] == hurt
    assert client.ask(b"release %d 1 1000" % hurt) == b"RELEASED"
    assert reserved(client, b"reserve-job %d" % hurt)[0] == hurt
    assert client.ask(b"bury %d 4" % hurt) == b"BURIED"
    for _ in range(300):
        # Far more changes than the free segment has room for: what they replace is cleaned away.
        assert reserved(client, b"reserve-job %d" % kept)[0] == kept
        assert client.ask(b"release %d 3 0" % kept) == b"RELEASED"
    assert client.ask(b"delete %d" % ids[0]) == b"DELETED"
    assert client.put(b"f" * 20_000) == b"OUT_OF_MEMORY"


@pytest.mark.parametrize("own_file_system", [True, False])
def test_deletes_make_room_for_puts_on_a_full_disk(tmp_path: Path, own_file_system: bool) -> None:
    with small_disk(tmp_path, own_file_system) as disk:
        root = DataRoot(disk.path / "root", 1, 0, ["-f", "0", "-s", "65536"])
        with root.serve(environment=disk.environment) as server, server.connect() as client:
            for _ in range(3):
                if disk.path.joinpath("filler").exists() or client.stats()["total-jobs"] != "0":
                    disk.give_back()
                ids = fill_with_puts(client, disk)
                for id in ids:
                    assert client.ask(b"delete %d" % id) == b"DELETED"
                put_when_there_is_space(client)


@pytest.mark.parametrize("own_file_system", [True, False])
def test_a_start_on_a_full_disk_serves(tmp_path: Path, own_file_system: bool) -> None:
    with small_disk(tmp_path, own_file_system) as disk:
        root = DataRoot(disk.path / "root", 1, 0, ["-f", "0", "-s", "65536"])
        with root.serve(environment=disk.environment) as server, server.connect() as client:
            ids = fill_with_puts(client, disk)
            kill_everything(server)
        with root.serve(environment=disk.environment) as server, server.connect() as client:
            assert found(client, ids[0]) == found(client, ids[-1]) == b"f" * 1000
            assert client.put(b"f" * 20_000) == b"OUT_OF_MEMORY"
            assert client.ask(b"delete %d" % ids[0]) == b"DELETED"
            assert reserved(client)[0] == ids[1]
            disk.give_back()
            put_when_there_is_space(client)
            stop(server)
        with root.serve(environment=disk.environment) as server, server.connect() as client:
            assert found(client, ids[0]) is None and found(client, ids[1]) is not None


# ---------------------------------------------------------------- a disk that fails
@pytest.mark.parametrize("fault", ["write", "short-write", "sync"])
@pytest.mark.parametrize("mode", ["-f0", "-f50"])
def test_a_failing_disk_ends_one_owner_until_it_works_again(tmp_path: Path, fault: str, mode: str) -> None:
    disks = FaultyDisks(tmp_path)
    root = DataRoot(tmp_path / "root", 2, 1, [mode])
    near, far = root.tube_of(0).encode(), root.tube_of(1).encode()
    with root.serve(environment=disks.environment) as server, server.connect() as client:
        client.ask(b"use %s" % far)
        answered = [inserted(client, b"%d" % number) for number in range(20)]
        # With -f 50 these are at risk until they are synced, as the mode says.
        root.wait_until_quiet()
        disks.fail(fault, 1)
        with server.connect() as doomed:
            doomed.ask(b"use %s" % far)
            doomed.send(b"put 0 0 60 6\r\ndoomed\r\n")
            line = doomed.line()
            assert line == b"" or (mode != "-f0" and line.startswith(b"INSERTED"))
        server.wait_for_log("ends at once")
        server.wait_for_log("slot 1 is unavailable")
        assert f"exit code {EXIT_DISK}" in server.log()
        # The other slot never notices; what needs this one is told at once.
        assert client.ask(b"use %s" % near) == b"USING %s" % near
        assert found(client, inserted(client, b"near")) == b"near"
        assert client.ask(b"peek %d" % answered[0]) == b"INTERNAL_ERROR"
        disks.mend(fault, 1)
        wait_until_served(client, answered[0])
        assert [found(client, id) for id in answered] == [b"%d" % number for number in range(20)]
        client.ask(b"use %s" % far)
        assert inserted(client) > max(answered)


def test_a_disk_that_cannot_write_refuses_the_start(tmp_path: Path) -> None:
    disks = FaultyDisks(tmp_path)
    root = DataRoot(tmp_path / "root", 1, 0)
    with root.serve(environment=disks.environment) as server, server.connect() as client:
        id = inserted(client)
        kill_everything(server)
    disks.fail("write", 0)
    done = subprocess.run(
        [*SERVE, *where_options(("127.0.0.1", 0)), "-b", str(root.path), "--frontends", "0"],
        env=program_environment() | disks.environment, capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert done.returncode == EXIT_DISK
    assert "slots/000" in done.stderr and "Input/output error" in done.stderr
    disks.mend("write", 0)
    with root.serve(environment=disks.environment) as server, server.connect() as client:
        assert found(client, id) == b"x"


@pytest.mark.parametrize("shape", [(1, 0), (2, 1)])
def test_a_stalled_disk_is_reported_and_nobody_is_killed(tmp_path: Path, shape: tuple[int, int]) -> None:
    disks = FaultyDisks(tmp_path)
    root = DataRoot(tmp_path / "root", *shape)
    with root.serve(["--hang-timeout", "2"], disks.environment) as server:
        pids = [child.pid for child in server.children()]
        with server.connect(60.0) as waiting, server.connect() as client:
            client.ask(b"use %s" % root.tube_of(shape[0] - 1).encode())
            disks.fail("stall", 0)
            waiting.send(b"put 0 0 60 1\r\nw\r\n")
            server.wait_for_log("the disk stalls")
            until = time.monotonic() + 3.0  # longer than the hang timeout
            while time.monotonic() < until:
                # What is visible is as durable as what is answered: who asks that slot waits; another one goes on.
                if shape[0] == 2:
                    inserted(client)
                time.sleep(0.1)
            disks.mend("stall", 0)
            assert waiting.line().startswith(b"INSERTED")
            server.wait_for_log("the disk answers again")
        assert [child.pid for child in server.children()] == pids
