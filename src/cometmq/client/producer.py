"""The producer: sends messages, in asyncio.

Rules kept here:
- Any number of tasks of its event loop may use a producer.
- A batch is stored request by request, each whole or not at all; an error says what was stored before it.
- A request waits for its reply as long as its time-out allows, with every broker that may bring the reply
  knowing this client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from cometmq.client.later import Callback
from cometmq.client.names import reply_topic
from cometmq.client.outgoing import check_batch
from cometmq.client.producer_base import ProducerBase
from cometmq.client.publish import QueueSelector
from cometmq.client.request_reply import await_reply, reply_special, request_special
from cometmq.client.send_result import SendReceipt, receipts_of_batch
from cometmq.model.errors import CallTimeoutError, CometError, PartialBatchError
from cometmq.model.message import Message, StoredMessage
from cometmq.model.message_properties import CORRELATION_ID
from cometmq.model.queue import MessageQueue
from cometmq.remoting.calling import never_sent


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
        """Send messages of one topic in as few requests as their size allows; a receipt for each.

        A request is stored whole or not at all. If a later one fails, `PartialBatchError` has the receipts
        of what was stored before it.
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

    # Topics and queues.

    async def queues(self, topic: str, *, timeout_s: float | None = None) -> Sequence[MessageQueue]:
        """The queues that messages to a topic may go to."""
        self._running()
        deadline = self._loop.time() + (self._timeout_s if timeout_s is None else timeout_s)
        found = await self._topics.find(topic, deadline)
        return [self._topics.plain(queue) for queue in found.queues]


def _partial(receipts: list[SendReceipt], count: int, cause: CometError) -> PartialBatchError:
    error = PartialBatchError(
        f"{len(receipts)} of {count} messages are stored; the others: {cause.message}", code=cause.code
    )
    error.receipts = tuple(receipts)
    error.retriable = cause.retriable
    error.maybe_applied = cause.maybe_applied
    return error
