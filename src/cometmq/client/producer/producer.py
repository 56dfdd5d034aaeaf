"""The producer: sends messages, in asyncio.

Rules kept here:
- Any number of tasks of its event loop may use a producer.
- A batch is stored request by request, each whole or not at all; an error says what was stored before it.
- A request waits for its reply as long as its time-out allows, with every broker that may bring the reply
  knowing this client.
- Only the broker that has a delayed message can take it back, and its name is in the message's handle.
"""

from __future__ import annotations

import asyncio
import binascii
from base64 import urlsafe_b64decode
from collections.abc import Mapping, Sequence
from typing import Final

from cometmq.client.names import check_topic, reply_topic, unwrap, wrap_topic
from cometmq.client.producer.base import ProducerBase
from cometmq.client.producer.in_flight import Callback
from cometmq.client.producer.queue_selection import QueueSelector
from cometmq.client.producer.request_reply import await_reply, reply_special, request_special
from cometmq.client.producer.send_request import check_batch
from cometmq.client.producer.sender import DEFAULT_REGION, SendReceipt, receipts_of_batch
from cometmq.client.trace.records import Recalled
from cometmq.model.errors import (
    CallTimeoutError,
    ClientError,
    CometError,
    PartialBatchError,
    RouteNotFoundError,
)
from cometmq.model.message import Message, StoredMessage
from cometmq.model.message_properties import CORRELATION_ID
from cometmq.model.queue import MessageQueue
from cometmq.remoting.calling import never_sent
from cometmq.wire.codes import RequestCode
from cometmq.wire.headers.send import RecallMessageRequest, RecallMessageResponse

_HANDLE_VERSION: Final = "v1"


