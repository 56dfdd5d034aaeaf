"""Mirror: copies topics of one cluster to another.

Rules kept here:
- Messages of one queue arrive in order, by default in the queue with the same id.
- A topic that the target lacks when the mirror starts is created there, with as many queues.
- Offsets are in the checkpoint, so a stopped mirror continues. With CometMQ as the target each message
  arrives once, also if a batch is repeated; brokers of Apache need `atLeastOnce`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from pyspark.sql import functions as fn

from cometmq.client.admin.admin import Admin
from cometmq.client.blocking.loop import background
from cometmq.model.names import is_system_topic
from cometmq.spark.live.cluster import Cluster
from cometmq.spark.live.options import live_options
from cometmq.spark.pipelines.copy import copies
from cometmq.spark.pipelines.run.files import settings_of
from cometmq.spark.pipelines.run.jobs import MirrorJob
from cometmq.spark.pipelines.run.streams import Progress, Report, no_report, run_stream, trigger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["MirrorJob", "mirror"]


class Mirrored(Progress, rename="camel", kw_only=True):
    """The result of a run."""

    to_namesrv_addr: str
    made_topics: list[str]


def mirror(spark: SparkSession, job: MirrorJob, report: Report = no_report) -> Mirrored:
    """Copy the messages that are there, or run until interrupted."""
    options = job.source_options(
        **job.topic_options(),
        group=job.group,
        includeProperties="true",
        maxOffsetsPerTrigger=str(job.batch_rows),
    )
    made = background().run(_make_topics(job, options))
    stream = spark.readStream.format("rocketmq").options(**options).load()
    rows = copies(stream, fn.concat(fn.lit(job.prefix), "topic"), keep_queues=job.keep_queues)
    target = {**job.target_options(), "exactlyOnce": str(not job.at_least_once).lower()}
    writer = rows.writeStream.format("rocketmq").options(**target)
    writer = writer.option("checkpointLocation", job.checkpoint).outputMode("append")
    done = run_stream(trigger(writer, once=job.once, every_s=job.every_s), report)
    return Mirrored(to_namesrv_addr=job.to_namesrv_addr, made_topics=made, **msgspec.structs.asdict(done))


async def _make_topics(job: MirrorJob, options: dict[str, str]) -> list[str]:
    """Create missing topics. Returns their names."""
    async with Cluster(live_options({**options, "group": ""}, streaming=True)) as cluster:
        queues = await cluster.queues()
    made = []
    async with Admin(settings_of(job.target_options())) as admin:
        there = set(await admin.topics())
        for topic in sorted({queue.topic for queue in queues}):
            name = job.prefix + topic
            if name not in there and not is_system_topic(name):
                most = max(queue.queue_id for queue in queues if queue.topic == topic) + 1
                await admin.create_topic(name, queues=most)
                made.append(name)
    return made
