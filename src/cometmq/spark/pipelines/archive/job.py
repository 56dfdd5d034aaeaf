"""Archive: topics as Parquet files, each message once, with a manifest of offsets.

    OUTPUT/topic=orders/day=2026-01-31/batch=12/part-….parquet      messages
    OUTPUT/_manifest/00000012.json                                  contents of batch 12
    OUTPUT/_checkpoint/                                             progress of the query

Rules kept here:
- A repeated batch replaces the files of its first attempt, so any reader finds each message once. A batch is
  complete when its manifest exists.
- The offsets of a manifest are those of Spark's checkpoint: batches follow each other without gaps.
- On mounted file systems the tasks that pull messages write the files from Arrow, and the driver publishes
  them (`files.py`, `publish.py`). To other addresses (`hdfs:`, `s3a:`) Spark writes, which has their file
  systems and credentials.
- Both writers make the same folders, columns and values, and each continues the archive of the other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
from pyspark.sql import Observation
from pyspark.sql import functions as fn
from pyspark.sql.types import DateType, IntegerType, StructField, StructType

from cometmq.model.errors import SettingsError, StateError
from cometmq.model.queue import MessageQueue
from cometmq.spark.columns import SPARK_SCHEMA
from cometmq.spark.live.offsets import Nested, to_nested
from cometmq.spark.pipelines.archive.publish import TaskFiles, Written, local_folder
from cometmq.spark.pipelines.run.files import Files, joined
from cometmq.spark.pipelines.run.jobs import ArchiveJob
from cometmq.spark.pipelines.run.streams import Progress, Report, no_report, run_stream, trigger

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["ArchiveJob", "archive"]

MANIFEST: Final = "_manifest"
CHECKPOINT: Final = "_checkpoint"
PARTITIONS: Final = ("topic", "day", "batch")
ARCHIVE_SCHEMA: Final = StructType(
    [*SPARK_SCHEMA.fields, StructField("day", DateType()), StructField("batch", IntegerType())]
)
"""Declared, because Spark would infer a number for a topic such as `42`."""
_INCLUDED: Final = {"user": "user", "all": "true", "none": "false"}
_WRITERS_AT_ONCE: Final = 16
_COMPRESSIONS: Final = ("snappy", "zstd", "lz4_raw", "gzip", "none")

Span = tuple[int, int]
Spans = dict[str, dict[str, dict[str, Span]]]


class Batch(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The manifest of a batch."""

    batch: int
    rows: int
    first_store_timestamp: int | None
    last_store_timestamp: int | None
    offsets: Spans
    """The offsets of each queue: inclusive start, exclusive end."""


class Archived(Progress, rename="camel", kw_only=True):
    """The result of a run."""

    output: str


def archive(spark: SparkSession, job: ArchiveJob, report: Report = no_report) -> Archived:
    """Archive the messages that are there, or run until interrupted."""
    if job.compression not in _COMPRESSIONS:
        raise SettingsError(f"compression is {job.compression!r}; it has to be {', '.join(_COMPRESSIONS)}")
    options = job.source_options(
        **job.topic_options(),
        group=job.group,
        includeProperties=_INCLUDED[job.properties],
        maxOffsetsPerTrigger=str(job.batch_rows),
    )
    files = Files(spark)
    checkpoint = job.checkpoint or joined(job.output, CHECKPOINT)
    folder = local_folder(files.whole_path(job.output))
    file_writer = _SparkFiles(spark, job) if folder is None else TaskFiles(spark, folder, job.compression)
    write = partial(_write, files, job, files.whole_path(checkpoint), file_writer)
    stream = file_writer.stream(options)
    writer = stream.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
    done = run_stream(trigger(writer, once=not job.follow, every_s=job.every_s), report)
    return Archived(output=job.output, **msgspec.structs.asdict(done))


