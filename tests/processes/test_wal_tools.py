"""`beanfield wal` on real roots: what it says is so, it changes nothing, a salvaged root serves what was readable."""

import io
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from beanfield.cli.progress import BYTES, JOBS, Progress
from beanfield.io.new_root import NewRoot
from beanfield.io.root import RootFault, read_topology
from beanfield.routing import Topology
from beanfield.wal.records import PUT_BYTES
from tests.processes.offline import beanfield, checksums
from tests.processes.server import Client, program_environment
from tests.processes.wal_root import DataRoot, found, inserted, job_stats, kill_everything, reserved, stop

SLOTS = 2


class Filled:
    """A root with a few jobs in each state in each slot, whose server has ended."""

    def __init__(self, path: Path, crashed: bool = False, extra: list[str] | None = None) -> None:
        self.root = DataRoot(path, slots=SLOTS, extra=extra)
        self.ids: dict[int, list[int]] = {}
        with self.root.serve() as server, server.connect() as client:
            for slot in range(SLOTS):
                self.ids[slot] = self._fill(client, self.root.tube_of(slot))
            if crashed:
                kill_everything(server)
            else:
                stop(server)

    def _fill(self, client: Client, tube: str) -> list[int]:
        client.ask(b"use " + tube.encode())
        ids = [inserted(client, b"x" * 100 * number) for number in range(4)]
        assert client.ask(b"bury %d 5" % reserved(client, b"reserve-job %d" % ids[0])[0]) == b"BURIED"
        ids.append(inserted(client, delay=1_000))
        assert client.ask(b"delete %d" % ids.pop(3)) == b"DELETED"
        return ids

    def flip_first_put(self, slot: int) -> tuple[Path, int]:
        """A bit of the record that put the slot's first job; its file, and where it begins."""
        segment = self.root.segments(slot)[0]
        data = bytearray(segment.read_bytes())
        offset = data.index(self.root.tube_of(slot).encode()) - PUT_BYTES
        data[offset + 30] ^= 4
        segment.write_bytes(data)
        return segment, offset


def looked(command: str, path: Path, *options: str, code: int = 0) -> str:
    """What a command that reads only prints; the directory keeps every byte, name and time."""
    before = checksums(path)
    done = beanfield("wal", command, path, *options, code=code)
    assert checksums(path) == before
    return done.out


# ---------------------------------------------------------------- inspect and verify
@pytest.mark.parametrize("crashed", [False, True], ids=["stopped", "killed"])
def test_a_root_is_shown_as_it_is(tmp_path: Path, crashed: bool) -> None:
    filled = Filled(tmp_path / "root", crashed)
    path = filled.root.path
    said = looked("inspect", path)
    for slot in range(SLOTS):
        assert f"slot {slot}: sound" in said
        assert filled.root.tube_of(slot) in said
    assert "4: 2 ready, 1 delayed, 1 buried" in said
    assert "sound, 4 jobs" in looked("verify", path)
    before = checksums(path)
    facts = beanfield("wal", "inspect", path, "--json").json()
    assert checksums(path) == before
    assert (facts["format"], facts["kind"], facts["sound"], facts["damage"]) == (1, "root", True, [])
    assert (facts["partitions"], facts["slots_total"], facts["server_pid"]) == (256, SLOTS, None)
    for slot, figures in enumerate(facts["slots"]):
        ids = filled.ids[slot]
        assert (figures["ready"], figures["delayed"], figures["buried"]) == (2, 1, 1)
        assert (figures["id_min"], figures["id_max"]) == (min(ids), max(ids))
        assert figures["next_sequence"] == (65_536 if crashed else 5)
        assert figures["synced"]["file"] == figures["end"]["file"] == "segment.0000000001"
        assert figures["torn_bytes"] == 0
        assert 0 < figures["live_bytes"] < figures["allocated_bytes"]
    assert sum(tube["body_bytes"] for tube in facts["tubes"]) == SLOTS * (100 + 200 + 1)


def test_a_slot_directory_is_shown_on_its_own(tmp_path: Path) -> None:
    filled = Filled(tmp_path / "root")
    assert "slot 1: sound, 4 jobs" in looked("verify", filled.root.slot(1))
    # Far from its topology.json, which its identity tells as well.
    shutil.copytree(filled.root.slot(1), tmp_path / "alone")
    facts = beanfield("wal", "verify", tmp_path / "alone", "--json").json()
    assert (facts["kind"], facts["sound"], facts["topology_found_by_fingerprint"]) == ("slot", True, True)
    assert [slot["slot"] for slot in facts["slots"]] == [1]


