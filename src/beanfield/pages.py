"""Counter pages: the numbers that every process of a server shows the others, and how they lie in shared memory.

The supervisor makes one piece of memory; every process writes its own page in it and reads all others. It outlives
its writers: a new generation goes on from the totals of the one before, so totals never go back. No job or tube is
ever shared this way. This file knows the layout and the sums; it does not know mmap, clocks or processes (io/page.py
does).

    the memory      supervisor area (SUPERVISOR_BYTES) | page of slot 0 .. slots-1 | page of frontend 0 .. frontends-1

    a page          header, HEADER_WORDS words, each written alone (an aligned word is never seen half-written):
                      0 generation of the writer   1 monotonic time of its last sign of life, ns
                      2 client connections         3 bytes its jobs cost
                    cell 0 (CELL_BYTES), cell 1 (CELL_BYTES), written in turn

    a cell          write number, CRC-32 of all else, byte count of the fields, fields (counters' encode())

A cell that its writer left half-written, by being killed, or that is read while it is written, fails its CRC; the
other cell is then the newest. So a reader never waits and never sees numbers of two different moments of one page.
An owner writes its cell before the replies of the turn leave: the next sequence it shows is never behind an id that
somebody has seen.

    supervisor area 0 layout version   1 slots   2 frontends   3 pid   4 monotonic time of the start, ns
                    5 draining (0, 1)   6, 7 CPU time, user and system, of the supervisor and of children that ended, us
                    LIVE_WORD + slot, LIVE_WORD + SLOTS_MAX + frontend: generation * 4 + 2 (accepts) + 1 (is live)

A process is live from the moment the supervisor knows it serves to the moment it knows it does not. Gauges of a
process that is not live, or whose page is from an older generation, are left out of every sum.
"""

from typing import Final
from zlib import crc32

from librt.strings import BytesWriter, read_i64_le, write_i64_le
from mypy_extensions import i64, mypyc_attr

from beanfield.constants import FRONTENDS_MAX, SLOTS_MAX

WORD_BYTES: Final = 8
LAYOUT_VERSION: Final = 1

PAGE_BYTES: Final = 4_096
HEADER_WORDS: Final = 16
CELL_BYTES: Final = 1_920
CELL_HEADER_BYTES: Final = 24

# Words of a page's header.
PAGE_GENERATION: Final = 0
PAGE_ALIVE_NS: Final = 1
PAGE_CONNECTIONS: Final = 2
PAGE_MEMORY_BYTES: Final = 3

# Words of the supervisor's area.
AREA_VERSION: Final = 0
AREA_SLOTS: Final = 1
AREA_FRONTENDS: Final = 2
AREA_PID: Final = 3
AREA_STARTED_NS: Final = 4
AREA_DRAINING: Final = 5
AREA_UTIME_US: Final = 6
AREA_STIME_US: Final = 7
LIVE_WORD: Final = 64
LIVE_BIT: Final = 1
ACCEPTING_BIT: Final = 2
SUPERVISOR_BYTES: Final = 8_192

FRONTEND_WORDS: Final = 30
OWNER_WORDS: Final = 16

assert HEADER_WORDS * WORD_BYTES + 2 * CELL_BYTES <= PAGE_BYTES
assert CELL_HEADER_BYTES + max(FRONTEND_WORDS, OWNER_WORDS) * WORD_BYTES <= CELL_BYTES
assert (LIVE_WORD + SLOTS_MAX + FRONTENDS_MAX) * WORD_BYTES <= SUPERVISOR_BYTES
assert SUPERVISOR_BYTES % PAGE_BYTES == 0


