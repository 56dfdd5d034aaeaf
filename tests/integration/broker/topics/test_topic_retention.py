"""Retention by topic: the attribute reserve.time (B2, S7)."""

from __future__ import annotations

from pathlib import Path

import pytest

from cometmq import Admin
from cometmq.model.errors import ResponseError
from cometmq.ports.clock import SystemClock
from cometmq.testing import EmbeddedBroker
from tests.integration.broker.broker_kit import BrokerKit, running_broker

HOUR_MS = 3_600_000


@pytest.fixture
def later_ms(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How much later it is for brokers."""
    shift = [0]
    real = SystemClock.now_ms
    monkeypatch.setattr(SystemClock, "now_ms", lambda clock: real(clock) + shift[0])
    return shift


def bounds(kit: BrokerKit, topic: str) -> tuple[int, int]:
    return kit.broker.context.store.queues.bounds(topic, 0)


async def test_old_messages_of_a_topic_with_a_time_of_its_own_are_not_served(
    later_ms: list[int], tmp_path: Path
) -> None:
    """B2: other topics keep theirs, and a restart brings nothing back."""
    async with running_broker(tmp_path) as kit:
        await kit.embedded.create_topic("Short", queues=1, attributes={"reserve.time": "2"})
        await kit.embedded.create_topic("Orders", queues=1)
        for topic in ("Short", "Orders"):
            assert (await kit.send(topic, b"old")).code == 0
        later_ms[0] = HOUR_MS
        assert (await kit.send("Short", b"new")).code == 0
        await kit.broker.context.topic_retention.run()
        assert bounds(kit, "Short") == (0, 2), "nothing is older than two hours"
        later_ms[0] = 2 * HOUR_MS + 60_000
        await kit.broker.context.topic_retention.run()
        assert (bounds(kit, "Short"), bounds(kit, "Orders")) == ((1, 2), (0, 1))
    async with running_broker(tmp_path) as kit:
        assert (bounds(kit, "Short"), bounds(kit, "Orders")) == ((1, 2), (0, 1))
        later_ms[0] = 4 * HOUR_MS
        await kit.broker.context.topic_retention.run()
        assert bounds(kit, "Short") == (2, 2)
        answer = await kit.send("Short", b"next")
        assert answer.fields["queueOffset"] == "2", "offsets go on"


async def test_the_time_can_be_changed_and_removed(later_ms: list[int]) -> None:
    """B2: what is gone stays gone until the broker starts again."""
    async with running_broker() as kit:
        await kit.embedded.create_topic("Short", queues=1, attributes={"reserve.time": "48"})
        for _ in range(2):
            await kit.send("Short")
        later_ms[0] = 24 * HOUR_MS
        await kit.broker.context.topic_retention.run()
        assert bounds(kit, "Short") == (0, 2)
        await kit.embedded.create_topic("Short", queues=1, attributes={"reserve.time": "1"})
        await kit.broker.context.topic_retention.run()
        assert bounds(kit, "Short") == (2, 2)
        await kit.embedded.create_topic("Short", queues=1, attributes={})
        await kit.send("Short")
        later_ms[0] = 48 * HOUR_MS
        await kit.broker.context.topic_retention.run()
        assert bounds(kit, "Short") == (2, 3)


def test_a_time_longer_than_that_of_the_files_is_refused(rocketmq: EmbeddedBroker) -> None:
    """B2: with what to do instead."""
    with (
        Admin(namesrv=rocketmq.namesrv) as admin,
        pytest.raises(ResponseError, match="raise fileReservedTime"),
    ):
        admin.create_topic("Long", queues=1, attributes="+reserve.time=73")
