"""The base of all consumers: start and stop, subscriptions, and answers to brokers.

Rules kept here:
- The application sees names without the namespace, brokers with it.
- A subscription that is not by tags is checked with a broker before the consumer relies on it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection
from typing import ClassVar

import msgspec

from cometmq.client.consumer.engine import ConsumerEngine
from cometmq.client.consumer.rebalance import QueueChanges, RebalanceListener
from cometmq.client.consumer.running_info import running_info
from cometmq.client.consumer.settings import ConsumerSettings
from cometmq.client.consumer.statistics import ConsumerStatistics
from cometmq.client.instance.group_client import GroupClient
from cometmq.client.instance.instance import ClientInstance, join_instance
from cometmq.client.names import check_topic, unwrap, wrap_topic
from cometmq.client.producer.producer import Producer
from cometmq.client.settings import ServiceState
from cometmq.client.subscription import Expression, is_tags, subscription_of
from cometmq.client.trace.dispatcher import TraceDispatcher, trace_group, trace_settings
from cometmq.client.trace.hooks import ConsumerTrace
from cometmq.model.errors import ClientError, ResponseError, StateError
from cometmq.model.queue import MessageQueue
from cometmq.model.route import MASTER_ID
from cometmq.ports.clock import SystemClock
from cometmq.wire.bodies.consumer_info import ConsumerRunningInfo
from cometmq.wire.bodies.heartbeat import ConsumerData, ConsumeType, SubscriptionData
from cometmq.wire.codes import RequestCode


async def check_subscription(
    instance: ClientInstance, group: str, namespace: str, subscription: SubscriptionData
) -> None:
    """Refuse a subscription that a broker of the topic cannot filter; tags need no check."""
    if is_tags(subscription):
        return
    addresses = await instance.routes.any_broker(subscription.topic)
    if addresses is None:
        return  # the topic does not exist yet; the first pull will tell
    body = {
        "clientId": instance.client_id,
        "group": group,
        "namespace": namespace,
        "subscriptionData": subscription,
    }
    try:
        await instance.remoting.call_ok(
            addresses.get(MASTER_ID) or next(iter(addresses.values())),
            RequestCode.CHECK_CLIENT_CONFIG,
            body=msgspec.json.encode(body),
            timeout_s=instance.settings.call_timeout_s,
        )
    except ResponseError as error:
        raise ClientError(
            f"the subscription to {subscription.topic} by {subscription.expression_type} is refused: {error}",
            code=error.code,
        ) from error


class ConsumerBase(GroupClient):
    """A member of a consumer group."""

    kind = "consumer"
    consume_type: ClassVar[ConsumeType]

    def __init__(
        self, group: str, settings: ConsumerSettings, rebalance_listener: RebalanceListener | None = None
    ) -> None:
        super().__init__(group, settings)
        self._common = settings
        timeout_s = settings.rebalance_listener_timeout_ms / 1000
        self._queue_changes = QueueChanges(rebalance_listener, self._plain, timeout_s)
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._engine: ConsumerEngine | None = None
        self._trace: ConsumerTrace | None = None

    # Lifecycle.

    async def start(self) -> None:
        """Join the group and start reading."""
        self._begin_start()
        broadcasting = self._common.broadcasting
        instance = await join_instance(self._common, self, keep_instance_name=broadcasting)
        try:
            await self._announce(instance)
            if self._common.enable_trace:
                self._trace = await self._start_trace(instance)
        except BaseException:
            await instance.remove_member(self)
            raise
        self._engine = self._make_engine(instance)
        self._instance = instance
        self.state = ServiceState.RUNNING
        self._engine.start()

    @abstractmethod
    def _make_engine(self, instance: ClientInstance) -> ConsumerEngine: ...

    async def _start_trace(self, instance: ClientInstance) -> ConsumerTrace:
        sender = Producer(trace_group(self._group, "CONSUME"), trace_settings(self._common))
        dispatcher = TraceDispatcher(sender, self._common.trace_topic)
        await dispatcher.start()
        group, late_after_ms = unwrap(self._namespace, self._group), self._consume_timeout_ms()
        return ConsumerTrace(dispatcher, group, instance.clock.now_ms, late_after_ms)

    def _consume_timeout_ms(self) -> int | None:
        """How long a listener may take before its trace says that it was too slow."""
        return None

    async def stop(self) -> None:
        """Finish what is under way, commit the offsets, and leave the group; a second call does nothing."""
        if self.state is not ServiceState.RUNNING:
            self.state = ServiceState.STOPPED
            return
        instance, engine = self._running_instance(), self._running()
        self.state = ServiceState.STOPPED
        await engine.stop()
        if self._trace is not None:
            await self._trace.dispatcher.stop()
        await instance.remove_member(self)

    def _running(self) -> ConsumerEngine:
        self._running_instance()
        assert self._engine is not None
        return self._engine

    # Subscriptions.

    def _add_subscription(self, topic: str, expression: Expression) -> None:
        check_topic(topic)
        if self.state not in (ServiceState.CREATED, ServiceState.RUNNING):
            raise StateError(f"the consumer is {self.state.value}; it takes no more subscriptions")
        wrapped = wrap_topic(self._namespace, topic)
        self._subscriptions[wrapped] = subscription_of(wrapped, expression, SystemClock().now_ms())

    async def unsubscribe(self, topic: str) -> None:
        """Stop reading a topic."""
        wrapped = wrap_topic(self._namespace, topic)
        self._subscriptions.pop(wrapped, None)
        if self._instance is not None and self._engine is not None:
            await self._engine.rebalancer.leave(wrapped)
            await self._instance.heartbeats.send_to_all()

    async def _announce(self, instance: ClientInstance) -> None:
        """Check all subscriptions with their brokers, and send heartbeats."""
        for subscription in list(self._subscriptions.values()):
            await instance.routes.of(subscription.topic)
            await check_subscription(instance, self._group, self._namespace, subscription)
        await instance.heartbeats.send_to_all()

    # Names.

    def _wrapped(self, queue: MessageQueue) -> MessageQueue:
        """The queue as brokers know it."""
        if not self._namespace:
            return queue
        return MessageQueue(wrap_topic(self._namespace, queue.topic), queue.broker_name, queue.queue_id)

    def _plain(self, queue: MessageQueue) -> MessageQueue:
        """The queue as the application knows it."""
        if not self._namespace:
            return queue
        return MessageQueue(unwrap(self._namespace, queue.topic), queue.broker_name, queue.queue_id)

    # Statistics.

    def statistics(self) -> ConsumerStatistics:
        """What the consumer has done since its start, and what it holds; costs no request."""
        engine = self._running()
        return ConsumerStatistics(
            engine.statistics.topics(lambda topic: unwrap(self._namespace, topic)),
            {self._plain(queue): pq.statistics() for queue, pq in engine.queues.table.items()},
            0 if engine.consumption is None else engine.consumption.running_count(),
            len(self._running_instance().remoting.connections),
        )

    # For the client instance and brokers.

    def topics(self) -> Collection[str]:
        return list(self._subscriptions)

    def heartbeat_entry(self) -> ConsumerData:
        return ConsumerData(
            self._group,
            self.consume_type,
            self._common.message_model,
            self._common.consume_from_where,
            tuple(self._subscriptions.values()),
            self._common.unit_mode,
        )

    def route_changed(self, topic: str) -> None:
        if topic in self._subscriptions:
            self.consumer_ids_changed()

    def consumer_ids_changed(self) -> None:
        if self._engine is not None:
            self._engine.rebalancer.trigger()

    async def reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        await self._running().reset(
            {queue: offset for queue, offset in offsets.items() if queue.topic == topic}
        )

    def status(self, topic: str) -> dict[MessageQueue, int]:
        return self._running().offsets.snapshot(topic)

    async def running_info(self, with_stacks: bool) -> ConsumerRunningInfo:
        namesrv = ";".join(self._running_instance().name_servers.addresses)
        entry = self.heartbeat_entry()
        return running_info(self._running(), self._common, entry, namesrv, with_stacks=with_stacks)
