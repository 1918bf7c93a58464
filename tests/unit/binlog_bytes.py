"""Binlogs by hand: records and files of every version, as bytes."""

import struct

from beanfield.offline.binlog import Binlog
from beanfield.offline.binlog_records import BURIED, DELAYED, DELETED, READY, Window

S = 1_000_000_000
CREATED_NS = 1_700_000_000 * S


class Build:
    """One version on one kind of machine."""

    def __init__(self, version: int, length: str, before: str, unit_ns: int, after: str) -> None:
        self.version = version
        self.length = length
        self.before = before  # the struct up to the state
        self.unit_ns = unit_ns
        self.after = after

    def record(
        self,
        id: int,
        state: int = READY,
        name: bytes = b"",
        body: bytes = b"",
        *,
        priority: int = 0,
        delay_s: int = 0,
        ttr_s: int = 60,
        created_ns: int = CREATED_NS,
        deadline_ns: int = 0,
        counts: tuple[int, int, int, int, int] = (0, 0, 0, 0, 0),
        body_end: bytes = b"\r\n",
    ) -> bytes:
        """A full record with a name, a short one without."""
        unit = self.unit_ns
        times = (delay_s * S // unit, ttr_s * S // unit)
        later = (created_ns // unit, deadline_ns // unit)
        fields = struct.pack(self.before, id, priority, *times, len(body) + 2, *later, *counts, state)
        head = struct.pack(self.length, len(name)) + name + fields + struct.pack(self.after)
        return head + body + body_end if name else head

    def put(self, id: int, body: bytes = b"x", name: bytes = b"default") -> bytes:
        return self.record(id, READY, name, body)

    def delete(self, id: int) -> bytes:
        return self.record(id, DELETED)

    def bury(self, id: int) -> bytes:
        return self.record(id, BURIED)

    def delay(self, id: int, deadline_ns: int) -> bytes:
        return self.record(id, DELAYED, deadline_ns=deadline_ns)

    def file(self, *records: bytes, tail: int = 4096) -> bytes:
        return struct.pack("<i", self.version) + b"".join(records) + bytes(tail)


V7 = Build(7, "<I", "<QI4xqqi4xqqIIIIIB", 1, "3x")
V7_32 = Build(7, "<I", "<QIqqiqqIIIIIB", 1, "3x")
V5 = Build(5, "<Q", "<QI4xqqi4xqqIIIIIB", 1_000, "")
BUILDS = {"v7": V7, "v7 32-bit": V7_32, "v5": V5}


def read(*files: bytes, first: int = 1) -> Binlog:
    """Files with numbers from `first` on; an empty string at a place: there is no such file."""
    binlog = Binlog()
    for number, data in enumerate(files, first):
        if data:
            binlog.read_file(number, window_of(data))
    binlog.finish()
    return binlog


def window_of(data: bytes) -> Window:
    return Window(len(data), lambda offset, length: data[offset : offset + length])


def bodies(binlog: Binlog, *files: bytes) -> dict[int, bytes]:
    return {
        id: files[job.file - 1][job.body_offset : job.body_offset + job.body_bytes] for id, job in binlog.jobs.items()
    }


def faults(binlog: Binlog) -> list[str]:
    return [str(fault) for fault in binlog.faults]
