"""What the consumer cases share: consumers that start quickly, listeners that remember, messages to read."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from cometmq.client.consumer.pull import PullConsumer
from cometmq.client.consumer.push import PushConsumer
from cometmq.client.producer.producer import Producer
from cometmq.client.producer.sender import SendReceipt
from cometmq.model.message import Message, StoredMessage
from cometmq.model.queue import MessageQueue
from cometmq.wire.bodies.heartbeat import ConsumeFromWhere
from tests.behaviour.server import Server
from tests.waiting import eventually

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
LAST = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
TIMESTAMP = ConsumeFromWhere.CONSUME_FROM_TIMESTAMP


def push(server: Server, group: str, **options: Any) -> PushConsumer:
    """A push consumer that begins with the first message and shares queues quickly."""
    quick = {
        "consume_from_where": FIRST,
        "min_rebalance_interval_ms": 50,
        "rebalance_interval_ms": 1_000,
        "persist_consumer_offset_interval_ms": 100,
    }
    return PushConsumer(group, namesrv=server.namesrv, **(quick | options))  # type: ignore[arg-type]


def pull(server: Server, group: str, **options: Any) -> PullConsumer:
    """A pull consumer of the same kind."""
    quick = {
        "consume_from_where": FIRST,
        "min_rebalance_interval_ms": 50,
        "rebalance_interval_ms": 1_000,
    }
    return PullConsumer(group, namesrv=server.namesrv, **(quick | options))  # type: ignore[arg-type]


class Seen:
    """A listener that remembers what it got, from any thread."""

    def __init__(self) -> None:
        self.messages: list[StoredMessage] = []
        self._lock = threading.Lock()

    def __call__(self, message: StoredMessage) -> None:
        with self._lock:
            self.messages.append(message)

    @property
    def bodies(self) -> list[str]:
        with self._lock:
            return [message.body.decode() for message in self.messages]

    async def reaches(self, count: int) -> list[str]:
        """Wait until this many messages have come; returns their bodies."""
        return await eventually(
            lambda: self.bodies, f"{count} messages are consumed", lambda bodies: len(bodies) >= count
        )


async def send(server: Server, topic: str, bodies: Sequence[str], **fields: Any) -> list[SendReceipt]:
    """Send messages one after the other."""
    async with Producer(server.new_name("producers"), namesrv=server.namesrv) as producer:
        return [await producer.send(Message(topic, body.encode(), **fields)) for body in bodies]


async def send_to(server: Server, queue: MessageQueue, bodies: Sequence[str]) -> list[SendReceipt]:
    """Send messages to one queue."""
    async with Producer(server.new_name("producers"), namesrv=server.namesrv) as producer:
        return [await producer.send(Message(queue.topic, body.encode()), queue=queue) for body in bodies]


async def queues_of(server: Server, topic: str) -> list[MessageQueue]:
    async with Producer(server.new_name("producers"), namesrv=server.namesrv) as producer:
        return sorted(await producer.queues(topic))


def numbered(count: int, prefix: str = "m") -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]
