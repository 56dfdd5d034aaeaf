"""The rebalancer by itself: what becomes of a topic that is left meanwhile."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

from cometmq.client.consumer.broker_calls import BrokerCalls
from cometmq.client.consumer.rebalance import Rebalancer
from cometmq.client.consumer.settings import PushSettings
from cometmq.client.instance.instance import ClientInstance
from cometmq.client.instance.troubles import Troubles
from cometmq.model.queue import MessageQueue

TOPIC = "orders"
QUEUES = [MessageQueue(TOPIC, "broker-a", number) for number in range(2)]


class Group:
    """A member that reads a topic alone; who is in the group is told when `told` is set."""

    def __init__(self) -> None:
        self.topics = {TOPIC}
        self.queues: set[MessageQueue] = set()
        self.asked, self.told = asyncio.Event(), asyncio.Event()
        self.applying, self.applied = asyncio.Event(), asyncio.Event()
        self.applied.set()
        routes = SimpleNamespace(of=self._route_of, subscribe_queues=lambda _: QUEUES)
        self.rebalancer = Rebalancer(
            cast(ClientInstance, SimpleNamespace(routes=routes, client_id="me", troubles=Troubles())),
            cast(BrokerCalls, SimpleNamespace(consumer_ids=self._consumer_ids)),
            "billing",
            PushSettings(),
            lambda: self.topics,
            self._apply,
        )

    async def _route_of(self, topic: str) -> None:
        pass

    async def _consumer_ids(self, group: str, topic: str) -> list[str]:
        self.asked.set()
        await self.told.wait()
        return ["me"]

    async def _apply(self, topic: str, wanted: set[MessageQueue]) -> bool:
        self.applying.set()
        await self.applied.wait()
        self.queues = wanted
        return True


async def test_a_topic_that_is_left_while_its_queues_are_found_out_is_not_taken_again() -> None:
    """C2."""
    group = Group()
    rebalancing = asyncio.create_task(group.rebalancer.rebalance())
    await group.asked.wait()
    group.topics.clear()
    await group.rebalancer.leave(TOPIC)
    group.told.set()
    assert await rebalancing
    assert group.queues == set()


async def test_a_topic_that_is_left_while_its_queues_are_taken_is_given_away_after_that() -> None:
    """C2."""
    group = Group()
    group.told.set()
    group.applied.clear()
    rebalancing = asyncio.create_task(group.rebalancer.rebalance())
    await group.applying.wait()
    group.topics.clear()
    leaving = asyncio.create_task(group.rebalancer.leave(TOPIC))
    await asyncio.sleep(0)
    group.applied.set()
    assert await rebalancing
    await leaving
    assert group.queues == set()
