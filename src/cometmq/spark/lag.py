"""How far a streaming query is behind, from its progress.

Spark's Kafka source reports this as metrics of the source. Python data sources cannot report metrics, but the
progress has the offsets that the query has read and the latest ones.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec

from cometmq.spark.live.offsets import from_nested

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import SourceProgress, StreamingQueryProgress

SKIPPED = "$skipped"
"""The number of lost messages, beside the latest offsets in the progress."""


class SourceLag(msgspec.Struct, frozen=True, rename="camel"):
    """What a source has not read yet, and the messages that were lost before it could."""

    min_offsets_behind_latest: int
    max_offsets_behind_latest: int
    avg_offsets_behind_latest: float
    """Over all queues."""
    offsets_behind_latest: int
    """Of all queues together."""
    skipped_messages: int


def lags_of(progress: StreamingQueryProgress) -> list[SourceLag | None]:
    """The lag of each source of a query; None for other sources, and before Spark 4.2.

    `progress` is `query.lastProgress`, or `event.progress` in a StreamingQueryListener.
    """
    return [lag_of(source) for source in progress.sources]


def lag_of(source: SourceProgress) -> SourceLag | None:
    """The lag of one source."""
    try:
        read: dict[str, Any] = json.loads(source.endOffset)
        latest: dict[str, Any] = json.loads(source.latestOffset)
        skipped = int(latest.pop(SKIPPED))
        done, available = from_nested(read), from_nested(latest)
    except (TypeError, ValueError, KeyError, AttributeError):  # another source, or one that has not started
        return None
    behind = [max(available.get(queue, offset) - offset, 0) for queue, offset in done.items()]
    if not behind:
        return None
    total = sum(behind)
    return SourceLag(min(behind), max(behind), total / len(behind), total, skipped)
