"""What runs inside a pop consumer between its start and its stop.

Rule kept here: a stop ends popping, gives back what listeners have not begun, waits for what they are busy
with, and sends the last acknowledgements, in this order.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from cometmq.client.consumer.broker_calls import QueueCalls
from cometmq.client.consumer.consume_statistics import ConsumeStatistics
from cometmq.client.consumer.listener import Listener
from cometmq.client.consumer.offset_store import MemoryOffsets
from cometmq.client.consumer.pop.acks import PopAcks
from cometmq.client.consumer.pop.consumption import PopConsumption
from cometmq.client.consumer.pop.loop import PopLoops
from cometmq.client.consumer.pop.queues import PopQueues, PopRebalancer
from cometmq.client.consumer.pop.requests import PopCalls, PopPlan
from cometmq.client.consumer.pop.settings import PopSettings
from cometmq.client.consumer.send_back import MessageReturns
from cometmq.model.errors import CometError
from cometmq.model.queue import MessageQueue
from cometmq.wire.bodies.heartbeat import ConsumeFromWhere, SubscriptionData

if TYPE_CHECKING:
    from cometmq.client.instance.instance import ClientInstance

log = logging.getLogger("cometmq.client")

_WAIT_MS: Final = 15_000
_NOTE_EVERY_S: Final = 5.0


class PopEngine:
    """The running parts of one pop consumer."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        settings: PopSettings,
        namespace: str,
        subscriptions: Mapping[str, SubscriptionData],
        listener_of: Callable[[str], Listener | None],
    ) -> None:
        self._settings = settings
        self.started_ms = instance.clock.now_ms()
        self.statistics = ConsumeStatistics()
        self.offsets = MemoryOffsets()
        """Always empty: the brokers alone know how far a group is."""
        calls, pops = QueueCalls(instance), PopCalls(instance, group)
        acks = PopAcks(pops)
        returns = MessageReturns(
            instance,
            calls,
            group,
            settings.send_back_limit,
            namespace=namespace,
            unit_mode=settings.unit_mode,
        )
        self.consumption = PopConsumption(group, settings, pops, acks, returns, listener_of, self.statistics)
        first = settings.consume_from_where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        self.loops = PopLoops(
            instance,
            pops,
            PopPlan(
                batch_size=settings.pop_batch_nums,
                invisible_ms=settings.pop_invisible_time_ms,
                wait_ms=_WAIT_MS,
                from_first=first,
                ordered=settings.ordered,
            ),
            settings.pop_threshold_for_queue,
            settings.pull_delay_when_exception_ms / 1000,
            subscriptions.get,
            acks,
            self.consumption,
            self.statistics,
            namespace,
        )
        self.queues = PopQueues(self.loops.begin)
        self._group, self._calls = group, calls
        self.rebalancer = PopRebalancer(
            instance, calls, pops, group, settings, subscriptions.keys, self.queues.apply
        )
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to find out what to pop, and to pop it."""
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self.rebalancer.run()),
            loop.create_task(self._keep_statistics()),
        ]

    async def _keep_statistics(self) -> None:
        while True:
            await asyncio.sleep(_NOTE_EVERY_S)
            self.statistics.note()

    async def reset(self, offsets: dict[MessageQueue, int]) -> None:
        """Let the group go on at other offsets, which the brokers know."""
        for queue, offset in offsets.items():
            try:
                await self._calls.commit(self._group, queue, offset)
            except CometError as error:
                log.warning("%s was not reset to %d: %s", queue, offset, error)

    async def stop(self) -> None:
        """Finish what listeners have; what they have not begun goes back to the brokers."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self.queues.drop_all()
        if not await self.consumption.stop(self._settings.stop_timeout_ms / 1000):
            log.warning("a listener was still busy when its consumer stopped; its messages come again")
