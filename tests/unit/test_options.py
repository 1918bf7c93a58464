"""The command lines: beanstalkd's to the letter (contract sheet, section 6), and what `beanfield serve` adds."""

import pytest

from beanfield import PROTOCOL_VERSION
from beanfield.cli.options import Ending, parse_beanfieldd, parse_serve
from beanfield.constants import BODY_MEMORY_DEFAULT, JOB_BYTES_CEILING, NS_PER_MS, NS_PER_S, U64_MAX


def beanfieldd(*arguments, **environment):
    return parse_beanfieldd(list(arguments), environment, "beanfieldd")


def serve(*arguments, **environment):
    return parse_serve(list(arguments), environment, "beanfield serve")


def ending_of(parse, *arguments, **environment):
    with pytest.raises(Ending) as caught:
        parse(*arguments, **environment)
    return caught.value


def test_no_arguments_give_the_defaults_of_beanstalkd():
    options = beanfieldd()
    assert (options.listen, options.port, options.job_bytes_max) == (None, "11300", 65535)
    assert (options.segment_bytes, options.sync_ms, options.sync) == (10485760, 50, True)
    assert (options.slot_wait_ns, options.hang_timeout_ns) == (10 * NS_PER_S, 10 * NS_PER_S)
    assert options.slots is None and options.frontends is None and options.memory_bytes is None
    assert options.body_memory() == BODY_MEMORY_DEFAULT


def test_options_may_be_bundled_attached_or_separate():
    for arguments in (
        ["-VVp1234", "-l127.0.0.1", "-z", "10"],
        ["-V", "-V", "-p", "1234", "-l", "127.0.0.1", "-z10"],
        ["-VVz10", "-l", "127.0.0.1", "-p1234"],
    ):
        options = beanfieldd(*arguments)
        assert (options.verbosity, options.port, options.listen, options.job_bytes_max) == (2, "1234", "127.0.0.1", 10)
    assert beanfieldd("-VFVukr").user == "kr"


def test_last_value_wins():
    assert beanfieldd("-p1", "-p2").port == "2"
    assert beanfieldd("-F", "-f10").sync and not beanfieldd("-f10", "-F").sync


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-x"], "unknown flag: -x"),
        (["-Vx"], "unknown flag: Vx"),
        (["-VVxyz"], "unknown flag: Vxyz"),
        (["--help"], "unknown flag: --help"),
        (["--slots", "2"], "unknown flag: --slots"),
        (["-p"], "flag requires an argument: -p"),
        (["-Vl"], "flag requires an argument: -l"),
        (["foo"], "unknown argument: foo"),
        (["-V", "foo", "-x"], "unknown argument: foo"),
        (["-"], "unknown argument: -"),
        ([""], "unknown argument: "),
        (["-z", "10k"], "invalid size: 10k"),
        (["-z", ""], "invalid size: "),
        (["-s", "abc"], "invalid size: abc"),
        (["-f1e3"], "invalid size: 1e3"),
        (["-z", "1 "], "invalid size: 1 "),
        (["-z", "+-1"], "invalid size: +-1"),
    ],
)
def test_misuse_is_answered_as_beanstalkd_does(arguments, message):
    ending = ending_of(beanfieldd, *arguments)
    assert ending.code == 5
    assert ending.out == ""
    assert ending.err.startswith(f"beanfieldd: {message}\nUse: beanfieldd [OPTIONS]\n")


def test_help_goes_to_stderr_and_version_to_stdout():
    ending = ending_of(beanfieldd, "-h", "-x")
    assert (ending.code, ending.out) == (0, "") and ending.err.startswith("Use: beanfieldd [OPTIONS]\n")
    ending = ending_of(beanfieldd, "-Vv")
    assert (ending.code, ending.out, ending.err) == (0, f"beanstalkd {PROTOCOL_VERSION}\n", "")


@pytest.mark.parametrize(
    ("text", "bytes_max"),
    [("0", 0), ("1", 1), (" +10", 10), ("\t7", 7), ("0010", 10), ("1073741824", JOB_BYTES_CEILING)],
)
def test_sizes_are_read_as_by_scanf(text, bytes_max):
    options = beanfieldd("-z", text)
    assert (options.job_bytes_max, options.warnings) == (bytes_max, [])


@pytest.mark.parametrize("text", ["1073741825", "-5", "99999999999999999999999", "9" * 5000])
def test_too_large_sizes_are_cut_with_a_warning(text):
    options = beanfieldd("-z", text)
    assert options.job_bytes_max == JOB_BYTES_CEILING
    assert options.warnings == ["maximum job size was set to 1073741824"]


def test_negative_sizes_wrap_where_nothing_cuts_them():
    assert beanfieldd("-s", "-5").segment_bytes == U64_MAX - 4
    assert beanfieldd("-s", "-0").segment_bytes == 0


