"""Clients that ask for nothing odd: after a run they find everything working, on topics of their own."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any, Final

from cometmq.aio import Admin, PopConsumer, Producer, PullConsumer, PushConsumer, TransactionProducer
from cometmq.client.producer.transactions import TransactionState
from cometmq.model.message import Message, StoredMessage
from cometmq.wire.bodies.heartbeat import ConsumeFromWhere
from tests.fuzz.plausible import CLUSTER
from tests.fuzz.watch import Findings
from tests.waiting import eventually

COME_S: Final = 30.0
"""Within this time a message has come that is due in a second."""
BODIES: Final = ["delayed", "in a transaction", "plain", "timed"]
_QUICK: Final[dict[str, Any]] = {
    "consume_from_where": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    "min_rebalance_interval_ms": 50,
    "rebalance_interval_ms": 1_000,
}


async def check_service(findings: Findings, namesrv: str, name: str) -> None:
    """Send a message of each kind; one consumer is pushed them, one pops them, one pulls them."""
    topic = f"canary-{name}"
    try:
        async with asyncio.timeout(3 * COME_S):
            async with Admin(namesrv=namesrv) as admin:
                await admin.create_topic(topic, queues=2, cluster=CLUSTER)
            await _send(topic, namesrv)
            for kind, got in (
                ("push", await _listened(topic, PushConsumer(f"pushed-{topic}", namesrv=namesrv, **_QUICK))),
                ("pop", await _listened(topic, PopConsumer(f"popped-{topic}", namesrv=namesrv, **_QUICK))),
                ("pull", await _pulled(topic, namesrv)),
            ):
                if sorted(set(got)) != BODIES:
                    findings.add(
                        "a service that does not work any more", f"{kind} brought {sorted(got)} of {BODIES}"
                    )
    except Exception as error:
        findings.add("a service that does not work any more", f"{type(error).__name__}: {error}")


async def _send(topic: str, namesrv: str) -> None:
    async with Producer(f"producers-{topic}", namesrv=namesrv) as producer:
        await producer.send(Message(topic, b"plain"))
        await producer.send(Message(topic, b"delayed", delay_level=1))
        await producer.send(Message(topic, b"timed", deliver_at_ms=time.time_ns() // 1_000_000 + 1_000))
    check = lambda message: TransactionState.COMMIT  # noqa: E731
    async with (
        TransactionProducer(f"transactions-{topic}", check=check, namesrv=namesrv) as producer,
        producer.transaction(Message(topic, b"in a transaction")),
    ):
        pass


async def _until_all(bodies: list[str]) -> list[str]:
    with suppress(AssertionError):  # the caller says what is missing
        await eventually(lambda: set(bodies) == set(BODIES), seconds=COME_S)
    return bodies


async def _listened(topic: str, consumer: PushConsumer | PopConsumer) -> list[str]:
    got: list[str] = []

    async def take(message: StoredMessage) -> None:
        got.append(message.body.decode())

    consumer.subscribe(topic, listener=take)
    async with consumer:
        return await _until_all(got)


async def _pulled(topic: str, namesrv: str) -> list[str]:
    got: list[str] = []
    async with PullConsumer(f"pulled-{topic}", namesrv=namesrv, **_QUICK) as consumer:
        queues = await consumer.queues(topic)
        await consumer.assign(queues)
        for queue in queues:
            await consumer.seek_to_beginning(queue)
        deadline = time.monotonic() + COME_S
        while set(got) != set(BODIES) and time.monotonic() < deadline:
            got += [message.body.decode() for message in await consumer.poll(timeout_s=1)]
    return got
