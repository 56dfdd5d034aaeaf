"""The engine of a consumer: everything that runs while the consumer does.

Rule kept here: all periodic work is one task beside the rebalancing.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from cometmq.client.consumer.assigned_queues import AssignedQueues
from cometmq.client.consumer.broker_calls import BrokerCalls
from cometmq.client.consumer.consumption import Consumption
from cometmq.client.consumer.offset_store import OffsetStore
from cometmq.client.consumer.pop.loop import PopLoops
from cometmq.client.consumer.pop.queues import PopQueues
from cometmq.client.consumer.pull_loop import PullLoops
from cometmq.client.consumer.rebalance import Rebalancer
from cometmq.client.consumer.statistics import NOTE_EVERY_S, ConsumeStatistics
from cometmq.model.queue import MessageQueue

if TYPE_CHECKING:
    from cometmq.client.instance.instance import ClientInstance


class ConsumerEngine(ABC):
    """The base of the engines of push, pop and pull consumers."""

    offsets: OffsetStore
    queues: AssignedQueues | PopQueues
    loops: PullLoops | PopLoops
    rebalancer: Rebalancer
    consumption: Consumption[Any, Any] | None = None
    """What runs listeners, in consumers that have some."""

    def __init__(self, instance: ClientInstance) -> None:
        self.started_ms = instance.clock.now_ms()
        self.statistics = ConsumeStatistics()
        self.calls = BrokerCalls(instance)
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start to rebalance and read."""
        self._spawn(self.rebalancer.run())
        self._spawn(self._housekeeping())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(work))

    async def _housekeeping(self) -> None:
        while True:
            await asyncio.sleep(NOTE_EVERY_S)
            self.statistics.note()

    @abstractmethod
    async def reset(self, offsets: dict[MessageQueue, int]) -> None:
        """Continue at other offsets."""

    @abstractmethod
    async def stop(self) -> None:
        """Wait for running listeners, and stop."""

    async def _end_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
