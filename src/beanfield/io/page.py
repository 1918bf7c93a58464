"""The shared memory of a server: made by the supervisor, mapped by all, one writer per page (layout: pages.py).

Nothing here waits or locks. A word is written alone; a cell is written whole, with its CRC, beside the one before.
This module knows mmap and descriptors; it does not know what the numbers mean.
"""

import mmap
import os
import resource
import sys
import tempfile
from typing import Protocol

from beanfield import pages
from beanfield.pages import WORD_BYTES


class Counters(Protocol):
    """FrontendCounters and OwnerCounters, to a page."""

    utime_us: int
    stime_us: int

    def encode(self) -> bytes: ...
    def decode(self, data: bytes) -> None: ...
    def clear_gauges(self) -> None: ...


def make_memory(slots: int, frontends: int) -> int:
    """A descriptor of zeroed memory for so many processes, without a name. The caller closes it."""
    if sys.platform == "linux":
        descriptor = os.memfd_create("beanfield-pages", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, pages.memory_bytes(slots, frontends))
    return descriptor


class SharedPages:
    """The whole memory, mapped."""

    def __init__(self, descriptor: int, slots: int, frontends: int) -> None:
        self.slots = slots
        self.frontends = frontends
        self.memory = mmap.mmap(descriptor, pages.memory_bytes(slots, frontends))
        self.words = memoryview(self.memory).cast("q")

    def word(self, offset: int) -> int:
        """The word at a byte offset."""
        return int(self.words[offset // WORD_BYTES])

    def set_word(self, offset: int, value: int) -> None:
        """Write a word at a byte offset; nobody ever sees half of it."""
        self.words[offset // WORD_BYTES] = value

    # ---------------------------------------------------------------- the supervisor's side
    def begin(self, pid: int, started_ns: int) -> None:
        """Describe the server in the supervisor's area."""
        for word, value in (
            (pages.AREA_VERSION, pages.LAYOUT_VERSION),
            (pages.AREA_SLOTS, self.slots),
            (pages.AREA_FRONTENDS, self.frontends),
            (pages.AREA_PID, pid),
            (pages.AREA_STARTED_NS, started_ns),
        ):
            self.words[word] = value

    def show(self, live_offset: int, page_offset: int, generation: int, bits: int) -> None:
        """The supervisor's word about a process. Of one that is not live, the page's own words end too."""
        self.set_word(live_offset, pages.live_word(generation, bits))
        if bits == 0:
            self.set_word(page_offset + pages.PAGE_CONNECTIONS * WORD_BYTES, 0)
            self.set_word(page_offset + pages.PAGE_MEMORY_BYTES * WORD_BYTES, 0)

    # ---------------------------------------------------------------- a frontend's and an owner's side
    def connections_elsewhere_min(self, frontend: int) -> int:
        """The smallest number of connections of the other frontends that accept; very large when there is no other."""
        fewest = 1 << 62
        for other in range(self.frontends):
            if other != frontend and self.word(pages.frontend_live_offset(other)) & pages.ACCEPTING_BIT:
                offset = pages.frontend_page_offset(self.slots, other) + pages.PAGE_CONNECTIONS * WORD_BYTES
                fewest = min(fewest, self.word(offset))
        return fewest

    def memory_elsewhere(self, slot: int) -> int:
        """What the jobs of all other owners cost."""
        total = 0
        for other in range(self.slots):
            if other != slot:
                total += self.word(pages.slot_page_offset(other) + pages.PAGE_MEMORY_BYTES * WORD_BYTES)
        return total


class PageWriter:
    """A process's own page. Goes on from the totals of the generation before."""

    def __init__(self, shared: SharedPages, offset: int, generation: int, counters: Counters) -> None:
        self._shared = shared
        self._offset = offset
        self._counters = counters
        page = shared.memory[offset : offset + pages.PAGE_BYTES]
        self._number = pages.newest_number(page)
        fields = pages.newest_fields(page)
        if fields:
            counters.decode(fields)
        counters.clear_gauges()
        self._fields = b""
        self.publish()
        self.set_word(pages.PAGE_GENERATION, generation)

    def set_word(self, word: int, value: int) -> None:
        """A word of the header, by its index."""
        self._shared.set_word(self._offset + word * WORD_BYTES, value)

    def publish(self) -> None:
        """Show the counters as they are now."""
        fields = self._counters.encode()
        if fields == self._fields:
            return
        self._fields = fields
        self._number += 1
        cell = pages.encode_cell(self._number, fields)
        begin = self._offset + pages.cell_offset(self._number)
        self._shared.memory[begin : begin + len(cell)] = cell

    def sign_of_life(self, now_ns: int) -> None:
        """Now and then: the time, and the CPU time that this process has used."""
        self.set_word(pages.PAGE_ALIVE_NS, now_ns)
        used = resource.getrusage(resource.RUSAGE_SELF)
        self._counters.utime_us = int(used.ru_utime * 1_000_000)
        self._counters.stime_us = int(used.ru_stime * 1_000_000)


class SharedPageReader(pages.PageReader):
    """Snapshots of the whole server for `stats`. Publishes the reader's own page first, so that it is among them."""

    def __init__(self, shared: SharedPages) -> None:
        self._shared = shared
        # The page of the process that asks is as new as its last turn, until it is brought up to date.
        self.own_page: PageWriter | None = None

    def snapshot(self, now_ns: int) -> pages.Snapshot:
        """The server as its pages show it now."""
        if self.own_page is not None:
            self.own_page.sign_of_life(now_ns)
            self.own_page.publish()
        return pages.summed(self._shared.memory[:], now_ns)
