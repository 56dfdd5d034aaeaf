"""Replay: sends messages of a time range to a topic again, from topics or from an archive.

The first start writes a plan of steps, offset ranges or batches of the archive, into the checkpoint, where
every finished step is recorded, too.

Rules kept here:
- An interrupted or killed replay continues with the unfinished step. A CometMQ broker does not store messages
  of that step again.
- A checkpoint belongs to one replay; another one is refused.
"""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Final

import msgspec
from pyspark.sql import Observation
from pyspark.sql import functions as fn

from cometmq.client.blocking.loop import background
from cometmq.model.errors import SettingsError
from cometmq.spark.live.cluster import Cluster
from cometmq.spark.live.offsets import Nested, Offsets, advance, backlog_of, from_nested, share, to_nested
from cometmq.spark.live.options import live_options
from cometmq.spark.pipelines.archive.job import batches_of, read_archive
from cometmq.spark.pipelines.copy import copies, in_order
from cometmq.spark.pipelines.run.files import Files, joined
from cometmq.spark.pipelines.run.jobs import ReplayJob
from cometmq.spark.pipelines.run.streams import Progress, Report, no_report, plain_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["ReplayJob", "replay"]

STEP_ROWS: Final = 1_000_000
RATED_STEP_S: Final = 30
"""The time of a step with a rate; an interrupt repeats at most one step."""
_PLAN: Final = "plan.json"
_DONE: Final = "done"


class Step(msgspec.Struct, frozen=True):
    """A batch of the archive, or ranges of offsets."""

    batch: int | None = None
    start: Nested = {}
    end: Nested = {}
    """Of all queues: the source would read others from start to end."""


class Plan(msgspec.Struct, frozen=True):
    """The steps of a replay."""

    id: str
    job: str
    """Identifies the replay."""
    steps: list[Step]


class Replayed(Progress, rename="camel", kw_only=True):
    """The result; `rows` includes earlier runs."""

    to_topic: str
    steps: int


def replay(spark: SparkSession, job: ReplayJob, report: Report = no_report) -> Replayed:
    """Send the unfinished steps of the plan."""
    files = Files(spark)
    plan = _plan(files, job)
    done = _done(files, job)
    result = Replayed(to_topic=job.to_topic, steps=len(plan.steps))
    result.rows, result.batches = sum(done), len(done)
    began, before = time.monotonic(), result.rows
    try:
        for number in range(len(done), len(plan.steps)):
            rows = _send(spark, job, plan, number)
            path = joined(job.checkpoint, _DONE, f"{number:08}.json")
            files.write(path, msgspec.json.encode({"rows": rows}).decode())
            result.rows += rows
            result.batches += 1
            result.rows_per_second = round((result.rows - before) / (time.monotonic() - began), 1)
            report(result)
    except KeyboardInterrupt:
        result.interrupted = True
    return result


def _send(spark: SparkSession, job: ReplayJob, plan: Plan, number: int) -> int:
    frame = _rows_of(spark, job, plan.steps[number])
    start_ms, end_ms = job.times_ms
    if start_ms is not None:
        frame = frame.where(fn.col("storeTimestamp") >= fn.timestamp_millis(fn.lit(start_ms)))
    if end_ms is not None:
        frame = frame.where(fn.col("storeTimestamp") < fn.timestamp_millis(fn.lit(end_ms)))
    tasks = spark.sparkContext.defaultParallelism
    ordered = in_order(frame, tasks=tasks, by_time=job.rate is not None)
    ready = copies(ordered, fn.lit(job.to_topic), keep_queues=job.keep_queues)
    seen = Observation(f"step-{number}")
    counted = ready.observe(seen, fn.count(fn.lit(1)).alias("rows"))
    options = {"namesrvAddr": job.to_namesrv_addr or job.namesrv_addr, **job.sink}
    if job.rate is not None:
        options["maxRowsPerSecond"] = str(job.rate)
    if not job.at_least_once:
        options |= {"exactlyOnce": "true", "exactlyOnceId": f"{plan.id}/{number}"}
    with plain_errors():
        counted.write.format("rocketmq").mode("append").options(**options).save()
    return int(seen.get["rows"])


