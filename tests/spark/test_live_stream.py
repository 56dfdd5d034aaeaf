"""Topics as streams: batches, where they begin and end, and what the brokers get to know of them (D1)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from cometmq import Admin, Message, Producer
from cometmq.spark.lag import SKIPPED, lags_of
from cometmq.testing.embedded import EmbeddedBroker
from tests.spark.live_kit import PATIENCE_S, Live, running, start
from tests.waiting import wait_until


def rows_of(query: StreamingQuery) -> list[int]:
    return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]


def offset_of(query: StreamingQuery, which: str) -> dict[str, Any]:
    assert query.lastProgress is not None
    found: dict[str, Any] = json.loads(getattr(query.lastProgress.sources[0], which))
    return found


def test_available_now_takes_no_more_than_it_may_and_ends(live: Live, tmp_path: Path) -> None:
    """D1: batch boundaries, and the group that lag tools see."""
    topic = live.topic(queues=2)
    live.send_numbers(topic, range(100))
    stream = live.stream(topic, maxOffsetsPerTrigger=40, group="lagging")

    query = live.run_to_end(stream, tmp_path)

    assert rows_of(query) == [40, 40, 20]
    assert live.written(tmp_path) == list(range(100))
    latest = offset_of(query, "latestOffset")
    assert sum(latest[topic]["embedded"].values()) == 100
    live.send_numbers(topic, range(100, 107))
    with Admin(namesrv=live.rocketmq.namesrv) as admin:
        progress = admin.consumer_progress("lagging", topic)
    assert sum(each.consumer_offset for each in progress.values()) == 100
    assert sum(each.broker_offset for each in progress.values()) == 107


def test_a_query_goes_on_where_it_stopped_with_queues_that_were_added(live: Live, tmp_path: Path) -> None:
    """D1"""
    topic = live.topic(queues=1)
    live.send_numbers(topic, range(10))
    live.run_to_end(live.stream(topic), tmp_path)
    live.rocketmq.call(live.rocketmq.create_topic(topic, queues=4))
    live.send_numbers(topic, range(10, 20))
    for number in range(20, 40):
        live.send(Message(topic, b"%d" % number))

    query = live.run_to_end(live.stream(topic), tmp_path)

    assert live.written(tmp_path) == list(range(40))
    assert sum(rows_of(query)) == 30


def test_a_limit_of_bytes_makes_batches_of_about_that_size(live: Live, tmp_path: Path) -> None:
    topic = live.topic(queues=1)
    live.send(*(Message(topic, b"%03000d" % number) for number in range(40)))
    query = live.run_to_end(live.stream(topic, maxBytesPerTrigger=33_000), tmp_path)
    assert sum(rows_of(query)) == 40
    assert max(rows_of(query)) <= 10
    assert live.written(tmp_path) == list(range(40))


def test_a_running_query_finds_new_topics_and_new_messages(live: Live, tmp_path: Path) -> None:
    """D1: what comes to be while it runs is read from its first message on."""
    first = live.topic()
    name = f"{first}-grown"
    live.send_numbers(first, range(5))
    stream = live.stream(topicPattern=f"{first}.*", startingOffsets="latest", group="pattern")
    with running(start(stream, tmp_path, every="50 milliseconds")) as query:
        wait_until(lambda: query.lastProgress is not None, "the query has begun")
        live.send_numbers(first, range(100, 105))
        live.rocketmq.call(live.rocketmq.create_topic(name, queues=2))
        live.send_numbers(name, range(200, 205))
        expected = [*range(100, 105), *range(200, 205)]
        wait_until(lambda: sum(rows_of(query)) == len(expected), "all rows were read")
        wait_until(
            lambda: "isDataAvailable" in query.status and not query.status["isTriggerActive"], "it rests"
        )
    assert live.written(tmp_path) == expected


def test_the_query_is_a_member_of_its_group_while_it_runs(live: Live, tmp_path: Path) -> None:
    topic = live.topic()
    consumers = live.rocketmq.broker.context.clients.consumers
    with running(start(live.stream(topic, group="members"), tmp_path)):
        wait_until(lambda: "members" in consumers, "the group has a member")
        assert topic in consumers["members"].subscriptions
    wait_until(lambda: "members" not in consumers, "the member has left")


# Faults


@pytest.fixture
def small(live: Live) -> Iterator[Live]:
    """A broker of its own, with small files that can be removed."""
    settings = {
        "mappedFileSizeCommitLog": str(64 * 1024),
        "mappedFileSizeConsumeQueue": str(100 * 20),
        "fileReservedTime": "0",
        "cleanResourceInterval": str(3_600_000),
    }
    with (
        EmbeddedBroker(settings=settings) as rocketmq,
        Producer("spark-faults", namesrv=rocketmq.namesrv) as producer,
    ):
        yield Live(live.spark, rocketmq, producer)


READ = 10
"""So many messages are read before the others expire."""


def expire(live: Live, topic: str) -> int:
    """Let files go until unread messages are gone; the answer is the first offset that is left."""
    store = live.rocketmq.broker.context.store

    async def clean() -> int:
        store.delete_expired()
        await store.retention.run()
        queue = store.queues.find(topic, 0)
        assert queue is not None
        return queue.min_offset

    # A file stays until it is flushed.
    wait_until(lambda: live.rocketmq.call(clean()) > READ, "messages have expired that were not read")
    return live.rocketmq.call(clean())


def test_retention_that_overtakes_a_reader_is_an_error_that_names_queue_and_offsets(
    small: Live, tmp_path: Path
) -> None:
    """D1"""
    topic = small.topic(queues=1)
    small.send_numbers(topic, range(READ))
    small.run_to_end(small.stream(topic), tmp_path)
    small.send_numbers(topic, range(READ, 2000))
    first = expire(small, topic)

    with pytest.raises(StreamingQueryException) as caught:
        small.run_to_end(small.stream(topic), tmp_path)

    lost = f"has lost {first - READ} messages that were not read yet, offsets {READ} to {first - 1}"
    assert f"{topic}@embedded:0 {lost}" in str(caught.value)
    assert "failOnDataLoss=false" in str(caught.value)


def test_or_a_gap_that_the_progress_counts(small: Live, tmp_path: Path) -> None:
    """D1"""
    topic = small.topic(queues=1)
    small.send_numbers(topic, range(READ))
    small.run_to_end(small.stream(topic), tmp_path)
    small.send_numbers(topic, range(READ, 2000))
    first = expire(small, topic)

    query = small.run_to_end(small.stream(topic, failOnDataLoss="false"), tmp_path)

    assert small.written(tmp_path) == [*range(READ), *range(first, 2000)]
    assert offset_of(query, "latestOffset")[SKIPPED] == first - READ


def test_a_topic_that_was_made_anew_is_an_error_or_read_from_its_beginning(
    small: Live, tmp_path: Path
) -> None:
    topic = small.topic(queues=1)
    small.send_numbers(topic, range(10))
    small.run_to_end(small.stream(topic), tmp_path)
    with Admin(namesrv=small.rocketmq.namesrv) as admin:
        admin.delete_topic(topic)
        admin.create_topic(topic, queues=1)
    small.send_numbers(topic, range(100, 103))

    with pytest.raises(StreamingQueryException, match="was read up to offset 10 and ends at 3 now"):
        small.run_to_end(small.stream(topic), tmp_path)
    small.run_to_end(small.stream(topic, failOnDataLoss="false"), tmp_path)
    assert small.written(tmp_path) == [*range(10), 100, 101, 102]


def test_a_broker_that_goes_away_and_comes_back_costs_nothing_but_time(small: Live, tmp_path: Path) -> None:
    """D1"""
    topic = small.topic(queues=2)
    small.send_numbers(topic, range(50))
    with running(start(small.stream(topic, maxOffsetsPerTrigger=10), tmp_path)) as query:
        wait_until(lambda: bool(rows_of(query)), "the query has begun")
        small.rocketmq.call(small.rocketmq.stop_broker())
        done = query.lastProgress
        wait_until(lambda: query.lastProgress is not done or query.isActive, "it goes on without the broker")
        small.rocketmq.call(small.rocketmq.start())
        small.send_numbers(topic, range(50, 80))
        wait_until(lambda: sum(rows_of(query)) == 80, f"all rows were read, of {rows_of(query)}")
        assert query.exception() is None
        query.processAllAvailable()
    assert small.written(tmp_path) == list(range(80))


def test_a_checkpoint_of_another_topic_ends_the_query_with_a_sentence(live: Live, tmp_path: Path) -> None:
    """D1: nothing of the new topic is read from offsets of the old one."""
    before, now = live.topic(), live.topic()
    live.send_numbers(before, range(10))
    live.run_to_end(live.stream(before), tmp_path)
    with pytest.raises(StreamingQueryException, match=f"has offsets of {before}, and the query reads {now}"):
        live.run_to_end(live.stream(now), tmp_path)


def test_the_progress_says_how_far_a_query_is_behind(live: Live, tmp_path: Path) -> None:
    """D1: what Spark's Kafka source has as metrics."""
    topic = live.topic(queues=2)
    live.send_numbers(topic, range(100))
    query = live.run_to_end(live.stream(topic, maxOffsetsPerTrigger=40), tmp_path)
    first, *_, last = [lags_of(each)[0] for each in query.recentProgress if each.numInputRows]
    assert first is not None
    assert last is not None
    assert (first.offsets_behind_latest, last.offsets_behind_latest) == (60, 0)
    assert first.min_offsets_behind_latest <= 30 <= first.max_offsets_behind_latest
    assert first.avg_offsets_behind_latest == 30


def test_a_wrong_option_ends_the_query_with_a_sentence(live: Live, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="a stream has no end"):
        start(live.stream(live.topic(), endingOffsets="latest"), tmp_path).awaitTermination(PATIENCE_S)
