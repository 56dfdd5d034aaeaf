"""Streaming reader of the source `rocketmq`.

Rules kept here:
- Offsets are in Spark's checkpoint; brokers do not move a query.
- A new queue starts at its earliest message. It first enters the offsets without messages, so that its start
  is in the checkpoint before anything is read.
- A queue that is gone, or whose broker is away, keeps its offset and continues when it is back.
- A trigger respects the limits of the options; with `availableNow` the query ends at the offsets of its
  start, and there is no minimum.
- A checkpoint with offsets of topics, or assigned queues, that the query does not read is that of another
  query.
- The offsets of finished batches are on the brokers before Spark gets the next end, which may be the last
  call: Spark kills the process of the reader.
- Lost messages are counted as `$skipped` beside the latest offsets in the progress of the query.
"""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from cometmq.client.blocking.loop import background
from cometmq.spark.lag import SKIPPED
from cometmq.spark.live.batch import read_partition
from cometmq.spark.live.cluster import Cluster, listed
from cometmq.spark.live.data_loss import report_loss, report_other_topics, report_shrunk
from cometmq.spark.live.offsets import (
    LATEST,
    Offsets,
    advance,
    backlog_of,
    from_nested,
    share,
    share_bytes,
    to_nested,
)
from cometmq.spark.live.options import LiveOptions
from cometmq.spark.live.partitions import QueueRange, partitions_of, ranges_between
from cometmq.spark.releases import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("cometmq.spark")


class RocketmqStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics as a stream."""

    def __init__(self, options: LiveOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)
        self._cluster: Cluster | None = None
        self._target: Offsets | None = None
        self._latest: Offsets = {}
        self._earliest: Offsets = {}  # of the queues of the next batch
        self._at_latest: Offsets = {}  # the start of queues of a new query that starts at the latest offsets
        self._reported: set[QueueRange] = set()  # ranges with reported losses
        self._last_batch_at = -math.inf
        self._knows_topics = False
        self._skipped = 0

    def __getstate__(self) -> dict[str, Any]:
        """Workers get a fresh reader, without connections."""
        return RocketmqStreamReader(self._options, self._columns).__dict__

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark calls it so
        return to_nested(background().run(self._first()))

    async def _first(self) -> Offsets:
        cluster = await self._started()
        bound = self._options.start
        first = await cluster.at_bound(await cluster.queues(), bound)
        given = bound.offsets or {}
        if bound.time_ms is None and bound.times_ms is None:
            self._at_latest = {
                queue: offset
                for queue, offset in first.items()
                if given.get(queue, bound.everywhere) == LATEST
            }
        return first

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark calls it so
        return to_nested(background().run(self._finished(from_nested(start), limit)))

    async def _finished(self, start: Offsets, limit: ReadLimit) -> Offsets:
        """Everything before `start` is finished; where does the next batch end?"""
        cluster = await self._started()
        cluster.commit_soon(start)
        end = await self._next(start, limit)
        await cluster.committed()
        return end

    async def _next(self, start: Offsets, limit: ReadLimit) -> Offsets:
        self._check_topics(start)
        cluster = await self._started()
        new, latest = await self._look(cluster, start)
        begun = {queue: offset for queue, offset in start.items() if latest.get(queue, offset) >= offset}
        backlog = backlog_of(begun, latest)
        taken = backlog if isinstance(limit, ReadAllAvailable) else await self._admit(cluster, start, backlog)
        end = {**advance(begun, taken), **await self._begin_again(cluster, start, latest), **new}
        self._earliest = await cluster.earliest(taken, needed=False)
        self._reported.clear()
        # Now, so that the progress of this batch counts what is lost.
        self._expect([left for left in map(self._existing_part, ranges_between(start, end)) if left.count])
        return end

    def _expect(self, ranges: Sequence[QueueRange]) -> None:
        """Spark will most likely plan these ranges next."""

    async def _look(self, cluster: Cluster, start: Offsets) -> tuple[Offsets, Offsets]:
        """The start of new queues, and the latest offsets of all."""
        target = self._target
        queues = await cluster.queues() if target is None else list(target)
        latest = await cluster.latest(queues, needed=False) if target is None else target
        # Their start has to be in the checkpoint before anything is read: asked again, it would be another.
        latest, self._at_latest = {**latest, **self._at_latest}, {}
        if target is not None:
            self._target = latest
        unseen = [queue for queue in latest if queue not in start]
        new = await cluster.earliest(unseen, needed=target is not None) if unseen else {}
        self._latest = latest
        return new, latest

    async def _begin_again(self, cluster: Cluster, start: Offsets, latest: Offsets) -> Offsets:
        """Queues that end before the offset that was read: their topic was recreated, or lost its end."""
        shrunk = {queue: offset for queue, offset in start.items() if latest.get(queue, offset) < offset}
        if not shrunk:
            return {}
        earliest = await cluster.earliest(shrunk)
        for queue, offset in shrunk.items():
            has = earliest[queue], latest[queue]
            report_shrunk(queue, offset, has, fail_on_data_loss=self._options.fail_on_data_loss)
        return earliest

    async def _admit(self, cluster: Cluster, start: Offsets, backlog: Offsets) -> Offsets:
        options = self._options
        if self._waits_for_more(sum(backlog.values())):
            return {}
        taken = (
            backlog
            if options.max_offsets_per_trigger is None
            else share(backlog, options.max_offsets_per_trigger)
        )
        if options.max_bytes_per_trigger is not None and taken:
            sizes = await cluster.message_sizes({queue: start[queue] for queue in taken})
            taken = share_bytes(taken, sizes, options.max_bytes_per_trigger)
        return taken

    def _waits_for_more(self, count: int) -> bool:
        """Whether a batch of so many messages is too small; with `availableNow` none is."""
        least, now = self._options.min_offsets_per_trigger, time.monotonic()
        if (
            least is not None
            and self._target is None
            and count < least
            and now - self._last_batch_at < self._options.max_trigger_delay_s
        ):
            return True
        if count:
            self._last_batch_at = now
        return False

    def _check_topics(self, checkpoint: Offsets) -> None:
        """Notice a checkpoint of a query that read other topics."""
        if self._knows_topics:
            return
        self._knows_topics = True
        options = self._options
        others = {queue.topic for queue in checkpoint} - set(options.topics)
        read = options.topic_pattern or ", ".join(options.topics)
        if options.topic_pattern is not None:
            others = {topic for topic in others if not re.fullmatch(options.topic_pattern, topic)}
        elif options.assigned is not None:
            others = {str(queue) for queue in checkpoint if queue not in options.assigned}
            read = listed(options.assigned)
        if others:
            report_other_topics(sorted(others), read, fail_on_data_loss=options.fail_on_data_loss)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark calls it so
        """One of the limits; `latestOffset` applies all."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark calls it so
        self._target = background().run(self._all_available())

    async def _all_available(self) -> Offsets:
        cluster = await self._started()
        return await cluster.latest(await cluster.queues())

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark calls it so
        if not self._latest:
            return None
        return {**to_nested(self._latest), SKIPPED: self._skipped}

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        self._check_topics(from_nested(end))
        ranges = ranges_between(from_nested(start), from_nested(end))
        return self._partitions_of(background().run(self._existing(ranges)) if ranges else ranges)

    def _partitions_of(self, ranges: Sequence[QueueRange]) -> Sequence[InputPartition]:
        options = self._options
        return partitions_of(ranges, options.min_partitions, options.max_records_per_partition)

    async def _existing(self, ranges: Sequence[QueueRange]) -> list[QueueRange]:
        """The ranges without messages that are known to be lost."""
        unknown = [each.queue for each in ranges if each.queue not in self._earliest]
        if unknown:  # an earlier run of the query planned the batch
            cluster = await self._started()
            await cluster.queues()
            self._earliest = {**self._earliest, **await cluster.earliest(unknown, needed=False)}
        return [left for left in map(self._existing_part, ranges) if left.count]

    def _existing_part(self, each: QueueRange) -> QueueRange:
        first = self._earliest.get(each.queue, each.start)
        if first <= each.start:
            return each
        start = min(first, each.end)
        if each not in self._reported:
            has = first, max(self._latest.get(each.queue, each.end), each.end)
            fails = self._options.fail_on_data_loss
            self._skipped += report_loss(each.queue, each.start, start, has, fail_on_data_loss=fails)
            self._reported.add(each)
        return QueueRange(each.queue, start, each.end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._options, partition, self._columns)

    def commit(self, end: Mapping[str, Any]) -> None:
        background().run(self._commit(from_nested(end)))

    async def _commit(self, offsets: Offsets) -> None:
        cluster = await self._started()
        cluster.commit_soon(offsets)
        await cluster.committed()

    def stop(self) -> None:
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            background().run(cluster.stop())

    async def _started(self) -> Cluster:
        if self._cluster is None:
            cluster = Cluster(self._options)
            await cluster.start()
            self._cluster = cluster
        return self._cluster
