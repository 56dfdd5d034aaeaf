"""Copies of messages: their columns, and the order in which they are sent.

Rules kept here:
- A copy has the body, tag, keys, user properties and sharding key of its original, and the property
  `COPIED_FROM`. It gets a new id, and is delivered at once.
- The order depends on the messages alone, so that a repeated write is the same write and brokers can detect
  it.
- With a rate, one task sends all messages in the order of their store times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as fn

from cometmq.model.message_properties import SHARDING_KEY

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

COPIED_FROM: Final = "COPIED_FROM"
"""`topic@broker:queue:offset` of the original."""


def copies(frame: DataFrame, topic: Column, *, keep_queues: bool) -> DataFrame:
    """Rows for the sink, with the queue ids or the sharding keys of the originals."""
    own = fn.map_filter(
        fn.coalesce("properties", fn.create_map().cast("map<string,string>")),
        lambda name, _: ~name.isin(SHARDING_KEY, COPIED_FROM) if not keep_queues else name != COPIED_FROM,
    )
    origin = fn.format_string("%s@%s:%d:%d", "topic", "brokerName", "queueId", "queueOffset")
    by = fn.col("queueId") if keep_queues else fn.col("properties")[SHARDING_KEY]
    return frame.select(
        topic.alias("topic"),
        "body",
        "tags",
        "keys",
        fn.map_concat(own, fn.create_map(fn.lit(COPIED_FROM), origin)).alias("properties"),
        by.alias("queueId" if keep_queues else "shardingKey"),
    )


def in_order(frame: DataFrame, *, tasks: int, by_time: bool) -> DataFrame:
    """Order by queue, or all messages by time in one task."""
    if by_time:
        return frame.repartition(1).sortWithinPartitions(
            "storeTimestamp", "topic", "brokerName", "queueId", "queueOffset"
        )
    queues = frame.repartition(tasks, "topic", "brokerName", "queueId")
    return queues.sortWithinPartitions("topic", "brokerName", "queueId", "queueOffset")
