"""The shared pages in real memory: a new generation goes on from the totals of the one before."""

import os

from beanfield import pages
from beanfield.io.page import PageWriter, SharedPageReader, SharedPages, make_memory
from beanfield.pages import FrontendCounters, OwnerCounters


def two_views(slots, frontends):
    """The same memory, mapped twice, as two processes have it."""
    descriptor = make_memory(slots, frontends)
    views = SharedPages(descriptor, slots, frontends), SharedPages(descriptor, slots, frontends)
    os.close(descriptor)
    views[0].begin(4711, 1_000_000_000)
    return views


def test_new_generation_goes_on_from_the_totals_and_not_from_the_gauges():
    ours, theirs = two_views(1, 1)
    offset = pages.slot_page_offset(0)
    first = OwnerCounters()
    page = PageWriter(theirs, offset, 1, first)
    first.next_sequence, first.total_jobs, first.jobs_ready = 12, 11, 5
    page.publish()
    second = OwnerCounters()
    PageWriter(theirs, offset, 2, second)
    assert (second.next_sequence, second.total_jobs, second.jobs_ready) == (12, 11, 0)
    assert ours.word(offset) == 2


def test_snapshot_shows_what_the_asking_process_has_counted_this_moment():
    ours, theirs = two_views(1, 1)
    counters = FrontendCounters()
    page = PageWriter(theirs, pages.frontend_page_offset(1, 0), 3, counters)
    ours.show(pages.frontend_live_offset(0), pages.frontend_page_offset(1, 0), 3, pages.LIVE_BIT)
    reader = SharedPageReader(theirs)
    reader.own_page = page
    counters.cmd_stats, counters.connections = 1, 2
    snapshot = reader.snapshot(3_000_000_000)
    assert (snapshot.frontend.cmd_stats, snapshot.frontend.connections) == (1, 2)
    assert (snapshot.pid, snapshot.uptime_s, snapshot.frontends_live, snapshot.slots_available) == (4711, 2, 1, 0)


def test_connections_of_frontends_that_do_not_accept_are_not_looked_at():
    ours, theirs = two_views(1, 3)
    for frontend, connections in enumerate((9, 4, 1)):
        page = PageWriter(theirs, pages.frontend_page_offset(1, frontend), 1, FrontendCounters())
        page.set_word(pages.PAGE_CONNECTIONS, connections)
    assert theirs.connections_elsewhere_min(0) == 1 << 62
    for frontend, bits in enumerate((3, 3, pages.LIVE_BIT)):
        ours.show(pages.frontend_live_offset(frontend), pages.frontend_page_offset(1, frontend), 1, bits)
    assert theirs.connections_elsewhere_min(0) == 4
    assert theirs.connections_elsewhere_min(1) == 9


def test_memory_of_an_owner_that_has_ended_is_free():
    ours, theirs = two_views(3, 1)
    for slot in range(3):
        page = PageWriter(theirs, pages.slot_page_offset(slot), 1, OwnerCounters())
        page.set_word(pages.PAGE_MEMORY_BYTES, 100)
    assert theirs.memory_elsewhere(0) == 200
    ours.show(pages.slot_live_offset(2), pages.slot_page_offset(2), 1, 0)
    assert theirs.memory_elsewhere(0) == 100
