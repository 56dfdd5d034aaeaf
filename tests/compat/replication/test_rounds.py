"""Rounds of kills and stops of master and slave under load: every SEND_OK is on both disks.

`REPLICATION_ROUNDS` sets how many rounds are run.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
from pathlib import Path

import pytest

from cometmq.model.errors import CometError
from cometmq.remoting.client import RemotingClient
from cometmq.wire.codes import RequestCode
from tests.compat.apache import Broker
from tests.compat.ask import SUCCESS
from tests.compat.replication.pairs_kit import (
    PAIRS,
    SYNC_S,
    TOPIC,
    Pair,
    a_pair,
    assert_equal_logs,
    create_topic,
    follows,
    log_files,
    wait_equal,
)
from tests.integration.broker.broker_kit import send_header
from tests.waiting import wait_until

ROUNDS = int(os.environ.get("REPLICATION_ROUNDS", "4"))
SENDERS = 8
LOAD_S, PAUSE_S = 1.0, 2.0
FLUSH_SLAVE_TIMEOUT = 12


class Load:
    """Senders that go on until they are stopped; remembers what was answered."""

    def __init__(self, broker: Broker, number: int) -> None:
        self._broker = broker
        self._number = number
        self.acknowledged: list[bytes] = []
        self.codes: set[int] = set()
        self.is_over = False

    async def run(self) -> None:
        await asyncio.gather(*(self._send(sender) for sender in range(SENDERS)))

    async def _send(self, sender: int) -> None:
        client = RemotingClient()
        count = 0
        while not self.is_over:
            body = b"<%d-%d-%d>" % (self._number, sender, count) + b"x" * 500
            count += 1
            header = send_header(TOPIC, {"TAGS": "t"}, queue_id=sender % 4)
            try:
                answer = await client.call(
                    self._broker.address, RequestCode.SEND_MESSAGE_V2, header, body=body, timeout_s=15
                )
            except CometError:
                await asyncio.sleep(0.05)
                continue
            self.codes.add(answer.code)
            if answer.code == SUCCESS:
                self.acknowledged.append(body[: body.index(b">") + 1])
        await client.stop()


async def disturbed(load: Load, pair: Pair, what: str) -> None:
    """Send, and let something happen meanwhile."""
    running = asyncio.create_task(load.run())
    await asyncio.sleep(LOAD_S)  # the load that the disturbance meets
    broker = pair.master if "master" in what else pair.slave
    if "kill" in what:
        await asyncio.to_thread(broker.kill)
        await asyncio.to_thread(broker.start)
    else:
        broker.pause()
        await asyncio.sleep(PAUSE_S)
        broker.resume()
    await asyncio.sleep(LOAD_S)
    load.is_over = True
    await running


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("master", "slave"), PAIRS)
def test_every_acknowledged_message_is_on_both_disks(tmp_path: Path, master: str, slave: str) -> None:
    """B11: also while either side is killed or stands still."""
    chance = random.Random(f"{master}{slave}")
    disturbances = ["kill slave", "kill master", "pause slave", "pause master"]
    with a_pair(tmp_path, master, slave) as pair:
        create_topic(pair.master, TOPIC)
        acknowledged: list[bytes] = []
        for number in range(ROUNDS):
            what = disturbances[number % 4] if number < 4 else chance.choice(disturbances)
            load = Load(pair.master, number)
            asyncio.run(disturbed(load, pair, what))
            acknowledged += load.acknowledged
            assert load.acknowledged, what
            if "slave" in what:
                assert load.codes <= {SUCCESS, FLUSH_SLAVE_TIMEOUT}, what
            pair.master.wait_registered(pair.namesrv.address)
            wait_until(lambda: follows(pair), f"the slave follows after: {what}", seconds=SYNC_S)
        end = wait_equal(pair)
        assert_equal_logs(pair, end)
        for broker in (pair.master, pair.slave):
            stored = set(re.findall(rb"<\d+-\d+-\d+>", b"".join(log_files(broker).values())))
            missing = set(acknowledged) - stored
            assert not missing, f"{len(missing)} of {len(acknowledged)} are not on {broker.home}"
