"""Requests that brokers send to clients, with their fields at their limits, against our own client."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from pathlib import Path

import pytest

from cometmq.aio import Producer, PushConsumer, TransactionProducer
from cometmq.client.producer.transactions import TransactionState
from cometmq.model.message import Message, StoredMessage
from cometmq.testing.embedded import EmbeddedBroker
from cometmq.wire.bodies.heartbeat import ConsumeFromWhere
from tests.fuzz.meddler import FIRST_OPAQUE, Meddler, meddling
from tests.fuzz.plausible import GROUPS, TOPICS, Plausible
from tests.fuzz.requests import CLIENT_CODES, RequestGenerator
from tests.fuzz.settings import SEED, share
from tests.fuzz.watch import Findings
from tests.waiting import eventually

BATCH = 50
ANSWER_S = 30.0


class Defects(logging.Handler):
    """What the client, or whatever runs in its process, logs as a defect of its own."""

    def __init__(self, findings: Findings) -> None:
        super().__init__(logging.ERROR)
        self._findings = findings

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self._findings.add("a trace in the log", logging.Formatter().format(record)[-1500:])


@pytest.mark.timeout(900)
async def test_a_client_answers_whatever_a_broker_asks_and_goes_on(tmp_path: Path) -> None:
    """Each request is answered once; consuming and transactions work as before."""
    findings, got = Findings(), asyncio.Event()
    defects, log = Defects(findings), logging.getLogger("cometmq")
    log.addHandler(defects)
    propagated, log.propagate = log.propagate, False  # thousands of warnings help nobody
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: findings.add("an exception that nobody took", context))

    async def take(message: StoredMessage) -> None:
        if message.body == b"after all":
            got.set()

    try:
        async with (
            EmbeddedBroker(tmp_path) as embedded,
            meddling(int(embedded.address.rpartition(":")[2]), findings) as (meddler, namesrv),
        ):
            for topic in (*TOPICS, "calm"):
                await embedded.create_topic(topic, queues=4)
            consumer = PushConsumer(
                GROUPS[0], namesrv=namesrv, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
            )
            consumer.subscribe(TOPICS[0], listener=take)
            consumer.subscribe("calm", listener=take)
            check = lambda message: TransactionState.COMMIT  # noqa: E731
            async with (
                consumer,
                TransactionProducer(GROUPS[1], check=check, namesrv=namesrv) as transactions,
                Producer("calm-producers", namesrv=namesrv) as producer,
            ):
                await producer.send(Message(TOPICS[0], b"first"))
                generator = RequestGenerator(SEED, CLIENT_CODES, Plausible(time.time_ns() // 1_000_000, []))
                for begin in range(FIRST_OPAQUE, FIRST_OPAQUE + share(4), BATCH):
                    for number in range(begin, begin + BATCH):
                        meddler.ask(generator.request(number))
                    await _answered(meddler, findings)
                async with transactions.transaction(Message("calm", b"after all")):
                    pass
                async with asyncio.timeout(ANSWER_S):
                    await got.wait()
        assert meddler.answered > 0
    finally:
        log.propagate = propagated
        log.removeHandler(defects)
    assert not findings, f"seed {SEED}:\n{findings}"


async def _answered(meddler: Meddler, findings: Findings) -> None:
    """Wait until everything is answered; tell what is not."""
    with suppress(AssertionError):
        await eventually(lambda: not meddler.open, seconds=ANSWER_S)
    for request in meddler.open.values():
        findings.add("a request that was not answered", request)
    meddler.open.clear()
