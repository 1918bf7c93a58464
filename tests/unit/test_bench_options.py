"""The options of `beanfield bench`: what they lead to, and what is said of those that cannot be."""

import os

import pytest

from beanfield.bench import report
from beanfield.bench.generator import Result
from beanfield.bench.histogram import Histogram
from beanfield.bench.plan import SHAPES, Address, Load, cleaning_setups, parse_address
from beanfield.cli.bench import parse
from beanfield.cli.options import Ending


def ending_of(*arguments):
    with pytest.raises(Ending) as caught:
        parse(list(arguments))
    return caught.value


def test_no_options_measure_an_own_server_with_cycles():
    options = parse([])
    (target,), (load,) = options.targets, options.loads
    assert target.name == "beanfield" and target.command[1:4] == ["-m", "beanfield", "serve"]
    assert (load.name, load.shape, load.seconds, load.warm_up_s, load.rate) == ("cycle", SHAPES["cycle"], 5.0, 0.5, 0)
    assert (options.processes, options.rounds, options.as_json, options.quiet) == (1, 1, False, False)


def test_options_override_what_a_workload_has():
    options = parse(
        ["--workload", "pipelined,put", "--connections", "3", "--tubes", "2", "--body", "10,20", "--rate", "90"]
    )
    pipelined, put = options.loads
    assert (pipelined.shape.depth, put.shape.depth) == (16, 1)
    for load in options.loads:
        assert (load.shape.connections, load.shape.tubes, load.shape.body_sizes, load.rate) == (3, 2, (10, 20), 90)


def test_comparing_measures_three_rounds_of_every_server():
    peer = "peer=beanstalkd -l 127.0.0.1 -p {port} -b '{dir}'"
    options = parse(["--compare-with", peer, "--serve-options", "--slots 2"])
    own, other = options.targets
    assert options.rounds == 3
    assert own.command[-2:] == ["--slots", "2"]
    assert (other.name, other.command[-2:]) == ("peer", ["-b", "{dir}"])


def test_jobs_instead_of_seconds_need_no_warming_up():
    (load,) = parse(["--jobs", "1000"]).loads
    assert (load.jobs, load.warm_up_s) == (1000, 0.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--workload", "cycle,foo"], "argument --workload: no workload 'foo'; there are cycle, put, multi, pair,"),
        (["--connections", "0"], "argument --connections: not a number from 1 to 100000: 0"),
        (["--connections", "many"], "argument --connections: not a number from 1 to 100000: many"),
        (["--depth", "10001"], "argument --depth: not a number from 1 to 10000: 10001"),
        (["--body", "10,-1"], "argument --body: not a size in bytes: '-1'"),
        (["--seconds", "0"], "argument --seconds: nothing can be measured in 0 seconds"),
        (["--seconds", "nan"], "argument --seconds: not a number of seconds up to 86400: nan"),
        (["--seconds", "1", "--jobs", "1"], "argument --jobs: not allowed with argument --seconds"),
        (["--against", "localhost:0"], "argument --against: not a port (1 to 65535): 0"),
        (["--against", "::1"], "argument --against: write an IPv6 address in brackets: [::1]"),
        (["--against", "a:1", "--serve-options", "-V"], "--serve-options is for the server that is started here"),
        (["--compare-with", "peer"], "argument --compare-with: not NAME=COMMAND: peer"),
        (["--compare-with", "peer=beanstalkd"], "argument --compare-with: the command of peer has no {port}"),
        (["--compare-with", "a=x '{port}"], "argument --compare-with: a: No closing quotation"),
        (["--compare-with", "beanfield=x {port}"], "two servers with one name: beanfield, beanfield"),
        (["--tube-prefix", "-x"], "argument --tube-prefix: no beginning of a tube name: '-x'"),
        (["--tube-prefix", "a b"], "argument --tube-prefix: no beginning of a tube name: 'a b'"),
        (["--processes", "2", "--workload", "single"], "2 processes for 1 connections: give each at least one"),
        (["--processes", "4", "--rate", "3"], "a rate of 3 cannot be divided over 4 processes"),
        (["--depth", "10000", "--body", "1000000"], "depth times body must not exceed 256 MiB per connection"),
        (["--fast"], "unrecognized arguments: --fast"),
        (["now"], "unrecognized arguments: now"),
    ],
)
def test_options_that_cannot_be_are_explained_in_a_line(arguments, message):
    if arguments[:1] == ["--tube-prefix"]:
        arguments = [f"--tube-prefix={arguments[1]}"]
    ending = ending_of(*arguments)
    assert (ending.code, ending.out) == (5, "")
    assert ending.err.splitlines()[0].startswith(f"beanfield bench: {message}")
    assert ending.err.endswith("Use: beanfield bench --help shows all options\n")


def test_help_shows_every_workload():
    ending = ending_of("--help")
    assert (ending.code, ending.err) == (0, "")
    for name, shape in SHAPES.items():
        assert name in ending.out and shape.says in ending.out


