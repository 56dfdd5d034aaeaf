"""Copies of messages: which columns they have, and in which order they are sent.

Rules kept here:
- A copy has the body, tag, keys, own properties and sharding key of its original, and a property that says
  where that is. It gets an id of its own, and is due at once.
- Rows are put in an order that follows from the messages alone, so that a write that is done again is the
  same write, of which the broker refuses what it has.
- With a rate, one task sends all messages in the order in which they were stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as fn

from cometmq.model.message_properties import SHARDING_KEY

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

COPIED_FROM: Final = "COPIED_FROM"
"""The property of a copy: `topic@broker:queue:offset` of its original."""


def copies(frame: DataFrame, topic: Column, *, keep_queues: bool) -> DataFrame:
    """Messages as the sink takes them; with their queue numbers, or with their sharding keys."""
    own = fn.map_filter(
        fn.coalesce("properties", fn.create_map().cast("map<string,string>")),
        lambda name, _: ~name.isin(SHARDING_KEY, COPIED_FROM) if not keep_queues else name != COPIED_FROM,
    )
    place = fn.format_string("%s@%s:%d:%d", "topic", "brokerName", "queueId", "queueOffset")
    by = fn.col("queueId") if keep_queues else fn.col("properties")[SHARDING_KEY]
    return frame.select(
        topic.alias("topic"),
        "body",
        "tags",
        "keys",
        fn.map_concat(own, fn.create_map(fn.lit(COPIED_FROM), place)).alias("properties"),
        by.alias("queueId" if keep_queues else "shardingKey"),
    )


def in_order(frame: DataFrame, *, tasks: int, by_time: bool) -> DataFrame:
    """Messages in the order in which they are sent: of each queue, or of all by one task."""
    if by_time:
        return frame.repartition(1).sortWithinPartitions(
            "storeTimestamp", "topic", "brokerName", "queueId", "queueOffset"
        )
    queues = frame.repartition(tasks, "topic", "brokerName", "queueId")
    return queues.sortWithinPartitions("topic", "brokerName", "queueId", "queueOffset")