@mypyc_attr(native_class=True)
class FrontendCounters:
    """What one frontend counts: commands and client connections. The core writes the attributes."""

    def __init__(self) -> None:
        # Totals: of the server's run; a new generation goes on from them.
        self.cmd_put: i64 = 0
        self.cmd_peek: i64 = 0
        self.cmd_peek_ready: i64 = 0
        self.cmd_peek_delayed: i64 = 0
        self.cmd_peek_buried: i64 = 0
        self.cmd_reserve: i64 = 0
        self.cmd_reserve_with_timeout: i64 = 0
        self.cmd_delete: i64 = 0
        self.cmd_release: i64 = 0
        self.cmd_use: i64 = 0
        self.cmd_watch: i64 = 0
        self.cmd_ignore: i64 = 0
        self.cmd_bury: i64 = 0
        self.cmd_kick: i64 = 0
        self.cmd_touch: i64 = 0
        self.cmd_stats: i64 = 0
        self.cmd_stats_job: i64 = 0
        self.cmd_stats_tube: i64 = 0
        self.cmd_list_tubes: i64 = 0
        self.cmd_list_tube_used: i64 = 0
        self.cmd_list_tubes_watched: i64 = 0
        self.cmd_pause_tube: i64 = 0
        self.total_connections: i64 = 0
        # Gauges: of this process; they end with it.
        self.connections: i64 = 0
        self.producers: i64 = 0
        self.workers: i64 = 0
        self.waiting: i64 = 0
        self.body_memory_bytes: i64 = 0
        self.utime_us: i64 = 0
        self.stime_us: i64 = 0

    def encode(self) -> bytes:
        """The words of this page's cell, in the order of the attributes."""
        writer = BytesWriter()
        write_i64_le(writer, self.cmd_put)
        write_i64_le(writer, self.cmd_peek)
        write_i64_le(writer, self.cmd_peek_ready)
        write_i64_le(writer, self.cmd_peek_delayed)
        write_i64_le(writer, self.cmd_peek_buried)
        write_i64_le(writer, self.cmd_reserve)
        write_i64_le(writer, self.cmd_reserve_with_timeout)
        write_i64_le(writer, self.cmd_delete)
        write_i64_le(writer, self.cmd_release)
        write_i64_le(writer, self.cmd_use)
        write_i64_le(writer, self.cmd_watch)
        write_i64_le(writer, self.cmd_ignore)
        write_i64_le(writer, self.cmd_bury)
        write_i64_le(writer, self.cmd_kick)
        write_i64_le(writer, self.cmd_touch)
        write_i64_le(writer, self.cmd_stats)
        write_i64_le(writer, self.cmd_stats_job)
        write_i64_le(writer, self.cmd_stats_tube)
        write_i64_le(writer, self.cmd_list_tubes)
        write_i64_le(writer, self.cmd_list_tube_used)
        write_i64_le(writer, self.cmd_list_tubes_watched)
        write_i64_le(writer, self.cmd_pause_tube)
        write_i64_le(writer, self.total_connections)
        write_i64_le(writer, self.connections)
        write_i64_le(writer, self.producers)
        write_i64_le(writer, self.workers)
        write_i64_le(writer, self.waiting)
        write_i64_le(writer, self.body_memory_bytes)
        write_i64_le(writer, self.utime_us)
        write_i64_le(writer, self.stime_us)
        return writer.getvalue()

    def decode(self, data: bytes) -> None:
        """Take every attribute from what encode() gave."""
        assert len(data) == FRONTEND_WORDS * WORD_BYTES
        self.cmd_put = read_i64_le(data, 0)
        self.cmd_peek = read_i64_le(data, 8)
        self.cmd_peek_ready = read_i64_le(data, 16)
        self.cmd_peek_delayed = read_i64_le(data, 24)
        self.cmd_peek_buried = read_i64_le(data, 32)
        self.cmd_reserve = read_i64_le(data, 40)
        self.cmd_reserve_with_timeout = read_i64_le(data, 48)
        self.cmd_delete = read_i64_le(data, 56)
        self.cmd_release = read_i64_le(data, 64)
        self.cmd_use = read_i64_le(data, 72)
        self.cmd_watch = read_i64_le(data, 80)
        self.cmd_ignore = read_i64_le(data, 88)
        self.cmd_bury = read_i64_le(data, 96)
        self.cmd_kick = read_i64_le(data, 104)
        self.cmd_touch = read_i64_le(data, 112)
        self.cmd_stats = read_i64_le(data, 120)
        self.cmd_stats_job = read_i64_le(data, 128)
        self.cmd_stats_tube = read_i64_le(data, 136)
        self.cmd_list_tubes = read_i64_le(data, 144)
        self.cmd_list_tube_used = read_i64_le(data, 152)
        self.cmd_list_tubes_watched = read_i64_le(data, 160)
        self.cmd_pause_tube = read_i64_le(data, 168)
        self.total_connections = read_i64_le(data, 176)
        self.connections = read_i64_le(data, 184)
        self.producers = read_i64_le(data, 192)
        self.workers = read_i64_le(data, 200)
        self.waiting = read_i64_le(data, 208)
        self.body_memory_bytes = read_i64_le(data, 216)
        self.utime_us = read_i64_le(data, 224)
        self.stime_us = read_i64_le(data, 232)

    def clear_gauges(self) -> None:
        """What is left of a process that has ended: its totals."""
        self.connections = 0
        self.producers = 0
        self.workers = 0
        self.waiting = 0
        self.body_memory_bytes = 0
        self.utime_us = 0
        self.stime_us = 0

    def add(self, other: "FrontendCounters") -> None:
        """Add another process's counters, for the sum over all of a role."""
        self.cmd_put += other.cmd_put
        self.cmd_peek += other.cmd_peek
        self.cmd_peek_ready += other.cmd_peek_ready
        self.cmd_peek_delayed += other.cmd_peek_delayed
        self.cmd_peek_buried += other.cmd_peek_buried
        self.cmd_reserve += other.cmd_reserve
        self.cmd_reserve_with_timeout += other.cmd_reserve_with_timeout
        self.cmd_delete += other.cmd_delete
        self.cmd_release += other.cmd_release
        self.cmd_use += other.cmd_use
        self.cmd_watch += other.cmd_watch
        self.cmd_ignore += other.cmd_ignore
        self.cmd_bury += other.cmd_bury
        self.cmd_kick += other.cmd_kick
        self.cmd_touch += other.cmd_touch
        self.cmd_stats += other.cmd_stats
        self.cmd_stats_job += other.cmd_stats_job
        self.cmd_stats_tube += other.cmd_stats_tube
        self.cmd_list_tubes += other.cmd_list_tubes
        self.cmd_list_tube_used += other.cmd_list_tube_used
        self.cmd_list_tubes_watched += other.cmd_list_tubes_watched
        self.cmd_pause_tube += other.cmd_pause_tube
        self.total_connections += other.total_connections
        self.connections += other.connections
        self.producers += other.producers
        self.workers += other.workers
        self.waiting += other.waiting
        self.body_memory_bytes += other.body_memory_bytes
        self.utime_us += other.utime_us
        self.stime_us += other.stime_us


