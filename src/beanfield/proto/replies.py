"""The text of every reply to a client, spelled exactly as beanstalkd 1.13 spells it.

Owners and frontends both write final reply text, so both use this module and nothing else does the spelling. Every
function returns the complete reply with its CRLF. Data replies (stats, lists) are made by beanfield.proto.yaml.
It knows no jobs, tubes or sessions: only numbers, names and bodies.
"""

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64, u8

CRLF: Final = b"\r\n"

_ZERO: Final[i64] = 48
_ZERO_BYTE: Final[u8] = 48
_BLANK: Final[u8] = 32
_COUNTED_END: Final[i64] = 1_000_000_000_000_000_000  # of a smaller number the digits are counted by multiplying
_COUNTED_DIGITS_MAX: Final[i64] = 19
_INSERTED: Final = b"INSERTED "
_RESERVED: Final = b"RESERVED "

# ---------------------------------------------------------------- replies without arguments
DELETED: Final = b"DELETED\r\n"
RELEASED: Final = b"RELEASED\r\n"
BURIED: Final = b"BURIED\r\n"  # to bury, and to release; to put: buried_id()
TOUCHED: Final = b"TOUCHED\r\n"
KICKED: Final = b"KICKED\r\n"  # to kick-job; to kick: kicked()
PAUSED: Final = b"PAUSED\r\n"
NOT_FOUND: Final = b"NOT_FOUND\r\n"
NOT_IGNORED: Final = b"NOT_IGNORED\r\n"
TIMED_OUT: Final = b"TIMED_OUT\r\n"
DEADLINE_SOON: Final = b"DEADLINE_SOON\r\n"
DRAINING: Final = b"DRAINING\r\n"
JOB_TOO_BIG: Final = b"JOB_TOO_BIG\r\n"
EXPECTED_CRLF: Final = b"EXPECTED_CRLF\r\n"
OUT_OF_MEMORY: Final = b"OUT_OF_MEMORY\r\n"
INTERNAL_ERROR: Final = b"INTERNAL_ERROR\r\n"
BAD_FORMAT: Final = b"BAD_FORMAT\r\n"
UNKNOWN_COMMAND: Final = b"UNKNOWN_COMMAND\r\n"


def digits(number: i64) -> bytes:
    """The decimal digits of a number."""
    return str(number).encode("ascii")


def count_digits(number: i64) -> i64:
    """Of a number >= 0."""
    assert number >= 0
    if number >= _COUNTED_END:
        return _COUNTED_DIGITS_MAX
    count: i64 = 1
    end: i64 = 10
    while number >= end:
        end *= 10
        count += 1
    return count


def write_digits(w: BytesWriter, number: i64) -> None:
    """The decimal digits of a number >= 0, without an object in between: each put and reserve has some."""
    begin: i64 = len(w)
    at = begin + count_digits(number)
    while len(w) < at:
        w.append(_ZERO_BYTE)
    # Digits come last first.
    while at > begin:
        at -= 1
        rest = number // 10
        w[at] = u8(_ZERO + number - rest * 10)
        number = rest


# ---------------------------------------------------------------- replies with arguments
def inserted_bytes(job_id: i64) -> i64:
    """What write_inserted writes."""
    return len(_INSERTED) + count_digits(job_id) + 2


def write_inserted(w: BytesWriter, job_id: i64) -> None:
    w.write(_INSERTED)
    write_digits(w, job_id)
    w.write(CRLF)


def buried_id(job_id: i64) -> bytes:
    """To a put whose job went to the buried list at once."""
    return b"BURIED " + digits(job_id) + CRLF


def reserved(job_id: i64, body: bytes) -> bytes:
    # A join copies the body once; a chain of + would copy it twice.
    return b"".join([b"RESERVED ", digits(job_id), b" ", digits(len(body)), CRLF, body, CRLF])


def found(job_id: i64, body: bytes) -> bytes:
    return b"".join([b"FOUND ", digits(job_id), b" ", digits(len(body)), CRLF, body, CRLF])


def reserved_head_bytes(job_id: i64, body_bytes: i64) -> i64:
    """What write_reserved_head writes."""
    return len(_RESERVED) + count_digits(job_id) + 1 + count_digits(body_bytes) + 2


def write_reserved_head(w: BytesWriter, job_id: i64, body_bytes: i64) -> None:
    """The line before the body; CRLF follows it."""
    w.write(_RESERVED)
    write_digits(w, job_id)
    w.append(_BLANK)
    write_digits(w, body_bytes)
    w.write(CRLF)


def found_head(job_id: i64, body_bytes: i64) -> bytes:
    """The line before a body that crosses in pieces; CRLF follows the body."""
    return b"FOUND " + digits(job_id) + b" " + digits(body_bytes) + CRLF


def kicked(jobs_count: i64) -> bytes:
    """To kick; kick-job is answered KICKED."""
    return b"KICKED " + digits(jobs_count) + CRLF


def watching(tubes_count: i64) -> bytes:
    return b"WATCHING " + digits(tubes_count) + CRLF


def using(name: bytes) -> bytes:
    return b"USING " + name + CRLF


def ok(text: bytes) -> bytes:
    """A data reply; the text ends in LF by custom, and the CRLF after it is not counted."""
    return b"".join([b"OK ", digits(len(text)), CRLF, text, CRLF])
