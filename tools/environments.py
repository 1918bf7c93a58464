"""Makes the virtual environments: python3 tools/environments.py run|interpreted|compiled|check

A wheel is built outside the source tree, kept in .cache/wheels under the hash of what it was made from, and installed;
nothing is done again while that hash stays the same. BEANFIELD_VENVS names another folder for the environments, so that
several people can work in one checkout.
"""

import importlib.util
import os
import shutil
import sys
import venv
from pathlib import Path

from project import CACHE, ROOT, build_requirements, hash_of_sources, lock, pins, run, say

sys.path.insert(0, str(ROOT / "build_backend"))

PATHS = {"run": ".venv", "interpreted": ".venv-interpreted", "compiled": ".venv-compiled", "check": ".venv-check"}
GROUPS = {"run": (), "interpreted": ("test",), "compiled": ("test",), "check": ("check", "test", "compile")}
WHEELS_KEPT = 8
# Debian's Python comes without it, unless python3-venv is installed. Then the pip that runs outside does the work.
HAS_ENSUREPIP = importlib.util.find_spec("ensurepip") is not None


def path_of(name: str) -> Path:
    return Path(os.environ.get("BEANFIELD_VENVS", ROOT)).resolve() / PATHS[name]


def can_compile() -> bool:
    from compiler import is_compiled

    return is_compiled(os.environ)


def ensure(name: str) -> Path:
    """The environment, made or brought up to date. Returns its folder."""
    folder = path_of(name)
    with lock(f"venv-{name}"):
        requirements = pins(*GROUPS[name])
        if name == "check":  # its tests build packages
            requirements += build_requirements("interpreted")
        _ensure_requirements(folder, requirements)
        if name != "check":
            kind = "interpreted" if name == "interpreted" or not can_compile() else "compiled"
            _ensure_wheel(folder, kind)
    return folder


def _ensure_requirements(folder: Path, requirements: list[str]) -> None:
    wanted = f"{sys.version}\n" + "\n".join(requirements)
    stamp = folder / "requirements.stamp"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    say(f"making {folder.name}")
    venv.create(folder, with_pip=HAS_ENSUREPIP, clear=True)
    _pip(folder, "install", *requirements)
    stamp.write_text(wanted)


def _ensure_wheel(folder: Path, kind: str) -> None:
    digest = hash_of_sources(kind)
    stamp = folder / "wheel.stamp"
    if stamp.exists() and stamp.read_text() == digest:
        return
    with lock(f"wheel-{kind}"):
        wheel = _built_wheel(kind, digest)
    stamp.unlink(missing_ok=True)
    _pip(folder, "install", "--no-deps", "--force-reinstall", wheel)
    stamp.write_text(digest)


def _built_wheel(kind: str, digest: str) -> Path:
    shelf = CACHE / "wheels" / f"{kind}-{digest}"
    found = list(shelf.glob("*.whl"))
    if found:
        return found[0]
    builder = CACHE / f"builder-{kind}"
    # An own environment instead of pip's isolated one: mypy and Cython are fetched once, not for every build.
    _ensure_requirements(builder, build_requirements(kind))
    say(f"building the {kind} wheel" + (" (some minutes)" if kind == "compiled" else ""))
    environment = dict(os.environ, BEANFIELD_PURE="1" if kind == "interpreted" else "0")
    new = shelf.with_suffix(".new")
    shutil.rmtree(new, ignore_errors=True)
    _pip(builder, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", new, ROOT, env=environment)
    new.rename(shelf)
    _drop_old_wheels(shelf.parent)
    return next(shelf.glob("*.whl"))


def _drop_old_wheels(shelves: Path) -> None:
    by_age = sorted(shelves.iterdir(), key=lambda shelf: shelf.stat().st_mtime, reverse=True)
    for shelf in by_age[WHEELS_KEPT:]:
        shutil.rmtree(shelf, ignore_errors=True)


def _pip(folder: Path, *words: object, env: dict[str, str] | None = None) -> None:
    inside = folder / "bin" / "python"
    pip = [inside, "-m", "pip"] if HAS_ENSUREPIP else [sys.executable, "-m", "pip", "--python", inside]
    run([*pip, "--disable-pip-version-check", "-qq", *words], env=env)


def main() -> None:
    for name in sys.argv[1:]:
        ensure(name)
        if name in ("run", "compiled") and not can_compile():
            say("no C compiler found (or BEANFIELD_PURE is set): this is the interpreted build, slower but the same")


if __name__ == "__main__":
    main()
