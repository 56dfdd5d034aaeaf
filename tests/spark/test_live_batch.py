"""Topics as tables: what is read is what was sent, every column of it (D1)."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Row
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, In, LessThan

from cometmq import Message, TransactionProducer, TransactionState
from cometmq.spark.live.batch import FilteringReader
from cometmq.spark.live.options import live_options
from tests.spark.live_kit import Live, numbers
from tests.waiting import wait_until


def test_every_column_is_what_was_sent(live: Live) -> None:
    """D1: also bodies of 1 MB, compressed ones, and properties in any script."""
    topic = live.topic(queues=2)
    sent = [
        Message(topic, b"plain"),
        Message(
            topic, "größe".encode(), tags="Zürich", keys=["k1", "k2"], properties={"città": "Перуджа 🚀"}
        ),
        Message(topic, b"x" * 1_000_000, tags="large"),
        Message(topic, bytes(range(256)) * 4000, keys=["noise"]),
        Message(topic, b"1", properties={"one": "1"}),
    ]
    receipts = live.send(*sent)

    rows = {row.msgId: row for row in live.table(topic, includeProperties="true").collect()}

    assert len(rows) == len(sent)
    for message, receipt in zip(sent, receipts, strict=True):
        row = rows[receipt.msg_id]
        assert (row.topic, row.brokerName, row.queueId, row.queueOffset) == (
            topic,
            receipt.queue.broker_name,
            receipt.queue.queue_id,
            receipt.queue_offset,
        )
        assert bytes(row.body) == message.body
        assert (row.tags, row.keys or []) == (message.tags, list(message.keys))
        assert row.properties.items() >= dict(message.properties).items()
        assert row.reconsumeTimes == 0
        assert row.bornHost.startswith("127.0.0.1:")
        age = datetime.now(UTC) - row.storeTimestamp.astimezone(UTC)
        assert 0 <= age.total_seconds() < 600
        assert row.bornTimestamp <= row.storeTimestamp


def test_properties_are_null_unless_they_are_asked_for(live: Live) -> None:
    topic = live.topic()
    live.send(Message(topic, b"1", tags="a", properties={"n": "1"}))
    (row,) = live.table(topic).select("tags", "properties").collect()
    assert row == Row(tags="a", properties=None)


def test_a_schema_that_names_them_has_the_properties_of_senders(live: Live) -> None:
    topic = live.topic()
    live.send(Message(topic, b"1", tags="a", properties={"n": "1"}))
    schema = "tags string, properties map<string,string>"
    assert live.table(topic, schema).collect() == [Row(tags="a", properties={"n": "1"})]
    assert live.table(topic, schema, includeProperties="false").collect() == [Row(tags="a", properties=None)]


def test_only_the_columns_of_a_given_schema_are_made(live: Live) -> None:
    topic = live.topic(queues=1)
    live.send_numbers(topic, range(3), tags="a")
    frame = live.table(topic, "body binary, queueOffset bigint", tags="a")
    assert [(bytes(row.body), row.queueOffset) for row in frame.collect()] == [
        (b"0", 0),
        (b"1", 1),
        (b"2", 2),
    ]
    with pytest.raises(PySparkException, match="there is no column 'nonsense'"):
        live.table(topic, "nonsense string").collect()


def test_a_read_goes_from_offset_to_offset_of_each_queue(live: Live) -> None:
    topic = live.topic(queues=1)
    live.send_numbers(topic, range(100))
    queue = live.rocketmq.broker.context.settings.broker.broker_name

    def at(offset: int) -> str:
        return json.dumps({topic: {queue: {"0": offset}}})

    assert numbers(live.table(topic, startingOffsets=at(10), endingOffsets=at(15))) == [10, 11, 12, 13, 14]
    assert numbers(live.table(topic, startingOffsets=at(97), endingOffsets="latest")) == [97, 98, 99]
    with pytest.raises(PySparkException, match=r"endingOffsets has 500 for .*, which ends at 100"):
        live.table(topic, endingOffsets=at(500)).collect()


def test_a_read_goes_from_time_to_time(live: Live) -> None:
    topic = live.topic(queues=1)
    live.send_numbers(topic, range(3))
    last = max(row.storeTimestamp for row in live.table(topic).collect())
    wait_until(lambda: datetime.now() > last.replace(tzinfo=None), "the clock goes on")
    between_ms = round(last.timestamp() * 1000) + 1
    live.send_numbers(topic, range(3, 6))

    assert numbers(live.table(topic, startingTimestamp=between_ms)) == [3, 4, 5]
    assert numbers(live.table(topic, endingTimestamp=between_ms)) == [0, 1, 2]
    by_queue = json.dumps({topic: {"embedded": {"0": between_ms}}})
    assert numbers(live.table(topic, startingOffsetsByTimestamp=by_queue)) == [3, 4, 5]
    assert numbers(live.table(topic, endingOffsetsByTimestamp=by_queue)) == [0, 1, 2]


def test_several_topics_and_patterns_of_topics(live: Live) -> None:
    one, two = live.topic(), live.topic()
    live.send_numbers(one, range(5))
    live.send_numbers(two, range(5, 10))
    assert numbers(live.table(topics=f"{one},{two}")) == list(range(10))
    assert numbers(live.table(topicPattern=f"({one}|{two})")) == list(range(10))
    assert live.table(topicPattern="nothing-of-this-name").count() == 0


def test_brokers_filter_by_tags_and_by_sql_and_gaps_are_passed_over(live: Live) -> None:
    """D1: wanted messages lie far apart, and behind the last of them there are others."""
    topic = live.topic(queues=1)
    for start in range(0, 6000, 2000):
        live.send_numbers(topic, range(start, start + 2000), tags="other")
        live.send(Message(topic, b"%d" % start, tags="wanted", properties={"n": str(start)}))
    live.send_numbers(topic, range(1500), tags="other")

    assert numbers(live.table(topic, tags="wanted || absent")) == [0, 2000, 4000]
    assert numbers(live.table(topic, sql="n IS NOT NULL AND n > 1000", minPartitions=3)) == [2000, 4000]
    assert live.table(topic, tags="absent").count() == 0


def test_tags_with_the_same_hash_are_told_apart(live: Live) -> None:
    """Brokers compare hashes: `Aa` and `BB` are the same to them."""
    topic = live.topic()
    live.send_numbers(topic, range(5), tags="Aa")
    live.send_numbers(topic, range(5, 10), tags="BB")
    assert numbers(live.table(topic, "body binary", tags="BB")) == [5, 6, 7, 8, 9]


def test_filters_of_the_query_give_the_same_with_and_without_push_down(live: Live) -> None:
    topic, other = live.topic(queues=3), live.topic()
    live.send_numbers(topic, range(300), tags="a")
    live.send_numbers(topic, range(300, 600), tags="b")
    live.send_numbers(other, range(10))
    condition = (
        f"topic = '{topic}' AND queueId IN (0, 2) AND queueOffset >= 7 AND queueOffset < 60 "
        "AND tags = 'a' AND storeTimestamp > timestamp'2020-01-01' AND length(body) > 1"
    )
    frame = live.table(topics=f"{topic},{other}").where(condition)
    setting = "spark.sql.python.filterPushdown.enabled"

    pushed = numbers(frame)
    live.spark.conf.set(setting, "false")
    try:
        not_pushed = numbers(live.table(topics=f"{topic},{other}").where(condition))
    finally:
        live.spark.conf.set(setting, "true")

    assert pushed == not_pushed
    assert pushed


def test_what_is_pushed_is_not_read(live: Live) -> None:
    topic, other = live.topic(queues=3), live.topic()
    live.send_numbers(topic, range(600))
    live.send_numbers(other, range(10))
    given = {"namesrvAddr": live.rocketmq.namesrv, "topics": f"{topic},{other}"}
    reader = FilteringReader(live_options(given, streaming=False), ["body"])
    future = datetime(2100, 1, 1, tzinfo=UTC)

    left = reader.pushFilters(
        [
            EqualTo(("topic",), topic),
            In(("queueId",), (0, 1)),
            GreaterThanOrEqual(("queueOffset",), 20),
            LessThan(("queueOffset",), 30),
            LessThan(("storeTimestamp",), future),
        ]
    )
    assert list(left) == [LessThan(("storeTimestamp",), future)]
    ranges = [each for part in reader.partitions() for each in part.ranges]  # type: ignore[attr-defined]
    assert [(each.queue.queue_id, each.start, each.end) for each in ranges] == [(0, 20, 30), (1, 20, 30)]

    reader.pushFilters([GreaterThanOrEqual(("storeTimestamp",), future)])
    assert list(reader.partitions()) == []


def test_a_table_is_read_in_as_many_parts_as_asked_for(live: Live) -> None:
    topic = live.topic(queues=2)
    live.send_numbers(topic, range(1000))
    assert live.table(topic).rdd.getNumPartitions() == 1
    assert live.table(topic, minPartitions=6).rdd.getNumPartitions() >= 6
    parts = live.table(topic, maxRecordsPerPartition=100).rdd.glom().map(len).collect()
    assert sum(parts) == 1000
    assert max(parts) <= 100


def test_messages_of_transactions_and_delayed_ones_are_invisible_until_they_are_due(live: Live) -> None:
    """D1"""
    topic = live.topic()

    def unknown(message: object) -> TransactionState:
        return TransactionState.UNKNOWN

    with TransactionProducer("spark-transactions", check=unknown, namesrv=live.rocketmq.namesrv) as producer:
        with producer.transaction(Message(topic, b"1")):
            live.send(Message(topic, b"2", delay_ms=3_600_000), Message(topic, b"3"))
            assert numbers(live.table(topic)) == [3]
        wait_until(lambda: numbers(live.table(topic)) == [1, 3], "the committed message is there")

    live.send(Message(topic, b"4", delay_ms=1000))
    wait_until(lambda: numbers(live.table(topic)) == [1, 3, 4], "the delayed message is there")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"startingOffset": "earliest"}, "did you mean startingOffsets"),
        ({"topic": "no-such-topic"}, "topic no-such-topic has no queue that can be read"),
        ({"callTimeoutMs": 500, "namesrvAddr": "127.0.0.1:1"}, "127.0.0.1:1"),
    ],
)
def test_a_mistake_is_told_before_anything_runs(
    live: Live, options: dict[str, object], sentence: str
) -> None:
    topic = live.topic()
    with pytest.raises((AnalysisException, PySparkException)) as caught:
        live.table(topic, **options).collect()
    assert sentence in str(caught.value)