@pytest.mark.parametrize(
    ("text", "address", "shown"),
    [
        ("localhost:1", Address("localhost", 1), "localhost:1"),
        ("10.0.0.1", Address("10.0.0.1", 11300), "10.0.0.1:11300"),
        ("[::1]:65535", Address("::1", 65535), "[::1]:65535"),
        ("[::1]", Address("::1", 11300), "[::1]:11300"),
        ("unix:/run/b", Address("", 0, "/run/b"), "unix:/run/b"),
    ],
)
def test_addresses_are_read_and_shown_as_people_write_them(text, address, shown):
    assert parse_address(text) == address
    assert str(address) == shown


@pytest.mark.parametrize("text", ["", ":1", "h:65536", "h:x", "[::1", "[::1]x", "unix:", "1:2:3"])
def test_what_is_no_address_is_refused(text):
    with pytest.raises(ValueError):
        parse_address(text)


def test_processes_share_connections_jobs_and_rate():
    load = Load("cycle", SHAPES["cycle"], jobs=10, rate=100)
    shares = load.shares(3)
    assert sorted(number for share in shares for number in share.numbers) == list(range(64))
    assert sum(share.jobs for share in shares) == 10
    assert sum(share.rate for share in shares) == 100
    assert [len(share.setups()) for share in shares] == [22, 21, 21]


def test_cleaning_watches_every_tube_once():
    (load,) = parse(["--tubes", "150"]).loads
    setups = cleaning_setups(load)
    watched = [line for commands in setups for line in commands if line.startswith(b"watch")]
    assert len(setups) == 64
    assert sorted(watched) == sorted(b"watch beanfield-bench-%d\r\n" % tube for tube in range(150))


# ---------------------------------------------------------------- what is told


def result_of(commands=1_000, microseconds=100):
    result = Result()
    result.steps["put"] = Histogram()
    result.steps["put"].record(microseconds * 1_000, commands)
    result.everything.add(result.steps["put"])
    result.elapsed_ns = 1_000_000_000
    result.cpu_shares = [0.5]
    result.connections = 4
    return result


def warnings_of(result, **options):
    found = report.warnings_of(result, Load("put", SHAPES["put"], **options))
    return [text for text in found if not text.startswith("this is the interpreted build")]


def test_a_busy_load_generator_says_so_with_its_share():
    result = result_of()
    assert warnings_of(result) == []
    result.cpu_shares = [0.2, 0.97]
    (text,) = warnings_of(result)
    assert text.startswith("the load generator itself was busy for 97% of the time")


def test_a_rate_that_was_not_reached_is_told():
    assert warnings_of(result_of(), rate=1_010) == []
    assert warnings_of(result_of(), rate=2_000) == ["2,000 commands per second were asked for, and 1,000 were answered"]


def test_faults_of_the_server_are_told_and_make_a_run_unclean():
    result = result_of()
    assert report.is_clean(report.figures_of(result, Load("put", SHAPES["put"]), None))
    result.lost = 1
    result.unexpected = {"put: OUT_OF_MEMORY": 1_200}
    assert warnings_of(result) == [
        "the server ended 1 of 4 connections during the run",
        "unexpected replies: put: OUT_OF_MEMORY (1,200)",
    ]
    assert not report.is_clean(report.figures_of(result, Load("put", SHAPES["put"]), None))


def test_ratios_are_the_first_servers_figures_over_the_others():
    load = Load("put", SHAPES["put"])
    mine = report.median_of([report.figures_of(result_of(n), load, 0.004) for n in (1_000, 4_000, 2_000)])
    other = report.median_of([report.figures_of(result_of(1_000), load, 0.004)])
    assert (mine["commands_per_s"], mine["server_cpu_us_per_command"]) == (2_000, 2.0)
    assert report.ratio_of(mine, other) == {"commands_per_s": 2.0, "server_cpu": 0.5}
    unknown = report.median_of([report.figures_of(result_of(1_000), load, None)])
    assert report.ratio_of(mine, unknown) == {"commands_per_s": 2.0, "server_cpu": None}
    assert "2.00, 0.50" in report.comparison({"mine": mine, "other": other})


def test_a_result_comes_whole_from_another_process_and_adds_up():
    result = result_of()
    result.unexpected = {"put: DRAINING": 2}
    total = Result()
    for _ in range(2):
        total.add(Result.from_plain(result.to_plain()))
    assert total.commands == 2_000 and total.everything.count == 2_000
    assert total.unexpected == {"put: DRAINING": 4}
    assert total.cpu_shares == [0.5, 0.5] and total.connections == 8
    assert "put" in report.table(report.figures_of(total, Load("put", SHAPES["put"]), 0.1))


def test_an_own_server_is_run_by_this_python():
    (target,) = parse([]).targets
    assert os.path.isabs(target.command[0])
