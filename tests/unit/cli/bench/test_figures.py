"""What a load measures: latencies in ranges, failures by reason, and those of several processes."""

from __future__ import annotations

import random

import msgspec
import pytest

from cometmq.cli.bench.figures import (
    BOUNDS_US,
    MOST_REASONS,
    OTHERS,
    CpuClock,
    Latencies,
    Percentiles,
    Tally,
    milliseconds_text,
    progress_text,
    together,
)
from cometmq.cli.bench.run import figures_of


def test_percentiles_are_right_to_two_percent_however_many_latencies_there_are() -> None:
    source = random.Random(1)
    samples = sorted(source.lognormvariate(-6, 2) for _ in range(20_000))
    latencies = Latencies()
    for seconds in samples:
        latencies.took(seconds)
    found = latencies.percentiles()
    for share, value in ((0.5, found.p50), (0.9, found.p90), (0.99, found.p99), (0.999, found.p999)):
        exact_ms = samples[int(len(samples) * share)] * 1000
        assert value == pytest.approx(exact_ms, rel=0.02)
    assert found.max == pytest.approx(samples[-1] * 1000, abs=0.001)
    assert found.mean == pytest.approx(sum(samples) / len(samples) * 1000, rel=0.01)
    assert len(latencies.counts) == len(BOUNDS_US) + 1


def test_short_latencies_are_exact_to_the_microsecond_and_no_percentile_exceeds_the_longest() -> None:
    latencies = Latencies()
    latencies.took(0.000_042, 99)
    latencies.took(0.000_100_5)
    found = latencies.percentiles()
    assert (found.p50, found.p99, found.p999, found.max) == (0.042, 0.042, 0.1, 0.1)


def test_percentiles_of_many_short_latencies_and_a_slow_one_are_exact() -> None:
    latencies = Latencies()
    for latency_us in [*range(1, 100), 2_000_000]:
        latencies.took_us(latency_us)
    found = latencies.percentiles()
    assert (found.p50, found.p99, found.max) == (0.05, 0.099, 2_000)
    assert sum(latencies.counts) == 100


def test_nothing_measured_is_nothing_and_a_clock_that_is_behind_makes_no_negative_latency() -> None:
    latencies = Latencies()
    assert latencies.percentiles() == Percentiles()
    latencies.took(-3.0)
    assert latencies.percentiles().max == 0


def test_a_latency_of_a_month_is_its_own_length() -> None:
    latencies = Latencies()
    latencies.took(30 * 86_400.0)
    assert latencies.percentiles().p50 == latencies.percentiles().max == 30 * 86_400_000


def test_the_figures_of_processes_are_those_of_one_that_did_it_all() -> None:
    first = Tally(messages=3, bytes=30, begun_s=10.0, ended_s=12.0, cpu_s=0.5)
    first.latencies.took(0.001, 3)
    first.fail("SendError", "busy", 2)
    second = Tally(messages=1, bytes=10, begun_s=9.0, ended_s=11.0, cpu_s=0.5, early=1)
    second.latencies.took(0.1)
    second.fail("SendError", "busy, too")
    whole = together([first, second, Tally()])
    assert (whole.messages, whole.bytes, whole.seconds, whole.early) == (4, 40, 3.0, 1)
    assert (whole.rate, whole.byte_rate, whole.cpu_per_million) == (4 / 3, 40 / 3, 250_000)
    assert [(each.reason, each.count, each.example) for each in whole.failures.values()] == [
        ("SendError", 3, "busy")
    ]
    assert (whole.latencies.percentiles().p50, whole.latencies.percentiles().max) == (1.0, 100.0)


def test_figures_survive_the_way_from_one_process_to_another() -> None:
    tally = Tally(messages=2, begun_s=1.0, ended_s=2.0)
    tally.latencies.took(0.5)
    tally.latencies.took(7e6)
    tally.fail("ConnectError", "nobody there")
    again = msgspec.json.decode(msgspec.json.encode(tally), type=Tally)
    assert again.latencies.counts == tally.latencies.counts
    assert figures_of(again) == figures_of(tally)


def test_reasons_beyond_the_limit_are_counted_together() -> None:
    tally = Tally()
    for number in range(MOST_REASONS + 5):
        tally.fail(f"Error {number}", "example")
    assert len(tally.failures) == MOST_REASONS + 1
    assert (tally.failures[OTHERS].count, tally.failed) == (5, MOST_REASONS + 5)


def test_without_time_or_messages_there_is_no_rate() -> None:
    assert (Tally().rate, Tally().byte_rate, Tally().cpu_per_million, Tally().seconds) == (0, 0, 0, 0)
    assert Tally(messages=1, begun_s=1.0, ended_s=1.0).rate == 0


def test_a_stopped_clock_counts_no_more_processor_time() -> None:
    clock = CpuClock()
    while clock.seconds() == 0:
        pass
    clock.stop()
    used = clock.seconds()
    running = CpuClock()
    while running.seconds() == 0:
        pass
    assert clock.seconds() == used > 0


@pytest.mark.parametrize(
    ("value", "text"), [(0.0421, "0.042"), (4.125, "4.12"), (41.26, "41.3"), (4126.0, "4,126")]
)
def test_milliseconds_are_shown_with_the_figures_that_matter(value: float, text: str) -> None:
    assert milliseconds_text(value) == text


def test_progress_is_one_line() -> None:
    tally = Tally(messages=12_345)
    tally.latencies.took(0.002)
    assert progress_text(tally, 5_000.4) == (
        "12,345 messages, 5,000 a second, p50 2.00 ms, p99 2.00 ms, 0 failed"
    )