@mypyc_attr(native_class=True)
class OwnerCounters:
    """What one owner counts: jobs, tubes and its log. The core writes the attributes."""

    def __init__(self) -> None:
        # Totals: of the server's run; a new generation goes on from them.
        self.total_jobs: i64 = 0
        self.job_timeouts: i64 = 0
        self.next_sequence: i64 = 0
        self.binlog_records_migrated: i64 = 0
        self.binlog_records_written: i64 = 0
        # Gauges: of this process; they end with it.
        self.jobs_urgent: i64 = 0
        self.jobs_ready: i64 = 0
        self.jobs_reserved: i64 = 0
        self.jobs_delayed: i64 = 0
        self.jobs_buried: i64 = 0
        self.tubes: i64 = 0
        self.memory_bytes: i64 = 0
        self.binlog_oldest_index: i64 = 0
        self.binlog_current_index: i64 = 0
        self.utime_us: i64 = 0
        self.stime_us: i64 = 0

    def encode(self) -> bytes:
        """The words of this page's cell, in the order of the attributes."""
        writer = BytesWriter()
        write_i64_le(writer, self.total_jobs)
        write_i64_le(writer, self.job_timeouts)
        write_i64_le(writer, self.next_sequence)
        write_i64_le(writer, self.binlog_records_migrated)
        write_i64_le(writer, self.binlog_records_written)
        write_i64_le(writer, self.jobs_urgent)
        write_i64_le(writer, self.jobs_ready)
        write_i64_le(writer, self.jobs_reserved)
        write_i64_le(writer, self.jobs_delayed)
        write_i64_le(writer, self.jobs_buried)
        write_i64_le(writer, self.tubes)
        write_i64_le(writer, self.memory_bytes)
        write_i64_le(writer, self.binlog_oldest_index)
        write_i64_le(writer, self.binlog_current_index)
        write_i64_le(writer, self.utime_us)
        write_i64_le(writer, self.stime_us)
        return writer.getvalue()

    def decode(self, data: bytes) -> None:
        """Take every attribute from what encode() gave."""
        assert len(data) == OWNER_WORDS * WORD_BYTES
        self.total_jobs = read_i64_le(data, 0)
        self.job_timeouts = read_i64_le(data, 8)
        self.next_sequence = read_i64_le(data, 16)
        self.binlog_records_migrated = read_i64_le(data, 24)
        self.binlog_records_written = read_i64_le(data, 32)
        self.jobs_urgent = read_i64_le(data, 40)
        self.jobs_ready = read_i64_le(data, 48)
        self.jobs_reserved = read_i64_le(data, 56)
        self.jobs_delayed = read_i64_le(data, 64)
        self.jobs_buried = read_i64_le(data, 72)
        self.tubes = read_i64_le(data, 80)
        self.memory_bytes = read_i64_le(data, 88)
        self.binlog_oldest_index = read_i64_le(data, 96)
        self.binlog_current_index = read_i64_le(data, 104)
        self.utime_us = read_i64_le(data, 112)
        self.stime_us = read_i64_le(data, 120)

    def clear_gauges(self) -> None:
        """What is left of a process that has ended: its totals."""
        self.jobs_urgent = 0
        self.jobs_ready = 0
        self.jobs_reserved = 0
        self.jobs_delayed = 0
        self.jobs_buried = 0
        self.tubes = 0
        self.memory_bytes = 0
        self.binlog_oldest_index = 0
        self.binlog_current_index = 0
        self.utime_us = 0
        self.stime_us = 0

    def add(self, other: "OwnerCounters") -> None:
        """Add another process's counters, for the sum over all of a role."""
        self.total_jobs += other.total_jobs
        self.job_timeouts += other.job_timeouts
        self.next_sequence += other.next_sequence
        self.binlog_records_migrated += other.binlog_records_migrated
        self.binlog_records_written += other.binlog_records_written
        self.jobs_urgent += other.jobs_urgent
        self.jobs_ready += other.jobs_ready
        self.jobs_reserved += other.jobs_reserved
        self.jobs_delayed += other.jobs_delayed
        self.jobs_buried += other.jobs_buried
        self.tubes += other.tubes
        self.memory_bytes += other.memory_bytes
        # Each slot numbers its own segments: the sum over slots is the range that holds all of them (0: no log).
        if self.binlog_oldest_index == 0 or 0 < other.binlog_oldest_index < self.binlog_oldest_index:
            self.binlog_oldest_index = other.binlog_oldest_index
        if other.binlog_current_index > self.binlog_current_index:
            self.binlog_current_index = other.binlog_current_index
        self.utime_us += other.utime_us
        self.stime_us += other.stime_us


