"""Batch reader of the source `rocketmq`.

Rules kept here:
- The driver fixes the offsets when it plans a query; Spark decides which queries share a plan.
- Pushed filters reduce what is read (`pushdown.py`).
- A batch read commits no offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec
from pyspark.sql.datasource import DataSourceReader, InputPartition

from cometmq.client.blocking.loop import background
from cometmq.model.errors import ClientError
from cometmq.model.queue import MessageQueue
from cometmq.spark.live.cluster import Cluster
from cometmq.spark.live.data_loss import report_loss
from cometmq.spark.live.options import LiveOptions
from cometmq.spark.live.partitions import QueueRange, RangesPartition, partitions_of, ranges_between
from cometmq.spark.pushdown import Wanted, push
from cometmq.wire.bodies.heartbeat import ALL

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter

Bounds = dict[MessageQueue, int]


class RocketmqReader(DataSourceReader):
    """Reads a snapshot of topics."""

    def __init__(self, options: LiveOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)
        self._wanted = Wanted()

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        ranges = background().run(self._plan())
        return partitions_of(ranges, options.min_partitions, options.max_records_per_partition)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._options, partition, self._columns)

    async def _plan(self) -> list[QueueRange]:
        options = self._options
        async with Cluster(msgspec.structs.replace(options, group=None)) as cluster:
            queues = await cluster.queues()
            start = await cluster.at_bound(queues, options.start)
            end = await cluster.at_bound(queues, options.end)
            await self._check(cluster, start, end)
            return ranges_between(*await self._narrow(cluster, start, end))

    async def _check(self, cluster: Cluster, start: Bounds, end: Bounds) -> None:
        """Check offsets from options against the queues."""
        options = self._options
        if options.start.offsets is None and options.end.offsets is None:
            return
        earliest, latest = await cluster.earliest(start), await cluster.latest(start)
        for queue, offset in start.items():
            has = earliest[queue], latest[queue]
            if end[queue] > has[1]:
                raise ClientError(f"endingOffsets has {end[queue]} for {queue}, which ends at {has[1]}")
            if offset < min(has[0], end[queue]):
                first = min(has[0], end[queue])
                report_loss(queue, offset, first, has, fail_on_data_loss=options.fail_on_data_loss)
                start[queue] = first

    async def _narrow(self, cluster: Cluster, start: Bounds, end: Bounds) -> tuple[Bounds, Bounds]:
        """Apply the pushed filters."""
        wanted = self._wanted
        queues = [queue for queue in start if wanted.wants(queue)]
        first, last = dict.fromkeys(queues, wanted.offsets[0]), dict.fromkeys(queues, wanted.offsets[1])
        if wanted.limits_times:
            times = await cluster.at_time(queues, wanted.times_ms[0])
            first = {queue: max(offset, times[queue]) for queue, offset in first.items()}
            times = await cluster.at_time(queues, wanted.times_ms[1])
            last = {queue: min(offset, times[queue]) for queue, offset in last.items()}
        return (
            {queue: max(start[queue], first[queue]) for queue in queues},
            {queue: min(end[queue], last[queue]) for queue in queues},
        )


class FilteringReader(RocketmqReader):
    """Takes filters that Spark pushes."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark calls it so
        self._wanted, left = push(filters, self._wanted)
        tags = self._wanted.tags
        if tags and self._options.expression == ALL and all(map(_is_expressible, tags)):
            self._options = msgspec.structs.replace(self._options, expression="||".join(sorted(tags)))
        return left


def _is_expressible(tag: str) -> bool:
    return bool(tag.strip()) and tag == tag.strip() and "|" not in tag and tag != ALL


def read_partition(
    options: LiveOptions, partition: InputPartition, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The messages of a partition; without ranges, Spark passes a partition of its own."""
    from cometmq.spark.live.decode import read_ranges  # only workers need it

    ranges = partition.ranges if isinstance(partition, RangesPartition) else ()
    return read_ranges(options, ranges, columns)
