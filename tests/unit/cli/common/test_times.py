"""Times on the command line."""

from __future__ import annotations

import pytest

from cometmq.cli.common import times
from cometmq.cli.common.output import UsageError, duration_text

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("now", NOW_MS),
        ("90s", NOW_MS - 90_000),
        ("10m", NOW_MS - 600_000),
        ("2h ago", NOW_MS - 7_200_000),
        ("1d", NOW_MS - 86_400_000),
        ("-10m", NOW_MS - 600_000),
        ("2h30m", NOW_MS - 9_000_000),
        ("1.5h ago", NOW_MS - 5_400_000),
        ("1699999999999", 1_699_999_999_999),
        ("2023-11-14T22:13:20", NOW_MS),
        ("2023-11-14 22:13:20", NOW_MS),
        ("2023-11-14T23:13:20+01:00", NOW_MS),
        ("2023-11-14", 1_699_920_000_000),
    ],
)
def test_a_time_is_a_moment_or_how_long_ago_it_was(
    text: str, time_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a time zone it is in UTC."""
    monkeypatch.setattr(times, "now_ms", lambda: NOW_MS)
    assert times.parse_time(text) == time_ms


@pytest.mark.parametrize("text", ["", "yesterday", "12", "10 parsecs", "2023-13-01", "30m2", "--10m"])
def test_anything_else_is_refused_with_examples(text: str) -> None:
    with pytest.raises(UsageError, match="is no time; write 2025-01-31T12:00:00, 10m"):
        times.parse_time(text)


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("10m", 600_000),
        ("2h30m", 9_000_000),
        ("3d", 259_200_000),
        ("1.5s", 1500),
        ("1m 30s", 90_000),
        ("7ms", 7),
    ],
)
def test_a_duration_has_units(text: str, duration_ms: int) -> None:
    assert times.parse_duration(text) == times.milliseconds(text) == duration_ms
    assert times.duration()(text) == duration_ms / 1000


def test_a_plain_number_is_seconds_where_it_always_was() -> None:
    assert times.duration()("2") == times.duration()(2.0) == 2.0
    assert times.duration(0.1)("0.5") == 0.5
    for text in ("", "x", "-1", "1e3", "nan", "10 m m"):
        with pytest.raises(UsageError, match="is no duration; write 10s, 1m30s, 2h, or a number of seconds"):
            times.duration()(text)
    with pytest.raises(UsageError, match=r"50ms is too short; it has to be at least 0\.1s"):
        times.duration(0.1)("50ms")
    with pytest.raises(UsageError, match="say it with its unit"):
        times.milliseconds("10000")


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [(0, "0ms"), (999, "999ms"), (1000, "1s"), (90_500, "1m30s"), (7_200_000, "2h"), (93_784_000, "1d2h")],
)
def test_a_duration_is_shown_as_it_is_written(duration_ms: int, text: str) -> None:
    assert duration_text(duration_ms) == text
