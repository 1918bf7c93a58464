"""What the tools share: the project's folder, its pins, locks and the hash of what goes into a build.

Standard library only: this runs on the Python of a fresh machine.
"""

import contextlib
import fcntl
import hashlib
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache"


def say(text: str) -> None:
    print(f"== {text}", flush=True)


def run(command: Sequence[object], **options: object) -> None:
    """Run a command to its end, with no input; its failure ends the tool with its exit code."""
    words = [str(word) for word in command]
    result = subprocess.run(words, stdin=subprocess.DEVNULL, **options)  # type: ignore[call-overload]
    if result.returncode:
        say(f"failed with {result.returncode}: {' '.join(words)}")
        sys.exit(result.returncode)


def pins(*groups: str) -> list[str]:
    """The runtime requirements and those of the given groups of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    names = list(project["project"]["dependencies"])
    for group in groups:
        names += project["dependency-groups"][group]
    return sorted(set(names))


def build_requirements(kind: str) -> list[str]:
    requires: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    return requires if kind == "interpreted" else sorted({*requires, *pins("compile")})


def hash_of_sources(kind: str) -> str:
    """Changes with anything that a wheel of this kind is made from, and with the Python it is made for."""
    digest = hashlib.sha256(f"{kind} {sys.version} {sys.platform}".encode())
    inputs = [ROOT / "pyproject.toml", ROOT / "setup.py"]
    for folder in ("src", "build_backend"):
        inputs += [p for p in (ROOT / folder).rglob("*") if p.suffix in (".py", ".pyx", ".pyi", ".typed")]
    for path in sorted(inputs):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(ROOT)} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:20]


@contextlib.contextmanager
def lock(name: str) -> Iterator[None]:
    """One tool at a time: two `make` in one folder wait for each other instead of building twice."""
    CACHE.mkdir(exist_ok=True)
    with open(CACHE / f"{name}.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
