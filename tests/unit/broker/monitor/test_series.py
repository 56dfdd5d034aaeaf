"""Numbers that only grow, and how they grew lately (B13)."""

from __future__ import annotations

from cometmq.broker.monitor.statistics import Series, Window
from cometmq.wire.bodies.stats import BrokerStatsItem

TEN_S = 10_000


def test_a_window_without_samples_says_nothing() -> None:
    """B13."""
    assert Window(TEN_S, 7).summary() == BrokerStatsItem(0, 0.0, 0.0)


def test_the_first_sample_counts_for_the_span_before_it() -> None:
    """B13: as if the number had been 0 one interval earlier."""
    window = Window(TEN_S, 7)
    window.add(50_000, 30, 6)
    assert window.summary() == BrokerStatsItem(sum=30, tps=3.0, avgpt=5.0)


def test_a_window_forgets_what_is_older_than_it() -> None:
    """B13: seven samples are a minute; the number that was there before it is not counted."""
    window = Window(TEN_S, 7)
    for number in range(8):
        window.add(number * TEN_S, 100 + number, 100 + number)
    assert window.summary() == BrokerStatsItem(sum=6, tps=0.1, avgpt=1.0)


def test_a_number_that_rests_sinks_to_a_rate_of_zero() -> None:
    """B13."""
    window = Window(TEN_S, 7)
    for number in range(8):
        window.add(number * TEN_S, 500, 5)
    assert window.summary() == BrokerStatsItem(0, 0.0, 0.0)


def test_a_series_is_sampled_for_hour_and_day_less_often() -> None:
    """B13: every sixtieth sample is one of the hour, every 360th one of the day."""
    series = Series()
    series.sample(TEN_S, 1, 60, 1)
    assert (series.summary().stats_minute.sum, series.summary().stats_hour.sum) == (60, 0)
    series.sample(2 * TEN_S, 60, 60, 1)
    assert (series.summary().stats_hour.sum, series.summary().stats_day.sum) == (60, 0)
    series.sample(3 * TEN_S, 360, 60, 1)
    assert series.summary().stats_day == BrokerStatsItem(sum=60, tps=60 / 3600, avgpt=60.0)
