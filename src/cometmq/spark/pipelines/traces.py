"""Report of message traces: latencies of sending, delivery and consuming, and failures.

Rules kept here:
- Spark's own functions split the trace records, and incomplete records are left out. Their form is in
  `cometmq.client.trace.records`.
- Times are milliseconds; percentiles are Spark's approximate ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from pyspark.sql import functions as fn

from cometmq.client.blocking.loop import background
from cometmq.client.trace.records import ConsumeOutcome
from cometmq.model.errors import NotFoundError
from cometmq.spark.pipelines.run.files import topic_names
from cometmq.spark.pipelines.run.jobs import TracesJob
from cometmq.spark.pipelines.run.streams import plain_errors

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["TracesJob", "traces"]

_PERCENTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
_SENT_LEAST: Final = 12
_BEGAN_LEAST: Final = 7
_ENDED_LEAST: Final = 5
"""The least number of fields of a record, with its type."""


class Line(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Latencies of one topic and group."""

    topic: str | None
    group: str | None
    count: int
    failed: int = 0
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    longest: float | None = None


class Failures(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Failures of a group with one outcome."""

    group: str | None
    outcome: str
    count: int
    msg_id: str | None
    """An example."""


class TraceReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The report."""

    sends: list[Line]
    """From the call to the response."""
    deliveries: list[Line]
    """From sending to the first delivery."""
    consumptions: list[Line]
    """The time of listeners."""
    failures: list[Failures]


def traces(spark: SparkSession, job: TracesJob) -> TraceReport:
    """Report all traces."""
    options = job.options(topic=job.trace_topic)
    if job.trace_topic not in background().run(topic_names(options)):
        raise NotFoundError(
            f"there are no traces: the cluster has no topic {job.trace_topic}; clients write them with "
            "enable_trace=True"
        )
    fields = trace_fields(spark, options).persist()
    try:
        with plain_errors():
            return _report(sent_of(fields), began_of(fields), ended_of(fields))
    finally:
        fields.unpersist()


def trace_fields(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    """The fields of all records, with the host of the client."""
    messages = spark.read.format("rocketmq").options(**options).load()
    records = fn.split(fn.col("body").cast("string"), "\x02")
    return messages.select("bornHost", fn.explode(records).alias("record")).select(
        fn.split("record", "\x01").alias("fields"), fn.regexp_replace("bornHost", r":\d+$", "").alias("host")
    )


def sent_of(fields: DataFrame) -> DataFrame:
    sent = _of_kind(fields, "Pub", _SENT_LEAST)
    has_offset_id = fn.size("fields") > _SENT_LEAST + 1
    return sent.select(
        _number(1).alias("sentAt"),
        _text(3).alias("group"),
        _text(4).alias("topic"),
        _text(5).alias("msgId"),
        _number(10).alias("cost"),
        _is_true(
            fn.when(has_offset_id, fn.get("fields", fn.lit(13))).otherwise(fn.get("fields", fn.lit(12)))
        ),
    )


def began_of(fields: DataFrame) -> DataFrame:
    return _of_kind(fields, "SubBefore", _BEGAN_LEAST).select(
        _number(1).alias("gotAt"),
        _text(3).alias("group"),
        _text(4).alias("requestId"),
        _text(5).alias("msgId"),
        _number(6).alias("retries"),
        "host",
    )


def ended_of(fields: DataFrame) -> DataFrame:
    success = fn.get("fields", fn.lit(4))
    unsaid = fn.when(fn.lower(success) == "true", fn.lit(0)).otherwise(fn.lit(ConsumeOutcome.FAILED.value))
    return _of_kind(fields, "SubAfter", _ENDED_LEAST).select(
        _text(1).alias("requestId"),
        _text(2).alias("msgId"),
        _number(3).alias("cost"),
        _is_true(success),
        fn.coalesce(_number(6), unsaid).alias("outcome"),
    )


def outcome_name(outcome: Column) -> Column:
    """The outcome in words."""
    words = fn.lit("unknown")
    for each in ConsumeOutcome:
        words = fn.when(outcome == each.value, fn.lit(each.name.lower().replace("_", "-"))).otherwise(words)
    return words


def _of_kind(fields: DataFrame, kind: str, least: int) -> DataFrame:
    return fields.where((fn.get("fields", fn.lit(0)) == kind) & (fn.size("fields") >= least))


def _text(at: int) -> Column:
    value = fn.get("fields", fn.lit(at))
    return fn.when(~value.isin("null", ""), value)


def _number(at: int) -> Column:
    return fn.get("fields", fn.lit(at)).try_cast("bigint")


def _is_true(value: Column) -> Column:
    return (fn.lower(value) == "true").alias("success")


def _report(sent: DataFrame, began: DataFrame, ended: DataFrame) -> TraceReport:
    got = began.select("requestId", fn.col("group").alias("consumer"), "msgId")
    where = sent.groupBy("msgId").agg(fn.first("topic").alias("topic"), fn.min("sentAt").alias("sentAt"))
    first = began.groupBy("msgId", "group").agg(fn.min("gotAt").alias("gotAt"))
    delivered = first.join(where, "msgId").withColumns(
        {"cost": fn.greatest(fn.col("gotAt") - fn.col("sentAt"), fn.lit(0)), "success": fn.lit(True)}
    )
    consumed = (
        ended.join(got.drop("msgId"), "requestId", "left")
        .withColumnRenamed("consumer", "group")
        .join(where.select("msgId", "topic"), "msgId", "left")
    )
    failed = consumed.where(~fn.col("success")).withColumn("outcome", outcome_name(fn.col("outcome")))
    failures = failed.groupBy("group", "outcome").agg(
        fn.count("*").alias("count"), fn.max("msgId").alias("msg_id")
    )
    rows = failures.orderBy(fn.desc("count"), "group", "outcome").collect()
    return TraceReport(
        sends=_lines(sent),
        deliveries=_lines(delivered),
        consumptions=_lines(consumed),
        failures=[Failures(**row.asDict()) for row in rows],
    )


def _lines(frame: DataFrame) -> list[Line]:
    percentiles = (fn.percentile_approx("cost", share).alias(name) for name, share in _PERCENTILES.items())
    grouped = frame.groupBy("topic", "group").agg(
        fn.count("*").alias("count"),
        fn.count_if(~fn.col("success")).alias("failed"),
        fn.max("cost").alias("longest"),
        *percentiles,
    )
    rows = grouped.orderBy(fn.desc("count"), "topic", "group").collect()
    return [Line(**row.asDict()) for row in rows]
