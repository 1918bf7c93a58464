"""Times in nanoseconds, counted in buckets: any number of them in constant memory, percentiles within one percent.

Values below 2 * SUB_BUCKETS have a bucket each; above, every power of two is cut into SUB_BUCKETS equal parts. What is
told of a bucket is its largest value, and never more than the largest value seen: a percentile is never made better
than it was. Histograms of several processes can be added. This module knows no clock.
"""

from typing import Final

from mypy_extensions import i64

SUB_BUCKETS: Final = 128  # a bucket is at most 1/128 of its values wide
_SUB_BITS: Final[i64] = 7
_FINE: Final[i64] = 2 * SUB_BUCKETS
_SHIFT_MAX: Final[i64] = 34
VALUE_MAX: Final = (1 << 42) - 1  # over an hour; longer times are counted as this, and the maximum stays exact
BUCKETS: Final = 35 * SUB_BUCKETS + SUB_BUCKETS
PERCENT: Final = 1_000  # percentiles are asked for in thousandths of a percent

assert VALUE_MAX >> 34 == 2 * SUB_BUCKETS - 1


def bucket_of(value: i64) -> i64:
    """The bucket that counts this value."""
    if value < _FINE:
        return value if value > 0 else 0
    if value > VALUE_MAX:
        value = VALUE_MAX
    shift: i64 = 1
    rest = value >> 1
    if rest >= _FINE << 16:
        rest >>= 16
        shift += 16
    if rest >= _FINE << 8:
        rest >>= 8
        shift += 8
    while rest >= _FINE:
        rest >>= 1
        shift += 1
    assert shift <= _SHIFT_MAX
    return (shift << _SUB_BITS) + rest


def largest_in(bucket: i64) -> i64:
    """The largest value that a bucket counts."""
    if bucket < _FINE:
        return bucket
    shift = (bucket >> _SUB_BITS) - 1
    return ((bucket - (shift << _SUB_BITS) + 1) << shift) - 1


class Histogram:
    """Counts of values. `count`, `total` and `largest` are exact."""

    def __init__(self) -> None:
        self.count: i64 = 0
        self.total: int = 0  # no i64: a billion commands that waited for a minute do not fit
        self.largest: i64 = 0
        self._counts: list[int] = [0] * BUCKETS

    def record(self, value: i64, times: i64) -> None:
        """The value was seen so often. A negative one (there is no such time) counts as zero."""
        assert times >= 0
        if value < 0:
            value = 0
        self.count += times
        # Both as int: of an int and an i64 mypyc makes an i64.
        seen: int = value
        often: int = times
        self.total += seen * often
        if value > self.largest and times > 0:
            self.largest = value
        index = bucket_of(value)
        self._counts[index] = self._counts[index] + times

    def percentile(self, thousandths: int) -> int:
        """The value that so many thousandths of a percent of all values do not exceed; 0 when there are none."""
        assert 0 <= thousandths <= 100 * PERCENT
        if self.count == 0:
            return 0
        all_values: int = self.count
        rank = max(1, -(-all_values * thousandths // (100 * PERCENT)))
        seen = 0
        index: i64 = 0
        while index < BUCKETS:
            seen += self._counts[index]
            if seen >= rank:
                return min(largest_in(index), self.largest)
            index += 1
        raise AssertionError("the buckets hold as many as were counted")

    def mean(self) -> int:
        count: int = self.count
        return 0 if count == 0 else self.total // count

    def add(self, other: "Histogram") -> None:
        """Count what another one has counted as well."""
        self.count += other.count
        self.total += other.total
        if other.largest > self.largest:
            self.largest = other.largest
        index: i64 = 0
        while index < BUCKETS:
            if other._counts[index] != 0:
                self._counts[index] = self._counts[index] + other._counts[index]
            index += 1

    def to_numbers(self) -> list[int]:
        """All of it, without the empty buckets: total, largest, then bucket and count in pairs."""
        numbers: list[int] = [self.total, self.largest]
        index: i64 = 0
        while index < BUCKETS:
            if self._counts[index] != 0:
                numbers.append(index)
                numbers.append(self._counts[index])
            index += 1
        return numbers


def from_numbers(numbers: list[int]) -> Histogram:
    """What to_numbers() gave, in another process perhaps."""
    histogram = Histogram()
    histogram.total = numbers[0]
    histogram.largest = numbers[1]
    index = 2
    while index < len(numbers):
        histogram._counts[numbers[index]] = numbers[index + 1]
        histogram.count += numbers[index + 1]
        index += 2
    return histogram
