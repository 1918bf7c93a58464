"""`beanfield resize`: another number of slots, and clients find every job under its id, in its order, in its state."""

from pathlib import Path

import pytest

from tests.processes.offline import beanfield, checksums
from tests.processes.server import Client
from tests.processes.wal_root import DataRoot, found, inserted, job_stats, kill_everything, reserved, stop

TUBES = [b"tube-%d" % number for number in range(12)]
KEPT = ("tube", "state", "pri", "delay", "ttr", "reserves", "timeouts", "releases", "buries", "kicks")


class Jobs:
    """Jobs in every state in many tubes, the same number put into each tube, so that slots share sequences."""

    def __init__(self, client: Client) -> None:
        self.bodies: dict[int, bytes] = {}
        self.stats: dict[int, dict[str, str]] = {}
        self.buried: dict[bytes, list[int]] = {}
        self.deleted: list[int] = []
        for tube in TUBES:
            client.ask(b"use " + tube)
            ids = []
            for number in range(5):
                body = tube + b" %d" % number
                ids.append(inserted(client, body, number, delay=3_600 if number == 4 else 0, ttr=60 + number))
                self.bodies[ids[-1]] = body
            for index in (2, 0):
                reserved(client, b"reserve-job %d" % ids[index])
                assert client.ask(b"bury %d %d" % (ids[index], 50 - index)) == b"BURIED"
            self.buried[tube] = [ids[2], ids[0]]
            assert client.ask(b"delete %d" % ids[1]) == b"DELETED"
            del self.bodies[ids[1]]
            self.deleted.append(ids[1])
        self.stats = {id: job_stats(client, id) for id in self.bodies}

    def check(self, client: Client) -> None:
        for id, body in self.bodies.items():
            assert found(client, id) == body
            now, was = job_stats(client, id), self.stats[id]
            assert [now[key] for key in KEPT] == [was[key] for key in KEPT]
            assert int(now["age"]) >= int(was["age"])
        assert all(found(client, id) is None for id in self.deleted)
        for tube, buried in self.buried.items():
            client.ask(b"use " + tube)
            for id in buried:
                assert client.ask(b"peek-buried") == b"FOUND %d %d" % (id, len(self.bodies[id]))
                client.body(len(self.bodies[id]))
                assert client.ask(b"kick 1") == b"KICKED 1"
            assert inserted(client, b"new") > max([*self.bodies, *self.deleted])


def filled(path: Path, slots: int, crashed: bool = False) -> tuple[DataRoot, Jobs]:
    root = DataRoot(path, slots=slots)
    with root.serve() as server, server.connect() as client:
        jobs = Jobs(client)
        if crashed:
            kill_everything(server)
        else:
            stop(server)
    return root, jobs


@pytest.mark.parametrize(("old", "new", "crashed"), [(1, 3, False), (4, 1, True), (4, 3, False), (2, 2, True)])
def test_every_job_is_found_under_its_id_with_another_number_of_slots(
    tmp_path: Path, old: int, new: int, crashed: bool
) -> None:
    root, jobs = filled(tmp_path / "old", old, crashed)
    before = checksums(root.path)
    done = beanfield("resize", root.path, "--to", tmp_path / "new", "--slots", new, "-s", "65536")
    assert checksums(root.path) == before
    assert f"{len(jobs.bodies)} jobs in {new} slot" in done.out
    resized = DataRoot(tmp_path / "new", slots=new)
    assert beanfield("wal", "verify", resized.path).code == 0
    with resized.serve() as server, server.connect() as client:
        jobs.check(client)
        stop(server)
    # Once more, with what that server wrote.
    with resized.serve() as server, server.connect() as client:
        assert all(found(client, id) == body for id, body in jobs.bodies.items())
        for id in jobs.bodies:
            assert client.ask(b"delete %d" % id) == b"DELETED"
        assert client.stats()["current-jobs-ready"] == str(len(TUBES))


