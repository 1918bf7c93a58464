"""What each process of a server spends per command: user and system time, and with --calls its system calls.

    python -m benchmarks.roles                                      lockstep64 and pipelined16, split and combined
    python -m benchmarks.roles --only lockstep64,body16k --shapes split
    python -m benchmarks.roles --calls                              strace too: calls per command and their bytes

Rows and shapes are those of benchmarks/rows.py. CPU time is what the kernel counts for each process while the load is
measured: to the nanosecond in all, divided into user and system by its clock ticks. All servers are measured in turn,
and of several rounds the one with the least is shown: what else the machine does only adds. A server under strace is
many times slower, so more comes together in a turn than without: a call per turn looks cheaper there than it is.
"""

import argparse
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from beanfield.bench.generator import Result, Watcher, generate  # noqa: E402
from beanfield.bench.plan import Load  # noqa: E402
from beanfield.bench.servers import RunningServer  # noqa: E402
from beanfield.build import BUILD  # noqa: E402
from benchmarks.rows import ROWS, SHAPE_OPTIONS, Row  # noqa: E402
from benchmarks.run import servers_of  # noqa: E402

DEFAULT_ROWS: Final = "lockstep64,pipelined16"
CALL: Final = re.compile(r"^(?:\d+ +)?(?:[\d.]+ )?(\w+)\(.*\)\s+= (-?\d+)", re.MULTILINE)
RESUMED: Final = re.compile(r"^(?:\d+ +)?<\.\.\. (\w+) resumed>.*\)\s+= (-?\d+)", re.MULTILINE)
MOVES_BYTES: Final = ("recvfrom", "recvmsg", "sendmsg", "sendto", "read", "write", "writev")

Times = tuple[float, float, float]  # seconds: all, and by ticks user and system


def title_of(pid: int) -> str:
    """`owner 0`, `frontend 1`, or the name of the program."""
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode()
    return words.removeprefix("beanfield: ") if words.startswith("beanfield: ") else Path(words).name


def times_of(pid: int) -> Times:
    """CPU time of all threads of a process."""
    spent_ns = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        spent_ns += int((task / "schedstat").read_text().split()[0])
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    tick = os.sysconf("SC_CLK_TCK")
    return spent_ns / 1e9, int(fields[11]) / tick, int(fields[12]) / tick


class RoleWatcher(Watcher):
    """Notes each process's CPU time when the measuring begins and ends; in between strace may look at them."""

    def __init__(self, server: RunningServer, folder: Path | None) -> None:
        self._server = server
        self._folder = folder
        self._tracers: list[subprocess.Popen[bytes]] = []
        self.before: dict[int, Times] = {}
        self.after: dict[int, Times] = {}
        self.titles: dict[int, str] = {}

    def ready(self) -> None:
        for pid in self._server.processes():
            self.titles[pid] = title_of(pid)
            if self._folder is not None and not self.titles[pid].startswith("supervisor"):
                out = ["-o", str(self._folder / str(pid))]
                words = ["strace", "-f", "-q", "-s", "0", "-e", "signal=none", *out, "-p", str(pid)]
                self._tracers.append(subprocess.Popen(words, stderr=subprocess.DEVNULL))
                while "TracerPid:\t0\n" in Path(f"/proc/{pid}/status").read_text():
                    assert self._tracers[-1].poll() is None, f"strace may not look at {self.titles[pid]}"
                    time.sleep(0.01)

    def measuring(self) -> None:
        self.before = {pid: times_of(pid) for pid in self.titles}

    def measured(self) -> None:
        self.after = {pid: times_of(pid) for pid in self.titles}
        for tracer in self._tracers:
            tracer.send_signal(signal.SIGINT)
            tracer.wait(10)


