"""What traces of messages say, whoever the broker is."""

from __future__ import annotations

import asyncio
import json

from typer.testing import CliRunner

from cometmq.cli.main import app
from cometmq.client.consumer.listener import ConsumeContext
from cometmq.client.producer.producer import Producer
from cometmq.client.producer.transactions import TransactionProducer
from cometmq.client.trace.query import MessageTrace
from cometmq.client.trace.records import ConsumeOutcome, TraceMessageType
from cometmq.model.message import Message, StoredMessage
from tests.behaviour.consumer_kit import Seen, pull, push
from tests.behaviour.server import Server
from tests.waiting import eventually


async def traced(server: Server, msg_id: str, consumptions: int = 0, transactions: int = 0) -> MessageTrace:
    """The trace of a message, as soon as it tells of so many consumptions, from begin to end, and ends."""
    async with server.admin() as admin:
        return await eventually(
            lambda: admin.message_trace(msg_id),
            f"message {msg_id} has its trace",
            lambda trace: (
                bool(trace.sent)
                and len(trace.transactions) >= transactions
                and sum(each.began_ms is not None and each.success is not None for each in trace.consumptions)
                >= consumptions
            ),
        )


async def test_a_trace_tells_who_sent_and_who_consumed_a_message(server: Server) -> None:
    """P6, B13."""
    topic, group, seen = await server.new_topic(), server.new_name("group"), Seen()
    producers = server.new_name("producers")
    consumer = push(server, group, enable_trace=True)
    consumer.subscribe(topic, listener=seen)
    async with consumer, Producer(producers, namesrv=server.namesrv, enable_trace=True) as producer:
        receipt = await producer.send(Message(topic, b"paid", tags="t", keys=["order-7"]))
        await seen.reaches(1)
    trace = await traced(server, receipt.msg_id, 1)
    (sent,) = trace.sent
    assert (sent.group, sent.topic, sent.tags, sent.keys) == (producers, topic, "t", "order-7")
    assert (sent.offset_msg_id, sent.body_length, sent.success) == (receipt.offset_msg_id, 4, True)
    (consumption,) = trace.consumptions
    assert (consumption.group, consumption.retry_times) == (group, 0)
    assert (consumption.success, consumption.outcome) == (True, ConsumeOutcome.SUCCESS)
    assert consumption.began_ms is not None
    assert consumption.began_ms >= sent.timestamp_ms


async def test_a_trace_tells_of_failures_and_of_new_attempts(server: Server) -> None:
    """C5, P6."""
    topic, attempts = await server.new_topic(queues=1), []
    consumer = push(server, server.new_name("group"), enable_trace=True)

    @consumer.subscribe(topic)
    async def fail_once(message: StoredMessage, context: ConsumeContext) -> None:
        attempts.append(message.reconsume_times)
        context.delay_level = 1
        if not message.reconsume_times:
            raise ValueError("not yet")

    async with consumer, Producer("producers", namesrv=server.namesrv, enable_trace=True) as producer:
        receipt = await producer.send(Message(topic, b"paid"))
        await eventually(lambda: attempts == [0, 1], "the message came again")
    first, second = (await traced(server, receipt.msg_id, 2)).consumptions
    assert (first.retry_times, first.success, first.outcome) == (0, False, ConsumeOutcome.EXCEPTION)
    assert (second.retry_times, second.success) == (1, True)


async def test_ordered_and_pull_consumers_are_traced_too(server: Server) -> None:
    """C1, P6."""
    topic, seen = await server.new_topic(queues=1), Seen()
    groups = sorted(server.new_name("group") for _ in range(2))
    ordered = push(server, groups[0], enable_trace=True, ordered=True)
    ordered.subscribe(topic, listener=seen)
    async with (
        ordered,
        Producer("producers", namesrv=server.namesrv, enable_trace=True) as producer,
        pull(server, groups[1], enable_trace=True) as puller,
    ):
        await puller.subscribe(topic)
        receipt = await producer.send(Message(topic, b"paid"))
        await seen.reaches(1)
        await eventually(puller.poll, "the message is polled")
    trace = await traced(server, receipt.msg_id, 2)
    assert sorted((each.group, each.success) for each in trace.consumptions) == [
        (groups[0], True),
        (groups[1], True),
    ]


async def test_a_trace_tells_how_a_transaction_ended(server: Server) -> None:
    """P6."""
    topic = await server.new_topic(queues=1)
    async with (
        TransactionProducer(
            server.new_name("producers"), check=lambda _: None, namesrv=server.namesrv, enable_trace=True
        ) as producer,
        producer.transaction(Message(topic, b"paid")) as transaction,
    ):
        msg_id = transaction.transaction_id
    trace = await traced(server, msg_id, transactions=1)
    assert [sent.message_type for sent in trace.sent] == [TraceMessageType.HALF]
    (end,) = trace.transactions
    assert (end.state, end.from_check, end.transaction_id) == ("COMMIT_MESSAGE", False, msg_id)


async def test_each_message_of_a_batch_has_its_own_trace(server: Server) -> None:
    topic = await server.new_topic(queues=1)
    async with Producer("producers", namesrv=server.namesrv, enable_trace=True) as producer:
        receipts = await producer.send_batch([Message(topic, b"x"), Message(topic, b"y")])
    for receipt in receipts:
        (sent,) = (await traced(server, receipt.msg_id)).sent
        assert sent.offset_msg_id == receipt.offset_msg_id


async def test_the_command_prints_a_trace(server: Server) -> None:
    topic = await server.new_topic(queues=1)
    group = server.new_name("producers")
    async with Producer(group, namesrv=server.namesrv, enable_trace=True) as producer:
        receipt = await producer.send(Message(topic, b"paid"))
    await traced(server, receipt.msg_id)
    command = ["message", "trace", receipt.msg_id, "--namesrv", server.namesrv]

    plain = await asyncio.to_thread(CliRunner().invoke, app, command)
    assert plain.exit_code == 0
    assert f"sent to {topic}" in plain.output
    assert f"by {group}" in plain.output
    assert "normal, 4 bytes" in plain.output

    as_json = await asyncio.to_thread(CliRunner().invoke, app, [*command, "--json"])
    (sent,) = json.loads(as_json.output)["sent"]
    assert (sent["topic"], sent["offset_msg_id"]) == (topic, receipt.offset_msg_id)

    command[2] = "0" * 32
    nothing = await asyncio.to_thread(CliRunner().invoke, app, command)
    assert "no trace of message" in str(nothing.exception)
