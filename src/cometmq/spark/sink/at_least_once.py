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
from collections.abc import Sequence
from functools import partial
from ipaddress import ip_address
from itertools import cycle
from typing import Final

import numpy as np

from cometmq.client.instance.identity import local_ip, month_around
from cometmq.client.producer.send_request import SendRequest
from cometmq.client.producer.sender import SendReceipt, SendStatus
from cometmq.model.errors import MessageError
from cometmq.model.message_properties import WAIT
from cometmq.model.queue import MessageQueue
from cometmq.spark.sink.encode import Bytes, unique_ids
from cometmq.spark.sink.options import SinkOptions
from cometmq.spark.sink.requests import RecordRows, SinkRequest
from cometmq.spark.sink.worker_producer import Window, WorkerProducer, retry_send
from cometmq.wire.codes import RequestCode
from cometmq.wire.exactly_once import OwnRequestCode
from cometmq.wire.record.preencoded import describe_records
from cometmq.wire.record.properties import format_properties

log = logging.getLogger("cometmq.spark")

BATCH_PROPERTIES: Final = format_properties({WAIT: "true"})
_SEND: Final = RequestCode.SEND_MESSAGE_V2.value
_SEND_BATCH: Final = RequestCode.SEND_BATCH_MESSAGE.value
_SEND_RECORDS: Final = OwnRequestCode.SEND_RECORDS.value


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

    def __init__(self, worker: WorkerProducer, options: SinkOptions, *, by_queue_id: bool) -> None:
        self._worker = worker
        self._options = options
        self._by_queue_id = by_queue_id
        self._topics: dict[str, _Topic] = {}
        self._ids = MessageIds() if options.unique_keys else None
        self._window = Window()
        self._warned = False

    def topic(self, name: str) -> _Topic:
        known = self._topics.get(name)
        if known is None:
            worker, options = self._worker, self._options
            queues = worker.run(retry_send(partial(worker.producer.write_queues, name), options))
            asks = partial(worker.producer.takes_records, name)
            takes_records = worker.run(retry_send(asks, options))
            known = self._topics[name] = _Topic(queues, self._ids, takes_records=takes_records)
        return known

    def send(self, request: SinkRequest) -> None:
        """Start to send; raises the error of an earlier request."""
        queue = None
        if request.group is not None:
            topic = self.topic(request.topic)
            queue = topic.with_id(request.group) if self._by_queue_id else topic.queues[request.group]
        if request.records is not None:
            self._window.add(self._worker.submit(self._send_records(request, request.records, queue)))
            return
        now_ms = time.time_ns() // 1_000_000
        if request.properties is None:
            outgoing = SendRequest(request.body, BATCH_PROPERTIES, "", now_ms, code=_SEND_BATCH)
        else:
            outgoing = SendRequest(request.body, request.properties, "", now_ms, code=_SEND)
        self._window.add(self._worker.submit(self._send(request.topic, outgoing, queue)))

    async def _send(self, topic: str, outgoing: SendRequest, queue: MessageQueue | None) -> None:
        send = partial(self._worker.producer.send_encoded, topic, outgoing, queue)
        self._check(await retry_send(send, self._options))

    async def _send_records(
        self, request: SinkRequest, rows: RecordRows, chosen: MessageQueue | None
    ) -> None:
        """Send to the chosen queue, or round-robin; then a retry goes to the next queue."""
        topic, records = self.topic(request.topic), rows.all
        described = describe_records(request.rows, keyed=records.hashes is not None)

        async def send() -> SendReceipt:
            queue = chosen or topic.next_queue()
            body = records.body(rows.first, rows.end)
            outgoing = SendRequest(body, described, "", 0, code=_SEND_RECORDS)
            return await self._worker.producer.send_encoded(request.topic, outgoing, queue)

        self._check(await retry_send(send, self._options))

    def _check(self, receipt: SendReceipt) -> None:
        if receipt.status is not SendStatus.SEND_OK and not self._warned:
            self._warned = True
            log.warning("%s stores messages, but: %s", receipt.queue.broker_name, receipt.status)

    def finish(self) -> int:
        """Wait until everything is stored. Returns 0: which rows were there before is not known."""
        self._window.drain()
        return 0

    def abandon(self) -> None:
        self._window.abandon()


def no_such_queue(queue_id: int, queues: Sequence[MessageQueue]) -> MessageError:
    largest = max(queue.queue_id for queue in queues)
    return MessageError(
        f"a row has queueId {queue_id}, and topic {queues[0].topic} has queues up to {largest} to write to; "
        "change queueId, or give the topic more queues"
    )
