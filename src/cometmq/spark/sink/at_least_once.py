"""At-least-once sending: each request goes to the queue that its rows name, or to the queues in turn.

Rules kept here:
- Rows without a queue id or sharding key go round-robin to the queues of all brokers. A sharding key selects
  the queue that Java's producers select. A queue id means the first broker, by name, that has this queue.
- Every request is awaited. A request with an unknown outcome is sent again, so its rows may be stored twice.
"""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from functools import partial
from ipaddress import ip_address
from itertools import cycle
from typing import TypeVar

import numpy as np

from cometmq.client.blocking.loop import background
from cometmq.client.instance.identity import local_ip, month_around
from cometmq.client.producer.preencoded import PreencodedProducer
from cometmq.client.producer.send_request import SendRequest
from cometmq.client.producer.sender import SendReceipt, SendStatus
from cometmq.model.errors import MessageError
from cometmq.model.queue import MessageQueue
from cometmq.spark.sink.encode import Bytes, unique_ids
from cometmq.spark.sink.options import SinkOptions
from cometmq.spark.sink.requests import SEND_RECORDS, SinkRequest
from cometmq.spark.sink.worker_producer import MAX_IN_FLIGHT, retry_send

log = logging.getLogger("cometmq.spark")

T = TypeVar("T")


class MessageIds:
    """Unique ids of this process, in Java's form: milliseconds of the month and a counter of 16 bits."""

    def __init__(self) -> None:
        process = (os.getpid() & 0xFFFF).to_bytes(2, "big")
        self._prefix = ip_address(local_ip()).packed + process + secrets.token_bytes(4)
        self._counter = secrets.randbits(16)

    def take(self, count: int) -> Bytes:
        now_ms = time.time_ns() // 1_000_000
        since_ms = now_ms - month_around(now_ms)[0]
        counters = (self._counter + np.arange(count)) & 0xFFFF
        self._counter = (self._counter + count) & 0xFFFF
        return unique_ids(self._prefix, (since_ms << 16) | counters)


class _Topic:
    def __init__(
        self, queues: Sequence[MessageQueue], ids: MessageIds | None, *, takes_records: bool
    ) -> None:
        self.queues = queues
        self.shards = len(queues)
        self.takes_records = takes_records
        first = secrets.randbelow(len(queues))  # tasks start at different queues
        self._round_robin = cycle([*queues[first:], *queues[:first]])
        self._by_id = {queue.queue_id: queue for queue in sorted(queues, reverse=True)}
        self._ids = ids

    def ids(self, count: int) -> Bytes | None:
        return None if self._ids is None else self._ids.take(count)

    def next_queue(self) -> MessageQueue:
        return next(self._round_robin)

    def with_id(self, queue_id: int) -> MessageQueue:
        queue = self._by_id.get(queue_id)
        if queue is None:
            raise no_such_queue(queue_id, self.queues)
        return queue


class AtLeastOnceSends:
    """The sends of one task."""

    def __init__(self, producer: PreencodedProducer, options: SinkOptions, *, by_queue_id: bool) -> None:
        self._producer = producer
        self._options = options
        self._by_queue_id = by_queue_id
        self._topics: dict[str, _Topic] = {}
        self._ids = MessageIds() if options.unique_keys else None
        self._in_flight: deque[Future[None]] = deque()
        self._warned = False

    def topic(self, name: str) -> _Topic:
        known = self._topics.get(name)
        if known is None:
            queues = self._retried(partial(self._producer.write_queues, name))
            takes_records = self._retried(partial(self._producer.takes_records, name))
            known = self._topics[name] = _Topic(queues, self._ids, takes_records=takes_records)
        return known

    def _retried(self, ask: Callable[[], Awaitable[T]]) -> T:
        return background().run(retry_send(ask, self._options))

    def send(self, request: SinkRequest) -> None:
        """Start to send; raises the error of an earlier request."""
        queue = None
        if request.group is not None:
            topic = self.topic(request.topic)
            queue = topic.with_id(request.group) if self._by_queue_id else topic.queues[request.group]
        self._in_flight.append(background().submit(self._send(request, queue)))
        self._wait(MAX_IN_FLIGHT - 1)

    def _wait(self, most: int) -> None:
        """Wait until at most so many requests are in flight; raises the error of a failed one."""
        while len(self._in_flight) > most:
            self._in_flight.popleft().result()

    async def _send(self, request: SinkRequest, chosen: MessageQueue | None) -> None:
        """Send to the chosen queue, or round-robin; then a retry goes to the next queue."""
        topic, now_ms = self.topic(request.topic), time.time_ns() // 1_000_000
        outgoing = SendRequest(request.body, request.properties, "", now_ms, code=request.code)

        def send() -> Awaitable[SendReceipt]:
            # The client chooses a queue for ordinary requests only.
            queue = topic.next_queue() if chosen is None and request.code == SEND_RECORDS else chosen
            return self._producer.send_encoded(request.topic, outgoing, queue)

        receipt = await retry_send(send, self._options)
        if receipt.status is not SendStatus.SEND_OK and not self._warned:
            self._warned = True
            log.warning("%s stores messages, but: %s", receipt.queue.broker_name, receipt.status)

    def finish(self) -> int:
        """Wait until everything is stored. Returns 0: which rows were there before is not known."""
        self._wait(0)
        return 0

    def abandon(self) -> None:
        """Cancel all requests, because another one failed."""
        for request in self._in_flight:
            request.cancel()
        self._in_flight.clear()


def no_such_queue(queue_id: int, queues: Sequence[MessageQueue]) -> MessageError:
    largest = max(queue.queue_id for queue in queues)
    return MessageError(
        f"a row has queueId {queue_id}, and topic {queues[0].topic} has queues up to {largest} to write to; "
        "change queueId, or give the topic more queues"
    )
