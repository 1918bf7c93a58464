"""The load generator's histogram: exact counts, percentiles that are never better than they were."""

import json

from hypothesis import given
from hypothesis import strategies as st

from beanfield.bench.histogram import (
    BUCKETS,
    PERCENT,
    SUB_BUCKETS,
    VALUE_MAX,
    Histogram,
    bucket_of,
    from_numbers,
    largest_in,
)

TIMES = st.one_of(st.integers(0, 1_000), st.integers(0, 10**9), st.integers(0, VALUE_MAX))


def histogram_of(values):
    histogram = Histogram()
    for value in values:
        histogram.record(value, 1)
    return histogram


@given(TIMES)
def test_a_bucket_holds_its_values_and_is_narrow(value):
    bucket = bucket_of(value)
    assert 0 <= bucket < BUCKETS
    assert value <= largest_in(bucket) <= value + value // SUB_BUCKETS
    assert bucket == 0 or largest_in(bucket - 1) < value


def test_buckets_follow_each_other_without_gap_or_overlap():
    for bucket in range(1, BUCKETS):
        assert bucket_of(largest_in(bucket)) == bucket
        if bucket + 1 < BUCKETS:
            assert bucket_of(largest_in(bucket) + 1) == bucket + 1


def test_times_beyond_the_last_bucket_keep_their_maximum():
    histogram = histogram_of([VALUE_MAX * 8, 5])
    assert histogram.largest == VALUE_MAX * 8
    assert histogram.percentile(100 * PERCENT) == VALUE_MAX
    assert histogram.percentile(50 * PERCENT) == 5


def test_a_negative_time_counts_as_none():
    histogram = histogram_of([-7])
    assert (histogram.count, histogram.total, histogram.largest) == (1, 0, 0)


@given(st.lists(TIMES, min_size=1, max_size=300), st.integers(0, 100 * PERCENT))
def test_a_percentile_is_that_of_the_sorted_values_or_a_hundredth_above(values, thousandths):
    histogram = histogram_of(values)
    rank = max(1, -(-len(values) * thousandths // (100 * PERCENT)))
    exact = sorted(values)[rank - 1]
    assert exact <= histogram.percentile(thousandths) <= min(exact + exact // SUB_BUCKETS, max(values))
    assert (histogram.count, histogram.total, histogram.largest) == (len(values), sum(values), max(values))
    assert histogram.mean() == sum(values) // len(values)


@given(st.lists(TIMES, max_size=50), st.lists(TIMES, max_size=50))
def test_added_histograms_are_one_of_all_values(some, others):
    added = histogram_of(some)
    added.add(histogram_of(others))
    assert added.to_numbers() == histogram_of(some + others).to_numbers()
    assert added.count == len(some) + len(others)


@given(st.lists(TIMES, max_size=50))
def test_numbers_bring_a_histogram_to_another_process(values):
    histogram = histogram_of(values)
    copy = from_numbers(json.loads(json.dumps(histogram.to_numbers())))
    assert copy.to_numbers() == histogram.to_numbers()
    assert (copy.count, copy.total, copy.largest) == (histogram.count, histogram.total, histogram.largest)


def test_an_empty_histogram_tells_zero():
    histogram = Histogram()
    assert (histogram.percentile(99 * PERCENT), histogram.mean(), histogram.count) == (0, 0, 0)


def test_a_value_can_be_recorded_many_times_at_once():
    histogram = Histogram()
    histogram.record(10, 99)
    histogram.record(1_000_000, 1)
    assert histogram.percentile(99 * PERCENT) == 10
    assert histogram.percentile(99 * PERCENT + 1) == 1_000_000
