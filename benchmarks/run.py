"""Measures our server in its shapes against beanstalkd, prints the table, and adds a line to history.jsonl.

    python -m benchmarks                 all rows, three rounds; adds a line to the history
    python -m benchmarks --short         some rows, quickly; only prints, and never fails because of a figure
    python -m benchmarks --only lockstep64,pipelined16 --rounds 5 --no-history

For each row all servers are measured in turn, round by round, and medians are taken. What a server cannot do yet is
shown as missing, with its own words. The load generator is that of `beanfield bench`.
"""

import argparse
import shutil
import signal
import sys
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, Final

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from beanfield.bench import report  # noqa: E402
from beanfield.bench.comparison import Target, measure  # noqa: E402
from beanfield.bench.generator import Watcher  # noqa: E402
from beanfield.bench.plan import BenchError, Load  # noqa: E402
from beanfield.bench.servers import own_command  # noqa: E402
from beanfield.build import BUILD  # noqa: E402
from benchmarks import history  # noqa: E402
from benchmarks.costs import cost_of  # noqa: E402
from benchmarks.rows import COSTS, ROWS, SHAPE_OPTIONS, Cost, Floor, Row  # noqa: E402

PEER: Final = "beanstalkd"
PEER_PLACES: Final = ("/usr/bin/beanstalkd", "/usr/local/bin/beanstalkd")
PEER_OPTIONS: Final = "-l 127.0.0.1 -p {port}"
SHORT_SECONDS: Final = 0.4
SHORT_WARM_UP_S: Final = 0.2
SHORT_JOBS: Final = 20_000


class Stopping(Watcher):
    """Hears Ctrl-C: what has been measured by then is still printed; nothing goes into the history."""

    def __init__(self) -> None:
        self.stopped = False

    def listen(self) -> None:
        signal.signal(signal.SIGINT, self._stop)
        signal.signal(signal.SIGTERM, self._stop)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if self.stopped:
            raise KeyboardInterrupt
        self.stopped = True

    def interrupted(self) -> bool:
        return self.stopped


def peer_command(given: str | None, log: str) -> list[str]:
    """beanstalkd's command line; none if this machine has no beanstalkd."""
    found = given or shutil.which(PEER) or next((place for place in PEER_PLACES if Path(place).exists()), None)
    return [] if found is None else [found, *PEER_OPTIONS.split(), *log.split()]


def servers_of(shapes: list[str], log: str, peer: str | None) -> dict[str, list[str]]:
    """The commands of a row, by name; beanstalkd's last."""
    commands = {shape: own_command(f"{SHAPE_OPTIONS[shape]} {log}") for shape in shapes}
    return commands | ({PEER: words} if (words := peer_command(peer, log)) else {})


def run_row(row: Row, load: Load, rounds: int, peer: str | None, stopping: Stopping) -> dict[str, Any]:
    """Medians of all servers of a row, and the ratios of ours to beanstalkd's."""
    targets = [Target(name, command) for name, command in servers_of(list(row.shapes), row.log, peer).items()]
    measured: dict[str, list[report.Figures]] = {target.name: [] for target in targets}
    missing: dict[str, str] = {}
    warnings: dict[str, list[str]] = {}
    for _ in range(rounds):
        for target in targets:
            if target.name in missing or stopping.stopped:
                continue
            try:
                figures = measure(target, load, 1, stopping)
            except BenchError as error:
                missing[target.name] = str(error)
                continue
            measured[target.name].append(figures)
            for text in figures["warnings"]:
                if text not in warnings.setdefault(target.name, []):
                    warnings[target.name].append(text)
    medians = {name: report.median_of(all_rounds) for name, all_rounds in measured.items() if all_rounds}
    ratios = {}
    if PEER in medians:
        ratios = {name: report.ratio_of(median, medians[PEER]) for name, median in medians.items() if name != PEER}
    found: dict[str, Any] = {"servers": medians, "ratios": ratios, "missing": missing}
    found["warnings"] = {name: texts for name, texts in warnings.items() if texts}
    return found


def run_cost(cost: Cost, jobs: int, peer: str | None) -> dict[str, Any]:
    values: dict[str, float] = {}
    missing: dict[str, str] = {}
    for name, command in servers_of(list(cost.shapes), cost.log, peer).items():
        try:
            values[name] = round(cost_of(cost, name, command, jobs), 3)
        except BenchError as error:
            missing[name] = str(error)
    peers = values.get(PEER)
    ratios = {name: round(value / peers, 3) for name, value in values.items() if peers and name != PEER}
    return {"unit": cost.unit, "servers": values, "ratios": ratios, "missing": missing}


