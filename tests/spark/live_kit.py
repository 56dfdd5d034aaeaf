"""Spark over a broker in the process of the test: topics, messages, tables and streams of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from cometmq import Message, Producer
from cometmq.client.producer.sender import SendReceipt
from cometmq.testing.embedded import EmbeddedBroker
from tests.waiting import wait_until

PATIENCE_S: Final = 100
_BATCH: Final = 200


class Live:
    """A running broker, somebody who sends to it, and Spark."""

    def __init__(self, spark: SparkSession, rocketmq: EmbeddedBroker, producer: Producer) -> None:
        self.spark = spark
        self.rocketmq = rocketmq
        self.producer = producer
        self._numbers = count()

    def topic(self, queues: int = 4) -> str:
        """A new topic."""
        name = f"topic-{next(self._numbers)}"
        self.rocketmq.call(self.rocketmq.create_topic(name, queues=queues))
        return name

    def send(self, *messages: Message) -> list[SendReceipt]:
        return [self.producer.send(message) for message in messages]

    def send_numbers(self, topic: str, numbers: Collection[int], **settings: str) -> None:
        """Messages whose bodies are numbers, many at a time."""
        each = [Message(topic, b"%d" % number, **settings) for number in numbers]  # type: ignore[arg-type]
        for start in range(0, len(each), _BATCH):
            self.producer.send_batch(each[start : start + _BATCH])

    def _options(self, topic: str, options: Mapping[str, object]) -> dict[str, str]:
        given = {"namesrvAddr": self.rocketmq.namesrv, **({"topic": topic} if topic else {}), **options}
        return {name: str(value) for name, value in given.items()}

    def table(self, topic: str = "", schema: str | None = None, /, **options: object) -> DataFrame:
        reader = self.spark.read.format("rocketmq").options(**self._options(topic, options))
        return (reader.schema(schema) if schema else reader).load()

    def stream(self, topic: str = "", /, **options: object) -> DataFrame:
        given = {"startingOffsets": "earliest", **options}
        if "startingTimestamp" in given:
            del given["startingOffsets"]
        return self.spark.readStream.format("rocketmq").options(**self._options(topic, given)).load()

    def run_to_end(self, stream: DataFrame, folder: Path) -> StreamingQuery:
        """Everything that there is now, to Parquet, going on where the last run stopped."""
        query = start(stream, folder, to_end=True)
        assert query.awaitTermination(PATIENCE_S)
        return query

    def written(self, folder: Path) -> list[int]:
        """The numbers in what `run_to_end` and `start` have written, sorted."""
        frame = self.spark.read.parquet(str(folder / "out"))
        return numbers(frame)


def start(
    stream: DataFrame, folder: Path, *, to_end: bool = False, every: str = "0 seconds"
) -> StreamingQuery:
    """A query that has begun; on a busy machine Spark gives up on its own Python before that, at times."""
    writer = stream.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    writer = writer.trigger(availableNow=True) if to_end else writer.trigger(processingTime=every)
    while True:
        query = writer.start(str(folder / "out"))
        wait_until(lambda: not query.isActive or has_begun(query), "the query has begun or failed")  # noqa: B023
        failure = query.exception()
        if failure is None or "Python worker failed to connect back" not in str(failure):
            return query


def has_begun(query: StreamingQuery) -> bool:
    """Whether the query has its source."""
    return not str(query.status["message"]).startswith(("Initializing", "Starting"))


def numbers(frame: DataFrame) -> list[int]:
    """The numbers in the bodies, sorted."""
    return sorted(int(row.body) for row in frame.select("body").collect())


@contextmanager
def running(query: StreamingQuery) -> Iterator[StreamingQuery]:
    """A query that is stopped at the end."""
    try:
        yield query
    finally:
        query.stop()
