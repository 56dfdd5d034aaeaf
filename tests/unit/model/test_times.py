"""Times in milliseconds: what is taken, and what is refused with which words."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cometmq.model.errors import ClientError
from cometmq.model.times import delay_fault, ms_fault, time_fault, time_ms

NOW_S = 1_763_330_000
NOW_MS = NOW_S * 1000


@pytest.mark.parametrize("value", [0, 1, 99_999_999, NOW_MS])
def test_a_time_in_milliseconds_is_taken(value: int) -> None:
    assert time_fault("at_ms", value) is None
    assert time_ms("at_ms", value) == value


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (NOW_S, f"at_ms is {NOW_S}, which looks like seconds since 1970; in milliseconds: {NOW_MS}"),
        (NOW_S + 0.5, f"which looks like seconds since 1970; in milliseconds: {NOW_MS + 500}"),
        (NOW_MS + 0.5, f"a whole number of milliseconds: int({NOW_MS}.5)"),
        (-1, "at_ms is -1; it has to be at least 0"),
        (True, "at_ms is True; it has to be a whole number of milliseconds"),
        ("1", "at_ms is '1'; it has to be a whole number of milliseconds"),
    ],
)
def test_any_other_time_is_refused_with_what_was_meant(value: object, words: str) -> None:
    assert words in (time_fault("at_ms", value) or "")
    with pytest.raises(ClientError) as raised:
        time_ms("at_ms", value)  # type: ignore[arg-type]
    assert words in str(raised.value)


def test_a_delay_is_no_fraction_and_no_point_in_time() -> None:
    assert delay_fault("delay_ms", 40 * 24 * 3600 * 1000) is None
    assert "looks like a point in time" in (delay_fault("delay_ms", NOW_MS) or "")
    assert ms_fault("delay_ms", 0.5) == (
        "delay_ms is 0.5; it has to be a whole number of milliseconds: 500 if these are seconds"
    )


def test_a_datetime_needs_a_time_zone() -> None:
    assert time_ms("when", datetime(2025, 11, 16, 21, 53, 20, tzinfo=UTC)) == NOW_MS
    assert time_ms("when", datetime(2025, 11, 16, 21, 53, 20, 123_000, UTC)) == NOW_MS + 123
    with pytest.raises(ClientError, match="no time zone"):
        time_ms("when", datetime(2025, 11, 16))
