"""Times and durations on the command line.

Rules kept here:
- A duration is `10m`, `2h30m` or `1.5s`. A plain number is seconds, where options have always taken seconds.
- A time is a moment, or an age: a duration before now, with or without a minus sign. A time without a time
  zone is in UTC, like all times in the output.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from cometmq.cli.common.output import UsageError

_PART: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)\s*")
_DURATION: Final = re.compile(rf"(?:{_PART.pattern})+")
_PLAIN: Final = re.compile(r"\d+(?:\.\d+)?")
_UNIT_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_MILLISECONDS: Final = re.compile(r"\d{11,14}")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def parse_duration(text: str) -> int | None:
    """Milliseconds of `10m`, `2h30m`, `1.5s`; None if it is no duration."""
    text = text.strip()
    if not _DURATION.fullmatch(text):
        return None
    return round(sum(float(number) * _UNIT_MS[unit] for number, unit in _PART.findall(text)))


def milliseconds(value: str | int) -> int:
    """The value of an option that is a duration in milliseconds; its unit has to be said."""
    found = parse_duration(value) if isinstance(value, str) else value
    if found is None:
        raise UsageError(f"{value!r} is no duration; say it with its unit, such as 500ms, 10s or 2h30m")
    return found


def duration(least_s: float = 0.0) -> Callable[[str | float], float]:
    """What reads the value of an option that is a duration in seconds, at least this long."""

    def read(value: str | float) -> float:
        found = parse_duration(value) if isinstance(value, str) else value * 1000
        if found is None and isinstance(value, str) and _PLAIN.fullmatch(value.strip()):
            found = float(value) * 1000
        if found is None:
            raise UsageError(f"{value!r} is no duration; write 10s, 1m30s, 2h, or a number of seconds")
        if found < least_s * 1000:
            raise UsageError(f"{value} is too short; it has to be at least {least_s:g}s")
        return found / 1000

    return read


def parse_time(text: str) -> int:
    """Milliseconds since 1970 of `now`, `10m`, `-2h30m`, `1d ago`, `2025-01-31 12:00`, or that number."""
    text = text.strip()
    if text == "now":
        return now_ms()
    age = parse_duration(text.removeprefix("-").removesuffix("ago"))
    if age is not None:
        return now_ms() - age
    if _MILLISECONDS.fullmatch(text):
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{text!r} is no time; write 2025-01-31T12:00:00, 10m (so long ago), now, "
            "or milliseconds since 1970"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)
