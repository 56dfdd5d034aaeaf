"""Filter pushdown: filters of a query reduce queues, offset ranges and tags in the source.

Rules kept here:
- Results are the same with and without. Filters on topic, queue and offset are exact; Spark applies filters
  on times, tags and ids again.
- Spark refuses a reader with `pushFilters` unless a setting is on, which is off by default. So a reader has
  it only in the process that Spark starts to push filters.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec
from pyspark.sql import datasource  # Spark 4.0 has no filters

from cometmq.model.queue import MessageQueue

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

CLOCK_SLACK_MS: Final = 60_000
"""The clock of a broker may have been set back by this much."""
_PUSHING: Final = "pyspark.sql.worker.data_source_pushdown_filters"
FOR_EVER: Final = 2**62
"""No limit, for offsets and times."""
_VALUES: Final = {
    "topic": ("topics", True),
    "queueId": ("queue_ids", True),
    "tags": ("tags", False),
    "msgId": ("msg_ids", False),
}
"""Columns with filters by value: the field of `Wanted`, and whether the filter is exact."""


def filters_are_pushed() -> bool:
    """Whether Spark pushes filters in this process."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _PUSHING in sys.modules or getattr(main, "name", None) == _PUSHING


class Wanted(msgspec.Struct, frozen=True):
    """What the filters of a query select; None selects all."""

    topics: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    tags: frozenset[str] | None = None
    msg_ids: frozenset[str] | None = None
    offsets: tuple[int, int] = (0, FOR_EVER)
    times_ms: tuple[int, int] = (0, FOR_EVER)
    """Inclusive start, exclusive end."""

    def wants(self, queue: MessageQueue) -> bool:
        return (self.topics is None or queue.topic in self.topics) and (
            self.queue_ids is None or queue.queue_id in self.queue_ids
        )

    @property
    def limits_times(self) -> bool:
        return self.times_ms != (0, FOR_EVER)


def push(filters: Iterable[Filter], wanted: Wanted) -> tuple[Wanted, list[Filter]]:
    """Apply filters. Returns the selection, and the filters that Spark has to apply again."""
    left: list[Filter] = []
    for each in filters:
        wanted, is_exact = _narrow(each, wanted)
        if not is_exact:
            left.append(each)
    return wanted, left


def _narrow(each: Filter, wanted: Wanted) -> tuple[Wanted, bool]:
    """Apply one filter; also whether that is exact."""
    path = getattr(each, "attribute", None)
    column = path[0] if path is not None and len(path) == 1 else None
    if column in _VALUES:
        values = _values(each)
        if values is None:
            return wanted, False
        field, is_exact = _VALUES[column]
        before = getattr(wanted, field)
        after = values if before is None else before & values
        return msgspec.structs.replace(wanted, **{field: after}), is_exact
    if column in ("queueOffset", "storeTimestamp"):
        bounds = _bounds(each)
        if bounds is None:
            return wanted, False
        if column == "queueOffset":
            return msgspec.structs.replace(wanted, offsets=_both(wanted.offsets, bounds)), True
        slack = (max(0, bounds[0] - CLOCK_SLACK_MS), min(FOR_EVER, bounds[1] + CLOCK_SLACK_MS))
        return msgspec.structs.replace(wanted, times_ms=_both(wanted.times_ms, slack)), False
    return wanted, False


def _values(each: Filter) -> frozenset[Any] | None:
    """The values that a filter selects; None for another filter."""
    if isinstance(each, datasource.EqualTo | datasource.EqualNullSafe) and each.value is not None:
        return frozenset((each.value,))
    if isinstance(each, datasource.In):
        return frozenset(value for value in each.value if value is not None)
    return None


def _bounds(each: Filter) -> tuple[int, int] | None:
    """The range of numbers, or of milliseconds, that a filter selects; None for another filter."""
    value = getattr(each, "value", None)
    if isinstance(value, datetime):  # without a zone it is in that of this machine
        value = value.timestamp() * 1000
    if not isinstance(value, int | float):
        return None
    number = int(value)
    ranges = {
        datasource.EqualTo: (number, number + 1),
        datasource.EqualNullSafe: (number, number + 1),
        datasource.GreaterThan: (number + 1, FOR_EVER),
        datasource.GreaterThanOrEqual: (number, FOR_EVER),
        datasource.LessThan: (0, number),
        datasource.LessThanOrEqual: (0, number + 1),
    }
    return ranges.get(type(each))


def _both(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return max(one[0], other[0]), min(one[1], other[1])