class _SparkFiles:
    def __init__(self, spark: SparkSession, job: ArchiveJob) -> None:
        self._spark = spark
        self._job = job

    def stream(self, options: Mapping[str, str]) -> DataFrame:
        return self._spark.readStream.format("rocketmq").options(**options).load()

    def write(self, frame: DataFrame, number: int) -> Written:
        # Write files of several topics and days concurrently instead of sorting all rows.
        frame.sparkSession.conf.set("spark.sql.maxConcurrentOutputFileWriters", str(_WRITERS_AT_ONCE))
        seen = Observation(f"batch-{number}")
        time = fn.unix_millis("storeTimestamp")
        rows = frame.observe(
            seen, fn.count(fn.lit(1)).alias("rows"), fn.min(time).alias("first"), fn.max(time).alias("last")
        )
        placed = rows.withColumns({"day": fn.to_date("storeTimestamp"), "batch": fn.lit(number)})
        writer = placed.write.mode("overwrite").partitionBy(*PARTITIONS)
        writer = writer.option("partitionOverwriteMode", "dynamic").option(
            "compression", self._job.compression
        )
        writer.parquet(self._job.output)
        found = seen.get
        begins = self._begins(frame.sparkSession) if number == 0 else {}
        return Written(rows=found["rows"], first=found["first"], last=found["last"], begins=begins)

    def _begins(self, spark: SparkSession) -> Nested:
        written = read_archive(spark, self._job.output).where("batch = 0")
        queues = written.groupBy("topic", "brokerName", "queueId").agg(fn.min("queueOffset").alias("begin"))
        return to_nested(
            {MessageQueue(row.topic, row.brokerName, row.queueId): row.begin for row in queues.collect()}
        )


def _write(
    files: Files,
    job: ArchiveJob,
    checkpoint: str,
    writer: TaskFiles | _SparkFiles,
    frame: DataFrame,
    number: int,
) -> None:
    """Write or repeat a batch, then its manifest."""
    written = writer.write(frame, number)
    # The start of the first batch is only in the written messages.
    begin = _offsets(files, checkpoint, number - 1) if number > 0 else written.begins
    manifest = Batch(
        batch=number,
        rows=written.rows,
        first_store_timestamp=written.first,
        last_store_timestamp=written.last,
        offsets=_spans(begin, _offsets(files, checkpoint, number)),
    )
    text = msgspec.json.format(msgspec.json.encode(manifest), indent=2).decode() + "\n"
    files.write(manifest_path(job.output, number), text)


def _offsets(files: Files, checkpoint: str, number: int) -> dict[str, Any]:
    """The end of a batch, which Spark writes before it starts."""
    text = files.read(joined(checkpoint, "offsets", str(number)))
    try:
        found: dict[str, Any] = json.loads((text or "").splitlines()[2])
    except (IndexError, ValueError):
        raise StateError(f"the checkpoint {checkpoint} has no offsets of batch {number}") from None
    return found


def _spans(before: dict[str, Any], after: dict[str, Any]) -> Spans:
    """The offsets between the ends of two batches; a new queue starts at its end."""
    return {
        topic: {
            broker: {
                queue: (int(before.get(topic, {}).get(broker, {}).get(queue, end)), int(end))
                for queue, end in queues.items()
            }
            for broker, queues in brokers.items()
        }
        for topic, brokers in after.items()
    }


def read_archive(spark: SparkSession, output: str) -> DataFrame:
    """The messages of an archive, with their day and batch."""
    return spark.read.schema(ARCHIVE_SCHEMA).parquet(output)


def manifest_path(output: str, number: int) -> str:
    return joined(output, MANIFEST, f"{number:08}.json")


def batches_of(files: Files, output: str) -> list[Batch]:
    """The complete batches of an archive, in order."""
    found = []
    for name in files.names(joined(output, MANIFEST)):
        text = files.read(joined(output, MANIFEST, name))
        try:
            found.append(msgspec.json.decode(text or "", type=Batch))
        except msgspec.DecodeError:
            raise StateError(f"{joined(output, MANIFEST, name)} is no manifest of an archive") from None
    if not found:
        raise SettingsError(f"{output} is no archive: it has no manifests")
    return found
