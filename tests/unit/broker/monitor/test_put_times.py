"""How long puts took, as exporters read it (B13)."""

from __future__ import annotations

import re

import pytest

from cometmq.broker.monitor.put_times import MINUTE_MS, PutTimes

RANGES = (
    "[<=0ms]",
    "[0~10ms]",
    "[10~50ms]",
    "[50~100ms]",
    "[100~200ms]",
    "[200~500ms]",
    "[500ms~1s]",
    "[1~2s]",
    "[2~3s]",
    "[3~4s]",
    "[4~5s]",
    "[5~10s]",
    "[10s~]",
)


def counts(times: PutTimes) -> dict[str, int]:
    """What an exporter reads: thirteen pairs of a range and a number."""
    pairs = re.findall(r"(\[[^\]]+\]):(\d+) ", times.by_range())
    assert tuple(name for name, _ in pairs) == RANGES
    return {name: int(number) for name, number in pairs if number != "0"}


@pytest.mark.parametrize(
    ("seconds", "name"),
    [
        (0.00001, "[<=0ms]"),
        (0.0009, "[<=0ms]"),
        (0.0011, "[0~10ms]"),
        (0.049, "[10~50ms]"),
        (0.199, "[100~200ms]"),
        (0.9, "[500ms~1s]"),
        (4.5, "[4~5s]"),
        (9.9, "[5~10s]"),
        (25.0, "[10s~]"),
    ],
)
def test_messages_are_in_the_range_of_their_time(seconds: float, name: str) -> None:
    times = PutTimes()
    times.took(seconds, 7)
    assert counts(times) == {name: 7}
    assert times.longest_s == seconds


def test_a_minute_is_told_when_it_is_over() -> None:
    """In the first one, what was so far, so that an exporter finds all its numbers at once."""
    times = PutTimes()
    assert counts(times) == {}
    times.tick(1000)
    times.took(0.0001, 3)
    assert counts(times) == {"[<=0ms]": 3}
    times.tick(1000 + MINUTE_MS)
    times.took(0.5, 1)
    times.tick(2000 + MINUTE_MS)
    assert counts(times) == {"[<=0ms]": 3}
    times.tick(1000 + 2 * MINUTE_MS)
    assert counts(times) == {"[200~500ms]": 1}
    times.tick(1000 + 3 * MINUTE_MS)
    assert counts(times) == {}
    assert times.quantile_ms(0.99) == 0.0
    assert times.longest_s == 0.5


def test_the_slow_ones_are_found() -> None:
    """The time that 99 and 99.9 of a hundred messages did not exceed."""
    times = PutTimes()
    assert times.quantile_ms(0.99) == 0.0
    times.took(0.00004, 980)
    times.took(0.006, 15)
    times.took(0.9, 5)
    assert times.quantile_ms(0.5) < 0.05
    assert 5 <= times.quantile_ms(0.99) <= 7
    assert 700 <= times.quantile_ms(0.999) <= 1000
    times.took(30.0, 100_000)
    assert times.quantile_ms(0.999) == 30_000
