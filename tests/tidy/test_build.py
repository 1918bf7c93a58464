"""How a build is chosen and what goes into it: build_backend and the pins of pyproject.toml."""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.tidy.rules import ROOT

sys.path.insert(0, str(ROOT / "build_backend"))

from compiled_modules import compiled_modules, pure_modules, read_rules
from compiler import find_compiler, is_compiled


def build(what: str, target: Path) -> Path:
    """Calls one function of the backend as pip does: in a process of its own, in the project's folder."""
    code = f"import backend; print(backend.build_{what}({str(target)!r}))"
    environment = dict(os.environ, BEANFIELD_PURE="1", PYTHONPATH=str(ROOT / "build_backend"))
    command = [sys.executable, "-c", code]
    told = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True).stdout
    return target / told.splitlines()[-1]


@pytest.fixture
def folder_with_gcc(tmp_path: Path) -> str:
    compiler = tmp_path / "gcc"
    compiler.write_text("#!/bin/sh\n")
    compiler.chmod(0o755)
    return str(tmp_path)


def test_a_compiler_makes_a_compiled_build(folder_with_gcc: str) -> None:
    assert is_compiled({"PATH": folder_with_gcc})


def test_no_compiler_makes_an_interpreted_build(tmp_path: Path) -> None:
    assert find_compiler({"PATH": str(tmp_path)}) is None
    assert not is_compiled({"PATH": str(tmp_path)})


def test_a_named_compiler_is_used_and_no_other(folder_with_gcc: str) -> None:
    assert find_compiler({"PATH": folder_with_gcc, "CC": "gcc -m64"}) == "gcc -m64"
    assert find_compiler({"PATH": folder_with_gcc, "CC": "no-such-compiler"}) is None


@pytest.mark.parametrize(("value", "compiled"), [("1", False), ("yes", False), ("0", True), ("", True)])
def test_pure_may_be_asked_for(folder_with_gcc: str, value: str, compiled: bool) -> None:
    assert is_compiled({"PATH": folder_with_gcc, "BEANFIELD_PURE": value}) == compiled


def test_every_requirement_is_pinned_to_one_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = [project["build-system"]["requires"], project["project"]["dependencies"]]
    groups += project["dependency-groups"].values()
    versions: dict[str, str] = {}
    for requirement in (name for group in groups for name in group):
        match = re.fullmatch(r"([\w-]+)==([\w.]+)", requirement)
        assert match, f"{requirement} is not pinned"
        name, version = match.groups()
        assert versions.setdefault(name, version) == version, f"two versions of {name}"


def test_the_compiled_unit_is_sorted_and_leaves_out_markers_and_what_is_cold() -> None:
    unit = compiled_modules(ROOT)
    assert unit == sorted(unit)
    assert "src/beanfield/constants.py" in unit
    assert "src/beanfield/ipc/frames.py" in unit
    assert not [path for path in unit if path.endswith("__init__.py")]
    assert not [path for path in unit if path.split("/")[2] in ("cli", "supervisor", "build.py")]
    hot_io = [f"src/beanfield/io/{name}.py" for name in ("log_driver", "loop", "page", "slot_log")]
    assert [path for path in unit if path.split("/")[2] == "io"] == hot_io


def test_loops_are_compiled_but_not_taken_for_pure() -> None:
    loops = read_rules(ROOT)["compiled_loops"]
    assert isinstance(loops, list)
    for name in loops:
        assert f"src/beanfield/{name}" in compiled_modules(ROOT)
        assert f"src/beanfield/{name}" not in pure_modules(ROOT)


def test_the_interpreted_wheel_holds_the_package_its_licence_and_nothing_else(tmp_path: Path) -> None:
    wheel = build("wheel", tmp_path)
    assert wheel.name.endswith("-py3-none-any.whl")
    names = zipfile.ZipFile(wheel).namelist()
    sources = {f"beanfield/{name}" for name in ("io/_reactor.pyx", "io/_sync_thread.pyx", "proto/parser.py")}
    assert sources | {"beanfield/py.typed"} <= set(names)
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert {name.split("/")[0].split("-")[0] for name in names} == {"beanfield"}


def test_the_source_archive_holds_what_a_compiled_build_needs(tmp_path: Path) -> None:
    with tarfile.open(build("sdist", tmp_path)) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    needed = ["build_backend/backend.py", "setup.py", "pyproject.toml", "src/beanfield/io/_reactor.pyx", "LICENSE"]
    needed += ["src/beanfield/io/_sync_thread.pyx"]
    assert set(needed) | set(compiled_modules(ROOT)) <= names


def test_building_leaves_nothing_in_the_source_tree(tmp_path: Path) -> None:
    before = sorted((ROOT / "src").glob("*"))
    build("wheel", tmp_path)
    assert sorted((ROOT / "src").glob("*")) == before
    assert not (ROOT / "build").exists()
