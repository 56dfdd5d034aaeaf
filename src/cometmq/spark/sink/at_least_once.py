"""Sending at least once: rows as requests to whichever queue they are meant for.

Rules kept here:
- Rows that name neither queue nor sharding key go to the queues of all brokers in turn. A sharding key has
  the queue that Java's producers give it. A queue id means the queue of the first broker, by name, that has
  one of this id.
- Every request is awaited. One that a broker may or may not have stored is sent again: what is written is
  written at least once.
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
from cometmq.spark.sink.requests import Piece, RecordRows
from cometmq.spark.sink.worker_producer import SinkLink, Window, patiently
from cometmq.wire.codes import RequestCode
from cometmq.wire.exactly_once import OwnRequestCode
from cometmq.wire.record.log_records import describe_records
from cometmq.wire.record.properties import format_properties

log = logging.getLogger("cometmq.spark")

BATCH_PROPERTIES: Final = format_properties({WAIT: "true"})
_SEND: Final = RequestCode.SEND_MESSAGE_V2.value
_SEND_BATCH: Final = RequestCode.SEND_BATCH_MESSAGE.value
_SEND_RECORDS: Final = OwnRequestCode.SEND_RECORDS.value


class MessageIds:
    """Unique ids of this process, many at a time."""

    def __init__(self) -> None:
        process = (os.getpid() & 0xFFFF).to_bytes(2, "big")
        self._prefix = ip_address(local_ip()).packed + process + secrets.token_bytes(4)
        self._counter = secrets.randbits(16)

    def take(self, count: int) -> Bytes:
        """As in Java: milliseconds since the month began, and a counter of 16 bits."""
        now_ms = time.time_ns() // 1_000_000
        since_ms = now_ms - month_around(now_ms)[0]
        counters = (self._counter + np.arange(count)) & 0xFFFF
        self._counter = (self._counter + count) & 0xFFFF
        return unique_ids(self._prefix, (since_ms << 16) | counters)


class _Topic:
    """A topic that rows are sent to."""

    def __init__(
        self, queues: Sequence[MessageQueue], ids: MessageIds | None, *, takes_records: bool
    ) -> None:
        self.queues = queues
        self.shards = len(queues)
        self.takes_records = takes_records
        first = secrets.randbelow(len(queues))  # so that many tasks do not all begin with the same queue
        self._turns = cycle([*queues[first:], *queues[:first]])
        self._by_id: dict[int, MessageQueue] = {}
        for queue in sorted(queues, reverse=True):
            self._by_id[queue.queue_id] = queue
        self._ids = ids

    def ids(self, count: int) -> Bytes | None:
        return None if self._ids is None else self._ids.take(count)

    def next_queue(self) -> MessageQueue:
        """The queue whose turn it is."""
        return next(self._turns)

    def with_id(self, queue_id: int) -> MessageQueue:
        queue = self._by_id.get(queue_id)
        if queue is None:
            raise no_such_queue(queue_id, self.queues)
        return queue


class PlainSends:
    """The sends of one task."""

    def __init__(self, link: SinkLink, options: SinkOptions, *, by_queue_id: bool) -> None:
        self._link = link
        self._patience_ms = options.retry_timeout_ms
        self._by_queue_id = by_queue_id
        self._topics: dict[str, _Topic] = {}
        self._ids = MessageIds() if options.unique_keys else None
        self._window = Window()
        self._warned = False

    def numbering(self, topic: str) -> _Topic:
        known = self._topics.get(topic)
        if known is None:
            find = partial(self._link.producer.write_queues, topic)
            queues = self._link.run(patiently(find, self._patience_ms))
            asks = partial(self._link.producer.takes_records, topic)
            takes_records = self._link.run(patiently(asks, self._patience_ms))
            known = self._topics[topic] = _Topic(queues, self._ids, takes_records=takes_records)
        return known

    def send(self, piece: Piece) -> None:
        """Begin to send; raises what an earlier request failed with."""
        queue = None
        if piece.group is not None:
            topic = self.numbering(piece.topic)
            queue = topic.with_id(piece.group) if self._by_queue_id else topic.queues[piece.group]
        if piece.records is not None:
            self._window.add(self._link.submit(self._send_records(piece, piece.records, queue)))
            return
        now_ms = time.time_ns() // 1_000_000
        if piece.properties is None:
            outgoing = SendRequest(piece.body, BATCH_PROPERTIES, "", now_ms, code=_SEND_BATCH)
        else:
            outgoing = SendRequest(piece.body, piece.properties, "", now_ms, code=_SEND)
        self._window.add(self._link.submit(self._send(piece.topic, outgoing, queue)))

    async def _send(self, topic: str, outgoing: SendRequest, queue: MessageQueue | None) -> None:
        self._look_at(
            await patiently(
                partial(self._link.producer.send_encoded, topic, outgoing, queue), self._patience_ms
            )
        )

    async def _send_records(self, piece: Piece, rows: RecordRows, meant: MessageQueue | None) -> None:
        """Send to a queue, or to whose turn it is; another try goes to the next."""
        topic, records = self.numbering(piece.topic), rows.all
        described = describe_records(piece.rows, keyed=records.hashes is not None)

        async def send() -> SendReceipt:
            queue = meant or topic.next_queue()
            body = records.body(rows.first, rows.end)
            outgoing = SendRequest(body, described, "", 0, code=_SEND_RECORDS)
            return await self._link.producer.send_encoded(piece.topic, outgoing, queue)

        self._look_at(await patiently(send, self._patience_ms))

    def _look_at(self, receipt: SendReceipt) -> None:
        if receipt.status is not SendStatus.SEND_OK and not self._warned:
            self._warned = True
            log.warning("%s stores messages, but: %s", receipt.queue.broker_name, receipt.status)

    def finish(self) -> int:
        """Wait until everything is stored; the answer is how many rows are known to have been there."""
        self._window.drain()
        return 0

    def abandon(self) -> None:
        """The task failed."""
        self._window.abandon()


def no_such_queue(queue_id: int, queues: Sequence[MessageQueue]) -> MessageError:
    largest = max(queue.queue_id for queue in queues)
    return MessageError(
        f"a row has queueId {queue_id}, and topic {queues[0].topic} has queues up to {largest} to write to; "
        "change queueId, or give the topic more queues"
    )
