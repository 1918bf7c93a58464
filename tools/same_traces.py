"""The same seeds give the same traces in both builds: the compiled code does what the interpreted code does.

Each build also gets another hash seed, so that nothing depends on the order of a set. Returns what differs.
"""

import os
import re
import subprocess

from environments import ensure
from project import ROOT, say

SEEDS = "1..30"
HASH_SEEDS = {"interpreted": "1", "compiled": "2"}


def compare() -> list[str]:
    """What failed."""
    what = f"same traces in both builds: python -m sim --seeds {SEEDS}"
    say(what)
    hashes = {build: traces(build) for build in HASH_SEEDS}
    one, other = hashes.values()
    different = sorted(seed for seed in one.keys() | other.keys() if one.get(seed) != other.get(seed))
    if one and not different:
        print(f"{len(one)} seeds, the same traces", flush=True)
        return []
    return [f"{what}: seeds {', '.join(map(str, different)) or 'did not run'} differ or failed"]


def traces(build: str) -> dict[int, str]:
    """The hash of the trace of each seed that held."""
    python = ensure(build) / "bin" / "python"
    environment = dict(os.environ, PYTHONHASHSEED=HASH_SEEDS[build])
    command = [python, "-m", "sim", "--seeds", SEEDS, "--keep-going"]
    told = subprocess.run(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    failed = [line for line in told.stdout.splitlines() if not line.startswith("ok ")]
    print("\n".join(failed) + told.stderr, end="", flush=True)
    return {int(seed): trace for seed, trace in re.findall(r"^ok seed=(\d+) hash=(\w+)", told.stdout, re.MULTILINE)}
