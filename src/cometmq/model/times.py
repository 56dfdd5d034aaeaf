"""Times and delays in milliseconds, and delay levels, as applications give them.

Rules kept here:
- A number that looks like seconds is refused, with the number that was meant: a consumer that starts in 1970,
  or a message that is delivered at once, would be noticed too late.
- A `datetime` needs a time zone, because the same clock time is another moment elsewhere.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from cometmq.model.errors import ClientError

_1970: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_SECONDS: Final = 10**8
_AFTER_SECONDS: Final = 10**11
"""Between these are the seconds of the years 1973 to 5138; as milliseconds, all of them are before 1974."""

MAX_DELAY_LEVEL: Final = 32
"""Brokers have 18 levels unless `messageDelayLevel` lists others, and take greater ones for the last."""


def ms_fault(name: str, value: object) -> str | None:
    """What is wrong with a number of milliseconds; None if it is a whole number of at least 0."""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{name} is {value}; it has to be at least 0" if value < 0 else None
    if not isinstance(value, float):
        return f"{name} is {value!r}; it has to be a whole number of milliseconds"
    meant = f"int({value})" if value >= 1000 else f"{round(value * 1000)} if these are seconds"
    return f"{name} is {value}; it has to be a whole number of milliseconds: {meant}"


def delay_fault(name: str, value: object) -> str | None:
    """What is wrong with a delay in milliseconds; None if nothing."""
    if isinstance(value, int | float) and value >= _AFTER_SECONDS:
        return f"{name} is {value}, which looks like a point in time; it has to be the time from now on"
    return ms_fault(name, value)


def time_fault(name: str, value: object) -> str | None:
    """What is wrong with a point in time, in milliseconds since 1970; None if nothing."""
    if isinstance(value, int | float) and _FIRST_SECONDS <= value < _AFTER_SECONDS:
        return f"{name} is {value}, which looks like seconds since 1970; in milliseconds: {int(value * 1000)}"
    return ms_fault(name, value)


def delivery_time_fault(name: str, value: object) -> str | None:
    """What is wrong with the time at which a message is to be delivered; None if nothing."""
    if isinstance(value, int | float) and 0 <= value < _FIRST_SECONDS:
        return f"{name} is {value}, which is in January 1970; use delay_ms for the time from now on"
    return time_fault(name, value)


def level_fault(name: str, value: object) -> str | None:
    """What is wrong with a delay level; None if brokers may have it."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_DELAY_LEVEL:
        return None
    return (
        f"{name} is {value!r}; levels are whole numbers from 0, which is no delay, to 18, or up to "
        f"{MAX_DELAY_LEVEL} on brokers with more of them; use delay_ms for a time in milliseconds"
    )


def time_ms(name: str, when: datetime | int) -> int:
    """A point in time, in milliseconds since 1970."""
    if isinstance(when, datetime):
        if when.tzinfo is None:
            raise ClientError(f"{name} has no time zone; write datetime(…, tzinfo=UTC), or when.astimezone()")
        return (when - _1970) // timedelta(milliseconds=1)
    fault = time_fault(name, when)
    if fault is not None:
        raise ClientError(fault)
    return when