def _rows_of(spark: SparkSession, job: ReplayJob, step: Step) -> DataFrame:
    if step.batch is not None and job.archive is not None:
        rows = read_archive(spark, job.archive).where(fn.col("batch") == step.batch)
        return rows.where(fn.col("topic").isin(*job.topics)) if job.topics else rows
    options = job.source_options(
        topics=",".join(step.start),
        startingOffsets=msgspec.json.encode(step.start).decode(),
        endingOffsets=msgspec.json.encode(step.end).decode(),
        includeProperties="true",
    )
    rows = spark.read.format("rocketmq").options(**options).load()
    # Queues that are newer than the plan are not part of it.
    planned = [f"{queue.topic}@{queue.broker_name}:{queue.queue_id}" for queue in from_nested(step.end)]
    return rows.where(fn.format_string("%s@%s:%d", "topic", "brokerName", "queueId").isin(planned))


def _plan(files: Files, job: ReplayJob) -> Plan:
    path = joined(job.checkpoint, _PLAN)
    asked = _asked(job)
    text = files.read(path)
    if text is None:
        steps = _archive_steps(files, job) if job.archive is not None else _offset_steps(job)
        plan = Plan(uuid.uuid4().hex, asked, steps)
        files.write(path, msgspec.json.encode(plan).decode())
        return plan
    plan = msgspec.json.decode(text, type=Plan)
    if plan.job != asked:
        raise SettingsError(
            f"the checkpoint {job.checkpoint} belongs to another replay; give this one its own"
        )
    return plan


def _asked(job: ReplayJob) -> str:
    """The options that identify a replay."""
    times = job.written_range or (job.start, job.end)
    source = (job.namesrv_addr, job.topics, job.topic_pattern, job.archive, times)
    target = (job.to_topic, job.to_namesrv_addr, job.keep_queues, job.rate)  # a rate changes the order
    return msgspec.json.encode((source, target)).decode()


def _archive_steps(files: Files, job: ReplayJob) -> list[Step]:
    assert job.archive is not None
    start_ms, end_ms = job.times_ms
    return [
        Step(batch.batch)
        for batch in batches_of(files, job.archive)
        if batch.rows
        and (start_ms is None or (batch.last_store_timestamp or 0) >= start_ms)
        and (end_ms is None or (batch.first_store_timestamp or 0) < end_ms)
        and (not job.topics or set(job.topics) & batch.offsets.keys())
    ]


def _offset_steps(job: ReplayJob) -> list[Step]:
    """The offsets of the time range, in steps of limited size."""
    start, end = background().run(_bounds(job))
    most = STEP_ROWS if job.rate is None else max(int(job.rate * RATED_STEP_S), 1)
    steps = []
    while backlog := backlog_of(start, end):
        taken = share(backlog, most)
        following = advance(start, taken)
        steps.append(Step(start=to_nested(start), end=to_nested(following)))
        start = following
    return steps


async def _bounds(job: ReplayJob) -> tuple[Offsets, Offsets]:
    """The offsets of the time range in each queue."""
    options = live_options(
        job.source_options(**job.topic_options(), endingTimestamp=job.end, includeProperties="true"),
        streaming=False,
    )
    async with Cluster(options) as cluster:
        queues = await cluster.queues()
        return await cluster.at_bound(queues, options.start), await cluster.at_bound(queues, options.end)


def _done(files: Files, job: ReplayJob) -> list[int]:
    """The number of rows of each finished step."""
    folder = joined(job.checkpoint, _DONE)
    texts = [files.read(joined(folder, name)) or "" for name in files.names(folder)]
    return [msgspec.json.decode(text, type=dict[str, int])["rows"] for text in texts]
