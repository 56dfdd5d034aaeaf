"""What a push consumer does, whoever the broker is."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

import cometmq
from cometmq.client.consumer.listener import ConsumeContext, ConsumeResult
from cometmq.client.settings import ServiceState
from cometmq.client.subscription import Sql
from cometmq.model.errors import ClientError, GroupTakenError, StateError
from cometmq.model.message import StoredMessage
from cometmq.model.names import retry_topic
from cometmq.wire.bodies.heartbeat import MessageModel
from tests.answers import now_ms
from tests.behaviour.consumer_kit import (
    FIRST,
    LAST,
    TIMESTAMP,
    Seen,
    numbered,
    pull,
    push,
    queues_of,
    send,
    send_to,
)
from tests.behaviour.server import PATIENCE_S, Server
from tests.waiting import eventually


async def committed(server: Server, group: str, topic: str) -> int:
    """The sum of the offsets that a group has committed for a topic."""
    async with server.admin() as admin:
        offsets = [await admin.consumer_offset(group, queue) for queue in await queues_of(server, topic)]
    return sum(offset or 0 for offset in offsets)


async def test_every_message_arrives_as_it_was_sent_and_its_offset_is_committed(server: Server) -> None:
    """C1, C3."""
    topic, group, seen = await server.new_topic(), server.new_name("group"), Seen()
    await send(server, topic, numbered(40), tags="paid", keys=["42"], properties={"shop": "nörd"})
    consumer = push(server, group)
    consumer.subscribe(topic, listener=seen)
    async with consumer:
        await seen.reaches(40)
        await eventually(
            lambda: committed(server, group, topic), "all offsets are committed", lambda sum_: sum_ == 40
        )
    assert sorted(seen.bodies) == sorted(numbered(40))
    message = seen.messages[0]
    assert (message.topic, message.tags, message.keys) == (topic, "paid", ("42",))
    assert message.user_properties == {"shop": "nörd"}
    assert message.reconsume_times == 0


async def test_a_group_goes_on_where_it_stopped(server: Server) -> None:
    """C3."""
    topic, group = await server.new_topic(), server.new_name("group")
    for round_ in ("first", "second"):
        seen = Seen()
        await send(server, topic, numbered(10, round_))
        consumer = push(server, group)
        consumer.subscribe(topic, listener=seen)
        async with consumer:
            await seen.reaches(10)
        assert sorted(seen.bodies) == sorted(numbered(10, round_))


async def test_members_that_come_and_go_share_the_queues_and_lose_nothing(server: Server) -> None:
    """C2."""
    topic, group, seen = await server.new_topic(queues=6), server.new_name("group"), Seen()
    everything = set(await queues_of(server, topic))
    first, second, third = (push(server, group) for _ in range(3))
    for consumer in (first, second, third):
        consumer.subscribe(topic, listener=seen)
    async with first:
        await eventually(lambda: first.assignment() == everything, "one member has all queues")
        await send(server, topic, numbered(30, "alone"))
        async with second, third:
            members = (first, second, third)
            await eventually(
                lambda: sorted(len(each.assignment()) for each in members) == [2, 2, 2],
                "three members have two queues each",
            )
            assert first.assignment() | second.assignment() | third.assignment() == everything
            await send(server, topic, numbered(30, "three"))
        await eventually(lambda: first.assignment() == everything, "the one that stays has all queues again")
        await send(server, topic, numbered(30, "again"))
        wanted = {*numbered(30, "alone"), *numbered(30, "three"), *numbered(30, "again")}
        await eventually(lambda: set(seen.bodies) == wanted, "every message is consumed")


async def test_a_spare_member_gets_no_queue(server: Server) -> None:
    """C2."""
    topic, group = await server.new_topic(queues=1), server.new_name("group")
    first, second = push(server, group), push(server, group)
    for consumer in (first, second):
        consumer.subscribe(topic, listener=Seen())
    async with first, second:
        members = (first, second)
        await eventually(
            lambda: (
                sorted(len(each.assignment()) for each in members) == [0, 1]
                and len({each.client_id for each in members}) == 2
            ),
            "one member has the queue",
        )


async def test_broadcasting_gives_every_member_everything_and_remembers_where_it_was(
    server: Server, tmp_path: Path
) -> None:
    """C1, C3."""
    topic, group = await server.new_topic(), server.new_name("group")

    async def consume(name: str, wanted: set[str]) -> list[str]:
        seen = Seen()
        consumer = push(
            server,
            group,
            message_model=MessageModel.BROADCASTING,
            instance_name=name,
            local_offset_folder=tmp_path,
        )
        consumer.subscribe(topic, listener=seen)
        async with consumer:
            await eventually(lambda: set(seen.bodies) >= wanted, f"{name} has everything")
        return seen.bodies

    await send(server, topic, numbered(12, "early"))
    both = await asyncio.gather(*(consume(name, set(numbered(12, "early"))) for name in ("one", "two")))
    assert [sorted(bodies) for bodies in both] == [sorted(numbered(12, "early"))] * 2
    await send(server, topic, numbered(5, "late"))
    assert sorted(await consume("one", set(numbered(5, "late")))) == numbered(5, "late")


async def test_a_message_that_fails_comes_again_and_becomes_a_dead_letter(server: Server) -> None:
    """C5."""
    topic, group = await server.new_topic(queues=1), server.new_name("group")
    attempts: list[tuple[int, str, float]] = []

    def always_fails(message: StoredMessage, context: ConsumeContext) -> None:
        attempts.append((message.reconsume_times, message.topic, time.monotonic()))
        context.delay_level = 1
        raise ValueError("cannot be billed")

    consumer = push(server, group, max_reconsume_times=2)
    consumer.subscribe(topic, listener=always_fails)
    (receipt,) = await send(server, topic, ["bad"])
    dead = f"%DLQ%{group}"
    async with consumer, server.admin() as admin:
        await eventually(lambda: len(attempts) == 3, "the message was tried three times")
        await eventually(lambda: admin.topic_route(dead), "there is a topic of dead letters")
        (queue,) = await queues_of(server, dead)
        await eventually(lambda: admin.max_offset(queue), "one dead letter is there", lambda at: at == 1)
        await eventually(lambda: committed(server, group, topic), "the group is past it", lambda at: at == 1)
    assert [(times, name) for times, name, _ in attempts] == [(0, topic), (1, topic), (2, topic)]
    assert attempts[1][2] - attempts[0][2] >= 0.9
    async with pull(server, server.new_name("readers")) as reader:
        (letter,) = (await reader.pull(queue, 0)).messages
    assert (letter.body, letter.properties["RETRY_TOPIC"]) == (b"bad", topic)
    assert letter.properties["ORIGIN_MESSAGE_ID"] in (receipt.offset_msg_id, receipt.msg_id)


async def test_what_a_listener_says_decides_about_a_message(server: Server) -> None:
    """C5: returning acknowledges, RECONSUME_LATER does not; delay level -1 makes a dead letter at once."""
    topic, group, calls = await server.new_topic(queues=1), server.new_name("group"), Seen()

    def decides(message: StoredMessage, context: ConsumeContext) -> ConsumeResult | None:
        calls(message)
        if message.body == b"m1" and message.reconsume_times == 0:
            context.delay_level = 1
            return ConsumeResult.RECONSUME_LATER
        if message.body == b"m2":
            context.delay_level = -1
            return ConsumeResult.RECONSUME_LATER
        return None

    consumer = push(server, group)
    consumer.subscribe(topic, listener=decides)
    await send(server, topic, numbered(4))
    async with consumer, server.admin() as admin:
        assert sorted(await calls.reaches(5)) == ["m0", "m1", "m1", "m2", "m3"]
        dead = f"%DLQ%{group}"
        await eventually(lambda: admin.topic_route(dead), "the dead letter is there")
        (queue,) = await queues_of(server, dead)
        await eventually(lambda: admin.max_offset(queue), "one dead letter is there", lambda at: at == 1)


async def test_coroutine_functions_are_listeners_too(server: Server) -> None:
    """C1."""
    topic, seen = await server.new_topic(), Seen()

    consumer = push(server, server.new_name("group"))

    @consumer.subscribe(topic)
    async def listen(message: StoredMessage) -> None:
        await asyncio.sleep(0)  # other listeners go on meanwhile
        seen(message)

    await send(server, topic, numbered(30))
    async with consumer:
        assert sorted(await seen.reaches(30)) == sorted(numbered(30))


async def test_a_listener_of_batches_gets_lists_and_may_do_a_part_of_one(server: Server) -> None:
    """C5."""
    topic, group = await server.new_topic(queues=1), server.new_name("group")
    batches: list[list[str]] = []
    await send(server, topic, numbered(8))

    def half(messages: Sequence[StoredMessage], context: ConsumeContext) -> None:
        batches.append([message.body.decode() for message in messages])
        if messages[0].reconsume_times == 0:
            context.delay_level = 1
            context.done_count = len(messages) // 2

    consumer = push(server, group, consume_message_batch_max_size=4)
    consumer.subscribe(topic, listener=half)
    async with consumer:
        await eventually(lambda: sum(map(len, batches)) == 12, "the second halves came again")
    assert sorted(batches[:2]) == [["m0", "m1", "m2", "m3"], ["m4", "m5", "m6", "m7"]]
    assert sorted(itertools.chain(*batches[2:])) == ["m2", "m3", "m6", "m7"]


async def test_tags_are_compared_as_texts_also_where_their_hashes_are_equal(server: Server) -> None:
    """B8: Java gives "Aa" and "BB" the same hash."""
    topic, seen = await server.new_topic(), Seen()
    for tag in ("Aa", "BB", "paid", "other"):
        await send(server, topic, numbered(3, tag), tags=tag)
    consumer = push(server, server.new_name("group"))
    consumer.subscribe(topic, "Aa || paid", listener=seen)
    async with consumer:
        assert sorted(await seen.reaches(6)) == sorted([*numbered(3, "Aa"), *numbered(3, "paid")])


async def test_sql_selects_messages_by_their_properties(server: Server) -> None:
    """B8."""
    topic, seen = await server.new_topic(), Seen()
    for amount in (5, 50, 500):
        await send(server, topic, [f"of {amount}"], properties={"amount": str(amount), "region": "EU"})
    consumer = push(server, server.new_name("group"))
    consumer.subscribe(topic, Sql("amount > 10 AND region = 'EU'"), listener=seen)
    async with consumer:
        assert sorted(await seen.reaches(2)) == ["of 50", "of 500"]


async def test_sql_that_no_broker_understands_is_refused_at_the_start(server: Server) -> None:
    """B8."""
    topic = await server.new_topic()
    consumer = push(server, server.new_name("group"))
    consumer.subscribe(topic, Sql("amount >> 10"), listener=Seen())
    with pytest.raises(ClientError, match="refused"):
        await consumer.start()


async def test_a_new_group_begins_at_a_time_if_told_so(server: Server) -> None:
    """C3."""
    topic, seen = await server.new_topic(queues=1), Seen()
    (queue,) = await queues_of(server, topic)
    await send(server, topic, numbered(3, "old"))
    await server.stored(queue, 3)
    async with pull(server, server.new_name("readers")) as reader:
        last = (await reader.pull(queue, 0)).messages[-1]
    await eventually(lambda: now_ms() > last.store_timestamp_ms, "the clock has gone on")
    await send(server, topic, numbered(3, "new"))
    after_ms = last.store_timestamp_ms + 1
    group = server.new_name("group")
    consumer = push(server, group, consume_from_where=TIMESTAMP, consume_timestamp_ms=after_ms)
    consumer.subscribe(topic, listener=seen)
    async with consumer:
        assert sorted(await seen.reaches(3)) == numbered(3, "new")


async def test_a_new_group_that_begins_at_the_end_gets_what_comes_after_its_start(server: Server) -> None:
    """C3: a broker may still give it everything of a queue that has never lost a message."""
    topic, seen = await server.new_topic(queues=1), Seen()
    await send(server, topic, numbered(3, "old"))
    consumer = push(server, server.new_name("group"), consume_from_where=LAST)
    consumer.subscribe(topic, listener=seen)
    async with consumer:
        await eventually(lambda: len(consumer.assignment()) == 1, "the queue is assigned")
        await send(server, topic, numbered(3, "new"))
        await eventually(lambda: set(seen.bodies) >= set(numbered(3, "new")), "the new messages are consumed")


async def test_a_stop_finishes_what_listeners_have_and_leaves_the_rest_to_others(server: Server) -> None:
    """C5."""
    topic, group = await server.new_topic(queues=1), server.new_name("group")
    await send(server, topic, numbered(20))
    begun, go_on, first_seen = threading.Event(), threading.Event(), Seen()

    def slow(message: StoredMessage) -> None:
        begun.set()
        go_on.wait()
        first_seen(message)

    first = push(server, group, consume_threads=2)
    first.subscribe(topic, listener=slow)
    await first.start()
    await eventually(begun.is_set, "the listener has a message")
    stopping = asyncio.create_task(first.stop())
    await eventually(lambda: first.state is ServiceState.STOPPED, "the stop has begun")
    go_on.set()
    await stopping
    finished = first_seen.bodies
    assert 1 <= len(finished) < 20, "only what the listener had was finished"
    second_seen = Seen()
    second = push(server, group)
    second.subscribe(topic, listener=second_seen)
    async with second:
        await eventually(
            lambda: {*second_seen.bodies, *finished} == set(numbered(20)), "the rest went to another member"
        )


async def test_a_stuck_listener_does_not_hold_up_other_messages(server: Server) -> None:
    """C1, C3: and the offset does not pass the message that is stuck."""
    topic, group = await server.new_topic(queues=2), server.new_name("group")
    free, seen = threading.Event(), Seen()

    def may_hang(message: StoredMessage) -> None:
        if message.body == b"stuck":
            free.wait()
        seen(message)

    stuck_queue, other_queue = await queues_of(server, topic)
    await send_to(server, stuck_queue, ["stuck", *numbered(10, "behind")])
    await send_to(server, other_queue, numbered(10, "beside"))
    consumer = push(server, group, consume_threads=4)
    consumer.subscribe(topic, listener=may_hang)
    async with consumer, server.admin() as admin:
        await seen.reaches(20)
        assert "stuck" not in seen.bodies
        offset = admin.consumer_offset
        await eventually(lambda: offset(group, other_queue), "one queue is done", lambda at: at == 10)
        assert await offset(group, stuck_queue) in (None, 0)
        free.set()
        await eventually(lambda: offset(group, stuck_queue), "so is the other", lambda at: at == 11)


async def test_slow_consumption_holds_back_pulling(server: Server) -> None:
    """C4."""
    topic, group = await server.new_topic(queues=1), server.new_name("group")
    await send(server, topic, numbered(120))
    free, begun, seen = threading.Event(), threading.Event(), Seen()

    def waits(message: StoredMessage) -> None:
        begun.set()
        free.wait()
        seen(message)

    consumer = push(server, group, pull_threshold_for_queue=10, pull_batch_size=8)
    consumer.subscribe(topic, listener=waits)
    async with consumer:
        await eventually(begun.is_set, "the listener has a message")
        (queue,) = await queues_of(server, topic)
        info = (await consumer.running_info(with_stacks=False)).mq_table
        await eventually(
            lambda: consumer._running().queues.table[queue].flow_control_times > 0, "pulling waits"
        )
        held = len(consumer._running().queues.table[queue].messages)
        assert queue in info
        assert 10 < held <= 10 + 8
        free.set()
        assert sorted(await seen.reaches(120)) == sorted(numbered(120))


async def test_subscriptions_may_change_while_a_consumer_runs(server: Server) -> None:
    first, second, seen = await server.new_topic(), await server.new_topic(), Seen()
    consumer = push(server, server.new_name("group"))
    consumer.subscribe(first, listener=seen)
    await send(server, second, numbered(5, "second"))
    async with consumer:
        consumer.subscribe(second, listener=seen)
        assert sorted(await seen.reaches(5)) == numbered(5, "second")
        await consumer.unsubscribe(second)
        assert {queue.topic for queue in consumer.assignment()} <= {first}


async def test_a_namespace_is_invisible_to_the_application(server: Server) -> None:
    topic, group, seen = server.new_name("topic"), server.new_name("group"), Seen()
    async with server.admin() as admin:
        await admin.create_topic(f"inst%{topic}", queues=1)
    consumer = push(server, group, namespace="inst")
    consumer.subscribe(topic, listener=seen)
    await send(server, f"inst%{topic}", ["hello"])
    async with consumer:
        await seen.reaches(1)
        assert {queue.topic for queue in consumer.assignment()} == {topic}
        assert consumer.group == f"inst%{group}"
    assert seen.messages[0].topic == topic


async def test_a_group_is_taken_once_and_a_consumer_lives_once(server: Server) -> None:
    """C1."""
    topic, group = await server.new_topic(), server.new_name("group")
    first, second = (push(server, group, instance_name="same") for _ in range(2))
    with pytest.raises(ClientError, match="reads nothing"):
        await first.start()
    for consumer in (first, second):
        consumer.subscribe(topic, listener=Seen())
    async with first:
        with pytest.raises(GroupTakenError):
            await second.start()
    with pytest.raises(StateError):
        await first.start()
    assert retry_topic(group) in first.topics()


async def test_the_blocking_consumer_does_the_same(server: Server) -> None:
    """C1."""
    topic, group, seen = await server.new_topic(), server.new_name("group"), Seen()
    await send(server, topic, numbered(10))

    def consume() -> list[str]:
        consumer = cometmq.PushConsumer(group, namesrv=server.namesrv, consume_from_where=FIRST)
        consumer.subscribe(topic, listener=seen)
        runner = threading.Thread(target=consumer.run)
        runner.start()
        deadline = time.monotonic() + PATIENCE_S
        while len(seen.bodies) < 10 and time.monotonic() < deadline:
            threading.Event().wait(0.01)
        consumer.stop()
        runner.join(20)
        assert not runner.is_alive()
        return seen.bodies

    assert sorted(await asyncio.to_thread(consume)) == numbered(10)
