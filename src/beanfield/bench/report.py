"""What was measured, for people and for programs: figures as plain values, tables, and what to distrust."""

import statistics
from typing import Any, Final

from beanfield.bench.generator import Result
from beanfield.bench.histogram import PERCENT, Histogram
from beanfield.bench.plan import Load
from beanfield.bench.workload import STEP_NAMES
from beanfield.build import COMPILED
from beanfield.constants import NS_PER_S, NS_PER_US

PERCENTILES: Final = {"p50": 50 * PERCENT, "p90": 90 * PERCENT, "p99": 99 * PERCENT, "p99.9": 99_900}
BUSY_SHARE: Final = 0.9  # of a core, used by a generator process: from here on it is what limits
LONG_UNANSWERED_NS: Final = NS_PER_S  # commands waiting so long at the end are worth a line
RATE_MET: Final = 0.98  # less of the asked rate than this is worth a line

Figures = dict[str, Any]


def times_of(histogram: Histogram) -> dict[str, float]:
    """In microseconds."""
    times = {name: histogram.percentile(thousandths) / NS_PER_US for name, thousandths in PERCENTILES.items()}
    return times | {"max": int(histogram.largest) / NS_PER_US, "mean": histogram.mean() / NS_PER_US}


def figures_of(result: Result, load: Load, server_cpu_s: float | None) -> Figures:
    """One run as plain values. server_cpu_s: what the server's processes used meanwhile, if that is known."""
    seconds = result.elapsed_ns / NS_PER_S
    commands = result.commands
    last = result.steps.get("delete", result.steps.get("put", Histogram()))
    return {
        "seconds": round(seconds, 3),
        "commands": commands,
        "commands_per_s": round(commands / seconds, 1),
        "jobs_per_s": round(int(last.count) / seconds, 1),
        "latency_us": times_of(result.everything),
        "steps": {
            name: {
                "commands": int(result.steps[name].count),
                "commands_per_s": round(int(result.steps[name].count) / seconds, 1),
                "latency_us": times_of(result.steps[name]),
            }
            for name in STEP_NAMES
            if name in result.steps
        },
        "body_bytes_sent_per_s": round(result.sent_bytes / seconds),
        "body_bytes_received_per_s": round(result.received_bytes / seconds),
        "timed_out": result.timed_out,
        "unexpected": result.unexpected,
        "connections": result.connections,
        "connections_lost": result.lost,
        "unanswered": result.unanswered,
        "unanswered_counted": result.late_count,
        "oldest_unanswered_us": result.oldest_ns / NS_PER_US,
        "generator_cpu_share": [round(share, 3) for share in result.cpu_shares],
        "server_cpu_us_per_command": round(server_cpu_s * 1e6 / commands, 3) if server_cpu_s and commands else None,
        "interrupted": result.interrupted,
        "warnings": warnings_of(result, load),
    }


def warnings_of(result: Result, load: Load) -> list[str]:
    """Reasons not to take the figures for the server's."""
    found = []
    share = max(result.cpu_shares, default=0.0)
    if share >= BUSY_SHARE:
        found.append(
            f"the load generator itself was busy for {share:.0%} of the time: these figures show its limit, not only "
            "the server's (more --processes may help where there are cores)"
        )
    if not COMPILED:
        found.append("this is the interpreted build, whose load generator is much slower than the compiled one")
    if result.interrupted:
        found.append(f"interrupted after {result.elapsed_ns / NS_PER_S:.1f} s")
    if result.lost:
        found.append(f"the server ended {result.lost} of {result.connections} connections during the run")
    if result.unexpected:
        said = ", ".join(f"{text} ({count:,})" for text, count in result.unexpected.items())
        found.append(f"unexpected replies: {said}")
    reached = result.commands * NS_PER_S / result.elapsed_ns
    if load.rate and reached < RATE_MET * load.rate and not result.interrupted and load.jobs is None:
        found.append(f"{load.rate:,} commands per second were asked for, and {reached:,.0f} were answered")
    if result.oldest_ns > max(result.everything.largest, LONG_UNANSWERED_NS):
        found.append(f"at the end a command had been unanswered for {result.oldest_ns / NS_PER_S:.3f} s")
    return found


def is_clean(figures: Figures) -> bool:
    """Whether every reply was one that the load expects, and every connection lived."""
    return not figures["unexpected"] and not figures["connections_lost"]


