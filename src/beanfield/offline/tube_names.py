"""Which tube names may be, for tools that meet names no client line has brought.

The parser of client lines (proto/line.py) checks names in place and has its own table; a test compares the two.
"""

from typing import Final

from beanfield.constants import TUBE_NAME_BYTES_MAX

NAME_CHARACTERS: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-+/;.$_()")


def valid_name(name: bytes) -> bool:
    return 1 <= len(name) <= TUBE_NAME_BYTES_MAX and not name.startswith(b"-") and NAME_CHARACTERS.issuperset(name)


def repaired_name(name: bytes) -> bytes:
    """The nearest name that may be: what may not stand becomes `_`."""
    repaired = bytes(byte if byte in NAME_CHARACTERS else 0x5F for byte in name[:TUBE_NAME_BYTES_MAX])
    if repaired.startswith(b"-") or not repaired:
        repaired = b"_" + repaired[1:]
    assert valid_name(repaired)
    return repaired


def printable(name: bytes) -> str:
    """A name for messages: as it is, or with escapes."""
    return name.decode("ascii") if valid_name(name) else ascii(name)[1:]
