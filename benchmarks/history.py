"""history.jsonl: one line per full run, and what has changed since the last one that can be compared with.

Lines are compared by their ratios to beanstalkd, which meets the same machine in the same minutes; figures of two days
differ by more than most changes do.
"""

import json
import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any, Final

from beanfield import PROTOCOL_VERSION
from beanfield.build import BUILD
from beanfield.io.machine import usable_cores, usable_memory_bytes
from beanfield.io.poller import build_name

ROOT: Final = Path(__file__).resolve().parent.parent
HISTORY: Final = ROOT / "benchmarks" / "history.jsonl"
FORMAT: Final = 1
NOISE: Final = 0.15  # a change of a ratio within this is no finding

Line = dict[str, Any]


def head_of_line() -> Line:
    """Which code was measured, and where."""
    return {
        "format": FORMAT,
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": _git("rev-parse", "HEAD") or None,
        "changed_since_commit": bool(_git("status", "--porcelain", "--", "src", "build_backend", "setup.py")),
        "version": PROTOCOL_VERSION,
        "build": BUILD,
        "reactor": build_name(),
        "machine": {
            "cpu": _cpu_model(),
            "cores": usable_cores(),
            "memory_bytes": usable_memory_bytes(),
            "kernel": platform.release(),
            "python": platform.python_version(),
        },
        # What else the machine was doing: with more than a core's worth of it, figures say little and ratios less.
        "load_average": round(os.getloadavg()[0], 1),
    }


def append(line: Line, path: Path) -> None:
    with path.open("a") as file:
        file.write(json.dumps(line, separators=(",", ":")) + "\n")


def last_like(line: Line, path: Path) -> Line | None:
    """The last line of the same build on a machine of the same kind."""
    if not path.exists():
        return None
    found = None
    for text in path.read_text().splitlines():
        earlier: Line = json.loads(text)
        alike = all(earlier["machine"].get(key) == line["machine"][key] for key in ("cpu", "cores"))
        if alike and earlier["format"] == FORMAT and earlier["build"] == line["build"]:
            found = earlier
    return found


def changes(line: Line, earlier: Line) -> list[str]:
    """A sentence for each speed that has moved, against beanstalkd's, by more than noise."""
    found = []
    for name, row in line["rows"].items():
        for shape, ratio in row["ratios"].items():
            now = ratio.get("commands_per_s")
            before = earlier["rows"].get(name, {}).get("ratios", {}).get(shape, {}).get("commands_per_s")
            if now and before and abs(now / before - 1) > NOISE:
                word = "slower" if now < before else "faster"
                found.append(f"{word}: {name}, {shape}: {now:.2f} times beanstalkd's speed, was {before:.2f}")
    return found


def _git(*words: str) -> str:
    try:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or os.uname().machine
