"""Data roots that a server must not touch: each start is refused with a message, and not one byte has changed.

The message names the file and, where there is one, the offset, and says what to do. DataRoot.refused compares the
checksums of everything before and after.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.processes.server import SERVE, Server, program_environment, where_options
from tests.processes.wal_root import DataRoot, found, inserted, kill_everything, stop, wait_until_served

EXIT_LOCK = 10
EXIT_BAD_OPTION = 64
EXIT_BAD_DATA = 65
HEADER = 512  # of a segment
SHAPES = [(1, 0), (1, 1), (2, 1)]


def filled(tmp_path: Path, slots: int = 1, frontends: int = 1) -> tuple[DataRoot, list[int]]:
    """A root with jobs in several segments of every slot, ended by a clean stop; the ids."""
    root = DataRoot(tmp_path / "root", slots, frontends, ["-f", "0", "-s", "65536"])
    ids = []
    with root.serve() as server, server.connect() as client:
        for slot in range(slots):
            client.ask(b"use %s" % root.tube_of(slot).encode())
            ids += [inserted(client, b"%d" % number * 1500) for number in range(60)]
        stop(server)
    assert len(root.segments()) >= 3
    return root, ids


def flip(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 1]))


# ---------------------------------------------------------------- the root
def test_a_missing_directory_ends_as_with_beanstalkd(tmp_path: Path) -> None:
    missing = tmp_path / "none"
    done = subprocess.run(
        [sys.executable, "-m", "beanfield.cli.beanfieldd", *where_options(("127.0.0.1", 0)), "-b", str(missing)],
        env=program_environment(), capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert done.returncode == EXIT_LOCK
    assert done.stderr.splitlines()[-1] == f"beanfieldd: failed to lock wal dir {missing}"
    assert not missing.exists()


@pytest.mark.parametrize("shape", SHAPES)
def test_a_second_server_on_the_same_root_ends_as_with_beanstalkd(tmp_path: Path, shape: tuple[int, int]) -> None:
    root = DataRoot(tmp_path / "root", *shape)
    with root.serve() as server, server.connect() as client:
        id = inserted(client)
        root.wait_until_quiet()
        said = root.refused(f"beanfield serve: failed to lock wal dir {root.path}\n", code=EXIT_LOCK)
        assert "another server has it" in said
        assert found(client, id) == b"x"


def test_a_refused_start_leaves_no_socket_behind(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    done = subprocess.run(
        [*SERVE, "-l", f"unix:{path}", "-b", str(tmp_path / "none")],
        env=program_environment(), capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert done.returncode == EXIT_LOCK
    assert not path.exists()


def test_the_stored_topology_counts_where_nothing_is_given(tmp_path: Path) -> None:
    """A host with other cores must still start."""
    root, ids = filled(tmp_path, slots=3, frontends=1)
    root.slots = 3
    with Server(3, 1, ["-b", str(root.path)]) as server:
        assert len(server.children("owner")) == 3
        stop(server)
    process = subprocess.Popen(
        [*SERVE, "-l", f"unix:{tmp_path / 'socket'}", "-b", str(root.path)],
        env=program_environment(), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if "serving on" in line:
                assert "3 slots" in line
                break
    finally:
        process.terminate()
        process.communicate(timeout=30)
    assert process.returncode == 0


def test_options_that_differ_from_the_stored_topology_are_refused(tmp_path: Path) -> None:
    root, _ = filled(tmp_path, slots=2)
    root.refused("topology.json says 2 slots, --slots says 3", "beanfield resize", "nothing was changed",
                 options=["--slots", "3"], code=EXIT_BAD_OPTION)  # fmt: skip
    root.refused("topology.json says 256 partitions, --partitions says 64", "nothing was changed",
                 options=["--partitions", "64"], code=EXIT_BAD_OPTION)  # fmt: skip
    root.refused("2 slots", "--frontends 0", options=["--frontends", "0"], code=EXIT_BAD_OPTION)


def test_a_root_with_another_map_or_hash_is_refused(tmp_path: Path) -> None:
    root, _ = filled(tmp_path, slots=2)
    topology = root.path / "topology.json"
    good = topology.read_text()
    topology.write_text(good.replace("blake2b-64-minus-default", "crc32"))
    root.refused("topology.json", 'hash is "crc32"', "nothing was changed", code=EXIT_BAD_DATA)
    topology.write_text(good.replace('"map":[0,1,', '"map":[1,0,'))
    root.refused("slots/000/identity", "fingerprint", "nothing was changed", code=EXIT_BAD_DATA)
    topology.write_text(good.replace('"format":1', '"format":2'))
    root.refused("topology.json", "format version is 2, this program knows 1", code=EXIT_BAD_DATA)
    topology.unlink()
    root.refused("slots/000", "topology.json is missing", code=EXIT_BAD_DATA)


def test_a_root_of_beanstalkd_is_refused_with_the_way_to_import_it(tmp_path: Path) -> None:
    root = DataRoot(tmp_path / "root")
    (root.path / "binlog.1").write_bytes(b"\x07\0\0\0" + bytes(100))
    root.refused("binlog.1", f"beanfield import {root.path} --to NEW_DIR", "nothing was changed", code=EXIT_BAD_DATA)
    assert os.listdir(root.path) == ["binlog.1"]


def test_a_slot_directory_that_is_missing_or_from_elsewhere_is_refused(tmp_path: Path) -> None:
    root, _ = filled(tmp_path, slots=2)
    (tmp_path / "b").mkdir()
    other, _ = filled(tmp_path / "b", slots=2)
    kept = root.slot(1).rename(tmp_path / "kept")
    root.refused("slots/001", "is missing", "nothing was changed", code=EXIT_BAD_DATA)
    shutil.copytree(other.slot(1), root.slot(1))
    root.refused("slots/001/identity", "cluster_id", "nothing was changed", code=EXIT_BAD_DATA)
    shutil.rmtree(root.slot(1))
    shutil.copytree(root.slot(0), root.slot(1))
    root.refused("slots/001/identity", "slot 0", "nothing was changed", code=EXIT_BAD_DATA)
    shutil.rmtree(root.slot(1))
    kept.rename(root.slot(1))
    with root.serve():
        pass


# ---------------------------------------------------------------- the logs
def flipped_byte(root: DataRoot) -> None:
    flip(root.segments()[0], HEADER + 5000)


def flipped_byte_in_a_header(root: DataRoot) -> None:
    flip(root.segments()[1], 20)


def missing_middle(root: DataRoot) -> None:
    root.segments()[1].unlink()


def truncated(root: DataRoot) -> None:
    os.truncate(root.segments()[0], 40_000)


def missing_lease(root: DataRoot) -> None:
    (root.slot(0) / "lease").unlink()


def two_exchanged(root: DataRoot) -> None:
    first, second = root.segments()[:2]
    first.rename(root.slot(0) / "away")
    second.rename(first)
    (root.slot(0) / "away").rename(second)


def strange_segment(root: DataRoot) -> None:
    (root.slot(0) / "segment.7").write_bytes(b"")


DAMAGES: list[tuple[Callable[[DataRoot], None], str, str]] = [
    (flipped_byte, "segment.0000000001, byte 5", "not a record"),
    (flipped_byte_in_a_header, "segment.0000000002, byte 0", "damaged header"),
    (missing_middle, "segment.0000000002", "is missing"),
    (truncated, "segment.0000000001, byte 0", "has 40000 bytes, must have 65536"),
    (missing_lease, "lease", "is missing, but"),
    (two_exchanged, "segment.0000000001, byte 0", "is segment 2, under the name of another one"),
    (strange_segment, "segment.7", "is no file of this log"),
]


@pytest.mark.parametrize("damage,where,what", DAMAGES)
@pytest.mark.parametrize("shape", SHAPES)
def test_damage_refuses_the_whole_start(
    tmp_path: Path, shape: tuple[int, int], damage: Callable[[DataRoot], None], where: str, what: str
) -> None:
    root, _ = filled(tmp_path, *shape)
    damage(root)
    shown = ["--slots", str(shape[0]), "--frontends", str(shape[1])]
    said = root.refused(f"slots/000/{where}", what, "nothing was changed", options=shown, code=EXIT_BAD_DATA)
    assert "the server does not start" in said


def test_a_segment_of_another_server_is_refused(tmp_path: Path) -> None:
    root, _ = filled(tmp_path)
    (tmp_path / "b").mkdir()
    other, _ = filled(tmp_path / "b")
    shutil.copy(other.segments()[0], root.segments()[0])
    root.refused("segment.0000000001, byte 0", "belongs to another server", code=EXIT_BAD_DATA)


def test_a_torn_tail_is_cut_and_reported_with_its_size(tmp_path: Path) -> None:
    root, ids = filled(tmp_path)
    # Not synced before the kill, however late it comes: then no mark behind the record says that it had been.
    with root.serve(["-f", "60000"]) as server, server.connect() as client:
        last = inserted(client, b"t" * 100)
        kill_everything(server)
    segment = max(root.segments(), key=lambda path: path.read_bytes().find(b"t" * 100))
    at = segment.read_bytes().find(b"t" * 100)
    flip(segment, at + 99)
    with root.serve() as server, server.connect() as client:
        assert f"slots/000/{segment.name}, byte " in server.log() and "a torn tail of" in server.log()
        assert found(client, last) is None
        assert all(found(client, id) is not None for id in ids)
        assert inserted(client, b"after") > last
        kill_everything(server)
    with root.serve() as server, server.connect() as client:
        assert "torn" not in server.log()


def test_damage_of_one_slot_later_leaves_the_others_serving(tmp_path: Path) -> None:
    root, ids = filled(tmp_path, slots=2)
    near, far = ids[:60], ids[60:]
    with root.serve(["--slot-wait", "60"]) as server, server.connect() as client:
        before = [path.read_bytes() for path in root.segments(0)]
        flip(root.segments(1)[0], HEADER + 5000)
        server.kill("owner", 1)
        server.wait_for_log("slot 1 is unavailable")
        assert "slots/001/segment.0000000001, byte 5" in server.log()
        assert found(client, near[3]) == b"3" * 1500
        # Not waited for, though --slot-wait is a minute.
        assert client.ask(b"peek %d" % far[3]) == b"INTERNAL_ERROR"
        assert client.stats()["slots-available"] == "1"
        assert [path.read_bytes() for path in root.segments(0)][0] == before[0]
        # Mended, it comes back without a restart of the server.
        flip(root.segments(1)[0], HEADER + 5000)
        wait_until_served(client, far[3])
        assert found(client, far[3]) == b"3" * 1500
