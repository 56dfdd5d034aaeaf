"""A master and its slave, two whole brokers of one name on one event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from cometmq.testing.embedded import EmbeddedBroker
from tests.integration.broker.broker_kit import BrokerKit
from tests.waiting import eventually

NAME = {"brokerName": "pair", "haSendHeartbeatInterval": "200"}
SYNC = {**NAME, "brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "slaveTimeout": "20000"}
HASTY = {**SYNC, "slaveTimeout": "50"}


@asynccontextmanager
async def a_slave(
    folder: Path, master: BrokerKit, settings: Mapping[str, str] | None = None
) -> AsyncIterator[BrokerKit]:
    """A slave of a running broker, which follows it."""
    values = {**NAME, "brokerRole": "SLAVE", "brokerId": "1", "slaveReadEnable": "true", **(settings or {})}
    async with EmbeddedBroker(folder, settings=values, namesrv=master.embedded.namesrv) as embedded:
        kit = BrokerKit(embedded)
        try:
            await eventually(lambda: follows(kit), "the slave follows")
            yield kit
        finally:
            await kit.client.stop()


def follows(slave: BrokerKit) -> bool:
    client = slave.broker.context.ha_client
    return client is not None and client.is_following


def end_of(kit: BrokerKit) -> int:
    return kit.broker.context.store.log.max_offset


async def same_end(master: BrokerKit, slave: BrokerKit) -> None:
    await eventually(lambda: end_of(slave) == end_of(master), "both logs end at the same offset")


def log_of(kit: BrokerKit) -> bytes:
    commit_log = kit.broker.context.store.log
    found = b""
    while body := commit_log.readable(commit_log.min_offset + len(found), 1 << 30):
        found += body
    return found
