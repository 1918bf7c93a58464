"""The transcript format: reads one file into a list of steps. Knows no sockets and no servers.

A transcript is a text file. Lines that start with `#` at the top are its head: free words, and marks of the form
`# mark: value`:

    # only: 1.13     beanstalkd 1.12 differs from the contract here: not run on the oracle
    # fix: why       beanstalkd has a defect here and Beanfield does better: not run on the oracle
    # fresh: why     wants a server of its own (counts from zero, changes options or uses the tube `default`)
    # options: -z 10 command line options for that server
    # covers: words  what of the contract it shows

Every other line is one step. `C1`, `W`, `P2` … name connections; one is opened where its name first appears.

    C1 open                       open it now
    C1 > use @a                   send the text and CR LF
    C1 >> put 0 0 1               send exactly this, no CR LF
    C1 < USING @a                 expect exactly this and CR LF
    C1 < TIMED_OUT within 1.0..2.5            ... so long after this connection's last send
    C1 < TIMED_OUT within 1.0..2.5 of t0      ... so long after `mark t0`
    C1 < EOF                      expect the end of the connection (a reset counts)
    C1 = OK                       expect data of `key: value` lines: exactly the indented lines that follow, in order
    C1 ~ OK                       ... the indented lines that follow are among them
    C1 list default @a            expect OK with a list of names in this order
    C1 names default @a           ... in any order
    C1 nothing 0.2                nothing comes in this time (seconds), and the connection stays open
    C1 half-close | close | reset
    mark t0                       remember this moment
    wait 0.5 | wait 0.5 of t0     let time pass, where only time can bring about what is tested
    signal USR1                   send a signal to the server (needs `# fresh:`)

In text: `\\r`, `\\n`, `\\t`, `\\\\`, `\\xNN` as in Python; `@name` is a tube name of this run only; `{id}` is bound by
its first appearance in an expectation (digits) and afterwards stands for these digits; `{*}` matches anything up to the
end of the line; `{65535*x}` is 65,535 times x; `{bytes}` all 256 byte values in order. In data lines the value `*`
matches anything, `8..10` a whole number in that range.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

REPEAT = re.compile(rb"\{(\d+)\*([^}]+)\}")
FIELD = re.compile(rb"\{([a-z][a-z0-9]*)\}")
TUBE = re.compile(rb"@([A-Za-z0-9]+)")
WITHIN = re.compile(r"^(.*?) within (\d+\.?\d*)\.\.(\d+\.?\d*)(?: of (\w+))?$")
MARK = re.compile(r"^# (only|fix|fresh|options|covers): ?(.*)$")
STEP = re.compile(r"^(\w+) (>>|>|<|=|~|[a-z-]+)(?: (.*))?$")
VERBS = frozenset(("open", ">", ">>", "<", "=", "~", "list", "names", "nothing", "half-close", "close", "reset"))


class Step(NamedTuple):
    """One line of a transcript; `who` is empty for the steps that belong to no connection."""

    line: int
    who: str
    verb: str
    text: str
    low: float
    high: float
    since: str
    rows: tuple[str, ...]


class Transcript(NamedTuple):
    """One file: its name without the ending, its marks, its steps."""

    name: str
    marks: dict[str, str]
    steps: tuple[Step, ...]

    def runs_on_oracle(self) -> bool:
        return "only" not in self.marks and "fix" not in self.marks


class BadTranscript(Exception):
    """The file does not follow the format."""


def read_transcript(path: Path) -> Transcript:
    marks: dict[str, str] = {}
    steps: list[Step] = []
    for number, line in enumerate(path.read_text(encoding="ascii").splitlines(), 1):
        if line.startswith("#"):
            found = MARK.match(line)
            if found:
                marks[found[1]] = " ".join((marks.get(found[1], ""), found[2])).strip()
        elif line.startswith("  "):
            if not steps or steps[-1].verb not in ("=", "~"):
                raise BadTranscript(f"{path.name}:{number}: an indented line without = or ~ before it")
            steps[-1] = steps[-1]._replace(rows=(*steps[-1].rows, line.strip()))
        elif line.strip():
            steps.append(_read_step(path.name, number, line.rstrip()))
    if "options" in marks and "fresh" not in marks:
        raise BadTranscript(f"{path.name}: options without fresh")
    return Transcript(path.stem, marks, tuple(steps))


def _read_step(file: str, number: int, line: str) -> Step:
    first, _, rest = line.partition(" ")
    if first in ("mark", "wait", "signal"):
        amount, _, since = rest.partition(" of ")
        seconds = float(amount) if first == "wait" else 0.0
        return Step(number, "", first, rest if first != "wait" else "", seconds, 0.0, since, ())
    found = STEP.match(line)
    if not found or found[2] not in VERBS:
        raise BadTranscript(f"{file}:{number}: no such step: {line}")
    text, low, high, since = found[3] or "", 0.0, 0.0, ""
    if found[2] == "<":
        timed = WITHIN.match(text)
        if timed:
            text, low, high, since = timed[1], float(timed[2]), float(timed[3]), timed[4] or ""
    elif found[2] == "nothing":
        low, text = float(text), ""
    return Step(number, found[1], found[2], text, low, high, since, ())


class Words:
    """Turns the text of steps into bytes; holds what `{id}` and `@tube` stand for in this run."""

    def __init__(self, tube_prefix: str) -> None:
        self._tube_prefix = tube_prefix.encode()
        self._fields: dict[str, bytes] = {}

    def to_send(self, text: str) -> bytes:
        def bound(found: re.Match[bytes]) -> bytes:
            name = found[1].decode()
            if name not in self._fields:
                raise BadTranscript(f"{{{name}}} is not bound yet")
            return self._fields[name]

        return _unescape(FIELD.sub(bound, self._expand(text)))

    def to_expect(self, text: str) -> re.Pattern[bytes]:
        """The pattern of an expected reply; unbound fields become groups of digits."""
        pattern, here, named = b"", 0, set()
        data = self._expand(text)
        for found in re.finditer(rb"\{([a-z][a-z0-9]*|\*)\}", data):
            pattern += re.escape(_unescape(data[here : found.start()]))
            here, name = found.end(), found[1].decode()
            if name == "*":
                pattern += rb"[^\r\n]*"
            elif name in self._fields:
                pattern += re.escape(self._fields[name])
            elif name in named:
                pattern += b"(?P=" + name.encode() + b")"
            else:
                named.add(name)
                pattern += b"(?P<" + name.encode() + rb">\d+)"
        return re.compile(pattern + re.escape(_unescape(data[here:])), re.DOTALL)

    def bind(self, found: re.Match[bytes]) -> None:
        self._fields.update({name: value for name, value in found.groupdict().items() if value is not None})

    def _expand(self, text: str) -> bytes:
        data = text.encode("ascii")
        data = TUBE.sub(lambda found: self._tube_prefix + b"." + found[1], data)
        data = REPEAT.sub(lambda found: int(found[1]) * found[2], data)
        return data.replace(b"{bytes}", _escape(bytes(range(256))))


def _escape(data: bytes) -> bytes:
    return b"".join(b"\\x%02x" % byte for byte in data)


def _unescape(data: bytes) -> bytes:
    if b"\\" not in data:
        return data
    return data.decode("ascii").encode("ascii").decode("unicode_escape").encode("latin-1")
