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
_BLANK: Final[u8] = 32
_REVERSIBLE_END: Final[i64] = 1_000_000_000_000_000_000  # the digits of a smaller number, reversed, fit into an i64

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


def write_digits(w: BytesWriter, number: i64) -> None:
    """The decimal digits of a number >= 0, without an object in between: each put and reserve has some."""
    if number >= _REVERSIBLE_END:
        w.write(digits(number))
        return
    # Digits come last first; turned round in a number of their own, which must not overflow.
    turned: i64 = 0
    count: i64 = 0
    while True:
        rest = number // 10
        turned = turned * 10 + (number - rest * 10)
        count += 1
        if rest == 0:
            break
        number = rest
    while count > 0:
        rest = turned // 10
        w.append(u8(_ZERO + turned - rest * 10))
        turned = rest
        count -= 1


# ---------------------------------------------------------------- replies with arguments
def inserted(job_id: i64) -> bytes:
    w = BytesWriter()
    w.write(b"INSERTED ")
    write_digits(w, job_id)
    w.write(CRLF)
    return w.getvalue()


def buried_id(job_id: i64) -> bytes:
    """To a put whose job went to the buried list at once."""
    return b"BURIED " + digits(job_id) + CRLF


def reserved(job_id: i64, body: bytes) -> bytes:
    # A join copies the body once; a chain of + would copy it twice.
    return b"".join([b"RESERVED ", digits(job_id), b" ", digits(len(body)), CRLF, body, CRLF])


def found(job_id: i64, body: bytes) -> bytes:
    return b"".join([b"FOUND ", digits(job_id), b" ", digits(len(body)), CRLF, body, CRLF])


def reserved_head(job_id: i64, body_bytes: i64) -> bytes:
    """The line before a body that crosses in pieces; CRLF follows the body."""
    w = BytesWriter()
    write_reserved_head(w, job_id, body_bytes)
    return w.getvalue()


def write_reserved_head(w: BytesWriter, job_id: i64, body_bytes: i64) -> None:
    """The same, into a reply that is being written."""
    w.write(b"RESERVED ")
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
