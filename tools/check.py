"""What needs no running server: ruff, mypy --strict, and the tests of the sources in tests/tidy.

All of them run, also after one that failed.
"""

import subprocess
import sys

from environments import ensure
from project import ROOT, say

CHECKED = ("src", "tests", "sim", "tools", "build_backend", "benchmarks", "setup.py")


def check() -> list[str]:
    """What failed."""
    python = ensure("check") / "bin" / "python"
    present = [name for name in CHECKED if (ROOT / name).exists()]
    checks = {
        "ruff check": ["-m", "ruff", "check", "--quiet", *present],
        "mypy --strict": ["-m", "mypy", "-p", "beanfield"],
        "tests of the sources: pytest tests/tidy": ["-P", "-m", "pytest", "-q", "tests/tidy"],
    }
    failed = []
    for what, words in checks.items():
        say(what)
        if subprocess.run([python, *words], cwd=ROOT, stdin=subprocess.DEVNULL, check=False).returncode:
            failed.append(what)
    return failed


def main() -> None:
    failed = check()
    for what in failed:
        say(f"FAILED: {what}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
