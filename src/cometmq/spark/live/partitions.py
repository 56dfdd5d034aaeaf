"""Partitions of the source `rocketmq`: ranges of queues, split or grouped to a sensible size.

Rules kept here:
- A queue is a partition, unless options ask for more or smaller ones.
- Small ranges share a partition: a task costs as much as some thousand messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import msgspec
from pyspark.sql.datasource import InputPartition

from cometmq.model.queue import MessageQueue
from cometmq.spark.live.offsets import Offsets

SMALL_PARTITION: Final = 8192
"""Ranges are grouped up to this number of messages."""


class QueueRange(msgspec.Struct, frozen=True):
    """Offsets of one queue: `start` inclusive, `end` exclusive."""

    queue: MessageQueue
    start: int
    end: int

    @property
    def count(self) -> int:
        return self.end - self.start


@dataclass(eq=False)
class RangesPartition(InputPartition):
    """The ranges of one task."""

    ranges: Sequence[QueueRange]


def ranges_between(start: Offsets, end: Offsets) -> list[QueueRange]:
    """The ranges between two offsets of each queue."""
    return [
        QueueRange(queue, start[queue], end[queue])
        for queue in sorted(end)
        if queue in start and start[queue] < end[queue]
    ]


def partitions_of(
    ranges: Sequence[QueueRange], min_partitions: int | None = None, max_records: int | None = None
) -> list[RangesPartition]:
    total = sum(each.count for each in ranges)
    split: list[QueueRange] = []
    for each in ranges:
        parts = 1
        if min_partitions is not None:
            parts = max(parts, -(-each.count * min_partitions // total))
        if max_records is not None:
            parts = max(parts, -(-each.count // max_records))
        split += _split(each, parts)
    if min_partitions is not None:
        return [RangesPartition([each]) for each in split]
    return [RangesPartition(group) for group in _grouped(split, max_records)]


def _split(whole: QueueRange, parts: int) -> Iterable[QueueRange]:
    """Split into parts of nearly equal size, at most one for each message."""
    parts = min(parts, whole.count)
    edges = [whole.start + whole.count * number // parts for number in range(parts + 1)]
    return (QueueRange(whole.queue, start, end) for start, end in pairwise(edges))


def _grouped(ranges: Iterable[QueueRange], max_records: int | None) -> Iterable[list[QueueRange]]:
    room = SMALL_PARTITION if max_records is None else min(SMALL_PARTITION, max_records)
    small: list[QueueRange] = []
    count = 0
    for each in ranges:
        if each.count >= room:
            yield [each]
            continue
        if count + each.count > room:
            yield small
            small, count = [], 0
        small.append(each)
        count += each.count
    if small:
        yield small
