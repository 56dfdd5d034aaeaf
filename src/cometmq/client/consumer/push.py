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
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar, Unpack, overload

from cometmq.client.consumer.assigned_queues import AssignedQueues, QueueLocks
from cometmq.client.consumer.base import ConsumerBase
from cometmq.client.consumer.concurrent import ConcurrentConsumption
from cometmq.client.consumer.engine import ConsumerEngine
from cometmq.client.consumer.interceptor import (
    ConsumeInterceptor,
    InterceptedListener,
)
from cometmq.client.consumer.listener import Listener, ListenerDecorator, ListenerFunction
from cometmq.client.consumer.offset_store import StartOffsets, offset_store
from cometmq.client.consumer.orderly import OrderedConsumption
from cometmq.client.consumer.process_queue import Thresholds
from cometmq.client.consumer.pull_loop import PullLoops, PullPlan
from cometmq.client.consumer.pull_request import PullKind, PullRequests
from cometmq.client.consumer.rebalance import QueueChanges, RebalanceListener, Rebalancer
from cometmq.client.consumer.running_info import consume_directly
from cometmq.client.consumer.send_back import SendBack
from cometmq.client.consumer.settings import MIB, UNLIMITED, PushOptions, PushSettings
from cometmq.client.instance.instance import ClientInstance
from cometmq.client.interceptors import checked_interceptors
from cometmq.client.options import documented
from cometmq.client.serializer import Serializer
from cometmq.client.settings import settings_of
from cometmq.client.subscription import Expression, subscription_of
from cometmq.client.trace.hooks import ConsumerTrace
from cometmq.model.errors import ClientError, CometError
from cometmq.model.message import StoredMessage, V
from cometmq.model.names import retry_topic
from cometmq.model.queue import MessageQueue
from cometmq.ports.stop_signals import StopSignals
from cometmq.wire.bodies.consumer_info import ConsumeDirectlyResult
from cometmq.wire.bodies.heartbeat import ALL, ConsumeType, SubscriptionData

log = logging.getLogger("cometmq.client")

_SUSPEND_MS: Final = 15_000
_PULL_TIMEOUT_S: Final = 30.0
_RENEW_LOCKS_S: Final = 20.0
_SEND_BACK_EXPIRED_S: Final = 30.0

F = TypeVar("F", bound=Callable[..., Any])


class PushEngine(ConsumerEngine):
    """The engine of one push consumer."""

    queues: AssignedQueues
    loops: PullLoops
    consumption: OrderedConsumption | ConcurrentConsumption

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        settings: PushSettings,
        namespace: str,
        subscriptions: Mapping[str, SubscriptionData],
        listener_of: Callable[[str], Listener | None],
        changes: QueueChanges,
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
            changes,
        )
        self.rebalancer = Rebalancer(instance, calls, group, settings, subscriptions.keys, self.queues.apply)
        if settings.ordered and not settings.broadcasting:
            self.queues.locks = QueueLocks(group, calls, instance.routes, self.queues.table, self.queues.lose)
        self.send_back = SendBack(instance, calls, group, settings, namespace)
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


@documented(PushSettings, ("serializer", "rebalance_listener", "interceptors"))
class PushConsumer(ConsumerBase, Generic[V]):
    """Reads topics and hands their messages to listeners."""

    consume_type = ConsumeType.CONSUME_PASSIVELY

    def __init__(
        self,
        group: str,
        settings: PushSettings | None = None,
        *,
        serializer: Serializer[V] | None = None,
        rebalance_listener: RebalanceListener | None = None,
        interceptors: Sequence[ConsumeInterceptor] = (),
        **options: Unpack[PushOptions],
    ) -> None:
        self.settings = settings_of(PushSettings, settings, options, type(self))
        super().__init__(group, self.settings, rebalance_listener)
        self._serializer = serializer
        self._interceptors = checked_interceptors(interceptors, ConsumeInterceptor)
        """Those of the application, and while it runs the one that records traces, if wanted."""
        self._listeners: dict[str, Listener] = {}

    # Subscriptions.

    @overload
    def subscribe(
        self, topic: str, expression: Expression = ..., *, listener: ListenerFunction[V]
    ) -> ListenerFunction[V]: ...

    @overload
    def subscribe(self, topic: str, expression: Expression = ...) -> ListenerDecorator[V]: ...

    def subscribe(self, topic: str, expression: Expression = ALL, *, listener: Any = None) -> Any:
        """Read a topic: all of it, messages with certain tags (`"a || b"`), or those that `Sql(…)` selects.

        The listener is given as an argument, or decorated with the result.
        """

        def register(function: F) -> F:
            gives_lists = self.settings.consume_message_batch_max_size > 1
            registered = Listener(function, batch=gives_lists, serializer=self._serializer)
            self._add_subscription(topic, expression)
            self._listeners[topic] = registered
            if self._instance is not None and self._engine is not None:
                self._instance.spawn(self._announce_change(self._instance, self._engine))
            return function

        if listener is not None:
            return register(listener)
        subscription_of(
            topic, expression, 0
        )  # refuses a wrong expression now, not when the decorator is used
        return register

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
            instance,
            self._group,
            self.settings,
            self._namespace,
            self._subscriptions,
            self._listener_of,
            self._queue_changes,
        )

    async def _start_trace(self, instance: ClientInstance) -> ConsumerTrace:
        trace = await super()._start_trace(instance)
        self._interceptors += (trace,)
        return trace

    def _listener_of(self, topic: str) -> Listener | None:
        listener = self._listeners.get(topic)
        if listener is None or not self._interceptors:
            return listener
        return InterceptedListener(listener, self._interceptors)

    async def run(self) -> None:
        """Start, consume until the process gets SIGINT or SIGTERM, then stop in good order.

        Further signals do not hurry the stop; they say how long it takes.
        """
        ended = asyncio.Event()
        with StopSignals(ended.set, self._say_stopping).on_loop():
            async with self:
                await ended.wait()

    def _say_stopping(self, seconds: float) -> None:
        """Say how long a stop takes that began this many seconds ago."""
        running = 0
        if self._engine is not None and self._engine.consumption is not None:
            running = self._engine.consumption.running_count()
        log.warning(
            "the consumer of group %s stops since %.1f s: %d listener(s) are still running and get %g s "
            "(stop_timeout_ms); then it commits and leaves",
            self._group,
            seconds,
            running,
            self.settings.stop_timeout_ms / 1000,
        )

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
        """Consume it with interceptors but, as Java does, without a trace."""
        self._running()
        interceptors = [each for each in self._interceptors if each is not self._trace]

        def listener_of(topic: str) -> Listener | None:
            listener = self._listeners.get(topic)
            return None if listener is None else InterceptedListener(listener, interceptors)

        ordered = self.settings.ordered
        return await consume_directly(listener_of, message, self._namespace, ordered=ordered)
