"""The two sides of the Spark benchmark: CometMQ's sources and sink, and Spark's own for Kafka.

Rules kept here:
- Both sides have the same rows, in as many queues as partitions, and get only the options that are required:
  servers and topic.
- Rows are counted when they are read; written rows are read back and counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from bench.broker.contest import Contestant
from bench.broker.load import QUEUES, create_topic
from bench.errors import BenchmarkError
from bench.spark.kafka import KafkaServer

READ, SUNK, BARE = "bench-read", "bench-sunk", "bench-bare"
BODY_BYTES = 128


def rows_of(spark: SparkSession, count: int, body: str) -> DataFrame:
    """Rows with a body of 128 bytes each, made by Spark itself."""
    return spark.range(count).selectExpr(
        f"cast(rpad(cast(id AS string), {BODY_BYTES}, 'abc') AS binary) {body}"
    )


class Side(Protocol):
    """What is asked of both."""

    name: str
    body: str
    """The column that has what was sent."""

    def read(self, topic: str = READ) -> DataFrame:
        """All rows of a topic."""

    def stream(self, batch_rows: int) -> DataFrame:
        """The same as a stream of small batches."""

    def write(self, rows: DataFrame, topic: str) -> None:
        """Write rows to a topic, all of them."""


class Comet:
    """Our side."""

    name, body = "CometMQ", "body"

    def __init__(self, spark: SparkSession, cluster: Contestant) -> None:
        self._spark = spark
        self._options = {"namesrvAddr": cluster.namesrv_address}
        self.namesrv = cluster.namesrv_address
        self.store = Path(cluster.broker.home, "store")
        for topic in (READ, SUNK, BARE):
            create_topic(cluster.address, cluster.namesrv, topic)

    def read(self, topic: str = READ) -> DataFrame:
        return self._spark.read.format("rocketmq").options(**self._options, topic=topic).load()

    def read_bodies(self) -> DataFrame:
        reader = self._spark.read.format("rocketmq").options(**self._options, topic=READ)
        return reader.schema("body binary").load()

    def read_log(self) -> DataFrame:
        """The rows as they lie in the store, past the broker."""
        return self._spark.read.format("rocketmq-log").options(path=str(self.store), topic=READ).load()

    def read_log_bodies(self) -> DataFrame:
        reader = self._spark.read.format("rocketmq-log").options(path=str(self.store), topic=READ)
        return reader.schema("body binary").load()

    def stream(self, batch_rows: int) -> DataFrame:
        options = {**self._options, "topic": READ, "startingOffsets": "earliest"}
        options["maxOffsetsPerTrigger"] = str(batch_rows)
        return self._spark.readStream.format("rocketmq").options(**options).load()

    def write(self, rows: DataFrame, topic: str) -> None:
        """To one of the topics without the unique keys that RocketMQ's producers give their messages."""
        keys = {"uniqueKeys": "false"} if topic == BARE else {}
        rows.write.format("rocketmq").mode("append").options(**self._options, **keys, topic=topic).save()


class Kafka:
    """The other side."""

    name, body = "Kafka", "value"

    def __init__(self, spark: SparkSession, server: KafkaServer) -> None:
        self._spark = spark
        self._servers = {"kafka.bootstrap.servers": server.address}
        for topic in (READ, SUNK):
            server.create_topic(topic, QUEUES)

    def read(self, topic: str = READ) -> DataFrame:
        return self._spark.read.format("kafka").options(**self._reading(topic)).load()

    def stream(self, batch_rows: int) -> DataFrame:
        options = {**self._reading(READ), "maxOffsetsPerTrigger": str(batch_rows)}
        return self._spark.readStream.format("kafka").options(**options).load()

    def write(self, rows: DataFrame, topic: str) -> None:
        rows.write.format("kafka").mode("append").options(**self._servers, topic=topic).save()

    def _reading(self, topic: str) -> Mapping[str, str]:
        return {**self._servers, "subscribe": topic, "startingOffsets": "earliest"}


def count(frame: DataFrame, body: str, expected: int) -> None:
    """Count the rows and their bytes, and hold both against what there is."""
    found = frame.selectExpr("count(*) AS rows", f"sum(length({body})) AS bytes").collect()[0]
    if (found["rows"], found["bytes"]) != (expected, expected * BODY_BYTES):
        raise BenchmarkError(
            f"{found['rows']} rows of {found['bytes']} bytes were read, {expected} were sent"
        )


def look_at_all(frame: DataFrame) -> None:
    """Read all columns."""
    frame.write.format("noop").mode("overwrite").save()
