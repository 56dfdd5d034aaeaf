"""Counts of values by range."""

from __future__ import annotations

from cometmq.model.histogram import Histogram


def test_a_value_counts_in_the_first_range_that_reaches_it() -> None:
    histogram = Histogram((1, 5))
    for value in (0, 1, 1.1, 5, 6, 1000):
        histogram.observe(value)
    assert histogram.counts == [2, 2, 2]
    assert histogram.total == 1013.1


def test_the_same_value_can_be_counted_many_times_at_once() -> None:
    histogram = Histogram((1024,))
    histogram.observe(200, 30)
    assert (histogram.counts, histogram.total) == ([30, 0], 6000)
