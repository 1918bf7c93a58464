"""What needs no running server: ruff, mypy --strict, and the tests of the sources in tests/tidy."""

import sys

from environments import ensure
from project import ROOT, run, say

sys.path.insert(0, str(ROOT / "build_backend"))

CHECKED = ("src", "tests", "sim", "tools", "build_backend", "benchmarks", "setup.py")


def main() -> None:
    python = ensure("check") / "bin" / "python"
    present = [name for name in CHECKED if (ROOT / name).exists()]
    say("ruff check")
    run([python, "-m", "ruff", "check", "--quiet", *present], cwd=ROOT)
    say("mypy --strict src")
    run([python, "-m", "mypy", "-p", "beanfield"], cwd=ROOT)
    say("tests of the sources: pytest tests/tidy")
    run([python, "-P", "-m", "pytest", "-q", "tests/tidy"], cwd=ROOT)


if __name__ == "__main__":
    main()
