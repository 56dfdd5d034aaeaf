"""Small batches of a stream, read by the driver.

A Python task takes about 50 ms however little it reads. Spark can take rows together with the plan of a batch
instead, but only from a reader of its own class, by `isinstance`; the reader reports that class while it has
rows to give.

Rules kept here:
- Reading starts as soon as the next batch is known, while Spark writes its offsets.
- Only batches that are small in messages and bytes are read here, and only without `minPartitions`.
- After any failure tasks read the batch, with their own time-outs. Tasks also read rows that Spark dropped.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import msgspec
from pyspark.sql.datasource import InputPartition

from cometmq.model.errors import CometError
from cometmq.spark.live.options import LiveOptions
from cometmq.spark.live.partitions import QueueRange, RangesPartition
from cometmq.spark.live.stream import RocketmqStreamReader

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("cometmq.spark")

MAX_BYTES: Final = 4 * 1024 * 1024
"""Tasks read larger batches."""
_POLL_TIMEOUT_MS: Final = 1000
"""How long the driver waits for an unavailable broker."""
_DECAY: Final = 0.9
"""The known row size loses weight with each batch that tasks read."""


try:
    from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper

    CLASS_WITH_ROWS: type[Any] | None = _SimpleStreamReaderWrapper
except ImportError:
    CLASS_WITH_ROWS = None


class PromptStreamReader(RocketmqStreamReader):
    """A stream reader that gives Spark the rows of small batches."""

    def __init__(self, options: LiveOptions, columns: Sequence[str]) -> None:
        super().__init__(options, columns)
        self._small = SmallBatches(options, self._columns)
        self._rows: list[pa.RecordBatch] | None = None  # of the planned batch

    def __reduce__(self) -> tuple[Any, ...]:
        return RocketmqStreamReader, (self._options, self._columns)

    def _expect(self, ranges: Sequence[QueueRange]) -> None:
        self._small.begin(ranges)

    def stop(self) -> None:
        self._small.stop()
        super().stop()

    def _partitions_of(self, ranges: Sequence[QueueRange]) -> Sequence[InputPartition]:
        self._rows = self._small.read(ranges)
        if self._rows is None:
            return super()._partitions_of(ranges)
        return [RangesPartition(ranges)]  # every partition would get all rows

    @property  # type: ignore[misc]
    def __class__(self) -> type[Any]:
        return type(self) if self._rows is None or CLASS_WITH_ROWS is None else CLASS_WITH_ROWS

    def getCache(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Iterator[Any]:  # noqa: N802 - Spark calls it so
        """The rows of the batch that was planned last."""
        rows, self._rows = self._rows, None
        return iter(rows or ())


class SmallBatches:
    """Reads small batches on a thread."""

    def __init__(self, options: LiveOptions, columns: Sequence[str]) -> None:
        self._options = msgspec.structs.replace(
            options, poll_timeout_ms=min(options.poll_timeout_ms, _POLL_TIMEOUT_MS), fail_on_data_loss=True
        )
        self._columns = columns
        self._most = 0 if CLASS_WITH_ROWS is None else options.driver_max_records
        self._row_bytes = 0.0
        self._thread = ThreadPoolExecutor(1, "small-batches")
        self._begun: tuple[Sequence[QueueRange], Future[list[pa.RecordBatch] | None]] | None = None

    def begin(self, ranges: Sequence[QueueRange]) -> None:
        """Read ahead, while Spark writes the offsets."""
        self._begun = ranges, self._thread.submit(self._read_if_small, ranges)

    def read(self, ranges: Sequence[QueueRange]) -> list[pa.RecordBatch] | None:
        """The rows of a batch; None if tasks have to read it."""
        begun, self._begun = self._begun, None
        if begun is not None and begun[0] == ranges:
            return begun[1].result()
        return self._thread.submit(self._read_if_small, ranges).result()

    def stop(self) -> None:
        self._begun = None
        self._thread.shutdown(cancel_futures=True)

    def _read_if_small(self, ranges: Sequence[QueueRange]) -> list[pa.RecordBatch] | None:
        count = sum(each.count for each in ranges)
        options = self._options
        limit = options.max_records_per_partition
        largest = self._most if limit is None else min(self._most, limit)
        if not 0 < count <= largest or options.min_partitions is not None:
            return None
        if count * self._row_bytes > MAX_BYTES:
            self._row_bytes *= _DECAY
            return None
        try:
            return self._read(ranges)
        except CometError as error:
            log.info("a batch of %d messages is left to tasks: %s", count, error)
            return None

    def _read(self, ranges: Sequence[QueueRange]) -> list[pa.RecordBatch] | None:
        from cometmq.spark.live.decode import read_ranges  # pyarrow is needed only here

        batches: list[pa.RecordBatch] = []
        rows = size = 0
        for batch in read_ranges(self._options, ranges, self._columns):
            batches.append(batch)
            rows += batch.num_rows
            size += batch.nbytes
            self._row_bytes = size / rows
            if size > MAX_BYTES:
                return None
        return batches