class Producer(ProducerBase):
    """Sends messages to brokers."""

    # Sending.

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        timeout_s: float | None = None,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        selector_arg: object = None,
    ) -> list[SendReceipt]:
        """Send messages of one topic in as few requests as their size allows; a receipt for each, in order.

        A request has at most `max_message_size` bytes and 4,000 messages, and is stored whole or not at all.
        The requests are sent one after the other, to the same queue only if one is chosen. If a later one
        fails, `PartialBatchError` has the receipts of what was stored before it.
        """
        self._running()
        deadline = self._loop.time() + (self._timeout_s if timeout_s is None else timeout_s)
        check_batch(messages)
        size = sum(len(message.body) for message in messages)
        await self._in_flight.enter(size, deadline)
        try:
            return await self._send_batch(messages, deadline, queue, selector, selector_arg)
        finally:
            self._in_flight.leave(size)

    async def _send_batch(
        self,
        messages: Sequence[Message],
        deadline: float,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        selector_arg: object,
    ) -> list[SendReceipt]:
        requests = list(self._outgoing.of_batch(messages))
        topic = await self._topics.find(messages[0].topic, deadline)
        chosen = self._topics.choose(topic, messages[0], queue, selector, selector_arg)
        receipts: list[SendReceipt] = []
        for outgoing, msg_ids in requests:
            begun = self._loop.time()
            try:
                whole = await self._sender.send(topic, outgoing, deadline, chosen)
            except CometError as error:
                if receipts:
                    raise _partial(receipts, len(messages), error) from error
                raise
            stored = receipts_of_batch(self._unwrapped(whole), msg_ids)
            if self._trace is not None:
                sent = messages[len(receipts) : len(receipts) + len(stored)]
                address = self._sender.address_of(whole.queue)
                self._trace.sent_batch(sent, stored, address, self._loop.time() - begun)
            receipts += stored
        return receipts

    async def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        selector_arg: object = None,
    ) -> None:
        """Send a message and do not ask whether it arrived; returns when it is on its way."""
        self._running()
        deadline = self._loop.time() + self._timeout_s
        size = len(message.body)
        await self._in_flight.enter(size, deadline)
        try:
            outgoing = await self._request_of(message)
            topic = await self._topics.find(message.topic, deadline)
            chosen = self._topics.choose(topic, message, queue, selector, selector_arg)
            queue = chosen or topic.next_queue()
            await self._sender.oneway(topic.topic, queue, outgoing, deadline - self._loop.time())
        finally:
            self._in_flight.leave(size)

    def send_later(
        self,
        message: Message,
        callback: Callback | None = None,
        *,
        timeout_s: float | None = None,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        selector_arg: object = None,
    ) -> asyncio.Task[SendReceipt]:
        """Send a message beside; the callback, if any, gets the receipt or the error.

        With `max_in_flight_messages` of these under way a further one is refused (`TooManyRequestsError`).
        """
        self._running()
        self._later.check_room()
        return self._later.begin(
            self.send(
                message, timeout_s=timeout_s, queue=queue, selector=selector, selector_arg=selector_arg
            ),
            callback,
        )

    # Requests and replies.

    async def request(
        self,
        message: Message,
        *,
        timeout_s: float | None = None,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        selector_arg: object = None,
    ) -> StoredMessage:
        """Send a message and wait for the reply of whoever consumes it; the time-out covers both.

        `CallTimeoutError` says that the message was sent, but no reply came in time. With
        `max_pending_requests` waiting, a further one is refused (`TooManyRequestsError`).
        """
        instance = self._running()
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        deadline = self._loop.time() + timeout_s
        special = request_special(instance.client_id, timeout_s)
        limit = self.settings.max_pending_requests
        with instance.replies.expect(special.properties[CORRELATION_ID], self, limit) as reply:
            await self._await_replies_to(message.topic, deadline)
            left_s = deadline - self._loop.time()
            await self._send(message, left_s, queue, selector, selector_arg, special)
            return await await_reply(reply, deadline, message.topic, timeout_s)

    async def _await_replies_to(self, topic: str, deadline: float) -> None:
        """A reply may come over any broker of the topic's clusters, and each has to know this client."""
        found = await self._topics.find(topic, deadline)
        known = self._running().routes.known(found.topic)
        clusters = {broker.cluster for broker in known.route.broker_datas} if known is not None else set()
        wanted = set(map(reply_topic, clusters)) - self._waits_at
        if not wanted:
            return
        try:
            async with asyncio.timeout_at(deadline):
                await self._become_known(wanted)
        except TimeoutError:
            raise never_sent(
                CallTimeoutError("the brokers that may bring the reply did not answer in time")
            ) from None

    async def reply(
        self,
        message: StoredMessage,
        body: bytes,
        *,
        tags: str | None = None,
        keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> SendReceipt:
        """Answer a message that was sent with `request`; returns when the broker has passed the reply on.

        A message that was not is refused with a `ClientError`; a `SendError` says that nobody waits any more.
        """
        self._running()
        topic, special = reply_special(message)
        answer = Message(topic, body, tags=tags, keys=keys, properties=properties or {})
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        # The request came to this broker, so the client that waits is known there.
        return await self._send(answer, timeout_s, special=special, first_at=message.broker_name)

    # Taking back.

    async def recall(self, handle: str | None, topic: str, *, timeout_s: float | None = None) -> str:
        """Take back a message that is not due yet, by its `SendReceipt.recall_handle`; the answer is its id.

        A `ResponseError` says that the broker does not take it back: it is due, or the broker does not offer
        that (`recallMessageEnable`).
        """
        instance = self._running()
        check_topic(topic)
        broker_name, msg_id = _read_handle(handle)
        deadline = self._loop.time() + (self._timeout_s if timeout_s is None else timeout_s)
        await self._topics.find(topic, deadline)
        address = instance.routes.master_of(broker_name)
        if address is None:
            raise RouteNotFoundError(f"the master of {broker_name}, which has the message, is not known")
        header = RecallMessageRequest(
            producer_group=self._group,
            topic=wrap_topic(self._namespace, topic),
            recall_handle=handle or "",
            target_broker_name=broker_name,
        )
        success = False
        try:
            answer = await instance.remoting.call_ok(
                address, RequestCode.RECALL_MESSAGE, header, timeout_s=deadline - self._loop.time()
            )
            success = True
        finally:
            self._trace_recall(topic, msg_id, instance.clock.now_ms(), success=success)
        return answer.header(RecallMessageResponse).msg_id

    def _trace_recall(self, topic: str, msg_id: str, now_ms: int, *, success: bool) -> None:
        if self._trace is not None:
            self._trace.dispatcher.append(
                Recalled(
                    timestamp_ms=now_ms,
                    region_id=DEFAULT_REGION,
                    group=unwrap(self._namespace, self._group),
                    topic=topic,
                    msg_id=msg_id,
                    success=success,
                )
            )

    # Topics and queues.

    async def queues(self, topic: str, *, timeout_s: float | None = None) -> Sequence[MessageQueue]:
        """The queues that messages to a topic may go to."""
        self._running()
        deadline = self._loop.time() + (self._timeout_s if timeout_s is None else timeout_s)
        found = await self._topics.find(topic, deadline)
        return [self._topics.plain(queue) for queue in found.queues]


def _read_handle(handle: str | None) -> tuple[str, str]:
    """The broker that has a delayed message, and the id of the message."""
    if handle is None:
        raise ClientError("the message has no handle; only one that a broker delays can be taken back")
    try:
        version, _topic, broker_name, _due, msg_id = urlsafe_b64decode(handle).decode().split(" ")
    except (binascii.Error, ValueError):
        version = ""
    if version != _HANDLE_VERSION:
        raise ClientError(f"{handle[:100]!r} is no handle; use `SendReceipt.recall_handle`")
    return broker_name, msg_id


def _partial(receipts: list[SendReceipt], count: int, cause: CometError) -> PartialBatchError:
    error = PartialBatchError(
        f"{len(receipts)} of {count} messages are stored; the others: {cause.message}", code=cause.code
    )
    error.receipts = tuple(receipts)
    error.retriable = cause.retriable
    error.maybe_applied = cause.maybe_applied
    return error