def test_a_server_that_runs_is_noticed_and_not_disturbed(tmp_path: Path) -> None:
    root = DataRoot(tmp_path / "root", slots=SLOTS)
    with root.serve() as server, server.connect() as client:
        id = inserted(client, b"here")
        done = beanfield("wal", "inspect", root.path)
        assert "a server runs on it (process " in done.out
        pids = [server.pid, *(child.pid for child in server.children("owner"))]
        assert beanfield("wal", "verify", root.path, "--json").json()["server_pid"] in pids
        assert "a server runs on it" in beanfield("wal", "verify", root.slot(0)).out
        done = beanfield("wal", "salvage", root.path, "--to", tmp_path / "new", code=10)
        assert "a server runs on this data root" in done.err
        assert not (tmp_path / "new").exists()
        assert found(client, id) == b"here"
        stop(server)


def test_a_torn_tail_is_no_damage_and_its_size_is_told(tmp_path: Path) -> None:
    filled = Filled(tmp_path / "root", crashed=True)
    segment = filled.root.segments(0)[0]
    data = bytearray(segment.read_bytes())
    end = len(data.rstrip(b"\0")) + 64 & ~7
    data[end : end + 300] = b"t" * 300
    segment.write_bytes(data)
    assert "torn tail" in looked("inspect", filled.root.path)
    torn = beanfield("wal", "verify", filled.root.path, "--json").json()["slots"][0]["torn_bytes"]
    assert 300 <= torn <= 400
    with filled.root.serve() as server:
        stop(server)
    assert "torn tail" not in looked("inspect", filled.root.path)


def test_damage_is_named_by_file_and_offset_and_ends_with_a_code_of_its_own(tmp_path: Path) -> None:
    filled = Filled(tmp_path / "root")
    segment, offset = filled.flip_first_put(1)
    said = looked("verify", filled.root.path, code=1)
    assert "slot 0: sound" in said
    assert "slot 1: DAMAGED" in said
    assert f"DAMAGE: slot 1, {segment.name}, byte {offset}: not a record" in said
    assert "beanfield wal salvage" in said
    assert "jobs       3: 2 ready, 1 delayed, 0 buried" in looked("inspect", filled.root.path, code=1)
    facts = beanfield("wal", "verify", filled.root.path, "--json", code=1).json()
    assert not facts["sound"]
    assert facts["damage"][0]["file"] == segment.name
    assert facts["damage"][0]["advice"]
    filled.root.refused(segment.name, str(offset))


def test_what_is_wrong_with_the_root_itself_is_damage_too(tmp_path: Path) -> None:
    filled = Filled(tmp_path / "root")
    moved = filled.root.slot(1).rename(tmp_path / "moved")
    assert "slots/001: is missing" in looked("verify", filled.root.path, code=1)
    moved.rename(filled.root.slot(1))
    (filled.root.slot(0) / "identity").write_text("nonsense\n")
    assert "DAMAGE: slot 0, identity" in looked("verify", filled.root.path, code=1)
    shutil.copytree(filled.root.slot(1), filled.root.slot(7))
    assert "slots/007: belongs to no slot" in looked("verify", filled.root.path, code=1)


def test_what_is_no_root_is_refused(tmp_path: Path) -> None:
    assert "is no slot's directory" in beanfield("wal", "inspect", tmp_path, code=65).err
    (tmp_path / "binlog.1").write_bytes(b"\7\0\0\0")
    assert "beanfield import" in beanfield("wal", "verify", tmp_path, code=65).err
    beanfield("wal", "inspect", tmp_path / "nothing", code=65)


def test_misuse_of_the_log_tools_ends_with_its_own_code(tmp_path: Path) -> None:
    for words in ([], ["frob"], ["inspect"], ["verify", tmp_path, "--to", "x"], ["salvage", tmp_path]):
        assert "beanfield wal" in beanfield("wal", *words, code=5).err
    for words in (["--help"], ["inspect", "--help"], ["verify", "--help"], ["salvage", "--help"]):
        assert "beanfield wal" in beanfield("wal", *words).out


# ---------------------------------------------------------------- salvage
def salvaged(filled: Filled, target: Path, code: int = 1) -> DataRoot:
    before = checksums(filled.root.path)
    done = beanfield("wal", "salvage", filled.root.path, "--to", target, "-s", "65536", code=code)
    assert checksums(filled.root.path) == before
    assert ("damage: " in done.out) == (code == 1)
    return DataRoot(target, slots=SLOTS)


