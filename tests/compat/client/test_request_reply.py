"""Requests and replies between our clients and Java's, over Apache's broker."""

from __future__ import annotations

import asyncio
from pathlib import Path

from cometmq.client.producer.producer import Producer
from cometmq.model.message import Message, StoredMessage
from tests.behaviour.consumer_kit import push
from tests.behaviour.server import Server
from tests.compat.apache import run_java
from tests.compat.cluster import Cluster

JAVA_SECONDS = 60.0


async def test_java_answers_us_and_we_answer_java(cluster: Cluster, tmp_path: Path) -> None:
    """P6, C6."""
    server = Server(cluster.namesrv.address)
    for_us, for_java = await server.new_topic(queues=1), await server.new_topic(queues=1)
    async with Producer(server.new_name("producers"), namesrv=server.namesrv) as producer:
        consumer = push(server, server.new_name("group"))

        @consumer.subscribe(for_us)
        async def answer(message: StoredMessage) -> None:
            await producer.reply(message, b"python says " + message.body)

        async with consumer:
            group = server.new_name("java-group")
            arguments = (server.namesrv, for_us, for_java, group)
            reply, printed = await asyncio.gather(
                producer.request(Message(for_java, b"hello"), timeout_s=JAVA_SECONDS),
                asyncio.to_thread(run_java, "RequestClient.java", *arguments, home=tmp_path),
                return_exceptions=True,
            )
    assert isinstance(reply, StoredMessage), (reply, printed)
    assert isinstance(printed, str), (reply, printed)
    assert reply.body == b"java says hello"
    assert printed.strip() == "python says hello"
