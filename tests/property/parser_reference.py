"""A second parser of client input, written with regular expressions and for nothing but being obviously right.

It takes the whole input at once and gives the operations in the form of tests.unit.parser_cases.
"""

import re

from tests.unit.parser_cases import Seen

_NAME = rb"[A-Za-z0-9+/;.$_()][-A-Za-z0-9+/;.$_()]{0,199}"
_NAME_BYTES = rb"[-A-Za-z0-9+/;.$_()]+"
_NUMBER = rb" *([0-9]+)"
_NEXT_NUMBER = rb" +([0-9]+)"

_BY_ID = [b"peek", b"reserve-job", b"delete", b"kick-job", b"touch", b"stats-job"]
_BY_NAME = [b"use", b"watch", b"ignore", b"stats-tube"]
_ALONE = [
    b"peek-ready", b"peek-delayed", b"peek-buried", b"reserve", b"stats", b"list-tubes-watched", b"list-tube-used",
    b"list-tubes",
]  # fmt: skip

_BAD: Seen = ("bad format", None)


def operations(data: bytes, job_bytes_max: int) -> list[Seen]:
    found: list[Seen] = []
    at = 0
    while (end := data.find(b"\r\n", at)) >= 0:
        line = data[at:end]
        at = end + 2
        if len(line) + 2 > 224 or b"\0" in line:
            found.append(_BAD)
        elif line.startswith(b"put "):
            at = _put(line, data, at, job_bytes_max, found)
        else:
            found.append(_command(line))
    return found


def _put(line: bytes, data: bytes, at: int, job_bytes_max: int, found: list[Seen]) -> int:
    match = re.match(rb"put" + rb" " + _NUMBER + _NEXT_NUMBER * 3 + rb"(.*)", line, re.DOTALL)
    if match is None:
        found.append(_BAD)
        return at
    priority, delay, ttr, size = (int(digits) for digits in match.groups()[:4])
    if max(priority, delay, ttr, size) > 2**32 - 1:
        found.append(_BAD)
        return at
    after = at + size + 2
    if size > job_bytes_max:
        if len(data) >= after:
            found.append(("job too big", "put"))
        return after
    if match.group(5):
        found.append(("bad format", "put"))
        return at
    if len(data) >= after:
        if data[after - 2 : after] == b"\r\n":
            found.append(("put", priority, delay, max(ttr, 1), data[at : at + size]))
        else:
            found.append(("expected crlf", "put"))
    return after


def _command(line: bytes) -> Seen:
    for word in _BY_ID:
        if line.startswith(word + b" "):
            match = re.fullmatch(_NUMBER, line[len(word) + 1 :])
            return _BAD if match is None or int(match[1]) >= 2**64 else (word.decode(), _id(match[1]))
    for word in _BY_NAME:
        if line.startswith(word + b" "):
            name = line[len(word) + 1 :]
            return (word.decode(), name) if re.fullmatch(_NAME, name) else _BAD
    if line.startswith(b"release "):
        match = re.fullmatch(rb"release " + _NUMBER + _NEXT_NUMBER * 2, line)
        if match is None or int(match[1]) >= 2**64 or int(match[2]) >= 2**32 or int(match[3]) >= 2**32:
            return _BAD
        return ("release", _id(match[1]), int(match[2]), int(match[3]))
    if line.startswith(b"bury "):
        match = re.fullmatch(rb"bury " + _NUMBER + _NEXT_NUMBER, line)
        if match is None or int(match[1]) >= 2**64 or int(match[2]) >= 2**32:
            return _BAD
        return ("bury", _id(match[1]), int(match[2]))
    if line.startswith(b"kick "):
        match = re.match(rb"[ \t\n\v\f\r]*([-+]?)([0-9]+)", line[5:])
        if match is None or int(match[2]) >= 2**64:
            return _BAD
        return ("kick", int(match[1] + match[2]) % 2**32)
    if line.startswith(b"reserve-with-timeout "):
        match = re.match(rb"reserve-with-timeout " + _NUMBER, line)
        return _BAD if match is None or int(match[1]) >= 2**31 else ("reserve-with-timeout", int(match[1]))
    if line.startswith(b"pause-tube"):
        match = re.fullmatch(rb"pause-tube *(" + _NAME_BYTES + rb")" + _NEXT_NUMBER, line)
        if match is None or int(match[2]) >= 2**32:
            return _BAD
        return (
            ("pause-tube", match[1], int(match[2])) if re.fullmatch(_NAME, match[1]) else ("bad format", "pause-tube")
        )
    if line.startswith(b"quit"):
        return ("quit",)
    for word in _ALONE:
        if line.startswith(word):
            return (word.decode(),) if line == word else _BAD
    return ("unknown command", None)


def _id(digits: bytes) -> int:
    return int(digits) if int(digits) < 2**63 else -1