def test_ids_go_on_behind_all_old_ones_though_every_job_is_gone(tmp_path: Path) -> None:
    root = DataRoot(tmp_path / "old", slots=2)
    with root.serve() as server, server.connect() as client:
        client.ask(b"use " + root.tube_of(1).encode())
        ids = [inserted(client) for _ in range(300)]
        for id in ids:
            client.ask(b"delete %d" % id)
        stop(server)
    beanfield("resize", root.path, "--to", tmp_path / "new", "--slots", 3)
    facts = beanfield("wal", "inspect", tmp_path / "new", "--json").json()
    assert [slot["next_sequence"] for slot in facts["slots"]] == [300, 300, 300]
    with DataRoot(tmp_path / "new", slots=3).serve() as server, server.connect() as client:
        for number in range(20):
            client.ask(b"use other-%d" % number)
            assert inserted(client) > max(ids)


def test_a_paused_tube_stays_paused(tmp_path: Path) -> None:
    root = DataRoot(tmp_path / "old", slots=2)
    with root.serve() as server, server.connect() as client:
        inserted(client)
        assert client.ask(b"pause-tube default 3600") == b"PAUSED"
        stop(server)
    beanfield("resize", root.path, "--to", tmp_path / "new", "--slots", 1)
    with DataRoot(tmp_path / "new").serve() as server, server.connect() as client:
        assert 3_000 < int(client.stats(b"stats-tube default")["pause-time-left"]) <= 3_600


def test_a_dry_run_says_where_jobs_would_go_and_writes_nothing(tmp_path: Path) -> None:
    root, jobs = filled(tmp_path / "old", 2)
    before = checksums(tmp_path)
    done = beanfield("resize", root.path, "--slots", 3, "--dry-run")
    assert checksums(tmp_path) == before
    assert "dry run: nothing was written" in done.out
    counts = [int(line.split(", ")[1].split()[0]) for line in done.out.splitlines() if "new slot" in line]
    assert len(counts) == 3 and sum(counts) == len(jobs.bodies)


def test_a_running_root_is_refused(tmp_path: Path) -> None:
    root = DataRoot(tmp_path / "old", slots=2)
    with root.serve() as server, server.connect() as client:
        id = inserted(client, b"here")
        for options in (["--to", tmp_path / "new"], ["--dry-run"]):
            done = beanfield("resize", root.path, "--slots", 3, *options, code=10)
            assert "a server runs on this data root" in done.err
        assert found(client, id) == b"here"
        stop(server)
    assert not (tmp_path / "new").exists()


def test_what_cannot_be_resized_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    root, _ = filled(tmp_path / "old", 2)
    before = checksums(tmp_path)
    new = tmp_path / "new"
    for words, code, reason in (
        ([root.path, "--to", new, "--slots", 257], 5, "1 to 256"),
        ([root.path, "--to", new], 5, "--slots"),
        ([root.path, "--slots", 3], 5, "--to"),
        ([root.path, "--to", root.path, "--slots", 3], 65, "is a data root already"),
        ([root.slot(0), "--to", new, "--slots", 3], 65, "give the root"),
        ([tmp_path / "nothing", "--to", new, "--slots", 3], 65, "No such file"),
    ):
        assert reason in beanfield("resize", *words, code=code).err
        assert checksums(tmp_path) == before
    segment = root.segments(0)[0]
    data = bytearray(segment.read_bytes())
    data[600] ^= 1
    segment.write_bytes(data)
    before = checksums(tmp_path)
    done = beanfield("resize", root.path, "--to", new, "--slots", 3, code=65)
    assert segment.name in done.err and "byte" in done.err and "salvage" in done.err
    assert checksums(tmp_path) == before


def test_more_slots_than_partitions_are_refused(tmp_path: Path) -> None:
    root = DataRoot(tmp_path / "old", slots=2)
    with root.serve(["--partitions", "4"]) as server:
        stop(server)
    done = beanfield("resize", root.path, "--to", tmp_path / "new", "--slots", 5, code=5)
    assert "5 slots and only 4 partitions" in done.err
    beanfield("resize", root.path, "--to", tmp_path / "new", "--slots", 4)
