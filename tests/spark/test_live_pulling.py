"""What a worker reads: in order, in little memory, through faults of brokers (D1)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from cometmq import Message, Producer
from cometmq.model.errors import CometError
from cometmq.model.queue import MessageQueue
from cometmq.spark.live import worker_pull as pulling
from cometmq.spark.live.data_loss import DataLossError
from cometmq.spark.live.decode import read_ranges
from cometmq.spark.live.options import LiveOptions, live_options
from cometmq.spark.live.partitions import QueueRange
from cometmq.spark.process_cache import MAX_KEPT
from cometmq.testing.embedded import EmbeddedBroker

COUNT = 60_000
"""More than is read ahead."""


class Shelf:
    """A queue full of numbers."""

    def __init__(self, rocketmq: EmbeddedBroker) -> None:
        self.rocketmq = rocketmq
        self.queue = MessageQueue("shelf", "embedded", 0)

    def options(self, **options: str) -> LiveOptions:
        return live_options(
            {"namesrvAddr": self.rocketmq.namesrv, "topic": "shelf", **options}, streaming=False
        )

    def read(self, start: int, end: int, **options: str) -> Iterator[pa.RecordBatch]:
        ranges = [QueueRange(self.queue, start, end)]
        return read_ranges(self.options(**options), ranges, ["queueOffset", "body"])


@pytest.fixture(scope="module")
def shelf() -> Iterator[Shelf]:
    with EmbeddedBroker() as rocketmq:
        rocketmq.call(rocketmq.create_topic("shelf", queues=1))
        with Producer("shelf", namesrv=rocketmq.namesrv) as producer:
            for start in range(0, COUNT, 1000):
                producer.send_batch(
                    [Message("shelf", b"%d" % number) for number in range(start, start + 1000)]
                )
        yield Shelf(rocketmq)


def offsets(batch: pa.RecordBatch) -> list[int]:
    found: list[int] = batch.column(0).to_pylist()
    return found


def test_messages_come_in_the_order_of_their_offsets(shelf: Shelf) -> None:
    read = [offset for batch in shelf.read(5, COUNT - 5) for offset in offsets(batch)]
    assert read == list(range(5, COUNT - 5))


def test_little_is_held_however_much_there_is(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    """With little room, chunks behind the first wait, and all is read in the end."""
    monkeypatch.setattr(pulling, "MAX_HELD_BYTES", 1)
    assert sum(batch.num_rows for batch in shelf.read(0, COUNT)) == COUNT


def test_a_reader_that_stops_in_the_middle_leaves_nothing_running(shelf: Shelf) -> None:
    batches = shelf.read(0, COUNT)
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert offsets(next(shelf.read(7, 8))) == [7]


def test_a_broker_that_is_away_in_the_middle_is_waited_for(shelf: Shelf) -> None:
    """D1: a broker that goes away during a batch and comes back."""
    batches = shelf.read(0, COUNT)
    read = offsets(next(batches))
    shelf.rocketmq.call(shelf.rocketmq.stop_broker())
    back = threading.Timer(1.0, lambda: shelf.rocketmq.call(shelf.rocketmq.start()))
    back.start()
    for batch in batches:
        read += offsets(batch)
    back.join()
    assert read == list(range(COUNT))


def test_a_broker_that_stays_away_ends_the_read_with_a_sentence(shelf: Shelf) -> None:
    shelf.rocketmq.call(shelf.rocketmq.stop_broker())
    try:
        with pytest.raises(CometError, match=r"shelf@embedded:0 could not be read at offset 3 for 1 s: "):
            list(shelf.read(3, 9, pollTimeoutMs="1000"))
    finally:
        shelf.rocketmq.call(shelf.rocketmq.start())


def test_messages_that_a_broker_no_longer_has_are_reported_or_passed_over(
    shelf: Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    """D1: a broker that lost its end says less than it said when the batch was planned."""
    sentence = f"shelf@embedded:0 has lost 2 messages that were not read yet, offsets {COUNT} to {COUNT + 1}"
    with pytest.raises(DataLossError) as caught:
        list(shelf.read(COUNT - 3, COUNT + 2))
    assert sentence in str(caught.value)

    read = [
        offset
        for batch in shelf.read(COUNT - 3, COUNT + 2, failOnDataLoss="false")
        for offset in offsets(batch)
    ]
    assert read == [COUNT - 3, COUNT - 2, COUNT - 1]
    assert sentence in caplog.text


def test_a_group_that_is_moved_does_not_move_the_query(shelf: Shelf) -> None:
    """D1: offsets are Spark's."""
    shelf.rocketmq.broker.context.offsets.assign_reset("shelf", "moved", 0, COUNT - 1)
    read = [offset for batch in shelf.read(0, 10, group="moved") for offset in offsets(batch)]
    assert read == list(range(10))
    assert not shelf.rocketmq.broker.context.offsets.has_reset("shelf", "moved", 0)


def test_a_process_keeps_few_clients(shelf: Shelf, tmp_path: Path) -> None:
    for number in range(MAX_KEPT + 2):
        assert offsets(next(shelf.read(0, 1, unitName=f"unit-{number}"))) == [0]
    assert len(pulling.worker_clients) <= MAX_KEPT
