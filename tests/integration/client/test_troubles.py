"""What a client says about troubles: once when they begin, and once when they are over."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from cometmq.client.admin.admin import Admin
from cometmq.client.consumer.pop.consumer import PopConsumer
from cometmq.client.consumer.pull import PullConsumer
from cometmq.client.consumer.push import PushConsumer
from cometmq.client.instance.troubles import Troubles
from cometmq.client.producer.producer import Producer
from cometmq.model.message import Message, StoredMessage
from cometmq.model.topic import PERM_WRITE, TopicConfig
from cometmq.testing import EmbeddedBroker
from tests.integration.namesrv.namesrv_kit import running_namesrv
from tests.waiting import eventually

QUICK = {"rebalance_interval_ms": 50, "min_rebalance_interval_ms": 20, "pull_delay_when_exception_ms": 20}
MISSING = "topic late does not exist; check its name, or create it: cometmq topic create late"
APPEARED = "topic late is there now; group g reads it"


def test_a_trouble_is_said_when_it_begins_each_minute_and_when_it_ends(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    troubles = Troubles()
    for second in range(130):
        now = 1000.0 + second
        troubles.met("b", "b is away")
    troubles.over("b", "b is back")
    troubles.over("b", "b is back")
    assert not troubles
    assert [record.getMessage() for record in caplog.records] == [
        "b is away",
        "b is away (61 times in 60 s)",
        "b is away (121 times in 120 s)",
        "b is back, after 129.0 s",
    ]


def test_what_is_waited_for_is_said_without_reminders(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    troubles = Troubles()
    for second in range(130):
        now = 1000.0 + second
        troubles.met("t", "t is missing", remind=False)
    troubles.over("t", "t is there")
    troubles.met("t", "t is missing again", remind=False)
    troubles.forget("t")
    assert not troubles
    said = [record.getMessage() for record in caplog.records]
    assert said == ["t is missing", "t is there, after 129.0 s", "t is missing again"]


def push(namesrv: str, got: list[StoredMessage]) -> PushConsumer:
    consumer = PushConsumer("g", namesrv=namesrv, poll_name_server_interval_ms=50, **QUICK)  # type: ignore[arg-type]
    consumer.subscribe("late", listener=got.append)
    return consumer


def pop(namesrv: str, got: list[StoredMessage]) -> PopConsumer:
    consumer = PopConsumer("g", namesrv=namesrv, poll_name_server_interval_ms=50, **QUICK)  # type: ignore[arg-type]
    consumer.subscribe("late", listener=got.append)
    return consumer


@pytest.mark.parametrize("kind", [push, pop])
async def test_a_topic_that_does_not_exist_is_said_once_and_when_it_appears(
    caplog: pytest.LogCaptureFixture, kind: Callable[[str, list[StoredMessage]], PushConsumer]
) -> None:
    """C1."""
    caplog.set_level(logging.INFO, "cometmq.client")
    async with EmbeddedBroker() as embedded:
        got: list[StoredMessage] = []
        async with kind(embedded.namesrv, got), Admin(namesrv=embedded.namesrv) as admin:
            await eventually(lambda: MISSING in caplog.text, "it is said")
            await admin.create_topic("late", queues=1)
            await eventually(lambda: APPEARED in caplog.text, "and when it is there")
            async with Producer("p", namesrv=embedded.namesrv) as producer:
                await producer.send(Message("late", b"x"))
            await eventually(lambda: got != [], "and it is read")
        assert (caplog.text.count(MISSING), caplog.text.count(APPEARED)) == (1, 1)


async def test_a_pull_consumer_says_that_a_topic_is_missing_or_cannot_be_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """C1."""
    async with EmbeddedBroker() as embedded, Admin(namesrv=embedded.namesrv) as admin:
        config = TopicConfig("write-only", 1, 1, perm=PERM_WRITE)
        await admin.put_topic(f"127.0.0.1:{embedded.broker.port}", config)
        await admin.await_topic(config, "embedded")
        options = {"poll_name_server_interval_ms": 50, **QUICK}
        async with PullConsumer("g", namesrv=embedded.namesrv, **options) as consumer:  # type: ignore[arg-type]
            await consumer.subscribe("late")
            await eventually(lambda: MISSING in caplog.text, "it is said")
            await consumer.subscribe("write-only")
            unreadable = "topic write-only has no queue that can be read; allow it: cometmq topic update"
            await eventually(lambda: unreadable in caplog.text, "that it cannot be read")
            await admin.create_topic("late", queues=1)
            await eventually(lambda: APPEARED in caplog.text, "and when it is there")
        assert (caplog.text.count(MISSING), caplog.text.count(unreadable)) == (1, 1)


async def test_a_broker_that_is_away_is_said_once_and_when_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """C1: not for every queue and every try."""
    async with running_namesrv(tmp_path / "namesrv") as server:

        def broker(**settings: str) -> EmbeddedBroker:
            return EmbeddedBroker(tmp_path / "store", namesrv=server.address, settings=settings)

        async def listen(message: StoredMessage) -> None:
            pass

        consumer = PushConsumer("g", namesrv=server.address, **QUICK)  # type: ignore[arg-type]
        consumer.subscribe("orders", listener=listen)
        async with broker() as first:
            async with Admin(namesrv=server.address) as admin:
                await admin.create_topic("orders", queues=8)
            port = first.broker.port
            await consumer.start()
            await eventually(lambda: len(consumer.assignment()) >= 8, "it reads")
        tried = "pulling from embedded failed"
        await eventually(lambda: tried in caplog.text, "it is away")
        async with broker(listenPort=str(port)):
            await eventually(lambda: "pulling from embedded works again" in caplog.text, "it is back")
            await consumer.stop()
        assert caplog.text.count(tried) == 1
