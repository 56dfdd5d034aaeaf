"""What a pull consumer does, whoever the broker is."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import UTC, datetime

import pytest

import cometmq
from cometmq.client.consumer.pull import PullConsumer
from cometmq.client.subscription import Sql
from cometmq.model.errors import ClientError, StateError
from cometmq.model.message import StoredMessage
from tests.behaviour.consumer_kit import numbered, pull, queues_of, send, send_to
from tests.behaviour.server import PATIENCE_S, Server
from tests.waiting import eventually


async def polled(consumer: PullConsumer, count: int) -> list[str]:
    """Poll until this many messages have come."""
    bodies: list[str] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(bodies) < count:
            bodies += texts(await consumer.poll(1.0))
    return bodies


def texts(messages: list[StoredMessage]) -> list[str]:
    return [message.body.decode() for message in messages]


async def test_two_members_poll_the_topic_they_share(server: Server) -> None:
    """C1, C2: lite pull."""
    topic, group = await server.new_topic(queues=4), server.new_name("group")
    async with pull(server, group) as first, pull(server, group) as second:
        await first.subscribe(topic)
        await second.subscribe(topic)
        await eventually(
            lambda: len(first.assignment()) == len(second.assignment()) == 2, "both members have queues"
        )
        assert first.assignment().isdisjoint(second.assignment())
        receipts = await send(server, topic, numbered(40))
        shares = [sum(each.queue in one.assignment() for each in receipts) for one in (first, second)]
        both = await asyncio.gather(polled(first, shares[0]), polled(second, shares[1]))
    assert min(shares) > 0
    assert sorted(both[0] + both[1]) == sorted(numbered(40))


async def test_what_was_polled_is_committed_and_not_given_again(server: Server) -> None:
    """C3."""
    topic, group = await server.new_topic(queues=2), server.new_name("group")
    await send(server, topic, numbered(10, "first"))
    async with pull(server, group) as consumer:
        await consumer.subscribe(topic)
        await polled(consumer, 10)
    await send(server, topic, numbered(10, "second"))
    async with pull(server, group) as consumer:
        await consumer.subscribe(topic)
        assert sorted(await polled(consumer, 10)) == sorted(numbered(10, "second"))


async def test_what_was_polled_last_is_not_committed_when_the_work_on_it_fails(server: Server) -> None:
    """C3."""
    topic, group = await server.new_topic(queues=1), server.new_name("group")
    await send(server, topic, numbered(3))

    async def fail_after_polling() -> None:
        async with pull(server, group) as consumer:
            await consumer.subscribe(topic)
            await polled(consumer, 3)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail_after_polling()
    async with pull(server, group) as consumer:
        await consumer.subscribe(topic)
        assert await polled(consumer, 3) == numbered(3)


async def test_assigned_queues_are_read_sought_paused_and_committed(server: Server) -> None:
    """C1: lite pull with queues of one's own."""
    topic, group = await server.new_topic(queues=2), server.new_name("group")
    one, other = await queues_of(server, topic)
    await send_to(server, one, numbered(20, "a"))
    await send_to(server, other, numbered(20, "b"))
    async with pull(server, group, auto_commit=False) as consumer:
        await consumer.assign([one])
        assert consumer.assignment() == {one}
        assert await polled(consumer, 20) == numbered(20, "a")
        await consumer.seek(one, 15)
        assert await polled(consumer, 5) == numbered(20, "a")[15:]
        await consumer.seek_to_beginning(one)
        assert (await polled(consumer, 1))[0] == "a0"
        await consumer.seek_to_end(one)
        assert await consumer.poll(0.05) == []
        with pytest.raises(ClientError, match="between 0 and 20"):
            await consumer.seek(one, 21)
        with pytest.raises(ClientError, match="not assigned"):
            await consumer.seek(other, 0)

        await consumer.assign([one, other])
        assert await polled(consumer, 20) == numbered(20, "b")
        consumer.pause([other])
        await consumer.seek_to_beginning(other)
        assert await consumer.poll(0.2) == []
        consumer.resume([other])
        assert await polled(consumer, 20) == numbered(20, "b")

        assert await consumer.committed(other) is None
        await consumer.commit()
        assert await consumer.committed(other) == 20
        await consumer.commit({one: 7})
        assert await consumer.committed(one) == 7
    async with pull(server, group) as consumer:
        await consumer.assign([one])
        assert (await polled(consumer, 13))[:13] == numbered(20, "a")[7:]


