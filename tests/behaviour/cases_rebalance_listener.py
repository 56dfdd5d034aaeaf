"""What a rebalance listener hears, whoever the broker is."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection

import pytest

import cometmq
from cometmq.client.consumer.pull import PullConsumer
from cometmq.client.consumer.rebalance import RebalanceListener
from cometmq.model.errors import SettingsError
from cometmq.model.queue import MessageQueue
from tests.behaviour.consumer_kit import Seen, numbered, pull, push, queues_of, send, send_to
from tests.behaviour.server import PATIENCE_S, Server
from tests.waiting import eventually


class Heard(RebalanceListener):
    """Remembers what it heard, and on which thread."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[MessageQueue]]] = []
        self.threads: set[str] = set()

    def on_assigned(self, queues: Collection[MessageQueue]) -> None:
        self.calls.append(("assigned", list(queues)))
        self.threads.add(threading.current_thread().name)

    def on_revoked(self, queues: Collection[MessageQueue]) -> None:
        self.calls.append(("revoked", list(queues)))

    def held(self) -> set[MessageQueue]:
        held: set[MessageQueue] = set()
        for what, queues in list(self.calls):
            if what == "assigned":
                assert held.isdisjoint(queues)
                held.update(queues)
            else:
                assert held.issuperset(queues)
                held.difference_update(queues)
        return held


@pytest.mark.parametrize("ordered", [False, True])
async def test_a_listener_hears_which_queues_come_and_go(server: Server, ordered: bool) -> None:
    """C2."""
    topic, group = await server.new_topic(queues=4), server.new_name("group")
    queues = set(await queues_of(server, topic))
    heard = Heard()
    consumer = push(server, group, ordered=ordered, rebalance_listener=heard)
    consumer.subscribe(topic, listener=Seen())
    async with consumer:
        await eventually(heard.held, "all queues are assigned", queues.__eq__)
        other = push(server, group, ordered=ordered)
        other.subscribe(topic, listener=Seen())
        async with other:
            await eventually(heard.held, "half of them are revoked", lambda held: len(held) == 2)
            await eventually(lambda: consumer.assignment() == heard.held(), "those that it reads are left")
        await eventually(heard.held, "all queues are assigned again", queues.__eq__)
    assert heard.held() == set(), "a stop revokes them all"
    assert threading.current_thread().name not in heard.threads, "a plain method runs in a thread"


class Seeking(RebalanceListener):
    """Begins with the newest two messages of each queue, and commits what it gives away."""

    def __init__(self) -> None:
        self.consumer: PullConsumer
        self.revoked: list[MessageQueue] = []

    async def on_assigned(self, queues: Collection[MessageQueue]) -> None:
        for queue in queues:
            await self.consumer.seek(queue, await self.consumer.max_offset(queue) - 2)

    async def on_revoked(self, queues: Collection[MessageQueue]) -> None:
        assert self.consumer.assignment().issuperset(queues)
        await self.consumer.commit()
        self.revoked += queues


async def test_a_pull_consumer_seeks_and_commits_in_its_listener(server: Server) -> None:
    """C2, C3: before it gets a message, and before the next owner asks for the offset."""
    topic, group = await server.new_topic(queues=1), server.new_name("group")
    (queue,) = await queues_of(server, topic)
    await send_to(server, queue, numbered(10))
    listener = Seeking()
    async with pull(server, group, auto_commit=False, rebalance_listener=listener) as consumer:
        listener.consumer = consumer
        await consumer.subscribe(topic)
        messages = await consumer.poll(PATIENCE_S)
        assert [message.body for message in messages] == [b"m8", b"m9"]
        assert await consumer.committed(queue) is None
        await consumer.unsubscribe(topic)
        assert listener.revoked == [queue]
        assert await consumer.committed(queue) == 10


async def test_a_stop_lets_the_listener_commit(server: Server) -> None:
    """C3."""
    topic, group = await server.new_topic(queues=1), server.new_name("group")
    (queue,) = await queues_of(server, topic)
    await send_to(server, queue, numbered(10))
    listener = Seeking()
    async with pull(server, group, auto_commit=False, rebalance_listener=listener) as consumer:
        listener.consumer = consumer
        await consumer.subscribe(topic)
        assert len(await consumer.poll(PATIENCE_S)) == 2
    assert listener.revoked == [queue]
    async with pull(server, group) as consumer:
        assert await consumer.committed(queue) == 10


class Broken(RebalanceListener):
    """Fails, and never ends."""

    def on_assigned(self, queues: Collection[MessageQueue]) -> None:
        raise ZeroDivisionError

    async def on_revoked(self, queues: Collection[MessageQueue]) -> None:
        await asyncio.Event().wait()


async def test_a_listener_that_fails_or_hangs_does_not_stop_rebalancing(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    topic, group = await server.new_topic(queues=2), server.new_name("group")
    seen = Seen()
    consumer = push(server, group, rebalance_listener=Broken(), rebalance_listener_timeout_ms=50)
    consumer.subscribe(topic, listener=seen)
    async with consumer:
        await send(server, topic, numbered(4))
        await seen.reaches(4)
    assert "Broken.on_assigned failed with 2 queue(s); rebalancing goes on" in caplog.text
    assert "Broken.on_revoked is not done with 2 queue(s) after 0.05 s; rebalancing goes on" in caplog.text
    with pytest.raises(SettingsError, match="derive its class from RebalanceListener"):
        push(server, group, rebalance_listener=print)


async def test_the_blocking_consumers_have_listeners_too(server: Server) -> None:
    topic, group = await server.new_topic(queues=2), server.new_name("group")
    heard = Heard()

    def consume() -> None:
        with cometmq.PullConsumer(group, namesrv=server.namesrv, rebalance_listener=heard) as consumer:
            consumer.subscribe(topic)
            consumer.poll(0.05)
            while not heard.held():
                consumer.poll(0.05)

    async with asyncio.timeout(PATIENCE_S):
        await asyncio.to_thread(consume)
    assert [what for what, _ in heard.calls] == ["assigned", "revoked"]
