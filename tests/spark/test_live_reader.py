"""What a stream tells Spark of its offsets, asked as Spark asks (D1)."""

from __future__ import annotations

import asyncio
import pickle
import time
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows

from cometmq import Message, Producer
from cometmq.client.consumer.broker_calls import BrokerCalls
from cometmq.model.errors import RouteNotFoundError, SettingsError
from cometmq.model.queue import MessageQueue
from cometmq.spark.live import cluster
from cometmq.spark.live.data_loss import DataLossError
from cometmq.spark.live.older_spark import OlderStreamReader
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

    def older_reader(self, **options: str) -> OlderStreamReader:
        given = {"namesrvAddr": self.rocketmq.namesrv, "startingOffsets": "earliest", **options}
        reader = OlderStreamReader(live_options(given, streaming=True), ["body"])
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


def test_a_batch_waits_for_enough_messages_or_long_enough(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.topic("t", 2)
    desk.send("t", 3)
    reader = desk.reader(topic="t", minOffsetsPerTrigger="10", maxTriggerDelay="1h")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(10)
    start = reader.initialOffset()
    first = reader.latestOffset(start, limit)
    assert count(reader, start, first) == 3  # the first batch does not wait
    desk.send("t", 9)
    assert reader.latestOffset(first, limit) == first
    assert count(reader, first, reader.latestOffset(first, ALL)) == 9
    desk.send("t", 1)
    second = reader.latestOffset(first, limit)
    assert count(reader, first, second) == 10
    desk.send("t", 1)
    assert reader.latestOffset(second, limit) == second
    monkeypatch.setattr(reader, "_last_batch_at", time.monotonic() - 3601)
    assert count(reader, second, reader.latestOffset(second, limit)) == 1


def test_available_now_waits_for_no_minimum(desk: Desk) -> None:
    desk.topic("t", 2)
    reader = desk.reader(topic="t", minOffsetsPerTrigger="10")
    start = reader.initialOffset()
    reader.latestOffset(start, reader.getDefaultReadLimit())
    desk.send("t", 3)
    reader.prepareForTriggerAvailableNow()
    assert count(reader, start, reader.latestOffset(start, reader.getDefaultReadLimit())) == 3


def test_a_start_at_the_latest_offsets_is_recorded_before_anything_is_read(desk: Desk) -> None:
    """A repeated first batch would start at the offsets that are the latest then."""
    desk.topic("t", 1)
    reader = desk.reader(topic="t", startingOffsets="latest")
    start = reader.initialOffset()
    desk.send("t", 3)
    assert reader.latestOffset(start, ALL) == start
    assert count(reader, start, reader.latestOffset(start, ALL)) == 3


def test_messages_that_come_while_a_query_starts_are_no_loss_with_available_now(desk: Desk) -> None:
    desk.topic("t", 1)
    desk.send("t", 3)
    reader = desk.reader(topic="t", startingOffsets="latest")
    reader.prepareForTriggerAvailableNow()
    desk.send("t", 2)
    start = reader.initialOffset()
    assert reader.latestOffset(start, ALL) == reader.latestOffset(start, ALL) == start


@pytest.mark.parametrize("options", [{"topic": "now"}, {"topicPattern": "n.*"}])
def test_a_checkpoint_of_another_topic_is_an_error(desk: Desk, options: dict[str, str]) -> None:
    desk.topic("before", 1)
    desk.topic("now", 1)
    desk.send("now", 3)
    start = {"before": {"embedded": {"0": 0}}}
    sentence = "the checkpoint has offsets of before, and the query reads n.*new checkpointLocation"
    for ask in ("partitions", "latestOffset"):
        with pytest.raises(DataLossError, match=sentence):
            getattr(desk.reader(**options), ask)(start, start if ask == "partitions" else ALL)
    reader = desk.reader(**options, failOnDataLoss="false")
    assert reader.latestOffset(start, ALL) == {**start, "now": {"embedded": {"0": 0}}}


def test_only_assigned_queues_are_read(desk: Desk) -> None:
    desk.topic("t", 4)
    desk.send("t", 12)
    reader = desk.reader(assign='{"t": {"embedded": [1, 3]}}')
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    assert (start, end) == ({"t": {"embedded": {"1": 0, "3": 0}}}, {"t": {"embedded": {"1": 3, "3": 3}}})
    assert count(reader, start, end) == 6
    with pytest.raises(DataLossError, match=r"has offsets of t@embedded:1, and the query reads t@embedded:3"):
        desk.reader(assign='{"t": {"embedded": [3]}}').latestOffset(end, ALL)
    with pytest.raises(
        RouteNotFoundError, match=r"assign names t@embedded:7, which is not there; there are t@"
    ):
        desk.reader(assign='{"t": {"embedded": [3, 7]}}').initialOffset()


def test_a_finished_batch_is_committed_before_the_next_end_is_known(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark kills the process of the reader at the end of a query."""
    commit = BrokerCalls.commit

    async def late(calls: BrokerCalls, group: str, queue: MessageQueue, offset: int) -> None:
        await asyncio.sleep(0.3)
        await commit(calls, group, queue, offset)

    monkeypatch.setattr(BrokerCalls, "commit", late)
    desk.topic("t", 1)
    desk.send("t", 5)
    reader = desk.reader(topic="t", group="awaited")
    end = reader.latestOffset(reader.initialOffset(), ALL)
    assert reader.latestOffset(end, ALL) == end
    assert desk.rocketmq.broker.context.offsets.query("awaited", "t", 0) == 5


def test_an_older_spark_asks_for_the_end_of_a_batch_before_its_start(desk: Desk) -> None:
    desk.topic("t", 1)
    desk.send("t", 3)
    reader = desk.older_reader(topic="t")
    end = reader.latestOffset()
    desk.send("t", 2)
    start = reader.initialOffset()
    assert (start, end) == ({"t": {"embedded": {"0": 0}}}, {"t": {"embedded": {"0": 3}}})
    assert count(reader, start, end) == 3
    assert count(reader, end, reader.latestOffset()) == 2


def test_an_older_spark_that_starts_again_says_where_the_last_batch_ended(desk: Desk) -> None:
    """A queue whose broker is away keeps its offset, and a batch counts as finished only after it ran."""
    desk.topic("t", 1)
    desk.send("t", 5)
    reader = desk.older_reader(topic="t", group="older")
    seen = {"t": {"embedded": {"0": 2}, "away": {"0": 7}}}
    assert list(reader.partitions(seen, seen)) == []
    end = reader.latestOffset()
    assert end == {"t": {"embedded": {"0": 5}, "away": {"0": 7}}}
    committed = desk.rocketmq.broker.context.offsets
    assert committed.query("older", "t", 0) in (None, -1)
    assert count(reader, seen, end) == 3
    assert reader.latestOffset() == end
    assert committed.query("older", "t", 0) == 5


@pytest.mark.parametrize("option", ["maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger"])
def test_an_older_spark_cannot_limit_a_batch(desk: Desk, option: str) -> None:
    with pytest.raises(SettingsError, match=f"{option} needs Spark 4.2 or newer"):
        desk.older_reader(topic="t", **{option: "5"})


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
