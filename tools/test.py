"""Runs checks and tests: python3 tools/test.py [sources] [interpreted] [compiled] [-- pytest's arguments]

`sources` is what tools/check.py does. Each build is installed into its own environment and tested there; the tests
cannot see src. Tests that start servers run one after the other, all others on two cores. All runs are made, also after
one that failed; then the exit code says so. With arguments for pytest there is one run, with exactly these.
"""

import os
import subprocess
import sys

from check import check
from environments import can_compile, ensure
from project import ROOT, say
from same_traces import compare

# How a folder is run. Transcripts mostly wait for time to pass, so several servers are asked at once; tests that kill,
# stop or load servers run alone, since how they behave beside another busy run is not what they test.
WAITING = ("transcripts",)
ALONE = ("benchmarks", "clients", "oracle", "processes")
# These look at the sources and run once, by make check.
SOURCES_ONLY = ("tidy",)


def runs() -> list[list[str]]:
    """The arguments of each pytest run."""
    found = [path.name for path in sorted((ROOT / "tests").iterdir()) if path.is_dir() and any(path.rglob("test_*.py"))]
    others = [name for name in found if name not in WAITING + ALONE + SOURCES_ONLY]
    chosen = [
        (["-n", "2"], others),
        (["-n", "4", "--dist", "loadgroup"], [name for name in found if name in WAITING]),
        ([], [name for name in found if name in ALONE]),
    ]
    return [[*options, *(f"tests/{name}" for name in names)] for options, names in chosen if names]


def test(build: str, arguments: list[str]) -> list[str]:
    """Runs them against one build. Returns the runs that failed."""
    folder = ensure(build)
    # The environment's own commands come first: tests start `beanfield` and `beanfieldd` by name.
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = dict(os.environ, BEANFIELD_BUILD=build, PATH=path)
    environment.pop("PYTHONPATH", None)
    failed = []
    for words in [arguments] if arguments else runs():
        what = f"{build} build: pytest {' '.join(words)}"
        say(what)
        command = [folder / "bin" / "python", "-P", "-m", "pytest", *words]
        if subprocess.run(command, env=environment, cwd=ROOT, stdin=subprocess.DEVNULL, check=False).returncode:
            failed.append(what)
    return failed


def main() -> None:
    words = sys.argv[1:]
    arguments = words[words.index("--") + 1 :] if "--" in words else []
    builds = (words[: words.index("--")] if "--" in words else words) or ["sources", "interpreted", "compiled"]
    failed = []
    for build in builds:
        if build == "sources":
            failed += check()
            continue
        if build == "compiled" and not can_compile():
            say("no C compiler found (or BEANFIELD_PURE is set): only the interpreted build is tested")
            continue
        failed += test(build, arguments)
    if {"interpreted", "compiled"} <= set(builds) and can_compile() and not arguments:
        failed += compare()
    for what in failed:
        say(f"FAILED: {what}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
