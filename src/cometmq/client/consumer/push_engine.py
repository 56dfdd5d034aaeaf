"""What runs inside a push consumer between its start and its stop.

Rules kept here:
- A stop gives listeners nothing more, ends rebalancing and pulls, waits for the listeners, writes the offsets
  and gives the locks back, in this order.
- Everything periodic is one task; an error in it is logged, and the next round comes all the same.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from cometmq.client.consumer.assigned_queues import AssignedQueues
from cometmq.client.consumer.broker_calls import QueueCalls
from cometmq.client.consumer.concurrent import ConcurrentConsumption
from cometmq.client.consumer.consume_statistics import ConsumeStatistics
from cometmq.client.consumer.listener import Listener
from cometmq.client.consumer.local_offsets import offset_store
from cometmq.client.consumer.orderly import OrderedConsumption
from cometmq.client.consumer.process_queue import ProcessQueue, Thresholds
from cometmq.client.consumer.pull_loop import PullLoops, PullPlan
from cometmq.client.consumer.pull_request import PullCalls, PullKind
from cometmq.client.consumer.queue_locks import QueueLocks
from cometmq.client.consumer.rebalance import Rebalancer
from cometmq.client.consumer.send_back import MessageReturns
from cometmq.client.consumer.settings import MIB, UNLIMITED, PushSettings
from cometmq.client.consumer.start_offsets import StartOffsets
from cometmq.model.message import StoredMessage
from cometmq.model.queue import MessageQueue
from cometmq.wire.bodies.heartbeat import SubscriptionData

if TYPE_CHECKING:
    from cometmq.client.instance.instance import ClientInstance

log = logging.getLogger("cometmq.client")

_SUSPEND_MS: Final = 15_000
_PULL_TIMEOUT_S: Final = 30.0
_RENEW_LOCKS_S: Final = 20.0
_LOOK_FOR_LATE_ONES_S: Final = 30.0


class Consumption(Protocol):
    """Has messages consumed."""

    def submit(self, pq: ProcessQueue, messages: Sequence[StoredMessage]) -> None: ...

    def is_busy(self, pq: ProcessQueue) -> bool: ...

    def give_back_late_ones(self) -> None: ...

    def withdraw(self) -> None: ...

    async def stop(self, timeout_s: float) -> bool: ...


class PushEngine:
    """The running parts of one push consumer."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        settings: PushSettings,
        namespace: str,
        subscriptions: Mapping[str, SubscriptionData],
        listener_of: Callable[[str], Listener | None],
    ) -> None:
        self._settings = settings
        self.started_ms = instance.clock.now_ms()
        self.statistics = ConsumeStatistics()
        calls = QueueCalls(instance)
        pulls = PullCalls(instance, calls, group)
        self.offsets = offset_store(instance.client_id, group, settings, calls)
        starts = StartOffsets(self.offsets, calls, settings, self.started_ms)
        self.thresholds = Thresholds(
            settings.pull_threshold_for_queue,
            settings.pull_threshold_size_for_queue_mib * MIB,
            None if settings.ordered else settings.consume_concurrently_max_span,
        )
        self.queues = AssignedQueues(
            self.offsets, starts, pulls, self._is_busy, self._rebalance_soon, self._queues_changed
        )
        self.rebalancer = Rebalancer(instance, calls, group, settings, subscriptions.keys, self.queues.apply)
        if settings.ordered and not settings.broadcasting:
            self.queues.locks = QueueLocks(group, calls, instance.routes, self.queues.table, self.queues.lose)
        self.returns = MessageReturns(
            instance,
            calls,
            group,
            settings.send_back_limit,
            namespace=namespace,
            unit_mode=settings.unit_mode,
        )
        self.consumption: Consumption
        if settings.ordered:
            self.consumption = OrderedConsumption(
                group, settings, self.offsets, self.returns, self.queues.locks, listener_of, self.statistics
            )
        else:
            self.consumption = ConcurrentConsumption(
                group, settings, self.offsets, self.returns, listener_of, self.statistics
            )
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
        self._tasks: list[asyncio.Task[None]] = []

    def _plan(self) -> PullPlan:
        settings = self._settings
        return PullPlan(
            kind=PullKind.PUSH,
            batch_size=settings.pull_batch_size,
            thresholds=self.thresholds,
            suspend_ms=_SUSPEND_MS,
            timeout_s=_PULL_TIMEOUT_S,
            error_pause_s=settings.pull_delay_when_exception_ms / 1000,
            wait_between_s=settings.wait_between_pulls_ms / 1000,
            max_bytes=settings.pull_batch_size_in_bytes,
            commits=not settings.broadcasting,
            needs_lock=settings.ordered and not settings.broadcasting,
            with_subscription=settings.post_subscription_when_pull,
        )

    def _queues_changed(self) -> None:
        """Give each queue its part of the limits that hold for all of them."""
        settings, queues = self._settings, max(len(self.queues.table), 1)
        if settings.pull_threshold_for_topic != UNLIMITED:
            self.thresholds.count = max(1, settings.pull_threshold_for_topic // queues)
        if settings.pull_threshold_size_for_topic_mib != UNLIMITED:
            self.thresholds.size_bytes = max(1, settings.pull_threshold_size_for_topic_mib // queues) * MIB

    def _is_busy(self, pq: ProcessQueue) -> bool:
        return self.consumption.is_busy(pq)

    def _rebalance_soon(self) -> None:
        self.rebalancer.trigger()

    def start(self) -> None:
        """Begin to share the group's queues, and to read one's own."""
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self.rebalancer.run()),
            loop.create_task(self._keep_house()),
        ]

    async def _keep_house(self) -> None:
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
                if now - looked_at >= _LOOK_FOR_LATE_ONES_S:
                    looked_at = now
                    self.consumption.give_back_late_ones()
            except Exception:
                log.exception("the housekeeping of a consumer failed")

    async def reset(self, offsets: dict[MessageQueue, int]) -> None:
        """Let the group go on at other offsets in the queues that this member reads."""
        self.rebalancer.suspend()
        try:
            await self.queues.reset(offsets)
        finally:
            self.rebalancer.resume()

    async def stop(self) -> None:
        """Finish what listeners have; what they have not begun stays with the brokers."""
        self.consumption.withdraw()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self.loops.stop()
        if not await self.consumption.stop(self._settings.stop_timeout_ms / 1000):
            log.warning("a listener was still busy when its consumer stopped; its messages come again")
        await self.queues.give_all_away()
