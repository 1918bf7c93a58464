"""Counter pages: encoding, the two cells, and sums over live and ended processes."""

from beanfield import pages
from beanfield.pages import FrontendCounters, OwnerCounters


def numbered(counters):
    for number, name in enumerate(sorted(vars_of(counters)), start=1):
        setattr(counters, name, number)
    return counters


def vars_of(counters):
    kinds = (int,)
    return [n for n in dir(counters) if not n.startswith("_") and isinstance(getattr(counters, n), kinds)]


def page_with(*cells):
    page = bytearray(pages.PAGE_BYTES)
    for number, fields in cells:
        cell = pages.encode_cell(number, fields)
        offset = pages.cell_offset(number)
        page[offset : offset + len(cell)] = cell
    return page


def word(value):
    return value.to_bytes(8, "little", signed=True)


def memory_of(slots, frontends, owner_pages, frontend_pages, live):
    memory = bytearray(pages.memory_bytes(slots, frontends))
    for index, value in enumerate((pages.LAYOUT_VERSION, slots, frontends, 77, 1_000_000_000, 0, 5, 6)):
        memory[index * 8 : index * 8 + 8] = word(value)
    for slot, page in enumerate(owner_pages):
        begin = pages.slot_page_offset(slot)
        memory[begin : begin + pages.PAGE_BYTES] = page
    for frontend, page in enumerate(frontend_pages):
        begin = pages.frontend_page_offset(slots, frontend)
        memory[begin : begin + pages.PAGE_BYTES] = page
    for offset, value in live.items():
        memory[offset : offset + 8] = word(value)
    return memory


def test_counters_survive_encode_and_decode():
    for kind in (FrontendCounters, OwnerCounters):
        source = numbered(kind())
        target = kind()
        target.decode(source.encode())
        names = vars_of(source)
        assert len(names) * 8 == len(source.encode())
        assert {n: getattr(source, n) for n in names} == {n: getattr(target, n) for n in names}


def test_ended_process_leaves_totals_and_no_gauges():
    counters = numbered(FrontendCounters())
    put, total = counters.cmd_put, counters.total_connections
    counters.clear_gauges()
    assert (counters.cmd_put, counters.total_connections) == (put, total)
    assert (counters.connections, counters.producers, counters.workers, counters.waiting) == (0, 0, 0, 0)
    owner = numbered(OwnerCounters())
    sequence = owner.next_sequence
    owner.clear_gauges()
    assert owner.next_sequence == sequence
    assert (owner.jobs_ready, owner.tubes, owner.memory_bytes) == (0, 0, 0)


def test_newest_whole_cell_is_read():
    page = page_with((1, b"a" * 8), (2, b"b" * 8), (3, b"c" * 8))
    assert pages.newest_number(bytes(page)) == 3
    assert pages.newest_fields(bytes(page)) == b"c" * 8
    assert pages.newest_fields(bytes(pages.PAGE_BYTES)) == b""


def test_half_written_cell_leaves_the_one_before_it():
    whole = page_with((2, b"before!!" * 8))
    newer = pages.encode_cell(3, b"newer!!!" * 8)
    offset = pages.cell_offset(3)
    for cut in range(len(newer)):
        page = bytearray(whole)
        page[offset : offset + cut] = newer[:cut]
        assert pages.newest_fields(bytes(page)) == b"before!!" * 8, cut


def test_every_changed_byte_of_a_cell_is_noticed():
    page = page_with((2, b"older!!!"), (3, b"newer!!!"))
    offset = pages.cell_offset(3)
    for index in range(pages.CELL_HEADER_BYTES + 8):
        damaged = bytearray(page)
        damaged[offset + index] ^= 0x40
        assert pages.newest_fields(bytes(damaged)) == b"older!!!", index


def test_sums_leave_out_gauges_of_processes_that_are_not_live():
    owner = OwnerCounters()
    owner.total_jobs, owner.jobs_ready, owner.utime_us = 10, 4, 100
    page = page_with((1, owner.encode()))
    page[0:8] = word(7)
    frontend = FrontendCounters()
    frontend.cmd_put, frontend.connections = 3, 2
    frontend_page = page_with((1, frontend.encode()))
    frontend_page[0:8] = word(9)
    live = {
        pages.slot_live_offset(0): pages.live_word(7, pages.LIVE_BIT),
        pages.slot_live_offset(1): pages.live_word(7, pages.ACCEPTING_BIT),
        pages.slot_live_offset(2): pages.live_word(8, pages.LIVE_BIT),  # the page is still from generation 7
        pages.frontend_live_offset(0): pages.live_word(9, pages.LIVE_BIT),
        pages.frontend_live_offset(1): pages.live_word(9, pages.ACCEPTING_BIT),
    }
    memory = memory_of(3, 2, [page, page, page], [frontend_page, frontend_page], live)
    snapshot = pages.summed(bytes(memory), 4_500_000_000)
    assert (snapshot.slots, snapshot.slots_available) == (3, 1)
    assert (snapshot.owner.total_jobs, snapshot.owner.jobs_ready) == (30, 4)
    assert (snapshot.frontends, snapshot.frontends_live) == (2, 1)
    assert (snapshot.frontend.cmd_put, snapshot.frontend.connections) == (6, 2)
    assert (snapshot.utime_us, snapshot.stime_us) == (105, 6)
    assert (snapshot.pid, snapshot.uptime_s, snapshot.draining) == (77, 3, False)