@mypyc_attr(native_class=True)
class Snapshot:
    """What `stats` shows of a whole server: sums over its processes, read one after the other."""

    def __init__(self) -> None:
        self.frontend = FrontendCounters()  # summed over all frontends
        self.owner = OwnerCounters()  # summed over all owners
        self.slots: i64 = 0
        self.slots_available: i64 = 0
        self.slot_live: list[bool] = []  # by slot
        self.frontends: i64 = 0
        self.frontends_live: i64 = 0
        self.pid: i64 = 0  # of the supervisor
        self.uptime_s: i64 = 0
        self.utime_us: i64 = 0  # CPU time of the whole tree
        self.stime_us: i64 = 0
        self.draining = False

    def add_frontend(self, counters: FrontendCounters, live: bool) -> None:
        """Add one frontend's page; `counters` is not kept, and loses its gauges when the frontend is not live."""
        self.frontends += 1
        if live:
            self.frontends_live += 1
            self.utime_us += counters.utime_us
            self.stime_us += counters.stime_us
        else:
            counters.clear_gauges()
        self.frontend.add(counters)

    def add_owner(self, counters: OwnerCounters, live: bool) -> None:
        """Add one owner's page, likewise; slot by slot."""
        self.slots += 1
        self.slot_live.append(live)
        if live:
            self.slots_available += 1
            self.utime_us += counters.utime_us
            self.stime_us += counters.stime_us
        else:
            counters.clear_gauges()
        self.owner.add(counters)


@mypyc_attr(native_class=True, allow_interpreted_subclasses=True)
class PageReader:
    """Where a frontend's core takes the figures of the whole server from. Simulators and io/page.py fill it in."""

    def snapshot(self, now_ns: int) -> Snapshot:
        """The server as its pages show it now."""
        raise NotImplementedError


def memory_bytes(slots: int, frontends: int) -> int:
    """Size of the shared memory of a server."""
    assert 1 <= slots <= SLOTS_MAX
    assert 0 <= frontends <= FRONTENDS_MAX
    return SUPERVISOR_BYTES + (slots + frontends) * PAGE_BYTES


def slot_page_offset(slot: int) -> int:
    """Where an owner's page begins."""
    assert 0 <= slot < SLOTS_MAX
    return SUPERVISOR_BYTES + slot * PAGE_BYTES


def frontend_page_offset(slots: int, frontend: int) -> int:
    """Where a frontend's page begins."""
    assert 0 <= frontend < FRONTENDS_MAX
    return SUPERVISOR_BYTES + (slots + frontend) * PAGE_BYTES


def slot_live_offset(slot: int) -> int:
    """Where in the supervisor's area the word of this slot stands."""
    assert 0 <= slot < SLOTS_MAX
    return (LIVE_WORD + slot) * WORD_BYTES