async def test_queues_and_topics_are_sought_by_time_beginning_and_end(server: Server) -> None:
    """C1, C3."""
    topic, group = await server.new_topic(queues=2), server.new_name("group")
    one, other = await queues_of(server, topic)
    for queue in (one, other):
        await send_to(server, queue, numbered(3, f"{queue.queue_id}old"))
    sent_ns = time.time_ns()
    await eventually(lambda: time.time_ns() > sent_ns + 10_000_000, "it is another millisecond")
    for queue in (one, other):
        await send_to(server, queue, [f"{queue.queue_id}new"])
    async with pull(server, group, auto_commit=False) as consumer:
        await consumer.assign([one, other])
        first_new = min([(await consumer.pull(queue, 3)).messages[0] for queue in (one, other)], key=_stored)
        when = datetime.fromtimestamp(first_new.store_timestamp_ms / 1000, UTC)
        await consumer.seek_to_time(topic, when)
        assert sorted(await polled(consumer, 2)) == ["0new", "1new"]
        await consumer.seek_to_beginning(topic)
        assert len(await polled(consumer, 8)) == 8
        await consumer.seek_to_time(one, first_new.store_timestamp_ms)
        assert await polled(consumer, 1) == [f"{one.queue_id}new"]
        await consumer.seek_to_beginning(topic)
        await consumer.seek_to_end(topic)
        assert await consumer.poll(0.05) == []
        with pytest.raises(ClientError, match="looks like seconds"):
            await consumer.seek_to_time(topic, first_new.store_timestamp_ms // 1000)
        with pytest.raises(ClientError, match="no queue of topic elsewhere is assigned"):
            await consumer.seek_to_end("elsewhere")


def _stored(message: StoredMessage) -> int:
    return message.store_timestamp_ms


async def test_a_poll_waits_for_messages_and_gives_up_in_time(server: Server) -> None:
    topic, group = await server.new_topic(queues=1), server.new_name("group")
    async with pull(server, group) as consumer:
        await consumer.assign(await queues_of(server, topic))
        assert await consumer.poll(0.05) == []
        waiting = asyncio.create_task(consumer.poll(PATIENCE_S))
        await send(server, topic, ["late"])
        assert texts(await waiting) == ["late"]


async def test_tags_and_sql_select_what_is_polled(server: Server) -> None:
    """B8."""
    topic = await server.new_topic(queues=1)
    await send(server, topic, ["big"], tags="paid", properties={"amount": "500"})
    await send(server, topic, ["small"], tags="open", properties={"amount": "5"})
    queues = await queues_of(server, topic)
    async with pull(server, server.new_name("group")) as consumer:
        await consumer.assign(queues, "paid")
        assert await polled(consumer, 1) == ["big"]
    async with pull(server, server.new_name("group")) as consumer:
        await consumer.subscribe(topic, Sql("amount < 100"))
        assert await polled(consumer, 1) == ["small"]


async def test_a_queue_is_pulled_at_any_offset(server: Server) -> None:
    """C1: pull."""
    topic = await server.new_topic(queues=1)
    (queue,) = await queues_of(server, topic)
    await send(server, topic, numbered(10))
    await server.stored(queue, 10)
    async with pull(server, server.new_name("group")) as consumer:
        assert await consumer.queues(topic) == [queue]
        reply = await consumer.pull(queue, 4, max_count=3)
        assert (texts(list(reply.messages)), reply.next_offset) == (numbered(10)[4:7], 7)
        assert (reply.min_offset, reply.max_offset) == (0, 10)
        beyond = await consumer.pull(queue, 100)
        assert (list(beyond.messages), beyond.offset_illegal, beyond.next_offset) == ([], True, 10)
        at_end = await consumer.pull(queue, 10)
        assert (list(at_end.messages), at_end.offset_illegal) == ([], False)
        waiting = asyncio.create_task(consumer.pull(queue, 10, wait=True))
        await send(server, topic, ["late"])
        assert texts(list((await waiting).messages)) == ["late"]
        assert await consumer.search_offset(queue, reply.messages[0].store_timestamp_ms) <= 4


async def test_a_pulled_message_is_sent_back_to_the_retry_topic(server: Server) -> None:
    """C5."""
    topic, group = await server.new_topic(queues=1), server.new_name("group")
    (queue,) = await queues_of(server, topic)
    await send(server, topic, ["again"])
    await server.stored(queue, 1)
    async with pull(server, group) as consumer, server.admin() as admin:
        await consumer.assign([queue])
        (message,) = (await consumer.pull(queue, 0)).messages
        await consumer.send_back(message, delay_level=1)
        retries = f"%RETRY%{group}"
        await eventually(lambda: admin.topic_route(retries), "there is a retry topic")
        (retry_queue,) = await consumer.queues(retries)
        await eventually(lambda: admin.max_offset(retry_queue), "the message is back", lambda at: at == 1)
        (copy,) = (await consumer.pull(retry_queue, 0)).messages
    assert (copy.body, copy.reconsume_times, copy.properties["RETRY_TOPIC"]) == (b"again", 1, topic)


async def test_a_message_is_sent_back_with_a_level_that_brokers_have(server: Server) -> None:
    topic, group = await server.new_topic(queues=1), server.new_name("group")
    await send(server, topic, ["x"])
    async with pull(server, group) as consumer:
        await consumer.subscribe(topic)
        (message,) = await consumer.poll(PATIENCE_S)
        with pytest.raises(ClientError, match="delay_level is 10000; levels are whole numbers"):
            await consumer.send_back(message, 10_000)


async def test_sharing_and_assigning_exclude_each_other(server: Server) -> None:
    topic = await server.new_topic(queues=1)
    queues = await queues_of(server, topic)
    async with pull(server, server.new_name("group")) as consumer:
        await consumer.assign(queues)
        with pytest.raises(ClientError, match="cannot share"):
            await consumer.subscribe(topic)
    async with pull(server, server.new_name("group")) as consumer:
        await consumer.subscribe(topic)
        with pytest.raises(ClientError, match="shares topics"):
            await consumer.assign(queues)
    with pytest.raises(StateError):
        await consumer.poll()


async def looped(consumer: PullConsumer, count: int) -> list[str]:
    """Loop until this many messages have come, and break."""
    bodies: list[str] = []
    async with asyncio.timeout(PATIENCE_S):
        async for message in consumer:
            bodies.append(message.body.decode())
            if len(bodies) == count:
                break
    return bodies


async def test_a_loop_gets_every_message_and_commits_those_it_has_finished(server: Server) -> None:
    """C1, C3: a message is finished when the loop asks for the next."""
    topic, group = await server.new_topic(queues=1), server.new_name("group")
    (queue,) = await queues_of(server, topic)
    await send(server, topic, numbered(12))
    async with pull(server, group) as consumer:
        await consumer.subscribe(topic)
        assert await looped(consumer, 5) == numbered(12)[:5]
    async with pull(server, group) as consumer:
        await consumer.subscribe(topic)
        assert await looped(consumer, 2) == numbered(12)[4:6], (
            "the message at which the loop broke comes again"
        )
        assert await looped(consumer, 1) == numbered(12)[6:7], "but not within one consumer"
        await consumer.commit()
        assert await consumer.committed(queue) == 7, "a commit covers the message that the loop has"
        assert texts(await consumer.poll(PATIENCE_S, max_count=2)) == numbered(12)[7:9]
        await consumer.seek(queue, 10)
        assert await looped(consumer, 2) == numbered(12)[10:]


async def test_a_loop_that_fails_commits_what_it_has_finished(server: Server) -> None:
    """C3."""
    topic, group = await server.new_topic(queues=1), server.new_name("group")
    await send(server, topic, numbered(4))

    async def fail_at(body: bytes) -> None:
        async with pull(server, group) as consumer:
            await consumer.subscribe(topic)
            async for message in consumer:
                if message.body == body:
                    raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail_at(b"m2")
    async with pull(server, group) as consumer:
        await consumer.subscribe(topic)
        assert await looped(consumer, 2) == numbered(4)[2:]


async def test_a_loop_ends_when_its_consumer_stops(server: Server) -> None:
    topic, group = await server.new_topic(queues=1), server.new_name("group")
    await send(server, topic, ["only"])
    consumer = pull(server, group)
    with pytest.raises(StateError, match="not started"):
        aiter(consumer)
    async with consumer:
        with pytest.raises(ClientError, match="subscribe to a topic, or assign queues"):
            aiter(consumer)
        await consumer.subscribe(topic)
        got: list[StoredMessage] = []

        async def read() -> None:
            async for message in consumer:
                got.append(message)  # noqa: PERF401 - seen while the loop runs

        reading = asyncio.create_task(read())
        await eventually(lambda: len(got) == 1, "the message is read")
    async with asyncio.timeout(PATIENCE_S):
        await reading
    async with pull(server, group) as consumer:
        await consumer.subscribe(topic)
        assert await consumer.poll(0.5) == [], "the loop asked for more, so the message is finished"


async def test_a_loop_that_waits_commits_what_it_has_finished(server: Server) -> None:
    """C3: every `auto_commit_interval_ms`."""
    topic, group = await server.new_topic(queues=1), server.new_name("group")
    (queue,) = await queues_of(server, topic)
    await send(server, topic, numbered(3))
    async with pull(server, group, auto_commit_interval_ms=1_000) as consumer:
        await consumer.subscribe(topic)
        reading = asyncio.create_task(looped(consumer, 4))
        await eventually(lambda: consumer.committed(queue), "all three are committed", lambda at: at == 3)
        await send(server, topic, ["last"])
        assert len(await reading) == 4


async def test_one_loop_reads_a_consumer_at_a_time(server: Server) -> None:
    topic, group = await server.new_topic(queues=1), server.new_name("group")
    await send(server, topic, numbered(4))
    async with pull(server, group) as consumer:
        await consumer.subscribe(topic)
        older = aiter(consumer)
        assert (await anext(older)).body == b"m0"
        assert await looped(consumer, 2) == ["m1", "m2"]
        with pytest.raises(ClientError, match="another loop"):
            await anext(older)


async def test_a_queue_is_given_away_with_the_offset_of_what_is_finished(server: Server) -> None:
    """C2, C3: and what was read of it before is no obstacle to later commits."""
    topic, group = await server.new_topic(queues=2), server.new_name("group")
    queues = await queues_of(server, topic)
    for queue in queues:
        await send_to(server, queue, numbered(5))
    async with pull(server, group, auto_commit_interval_ms=600_000) as first:
        await first.subscribe(topic)
        assert len(await looped(first, 10)) == 10
        assert await first.poll(0.05) == []
        assert [await first.committed(queue) for queue in queues] == [None, None]
        async with pull(server, group) as second:
            await second.subscribe(topic)
            (lost,) = await eventually(
                lambda: set(queues) - first.assignment(), "a queue is given away", lambda gone: len(gone) == 1
            )
            await eventually(lambda: first.committed(lost), "its offset is committed", lambda at: at == 5)
            await first.commit()
            (kept,) = first.assignment()
            assert await first.committed(kept) == 5


async def test_the_blocking_pull_consumer_loops_the_same_way(server: Server) -> None:
    """C1, C3."""
    topic, group = await server.new_topic(queues=1), server.new_name("group")
    await send(server, topic, numbered(30))

    def consume(count: int) -> list[str]:
        with cometmq.PullConsumer(group, namesrv=server.namesrv, consume_from_where="earliest") as consumer:
            consumer.subscribe(topic)
            bodies: list[str] = []
            for message in consumer:
                bodies.append(message.body.decode())
                if len(bodies) == count:
                    break
            return bodies

    def consume_until_stopped() -> list[str]:
        consumer = cometmq.PullConsumer(group, namesrv=server.namesrv)
        bodies: list[str] = []
        with consumer:
            consumer.subscribe(topic)
            for message in consumer:
                bodies.append(message.body.decode())
                if len(bodies) == 8:
                    threading.Thread(target=consumer.stop).start()
        return bodies

    assert await asyncio.to_thread(consume, 23) == numbered(30)[:23]
    assert await asyncio.to_thread(consume_until_stopped) == numbered(30)[22:]


async def test_no_offset_goes_back_when_a_consumer_ends(server: Server) -> None:
    """C5: neither after a seek and a poll, nor after a commit in a loop."""
    topic, group = await server.new_topic(queues=1), server.new_name("group")
    (queue,) = await queues_of(server, topic)
    await send(server, topic, numbered(3))
    async with PullConsumer(group, namesrv=server.namesrv) as consumer:
        await consumer.assign([queue])
        await consumer.seek_to_beginning(queue)
        assert len(await consumer.poll(10, max_count=2)) == 2
    async with PullConsumer(group, namesrv=server.namesrv) as consumer:
        assert await consumer.committed(queue) == 2
        await consumer.assign([queue])
        async for message in consumer:
            assert message.queue_offset == 2
            await consumer.commit()
            break
    async with PullConsumer(group, namesrv=server.namesrv) as consumer:
        assert await consumer.committed(queue) == 3


async def test_the_blocking_pull_consumer_does_the_same(server: Server) -> None:
    """C1."""
    topic, group = await server.new_topic(queues=1), server.new_name("group")
    (queue,) = await queues_of(server, topic)
    await send(server, topic, numbered(5))

    def consume() -> list[str]:
        with cometmq.PullConsumer(group, namesrv=server.namesrv) as consumer:
            consumer.assign(consumer.queues(topic))
            consumer.seek_to_beginning(queue)
            bodies: list[str] = []
            while len(bodies) < 5:
                bodies += texts(consumer.poll(5.0))
            assert (consumer.min_offset(queue), consumer.max_offset(queue)) == (0, 5)
            consumer.commit()
            assert consumer.committed(queue) == 5
            return bodies

    assert await asyncio.to_thread(consume) == numbered(5)
