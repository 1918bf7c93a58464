"""Runs the tests of the installed builds: python3 tools/test.py [interpreted] [compiled] [-- pytest's arguments]

Each build is installed into its own environment and tested there; the tests cannot see src. Tests that start servers
run one after the other, all others on two cores. With arguments for pytest there is one run, with exactly these.
"""

import os
import sys

from environments import can_compile, ensure
from project import ROOT, run, say

# Folders of tests that start real processes: how a server behaves beside a second busy test run is not what they test.
SERIAL = ("processes", "clients", "transcripts", "oracle", "benchmarks")
# These look at the sources and run once, by make check.
SOURCES_ONLY = ("tidy",)


def folders(serial: bool) -> list[str]:
    found = [path for path in sorted((ROOT / "tests").iterdir()) if path.is_dir() and any(path.rglob("test_*.py"))]
    names = [path.name for path in found if path.name not in SOURCES_ONLY and (path.name in SERIAL) == serial]
    return [f"tests/{name}" for name in names]


def test(build: str, arguments: list[str]) -> None:
    folder = ensure(build)
    # The environment's own commands come first: tests start `beanfield` and `beanfieldd` by name.
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = dict(os.environ, BEANFIELD_BUILD=build, PATH=path)
    environment.pop("PYTHONPATH", None)
    runs = [arguments] if arguments else [["-n", "2", *folders(False)], folders(True)]
    for words in runs:
        if not any(word.startswith("tests") for word in words):
            continue
        say(f"{build} build: pytest {' '.join(words)}")
        run([folder / "bin" / "python", "-P", "-m", "pytest", *words], env=environment, cwd=ROOT)


def main() -> None:
    words = sys.argv[1:]
    arguments = words[words.index("--") + 1 :] if "--" in words else []
    builds = words[: words.index("--")] if "--" in words else words
    for build in builds or ["interpreted", "compiled"]:
        if build == "compiled" and not can_compile():
            say("no C compiler found (or BEANFIELD_PURE is set): only the interpreted build is tested")
            continue
        test(build, arguments)


if __name__ == "__main__":
    main()
