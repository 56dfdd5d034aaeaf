"""Spark writes rows as messages: batches and streams, tried again and restarted (D2)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

from cometmq.model.errors import CometError
from cometmq.spark.sink.sink import RocketmqStreamWriter, RocketmqWriter
from cometmq.testing.embedded import EmbeddedBroker
from tests.spark.sink_kit import bodies, records

FAILURES = (PySparkException, Py4JJavaError)
"""What a write that failed raises, depending on where it failed."""

_names = count()


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(settings={"autoCreateTopicEnable": "false"}) as running:
        yield running


@pytest.fixture
def topic(broker: EmbeddedBroker) -> str:
    name = f"Spark{next(_names)}"
    broker.call(broker.create_topic(name, queues=4))
    return name


def save(frame: DataFrame, broker: EmbeddedBroker, **options: str) -> None:
    writer = frame.write.format("rocketmq").mode("append").option("namesrvAddr", broker.namesrv)
    writer.options(**{"retryTimeoutMs": "0", **options}).save()


def numbers(broker: EmbeddedBroker, topic: str) -> list[int]:
    return sorted(int(body) for body in bodies(broker, topic))


def test_rows_become_messages(spark: SparkSession, broker: EmbeddedBroker, topic: str) -> None:
    """D2."""
    frame = spark.range(0, 3000, 1, 3).selectExpr(
        "CAST(id AS STRING) AS body",
        "CONCAT('tag', id % 3) AS tags",
        "ARRAY(CONCAT('k', id), 'all') AS keys",
        "MAP('größe', CAST(id AS STRING)) AS properties",
        "CONCAT('s', id % 5) AS shardingKey",
        "'127.0.0.1:1' AS bornHost",
    )
    save(frame, broker, topic=topic)
    assert numbers(broker, topic) == list(range(3000))
    for record in records(broker, topic)[::100]:
        properties, number = record.properties(), int(bytes(record.body))
        assert properties["TAGS"] == f"tag{number % 3}"
        assert properties["KEYS"] == f"k{number} all"
        assert properties["größe"] == str(number)
        assert properties["__SHARDINGKEY"] == f"s{number % 5}"


def test_what_the_source_reads_the_sink_writes(
    spark: SparkSession, broker: EmbeddedBroker, topic: str
) -> None:
    """D1, D2: all columns are taken, or passed over; properties that the system writes are written anew."""
    save(
        spark.range(100).selectExpr("CAST(CAST(id AS STRING) AS BINARY) AS body", "'t' AS tags"),
        broker,
        topic=topic,
    )
    target = f"{topic}Copy"
    broker.call(broker.create_topic(target, queues=4))
    source = spark.read.format("rocketmq").option("namesrvAddr", broker.namesrv).option("topic", topic)
    save(source.option("includeProperties", "true").load().drop("topic"), broker, topic=target)
    assert sorted(bodies(broker, target)) == sorted(bodies(broker, topic))
    assert {record.properties()["TAGS"] for record in records(broker, target)} == {"t"}
    ids = {record.properties()["UNIQ_KEY"] for name in (topic, target) for record in records(broker, name)}
    assert len(ids) == 200


BODY = StructField("body", StringType())
KEYS = StructField("keys", ArrayType(LongType()))
QUEUE_ID, SHARDING_KEY = StructField("queueId", LongType()), StructField("shardingKey", StringType())


@pytest.mark.parametrize(
    ("fields", "options", "reason"),
    [
        ([StructField("boddy", StringType())], {}, "did you mean body?"),
        ([StructField("tags", StringType())], {}, "no column body"),
        ([StructField("body", LongType())], {}, "column body is bigint; it has to be binary or a string"),
        ([BODY, KEYS], {}, "an array of strings"),
        ([BODY, BODY], {}, "is there twice"),
        ([BODY, QUEUE_ID, SHARDING_KEY], {}, "exclude each other"),
        ([BODY], {"topic": ""}, "no topic is named"),
        ([BODY], {"topic": "no topic!"}, "'no topic!'"),
        ([BODY], {"namesrvAddr": ""}, "namesrvAddr is missing"),
        ([BODY], {"exactlyOnze": "true"}, "did you mean exactlyOnce?"),
        ([BODY], {"exactlyOnceId": "x"}, "without exactlyOnce=true"),
        ([BODY], {"sendTimeoutMs": "soon"}, "sendTimeoutMs is 'soon'"),
    ],
)
def test_what_cannot_be_written_is_told_before_anything_runs(
    fields: list[StructField], options: dict[str, str], reason: str
) -> None:
    given = {"namesrvAddr": "127.0.0.1:9876", "topic": "T", **options}
    with pytest.raises(CometError) as caught:
        RocketmqWriter(given, StructType(fields), overwrite=False)
    assert reason in str(caught.value)


def test_an_id_is_for_batches_only() -> None:
    given = {"namesrvAddr": "n:1", "topic": "T", "exactlyOnce": "true", "exactlyOnceId": "x"}
    with pytest.raises(CometError, match="a streaming query has an id of its own"):
        RocketmqStreamWriter(given, StructType([BODY]), overwrite=False)


def test_a_topic_is_not_overwritten(spark: SparkSession, broker: EmbeddedBroker, topic: str) -> None:
    frame = spark.range(1).selectExpr("'a' AS body")
    writer = frame.write.format("rocketmq").mode("overwrite").option("namesrvAddr", broker.namesrv)
    with pytest.raises(FAILURES, match="use mode append"):
        writer.option("topic", topic).save()


def test_what_a_broker_refuses_fails_the_write_with_its_reason(
    spark: SparkSession, broker: EmbeddedBroker, topic: str
) -> None:
    """D2."""
    with pytest.raises(FAILURES, match="create the topic first"):
        save(spark.range(1).selectExpr("'a' AS body"), broker, topic="NoSuchTopic")
    frame = spark.range(1).selectExpr("REPEAT('a', 5000000) AS body")
    with pytest.raises(FAILURES, match="msg body length limit 4194304B"):
        save(frame, broker, topic=topic, maxMessageSize="8000000")


def test_a_batch_with_an_id_of_its_own_is_written_once(
    spark: SparkSession, broker: EmbeddedBroker, topic: str
) -> None:
    """D2: the same job run again; without an id, it is another one."""
    frame = spark.range(0, 1000, 1, 2).selectExpr("CAST(id AS STRING) AS body")
    for _ in range(2):
        save(frame, broker, topic=topic, exactlyOnce="true", exactlyOnceId="job-2026-01-31")
    assert numbers(broker, topic) == list(range(1000))
    save(frame, broker, topic=topic, exactlyOnce="true")
    assert len(numbers(broker, topic)) == 2000


# Streams


BEGINNING_S = 1_700_000_000


class Feed:
    """Files of numbers, of which a stream reads one a batch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "in"
        self.checkpoint = str(folder / "checkpoint")
        self.folder.mkdir()

    def add(self, *counts: int) -> None:
        """Files of so many numbers each."""
        first = 0
        for rows in counts:
            lines = "".join(f"{number}\n" for number in range(first, first + rows))
            path = self.folder / f"{first:08d}.txt"
            path.write_text(lines)
            os.utime(path, (BEGINNING_S + first, BEGINNING_S + first))  # which is the order of the batches
            first += rows

    def frame(self, spark: SparkSession, failing_at: int = -1) -> DataFrame:
        """The numbers as bodies; the task fails at the one that has none, when it has written others."""
        lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(self.folder))
        return lines.selectExpr(f"IF(value = '{failing_at}', '', value) AS body")

    def run(self, writer: DataStreamWriter) -> None:
        query = writer.option("checkpointLocation", self.checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()


@pytest.fixture
def feed(tmp_path: Path, spark: SparkSession) -> Iterator[Feed]:
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10")
    yield Feed(tmp_path)
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


def test_a_stream_that_fails_midway_goes_on_without_loss_or_repetition(
    spark: SparkSession, broker: EmbeddedBroker, topic: str, feed: Feed
) -> None:
    """D2: part of a batch is stored when its task fails; the next run of the query writes the rest."""
    feed.add(700, 700, 700)

    def run(failing_at: int = -1) -> None:
        options = {"namesrvAddr": broker.namesrv, "topic": topic, "exactlyOnce": "true"}
        feed.run(feed.frame(spark, failing_at).writeStream.format("rocketmq").options(**options))

    with pytest.raises(FAILURES, match="empty body"):
        run(failing_at=1200)
    assert 700 < len(numbers(broker, topic)) <= 1200
    run()
    assert numbers(broker, topic) == list(range(2100))
    batches = {record.properties()["__ONCE"].split(":")[1] for record in records(broker, topic)}
    assert batches == {"0", "1", "2"}


def test_without_the_option_what_is_tried_again_is_there_again(
    spark: SparkSession, broker: EmbeddedBroker, topic: str, feed: Feed
) -> None:
    """At least once."""
    feed.add(700)

    def run(failing_at: int = -1) -> None:
        options = {"namesrvAddr": broker.namesrv, "topic": topic}
        feed.run(feed.frame(spark, failing_at).writeStream.format("rocketmq").options(**options))

    with pytest.raises(FAILURES, match="empty body"):
        run(failing_at=600)
    run()
    found = numbers(broker, topic)
    assert set(found) == set(range(700))
    assert len(found) > 700


def test_two_writes_of_one_batch_are_told_apart(
    spark: SparkSession, broker: EmbeddedBroker, topic: str, feed: Feed
) -> None:
    """D2: `foreachBatch`, run again after a failure between its writes."""
    feed.add(300)
    failures = [RuntimeError("the driver fails here")]

    def write(frame: DataFrame, batch: int) -> None:
        for name in ("first", "second"):
            save(frame, broker, topic=topic, exactlyOnce="true", exactlyOnceId=name)
            if failures:
                raise failures.pop()

    with pytest.raises(FAILURES, match="the driver fails here"):
        feed.run(feed.frame(spark).writeStream.foreachBatch(write))
    feed.run(feed.frame(spark).writeStream.foreachBatch(write))
    assert numbers(broker, topic) == sorted([*range(300)] * 2)


def test_a_write_in_a_batch_of_a_stream_needs_a_name(
    spark: SparkSession, broker: EmbeddedBroker, topic: str, feed: Feed
) -> None:
    feed.add(10)

    def write(frame: DataFrame, batch: int) -> None:
        save(frame, broker, topic=topic, exactlyOnce="true")

    with pytest.raises(FAILURES, match="exactlyOnceId of its own"):
        feed.run(feed.frame(spark).writeStream.foreachBatch(write))
    assert bodies(broker, topic) == []
