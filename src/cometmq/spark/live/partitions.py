"""What one Spark task reads: ranges of queues, cut and put together to a sensible size.

Rules kept here:
- A queue is a partition, unless it is asked for more partitions or smaller ones.
- Ranges with little in them share a partition: a task costs as much as some thousand messages.
- Nothing is left out and nothing is read twice, whatever the limits are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

import msgspec
from pyspark.sql.datasource import InputPartition

from cometmq.model.queue import MessageQueue
from cometmq.spark.live.offsets import Offsets

SMALL_PARTITION: Final = 8192
"""Ranges are put together up to so many messages."""


class QueueRange(msgspec.Struct, frozen=True):
    """Messages of one queue: from `start` on, before `end`."""

    queue: MessageQueue
    start: int
    end: int

    @property
    def count(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.queue} from {self.start} to {self.end}"


class RangesPartition(InputPartition):
    """The ranges that one task reads, one after the other."""

    def __init__(self, ranges: Sequence[QueueRange]) -> None:
        super().__init__(tuple(ranges))

    @property
    def ranges(self) -> tuple[QueueRange, ...]:
        ranges: tuple[QueueRange, ...] = self.value
        return ranges


def ranges_between(start: Offsets, end: Offsets) -> list[QueueRange]:
    """What lies between two offsets of the same queues."""
    return [
        QueueRange(queue, start[queue], end[queue])
        for queue in sorted(end)
        if queue in start and start[queue] < end[queue]
    ]


def partitions_of(
    ranges: Sequence[QueueRange], min_partitions: int | None = None, max_records: int | None = None
) -> list[RangesPartition]:
    """The partitions that read these ranges."""
    total = sum(each.count for each in ranges)
    pieces: list[QueueRange] = []
    for each in ranges:
        parts = 1
        if min_partitions is not None:
            parts = max(parts, -(-each.count * min_partitions // total))
        if max_records is not None:
            parts = max(parts, -(-each.count // max_records))
        pieces += _cut(each, parts)
    if min_partitions is not None:
        return [RangesPartition([piece]) for piece in pieces]
    return [RangesPartition(together) for together in _together(pieces, max_records)]


def _cut(whole: QueueRange, parts: int) -> Iterable[QueueRange]:
    """A range in so many parts of nearly the same size; fewer if it has fewer messages."""
    parts = min(parts, whole.count)
    edges = [whole.start + whole.count * number // parts for number in range(parts + 1)]
    return (QueueRange(whole.queue, start, end) for start, end in pairwise(edges))


def _together(pieces: Iterable[QueueRange], max_records: int | None) -> Iterable[list[QueueRange]]:
    room = SMALL_PARTITION if max_records is None else min(SMALL_PARTITION, max_records)
    small: list[QueueRange] = []
    count = 0
    for piece in pieces:
        if piece.count >= room:
            yield [piece]
            continue
        if count + piece.count > room:
            yield small
            small, count = [], 0
        small.append(piece)
        count += piece.count
    if small:
        yield small
