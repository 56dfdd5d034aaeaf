"""SQL over topics, as batch tables or as streams.

    SELECT tags, count(*) FROM orders GROUP BY tags

Rules kept here:
- Every topic in the query is a table with the columns of the source, and `text`, the body as text. Names with
  other characters than letters, digits and `_` need backticks.
- A stream writes files by complete batches, and messages once, also across restarts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import functions as fn

from cometmq.client.blocking.loop import background
from cometmq.model.errors import NotFoundError, SettingsError
from cometmq.spark.options import nearest
from cometmq.spark.pipelines.run.files import joined, topic_names
from cometmq.spark.pipelines.run.jobs import SqlJob
from cometmq.spark.pipelines.run.streams import Progress, Report, no_report, plain_errors, run_stream, trigger

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["SqlJob", "sql"]

_MOST_TABLES: Final = 50


class Rows(msgspec.Struct, rename="camel"):
    """Rows to show."""

    columns: list[str]
    rows: list[list[object]]
    is_cut: bool = msgspec.field(default=False, name="cut")
    batch: int | None = None


class Answered(Progress, rename="camel"):
    """The result of a query that wrote to files or a topic."""

    output: str | None = None
    to_topic: str | None = None


def sql(
    spark: SparkSession, job: SqlJob, show: Callable[[Rows], None], report: Report = no_report
) -> Answered | None:
    """Run the query; without an output its rows are shown."""
    frame = _answer(spark, job)
    if job.stream:
        done = run_stream(_stream_writer(frame, job, show), report)
        return Answered(output=job.output, to_topic=job.to_topic, **msgspec.structs.asdict(done))
    with plain_errors():
        return _finish(frame, job, show)


def _finish(frame: DataFrame, job: SqlJob, show: Callable[[Rows], None]) -> Answered | None:
    if job.output is None and job.to_topic is None:
        show(_shown(frame, job.limit))
        return None
    if job.output is not None:
        frame.write.mode("overwrite" if job.overwrite else "error").format(job.format).save(job.output)
    else:
        options = _sink_options(job)
        _messages(frame).write.format("rocketmq").mode("append").options(**options).save()
    return Answered(output=job.output, to_topic=job.to_topic)


def _stream_writer(frame: DataFrame, job: SqlJob, show: Callable[[Rows], None]) -> DataStreamWriter:
    checkpoint = job.checkpoint
    if job.output is not None:
        writer = frame.writeStream.format(job.format).option("path", job.output)
        checkpoint = checkpoint or joined(job.output, "_checkpoint")
    elif job.to_topic is not None:
        writer = _messages(frame).writeStream.format("rocketmq").options(**_sink_options(job))
    else:
        writer = frame.writeStream.foreachBatch(
            lambda batch, number: show(msgspec.structs.replace(_shown(batch, job.limit), batch=number))
        )
    if checkpoint is not None:
        writer = writer.option("checkpointLocation", checkpoint)
    writer = writer.outputMode(job.mode or ("append" if job.output is not None else "update"))
    return trigger(writer, once=job.once, every_s=job.every_s)


def _sink_options(job: SqlJob) -> dict[str, str]:
    options = {"namesrvAddr": job.to_namesrv_addr or job.namesrv_addr, "topic": job.to_topic or ""}
    if job.stream:
        options["exactlyOnce"] = str(not job.at_least_once).lower()
    return options | job.sink


def _messages(frame: DataFrame) -> DataFrame:
    """Rows for the sink: with their body, else all columns as JSON."""
    if "body" in frame.columns:
        return frame
    return frame.select(fn.to_json(fn.struct("*")).alias("body"))


def _shown(frame: DataFrame, limit: int) -> Rows:
    found = frame.limit(limit + 1).collect()
    rows = [[_plain(value) for value in row] for row in found[:limit]]
    return Rows(frame.columns, rows, is_cut=len(found) > limit)


def _plain(value: object) -> object:
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "replace")
    if isinstance(value, int | float | str | list | dict) or value is None:
        return value
    return str(value)


def _answer(spark: SparkSession, job: SqlJob) -> DataFrame:
    """The query, after its topics are registered as tables."""
    for _ in range(_MOST_TABLES):
        try:
            return spark.sql(job.query)
        except ParseException as error:
            raise SettingsError(f"the query is not understood: {_first_line(error)}") from None
        except AnalysisException as error:
            topic = _missing_table(error)
            if topic is None:
                raise SettingsError(f"the query does not work: {_first_line(error)}") from None
            _make_table(spark, job, topic)
    raise SettingsError(f"the query names more than {_MOST_TABLES} topics")


def _missing_table(error: AnalysisException) -> str | None:
    if error.getCondition() != "TABLE_OR_VIEW_NOT_FOUND":
        return None
    parameters = error.getMessageParameters() or {}
    name = parameters.get("relationName", "")
    return None if "`.`" in name else name.strip("`")


def _make_table(spark: SparkSession, job: SqlJob, topic: str) -> None:
    options = job.source_options(
        topic=topic,
        startingTimestamp=job.start,
        startingOffsets="earliest" if job.start is None else None,
        endingTimestamp=job.end,
        includeProperties=str(job.properties).lower(),
    )
    known = background().run(topic_names(options))
    if topic not in known:
        hint = nearest(topic, known, "`cometmq topic list` shows those that there are")
        raise NotFoundError(f"there is no topic {topic}; {hint}")
    reader = spark.readStream if job.stream else spark.read
    table = reader.format("rocketmq").options(**options).load()
    table.withColumn("text", fn.col("body").cast("string")).createOrReplaceTempView(f"`{topic}`")


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), "Spark gives no reason")
