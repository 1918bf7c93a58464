"""The queue of numbers: beside a deque, and what it keeps of its room."""

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from beanfield.frontend.numbers import Numbers


@given(st.lists(st.one_of(st.integers(-(2**62), 2**62), st.tuples(st.integers(0, 9)))))
def test_it_is_a_queue(steps: list[int | tuple[int]]) -> None:
    numbers, model = Numbers(), deque[int]()
    for step in steps:
        if isinstance(step, int):
            numbers.push(step)
            model.append(step)
        else:
            numbers.drop(step[0])
            for _ in range(min(step[0], len(model))):
                model.popleft()
        assert [numbers.at(index) for index in range(numbers.count)] == list(model)


def test_zeros_fill_it_up_to_a_count() -> None:
    numbers = Numbers()
    numbers.push(7)
    numbers.fill(3)
    numbers.fill(2)
    assert [numbers.at(index) for index in range(numbers.count)] == [7, 0, 0]


def test_one_that_is_never_empty_does_not_grow_without_end() -> None:
    numbers = Numbers()
    numbers.push(0)
    for number in range(1, 1_000):
        numbers.push(number)
        numbers.drop(1)
    assert numbers.at(0) == 999
    assert len(numbers._slots) < 8