# ---------------------------------------------------------------- printing
def print_row(row: Row, found: dict[str, Any]) -> None:
    for name, median in found["servers"].items():
        cpu, times = median["server_cpu_us_per_command"], median["latency_us"]
        line = f"{row.name:24s}{name:12s}{median['commands_per_s']:>11,.0f}{'-' if cpu is None else f'{cpu:.2f}':>8s}"
        line += f"{times['p50']:>9,.0f}{times['p99']:>9,.0f}"
        print(line + _against(found["ratios"].get(name), row.shapes.get(name)), flush=True)
    _print_missing(row.name, found)
    for name, texts in found["warnings"].items():
        for text in texts:
            print(f"{'':24s}{name}: {text}")


def print_cost(cost: Cost, found: dict[str, Any]) -> None:
    for name, value in found["servers"].items():
        ratio = found["ratios"].get(name)
        line = f"{cost.name:27s} {name:12s}{value:>14,.2f} {cost.unit}"
        if ratio is not None:
            line += f"   {ratio:.2f}"
            if cost.most is not None:
                line += f" (at most {cost.most:g}){_mark(ratio <= cost.most)}"
        print(line, flush=True)
    _print_missing(cost.name, found)


def _print_missing(name: str, found: dict[str, Any]) -> None:
    for server, why in found["missing"].items():
        print(f"{name:24s}{server:12s} missing: {why}", flush=True)


def _against(ratio: dict[str, float | None] | None, floor: Floor | None) -> str:
    if ratio is None or floor is None:
        return ""
    text = ""
    for what, value, limit, least in (
        ("speed", ratio["commands_per_s"], floor.speed, True),
        ("CPU", ratio["server_cpu"], floor.cpu, False),
    ):
        if value is not None:
            text += f"   {what} {value:.2f}"
        if value is not None and limit is not None:
            is_met = value >= limit if least else value <= limit
            text += f" (at {'least' if least else 'most'} {limit:g}){_mark(is_met)}"
    return text


def _mark(is_met: bool) -> str:
    return "" if is_met else " missed"


# ---------------------------------------------------------------- the command
def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks", description="Beanfield against beanstalkd, in one run.")
    names = [row.name for row in ROWS] + [cost.name for cost in COSTS]
    parser.add_argument("--only", help=f"some of: {', '.join(names)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each run")
    parser.add_argument("--jobs", type=int, default=1_000_000, help="for memory and recovery")
    parser.add_argument("--peer", help="another beanstalkd than the one that is installed")
    parser.add_argument("--history", type=Path, default=history.HISTORY, help="the file to add a line to")
    parser.add_argument("--no-history", action="store_true", help="only print")
    parser.add_argument("--short", action="store_true", help="a minute instead of many; only prints")
    given = parser.parse_args(arguments)
    if given.rounds < 1 or given.seconds <= 0 or given.jobs < 1_000:
        parser.error("at least one round, some time, and 1,000 jobs")
    given.names = names
    if given.only:
        given.names = [name.strip() for name in given.only.split(",")]
        if unknown := [name for name in given.names if name not in names]:
            parser.error(f"no row {unknown[0]!r}; there are: {', '.join(names)}")
    return given


def main(arguments: list[str] | None = None) -> int:
    given = parse(sys.argv[1:] if arguments is None else arguments)
    stopping = Stopping()
    stopping.listen()
    line = history.head_of_line()
    machine = line["machine"]
    where = f"{machine['cpu']}, {machine['cores']} cores, Python {machine['python']}"
    print(f"{BUILD} build, {line['reactor']} reactor; {where}")
    if not peer_command(given.peer, ""):
        print("no beanstalkd found here: nothing to compare with")
    print(f"{'':36s}{'commands/s':>11s}{'CPU us':>8s}{'p50 us':>9s}{'p99 us':>9s}   ours / beanstalkd")
    rounds, jobs = (1, SHORT_JOBS) if given.short else (given.rounds, given.jobs)
    seconds, warm_up_s = (SHORT_SECONDS, SHORT_WARM_UP_S) if given.short else (given.seconds, 0.5)
    line |= {"rounds": rounds, "seconds": seconds, "jobs": jobs, "rows": {}, "costs": {}}
    for row in ROWS:
        if row.name in given.names and (row.short or given.only or not given.short) and not stopping.stopped:
            load = replace(row.load, seconds=seconds, warm_up_s=warm_up_s)
            line["rows"][row.name] = run_row(row, load, rounds, given.peer, stopping)
            print_row(row, line["rows"][row.name])
    for cost in COSTS:
        if cost.name in given.names and not stopping.stopped:
            line["costs"][cost.name] = run_cost(cost, jobs, given.peer)
            print_cost(cost, line["costs"][cost.name])
    if stopping.stopped:
        return 130
    if not given.short and not given.no_history:
        earlier = history.last_like(line, given.history)
        history.append(line, given.history)
        for text in history.changes(line, earlier) if earlier else []:
            print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
