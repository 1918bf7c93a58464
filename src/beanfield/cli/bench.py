"""`beanfield bench`: its options, and from them to runs, tables and JSON. Loaded only when asked for."""

import argparse
import json
import platform
import shlex
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from types import FrameType
from typing import Any, Final, TextIO

from beanfield import PROTOCOL_VERSION
from beanfield.bench import report
from beanfield.bench.comparison import Target, measure
from beanfield.bench.generator import Watcher
from beanfield.bench.plan import SHAPES, BenchError, Load, parse_address
from beanfield.bench.servers import own_command
from beanfield.build import BUILD
from beanfield.cli.options import EXIT_USAGE, Ending
from beanfield.constants import JOB_BYTES_CEILING, TUBE_NAME_BYTES_MAX
from beanfield.io.poller import build_name

PROGRAM: Final = "beanfield bench"
EXIT_FAULTS: Final = 1  # a server that cannot be measured, unexpected replies, lost connections
EXIT_INTERRUPTED: Final = 130
CONNECTIONS_MAX: Final = 100_000
TUBES_MAX: Final = 100_000
DEPTH_MAX: Final = 10_000
BATCH_BYTES_MAX: Final = 256 << 20  # of one connection: depth times body
RATE_MAX: Final = 10_000_000
SECONDS_MAX: Final = 86_400.0
JOBS_MAX: Final = 1_000_000_000
PROCESSES_MAX: Final = 256
PROGRESS_S: Final = 0.5
COMPARE_ROUNDS: Final = 3
JSON_FORMAT: Final = 1


class Options:
    """What the command line asks for."""

    def __init__(self, targets: list[Target], loads: list[Load], processes: int, rounds: int) -> None:
        self.targets = targets
        self.loads = loads
        self.processes = processes
        self.rounds = rounds
        self.as_json = False
        self.quiet = False


# ---------------------------------------------------------------- options
class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise Ending(EXIT_USAGE, err=f"{PROGRAM}: {message}\nUse: {PROGRAM} --help shows all options\n")


def parse(arguments: list[str]) -> Options:
    """Raises Ending."""
    parser = _make_parser()
    given = parser.parse_args(_joined(arguments))
    if given.help:
        raise Ending(0, out=parser.format_help())
    if given.against is not None and given.serve_options is not None:
        parser.error("--serve-options is for the server that is started here, and --against names a running one")
    targets = []
    if given.against is not None:
        targets.append(Target(str(given.against), address=given.against, keep_jobs=given.keep_jobs))
    else:
        targets.append(Target("beanfield", own_command(given.serve_options or "")))
    targets += given.compare_with
    if len({target.name for target in targets}) < len(targets):
        parser.error(f"two servers with one name: {', '.join(target.name for target in targets)}")
    loads = [_load(parser, given, name) for name in given.workload]
    options = Options(targets, loads, given.processes, given.rounds or (1 if len(targets) == 1 else COMPARE_ROUNDS))
    options.as_json = given.json
    options.quiet = given.quiet
    return options


def _joined(arguments: list[str]) -> list[str]:
    """--serve-options with its value in one word, as argparse takes a value that begins with a dash for an option."""
    joined: list[str] = []
    for word in arguments:
        if joined and joined[-1] == "--serve-options":
            joined[-1] += "=" + word
        else:
            joined.append(word)
    return joined


def _load(parser: _Parser, given: argparse.Namespace, name: str) -> Load:
    """One workload with the options that were given."""
    shape = SHAPES[name]
    for field, value in (
        ("connections", given.connections),
        ("tubes", given.tubes),
        ("depth", given.depth),
        ("body_sizes", given.body),
    ):
        if value is not None:
            shape = replace(shape, **{field: value})
    if given.processes > shape.connections:
        parser.error(f"{given.processes} processes for {shape.connections} connections: give each at least one")
    if given.rate and given.rate < given.processes:
        parser.error(f"a rate of {given.rate} cannot be divided over {given.processes} processes")
    if shape.depth * max(shape.body_sizes) > BATCH_BYTES_MAX:
        parser.error(f"depth times body must not exceed {BATCH_BYTES_MAX >> 20} MiB per connection")
    warm_up_s = given.warm_up if given.warm_up is not None else (0.5 if given.jobs is None else 0.0)
    seconds = 5.0 if given.seconds is None else given.seconds
    return Load(name, shape, seconds, given.jobs, warm_up_s, given.rate, given.tube_prefix)


