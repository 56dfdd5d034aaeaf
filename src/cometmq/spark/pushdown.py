"""Filters of a query that the source itself can apply: fewer queues, shorter ranges, tags at the broker.

Rules kept here:
- The result of a query is the same with and without: what is not certain is left to Spark as well. Topic,
  queue and offset are certain; times may not rise evenly, and tags and ids are compared by Spark again.
- Spark refuses a reader that takes filters unless a setting is on, which it is not by default. So a reader
  only takes filters in the process that Spark starts to push them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

import msgspec
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from cometmq.model.queue import MessageQueue

CLOCK_SLACK_MS: Final = 60_000
"""A broker's clock may have been set back by so much."""
_PUSHING: Final = "pyspark.sql.worker.data_source_pushdown_filters"
_FOR_EVER: Final = 2**62
_VALUES: Final = {
    "topic": ("topics", True),
    "queueId": ("queue_ids", True),
    "tags": ("tags", False),
    "msgId": ("msg_ids", False),
}
"""Columns of which filters give values, with the field of `Wanted`, and whether Spark need not look again."""


def filters_are_pushed() -> bool:
    """Whether this is the process in which Spark pushes filters."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _PUSHING in sys.modules or getattr(main, "name", None) == _PUSHING


class Wanted(msgspec.Struct, frozen=True):
    """What the filters of a query leave over."""

    topics: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    tags: frozenset[str] | None = None
    msg_ids: frozenset[str] | None = None
    """None for each of these wants all."""
    offsets: tuple[int, int] = (0, _FOR_EVER)
    times_ms: tuple[int, int] = (0, _FOR_EVER)
    """The first that is wanted, and the one behind the last."""

    def wants(self, queue: MessageQueue) -> bool:
        return (self.topics is None or queue.topic in self.topics) and (
            self.queue_ids is None or queue.queue_id in self.queue_ids
        )

    @property
    def limits_times(self) -> bool:
        return self.times_ms != (0, _FOR_EVER)


def push(filters: Iterable[Filter], wanted: Wanted) -> tuple[Wanted, list[Filter]]:
    """What is wanted when these hold, too, and those that Spark still has to look at."""
    left: list[Filter] = []
    for each in filters:
        narrowed, is_certain = _narrow(each, wanted)
        wanted = narrowed
        if not is_certain:
            left.append(each)
    return wanted, left


def _narrow(each: Filter, wanted: Wanted) -> tuple[Wanted, bool]:
    """What is wanted with one more filter, and whether that is all it says."""
    path = getattr(each, "attribute", None)
    column = path[0] if path is not None and len(path) == 1 else None
    if column in _VALUES:
        values = _values(each)
        if values is None:
            return wanted, False
        field, is_certain = _VALUES[column]
        before = getattr(wanted, field)
        after = values if before is None else before & values
        return msgspec.structs.replace(wanted, **{field: after}), is_certain
    if column in ("queueOffset", "storeTimestamp"):
        bounds = _bounds(each)
        if bounds is None:
            return wanted, False
        if column == "queueOffset":
            return msgspec.structs.replace(wanted, offsets=_both(wanted.offsets, bounds)), True
        slack = (max(0, bounds[0] - CLOCK_SLACK_MS), min(_FOR_EVER, bounds[1] + CLOCK_SLACK_MS))
        return msgspec.structs.replace(wanted, times_ms=_both(wanted.times_ms, slack)), False
    return wanted, False


def _values(each: Filter) -> frozenset[Any] | None:
    """The values that a filter lets through; None if it is none of that kind."""
    if isinstance(each, EqualTo | EqualNullSafe) and each.value is not None:
        return frozenset((each.value,))
    if isinstance(each, In):
        return frozenset(value for value in each.value if value is not None)
    return None


def _bounds(each: Filter) -> tuple[int, int] | None:
    """The first number that a filter lets through, and the one behind the last."""
    if isinstance(each, EqualTo | EqualNullSafe) and each.value is not None:
        number = _number(each.value)
        return number, number + 1
    if isinstance(each, GreaterThan):
        return _number(each.value) + 1, _FOR_EVER
    if isinstance(each, GreaterThanOrEqual):
        return _number(each.value), _FOR_EVER
    if isinstance(each, LessThan):
        return 0, _number(each.value)
    if isinstance(each, LessThanOrEqual):
        return 0, _number(each.value) + 1
    return None


def _number(value: Any) -> int:
    """An offset, or a time in milliseconds, which Spark gives in the zone of this machine if it says none."""
    return int(value.timestamp() * 1000) if isinstance(value, datetime) else int(value)


def _both(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return max(one[0], other[0]), min(one[1], other[1])
