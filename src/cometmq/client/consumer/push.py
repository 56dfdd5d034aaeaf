"""The push consumer: hands messages to listeners, in asyncio.

Rules kept here:
- Listeners get messages one by one, or as lists if `consume_message_batch_max_size` is more than 1. Plain
  functions run in threads, coroutine functions on the event loop.
- Subscriptions may change while the consumer runs.
- A stop withdraws waiting messages, ends rebalancing and pulls, waits for running listeners, persists the
  offsets and unlocks the queues, in this order.
- All periodic work is one task; an error in it is logged, and the next round comes all the same.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Callable, Mapping
from typing import Final, TypeVar, Unpack, overload

from cometmq.client.consumer.assigned_queues import AssignedQueues, QueueLocks
from cometmq.client.consumer.base import ConsumerBase
from cometmq.client.consumer.concurrent import ConcurrentConsumption
from cometmq.client.consumer.engine import ConsumerEngine
from cometmq.client.consumer.listener import Listener, ListenerFunction
from cometmq.client.consumer.offset_store import StartOffsets, offset_store
from cometmq.client.consumer.orderly import OrderedConsumption
from cometmq.client.consumer.process_queue import Thresholds
from cometmq.client.consumer.pull_loop import PullLoops, PullPlan
from cometmq.client.consumer.pull_request import PullKind, PullRequests
from cometmq.client.consumer.rebalance import Rebalancer
from cometmq.client.consumer.running_info import consume_directly
from cometmq.client.consumer.send_back import SendBack
from cometmq.client.consumer.settings import MIB, UNLIMITED, PushOptions, PushSettings
from cometmq.client.instance.instance import ClientInstance
from cometmq.client.settings import settings_of
from cometmq.client.subscription import Expression, subscription_of
from cometmq.client.trace.hooks import TracedListener
from cometmq.model.errors import ClientError, CometError
from cometmq.model.message import StoredMessage
from cometmq.model.names import retry_topic
from cometmq.model.queue import MessageQueue
from cometmq.wire.bodies.consumer_info import ConsumeDirectlyResult
from cometmq.wire.bodies.heartbeat import ALL, ConsumeType, SubscriptionData

log = logging.getLogger("cometmq.client")

_SUSPEND_MS: Final = 15_000
_PULL_TIMEOUT_S: Final = 30.0
_RENEW_LOCKS_S: Final = 20.0
_SEND_BACK_EXPIRED_S: Final = 30.0

F = TypeVar("F", bound=ListenerFunction)

_STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class PushEngine(ConsumerEngine):
    """The engine of one push consumer."""

    queues: AssignedQueues
    loops: PullLoops

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        settings: PushSettings,
        namespace: str,
        subscriptions: Mapping[str, SubscriptionData],
        listener_of: Callable[[str], Listener | None],
    ) -> None:
        super().__init__(instance)
        self._settings = settings
        calls = self.calls
        pulls = PullRequests(instance, calls, group)
        self.offsets = offset_store(instance.client_id, group, settings, calls)
        starts = StartOffsets(self.offsets, calls, settings, self.started_ms)
        self.thresholds = Thresholds(
            settings.pull_threshold_for_queue,
            settings.pull_threshold_size_for_queue_mib * MIB,
            None if settings.ordered else settings.consume_concurrently_max_span,
        )
        self.queues = AssignedQueues(
            self.offsets,
            starts,
            pulls,
            lambda pq: self.consumption.is_busy(pq),
            lambda: self.rebalancer.trigger(),
            self._queues_changed,
        )
        self.rebalancer = Rebalancer(instance, calls, group, settings, subscriptions.keys, self.queues.apply)
        if settings.ordered and not settings.broadcasting:
            self.queues.locks = QueueLocks(group, calls, instance.routes, self.queues.table, self.queues.lose)
        self.send_back = SendBack(instance, calls, group, settings, namespace)
        self.consumption: OrderedConsumption | ConcurrentConsumption
        parts = (group, settings, self.send_back, listener_of, self.statistics, self.offsets)
        if settings.ordered:
            self.consumption = OrderedConsumption(*parts, self.queues.locks)
        else:
            self.consumption = ConcurrentConsumption(*parts)
        self.loops = self.queues.loops = PullLoops(
            instance,
            pulls,
            self._plan(),
            self.offsets,
            subscriptions.get,
            self.consumption.submit,
            self.queues.correct,
            self.statistics,
            namespace,
        )

    def _plan(self) -> PullPlan:
        settings = self._settings
        return PullPlan(
            kind=PullKind.PUSH,
            batch_size=settings.pull_batch_size,
            thresholds=self.thresholds,
            suspend_ms=_SUSPEND_MS,
            timeout_s=_PULL_TIMEOUT_S,
            error_pause_s=settings.pull_delay_when_exception_ms / 1000,
            pause_between_s=settings.wait_between_pulls_ms / 1000,
            max_bytes=settings.pull_batch_size_in_bytes,
            commits=not settings.broadcasting,
            needs_lock=settings.ordered and not settings.broadcasting,
            with_subscription=settings.post_subscription_when_pull,
        )

    def _queues_changed(self) -> None:
        """Divide limits over all queues by the number of queues."""
        settings, queues = self._settings, max(len(self.queues.table), 1)
        if settings.pull_threshold_for_topic != UNLIMITED:
            self.thresholds.count = max(1, settings.pull_threshold_for_topic // queues)
        if settings.pull_threshold_size_for_topic_mib != UNLIMITED:
            self.thresholds.size_bytes = max(1, settings.pull_threshold_size_for_topic_mib // queues) * MIB

    async def _housekeeping(self) -> None:
        persist_s = self._settings.persist_consumer_offset_interval_ms / 1000
        locked_at = looked_at = time.monotonic()
        while True:
            await asyncio.sleep(min(persist_s, _RENEW_LOCKS_S))
            now = time.monotonic()
            try:
                await self.offsets.persist(list(self.queues.table))
                self.statistics.note()
                if self.queues.locks is not None and now - locked_at >= _RENEW_LOCKS_S - persist_s / 2:
                    locked_at = now
                    await self.queues.locks.renew_all()
                if now - looked_at >= _SEND_BACK_EXPIRED_S:
                    looked_at = now
                    self.consumption.send_back_expired()
            except Exception:
                log.exception("the housekeeping of a consumer failed")

    async def reset(self, offsets: dict[MessageQueue, int]) -> None:
        """Continue at other offsets in the queues of this member."""
        self.rebalancer.suspend()
        try:
            await self.queues.reset(offsets)
        finally:
            self.rebalancer.resume()

    async def stop(self) -> None:
        """Wait for running listeners; waiting messages stay with the brokers."""
        self.consumption.withdraw()
        await self._end_tasks()
        await self.loops.stop()
        if not await self.consumption.stop(self._settings.stop_timeout_ms / 1000):
            log.warning("a listener was still busy when its consumer stopped; its messages come again")
        await self.queues.give_all_away()


class PushConsumer(ConsumerBase):
    """Reads topics and hands their messages to listeners."""

    consume_type = ConsumeType.CONSUME_PASSIVELY

    def __init__(
        self, group: str, settings: PushSettings | None = None, **options: Unpack[PushOptions]
    ) -> None:
        self.settings = settings_of(PushSettings, settings, options)
        super().__init__(group, self.settings)
        self._listeners: dict[str, Listener] = {}

    # Subscriptions.

    @overload
    def subscribe(self, topic: str, expression: Expression = ..., *, listener: F) -> F: ...

    @overload
    def subscribe(self, topic: str, expression: Expression = ...) -> Callable[[F], F]: ...

    def subscribe(
        self, topic: str, expression: Expression = ALL, *, listener: F | None = None
    ) -> F | Callable[[F], F]:
        """Read a topic: all of it, messages with certain tags (`"a || b"`), or those that `Sql(…)` selects.

        The listener is given as an argument, or decorated with the result.
        """

        def register(function: F) -> F:
            gives_lists = self.settings.consume_message_batch_max_size > 1
            registered = Listener(function, batch=gives_lists)
            self._add_subscription(topic, expression)
            self._listeners[topic] = registered
            if self._instance is not None and self._engine is not None:
                self._instance.spawn(self._announce_change(self._instance, self._engine))
            return function

        return register if listener is None else register(listener)

    async def _announce_change(self, instance: ClientInstance, engine: ConsumerEngine) -> None:
        try:
            await self._announce(instance)
        except CometError as error:
            log.error("the changed subscriptions of group %s were not announced: %s", self._group, error)
        engine.rebalancer.trigger()

    async def unsubscribe(self, topic: str) -> None:
        """Stop reading a topic."""
        self._listeners.pop(topic, None)
        await super().unsubscribe(topic)

    # Lifecycle.

    async def start(self) -> None:
        """Join the group and start reading."""
        if not self._subscriptions:
            raise ClientError("the consumer reads nothing; subscribe to a topic before starting it")
        for topic in self._retry_topics():
            self._subscriptions[topic] = subscription_of(topic, ALL, 0)
        await super().start()

    def _retry_topics(self) -> list[str]:
        return [] if self.settings.broadcasting else [retry_topic(self._group)]

    def _consume_timeout_ms(self) -> int:
        return self.settings.consume_timeout_min * 60_000

    def _make_engine(self, instance: ClientInstance) -> ConsumerEngine:
        return PushEngine(
            instance, self._group, self.settings, self._namespace, self._subscriptions, self._listener_of
        )

    def _listener_of(self, topic: str) -> Listener | None:
        listener = self._listeners.get(topic)
        if listener is None or self._trace is None:
            return listener
        return TracedListener(listener, self._trace)

    async def run(self) -> None:
        """Start, consume until the process gets SIGINT or SIGTERM, then stop in good order."""
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        for each in _STOP_SIGNALS:
            loop.add_signal_handler(each, ended.set)
        try:
            async with self:
                await ended.wait()
        finally:
            for each in _STOP_SIGNALS:
                loop.remove_signal_handler(each)

    def suspend(self) -> None:
        """Stop pulling for now; held messages are still consumed."""
        self._running().loops.paused = True

    def resume(self) -> None:
        """Pull again."""
        engine = self._running()
        engine.loops.paused = False
        for pq in engine.queues.table.values():
            pq.made_room()

    def assignment(self) -> set[MessageQueue]:
        """The queues that this member of the group reads now, without those of its retry topic."""
        retries = retry_topic(self._group)
        return {
            self._plain(queue)
            for queue, pq in self._running().queues.table.items()
            if queue.topic != retries and not pq.dropped
        }

    # For brokers.

    async def consume_directly(self, message: StoredMessage, broker_name: str) -> ConsumeDirectlyResult:
        self._running()
        ordered = self.settings.ordered
        return await consume_directly(self._listeners.get, message, self._namespace, ordered=ordered)
