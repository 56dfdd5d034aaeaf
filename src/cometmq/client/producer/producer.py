"""The producer: sends messages, in asyncio.

Rules kept here:
- Any number of tasks of its event loop may use one producer.
- The timeout of a send covers everything: finding the route, waiting for room, connecting, and all attempts.
- Messages in flight are limited in number and bytes; further sends wait in line within their timeout.
- A stop takes no new sends and waits for those in flight.
- A batch is stored request by request, each whole or not at all; an error has the receipts before it.
- A request waits for its reply within its timeout. Every broker that may bring the reply, or check back a
  transaction, knows this producer by its heartbeat.
- Only the broker that has a delayed message can recall it; the message's handle names that broker.
"""

from __future__ import annotations

import asyncio
import binascii
from base64 import urlsafe_b64decode
from collections.abc import Collection, Mapping, Sequence
from typing import Final, Generic, TypedDict, Unpack

import msgspec

from cometmq.client.instance.group_client import GroupClient
from cometmq.client.instance.instance import ClientInstance, join_instance
from cometmq.client.interceptors import checked_interceptors
from cometmq.client.names import check_topic, unwrap, wrap_topic
from cometmq.client.options import documented
from cometmq.client.producer.broker_latency import BrokerFaults, FaultDetector
from cometmq.client.producer.in_flight import BackgroundSends, InFlight, SendCallback, flush_timeout
from cometmq.client.producer.interceptor import (
    InterceptedBatch,
    InterceptedSend,
    SendInterceptor,
)
from cometmq.client.producer.queue_selection import PublishTopics, QueueSelector, SendOptions
from cometmq.client.producer.request_reply import await_reply, reply_fields, request_fields
from cometmq.client.producer.send_request import (
    SendRequest,
    SendRequestBuilder,
    SystemFields,
    check_batch,
    not_a_message,
)
from cometmq.client.producer.sender import Sender, SendReceipt, receipts_of_batch
from cometmq.client.producer.settings import ProducerOptions, ProducerSettings
from cometmq.client.producer.statistics import ProducerStatistics
from cometmq.client.serializer import Serializer, encoded
from cometmq.client.settings import ServiceState, settings_of
from cometmq.client.trace.dispatcher import TraceDispatcher, trace_group, trace_settings
from cometmq.client.trace.hooks import ProducerTrace
from cometmq.model.errors import (
    CallTimeoutError,
    ClientError,
    CometError,
    PartialBatchError,
)
from cometmq.model.message import Message, StoredMessage, V
from cometmq.model.message_properties import CORRELATION_ID
from cometmq.model.names import reply_topic
from cometmq.model.queue import MessageQueue
from cometmq.remoting.calls import never_sent
from cometmq.wire.bodies.heartbeat import ProducerData
from cometmq.wire.codes import RequestCode
from cometmq.wire.headers.send import RecallMessageRequest, RecallMessageResponse

LARGE_BODY: Final = 64 * 1024
"""Compressing 64 KiB takes about a millisecond; a larger body would block the event loop."""
_HANDLE_VERSION: Final = "v1"


class MessageFields(TypedDict, total=False):
    """The fields of a `Message` beside topic and body."""

    tags: str | None
    keys: Sequence[str]
    properties: Mapping[str, str]
    flag: int
    delay_level: int
    delay_ms: int | None
    deliver_at_ms: int | None
    sharding_key: str | None
    wait_store_ok: bool


