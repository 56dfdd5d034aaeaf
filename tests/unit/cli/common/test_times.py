"""Times on the command line."""

from __future__ import annotations

import pytest

from cometmq.cli.common import times
from cometmq.cli.common.output import UsageError

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("now", NOW_MS),
        ("90s", NOW_MS - 90_000),
        ("10m", NOW_MS - 600_000),
        ("2h ago", NOW_MS - 7_200_000),
        ("1d", NOW_MS - 86_400_000),
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


@pytest.mark.parametrize("text", ["", "yesterday", "12", "10 parsecs", "2023-13-01"])
def test_anything_else_is_refused_with_examples(text: str) -> None:
    with pytest.raises(UsageError, match="is no time; write 2025-01-31T12:00:00, 10m"):
        times.parse_time(text)