def test_removed_options_are_ignored_with_a_warning():
    assert beanfieldd("-cn").warnings == [
        "-c flag was removed. binlog is always compacted.",
        "-n flag was removed. binlog is always compacted.",
    ]


def test_log_options_are_beanstalkds():
    for parse in (beanfieldd, serve):
        options = parse("-b", "/var/lib/beanstalkd", "-s", "1234")
        assert (options.wal_directory, options.segment_bytes) == ("/var/lib/beanstalkd", 1234)
        assert options.sync_ns() == 50_000_000
        assert parse("-f0").sync_ns() == 0
        assert parse("-f", "7").sync_ns() == 7_000_000
        assert parse("-F").sync_ns() == -1
        # The last one wins.
        assert parse("-F", "-f", "3").sync_ns() == 3_000_000
        assert parse("-f3", "-F").sync_ns() == -1
        assert parse("-f", "-1").sync_ns() < 1 << 62


def test_what_beanstalkd_lacks_comes_from_the_environment():
    options = beanfieldd(
        BEANFIELD_SLOTS="3",
        BEANFIELD_FRONTENDS="2",
        BEANFIELD_PARTITIONS="16",
        BEANFIELD_SLOT_WAIT="0.25",
        BEANFIELD_HANG_TIMEOUT="0",
        BEANFIELD_MEMORY="2G",
        BEANFIELD_BODY_MEMORY="1048576",
    )
    assert (options.slots, options.frontends, options.partitions) == (3, 2, 16)
    assert (options.slot_wait_ns, options.hang_timeout_ns) == (250 * NS_PER_MS, 0)
    assert (options.memory_bytes, options.body_memory_bytes) == (2 << 30, 1 << 20)


def test_bad_environment_names_the_variable():
    ending = ending_of(beanfieldd, BEANFIELD_SLOTS="many")
    assert ending.code == 5
    assert ending.err.startswith("beanfieldd: invalid number for BEANFIELD_SLOTS (1 to 256): many\n")


def test_long_options_take_both_forms_and_override_the_environment():
    options = serve("--slots", "4", "--frontends=2", "-VV", "--memory=512M", "-p0", BEANFIELD_SLOTS="9")
    assert (options.slots, options.frontends, options.verbosity, options.port) == (4, 2, 2, "0")
    assert options.memory_bytes == 512 << 20


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--slots", "0"], "invalid number for --slots (1 to 256): 0"),
        (["--slots", "257"], "invalid number for --slots (1 to 256): 257"),
        (["--slots", "-1"], "invalid number for --slots (1 to 256): -1"),
        (["--slots"], "option requires an argument: --slots"),
        (["--slot"], "unknown option: --slot"),
        (["--frontends", "257"], "invalid number for --frontends (0 to 256): 257"),
        (
            ["--frontends", "0", "--slots", "2"],
            "without frontend processes there is one slot, not 2: leave --frontends 0 out, or say --slots 1",
        ),
        (["--partitions", "5000"], "invalid number for --partitions (1 to 4096): 5000"),
        (["--slots", "9", "--partitions", "8"], "9 slots need as many partitions or more, not 8"),
        (["--slot-wait", "soon"], "invalid number of seconds for --slot-wait: soon"),
        (["--slot-wait", ".5"], "invalid number of seconds for --slot-wait: .5"),
        (["--memory", "0"], "invalid size for --memory: 0"),
        (["--memory", "G"], "invalid size for --memory: G"),
        (["-q"], "unknown flag: -q"),
        (["now"], "unknown argument: now"),
    ],
)
def test_misuse_of_serve_is_explained_in_a_line(arguments, message):
    ending = ending_of(serve, *arguments)
    assert (ending.code, ending.out) == (5, "")
    assert ending.err.splitlines()[0] == f"beanfield serve: {message}"


def test_serve_help_shows_every_option_on_stdout():
    ending = ending_of(serve, "--help")
    assert (ending.code, ending.err) == (0, "")
    for option in ("-b", "-f", "-F", "-l", "-p", "-u", "-z", "-s", "-v", "-V", "-h", "--slots", "--frontends"):
        assert f" {option} " in ending.out
    for option in ("--partitions", "--slot-wait", "--hang-timeout", "--memory", "--body-memory", "--version"):
        assert f" {option} " in ending.out
    assert max(len(line) for line in ending.out.splitlines()) <= 120


def test_short_help_and_version_of_serve_are_the_long_ones():
    for short, long in (("-h", "--help"), ("-Vh", "--help"), ("-v", "--version")):
        assert vars(ending_of(serve, short)) == vars(ending_of(serve, long))


def test_one_job_of_the_largest_size_always_fits_into_body_memory():
    assert serve("-z", "1073741824").body_memory() == JOB_BYTES_CEILING + 2
    assert serve("--body-memory", "1", "-z", "10").body_memory() == 12