@documented(ProducerSettings, ("serializer", "interceptors"))
class Producer(GroupClient, Generic[V]):
    """Sends messages to brokers."""

    kind = "producer"

    def __init__(
        self,
        group: str,
        settings: ProducerSettings | None = None,
        *,
        serializer: Serializer[V] | None = None,
        interceptors: Sequence[SendInterceptor] = (),
        **options: Unpack[ProducerOptions],
    ) -> None:
        self.settings = settings_of(ProducerSettings, settings, options, type(self))
        super().__init__(group, self.settings)
        self._serializer = serializer
        self._interceptors = checked_interceptors(interceptors, SendInterceptor)
        self._timeout_s = self.settings.send_timeout_ms / 1000
        self._in_flight = InFlight(self.settings.max_in_flight_messages, self.settings.max_in_flight_bytes)
        self._background = BackgroundSends(self.settings.max_in_flight_messages)
        self._registered_topics: set[str] = set()
        """Topics whose brokers have to know this producer even if it never sends to them."""
        self._trace: ProducerTrace | None = None
        self._topics: PublishTopics
        self._sender: Sender
        self._builder: SendRequestBuilder
        self._loop: asyncio.AbstractEventLoop

    # Lifecycle.

    async def start(self) -> None:
        """Join the client instance; a broker is connected when the first message goes to it."""
        self._begin_start()
        self._topics = PublishTopics(self._namespace, self.settings.default_topic_queue_nums)
        instance = await join_instance(self.settings, self)
        self._topics.routes = instance.routes
        self._loop = instance.remoting.loop
        faults = None
        if self.settings.send_latency_fault_enable:
            faults = BrokerFaults(instance.clock.monotonic_ms)
            if self.settings.start_detector_enable:
                instance.spawn(FaultDetector(instance, faults, self.settings, self.topics).run())
        self._builder = SendRequestBuilder(
            self.settings, self._namespace, instance.message_ids, instance.clock
        )
        self._sender = Sender(instance, self.settings, self._group, faults)
        if self.settings.enable_trace:
            try:
                self._trace = await self._start_trace(instance)
            except BaseException:
                await instance.remove_member(self)
                raise
        self._instance = instance
        self.state = ServiceState.RUNNING

    async def _start_trace(self, instance: ClientInstance) -> ProducerTrace:
        sender: Producer = Producer(trace_group(self._group, "PRODUCE"), trace_settings(self.settings))
        dispatcher = TraceDispatcher(sender, self.settings.trace_topic)
        await dispatcher.start()
        return ProducerTrace(dispatcher, unwrap(self._namespace, self._group), instance.clock.now_ms)

    async def stop(self) -> None:
        """Wait for sends in flight, then leave; a second call does nothing."""
        instance = self._instance
        if self.state is not ServiceState.RUNNING or instance is None:
            self.state = ServiceState.STOPPED
            return
        self._fork_guard.check()
        self.state = ServiceState.STOPPED
        await self._in_flight.passed()
        await self._background.ended(self._background.running())
        instance.replies.abandon(self)
        if self._trace is not None:
            await self._trace.dispatcher.stop()
        await instance.remove_member(self)

    # Sending.

    async def send(
        self,
        message: Message,
        *,
        timeout_s: float | None = None,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        selector_arg: object = None,
    ) -> SendReceipt:
        """Send a message and wait until a broker has stored it.

        It goes to `queue`, to the queue that `selector(queues, message, selector_arg)` chooses, to the queue
        of its sharding key, or else round-robin. Only a round-robin send is retried on another broker.
        """
        self._running_instance()
        return await self._send(message, timeout_s, queue, selector, selector_arg)

    async def _send(
        self,
        message: Message,
        timeout_s: float | None = None,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        selector_arg: object = None,
        system: SystemFields | None = None,
        first_at: str | None = None,
    ) -> SendReceipt:
        """Send a message, first to the broker named `first_at`, if any."""
        deadline = self._loop.time() + (self._timeout_s if timeout_s is None else timeout_s)
        intercepted = None
        if self._interceptors:
            intercepted = InterceptedSend(self._interceptors, message)
            message = intercepted.message
        try:
            size = len(message.body)
        except AttributeError:
            raise not_a_message(message) from None
        in_flight = self._in_flight
        turn = in_flight.turn
        try:
            if not in_flight.enter_at_once(size):
                await in_flight.enter(size, deadline)
            try:
                request = (
                    await self._request_of(message, system)
                    if size > LARGE_BODY
                    else self._builder.of(message, None, system)
                )
                topics = self._topics
                topic = topics.known.get(message.topic) or await topics.find(message.topic, deadline)
                if queue is not None or selector is not None or message.sharding_key is not None:
                    queue = topics.choose(topic, message, queue, selector, selector_arg)
                first = None if first_at is None else topic.queue_at(first_at)
                begun = 0.0 if self._trace is None else self._loop.time()
                receipt = await self._sender.send(topic, request, deadline, queue, first)
            finally:
                in_flight.leave(size, turn)
        except BaseException as error:
            if intercepted is not None:
                intercepted.end(None, error)
            raise
        if self._trace is not None:
            address = self._sender.address_of(receipt.queue)
            self._trace.sent(message, request, receipt, address, self._loop.time() - begun)
        if self._namespace:
            receipt = self._unwrapped(receipt)
        if intercepted is not None:
            intercepted.end(receipt, None)
        return receipt

    async def _request_of(self, message: Message, system: SystemFields | None = None) -> SendRequest:
        """Build the request of a message; a large body is compressed on a worker thread."""
        if len(message.body) <= LARGE_BODY or not self._builder.is_compressed(message):
            return self._builder.of(message, None, system)
        compressed = await self._loop.run_in_executor(None, self._builder.compressed, message.body)
        return self._builder.of(message, compressed, system)

    def _unwrapped(self, receipt: SendReceipt) -> SendReceipt:
        return msgspec.structs.replace(receipt, queue=self._topics.plain(receipt.queue))

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        timeout_s: float | None = None,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        selector_arg: object = None,
    ) -> list[SendReceipt]:
        """Send messages of one topic in as few requests as possible; returns a receipt for each, in order.

        A request has at most `max_message_size` bytes and 4,000 messages, and is stored whole or not at all.
        The requests are sent one after the other, to one queue only if it is chosen. If a later one fails,
        `PartialBatchError` has the receipts of the earlier ones.
        """
        self._running_instance()
        deadline = self._loop.time() + (self._timeout_s if timeout_s is None else timeout_s)
        if not self._interceptors:
            return await self._send_batch(messages, deadline, queue, selector, selector_arg)
        batch = InterceptedBatch(self._interceptors, messages)
        try:
            receipts = await self._send_batch(batch.messages, deadline, queue, selector, selector_arg)
        except BaseException as error:
            batch.end(error.receipts if isinstance(error, PartialBatchError) else (), error)
            raise
        batch.end(receipts, None)
        return receipts

    async def _send_batch(
        self,
        messages: Sequence[Message],
        deadline: float,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        selector_arg: object,
    ) -> list[SendReceipt]:
        check_batch(messages)
        size = sum(len(message.body) for message in messages)
        turn = self._in_flight.turn
        await self._in_flight.enter(size, deadline)
        try:
            requests = list(self._builder.of_batch(messages))
            topic = await self._topics.find(messages[0].topic, deadline)
            chosen = self._topics.choose(topic, messages[0], queue, selector, selector_arg)
            receipts: list[SendReceipt] = []
            for request, msg_ids in requests:
                begun = self._loop.time()
                try:
                    whole = await self._sender.send(topic, request, deadline, chosen)
                except CometError as error:
                    self._sender.statistics.failed += len(messages) - len(receipts) - 1
                    if receipts:
                        raise _partial(receipts, len(messages), error) from error
                    raise
                stored = receipts_of_batch(self._unwrapped(whole), msg_ids)
                if self._trace is not None:
                    sent = messages[len(receipts) : len(receipts) + len(stored)]
                    address = self._sender.address_of(whole.queue)
                    self._trace.sent_batch(sent, stored, address, self._loop.time() - begun)
                receipts += stored
                self._sender.statistics.in_batches += len(stored) - 1
            return receipts
        finally:
            self._in_flight.leave(size, turn)

    async def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        selector_arg: object = None,
    ) -> None:
        """Send a message without a response; returns when it is on its way."""
        self._running_instance()
        if not self._interceptors:
            await self._send_oneway(message, queue, selector, selector_arg)
            return
        intercepted = InterceptedSend(self._interceptors, message)
        try:
            await self._send_oneway(intercepted.message, queue, selector, selector_arg)
        except BaseException as error:
            intercepted.end(None, error)
            raise
        intercepted.end(None, None)

    async def _send_oneway(
        self,
        message: Message,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        selector_arg: object,
    ) -> None:
        deadline = self._loop.time() + self._timeout_s
        try:
            size = len(message.body)
        except AttributeError:
            raise not_a_message(message) from None
        turn = self._in_flight.turn
        await self._in_flight.enter(size, deadline)
        try:
            request = await self._request_of(message)
            topic = await self._topics.find(message.topic, deadline)
            chosen = self._topics.choose(topic, message, queue, selector, selector_arg)
            queue = chosen or topic.next_queue()
            await self._sender.oneway(topic.topic, queue, request, deadline - self._loop.time())
        finally:
            self._in_flight.leave(size, turn)

    def send_async(
        self, message: Message, callback: SendCallback | None = None, **options: Unpack[SendOptions]
    ) -> asyncio.Task[SendReceipt]:
        """Send a message in the background; the callback, if any, gets the receipt or the error.

        The options are those of `send`. With `max_in_flight_messages` background sends in flight, a further
        one is refused (`TooManyRequestsError`).
        """
        self._running_instance()
        self._background.check_room()
        return self._background.begin(self.send(message, **options), callback)

    async def flush(self, timeout_s: float | None = None) -> None:
        """Wait until every message that was handed over before has its answer, and its callback has run.

        `FlushError` has the failures of `send_async` since the last flush, apart from those that a callback
        got. Without a timeout this takes as long as the sends may take. After a timeout (`CallTimeoutError`)
        they go on, and may be waited for again.
        """
        self._running_instance()
        background = self._background.running()
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.sleep(0)  # tasks that were made before this call begin to send
                await self._in_flight.passed()
                await self._background.ended(background)
        except TimeoutError:
            raise flush_timeout(self._in_flight.messages, timeout_s or 0.0) from None
        self._background.failures.raise_all()

    # Values.

    def message(self, topic: str, value: V, **fields: Unpack[MessageFields]) -> Message:
        """A message whose body is a value by the producer's serializer; the fields are those of `Message`."""
        return Message(topic, encoded(self._serializer, value), **fields)

    async def send_value(self, topic: str, value: V, **fields: Unpack[MessageFields]) -> SendReceipt:
        """Send a value by the producer's serializer; the fields are those of `Message`."""
        return await self.send(self.message(topic, value, **fields))

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
        """Send a message and wait for the reply of its consumer; the timeout covers both.

        `CallTimeoutError` says that the message was sent, but no reply came in time. With
        `max_pending_requests` waiting, a further one is refused (`TooManyRequestsError`).
        """
        instance = self._running_instance()
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        deadline = self._loop.time() + timeout_s
        system = request_fields(instance.client_id, timeout_s)
        limit = self.settings.max_pending_requests
        with instance.replies.expect(system.properties[CORRELATION_ID], self, limit) as reply:
            await self._await_replies_to(message.topic, deadline)
            left_s = deadline - self._loop.time()
            await self._send(message, left_s, queue, selector, selector_arg, system)
            return await await_reply(reply, deadline, message.topic, timeout_s)

    async def _await_replies_to(self, topic: str, deadline: float) -> None:
        """Register at every broker of the topic's clusters: any of them may bring the reply."""
        found = await self._topics.find(topic, deadline)
        known = self._running_instance().routes.known(found.topic)
        clusters = {broker.cluster for broker in known.route.broker_datas} if known is not None else set()
        wanted = set(map(reply_topic, clusters)) - self._registered_topics
        if not wanted:
            return
        try:
            async with asyncio.timeout_at(deadline):
                await self._register_at_brokers(wanted)
        except TimeoutError:
            raise never_sent(
                CallTimeoutError("the brokers that may bring the reply did not answer in time")
            ) from None

    async def _register_at_brokers(self, topics: Collection[str]) -> None:
        """Have the brokers of these topics know this producer, to send it replies and check-backs."""
        instance = self._running_instance()
        for topic in topics:
            await instance.routes.of(topic)
        self._registered_topics.update(topics)
        await instance.heartbeats.send_to_all()

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
        """Reply to a message that was sent with `request`; returns when the broker has passed the reply on.

        Any other message is refused with a `ClientError`; a `SendError` says that nobody waits any more.
        """
        self._running_instance()
        topic, system = reply_fields(message)
        answer = Message(topic, body, tags=tags, keys=keys, properties=properties or {})
        # The request came to this broker, so the waiting client is known there.
        return await self._send(answer, timeout_s, system=system, first_at=message.broker_name)

    # Recall.

    async def recall(self, handle: str | None, topic: str, *, timeout_s: float | None = None) -> str:
        """Recall a delayed message that is not due yet, by its `SendReceipt.recall_handle`; returns its id.

        A `ResponseError` says that the broker refuses: the message is due, or recalls are switched off
        (`recallMessageEnable`).
        """
        instance = self._running_instance()
        check_topic(topic)
        broker_name, msg_id = _read_handle(handle)
        deadline = self._loop.time() + (self._timeout_s if timeout_s is None else timeout_s)
        await self._topics.find(topic, deadline)
        address = instance.routes.need_master(broker_name)
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
            if self._trace is not None:
                self._trace.recalled(topic, msg_id, success=success)
        return answer.header(RecallMessageResponse).msg_id

    # Topics and queues.

    async def queues(self, topic: str, *, timeout_s: float | None = None) -> Sequence[MessageQueue]:
        """The queues of a topic that messages can be sent to."""
        self._running_instance()
        deadline = self._loop.time() + (self._timeout_s if timeout_s is None else timeout_s)
        found = await self._topics.find(topic, deadline)
        return [self._topics.plain(queue) for queue in found.queues]

    # Statistics.

    def statistics(self) -> ProducerStatistics:
        """What the producer has done since its start, and what is in flight."""
        counted, in_flight = self._sender.statistics, self._in_flight
        return ProducerStatistics(
            counted.stored + counted.in_batches,
            counted.failed,
            counted.retries,
            counted.mean_ms(),
            counted.p99_ms(),
            in_flight.messages,
            in_flight.bytes,
            len(self._running_instance().remoting.connections),
        )

    # For the client instance.

    def topics(self) -> Collection[str]:
        return {*self._topics.names(), *self._registered_topics}

    def heartbeat_entry(self) -> ProducerData:
        return ProducerData(self._group)

    def route_changed(self, topic: str) -> None:
        self._topics.route_changed(topic)


def _read_handle(handle: str | None) -> tuple[str, str]:
    """The broker name and the message id in a recall handle."""
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
