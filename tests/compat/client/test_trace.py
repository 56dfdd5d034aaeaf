"""Message traces: Apache's tools read ours, and we read those of Java's client."""

from __future__ import annotations

import asyncio
from pathlib import Path

from cometmq.client.producer.producer import Producer
from cometmq.client.trace.records import TraceMessageType
from cometmq.model.message import Message
from tests.behaviour.cases_trace import traced
from tests.behaviour.consumer_kit import Seen, push
from tests.behaviour.server import Server
from tests.compat.apache import run_java
from tests.compat.cluster import Cluster
from tests.waiting import eventually


async def test_mqadmin_prints_our_traces(cluster: Cluster) -> None:
    """P6, B13."""
    server = Server(cluster.namesrv.address)
    topic, group, seen = await server.new_topic(), server.new_name("group"), Seen()
    producers = server.new_name("producers")
    consumer = push(server, group, enable_trace=True)
    consumer.subscribe(topic, listener=seen)
    async with consumer, Producer(producers, namesrv=server.namesrv, enable_trace=True) as producer:
        receipt = await producer.send(Message(topic, b"paid", tags="t", keys=["order-7"]))
        await seen.reaches(1)
    await traced(server, receipt.msg_id, 1)

    printed = await asyncio.to_thread(cluster.mqadmin, "queryMsgTraceById", "-i", receipt.msg_id)

    rows = [line.split() for line in printed.splitlines() if line.startswith(("Pub", "Sub"))]
    assert [(row[0], row[1], row[2], row[-1]) for row in rows] == [
        ("Pub", producers, "127.0.0.1", "success"),
        ("Sub", group, "127.0.0.1", "success"),
    ]


async def test_we_read_the_traces_of_the_java_client(cluster: Cluster, tmp_path: Path) -> None:
    """P6, B13."""
    server = Server(cluster.namesrv.address)
    topic = await server.new_topic(queues=1)
    producers, consumers = server.new_name("java-producers"), server.new_name("java-group")

    printed = await asyncio.to_thread(
        run_java, "TracedClient.java", server.namesrv, topic, producers, consumers, home=tmp_path
    )

    plain_id, half_id = printed.split()
    plain = await traced(server, plain_id, 1)
    (sent,) = plain.sent
    assert (sent.group, sent.topic, sent.tags, sent.keys) == (producers, topic, "paid", "order-7")
    assert (sent.message_type, sent.body_length, sent.success) == (TraceMessageType.NORMAL, 5, True)
    assert [(each.group, each.success, each.retry_times) for each in plain.consumptions] == [
        (consumers, True, 0)
    ]
    async with server.admin() as admin:
        half = await eventually(
            lambda: admin.message_trace(half_id),
            "the transaction has its trace",
            lambda trace: bool(trace.sent and trace.transactions and trace.consumptions),
        )
    assert [each.message_type for each in half.sent] == [TraceMessageType.HALF]
    assert [(each.state, each.from_check) for each in half.transactions] == [("COMMIT_MESSAGE", False)]
    assert half.transactions[0].group == f"{producers}-tx"