def frontend_live_offset(frontend: int) -> int:
    """Where in the supervisor's area the word of this frontend stands."""
    assert 0 <= frontend < FRONTENDS_MAX
    return (LIVE_WORD + SLOTS_MAX + frontend) * WORD_BYTES


def live_word(generation: int, bits: int) -> int:
    """The supervisor's word on one process: LIVE_BIT if its gauges count, ACCEPTING_BIT if it accepts clients."""
    assert generation >= 0
    assert 0 <= bits <= LIVE_BIT | ACCEPTING_BIT
    return generation * 4 + bits


def cell_offset(write_number: int) -> int:
    """Where in its page the cell of this write stands."""
    return HEADER_WORDS * WORD_BYTES + (write_number & 1) * CELL_BYTES


def encode_cell(write_number: int, fields: bytes) -> bytes:
    """A whole cell, to be stored at cell_offset(write_number) at once."""
    assert write_number >= 1
    assert len(fields) <= CELL_BYTES - CELL_HEADER_BYTES
    writer = BytesWriter()
    write_i64_le(writer, write_number)
    write_i64_le(writer, len(fields))
    checked = crc32(fields, crc32(writer.getvalue()))
    writer = BytesWriter()
    write_i64_le(writer, write_number)
    write_i64_le(writer, checked)
    write_i64_le(writer, len(fields))
    writer.write(fields)
    return writer.getvalue()


def cell_number(page: bytes, offset: int) -> int:
    """The write number of the cell at this offset of a page; 0 when it is empty, half-written or damaged."""
    assert len(page) == PAGE_BYTES
    number = read_i64_le(page, offset)
    field_bytes = read_i64_le(page, offset + 16)
    if number < 1 or field_bytes < 0 or field_bytes > CELL_BYTES - CELL_HEADER_BYTES:
        return 0
    begin = offset + CELL_HEADER_BYTES
    checked = crc32(page[begin : begin + field_bytes], crc32(page[offset : offset + 8] + page[offset + 16 : begin]))
    return number if checked == read_i64_le(page, offset + 8) else 0


def newest_number(page: bytes) -> int:
    """The number of the last write of this page that is whole; 0 when there was none."""
    return max(cell_number(page, cell_offset(0)), cell_number(page, cell_offset(1)))


def newest_fields(page: bytes) -> bytes:
    """The fields of the last write of this page that is whole; empty when there was none."""
    number = newest_number(page)
    if number == 0:
        return b""
    offset = cell_offset(number)
    begin = offset + CELL_HEADER_BYTES
    return page[begin : begin + read_i64_le(page, offset + 16)]


def page_word(page: bytes, word: int) -> int:
    """One word of a page's header or of the supervisor's area."""
    return read_i64_le(page, word * WORD_BYTES)


def summed(memory: bytes, now_ns: int) -> Snapshot:
    """The sums over a copy of the whole shared memory."""
    assert page_word(memory, AREA_VERSION) == LAYOUT_VERSION
    snapshot = Snapshot()
    slots = page_word(memory, AREA_SLOTS)
    frontends = page_word(memory, AREA_FRONTENDS)
    assert len(memory) >= memory_bytes(slots, frontends)
    for slot in range(slots):
        word = read_i64_le(memory, slot_live_offset(slot))
        begin = slot_page_offset(slot)
        page = memory[begin : begin + PAGE_BYTES]
        owner = OwnerCounters()
        fields = newest_fields(page)
        if fields:
            owner.decode(fields)
        snapshot.add_owner(owner, word & LIVE_BIT != 0 and word >> 2 == page_word(page, PAGE_GENERATION))
    for frontend in range(frontends):
        word = read_i64_le(memory, frontend_live_offset(frontend))
        begin = frontend_page_offset(slots, frontend)
        page = memory[begin : begin + PAGE_BYTES]
        counters = FrontendCounters()
        fields = newest_fields(page)
        if fields:
            counters.decode(fields)
        snapshot.add_frontend(counters, word & LIVE_BIT != 0 and word >> 2 == page_word(page, PAGE_GENERATION))
    snapshot.pid = page_word(memory, AREA_PID)
    snapshot.uptime_s = max(0, now_ns - page_word(memory, AREA_STARTED_NS)) // 1_000_000_000
    snapshot.utime_us += page_word(memory, AREA_UTIME_US)
    snapshot.stime_us += page_word(memory, AREA_STIME_US)
    snapshot.draining = page_word(memory, AREA_DRAINING) == 1
    return snapshot
