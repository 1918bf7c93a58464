"""Binlogs of a real beanstalkd, and bytes by hand, imported and served: every job as it was, the source untouched."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes.offline import Beanstalkd, beanfield, checksums, with_beanstalkd
from tests.processes.server import Client, program_environment
from tests.processes.wal_root import DataRoot, found, inserted, job_stats, reserved, stop
from tests.unit.binlog_bytes import CREATED_NS, V5, V7, S

LARGE = 65_535
SHAPES = [["--partitions", "1", "--slots", "1"], ["--partitions", "16", "--slots", "3"]]
KEPT = ("tube", "state", "pri", "delay", "ttr", "reserves", "timeouts", "releases", "buries", "kicks")


def import_to(source: Path, root: Path, *options: str, code: int = 0) -> str:
    """All that the import says; the source keeps every byte."""
    before = checksums(source)
    done = beanfield("import", source, "--to", root, *options, code=code)
    assert checksums(source) == before
    return done.out + done.err


def id_map(root: Path) -> dict[int, int]:
    """Old ids to new ones; empty where ids are kept."""
    mapping = root / "imported-ids.txt"
    if not mapping.exists():
        return {}
    lines = [line.split("\t") for line in mapping.read_text().splitlines() if not line.startswith("#")]
    return {int(old): int(new) for old, new, _ in lines}


def write_source(directory: Path, *files: bytes) -> Path:
    directory.mkdir()
    for number, data in enumerate(files, 1):
        (directory / f"binlog.{number}").write_bytes(data)
    return directory


class OldJobs:
    """Jobs in every state on a beanstalkd: everything that its log keeps, as it was told to clients."""

    def __init__(self, client: Client) -> None:
        self.bodies: dict[int, bytes] = {}
        self.stats: dict[int, dict[str, str]] = {}
        self.buried: dict[bytes, list[int]] = {}
        self.deleted: list[int] = []
        for tube in (b"default", b"emails", b"t" * 200):
            self._fill(tube, client)
        for id in self.bodies:
            self.stats[id] = job_stats(client, id)
            self.stats[id]["state"] = self.stats[id]["state"].replace("reserved", "ready")

    def _fill(self, tube: bytes, client: Client) -> None:
        client.ask(b"use " + tube)
        client.ask(b"watch " + tube)
        for other in {b"default", *self.buried} - {tube}:
            client.ask(b"ignore " + other)
        ids = [self._put(client, tube + b" %d" % number, number) for number in range(6)]
        for id in ids:
            assert reserved(client)[0] == id
        # Each ends in a record, so that the log has the counters: delayed, buried in the order 4, 2, 3, kicked, gone.
        assert client.ask(b"release %d 78 3600" % ids[0]) == b"RELEASED"
        for index in (4, 2, 1, 3):
            assert client.ask(b"bury %d %d" % (ids[index], index)) == b"BURIED"
        assert client.ask(b"kick-job %d" % ids[1]) == b"KICKED"
        assert client.ask(b"delete %d" % ids[5]) == b"DELETED"
        del self.bodies[ids[5]]
        self.deleted.append(ids[5])
        self.buried[tube] = [ids[4], ids[2], ids[3]]
        self._put(client, b"", 4_294_967_295)
        self._put(client, b"later", 3, delay=7_200)

    def _put(self, client: Client, body: bytes, priority: int, delay: int = 0) -> int:
        id = inserted(client, body, priority, delay, ttr=77)
        self.bodies[id] = body
        return id


# ---------------------------------------------------------------- real binlogs
@with_beanstalkd
@pytest.mark.parametrize("shape", SHAPES, ids=["one-partition", "three-slots"])
def test_jobs_of_a_killed_beanstalkd_come_over_as_they_were(tmp_path: Path, program: str, shape: list[str]) -> None:
    with Beanstalkd(program, tmp_path / "old") as old:
        with old.connect() as client:
            jobs = OldJobs(client)
            old.kill()
    root = DataRoot(tmp_path / "new", slots=int(shape[-1]))
    said = import_to(old.directory, root.path, *shape)
    assert f"{len(jobs.bodies)} jobs" in said
    ids = id_map(root.path) or {id: id for id in jobs.bodies}
    assert sorted(ids) == sorted(jobs.bodies)
    assert [ids[old_id] for old_id in sorted(ids)] == sorted(ids.values())
    with root.serve() as server, server.connect() as client:
        for id, body in jobs.bodies.items():
            assert found(client, ids[id]) == body
            now, was = job_stats(client, ids[id]), jobs.stats[id]
            # Debian's beanstalkd writes names without quotes.
            assert [now[key].strip('"') for key in KEPT] == [was[key].strip('"') for key in KEPT]
            assert int(was["age"]) <= int(now["age"]) <= int(was["age"]) + 100
            if was["state"] == "delayed":
                assert int(was["time-left"]) - 100 <= int(now["time-left"]) <= int(was["time-left"])
        for tube, buried in jobs.buried.items():
            client.ask(b"use " + tube)
            for id in buried:
                assert client.ask(b"peek-buried") == b"FOUND %d %d" % (ids[id], len(jobs.bodies[id]))
                client.body(len(jobs.bodies[id]))
                assert client.ask(b"kick 1") == b"KICKED 1"
        new_id = inserted(client)
        if not id_map(root.path):
            assert new_id > max([*jobs.bodies, *jobs.deleted])
        assert new_id not in ids.values()
        stop(server)


@with_beanstalkd
def test_bodies_at_the_size_limit_are_kept_though_beanstalkd_would_drop_them(tmp_path: Path, program: str) -> None:
    with Beanstalkd(program, tmp_path / "old") as old:
        with old.connect() as client:
            bodies = [bytes([65 + n]) * (LARGE - n) for n in range(4)]
            for body in bodies:
                inserted(client, body)
            inserted(client, b"behind them")
            old.kill()
    root = DataRoot(tmp_path / "new")
    import_to(old.directory, root.path, "--partitions", "1")
    with root.serve() as server, server.connect() as client:
        assert [found(client, id) for id in range(1, 6)] == [*bodies, b"behind them"]


@with_beanstalkd
def test_many_files_with_compaction_and_a_restart_give_exactly_the_jobs_that_are_left(
    tmp_path: Path, program: str
) -> None:
    left: dict[int, bytes] = {}
    for generation in range(2):
        with Beanstalkd(program, tmp_path / "old", "-s", "20000") as old:
            with old.connect() as client:
                for number in range(400):
                    body = b"%d/%d " % (generation, number) * (1 + number % 40)
                    id = inserted(client, body)
                    left[id] = body
                    if number % 3:
                        victim = min(left) if number % 2 else max(left)
                        assert client.ask(b"delete %d" % victim) == b"DELETED"
                        del left[victim]
                old.kill()
    files = [path for path in (tmp_path / "old").iterdir() if path.name.startswith("binlog.")]
    assert len(files) > 3
    assert min(int(path.name[7:]) for path in files) > 1, "nothing was compacted"
    root = DataRoot(tmp_path / "new")
    import_to(old.directory, root.path, "--partitions", "1", "-s", "65536")
    with root.serve() as server, server.connect() as client:
        assert client.stats()["current-jobs-ready"] == str(len(left))
        assert {id: found(client, id) for id in left} == left


@with_beanstalkd
def test_a_running_beanstalkd_is_noticed_and_nothing_is_made(tmp_path: Path, program: str) -> None:
    with Beanstalkd(program, tmp_path / "old") as old:
        with old.connect() as client:
            inserted(client)
        done = beanfield("import", old.directory, "--to", tmp_path / "new", code=10)
        assert f"process {old.process.pid}" in done.err
        assert not (tmp_path / "new").exists()
        done = beanfield("import", old.directory, "--dry-run", code=10)
        old.kill()
    beanfield("import", old.directory, "--to", tmp_path / "new")


# ---------------------------------------------------------------- by hand
def test_version_5_is_served_like_any_other(tmp_path: Path) -> None:
    records = [V5.put(3, b"three"), V5.record(4, 4, b"emails", b"four", delay_s=10, deadline_ns=CREATED_NS), V5.bury(3)]
    source = write_source(tmp_path / "old", V5.file(*records))
    root = DataRoot(tmp_path / "new")
    import_to(source, root.path, "--partitions", "1")
    with root.serve() as server, server.connect() as client:
        assert (found(client, 3), found(client, 4)) == (b"three", b"four")
        assert job_stats(client, 3)["state"] == "buried"
        stats = job_stats(client, 4)
        assert (stats["state"], stats["delay"], stats["tube"].strip('"')) == ("ready", "10", "emails")
        assert inserted(client) == 5


def test_a_damaged_source_is_reported_and_what_is_readable_is_imported(tmp_path: Path) -> None:
    records = [V7.put(id, b"body %d" % id) for id in range(1, 10)]
    records[4] = b"\xee" * len(records[4])
    source = write_source(tmp_path / "old", V7.file(*records), b"rubbish" * 100, V7.file(V7.put(20)))
    root = DataRoot(tmp_path / "new")
    said = import_to(source, root.path, "--partitions", "1", code=1)
    assert f"binlog.1, byte {4 + 4 * len(records[0])}: " in said
    assert "binlog.2, byte 0: has version" in said
    assert said.count("lost: binlog") == 2
    with root.serve() as server, server.connect() as client:
        assert [id for id in range(1, 30) if found(client, id) is not None] == [1, 2, 3, 4, 6, 7, 8, 9, 20]


def test_names_that_are_not_allowed_are_reported_or_repaired(tmp_path: Path) -> None:
    source = write_source(tmp_path / "old", V7.file(V7.put(1, b"x", b'quo"te'), V7.put(2)))
    said = import_to(source, tmp_path / "new", "--partitions", "1", code=1)
    assert "job 1: tube name 'quo\"te' is not allowed: left out" in said
    root = DataRoot(tmp_path / "repaired")
    import_to(source, root.path, "--partitions", "1", "--repair-names")
    with root.serve() as server, server.connect() as client:
        assert job_stats(client, 1)["tube"].strip('"') == "quo_te"


def test_a_dry_run_says_the_same_and_writes_nothing(tmp_path: Path) -> None:
    source = write_source(tmp_path / "old", V7.file(V7.put(1), b"\xff" * 50))
    before = checksums(tmp_path)
    done = beanfield("import", source, "--to", tmp_path / "new", "--dry-run", code=1)
    assert "dry run: nothing was written" in done.out
    assert "1 job (1 ready" in done.out
    assert checksums(tmp_path) == before
    real = beanfield("import", source, "--to", tmp_path / "new", code=1)
    assert real.err == done.err


def test_a_source_may_be_a_copy_without_lock_that_nobody_may_write(tmp_path: Path) -> None:
    source = write_source(tmp_path / "old", V7.file(V7.put(1)))
    for path in (source / "binlog.1", source):
        path.chmod(0o500)
    import_to(source, tmp_path / "new")
    source.chmod(0o700)
    assert sorted(path.name for path in source.iterdir()) == ["binlog.1"]


# ---------------------------------------------------------------- refusals
def test_a_target_that_is_not_new_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    source = write_source(tmp_path / "old", V7.file(V7.put(1)))
    root = tmp_path / "new"
    import_to(source, root)
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "letter").write_text("mine")
    for target in (root, foreign, source, tmp_path / "old" / "binlog.1"):
        before = checksums(tmp_path)
        for options in ([], ["--dry-run"]):
            beanfield("import", source, "--to", target, *options, code=None if target.is_file() else 65)
        assert checksums(tmp_path) == before


def test_a_directory_without_binlog_is_refused(tmp_path: Path) -> None:
    done = beanfield("import", tmp_path, "--to", tmp_path / "new", code=65)
    assert "has no binlog.N" in done.err
    beanfield("import", tmp_path / "nothing", "--to", tmp_path / "new", code=65)
    assert not (tmp_path / "new").exists()


def test_misuse_ends_with_its_own_code(tmp_path: Path) -> None:
    for words in (
        [],
        [tmp_path],
        [tmp_path, "--to", tmp_path / "x", "--slots", "0"],
        [tmp_path, "--to", tmp_path / "x", "--slots", "9", "--partitions", "8"],
        [tmp_path, "--to", tmp_path / "x", "--frob"],
    ):
        assert beanfield("import", *words, code=5).err.startswith("beanfield import: ")
    assert "--repair-names" in beanfield("import", "--help").out
    assert " import " in beanfield("--help").out


def test_a_disk_that_cannot_take_it_leaves_nothing_behind(tmp_path: Path) -> None:
    bodies = [V7.put(id, b"z" * 60_000) for id in range(1, 100)]
    source = write_source(tmp_path / "old", V7.file(*bodies))
    limit = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20));"
    run = "from beanfield.cli.main import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", limit + run, "import", source, "--to", tmp_path / "new"],
        env=program_environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 74, done.stderr
    assert "has been removed" in done.stderr
    assert sorted(os.listdir(tmp_path)) == ["old"]


def test_more_files_than_descriptors_can_be_written(tmp_path: Path) -> None:
    # Bodies of their own and short segments: over a thousand files.
    source = write_source(tmp_path / "old", V7.file(*[V7.put(id, b"z" * 5_000) for id in range(1, 900)]))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (160, hard))
    try:
        import_to(source, tmp_path / "new", "--slots", "1", "-s", "65536")
        assert beanfield("wal", "verify", tmp_path / "new").code == 0
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_jobs_are_served_in_the_old_order_over_all_tubes(tmp_path: Path) -> None:
    names = [b"default", b"a", b"emails", b"b"]
    # All at the same instant, as a coarse clock or a clock that ran back gives them.
    records = [V7.record(id, 1, names[id % 4], b"%d" % id, created_ns=CREATED_NS + S) for id in range(1, 41)]
    source = write_source(tmp_path / "old", V7.file(*records))
    root = DataRoot(tmp_path / "new", slots=3)
    import_to(source, root.path, "--partitions", "16", "--slots", "3")
    with root.serve() as server, server.connect() as client:
        for name in names:
            client.ask(b"watch " + name)
        assert [int(reserved(client)[1]) for _ in range(40)] == list(range(1, 41))
