"""The data root on real files: made, opened, refused; whatever is refused has not changed by one byte."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from beanfield.constants import EXIT_BAD_DATA
from beanfield.io.root import EXIT_LOCK, RootFault, create_root, open_or_create_root, open_root, read_topology
from beanfield.routing import Topology

TOPOLOGY = Topology(16, 3, None, bytes(range(16)))
OTHER = Topology(16, 3, None, bytes(16))


def fits(_found: Topology) -> None:
    """Options that say nothing else."""


def checksums(root: Path) -> dict[str, str]:
    """Of everything below, directories included."""
    found = {}
    for path in sorted(root.rglob("*")):
        found[str(path.relative_to(root))] = "" if path.is_dir() else hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def made(root: Path, topology: Topology = TOPOLOGY) -> None:
    create_root(str(root), topology).close()


def refused(root: Path, *words: str) -> RootFault:
    """Opening is refused with these words, and changes nothing."""
    before = checksums(root)
    with pytest.raises(RootFault) as caught:
        open_or_create_root(str(root), OTHER, fits)
    for word in words:
        assert word in str(caught.value)
    assert checksums(root) == before
    return caught.value


def test_a_root_that_was_made_opens_with_its_topology(tmp_path: Path) -> None:
    made(tmp_path)
    with open_root(str(tmp_path)) as root:
        assert root.topology.canonical_json() == TOPOLOGY.canonical_json()
        assert sorted(os.listdir(tmp_path / "slots")) == ["000", "001", "002"]
        assert root.slot_path(2) == str(tmp_path / "slots" / "002")
    with open_or_create_root(str(tmp_path), OTHER, fits) as root:
        assert root.topology.cluster_id == TOPOLOGY.cluster_id


def test_an_empty_directory_becomes_a_root(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "topology.json.tmp").write_text("{")
    with open_or_create_root(str(tmp_path), TOPOLOGY, fits) as root:
        assert root.topology is TOPOLOGY
    assert not (tmp_path / "topology.json.tmp").exists()


@pytest.mark.parametrize(
    "left", ["slots", "slots/000", "slots/000/identity", "slots/004/identity", "topology.json.tmp"]
)
def test_what_an_interrupted_creation_leaves_is_made_anew(tmp_path: Path, left: str) -> None:
    path = tmp_path / left
    if "." in left or "identity" in left:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("half")
    else:
        path.mkdir(parents=True)
    made(tmp_path)
    assert sorted(os.listdir(tmp_path / "slots")) == ["000", "001", "002"]


def test_a_missing_directory_is_not_made(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path / "file"):
        if path.name == "file":
            path.write_text("")
        with pytest.raises(RootFault) as caught:
            open_or_create_root(str(path), TOPOLOGY, fits)
        assert caught.value.exit_code == EXIT_LOCK
        assert f"failed to lock wal dir {path}" in caught.value.message
    assert not (tmp_path / "none").exists()


def test_a_root_in_use_is_refused(tmp_path: Path) -> None:
    made(tmp_path)
    holder = (
        "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.LOCK_EX); print(1, flush=True); input()"
    )
    command = [sys.executable, "-c", holder, str(tmp_path / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        assert refused(tmp_path, "failed to lock wal dir", "another server has it").exit_code == EXIT_LOCK
        other.communicate(b"\n")
    open_root(str(tmp_path)).close()


def test_logs_of_beanstalkd_are_refused_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "binlog.7").write_bytes(b"\7\0\0\0")
    assert refused(tmp_path, "binlog.7", "beanfield import", "nothing was changed").exit_code == EXIT_BAD_DATA
    with pytest.raises(RootFault):
        open_root(str(tmp_path))
    assert os.listdir(tmp_path) == ["binlog.7"]


def test_slot_data_without_a_topology_is_refused(tmp_path: Path) -> None:
    made(tmp_path)
    (tmp_path / "slots/001/segment.0000000001").write_bytes(b"x")
    (tmp_path / "topology.json").unlink()
    refused(tmp_path, "slots/001", "topology.json is missing", "nothing was changed")


def test_anything_else_in_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine")
    refused(tmp_path, "notes", "no data root")
    assert os.listdir(tmp_path) == ["notes"]


def test_a_missing_slot_is_refused(tmp_path: Path) -> None:
    made(tmp_path)
    (tmp_path / "slots/001/identity").unlink()
    refused(tmp_path, "slots/001/identity", "is missing")
    (tmp_path / "slots/001").rmdir()
    refused(tmp_path, "slots/001", "is missing")


def test_a_slot_of_another_server_or_place_is_refused(tmp_path: Path) -> None:
    made(tmp_path)
    ours = (tmp_path / "slots/002/identity").read_text()
    (tmp_path / "slots/002/identity").write_text(ours.replace("slot 2", "slot 1"))
    refused(tmp_path, "slots/002/identity", "says 'slot 1'")
    (tmp_path / "slots/002/identity").write_text(ours.replace(bytes(range(16)).hex(), bytes(16).hex()))
    refused(tmp_path, "slots/002/identity", "says 'cluster_id")
    (tmp_path / "slots/002/identity").write_text("beanfield slot 9\n")
    refused(tmp_path, "slots/002/identity", "damaged, or of another version")


def test_a_slot_too_many_is_refused(tmp_path: Path) -> None:
    made(tmp_path)
    (tmp_path / "slots/003").mkdir()
    refused(tmp_path, "slots/003", "belongs to no slot", "3 slots")


def test_a_broken_topology_is_refused(tmp_path: Path) -> None:
    made(tmp_path)
    good = (tmp_path / "topology.json").read_text()
    for broken, word in ((good[:-9], "not complete"), (good.replace("blake2b-64-minus-default", "md5"), "hash")):
        (tmp_path / "topology.json").write_text(broken)
        refused(tmp_path, "topology.json", word, "nothing was changed")
    (tmp_path / "topology.json").write_text(good.replace('"slots":3', '"slots":4'))
    refused(tmp_path, "slots/000/identity", "fingerprint")


def test_tools_can_look_without_a_lock(tmp_path: Path) -> None:
    assert read_topology(str(tmp_path)) is None
    assert os.listdir(tmp_path) == []
    made(tmp_path)
    found = read_topology(str(tmp_path))
    assert found is not None and found.fingerprint == TOPOLOGY.fingerprint
    with pytest.raises(RootFault) as caught:
        create_root(str(tmp_path), OTHER)
    assert "data root already" in caught.value.message
