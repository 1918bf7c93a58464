"""The two command lines, as data: beanstalkd's own, letter for letter, and `beanfield serve`, which adds long options.

`beanfieldd` is started by what starts beanstalkd, so its parsing, messages and exit codes are beanstalkd's: options may
be bundled (`-VVp1234`), values attached or separate, the last one wins, parsing ends at the first thing that is no
option. What beanstalkd does not have comes from the environment: BEANFIELD_SLOTS for --slots, and so on.

This file is imported before the server listens, so it imports nothing. It opens nothing and prints nothing: a command
line that does not lead to a server is an Ending, which says what to print and the exit code.
"""

from beanfield import PROTOCOL_VERSION
from beanfield.constants import (
    BODY_MEMORY_DEFAULT,
    DEFAULT_PORT,
    FRONTENDS_MAX,
    HANG_TIMEOUT_S_DEFAULT,
    JOB_BYTES_CEILING,
    JOB_BYTES_DEFAULT,
    NS_PER_MS,
    NS_PER_S,
    PARTITIONS_MAX,
    SEGMENT_BYTES_DEFAULT,
    SLOT_WAIT_S_DEFAULT,
    SLOTS_MAX,
    SYNC_MS_DEFAULT,
    U64_MAX,
)

EXIT_USAGE = 5
SYNC_MS_MAX = 1_000_000_000  # a longer -f comes to the same: weeks
SECONDS_MAX = 1_000_000_000

BEANSTALKD_OPTIONS = """Options:
 -b DIR   write-ahead log directory
 -f MS    fsync at most once every MS milliseconds (default is 50ms); use -f0 for "always fsync"
 -F       never fsync
 -l ADDR  listen on address (default is 0.0.0.0); unix:PATH for a unix socket
 -p PORT  listen on port (default is 11300)
 -u USER  become user and group
 -z BYTES set the maximum job size in bytes (default is 65535); at most 1073741824
 -s BYTES set the size of each write-ahead log file (default is 10485760)
 -v       show version information
 -V       increase verbosity
 -h       show this help
"""

LONG_OPTIONS = """Beyond beanstalkd (or from the environment: BEANFIELD_SLOTS for --slots, and so on):
 --slots N          processes that own tubes and jobs (default: a quarter of the cores, at least 1)
 --frontends N      processes that speak to clients (default: the other cores, at least 1); 0: the process of the
                    only slot does that too, the default with one slot on one or two cores
 --partitions N     how finely tube names are divided over the slots (default 256); fixed for the life of the data
 --slot-wait S      how long a command waits for a slot that restarts, in seconds (default 10; 0: not at all)
 --hang-timeout S   a process that does not answer for so long is killed and restarted (default 10; 0: never)
 --memory BYTES     put answers OUT_OF_MEMORY while all jobs together cost more (default: 80 % of the memory there is);
                    K, M, G may follow the number
 --body-memory BYTES  the same for half-received jobs, per frontend (default 256M, or one job of the largest size)
 --version          show the version and which build this is
 --help             show this help
"""


class Ending(Exception):
    """The command ends here: what to print on stdout and stderr, and the exit code."""

    def __init__(self, code: int, out: str = "", err: str = "") -> None:
        super().__init__(err or out)
        self.code = code
        self.out = out
        self.err = err


class ServeOptions:
    """What a command line asks for. None: to be found out once the server listens."""

    def __init__(self, program: str) -> None:
        self.program = program  # what messages begin with
        self.listen: str | None = None
        self.port = str(DEFAULT_PORT)
        self.user: str | None = None
        self.job_bytes_max = JOB_BYTES_DEFAULT
        self.verbosity = 0
        self.wal_directory: str | None = None
        self.sync_ms = SYNC_MS_DEFAULT
        self.sync = True
        self.segment_bytes = SEGMENT_BYTES_DEFAULT
        self.slots: int | None = None
        self.frontends: int | None = None
        self.partitions: int | None = None
        self.slot_wait_ns = SLOT_WAIT_S_DEFAULT * NS_PER_S
        self.hang_timeout_ns = HANG_TIMEOUT_S_DEFAULT * NS_PER_S
        self.memory_bytes: int | None = None
        self.body_memory_bytes: int | None = None
        self.address_given: list[str] = []  # -l and -p as given, to warn that an inherited socket overrides them
        self.warnings: list[str] = []

    def sync_ns(self) -> int:
        """-f and -F as the log takes them: how long an answer may be ahead of the disk; 0: not at all, -1: for ever."""
        return min(self.sync_ms, SYNC_MS_MAX) * NS_PER_MS if self.sync else -1

    def body_memory(self) -> int:
        """--body-memory; a job of the largest size fits at any rate."""
        return max(self.body_memory_bytes or BODY_MEMORY_DEFAULT, self.job_bytes_max + 2)