def test_a_damaged_root_is_salvaged_into_one_that_serves_what_was_readable(tmp_path: Path) -> None:
    filled = Filled(tmp_path / "root")
    filled.flip_first_put(1)
    lost = filled.ids[1][0]
    root = salvaged(filled, tmp_path / "new")
    assert "sound" in looked("verify", root.path)
    with root.serve() as server, server.connect() as client:
        for id in filled.ids[0] + filled.ids[1]:
            assert (found(client, id) is None) == (id == lost)
        assert job_stats(client, filled.ids[0][0])["state"] == "buried"
        assert job_stats(client, filled.ids[0][3])["state"] == "delayed"
        client.ask(b"use " + filled.root.tube_of(1).encode())
        assert inserted(client) > max(filled.ids[1])
        stop(server)


def test_a_sound_root_is_copied_as_it_is(tmp_path: Path) -> None:
    filled = Filled(tmp_path / "root", crashed=True)
    root = salvaged(filled, tmp_path / "new", code=0)
    old, new = (beanfield("wal", "inspect", path, "--json").json() for path in (filled.root.path, root.path))
    assert new["tubes"] == old["tubes"]
    assert new["cluster_id"] != old["cluster_id"]
    assert [slot["next_sequence"] for slot in new["slots"]] == [slot["next_sequence"] for slot in old["slots"]]


def test_a_root_without_topology_and_with_a_missing_slot_is_salvaged(tmp_path: Path) -> None:
    filled = Filled(tmp_path / "root")
    (filled.root.path / "topology.json").write_text("{")
    (filled.root.slot(0) / "lease").unlink()
    root = salvaged(filled, tmp_path / "new")
    with root.serve() as server, server.connect() as client:
        assert all(found(client, id) is not None for id in filled.ids[0] + filled.ids[1])
        assert inserted(client) > 65_536
        stop(server)
    shutil.rmtree(filled.root.slot(0))
    root = salvaged(filled, tmp_path / "again")
    with root.serve() as server, server.connect() as client:
        assert [found(client, id) is not None for id in filled.ids[0] + filled.ids[1]] == [False] * 4 + [True] * 4


def test_salvage_refuses_a_target_that_is_not_new(tmp_path: Path) -> None:
    filled = Filled(tmp_path / "root")
    before = checksums(tmp_path)
    beanfield("wal", "salvage", filled.root.path, "--to", filled.root.path, code=65)
    assert checksums(tmp_path) == before


# ---------------------------------------------------------------- roots that are not finished, progress
def test_a_root_that_was_not_finished_is_taken_by_nobody(tmp_path: Path) -> None:
    path = tmp_path / "new"
    unfinished = NewRoot(str(path), Topology(4, 2), 65_536, 0)
    with pytest.raises(RootFault, match="topology.json is missing"):
        read_topology(str(path))
    DataRoot(path).refused("topology.json is missing")
    unfinished.abandon()
    assert not path.exists()
    path.mkdir()
    (path / "lost+found").mkdir()
    NewRoot(str(path), Topology(4, 2), 65_536, 0).abandon()
    assert read_topology(str(path)) is None


def test_an_interrupted_salvage_leaves_nothing(tmp_path: Path) -> None:
    filled = Filled(tmp_path / "root")
    # Stops itself as a user would, once the new root is there.
    program = """
import os, signal, sys
from beanfield.cli import copy_root
class Interrupted(copy_root.Copying):
    def jobs(self, replay):
        assert os.path.isdir(sys.argv[-1])
        os.kill(os.getpid(), signal.SIGINT)
        return super().jobs(replay)
copy_root.Copying = Interrupted
from beanfield.cli.main import main
sys.exit(main())
"""
    words = ["wal", "salvage", str(filled.root.path), "--to", str(tmp_path / "new")]
    done = subprocess.run(
        [sys.executable, "-c", program, *words], env=program_environment(), capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (130, "beanfield wal: interrupted\n")
    assert not (tmp_path / "new").exists()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_shown_on_a_terminal_alone() -> None:
    for stream, quiet, shown in ((Terminal(), False, True), (Terminal(), True, False), (io.StringIO(), False, False)):
        for unit in (BYTES, JOBS):
            progress = Progress("importing", 1_000, unit, quiet, stream)
            progress.advance(1_000)
            progress.end()
            progress.end()
        assert ("importing" in stream.getvalue()) == shown


def test_a_server_never_loads_what_only_tools_need() -> None:
    program = (
        "import sys, beanfield.cli.main, beanfield.cli.serve, beanfield.supervisor.main, beanfield.child;"
        "sys.exit(any(name in sys.modules for name in ('tqdm', 'argparse', 'beanfield.offline', 'beanfield.cli.wal')))"
    )
    done = subprocess.run([sys.executable, "-c", program], env=program_environment(), timeout=60)
    assert done.returncode == 0