def _make_parser() -> _Parser:
    shapes = "\n".join(f"  {name:10s} {shape.says}" for name, shape in SHAPES.items())
    parser = _Parser(
        prog=PROGRAM,
        usage=f"{PROGRAM} [OPTIONS]",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Load a server of the beanstalkd protocol and show how fast it answers.\n"
        "Without --against a server of its own is started on a free loopback port, and ended afterwards.",
        epilog=f"workloads:\n{shapes}\n\nA command's time runs from its sending to its reply; with --rate from when it "
        "was due. docs/benchmarks.md says more.",
        add_help=False,
        allow_abbrev=False,
    )
    server = parser.add_argument_group("server")
    server.add_argument("--against", type=_address, metavar="HOST:PORT", help="a running server; also unix:PATH")
    server.add_argument("--serve-options", metavar="OPTIONS", help="for the own server: '--slots 2 --frontends 2'")
    server.add_argument(
        "--compare-with", type=_target, action="append", default=[], metavar="NAME=COMMAND",
        help="measure this one too, in turn, and show ratios; {port} and {dir} are filled in (may be repeated)",
    )  # fmt: skip
    server.add_argument("--rounds", type=_count(1_000), metavar="N", help="runs per server (1; 3 when comparing)")
    server.add_argument("--keep-jobs", action="store_true", help="leave what is left in the tubes of --against there")
    load = parser.add_argument_group("load")
    load.add_argument("--workload", type=_workloads, default=["cycle"], metavar="NAME[,NAME]", help="see below (cycle)")
    load.add_argument("--connections", type=_count(CONNECTIONS_MAX), metavar="N", help="(64)")
    load.add_argument("--tubes", type=_count(TUBES_MAX), metavar="N", help="connections are divided over them (8)")
    load.add_argument("--depth", type=_count(DEPTH_MAX), metavar="N", help="commands sent at once by a connection (1)")
    load.add_argument("--body", type=_sizes, metavar="BYTES[,BYTES]", help="body sizes, used in turn (100)")
    load.add_argument("--rate", type=_count(RATE_MAX), default=0, metavar="N", help="commands per second, all together")
    load.add_argument("--tube-prefix", type=_prefix, default="beanfield-bench-", metavar="TEXT", help="of tube names")
    load.add_argument("--processes", type=_count(PROCESSES_MAX), default=1, metavar="N", help="that make the load (1)")
    length = parser.add_argument_group("length").add_mutually_exclusive_group()
    length.add_argument("--seconds", type=_seconds, metavar="S", help="(5)")
    length.add_argument("--jobs", type=_count(JOBS_MAX), metavar="N", help="instead: until so many jobs went through")
    parser.add_argument("--warm-up", type=_warm_up, metavar="S", help="not counted (0.5; with --jobs 0)")
    parser.add_argument("--json", action="store_true", help="figures as JSON on stdout, nothing else")
    parser.add_argument("--quiet", action="store_true", help="no progress line")
    parser.add_argument("-h", "--help", action="store_true", help="show this help")
    return parser


def _count(largest: int) -> Callable[[str], int]:
    def count(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) <= 12 and 1 <= int(text) <= largest):
            raise argparse.ArgumentTypeError(f"not a number from 1 to {largest}: {text}")
        return int(text)

    return count


def _seconds(text: str) -> float:
    seconds = _warm_up(text)
    if seconds == 0:
        raise argparse.ArgumentTypeError("nothing can be measured in 0 seconds")
    return seconds


