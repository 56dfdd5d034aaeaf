"""Writing rows the way a task does, without Spark around it, and looking at what was stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import pyarrow as pa

from cometmq.spark.sink.at_least_once import AtLeastOnceSends
from cometmq.spark.sink.exactly_once import ExactlyOnceSends, WriteId
from cometmq.spark.sink.options import SinkOptions, sink_options
from cometmq.spark.sink.requests import RowEncoder
from cometmq.spark.sink.worker_producer import start_producer, stop_producer
from cometmq.store.read.reader import GetStatus
from cometmq.testing.embedded import EmbeddedBroker
from cometmq.wire.record.codec import Record, decode_record

Sends = AtLeastOnceSends | ExactlyOnceSends


def records(broker: EmbeddedBroker, topic: str) -> list[Record]:
    """All messages of a topic, queue by queue."""
    found: list[Record] = []
    store = broker.broker.context.store
    for queue_id in sorted(store.queues.by_topic.get(topic, {})):
        offset = 0
        while True:
            got = store.reader.get(topic, queue_id, offset, 1000)
            if got.status is not GetStatus.FOUND:
                break
            found += [decode_record(bytes(view)) for view in got.records]
            offset += len(got.records)
    return found


def bodies(broker: EmbeddedBroker, topic: str) -> list[bytes]:
    return [bytes(record.body) for record in records(broker, topic)]


class TaskKit:
    """Tasks that write to one cluster."""

    def __init__(self, namesrv: str, given: Mapping[str, str] | None = None) -> None:
        values = {"namesrvAddr": namesrv, "topic": "T", **(given or {})}
        self.options: SinkOptions = sink_options(values, streaming=False)
        self.producer = start_producer(self.options)

    def attempt(self, write: WriteId | None, *, by_queue_id: bool = False) -> Sends:
        if write is None:
            return AtLeastOnceSends(self.producer, self.options, by_queue_id=by_queue_id)
        return ExactlyOnceSends(self.producer, self.options, write, by_queue_id=by_queue_id)

    def write(self, write: WriteId | None, *batches: pa.RecordBatch) -> int:
        """One attempt from beginning to end; how many rows were there before."""
        sends = self.attempt(write, by_queue_id="queueId" in batches[0].schema.names)
        for batch in batches:
            self.put(sends, batch)
        return sends.finish()

    def put(self, sends: Sends, batch: pa.RecordBatch) -> None:
        """What an attempt does with one batch of rows."""
        columns = {name: place for place, name in enumerate(batch.schema.names)}
        encoder = RowEncoder(columns, self.options.topic, self.options.max_message_size)
        for request in encoder.requests(batch, sends.topic):
            sends.send(request)


@contextmanager
def tasks(namesrv: str, given: Mapping[str, str] | None = None) -> Iterator[TaskKit]:
    kit = TaskKit(namesrv, given)
    try:
        yield kit
    finally:
        stop_producer(kit.producer)


def rows(**columns: Sequence[object] | pa.Array) -> pa.RecordBatch:
    """Rows from columns."""
    arrays = [each if isinstance(each, pa.Array) else pa.array(each) for each in columns.values()]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def numbered(first: int, end: int) -> pa.RecordBatch:
    """Rows whose bodies are their numbers."""
    return rows(body=pa.array([b"%d" % number for number in range(first, end)]))
