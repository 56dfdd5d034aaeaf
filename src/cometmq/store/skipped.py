"""Skipped messages: damaged or lost ones that cannot be served, counted and logged once.

Rules kept here:
- Messages are noted by queue and offset, bytes of the log by their range. Noting them again, for the next
  consumer, neither counts nor logs them again.
- Readers only note. `tell` logs new ranges every second, never a line for each message.
- The number of remembered ranges is limited. Beyond the limit a range is counted each time.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from typing import Final

log = logging.getLogger("cometmq.store")

MOST_RANGES: Final = 10_000
_MOST_LINES: Final = 20
"""How many ranges are logged at a time; of the others, only their number."""

QueueName = tuple[str, int]


class _Range:
    """Consecutive offsets of a queue."""

    __slots__ = ("end", "start", "told_until", "why")

    def __init__(self, start: int, end: int, why: str) -> None:
        self.start = self.told_until = start
        self.end = end
        self.why = why


class Skipped:
    """Everything a store skipped since its start; belongs to the reading thread."""

    def __init__(self) -> None:
        self._ranges: dict[QueueName, list[_Range]] = {}
        self._known = 0
        self._changed: dict[QueueName, None] = {}
        self.messages = 0
        """How many queue offsets led to no message."""
        self.log_bytes = 0
        """How many bytes of the log are damaged or missing."""
        self.index_entries = 0
        """How often the index led to no message."""

    def message(self, topic: str, queue_id: int, offset: int, why: str, *, count: int = 1) -> None:
        """Note queue offsets that lead to no message."""
        name = topic, queue_id
        ranges = self._ranges.setdefault(name, [])
        index = bisect_right(ranges, offset, key=lambda each: each.start)
        before = ranges[index - 1] if index else None
        end = offset + count
        if before is not None and end <= before.end:
            return
        if before is not None and offset <= before.end:
            self.messages += end - before.end
            before.end = end
            before.why = why
        else:
            self.messages += count
            if self._known >= MOST_RANGES:
                return
            self._known += 1
            ranges.insert(index, _Range(offset, end, why))
        self._changed[name] = None

    def log_range(self, start: int, end: int, why: str) -> None:
        """Note and log lost bytes of the log."""
        self.log_bytes += end - start
        log.error("the commit log has no records from %d to %d (%d bytes): %s", start, end, end - start, why)

    def index_entry(self, topic: str, key: str, physical_offset: int) -> None:
        """Note an index entry that leads to no record."""
        self.index_entries += 1
        if self.index_entries & (self.index_entries - 1) == 0:  # the 1st, 2nd, 4th, 8th …
            log.error(
                "the index leads to %d for key %r of %s, where no whole record is (%d times so far); "
                "look at the store with `cometmq store verify`",
                *(physical_offset, key, topic, self.index_entries),
            )

    def tell(self) -> None:
        """Log what was noted since the last call."""
        if not self._changed:
            return
        changed, self._changed = self._changed, {}
        news = [(name, each) for name in changed for each in self._ranges[name] if each.told_until < each.end]
        for (topic, queue_id), each in news[:_MOST_LINES]:
            log.error(
                "%s-%d: %d messages from offset %d to %d cannot be served and are skipped: %s; "
                "look at the store with `cometmq store verify`",
                *(topic, queue_id, each.end - each.told_until, each.told_until, each.end - 1, each.why),
            )
        if len(news) > _MOST_LINES:
            log.error("%d more ranges of messages cannot be served and are skipped", len(news) - _MOST_LINES)
        for _, each in news:
            each.told_until = each.end
