"""Routes of topics: when they are forgotten, and the logical queues of static topics."""

from __future__ import annotations

import asyncio

from cometmq.client.instance.name_servers import NameServers, NameServerSource
from cometmq.client.instance.routes import NO_BROKER, Routes, static_queues
from cometmq.model.queue import MessageQueue
from cometmq.model.route import TopicRoute
from cometmq.model.topic import TopicQueueMappingInfo
from cometmq.remoting.client import RemotingClient


def info(name: str, queues: list[int], epoch: int = 1, scope: str | None = None) -> TopicQueueMappingInfo:
    ids = {number: number for number in queues}
    return TopicQueueMappingInfo("t", name, 4, epoch, scope=scope, curr_id_map=ids)


def found(*infos: TopicQueueMappingInfo) -> dict[tuple[str, int], str] | None:
    route = TopicRoute([], [], topic_queue_mapping_by_broker={each.bname: each for each in infos})
    queues = static_queues("t", route)
    assert queues is not None
    assert all(queue == MessageQueue("t", queue.broker_name, queue.queue_id) for queue in queues)
    return {(queue.broker_name, queue.queue_id): name for queue, name in queues.items()}


def test_an_ordinary_topic_has_none() -> None:
    assert static_queues("t", TopicRoute([], [])) is None
    assert static_queues("t", TopicRoute([], [], topic_queue_mapping_by_broker={})) is None


def test_each_queue_is_at_the_broker_that_claims_it() -> None:
    queues = found(info("a", [0, 1], scope="__global__"), info("b", [2], scope="__global__"))
    name = "__syslo____global__"
    assert queues == {(name, 0): "a", (name, 1): "a", (name, 2): "b", (name, 3): NO_BROKER}


def test_the_highest_epoch_has_it() -> None:
    queues = found(info("a", [0, 1, 2, 3], epoch=1), info("b", [0], epoch=2), info("c", [1], epoch=0))
    assert queues is not None
    assert [queues["__syslo____global__", number] for number in range(4)] == ["b", "a", "a", "a"]


class KnownRoutes(Routes):
    """Every topic has a route."""

    async def _ask(self, topic: str) -> TopicRoute | None:
        return TopicRoute([], [])


async def test_a_route_is_not_forgotten_before_who_asked_for_it_has_seen_it() -> None:
    """P2: routes of unused topics are dropped every now and then, also just when a look-up ends."""
    loop = asyncio.get_running_loop()
    name_servers = NameServers(NameServerSource(listed=("127.0.0.1:9876",)), RemotingClient())

    def changed(topic: str) -> None:
        loop.call_soon(routes.forget_topics, set())

    routes = KnownRoutes(name_servers, changed)
    found = await routes.for_publishing("orders", 4)
    assert found is not None
    assert not found.from_template
    routes.forget_topics(set())
    assert routes.known("orders") is None
