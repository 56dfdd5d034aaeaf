"""Base of all consumers: lifecycle, subscriptions, names, and the engine inside a consumer.

Rules kept here:
- A consumer is made, started once and stopped once. Used at another time, or by a forked process, it raises.
- The application sees names without the namespace, brokers with it.
- A subscription that is not by tags is checked with a broker before the consumer relies on it.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from types import TracebackType
from typing import TYPE_CHECKING, Final, Protocol, Self

import msgspec

from cometmq.client.consumer.rebalance import Rebalancer
from cometmq.client.consumer.running_info import Running
from cometmq.client.consumer.settings import ConsumerSettings
from cometmq.client.instance.instance import ClientInstance, ForkGuard
from cometmq.client.instance.members import MemberKind
from cometmq.client.names import check_group, check_topic, unwrap, wrap_group, wrap_topic
from cometmq.client.producer.producer import Producer
from cometmq.client.settings import ServiceState, namespace_of
from cometmq.client.subscription import Expression, is_tags, subscription_of
from cometmq.client.trace.dispatcher import TraceDispatcher, trace_group, trace_settings
from cometmq.client.trace.hooks import ConsumerTrace
from cometmq.model.errors import ClientError, ResponseError, StateError
from cometmq.model.queue import MessageQueue
from cometmq.model.route import MASTER_ID
from cometmq.ports.clock import SystemClock
from cometmq.wire.bodies.heartbeat import ConsumerData, ConsumeType, SubscriptionData
from cometmq.wire.codes import RequestCode

if TYPE_CHECKING:
    from cometmq.client.instance.instance import ClientInstance


class Loops(Protocol):
    """The pull or pop loops."""

    paused: bool


class ConsumerEngine(Running, Protocol):
    """The engine of a consumer with listeners."""

    @property
    def rebalancer(self) -> Rebalancer: ...

    @property
    def loops(self) -> Loops: ...

    def start(self) -> None:
        """Start reading."""

    async def reset(self, offsets: dict[MessageQueue, int]) -> None:
        """Continue at other offsets."""

    async def stop(self) -> None:
        """Wait for running listeners, and stop."""


async def check_subscription(
    instance: ClientInstance, group: str, namespace: str, subscription: SubscriptionData
) -> None:
    """Refuse a subscription that a broker of the topic cannot filter; tags need no check."""
    if is_tags(subscription):
        return
    route = await instance.routes.of(subscription.topic)
    brokers = [broker.broker_addrs for broker in route.broker_datas if broker.broker_addrs] if route else []
    if not brokers:
        return  # the topic does not exist yet; the first pull will tell
    addresses = random.choice(brokers)
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


class ConsumerBase:
    """A member of a consumer group."""

    kind: Final[MemberKind] = "consumer"
    consume_type: ConsumeType

    def __init__(self, group: str, settings: ConsumerSettings) -> None:
        check_group(group)
        self.state = ServiceState.CREATED
        self._common = settings
        self._namespace = namespace_of(settings)
        self._group = wrap_group(self._namespace, group)
        self._fork_guard = ForkGuard()
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._instance: ClientInstance | None = None
        self._trace: ConsumerTrace | None = None

    # Lifecycle.

    async def start(self) -> None:
        raise NotImplementedError

    async def stop(self) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def client_id(self) -> str:
        """The id of the running client."""
        return self._running_instance().client_id

    def _begin_start(self) -> None:
        self._fork_guard.check()
        if self.state is not ServiceState.CREATED:
            raise StateError(f"the consumer is {self.state.value}; make a new one")
        self.state = ServiceState.START_FAILED

    async def _start_trace(self, instance: ClientInstance, late_after_ms: int | None = None) -> None:
        if self._common.enable_trace:
            sender = Producer(trace_group(self._group, "CONSUME"), trace_settings(self._common))
            dispatcher = TraceDispatcher(sender, self._common.trace_topic)
            await dispatcher.start()
            group = unwrap(self._namespace, self._group)
            self._trace = ConsumerTrace(dispatcher, group, instance.clock.now_ms, late_after_ms)

    async def _stop_trace(self) -> None:
        if self._trace is not None:
            await self._trace.dispatcher.stop()

    def _running_instance(self) -> ClientInstance:
        self._fork_guard.check()
        if self.state is not ServiceState.RUNNING or self._instance is None:
            raise StateError(f"the consumer is {self.state.value}; use it between start and stop")
        return self._instance

    # Subscriptions.

    def _add_subscription(self, topic: str, expression: Expression) -> None:
        check_topic(topic)
        if self.state not in (ServiceState.CREATED, ServiceState.RUNNING):
            raise StateError(f"the consumer is {self.state.value}; it takes no more subscriptions")
        wrapped = wrap_topic(self._namespace, topic)
        self._subscriptions[wrapped] = subscription_of(wrapped, expression, SystemClock().now_ms())

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

    # For the client instance.

    @property
    def group(self) -> str:
        """The name of the group as brokers know it."""
        return self._group

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
