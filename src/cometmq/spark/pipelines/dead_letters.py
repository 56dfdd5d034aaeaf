"""Why and where messages fail: the dead letters of all groups, by group, topic and reason.

Rules kept here:
- A broker keeps what failed and how often, not why. The reason comes from the traces of consumers, if they
  write some: how the last try of the message ended. Without traces it is `unknown`.
- Dead letters are read, and stay as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from pyspark.sql import functions as fn

from cometmq.client.blocking.loop import background
from cometmq.client.names import DLQ_PREFIX
from cometmq.model import message_properties as names
from cometmq.spark.pipelines.run.files import topic_names
from cometmq.spark.pipelines.run.jobs import DeadLettersJob
from cometmq.spark.pipelines.run.streams import plain_errors
from cometmq.spark.pipelines.traces import began_of, ended_of, outcome_name, trace_fields

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["DeadLettersJob", "dead_letters"]

UNKNOWN: Final = "unknown"
_BY: Final = ("group", "topic", "reason", "host")


class DeadLetterLine(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Dead letters that have the same group, topic, reason and place."""

    group: str
    topic: str | None
    """Where the messages were sent to."""
    reason: str
    """How the last try ended: exception, time-out, nothing-returned, failed, or unknown."""
    host: str | None
    """Where that try was, if it is known."""
    count: int
    most_attempts: int
    first_timestamp: int
    last_timestamp: int
    msg_id: str
    """The last of them."""


class DeadLetterReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What fails, the most frequent first."""

    messages: int
    traced: bool
    """Whether there are traces, without which no reason is known."""
    lines: list[DeadLetterLine]


def dead_letters(spark: SparkSession, job: DeadLettersJob) -> DeadLetterReport:
    """Look at the dead letters."""
    known = background().run(topic_names(job.options()))
    wanted = {DLQ_PREFIX + group for group in job.groups}
    topics = [topic for topic in known if topic.startswith(DLQ_PREFIX) and (not wanted or topic in wanted)]
    is_traced = job.trace_topic in known
    if not topics:
        return DeadLetterReport(messages=0, traced=is_traced, lines=[])
    with plain_errors():
        letters = _letters(spark, job.options(topics=",".join(topics), includeProperties="true"))
        if is_traced:
            tries = _last_tries(spark, job.source_options(topic=job.trace_topic))
            letters = letters.join(tries, ["group", "msgId"], "left")
        else:
            letters = letters.withColumns({"reason": fn.lit(UNKNOWN), "host": fn.lit(None).cast("string")})
        lines = _lines(letters.fillna(UNKNOWN, "reason"))
    return DeadLetterReport(messages=sum(line.count for line in lines), traced=is_traced, lines=lines)


def _letters(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    messages = spark.read.format("rocketmq").options(**options).load()
    properties = fn.col("properties")
    origin = fn.coalesce(properties[names.DLQ_ORIGIN_TOPIC], properties[names.RETRY_TOPIC])
    return messages.select(
        fn.substring("topic", len(DLQ_PREFIX) + 1, 255).alias("group"),
        origin.alias("topic"),
        "msgId",
        fn.unix_millis("storeTimestamp").alias("at"),
        (fn.col("reconsumeTimes") + 1).alias("attempts"),
    )


def _last_tries(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    """How, and where, each message was last consumed by each group."""
    fields = trace_fields(spark, options)
    tries = began_of(fields).join(ended_of(fields).drop("msgId", "cost"), "requestId", "left")
    last = tries.groupBy("group", "msgId").agg(fn.max_by(fn.struct("outcome", "host"), "gotAt").alias("last"))
    return last.select(
        "group",
        "msgId",
        outcome_name(fn.col("last.outcome")).alias("reason"),
        fn.col("last.host").alias("host"),
    )


def _lines(letters: DataFrame) -> list[DeadLetterLine]:
    grouped = letters.groupBy(*_BY).agg(
        fn.count("*").alias("count"),
        fn.max("attempts").alias("attempts"),
        fn.min("at").alias("first"),
        fn.max("at").alias("last"),
        fn.max_by("msgId", "at").alias("msgId"),
    )
    return [
        DeadLetterLine(
            group=row.group,
            topic=row.topic,
            reason=row.reason,
            host=row.host,
            count=row["count"],
            most_attempts=row.attempts,
            first_timestamp=row.first,
            last_timestamp=row.last,
            msg_id=row.msgId,
        )
        for row in grouped.orderBy(fn.desc("count"), *_BY).collect()
    ]
