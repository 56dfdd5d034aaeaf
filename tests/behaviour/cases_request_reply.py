"""What requests and replies do, whoever the broker is."""

from __future__ import annotations

import asyncio

import pytest

from cometmq.client.blocking import consumer as blocking_consumers
from cometmq.client.blocking import producer as blocking_producer
from cometmq.client.producer.producer import Producer
from cometmq.model.errors import CallTimeoutError, SendError
from cometmq.model.message import Message, StoredMessage
from tests.behaviour.consumer_kit import FIRST, Seen, push
from tests.behaviour.server import PATIENCE_S, Server


async def test_whoever_consumes_a_request_answers_it(server: Server) -> None:
    """P6, C6."""
    topic = await server.new_topic(queues=4)
    async with (
        Producer(server.new_name("askers"), namesrv=server.namesrv) as asker,
        Producer(server.new_name("answerers"), namesrv=server.namesrv) as answerer,
    ):
        consumer = push(server, server.new_name("group"))

        @consumer.subscribe(topic)
        async def answer(message: StoredMessage) -> None:
            await answerer.reply(message, b"re " + message.body, tags="t", properties={"shop": "x"})

        async with consumer:
            first = await asker.request(Message(topic, b"hello"), timeout_s=PATIENCE_S)
            others = await asyncio.gather(
                *(asker.request(Message(topic, b"%d" % number), timeout_s=PATIENCE_S) for number in range(20))
            )
    assert first.body == b"re hello"
    assert (first.tags, first.user_properties) == ("t", {"shop": "x"})
    assert first.topic.endswith("_REPLY_TOPIC")
    assert [reply.body for reply in others] == [b"re %d" % number for number in range(20)]


async def test_a_large_reply_comes_whole(server: Server) -> None:
    topic, body = await server.new_topic(queues=1), b"all work and no play " * 10_000
    async with Producer(server.new_name("producers"), namesrv=server.namesrv) as producer:
        consumer = push(server, server.new_name("group"))

        @consumer.subscribe(topic)
        async def answer(message: StoredMessage) -> None:
            await producer.reply(message, message.body)

        async with consumer:
            reply = await producer.request(Message(topic, body), timeout_s=PATIENCE_S)
    assert reply.body == body


async def test_a_request_that_nobody_answers_times_out(server: Server) -> None:
    """P6."""
    topic = await server.new_topic(queues=1)
    async with Producer(server.new_name("askers"), namesrv=server.namesrv) as asker:
        with pytest.raises(CallTimeoutError) as caught:
            await asker.request(Message(topic, b"hello"), timeout_s=1.5)
    assert caught.value.code == 10006


async def test_a_reply_to_a_client_that_is_gone_is_refused(server: Server) -> None:
    """P6."""
    topic, seen = await server.new_topic(queues=1), Seen()
    async with Producer(server.new_name("askers"), namesrv=server.namesrv) as asker:
        with pytest.raises(CallTimeoutError):
            await asker.request(Message(topic, b"hello"), timeout_s=1.5)
    consumer = push(server, server.new_name("group"))
    consumer.subscribe(topic, listener=seen)
    async with (
        consumer,
        Producer(server.new_name("answerers"), namesrv=server.namesrv, retry_times=0) as answerer,
    ):
        await seen.reaches(1)
        with pytest.raises(SendError) as caught:
            await answerer.reply(seen.messages[0], b"too late", timeout_s=PATIENCE_S)
    assert caught.value.code == 1


def test_the_blocking_clients_ask_and_answer(server: Server) -> None:
    """P6."""
    topic = server.new_name("topic")
    with (
        blocking_producer.Producer(server.new_name("producers"), namesrv=server.namesrv) as producer,
    ):
        consumer = blocking_consumers.PushConsumer(
            server.new_name("group"),
            namesrv=server.namesrv,
            consume_from_where=FIRST,
            min_rebalance_interval_ms=50,
            rebalance_interval_ms=200,
            poll_name_server_interval_ms=200,
        )
        consumer.subscribe(topic, listener=lambda message: producer.reply(message, b"re " + message.body))
        with consumer:
            assert producer.request(Message(topic, b"hello"), timeout_s=PATIENCE_S).body == b"re hello"
