"""The indexed heap of the frontend against a sorted list, and deadlines of reservations."""

from hypothesis import given
from hypothesis import strategies as st

from beanfield.constants import NEVER_NS
from beanfield.frontend.timers import Timed, TimerHeap, check_heap
from beanfield.ipc import frames
from tests.unit.frontend_driver import Frontend, S

Steps = st.lists(st.tuples(st.sampled_from(["schedule", "cancel", "pop"]), st.integers(0, 9), st.integers(0, 50)))


@given(Steps)
def test_items_come_out_in_order_however_they_were_moved(steps: list[tuple[str, int, int]]) -> None:
    heap = TimerHeap()
    items = [Timed() for _ in range(10)]
    model: dict[int, int] = {}
    for step, index, time in steps:
        if step == "schedule":
            heap.schedule(items[index], time)
            model[index] = time
        elif step == "cancel":
            heap.cancel(items[index])
            model.pop(index, None)
        else:
            popped = heap.pop_due(time)
            if popped is None:
                assert all(due > time for due in model.values())
            else:
                due = model.pop(items.index(popped))
                assert due <= time and all(due <= other for other in model.values())
        check_heap(heap)
        assert heap.first_due_ns() == min(model.values(), default=NEVER_NS)


def test_a_heap_that_was_large_gives_room_back_and_an_empty_one_keeps_a_little() -> None:
    heap = TimerHeap()
    items = [Timed() for _ in range(1_000)]
    for at, item in enumerate(items):
        heap.schedule(item, at * 7919 % 1_000)
    rooms = []
    while heap.size > 0:
        popped = heap.pop_due(1_000)
        assert popped is not None
        check_heap(heap)
        rooms.append(len(heap.items))
        assert heap.size <= len(heap.items)
        assert len(heap.items) <= max(4 * heap.size + 4, 4 * 17)
    assert len(set(rooms)) > 3 and 0 < rooms[-1] < 100
    heap.schedule(items[0], 5)
    assert heap.first_due_ns() == 5 and len(heap.items) == rooms[-1]


def test_touch_moves_the_deadline() -> None:
    f = Frontend()
    client = f.open()
    f.holding(client, 5, ttr_ns=2 * S)
    f.frames()
    f.pass_time(1 * S)
    f.say(client, b"touch 5\r\n")
    f.answer(f.frame(), frames.TOUCHED, (5, 2 * S), b"TOUCHED\r\n")
    assert f.replies(client) == b"TOUCHED\r\n"
    f.say(client, b"reserve\r\n")
    assert f.frame().flags == 0
    f.pass_time(1 * S)
    assert f.frame().name == "LAST"


def test_a_deadline_that_has_passed_is_no_margin_even_before_its_owner_says_so() -> None:
    f = Frontend()
    client = f.open()
    f.holding(client, 5, ttr_ns=1 * S)
    f.holding(client, 9, ttr_ns=30 * S)
    f.frames()
    f.pass_time(1 * S)
    f.say(client, b"reserve\r\n")
    assert f.frame().flags == 0
    f.pass_time(28 * S)
    assert f.frame().name == "LAST"  # the margin of the other one