# ---------------------------------------------------------------- the command lines
def parse_beanfieldd(arguments: list[str], environment: dict[str, str], program: str) -> ServeOptions:
    """beanstalkd's command line, and the environment. Raises Ending."""
    options = ServeOptions(program)
    usage = f"Use: {program} [OPTIONS]\n\n{BEANSTALKD_OPTIONS}"
    _take_environment(options, environment, usage)
    queue = list(arguments)
    while queue:
        argument = queue.pop(0)
        if len(argument) < 2 or argument[0] != "-":
            raise _misuse(program, f"unknown argument: {argument}", usage)
        _take_letters(options, argument, queue, usage)
    return _checked(options)


def parse_serve(arguments: list[str], environment: dict[str, str], program: str) -> ServeOptions:
    """The command line of `beanfield serve`: the same, with long options. Raises Ending."""
    options = ServeOptions(program)
    usage = f"Use: {program} [OPTIONS]\n\n{BEANSTALKD_OPTIONS}\n{LONG_OPTIONS}"
    hint = f"Use: {program} --help shows all options\n"
    _take_environment(options, environment, hint)
    queue = list(arguments)
    while queue:
        argument = queue.pop(0)
        if argument == "--help":
            raise Ending(0, out=usage)
        if argument == "--version":
            raise Ending(0, out=version_text())
        if argument.startswith("--") and len(argument) > 2:
            name, equals, value = argument[2:].partition("=")
            if name not in _LONG:
                raise _misuse(program, f"unknown option: --{name}", hint)
            if not equals:
                if not queue:
                    raise _misuse(program, f"option requires an argument: --{name}", hint)
                value = queue.pop(0)
            _take_long(options, name, value, f"--{name}", hint)
        elif len(argument) < 2 or argument[0] != "-":
            raise _misuse(program, f"unknown argument: {argument}", hint)
        else:
            _take_letters(options, argument, queue, hint, usage)
    return _checked(options)


def version_text() -> str:
    """What --version prints: the version, and which build runs."""
    from beanfield.build import BUILD
    from beanfield.io.poller import build_name

    return f"beanfield {PROTOCOL_VERSION} ({BUILD} core, {build_name()} reactor)\n"


# ---------------------------------------------------------------- single options
def _take_letters(
    options: ServeOptions, argument: str, queue: list[str], usage: str, long_help: str | None = None
) -> None:
    """One argument of bundled letters; a value may be the rest of it or the next argument.

    long_help: of a command with long options, whose -h and -v are --help and --version. beanstalkd's go to stderr.
    """
    position = 1
    while position < len(argument):
        letter = argument[position]
        position += 1
        if letter in "bflpsuz":
            value = argument[position:]
            position = len(argument)
            if not value:
                if not queue:
                    raise _misuse(options.program, f"flag requires an argument: -{letter}", usage)
                value = queue.pop(0)
            _take_valued(options, letter, value, usage)
        elif letter == "F":
            options.sync = False
        elif letter == "V":
            options.verbosity += 1
        elif letter in "cn":
            options.warnings.append(f"-{letter} flag was removed. binlog is always compacted.")
        elif letter == "h":
            raise Ending(0, err=usage) if long_help is None else Ending(0, out=long_help)
        elif letter == "v":
            raise Ending(0, out=f"beanstalkd {PROTOCOL_VERSION}\n" if long_help is None else version_text())
        else:
            # beanstalkd shows what is left, from the character before the one it does not know.
            raise _misuse(options.program, f"unknown flag: {argument[position - 2 :]}", usage)


def _take_valued(options: ServeOptions, letter: str, value: str, usage: str) -> None:
    if letter == "l":
        options.listen = value
        options.address_given.append(f"-l{value}")
    elif letter == "p":
        options.port = value
        options.address_given.append(f"-p{value}")
    elif letter == "u":
        options.user = value
    elif letter == "b":
        options.wal_directory = value
    else:
        size = _scanned(options, value, usage)
        if letter == "f":
            options.sync_ms = size
            options.sync = True
        elif letter == "s":
            options.segment_bytes = size
        else:
            if size > JOB_BYTES_CEILING:
                options.warnings.append(f"maximum job size was set to {JOB_BYTES_CEILING}")
                size = JOB_BYTES_CEILING
            options.job_bytes_max = size


