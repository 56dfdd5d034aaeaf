"""Report of dead letters by group, topic and reason.

Rules kept here:
- A broker stores how often a message failed, not why. The reason is the outcome of the last attempt in the
  traces of consumers; without traces it is `unknown`.
- An attempt is a call of a listener. A dead letter has as many reconsume times as it had attempts: the last
  failure counts, too. Java's ordered consumers do not count it; their traces show it.
- Dead letters are only read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from pyspark.sql import functions as fn

from cometmq.client.blocking.loop import background
from cometmq.model import message_properties as names
from cometmq.model.names import DLQ_PREFIX
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
    """Dead letters with the same group, topic, reason and host."""

    group: str
    topic: str | None
    """The original topic."""
    reason: str
    """Of the last attempt: exception, time-out, nothing-returned, failed, or unknown."""
    host: str | None
    """Of the last attempt, if known."""
    count: int
    most_attempts: int
    """How often listeners got the message, at most."""
    first_timestamp: int
    last_timestamp: int
    msg_id: str
    """The last one."""


class DeadLetterReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The most frequent first."""

    messages: int
    traced: bool
    """Whether there are traces."""
    lines: list[DeadLetterLine]


def dead_letters(spark: SparkSession, job: DeadLettersJob) -> DeadLetterReport:
    """Report the dead letters."""
    known = background().run(topic_names(job.options()))
    wanted = {DLQ_PREFIX + group for group in job.groups}
    topics = [topic for topic in known if topic.startswith(DLQ_PREFIX) and (not wanted or topic in wanted)]
    is_traced = job.trace_topic in known
    if not topics:
        return DeadLetterReport(messages=0, traced=is_traced, lines=[])
    with plain_errors():
        letters = _letters(spark, job.options(topics=",".join(topics), includeProperties="true"))
        if is_traced:
            attempts = _last_attempts(spark, job.source_options(topic=job.trace_topic))
            letters = letters.join(attempts, ["group", "msgId"], "left")
            letters = letters.withColumn("attempts", fn.greatest("attempts", "traced"))
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
        fn.greatest("reconsumeTimes", fn.lit(1)).alias("attempts"),
    )


def _last_attempts(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    """Outcome and host of the last attempt of each group and message, and how many there were."""
    fields = trace_fields(spark, options)
    attempts = began_of(fields).join(ended_of(fields).drop("msgId", "cost"), "requestId", "left")
    last = attempts.groupBy("group", "msgId").agg(
        fn.max_by(fn.struct("outcome", "host"), "gotAt").alias("last"),
        (fn.max("retries") + 1).alias("traced"),
    )
    return last.select(
        "group",
        "msgId",
        outcome_name(fn.col("last.outcome")).alias("reason"),
        fn.col("last.host").alias("host"),
        "traced",
    )


def _lines(letters: DataFrame) -> list[DeadLetterLine]:
    grouped = letters.groupBy(*_BY).agg(
        fn.count("*").alias("count"),
        fn.max("attempts").alias("most_attempts"),
        fn.min("at").alias("first_timestamp"),
        fn.max("at").alias("last_timestamp"),
        fn.max_by("msgId", "at").alias("msg_id"),
    )
    rows = grouped.orderBy(fn.desc("count"), *_BY).collect()
    return [DeadLetterLine(**row.asDict()) for row in rows]
