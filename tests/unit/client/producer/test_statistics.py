"""The mean and the 99th percentile of a producer's response times."""

from __future__ import annotations

import pytest

from cometmq.client.producer.statistics import SendStatistics


def test_without_responses_there_are_no_times() -> None:
    assert (SendStatistics().mean_ms(), SendStatistics().p99_ms()) == (0, 0)


def test_the_mean_is_exact_and_the_percentile_at_most_a_quarter_too_high() -> None:
    counted = SendStatistics()
    counted.response_s.observe(0.002, 98)
    counted.response_s.observe(0.1, 2)
    assert counted.mean_ms() == pytest.approx(3.96)
    assert 100 <= counted.p99_ms() <= 125
    counted.response_s.observe(0.002, 200)
    assert 2 <= counted.p99_ms() <= 2.5


def test_a_response_that_took_minutes_counts_as_the_longest() -> None:
    counted = SendStatistics()
    counted.response_s.observe(600.0)
    assert 50_000 < counted.p99_ms() < 60_000
