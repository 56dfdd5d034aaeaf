"""What the tests of the Spark room share: stores and brokers with messages in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row

from cometmq.client.blocking.producer import Producer
from cometmq.model.message import Message
from cometmq.testing.embedded import EmbeddedBroker


@contextmanager
def broker_with(
    messages: Iterable[Message], *, folder: Path | None = None, queues: int = 4, **settings: str
) -> Iterator[EmbeddedBroker]:
    """A broker in this process that has these messages, in topics with so many queues."""
    with EmbeddedBroker(folder, settings=settings) as rocketmq:
        send(rocketmq, messages, queues=queues)
        yield rocketmq


def send(rocketmq: EmbeddedBroker, messages: Iterable[Message], *, queues: int = 4) -> None:
    """Send messages, into topics that are made if need be."""
    with Producer("spark-tests", namesrv=rocketmq.namesrv) as producer:
        made: set[str] = set()
        for message in messages:
            if message.topic not in made:
                rocketmq.call(rocketmq.create_topic(message.topic, queues=queues))
                made.add(message.topic)
            producer.send(message)


def as_dicts(frame: DataFrame) -> list[dict[str, Any]]:
    """The rows of a query, with plain values."""
    return [_plain(row) for row in frame.collect()]


def _plain(row: Row) -> dict[str, Any]:
    values = row.asDict()
    if isinstance(values.get("body"), bytearray):
        values["body"] = bytes(values["body"])
    return values