class Cost:
    """What one process spent per command, in us, and how much of a core that was."""

    def __init__(self, title: str, spent: Times, result: Result) -> None:
        ticks = spent[1] + spent[2]
        self.title = title
        self.all = spent[0] / result.commands * 1e6
        self.user = self.all * spent[1] / ticks if ticks > 0 else 0.0
        self.busy = spent[0] / (result.elapsed_ns / 1e9)


def run_once(row: Row, name: str, command: list[str], seconds: float, traced: bool) -> list[Cost]:
    """One server under one load: what each of its processes spent. When traced, prints their calls instead."""
    with contextlib.closing(RunningServer(name, command)) as server, tempfile.TemporaryDirectory() as folder:
        server.start()
        # All that the load sends is counted when it is traced: strace has no moment at which it begins.
        warm_up_s = 0.0 if traced else 0.3
        load: Load = replace(row.load, seconds=seconds, warm_up_s=warm_up_s).shares(1)[0]
        watcher = RoleWatcher(server, Path(folder) if traced else None)
        result = generate(server.address, load, watcher)
        costs = []
        for pid, title in watcher.titles.items():
            before, after = watcher.before[pid], watcher.after[pid]
            costs.append(Cost(title, (after[0] - before[0], after[1] - before[1], after[2] - before[2]), result))
            file = Path(folder) / str(pid)
            if file.exists():
                print_calls(row.name, name, title, file.read_text(errors="replace"), result.commands)
        return costs


def measure(row: Row, servers: dict[str, list[str]], given: argparse.Namespace) -> None:
    """All servers in turn, round by round; of each the cheapest round."""
    best: dict[str, list[Cost]] = {}
    for _ in range(1 if given.calls else given.rounds):
        for name, command in servers.items():
            costs = run_once(row, name, command, given.seconds, given.calls)
            if name not in best or sum([cost.all for cost in costs]) < sum([cost.all for cost in best[name]]):
                best[name] = costs
    if given.calls:
        return
    for name, costs in best.items():
        for cost in costs:
            print(
                f"{row.name:14s}{name:12s}{cost.title:14s}{cost.user:>8.2f}{cost.all - cost.user:>9.2f}"
                f"{cost.all:>8.2f}{cost.busy:>8.0%}"
            )
        print(f"{row.name:14s}{name:12s}{'together':14s}{sum([cost.all for cost in costs]):>25.2f}", flush=True)


def print_calls(row: str, name: str, title: str, trace: str, commands: int) -> None:
    calls: dict[str, int] = {}
    moved: dict[str, int] = {}
    for pattern in (CALL, RESUMED):
        for call, returned in pattern.findall(trace):
            calls[call] = calls.get(call, 0) + 1
            if call in MOVES_BYTES:
                moved[call] = moved.get(call, 0) + max(int(returned), 0)
    for call, count in sorted(calls.items(), key=lambda item: -item[1]):
        if count * 200 < commands:
            continue
        size = f"{moved[call] / count:>10,.0f} bytes" if call in moved else ""
        print(f"{row:14s}{name:12s}{title:14s}{call:14s}{count / commands:>8.3f} per command{size}", flush=True)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.roles", description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=DEFAULT_ROWS, help="rows of benchmarks/rows.py")
    parser.add_argument("--shapes", default="split,combined", help=f"some of {', '.join(SHAPE_OPTIONS)}")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--calls", action="store_true", help="system calls instead of times, by strace")
    given = parser.parse_args(arguments)
    # Ended from outside, its servers end with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if given.calls and shutil.which("strace") is None:
        raise SystemExit("--calls needs strace")
    rows = [row for row in ROWS if row.name in given.only.split(",")]
    print(f"{BUILD} build; load average {os.getloadavg()[0]:.1f}")
    if not given.calls:
        print(f"{'us of CPU per command':40s}{'user':>8s}{'system':>9s}{'all':>8s}{'busy':>8s}")
    for row in rows:
        measure(row, servers_of(given.shapes.split(","), row.log, None), given)
    return 0


if __name__ == "__main__":
    sys.exit(main())
