"""Consumers while a master is away: they read from its slave, and come back."""

from __future__ import annotations

from pathlib import Path

import pytest

from cometmq import Message, StoredMessage
from cometmq.aio import Producer, PushConsumer
from tests.integration.broker.broker_kit import running_broker
from tests.integration.replication.pair_kit import NAME, a_slave, follows, same_end
from tests.waiting import eventually


@pytest.mark.timeout(200)
async def test_a_consumer_goes_on_at_the_slave_and_comes_back(tmp_path: Path) -> None:
    settings = {**NAME, "slaveReadEnable": "true"}
    async with running_broker(tmp_path / "a", settings) as master, a_slave(tmp_path / "b", master) as slave:
        namesrv = master.embedded.namesrv
        await master.embedded.create_topic("Orders")
        got: list[bytes] = []
        consumer = PushConsumer("billing", namesrv=namesrv, poll_name_server_interval_ms=500)

        @consumer.subscribe("Orders")
        async def take(message: StoredMessage) -> None:
            got.append(message.body)

        async with Producer("shop", namesrv=namesrv) as producer:
            for number in range(20):
                await producer.send(Message("Orders", b"%d" % number))
        await same_end(master, slave)
        await eventually(lambda: slave.broker.context.topics.get("Orders") is not None)
        await master.embedded.stop_broker()
        async with consumer:
            await eventually(lambda: len(set(got)) == 20, "everything comes from the slave", seconds=90)
            await master.embedded.start()
            await eventually(lambda: follows(slave), "the slave follows again")
            async with Producer("shop", namesrv=namesrv) as producer:
                await producer.send(Message("Orders", b"after"))
            await eventually(lambda: b"after" in got, "messages of the master come", seconds=90)
        assert set(got) == {b"%d" % number for number in range(20)} | {b"after"}
