"""What a stream tells Spark of its offsets, asked as Spark asks (D1)."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from cometmq import Message, Producer
from cometmq.spark.live import cluster
from cometmq.spark.live.options import live_options
from cometmq.spark.live.stream import RocketmqStreamReader
from cometmq.testing.embedded import EmbeddedBroker
from tests.waiting import wait_until

ALL = ReadAllAvailable()


class Desk:
    """A broker, and stream readers of it."""

    def __init__(self, rocketmq: EmbeddedBroker, producer: Producer) -> None:
        self.rocketmq = rocketmq
        self._producer = producer
        self._readers: list[RocketmqStreamReader] = []

    def topic(self, name: str, queues: int) -> None:
        self.rocketmq.call(self.rocketmq.create_topic(name, queues=queues))

    def send(self, topic: str, count: int) -> None:
        for _ in range(count):
            self._producer.send(Message(topic, b"x" * 100))

    def reader(self, **options: str) -> RocketmqStreamReader:
        given = {"namesrvAddr": self.rocketmq.namesrv, "startingOffsets": "earliest", **options}
        reader = RocketmqStreamReader(live_options(given, streaming=True), ["body"])
        self._readers.append(reader)
        return reader

    def stop(self) -> None:
        for reader in self._readers:
            reader.stop()


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.setattr(cluster, "DISCOVERY_PERIOD_S", 0.0)
    with EmbeddedBroker() as rocketmq, Producer("desk", namesrv=rocketmq.namesrv) as producer:
        desk = Desk(rocketmq, producer)
        yield desk
        desk.stop()


def count(reader: RocketmqStreamReader, start: dict[str, Any], end: dict[str, Any]) -> int:
    """The rows between two offsets, as a worker reads them."""
    worker = pickle.loads(pickle.dumps(reader))
    return sum(batch.num_rows for part in reader.partitions(start, end) for batch in worker.read(part))


def test_a_new_queue_enters_the_offsets_before_it_is_read(desk: Desk) -> None:
    desk.topic("t", 1)
    desk.send("t", 3)
    reader = desk.reader(topic="t")
    start = reader.initialOffset()
    assert start == {"t": {"embedded": {"0": 0}}}
    end = reader.latestOffset(start, ALL)
    assert end == {"t": {"embedded": {"0": 3}}}
    desk.topic("t", 2)
    desk.send("t", 10)

    def entered() -> bool:
        return "1" in reader.latestOffset(end, ALL)["t"]["embedded"]

    wait_until(entered, "the name server has told of the queue")
    entering = reader.latestOffset(end, ALL)
    assert entering["t"]["embedded"]["1"] == 0
    read = reader.latestOffset(entering, ALL)
    assert count(reader, end, entering) + count(reader, entering, read) == 10
    assert reader.latestOffset(read, ALL) == read


def test_available_now_ends_at_what_there_was(desk: Desk) -> None:
    desk.topic("t", 2)
    desk.send("t", 10)
    reader = desk.reader(topic="t", maxOffsetsPerTrigger="4")
    at = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    desk.send("t", 10)
    sizes = []
    while (end := reader.latestOffset(at, reader.getDefaultReadLimit())) != at:
        sizes.append(count(reader, at, end))
        at = end
    assert sizes == [4, 4, 2]


def test_the_limits_of_the_options_are_the_limits_of_spark(desk: Desk) -> None:
    desk.topic("t", 2)
    assert desk.reader(topic="t").getDefaultReadLimit() == ALL
    assert desk.reader(topic="t", maxBytesPerTrigger="9").getDefaultReadLimit() == ReadMaxBytes(9)
    both = desk.reader(topic="t", maxBytesPerTrigger="1500", maxOffsetsPerTrigger="8")
    assert both.getDefaultReadLimit() == ReadMaxRows(8)
    desk.send("t", 20)
    start = both.initialOffset()
    assert 1 <= count(both, start, both.latestOffset(start, ReadMaxRows(8))) < 8
    assert count(both, start, both.latestOffset(start, ALL)) == 20


def test_a_queue_whose_broker_is_away_stays_where_it_is(desk: Desk) -> None:
    desk.topic("t", 2)
    desk.send("t", 5)
    reader = desk.reader(topic="t", group="away")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    desk.rocketmq.call(desk.rocketmq.stop_broker())
    assert reader.latestOffset(end, ALL) == end
    desk.rocketmq.call(desk.rocketmq.start())
    desk.send("t", 5)
    assert count(reader, end, reader.latestOffset(end, ALL)) == 5


def test_offsets_are_committed_for_the_group_and_not_read_back(desk: Desk) -> None:
    desk.topic("t", 1)
    desk.send("t", 5)
    reader = desk.reader(topic="t", group="committing")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    reader.commit(end)
    offsets = desk.rocketmq.broker.context.offsets
    wait_until(lambda: offsets.query("committing", "t", 0) == 5, "the offset is committed")
    assert desk.reader(topic="t", group="committing").initialOffset() == start
