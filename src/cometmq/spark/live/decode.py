"""Pulled records to Arrow batches, on a Spark worker.

Rules kept here:
- A batch has the columns that Spark asked for, in its order. A column that only filters is made and dropped.
- Tags are compared as text: brokers compare hash codes, which may collide.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cometmq.client.subscription import Sql, subscription_of
from cometmq.spark.arrow.batches import to_batch
from cometmq.spark.arrow.gather import Positions
from cometmq.spark.arrow.record_fields import RecordFields
from cometmq.spark.arrow.record_scan import record_starts
from cometmq.spark.live.options import LiveOptions
from cometmq.spark.live.partitions import QueueRange
from cometmq.spark.live.worker_pull import PrefetchingPuller, PulledRecords, worker_client
from cometmq.wire.record.layout import peek_queue_offset


def read_ranges(
    options: LiveOptions, ranges: Sequence[QueueRange], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """All messages of some ranges."""
    client = worker_client(options.settings)
    decoder = Decoder(options, columns)
    puller = PrefetchingPuller(client.instance, options, ranges)
    try:
        while pulls := client.run(puller.next()):
            batch = decoder.decode(pulls)
            if batch.num_rows:
                yield batch
    finally:
        client.run(puller.stop())


class Decoder:
    """Decodes the pulls of a query."""

    def __init__(self, options: LiveOptions, columns: Sequence[str]) -> None:
        expression = options.expression
        tags = () if isinstance(expression, Sql) else subscription_of("", expression, 0).tags_set
        self._is_filtered = isinstance(expression, Sql) or bool(tags)
        self._tags = pa.array(tags, pa.string()) if tags else None
        self._columns = list(columns)
        self._made = self._columns
        if tags and "tags" not in columns:
            self._made = [*self._columns, "tags"]
        self._include_properties = options.include_properties

    def decode(self, pulls: Sequence[PulledRecords]) -> pa.RecordBatch:
        """The messages of pulls from one broker, with one offset delta."""
        first = pulls[0]
        buffer = first.body if len(pulls) == 1 else b"".join(pull.body for pull in pulls)
        starts = self._wanted_starts(pulls) if self._is_filtered else record_starts(buffer)
        batch = to_batch(
            RecordFields(buffer, starts),
            broker_name=first.queue.broker_name,
            columns=self._made,
            include_properties=self._include_properties,
        )
        if self._tags is not None:
            wanted = pc.is_in(batch.column("tags"), value_set=self._tags)
            batch = batch.filter(wanted).select(self._columns)
        if first.delta and "queueOffset" in self._columns:
            index = self._columns.index("queueOffset")
            moved = pc.add(batch.column(index), first.delta)
            batch = batch.set_column(index, batch.schema.field(index), moved)
        return batch

    @staticmethod
    def _wanted_starts(pulls: Sequence[PulledRecords]) -> Positions:
        """The starts of records inside their ranges: a filtering broker may return later ones, too."""
        base = 0
        found: list[Positions] = []
        for pull in pulls:
            starts = record_starts(pull.body)
            count = len(starts)
            while count and peek_queue_offset(pull.body, int(starts[count - 1])) + pull.delta >= pull.end:
                count -= 1
            found.append(starts[:count] + base)
            base += len(pull.body)
        return np.concatenate(found)
