"""Bulk pulls: much more at once for who asks for it, and everything else as in an ordinary pull (D1)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cometmq.broker.pull.pull import MAX_FILTERED_IN_BULK
from tests.integration.client.consumer_kit import BRINGS_SUBSCRIPTION, TOPIC, running_broker, tags

COUNT = 900


@pytest.fixture(scope="module")
def bodies() -> list[bytes]:
    return [b"order-%d" % number for number in range(COUNT)]


async def test_a_bulk_pull_brings_what_many_ordinary_ones_bring(tmp_path: Path, bodies: list[bytes]) -> None:
    """D1"""
    async with running_broker(tmp_path) as visit:
        consumer = visit.visitor()
        await consumer.heartbeat(tags(TOPIC))
        for body in bodies:
            await consumer.send(body)

        ordinary = await consumer.pull(0, max_msg_nums=4096)
        bulk = await consumer.pull(0, max_msg_nums=4096, bulk=True)
        part = await consumer.pull(10, max_msg_nums=100, bulk=True)

        assert ordinary.bodies == bodies[:32]
        assert (bulk.bodies, bulk.fields["nextBeginOffset"]) == (bodies, str(COUNT))
        assert part.bodies == bodies[10:110]
        assert visit.broker.context.traffic.got_messages == 32 + COUNT + 100
        end = await consumer.pull(COUNT, bulk=True, hold_ms=0)
        assert (end.code, end.remark) == (19, "OFFSET_OVERFLOW_ONE")


async def test_a_filtered_bulk_pull_looks_at_a_limited_number(tmp_path: Path, bodies: list[bytes]) -> None:
    """Nobody else waits while a broker looks through a whole queue."""
    async with running_broker(tmp_path) as visit:
        consumer = visit.visitor()
        await consumer.heartbeat(tags(TOPIC))
        for body in bodies:
            await consumer.send(body, TAGS="a")

        pull: dict[str, Any] = {"flag": BRINGS_SUBSCRIPTION, "max_msg_nums": 4096, "bulk": True}
        found = await consumer.pull(0, subscription="a", **pull)
        nothing = await consumer.pull(0, subscription="b", **pull)

        assert found.bodies == bodies[:MAX_FILTERED_IN_BULK]
        assert (nothing.remark, nothing.fields["nextBeginOffset"]) == (
            "NO_MATCHED_MESSAGE",
            str(MAX_FILTERED_IN_BULK),
        )
