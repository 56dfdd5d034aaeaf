"""What a pop consumer does, whoever the broker is."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import msgspec
import pytest

import cometmq
from cometmq.client.consumer.listener import ConsumeContext
from cometmq.client.consumer.pop.consumer import PopConsumer
from cometmq.client.producer.producer import Producer
from cometmq.client.settings import ServiceState
from cometmq.client.subscription import Sql
from cometmq.model.errors import ClientError, ResponseError
from cometmq.model.message import Message, StoredMessage
from cometmq.model.queue import MessageQueue
from cometmq.remoting.client import RemotingClient
from cometmq.wire.codes import RequestCode, ResponseCode
from tests.behaviour.consumer_kit import FIRST, Seen, numbered, pull, queues_of, send, send_to
from tests.behaviour.server import PATIENCE_S, Server
from tests.waiting import eventually

POP_SETTINGS: Final = {"enablePropertyFilter": "true", "recallMessageEnable": "true"}
"""The settings of a broker that these cases need."""
SHORT_MS: Final = 5_000
"""The shortest time for which a consumer may have a message."""
COME_BACK_S: Final = 50.0
"""Within this time a message has come. Apache's broker wakes no pop for one that comes back: a pop that
waits, waits its 15 s."""


def pop(server: Server, group: str, **options: Any) -> PopConsumer:
    """A pop consumer that begins with the first message, and finds out quickly what to pop."""
    quick = {"consume_from_where": FIRST, "min_rebalance_interval_ms": 50, "rebalance_interval_ms": 1_000}
    return PopConsumer(group, namesrv=server.namesrv, **(quick | options))  # type: ignore[arg-type]


async def until_come(condition: Callable[[], bool], what: str) -> None:
    """Wait until messages have come, perhaps once more."""
    await eventually(condition, what, seconds=COME_BACK_S)


class Busy:
    """A listener that does not return before it is told to, and counts what it got."""

    def __init__(self) -> None:
        self.bodies: list[str] = []
        self.go_on = asyncio.Event()

    async def __call__(self, message: StoredMessage) -> None:
        self.bodies.append(message.body.decode())
        await self.go_on.wait()


async def test_every_message_arrives_as_it_was_sent(server: Server) -> None:
    """B12."""
    topic, seen = await server.new_topic(), Seen()
    await send(server, topic, numbered(100), tags="paid", keys=["42"], properties={"shop": "nörd"})
    consumer = pop(server, server.new_name("group"))
    consumer.subscribe(topic, listener=seen)
    async with consumer:
        await seen.reaches(100)
    assert sorted(seen.bodies) == sorted(numbered(100))
    message = seen.messages[0]
    assert (message.topic, message.tags, message.keys) == (topic, "paid", ("42",))
    assert message.user_properties == {"shop": "nörd"}
    assert message.reconsume_times == 0


async def test_several_consumers_share_one_queue(server: Server) -> None:
    """B12: each gets some, and none gets what another has."""
    topic, group = await server.new_topic(queues=1), server.new_name("group")
    listeners = [Busy() for _ in range(3)]
    consumers = [pop(server, group, pop_batch_nums=1, pop_threshold_for_queue=1) for _ in listeners]
    for consumer, listener in zip(consumers, listeners, strict=True):
        consumer.subscribe(topic, listener=listener)
    await send(server, topic, numbered(30))
    async with consumers[0], consumers[1], consumers[2]:
        await until_come(
            lambda: all(listener.bodies for listener in listeners), "each consumer has a message"
        )
        for listener in listeners:
            listener.go_on.set()
        await until_come(
            lambda: sum(len(each.bodies) for each in listeners) >= 30, "all messages are consumed"
        )
    assert sorted(body for listener in listeners for body in listener.bodies) == sorted(numbered(30))


async def test_what_a_crashed_consumer_had_comes_back_after_its_time_and_not_before(server: Server) -> None:
    """B12."""
    topic, group, hangs, seen = await server.new_topic(1), server.new_name("group"), Busy(), Seen()
    await send(server, topic, numbered(3))
    crashing = pop(server, group, pop_invisible_time_ms=SHORT_MS, stop_timeout_ms=0)
    crashing.subscribe(topic, listener=hangs)
    began = time.monotonic()
    async with crashing:
        await until_come(lambda: len(hangs.bodies) == 3, "the messages are popped")
    heir = pop(server, group)
    heir.subscribe(topic, listener=seen)
    async with heir:
        await until_come(lambda: bool(seen.bodies), "a message has come back")
        assert time.monotonic() - began >= SHORT_MS / 1000
        await until_come(lambda: len(seen.bodies) >= 3, "all messages have come back")
    assert sorted(seen.bodies) == numbered(3)
    assert {message.reconsume_times for message in seen.messages} == {1}
    assert {message.topic for message in seen.messages} == {topic}


async def test_what_failed_comes_back_with_its_delay_and_what_is_done_never(server: Server) -> None:
    """B12, C5."""
    topic, group = await server.new_topic(1), server.new_name("group")
    attempts: list[tuple[str, int, float]] = []
    delays_s = (2, SHORT_MS // 1000 + 1)

    def fails_twice(message: StoredMessage) -> None:
        attempts.append((message.body.decode(), message.reconsume_times, time.monotonic()))
        if message.body == b"m3" and message.reconsume_times < 2:
            raise ValueError("not yet")

    await send(server, topic, numbered(6))
    consumer = pop(server, group, pop_invisible_time_ms=SHORT_MS, retry_delays_s=delays_s)
    consumer.subscribe(topic, listener=fails_twice)
    async with consumer:
        await until_come(lambda: any(count == 1 for _, count, _ in attempts), "the message came once more")
        await until_come(lambda: any(count == 2 for _, count, _ in attempts), "the message came again")
    first, second, third = (at for body, _, at in attempts if body == "m3")
    assert second - first >= delays_s[0]
    # By now the time of all others is over, and those that are acknowledged have not come back.
    assert third - second >= delays_s[1]
    assert Counter(body for body, _, _ in attempts) == {**dict.fromkeys(numbered(6), 1), "m3": 3}


async def test_a_message_that_fails_too_often_becomes_a_dead_letter(server: Server) -> None:
    """C5."""
    topic, group = await server.new_topic(1), server.new_name("group")
    attempts: list[int] = []

    def fails(message: StoredMessage) -> None:
        attempts.append(message.reconsume_times)
        raise ValueError("cannot be billed")

    await send(server, topic, ["bad"])
    consumer = pop(server, group, max_reconsume_times=1, retry_delays_s=(1,))
    consumer.subscribe(topic, listener=fails)
    async with consumer:
        await until_come(lambda: len(attempts) == 2, "the message came once more")
        letter = await dead_letter(server, group)
    assert attempts == [0, 1]
    assert letter.body == b"bad"


async def test_a_listener_may_make_a_message_a_dead_letter_at_once(server: Server) -> None:
    """C5."""
    topic, group = await server.new_topic(1), server.new_name("group")

    def refuses(message: StoredMessage, context: ConsumeContext) -> None:
        context.delay_level = -1
        raise ValueError("cannot be billed, ever")

    await send(server, topic, ["bad"])
    consumer = pop(server, group)
    consumer.subscribe(topic, listener=refuses)
    async with consumer:
        assert (await dead_letter(server, group)).body == b"bad"


async def dead_letter(server: Server, group: str) -> StoredMessage:
    """The only dead letter of a group."""
    dead = f"%DLQ%{group}"
    async with server.admin() as admin, pull(server, server.new_name("readers")) as reader:
        route = await eventually(lambda: admin.topic_route(dead), "there are dead letters")
        assert route is not None
        queue = MessageQueue(dead, route.broker_datas[0].broker_name, 0)
        found = await eventually(
            lambda: reader.pull(queue, 0), "a letter", lambda reply: bool(reply.messages)
        )
    (letter,) = found.messages
    return letter


async def test_a_stop_finishes_what_has_begun_and_gives_the_rest_back(server: Server) -> None:
    """B12: long before its time is over."""
    topic, group, busy, seen = await server.new_topic(1), server.new_name("group"), Busy(), Seen()
    await send(server, topic, numbered(10))
    leaving = pop(server, group, consume_threads=1, pop_invisible_time_ms=300_000)
    leaving.subscribe(topic, listener=busy)
    await leaving.start()
    await eventually(lambda: bool(busy.bodies), "a listener is busy")
    stopping = asyncio.create_task(leaving.stop())
    await eventually(lambda: leaving.state is ServiceState.STOPPED, "the stop has begun")
    busy.go_on.set()
    await stopping
    assert len(busy.bodies) == 1
    staying = pop(server, group)
    staying.subscribe(topic, listener=seen)
    async with staying:
        await until_come(lambda: len(seen.bodies) >= 9, "the others have come back")
    assert sorted([*busy.bodies, *seen.bodies]) == numbered(10)


async def test_messages_are_filtered_by_tags_and_by_sql(server: Server) -> None:
    """B8, B12."""
    topic = await server.new_topic(1)
    by_tag, by_sql = Seen(), Seen()
    first, second = (pop(server, server.new_name("group")) for _ in range(2))
    first.subscribe(topic, "a || b", listener=by_tag)
    second.subscribe(topic, Sql("size > 5"), listener=by_sql)
    for tag, size in (("a", 1), ("b", 7), ("c", 9)):
        await send(server, topic, [tag], tags=tag, properties={"size": str(size)})
    async with first, second:
        await by_tag.reaches(2)
        await by_sql.reaches(2)
    assert sorted(by_tag.bodies) == ["a", "b"]
    assert sorted(by_sql.bodies) == ["b", "c"]


async def test_order_is_kept_by_all_consumers_of_a_queue_together(server: Server) -> None:
    """B12: a message that fails is tried again before the next one."""
    topic, group, lock = await server.new_topic(2), server.new_name("group"), threading.Lock()
    orders: dict[int, list[str]] = {0: [], 1: []}
    attempts: list[int] = []

    def note(message: StoredMessage) -> None:
        with lock:
            if message.body == b"m4" and message.queue_id == 0 and len(attempts) < 2:
                attempts.append(message.reconsume_times)
                raise ValueError("not yet")
            orders[message.queue_id].append(message.body.decode())

    for queue in await queues_of(server, topic):
        await send_to(server, queue, numbered(10))
    consumers = [
        pop(server, group, ordered=True, pop_batch_nums=4, suspend_current_queue_time_ms=100)
        for _ in range(2)
    ]
    for consumer in consumers:
        consumer.subscribe(topic, listener=note)
    async with consumers[0], consumers[1]:
        await until_come(lambda: sum(map(len, orders.values())) >= 20, "all messages are consumed")
    assert orders == {0: numbered(10), 1: numbered(10)}
    assert attempts == [0, 1]


async def test_a_broker_may_share_out_the_queues_between_the_consumers(server: Server) -> None:
    """B12: what was set for the group decides what each of them pops."""
    topic, group, seen = await server.new_topic(3), server.new_name("group"), Seen()
    await let_pop(server, topic, group, share_queue_num=1)
    consumers = [pop(server, group) for _ in range(3)]
    for consumer in consumers:
        consumer.subscribe(topic, listener=seen)
    await send(server, topic, numbered(30))
    async with consumers[0], consumers[1], consumers[2]:
        await until_come(
            lambda: all(
                len(queues := consumer.assignment()) == 2 and min(each.queue_id for each in queues) >= 0
                for consumer in consumers
            ),
            "each consumer pops its own queue and its neighbour's",
        )
        await seen.reaches(30)
    assert sorted(seen.bodies) == sorted(numbered(30))


async def let_pop(server: Server, topic: str, group: str, share_queue_num: int) -> None:
    """Have all brokers tell the consumers of a group to pop a topic."""
    mode = {"topic": topic, "consumerGroup": group, "mode": "POP", "popShareQueueNum": share_queue_num}
    client = RemotingClient()
    try:
        async with server.admin() as admin:
            await admin.create_group(group)
            for address in (await admin.masters()).values():
                await client.call_ok(
                    address,
                    RequestCode.SET_MESSAGE_REQUEST_MODE,
                    body=msgspec.json.encode(mode),
                    timeout_s=PATIENCE_S,
                )
    finally:
        await client.stop()


async def test_a_pop_consumer_is_traced(server: Server) -> None:
    """P6, B13."""
    topic, group, seen = await server.new_topic(1), server.new_name("group"), Seen()
    consumer = pop(server, group, enable_trace=True)
    consumer.subscribe(topic, listener=seen)
    (receipt,) = await send(server, topic, ["paid"])
    async with consumer:
        await seen.reaches(1)
    async with server.admin() as admin:
        trace = await eventually(
            lambda: admin.message_trace(receipt.msg_id),
            "the consumption is traced",
            lambda trace: any(each.success for each in trace.consumptions),
        )
    assert [each.group for each in trace.consumptions] == [group]


async def test_the_blocking_consumer_runs_until_it_is_stopped(server: Server) -> None:
    """B12."""
    topic, group, seen = await server.new_topic(), server.new_name("group"), Seen()
    await send(server, topic, numbered(10))

    def consume() -> None:
        consumer = cometmq.PopConsumer(group, namesrv=server.namesrv, consume_from_where=FIRST)
        consumer.subscribe(topic)(seen)
        runner = threading.Thread(target=consumer.run)
        runner.start()
        deadline = time.monotonic() + PATIENCE_S
        while len(seen.bodies) < 10 and time.monotonic() < deadline:
            threading.Event().wait(0.01)
        consumer.stop()
        runner.join(PATIENCE_S)
        assert not runner.is_alive()

    await asyncio.to_thread(consume)
    assert sorted(seen.bodies) == numbered(10)


# Messages that are taken back before they are due.


async def test_a_timed_message_can_be_taken_back_until_it_is_due(server: Server) -> None:
    """B6, P6: the one that was sent with it is delivered, and this one is not."""
    topic, seen = await server.new_topic(1), Seen()
    consumer = pop(server, server.new_name("group"))
    consumer.subscribe(topic, listener=seen)
    producers = server.new_name("producers")
    async with consumer, Producer(producers, namesrv=server.namesrv, enable_trace=True) as producer:
        due_ms = int(time.time() * 1000) + 4_000
        unwanted = await producer.send(Message(topic, b"unwanted", deliver_at_ms=due_ms))
        await producer.send(Message(topic, b"wanted", deliver_at_ms=due_ms))
        await producer.send(Message(topic, b"last", deliver_at_ms=due_ms + 2_000))
        assert await producer.recall(unwanted.recall_handle, topic) == unwanted.msg_id
        assert sorted(await seen.reaches(2)) == ["last", "wanted"]
        with pytest.raises(ResponseError) as refused:
            await producer.recall(unwanted.recall_handle, topic)
        assert refused.value.code == ResponseCode.ILLEGAL_OPERATION
    async with server.admin() as admin:
        trace = await eventually(
            lambda: admin.message_trace(unwanted.msg_id),
            "both recalls",
            lambda trace: len(trace.recalls) == 2,
        )
    assert [(each.group, each.topic, each.success) for each in trace.recalls] == [
        (producers, topic, True),
        (producers, topic, False),
    ]


async def test_what_is_no_handle_is_refused_before_anybody_is_asked(server: Server) -> None:
    topic = await server.new_topic(1)
    async with Producer(server.new_name("producers"), namesrv=server.namesrv) as producer:
        receipt = await producer.send(Message(topic, b"now"))
        with pytest.raises(ClientError, match="has no handle"):
            await producer.recall(receipt.recall_handle, topic)
        with pytest.raises(ClientError, match="is no handle"):
            await producer.recall("dj4gYSBi", topic)


async def test_the_blocking_producer_takes_messages_back(server: Server) -> None:
    topic = await server.new_topic(1)

    def recall() -> None:
        with cometmq.Producer(server.new_name("producers"), namesrv=server.namesrv) as producer:
            receipt = producer.send(Message(topic, b"unwanted", delay_ms=60_000))
            assert producer.recall(receipt.recall_handle, topic) == receipt.msg_id

    await asyncio.to_thread(recall)
