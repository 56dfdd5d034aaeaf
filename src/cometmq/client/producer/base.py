"""What every producer is built on: its life, and the way of one message to a broker.

Rules kept here:
- A producer is made, started once and stopped once.
- The time-out of a send covers everything: finding the route, waiting for room, connecting, and all tries.
- What is under way is limited in messages and bytes; beyond that, sends wait in line within their time-out.
- A stop lets what is under way come to its end, and takes nothing new.
- Brokers know a producer that waits for something from them: replies, or questions about transactions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from types import TracebackType
from typing import Final, Self, Unpack

import msgspec

from cometmq.client.instance.instance import ClientInstance, HomeProcess, MemberKind, join_instance
from cometmq.client.names import check_group, unwrap, wrap_group
from cometmq.client.producer.broker_latency import BrokerFaults, FaultDetector
from cometmq.client.producer.in_flight import InFlight, LaterSends
from cometmq.client.producer.queue_selection import PublishTopics, QueueSelector
from cometmq.client.producer.send_request import Outgoing, OutgoingMessages, Special
from cometmq.client.producer.sender import Sender, SendReceipt
from cometmq.client.producer.settings import ProducerOptions, ProducerSettings
from cometmq.client.settings import ServiceState, namespace_of
from cometmq.client.trace.dispatcher import TraceDispatcher, trace_group, trace_settings
from cometmq.client.trace.hooks import ProducerTrace
from cometmq.model.errors import StateError
from cometmq.model.message import Message
from cometmq.model.queue import MessageQueue
from cometmq.wire.bodies.heartbeat import ProducerData

LARGE_BODY: Final = 64 * 1024
"""Compressing this much takes about a millisecond; a larger body would hold up the event loop."""


class ProducerBase:
    """A producer that sends one message at a time."""

    kind: Final[MemberKind] = "producer"

    def __init__(
        self, group: str, settings: ProducerSettings | None = None, **options: Unpack[ProducerOptions]
    ) -> None:
        check_group(group)
        if settings is not None and options:
            raise TypeError("give settings, or keywords, not both")
        self.settings = settings or ProducerSettings(**options)
        self.state = ServiceState.CREATED
        self._namespace = namespace_of(self.settings)
        self._group = wrap_group(self._namespace, group)
        self._home = HomeProcess()
        self._timeout_s = self.settings.send_timeout_ms / 1000
        self._in_flight = InFlight(self.settings.max_in_flight_messages, self.settings.max_in_flight_bytes)
        self._later = LaterSends(self.settings.max_in_flight_messages)
        self._waits_at: set[str] = set()
        """Topics whose brokers know this producer although it may never send to them."""
        self._trace: ProducerTrace | None = None
        self._instance: ClientInstance | None = None
        self._topics: PublishTopics
        self._sender: Sender
        self._outgoing: OutgoingMessages
        self._loop: asyncio.AbstractEventLoop

    # Life.

    @property
    def group(self) -> str:
        return self._group

    @property
    def client_id(self) -> str:
        """The id of the running client."""
        return self._running().client_id

    async def start(self) -> None:
        """Join the client instance; brokers are connected when the first message goes to them."""
        if self.state is not ServiceState.CREATED:
            raise StateError(f"the producer is {self.state.value}; make a new one")
        self._home.check()
        self.state = ServiceState.START_FAILED
        self._topics = PublishTopics(self._namespace, self.settings.default_topic_queue_nums)
        instance = await join_instance(self.settings, self)
        self._topics.routes = instance.routes
        self._loop = instance.remoting.loop
        faults = None
        if self.settings.send_latency_fault_enable:
            faults = BrokerFaults(instance.clock.monotonic_ms)
            if self.settings.start_detector_enable:
                instance.spawn(FaultDetector(instance, faults, self.settings, self.topics).run())
        self._outgoing = OutgoingMessages(
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
        sender = ProducerBase(trace_group(self._group, "PRODUCE"), trace_settings(self.settings))
        dispatcher = TraceDispatcher(sender, self.settings.trace_topic)
        await dispatcher.start()
        return ProducerTrace(dispatcher, unwrap(self._namespace, self._group), instance.clock.now_ms)

    async def stop(self) -> None:
        """Let what is under way come to its end, then leave; a second time does nothing."""
        instance = self._instance
        if self.state is not ServiceState.RUNNING or instance is None:
            self.state = ServiceState.STOPPED
            return
        self._home.check()
        self.state = ServiceState.STOPPED
        await self._in_flight.idle()
        await self._later.all_ended()
        instance.replies.abandon(self)
        if self._trace is not None:
            await self._trace.dispatcher.stop()
        await instance.remove_member(self)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def _running(self) -> ClientInstance:
        if self.state is not ServiceState.RUNNING or self._instance is None:
            raise StateError(f"the producer is {self.state.value}; use it between start and stop")
        self._home.check()
        return self._instance

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

        It goes to `queue`, or to what `selector(queues, message, selector_arg)` chooses, or to the queue of
        its sharding key, or to whose turn it is. Only the last of these is tried again on another broker.
        """
        self._running()
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        return await self._send(message, timeout_s, queue, selector, selector_arg)

    async def _send(
        self,
        message: Message,
        timeout_s: float,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        selector_arg: object = None,
        special: Special | None = None,
        first_at: str | None = None,
    ) -> SendReceipt:
        """Send a message, at first to the broker with the name `first_at` if there is one."""
        deadline = self._loop.time() + timeout_s
        size = len(message.body)
        if not self._in_flight.enter_at_once(size):
            await self._in_flight.enter(size, deadline)
        try:
            outgoing = (
                await self._request_of(message, special)
                if size > LARGE_BODY
                else self._outgoing.of(message, None, special)
            )
            topics = self._topics
            topic = topics.known.get(message.topic) or await topics.find(message.topic, deadline)
            if queue is not None or selector is not None or message.sharding_key is not None:
                queue = topics.choose(topic, message, queue, selector, selector_arg)
            first = None if first_at is None else topic.queue_at(first_at)
            begun = 0.0 if self._trace is None else self._loop.time()
            receipt = await self._sender.send(topic, outgoing, deadline, queue, first)
        finally:
            self._in_flight.leave(size)
        if self._trace is not None:
            address = self._sender.address_of(receipt.queue)
            self._trace.sent(message, outgoing, receipt, address, self._loop.time() - begun)
        return receipt if not self._namespace else self._unwrapped(receipt)

    async def _request_of(self, message: Message, special: Special | None = None) -> Outgoing:
        """The request of a message; a large body is compressed on a worker thread."""
        if len(message.body) <= LARGE_BODY or not self._outgoing.is_compressed(message):
            return self._outgoing.of(message, None, special)
        compressed = await self._loop.run_in_executor(None, self._outgoing.compressed, message.body)
        return self._outgoing.of(message, compressed, special)

    async def _become_known(self, topics: Collection[str]) -> None:
        """Have the brokers of these topics know this producer, as they may have something for it."""
        instance = self._running()
        for topic in topics:
            await instance.routes.of(topic)
        self._waits_at.update(topics)
        await instance.heartbeats.send_to_all()

    def _unwrapped(self, receipt: SendReceipt) -> SendReceipt:
        return msgspec.structs.replace(receipt, queue=self._topics.plain(receipt.queue))

    # As its instance sees it.

    def topics(self) -> Collection[str]:
        return {*self._topics.names(), *self._waits_at}

    def heartbeat_entry(self) -> ProducerData:
        return ProducerData(self._group)

    def route_changed(self, topic: str) -> None:
        self._topics.route_changed(topic)
