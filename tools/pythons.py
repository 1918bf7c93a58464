"""Builds, installs and imports both builds on every Python 3.11 to 3.14 found here: make test-pythons. Not part of CI.

Looks on the PATH and where pyenv keeps its versions. Says which it found; finding only one is not an error.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from environments import can_compile
from project import ROOT, pins, run, say

WANTED = [(3, minor) for minor in range(11, 15)]
# Runs in the new environment: every module of the package, and what it says of itself.
LOOK = """
import importlib, json, pkgutil, beanfield
from beanfield import build
names = [m.name for m in pkgutil.walk_packages(beanfield.__path__, "beanfield.") if not m.name.endswith("__main__")]
for name in names:
    importlib.import_module(name)
print(json.dumps([build.BUILD, len(names)]))
"""


def version_of(python: Path) -> tuple[int, int] | None:
    question = "import sys; print(sys.version_info[0], sys.version_info[1])"
    result = subprocess.run([python, "-c", question], capture_output=True, text=True, check=False)
    match = re.fullmatch(r"(\d+) (\d+)\n", result.stdout)
    return (int(match[1]), int(match[2])) if match else None


def find_pythons() -> dict[tuple[int, int], Path]:
    candidates = sorted(Path.home().glob(".pyenv/versions/3.*/bin/python3"))
    candidates += [Path(path) for minor in WANTED if (path := shutil.which(f"python3.{minor[1]}"))]
    found = {version: path for path in [Path(sys.executable), *candidates] if (version := version_of(path)) in WANTED}
    return dict(sorted(found.items()))


def try_build(python: Path, build: str, folder: Path) -> None:
    run([python, "-m", "venv", folder])
    inside = folder / "bin" / "python"
    environment = dict(os.environ, BEANFIELD_PURE="1" if build == "interpreted" else "0")
    # As a user does it: one pip install, with pip's own isolated build.
    run([inside, "-m", "pip", "--disable-pip-version-check", "-qq", "install", ROOT], env=environment)
    answer = subprocess.run([inside, "-c", LOOK], capture_output=True, text=True, cwd=folder, check=False)
    if answer.returncode:
        sys.exit(f"importing failed:\n{answer.stderr}")
    told, count = json.loads(answer.stdout)
    if told != build:
        sys.exit(f"asked for the {build} build, got the {told} one")
    say(f"{build}: {count} modules import, {len(pins())} requirements")


def main() -> None:
    found = find_pythons()
    missing = ["{}.{}".format(*version) for version in WANTED if version not in found]
    say(f"not found here: Python {', '.join(missing)}" if missing else "all of Python 3.11 to 3.14 found")
    for version, python in found.items():
        for build in ("interpreted", "compiled") if can_compile() else ("interpreted",):
            say("Python {}.{}, {}".format(*version, build))
            with tempfile.TemporaryDirectory(prefix="beanfield-python-") as folder:
                try_build(python, build, Path(folder, "venv"))


if __name__ == "__main__":
    main()
