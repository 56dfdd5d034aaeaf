"""What a consumer does that keeps the order of each queue, whoever the broker is."""

from __future__ import annotations

import threading
from collections import defaultdict

from cometmq.client.consumer.listener import ConsumeContext, ConsumeResult
from cometmq.model.message import StoredMessage
from cometmq.model.queue import MessageQueue
from tests.behaviour.consumer_kit import Seen, numbered, push, queues_of, send, send_to
from tests.behaviour.server import Server
from tests.waiting import eventually


class Order:
    """A listener that notices when a queue is consumed by two at once, or out of order."""

    def __init__(self) -> None:
        self.by_queue: dict[int, list[int]] = defaultdict(list)
        self._inside: set[int] = set()
        self._lock = threading.Lock()
        self.at_once = 0

    def __call__(self, message: StoredMessage) -> None:
        with self._lock:
            self.at_once += message.queue_id in self._inside
            self._inside.add(message.queue_id)
            self.by_queue[message.queue_id].append(message.queue_offset)
        threading.Event().wait(0.001)
        with self._lock:
            self._inside.discard(message.queue_id)

    @property
    def distinct(self) -> int:
        return sum(len(set(offsets)) for offsets in self.by_queue.values())


async def test_order_is_kept_while_members_come_and_go(server: Server) -> None:
    """C1, C5: one member has a queue at a time, and nobody goes back behind what was done."""
    topic, group, order = await server.new_topic(queues=4), server.new_name("group"), Order()
    everything = set(await queues_of(server, topic))
    first, second = (push(server, group, ordered=True) for _ in range(2))
    for consumer in (first, second):
        consumer.subscribe(topic, listener=order)
    await send(server, topic, numbered(200))
    async with first:
        await eventually(lambda: order.distinct >= 40, "consumption has begun")
        async with second:
            await eventually(
                lambda: len(first.assignment()) == len(second.assignment()) == 2, "both members have queues"
            )
            await send(server, topic, numbered(100))
        await eventually(lambda: first.assignment() == everything, "the first member has everything again")
        await send(server, topic, numbered(100))
        await eventually(lambda: order.distinct == 400, "every message is consumed")
    assert order.at_once == 0
    for offsets in order.by_queue.values():
        assert offsets == sorted(offsets), "the order of a queue was not kept"


async def test_a_message_that_fails_holds_its_queue_and_no_other(server: Server) -> None:
    """C5."""
    topic, group = await server.new_topic(queues=2), server.new_name("group")
    failing, fine = await queues_of(server, topic)
    calls: dict[MessageQueue, list[tuple[str, int]]] = {failing: [], fine: []}

    def fails_twice(message: StoredMessage) -> None:
        calls[message.queue].append((message.body.decode(), message.reconsume_times))
        if message.body == b"a1" and message.reconsume_times < 2:
            raise ValueError("not yet")

    await send_to(server, failing, numbered(4, "a"))
    await send_to(server, fine, numbered(4, "b"))
    consumer = push(server, group, ordered=True, suspend_current_queue_time_ms=200)
    consumer.subscribe(topic, listener=fails_twice)
    async with consumer, server.admin() as admin:
        await eventually(lambda: len(calls[fine]) == 4, "the other queue goes on")
        await eventually(lambda: len(calls[failing]) == 6, "the queue goes on after the third attempt")
        await eventually(
            lambda: admin.consumer_offset(group, failing), "its offset is committed", lambda at: at == 4
        )
    assert calls[failing] == [("a0", 0), ("a1", 0), ("a1", 1), ("a1", 2), ("a2", 0), ("a3", 0)]
    assert [body for body, _ in calls[fine]] == numbered(4, "b")


async def test_a_message_that_fails_too_often_becomes_a_dead_letter_and_the_queue_goes_on(
    server: Server,
) -> None:
    """C5."""
    topic, group, seen = await server.new_topic(queues=1), server.new_name("group"), Seen()

    def fails(message: StoredMessage) -> ConsumeResult | None:
        seen(message)
        return ConsumeResult.SUSPEND if message.body == b"m1" else None

    consumer = push(server, group, ordered=True, max_reconsume_times=1, suspend_current_queue_time_ms=50)
    consumer.subscribe(topic, listener=fails)
    await send(server, topic, numbered(3))
    async with consumer, server.admin() as admin:
        await seen.reaches(4)
        dead = f"%DLQ%{group}"
        await eventually(lambda: admin.topic_route(dead), "there is a topic of dead letters")
        (queue,) = await queues_of(server, dead)
        await eventually(lambda: admin.max_offset(queue), "one dead letter is there", lambda at: at == 1)
    assert seen.bodies[:4] == ["m0", "m1", "m1", "m2"]


async def test_a_listener_may_take_the_commits_over(server: Server) -> None:
    """C5: what was not committed comes again after a roll-back."""
    topic, group, seen = await server.new_topic(queues=1), server.new_name("group"), Seen()

    def transactional(message: StoredMessage, context: ConsumeContext) -> ConsumeResult:
        seen(message)
        context.auto_commit = False
        context.suspend_ms = 50
        if message.body == b"m2" and seen.bodies.count("m2") == 1:
            return ConsumeResult.ROLLBACK
        return ConsumeResult.COMMIT if message.body == b"m3" else ConsumeResult.SUCCESS

    consumer = push(server, group, ordered=True)
    consumer.subscribe(topic, listener=transactional)
    await send(server, topic, numbered(5))
    (queue,) = await queues_of(server, topic)
    async with consumer, server.admin() as admin:
        await seen.reaches(8)
        await eventually(
            lambda: admin.consumer_offset(group, queue), "the commit is with the broker", lambda at: at == 4
        )
    assert seen.bodies[:8] == ["m0", "m1", "m2", "m0", "m1", "m2", "m3", "m4"]


async def test_coroutine_functions_keep_the_order_too(server: Server) -> None:
    """C1."""
    topic, seen = await server.new_topic(queues=1), Seen()
    consumer = push(server, server.new_name("group"), ordered=True)

    @consumer.subscribe(topic)
    async def listen(message: StoredMessage) -> None:
        seen(message)

    await send(server, topic, numbered(50))
    async with consumer:
        assert await seen.reaches(50) == numbered(50)