_LONG = ("slots", "frontends", "partitions", "slot-wait", "hang-timeout", "memory", "body-memory")


def _take_environment(options: ServeOptions, environment: dict[str, str], usage: str) -> None:
    for name in _LONG:
        variable = "BEANFIELD_" + name.upper().replace("-", "_")
        if variable in environment:
            _take_long(options, name, environment[variable], variable, usage)


def _take_long(options: ServeOptions, name: str, value: str, source: str, usage: str) -> None:
    """One long option; source is where it was given, for messages."""
    if name == "slots":
        options.slots = _count(options, value, source, SLOTS_MAX, usage)
    elif name == "frontends":
        options.frontends = _count(options, value, source, FRONTENDS_MAX, usage, smallest=0)
    elif name == "partitions":
        options.partitions = _count(options, value, source, PARTITIONS_MAX, usage)
    elif name == "slot-wait":
        options.slot_wait_ns = _seconds(options, value, source, usage)
    elif name == "hang-timeout":
        options.hang_timeout_ns = _seconds(options, value, source, usage)
    elif name == "memory":
        options.memory_bytes = _bytes(options, value, source, usage)
    else:
        assert name == "body-memory"
        options.body_memory_bytes = _bytes(options, value, source, usage)


def _checked(options: ServeOptions) -> ServeOptions:
    """What only the whole command line can show."""
    if options.slots is not None and options.partitions is not None and options.slots > options.partitions:
        raise Ending(
            EXIT_USAGE,
            err=f"{options.program}: {options.slots} slots need as many partitions or more, not {options.partitions}\n",
        )
    if options.frontends == 0 and options.slots is not None and options.slots != 1:
        raise Ending(
            EXIT_USAGE,
            err=f"{options.program}: without frontend processes there is one slot, not {options.slots}: "
            "leave --frontends 0 out, or say --slots 1\n",
        )
    return options


# ---------------------------------------------------------------- values
def _scanned(options: ServeOptions, text: str, usage: str) -> int:
    """A size as C's scanf reads it with %zu and nothing after: blanks and a sign before it; negative ones wrap."""
    digits = text.lstrip(" \t\n\v\f\r")
    negative = digits.startswith("-")
    if digits[:1] in ("+", "-"):
        digits = digits[1:]
    if not (digits.isascii() and digits.isdigit()):
        raise _misuse(options.program, f"invalid size: {text}", usage)
    # A number of any length: Python's own limit on digits must not make it an exception.
    significant = digits.lstrip("0")
    value = int(significant or "0") if len(significant) <= 20 else U64_MAX + 1
    if value > U64_MAX:
        return U64_MAX
    return (U64_MAX + 1 - value) & U64_MAX if negative else value


def _count(options: ServeOptions, text: str, source: str, largest: int, usage: str, smallest: int = 1) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and smallest <= int(text) <= largest):
        raise _misuse(options.program, f"invalid number for {source} ({smallest} to {largest}): {text}", usage)
    return int(text)


def _seconds(options: ServeOptions, text: str, source: str, usage: str) -> int:
    """Seconds, with up to nine decimals, as nanoseconds."""
    whole, _, decimals = text.partition(".")
    digits = whole + decimals
    if not (digits.isascii() and digits.isdigit() and whole and len(whole) <= 10 and len(decimals) <= 9):
        raise _misuse(options.program, f"invalid number of seconds for {source}: {text}", usage)
    if int(whole) > SECONDS_MAX:
        raise _misuse(options.program, f"too many seconds for {source}: {text}", usage)
    return int(whole) * NS_PER_S + int(decimals.ljust(9, "0"))


def _bytes(options: ServeOptions, text: str, source: str, usage: str) -> int:
    """A number of bytes, with K, M, G or T after it."""
    shift = {"K": 10, "M": 20, "G": 30, "T": 40}.get(text[-1:].upper(), 0)
    digits = text[:-1] if shift else text
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 15 and 0 < int(digits) << shift < 1 << 60):
        raise _misuse(options.program, f"invalid size for {source}: {text}", usage)
    return int(digits) << shift


def _misuse(program: str, message: str, usage: str) -> Ending:
    return Ending(EXIT_USAGE, err=f"{program}: {message}\n{usage}")
