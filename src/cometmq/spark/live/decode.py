"""Pieces of pulls to Arrow batches, on a Spark worker.

Rules kept here:
- A batch has the columns that Spark asked for, in its order; what is needed to filter is made and dropped.
- Tags are compared as texts: a broker compares their hashes, and may let a stranger through.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cometmq.client.subscription import Sql, subscription_of
from cometmq.spark.arrow.batches import record_starts, to_batch
from cometmq.spark.arrow.gather import Places
from cometmq.spark.live.options import LiveOptions
from cometmq.spark.live.partitions import QueueRange
from cometmq.spark.live.worker_pull import Feeder, Piece, worker_client
from cometmq.wire.record.layout import peek_queue_offset


def read_ranges(
    options: LiveOptions, ranges: Sequence[QueueRange], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """All messages of some ranges."""
    client = worker_client(options.settings)
    decoder = Decoder(options, columns)
    feeder = Feeder(client.instance, options, ranges)
    try:
        while pieces := client.run(feeder.next()):
            batch = decoder.decode(pieces)
            if batch.num_rows:
                yield batch
    finally:
        client.run(feeder.stop())


class Decoder:
    """Makes batches of what the pulls of a query bring."""

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

    def decode(self, pieces: Sequence[Piece]) -> pa.RecordBatch:
        """The messages of pieces that go together."""
        first = pieces[0]
        buffer = first.body if len(pieces) == 1 else b"".join(piece.body for piece in pieces)
        batch = to_batch(
            buffer,
            self._wanted_starts(pieces) if self._is_filtered else record_starts(buffer),
            broker_name=first.queue.broker_name,
            columns=self._made,
            include_properties=self._include_properties,
        )
        if self._tags is not None:
            wanted = pc.is_in(batch.column("tags"), value_set=self._tags)
            batch = batch.filter(wanted).select(self._columns)
        if first.delta and "queueOffset" in self._columns:
            place = self._columns.index("queueOffset")
            moved = pc.add(batch.column(place), first.delta)
            batch = batch.set_column(place, batch.schema.field(place), moved)
        return batch

    @staticmethod
    def _wanted_starts(pieces: Sequence[Piece]) -> Places:
        """Where records begin that lie within their ranges: a broker that filters may look further."""
        base = 0
        found: list[Places] = []
        for piece in pieces:
            starts = record_starts(piece.body)
            count = len(starts)
            while count and _queue_offset(piece, int(starts[count - 1])) >= piece.end:
                count -= 1
            found.append(starts[:count] + base)
            base += len(piece.body)
        return np.concatenate(found)


def _queue_offset(piece: Piece, start: int) -> int:
    return peek_queue_offset(piece.body, start) + piece.delta
