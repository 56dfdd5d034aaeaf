"""Spark sink `rocketmq`: writes rows as messages, from batch and streaming queries.

    (frame.selectExpr("to_json(struct(*)) AS body").write.format("rocketmq").mode("append")
        .option("namesrvAddr", "host:9876").option("topic", "orders").save())

Rules kept here:
- A write succeeds when brokers have confirmed every row. A row that a broker refuses fails the task.
- Without `exactlyOnce`, rows of a retried task are stored again. With it they are not: rows of a streaming
  query are identified by query, batch and partition; rows of a batch write by an id that the driver makes, or
  by `exactlyOnceId`, with which another run of the job counts as the same write.
- A failed write leaves its messages in the topic.
- `maxRowsPerSecond` passes rows on in chunks of at most a tenth of a second, cut by rate and batches alone.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from cometmq.model.errors import SettingsError, StateError
from cometmq.spark.releases import StreamArrowWriter
from cometmq.spark.sink.at_least_once import AtLeastOnceSends
from cometmq.spark.sink.columns import Columns, sink_columns
from cometmq.spark.sink.exactly_once import ExactlyOnceSends, WriteId
from cometmq.spark.sink.options import SinkOptions, sink_options
from cometmq.spark.sink.requests import RowEncoder
from cometmq.spark.sink.worker_producer import worker_producer

QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"


_CHUNKS_A_SECOND: Final = 10


def paced(
    batches: Iterator[pa.RecordBatch],
    rate: int | None,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[pa.RecordBatch]:
    """The rows of the batches at `rate` rows a second; None sets no limit."""
    if rate is None:
        yield from batches
        return
    most = max(rate // _CHUNKS_A_SECOND, 1)
    began, sent = clock(), 0
    for batch in batches:
        for start in range(0, batch.num_rows, most):
            early = sent / rate - (clock() - began)
            if early > 0:
                sleep(early)
            chunk = batch.slice(start, most)
            yield chunk
            sent += chunk.num_rows


@dataclass
class Written(WriterCommitMessage):
    """The result of a task."""

    rows: int
    known: int
    """Rows that an earlier attempt had stored."""


class _Plan(msgspec.Struct, frozen=True):
    """The sink as tasks get it."""

    options: SinkOptions
    columns: Columns
    made_id: str


def _plan(given: Mapping[str, str], schema: StructType, *, overwrite: bool, streaming: bool) -> _Plan:
    if overwrite:
        raise SettingsError("a topic cannot be overwritten; use mode append")
    options = sink_options(given, streaming=streaming)
    columns = sink_columns(schema, has_topic=options.topic is not None)
    return _Plan(options, columns, uuid.uuid4().hex)


class RocketmqWriter(DataSourceArrowWriter):
    """Writes the rows of a batch query."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        self._plan = _plan(options, schema, overwrite=overwrite, streaming=False)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one partition; runs in a task."""
        write = _batch_write(self._plan) if self._plan.options.exactly_once else None
        return _write(self._plan, write, iterator)


class RocketmqStreamWriter(StreamArrowWriter):
    """Writes the rows of a streaming query."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        self._plan = _plan(options, schema, overwrite=overwrite, streaming=True)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one partition of a micro-batch; runs in a task."""
        write = None
        if self._plan.options.exactly_once:
            query, batch = _task().getLocalProperty(QUERY_ID), _task().getLocalProperty(BATCH_ID)
            if query is None or batch is None:
                raise StateError("Spark does not say which query and batch this is; leave exactlyOnce out")
            write = WriteId(query, int(batch), _task().partitionId())
        return _write(self._plan, write, iterator)


def _batch_write(plan: _Plan) -> WriteId:
    """The id of this write; in `foreachBatch` it includes the batch."""
    given, query = plan.options.once_id, _task().getLocalProperty(QUERY_ID)
    if query is None:
        return WriteId(given or plan.made_id, 0, _task().partitionId())
    if given is None:
        raise SettingsError(
            "a batch of a streaming query can be tried again by another run of it; give each write of the "
            "batch an exactlyOnceId of its own, so that it is known again"
        )
    return WriteId(f"{query}/{given}", int(_task().getLocalProperty(BATCH_ID) or 0), _task().partitionId())


def _task() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise StateError("rows are written by tasks; there is none")
    return context


def _write(plan: _Plan, write: WriteId | None, batches: Iterator[pa.RecordBatch]) -> Written:
    options, by_queue_id = plan.options, "queueId" in plan.columns
    encoder = RowEncoder(plan.columns, options.topic, options.max_message_size)
    producer = worker_producer(options)
    sends: AtLeastOnceSends | ExactlyOnceSends
    if write is None:
        sends = AtLeastOnceSends(producer, options, by_queue_id=by_queue_id)
    else:
        sends = ExactlyOnceSends(producer, options, write, by_queue_id=by_queue_id)
    rows = 0
    try:
        for batch in paced(batches, options.max_rows_per_second):
            for request in encoder.requests(batch, sends.topic):
                sends.send(request)
            rows += batch.num_rows
        return Written(rows, sends.finish())
    except BaseException:
        sends.abandon()
        raise