def _warm_up(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= SECONDS_MAX:
        raise argparse.ArgumentTypeError(f"not a number of seconds up to {SECONDS_MAX:.0f}: {text}")
    return seconds


def _sizes(text: str) -> tuple[int, ...]:
    sizes = []
    for part in text.split(","):
        if not (part.isascii() and part.isdigit() and len(part) <= 12 and int(part) <= JOB_BYTES_CEILING):
            raise argparse.ArgumentTypeError(f"not a size in bytes: {part!r}")
        sizes.append(int(part))
    return tuple(sizes)


def _workloads(text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in SHAPES:
            raise argparse.ArgumentTypeError(f"no workload {name!r}; there are {', '.join(SHAPES)}")
    return names


def _prefix(text: str) -> str:
    fits = 1 <= len(text) <= TUBE_NAME_BYTES_MAX - len(str(TUBES_MAX)) and text[0] != "-"
    if not fits or not all(c.isascii() and (c.isalnum() or c in "-+/;.$_()") for c in text):
        raise argparse.ArgumentTypeError(f"no beginning of a tube name: {text!r}")
    return text


def _address(text: str) -> Any:
    try:
        return parse_address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _target(text: str) -> Target:
    name, equals, command = text.partition("=")
    if not name.strip() or not equals or not command.strip():
        raise argparse.ArgumentTypeError(f"not NAME=COMMAND: {text}")
    if "{port}" not in command:
        raise argparse.ArgumentTypeError(f"the command of {name} has no {{port}}: it would not know where to listen")
    try:
        return Target(name.strip(), shlex.split(command))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{name}: {error}") from None


# ---------------------------------------------------------------- running
class Console(Watcher):
    """Shows how a run goes on a terminal, and hears Ctrl-C: the first one ends the run, the second the program."""

    def __init__(self, stream: TextIO, quiet: bool) -> None:
        self._stream = stream
        self._shows = stream.isatty() and not quiet
        self._what = ""
        self._state = ""
        self._since_s = 0.0
        self._shown_s = 0.0
        self._shown_commands = 0
        self._is_interrupted = False

    def listen(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._interrupt)

    def begin(self, what: str) -> None:
        self._what = what
        self._restart("warming up")

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._is_interrupted:
            raise KeyboardInterrupt
        self._is_interrupted = True

    def _restart(self, state: str) -> None:
        self._state = state
        self._since_s = self._shown_s = time.monotonic()
        self._shown_commands = 0

    def interrupted(self) -> bool:
        return self._is_interrupted

    def ready(self) -> None:
        self._restart("warming up")

    def measuring(self) -> None:
        self._restart("measuring")

    def progress(self, commands: int) -> None:
        now_s = time.monotonic()
        if not self._shows or now_s - self._shown_s < PROGRESS_S:
            return
        speed = (commands - self._shown_commands) / (now_s - self._shown_s)
        self._shown_s, self._shown_commands = now_s, commands
        text = f"{self._what}: {self._state} {now_s - self._since_s:.1f} s, {max(speed, 0):,.0f} commands/s"
        self._stream.write(f"\r{text}\x1b[K")
        self._stream.flush()

    def measured(self) -> None:
        if self._shows:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


def run(options: Options) -> int:
    """The exit code. Raises Ending."""
    console = Console(sys.stderr, options.quiet)
    console.listen()
    runs: list[dict[str, Any]] = []
    failure = ""
    try:
        for load in options.loads:
            runs.append(_run_load(options, load, console))
            if console.interrupted():
                break
    except BenchError as error:
        failure = str(error)
    except KeyboardInterrupt:
        failure = "interrupted"
    if options.as_json:
        _print_json(options, runs)
    clean = all(report.is_clean(one) for entry in runs for server in entry["servers"] for one in server["rounds"])
    if console.interrupted():
        raise Ending(EXIT_INTERRUPTED, err=f"{PROGRAM}: {failure}\n" if failure else "")
    if failure:
        raise Ending(EXIT_FAULTS, err=f"{PROGRAM}: {failure}\n")
    return 0 if clean else EXIT_FAULTS


def _run_load(options: Options, load: Load, console: Console) -> dict[str, Any]:
    """All rounds of one load against all servers."""
    talkative = not options.as_json
    if talkative:
        print(report.heading(load, options.processes), flush=True)
    rounds: dict[str, list[report.Figures]] = {target.name: [] for target in options.targets}
    for number in range(options.rounds):
        for target in options.targets:
            if console.interrupted():
                break
            place = f", round {number + 1} of {options.rounds}" if options.rounds > 1 else ""
            console.begin(target.name + place)
            figures = measure(target, load, options.processes, console)
            rounds[target.name].append(figures)
            if talkative and len(options.targets) * options.rounds == 1:
                print(f"server: {target.name} {target.version}\n{report.table(figures)}\n", flush=True)
    medians = {name: report.median_of(figures) for name, figures in rounds.items() if figures}
    if talkative and len(options.targets) * options.rounds > 1:
        print(report.comparison(medians))
        for name, all_figures in rounds.items():
            for text in dict.fromkeys(text for one in all_figures for text in one["warnings"]):
                print(f"warning: {name}: {text}")
        print(flush=True)
    return _entry(options, load, rounds, medians)


def _entry(
    options: Options, load: Load, rounds: dict[str, list[report.Figures]], medians: dict[str, report.Figures]
) -> dict[str, Any]:
    shape = load.shape
    first = medians.get(options.targets[0].name)
    ratios = {name: report.ratio_of(first, m) for name, m in medians.items() if first is not None and m is not first}
    return {
        "workload": load.name,
        "connections": shape.connections,
        "tubes": shape.tubes,
        "depth": shape.depth,
        "body_bytes": list(shape.body_sizes),
        "rate": load.rate or None,
        "servers": [
            {"name": one.name, "version": one.version, "rounds": rounds[one.name], "median": medians.get(one.name)}
            for one in options.targets
        ],
        "ratios": ratios,
    }


def _print_json(options: Options, runs: list[dict[str, Any]]) -> None:
    generator = {
        "version": PROTOCOL_VERSION,
        "build": BUILD,
        "reactor": build_name(),
        "python": platform.python_version(),
        "processes": options.processes,
    }
    print(json.dumps({"format": JSON_FORMAT, "generator": generator, "runs": runs}, indent=1))


def main(arguments: list[str]) -> int:
    """`beanfield bench`. Raises Ending."""
    return run(parse(arguments))