def median_of(rounds: list[Figures]) -> Figures:
    """The middle of the main figures, each for itself."""
    cpu = [one["server_cpu_us_per_command"] for one in rounds]
    times = [one["latency_us"] for one in rounds]
    return {
        "commands_per_s": statistics.median(one["commands_per_s"] for one in rounds),
        "jobs_per_s": statistics.median(one["jobs_per_s"] for one in rounds),
        "latency_us": {name: statistics.median(one[name] for one in times) for name in times[0]},
        "server_cpu_us_per_command": None if None in cpu else statistics.median(cpu),
    }


def ratio_of(mine: Figures, other: Figures) -> dict[str, float | None]:
    """The first server's figures over another one's: of commands a large one is good, of CPU a small one."""
    mine_cpu, other_cpu = mine["server_cpu_us_per_command"], other["server_cpu_us_per_command"]
    mine_speed, other_speed = mine["commands_per_s"], other["commands_per_s"]
    return {
        "commands_per_s": round(mine_speed / other_speed, 3) if other_speed else None,
        "server_cpu": round(mine_cpu / other_cpu, 3) if mine_cpu and other_cpu else None,
    }


# ---------------------------------------------------------------- for people
def heading(load: Load, processes: int) -> str:
    shape = load.shape
    sizes = ", ".join(f"{size:,}" for size in shape.body_sizes)
    length = f"{load.jobs:,} jobs" if load.jobs is not None else f"{load.seconds:g} s"
    words = [
        f"{load.name}: {_many(shape.connections, 'connection')}, {_many(shape.tubes, 'tube')}",
        f"bodies of {sizes} bytes",
        f"depth {shape.depth}",
        length if not load.warm_up_s else f"{length} after {load.warm_up_s:g} s of warming up",
    ]
    if load.rate:
        words.append(f"{load.rate:,} commands per second asked for")
    if processes > 1:
        words.append(f"{processes} load processes")
    return ", ".join(words)


def table(figures: Figures) -> str:
    """All of one run."""
    lines = [f"{'':9s}{'commands':>12s}{'per second':>12s}" + "".join(f"{n:>11s}" for n in (*PERCENTILES, "max"))]
    lines[0] += "   us"
    rows = [*figures["steps"].items()]
    if len(rows) != 1 or figures["unanswered_counted"]:
        rows.append(("all", figures))
    for name, row in rows:
        times = "".join(f"{_time(row['latency_us'][column]):>11s}" for column in (*PERCENTILES, "max"))
        lines.append(f"{name:9s}{row['commands']:>12,}{row['commands_per_s']:>12,.0f}{times}")
    sent, received = figures["body_bytes_sent_per_s"] / 1e6, figures["body_bytes_received_per_s"] / 1e6
    bodies = f"{sent:.1f} MB/s sent, {received:.1f} MB/s received"
    lines.append(f"{figures['jobs_per_s']:,.0f} jobs per second; bodies: {bodies}")
    shares = ", ".join(f"{share:.0%}" for share in figures["generator_cpu_share"])
    cpu = figures["server_cpu_us_per_command"]
    server = "" if cpu is None else f"; server: {cpu:.2f} us of CPU per command"
    lines.append(f"load generator: {shares} of a core{server}")
    if figures["timed_out"]:
        lines.append(f"{figures['timed_out']:,} reserves found nothing (TIMED_OUT)")
    if figures["unanswered_counted"]:
        late = figures["unanswered_counted"]
        lines.append(f"commands due and unanswered at the end: {late:,} ('all' counts their time so far)")
    lines += [f"warning: {text}" for text in figures["warnings"]]
    return "\n".join(lines)


def comparison(medians: dict[str, Figures]) -> str:
    """Several servers, each one line; the ratios are the first one's figures over the others'."""
    width = max(len(name) for name in medians) + 2
    columns = f"{'commands/s':>12s}{'CPU us':>9s}{'p50':>9s}{'p99':>9s}{'max':>10s}"
    lines = [f"{'':{width}s}{columns}   us; ratios of commands/s and CPU"]
    first: Figures | None = None
    for name, median in medians.items():
        cpu, times = median["server_cpu_us_per_command"], median["latency_us"]
        line = f"{name:{width}s}{median['commands_per_s']:>12,.0f}{'-' if cpu is None else f'{cpu:.2f}':>9s}"
        line += f"{_time(times['p50']):>9s}{_time(times['p99']):>9s}{_time(times['max']):>10s}"
        if first is None:
            first = median
        else:
            ratio = ratio_of(first, median)
            line += "   " + ", ".join("-" if value is None else f"{value:.2f}" for value in ratio.values())
        lines.append(line)
    return "\n".join(lines)


def _time(microseconds: float) -> str:
    return f"{microseconds:,.0f}"


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
