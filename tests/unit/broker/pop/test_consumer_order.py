"""What a group has popped in order, and when its queue is free (B12)."""

from __future__ import annotations

from typing import Any, cast

import pytest

from cometmq.broker.groups.groups import Groups
from cometmq.broker.pop.consumer_order import ILLEGAL, UNCHANGED, ConsumerOrders
from cometmq.broker.settings import Settings
from cometmq.broker.topics.topics import Topics
from cometmq.model.topic import TopicConfig
from cometmq.ports.clock import Clock as RealClock
from cometmq.store.tables.tables import ConsumerOrderTable
from cometmq.wire.json.pretty import dumps_table, loads_table

KEY = ("Orders", "billing", 0)


class Clock:
    def __init__(self) -> None:
        self.time_ms = 1_000_000

    def now_ms(self) -> int:
        return self.time_ms


class Told:
    """Orders with a clock of their own, and which queues became free."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.free: list[tuple[str, str, int]] = []
        self.topics = {"Orders": TopicConfig("Orders", 1, 1)}
        topics, groups = cast(Topics, self.topics), cast(Groups, {"billing": object()})
        self.orders = ConsumerOrders(
            Settings(), cast(RealClock, self.clock), topics, groups, lambda *key: self.free.append(key)
        )

    def take(self, offsets: list[int], attempt_id: str | None = None, invisible_ms: int = 100) -> str:
        return self.orders.take(*KEY, attempt_id, self.clock.time_ms, invisible_ms, offsets)

    def ack(self, offset: int, pop_time_ms: int | None = None, at_offset: int = 0) -> int:
        time_ms = self.clock.time_ms if pop_time_ms is None else pop_time_ms
        return self.orders.acknowledge(*KEY, offset, time_ms, at_offset)

    @property
    def is_blocked(self) -> bool:
        return self.orders.is_blocked(*KEY, None, 100)


@pytest.fixture
async def told() -> Any:
    told = Told()
    yield told
    told.orders.stop()


async def test_a_group_goes_on_at_the_first_message_that_is_not_done(told: Told) -> None:
    """B12."""
    assert told.take([5, 6, 9]) == "0 0 0"
    assert [told.ack(offset) for offset in (6, 5, 9)] == [5, 9, 10]
    assert not told.is_blocked


async def test_an_acknowledgement_of_something_else_changes_nothing(told: Told) -> None:
    """B12: another message, another batch, or no batch at all."""
    assert (told.ack(5, at_offset=5), told.ack(6, at_offset=5)) == (6, UNCHANGED)
    told.take([5, 6])
    assert told.ack(7) == ILLEGAL
    assert told.ack(5, pop_time_ms=1) == UNCHANGED
    assert told.is_blocked


async def test_a_queue_is_free_when_the_last_message_is_visible(told: Told) -> None:
    """B12."""
    told.take([5, 6, 7])
    told.orders.change_visible(*KEY, 6, told.clock.time_ms, told.clock.time_ms + 500)
    told.orders.change_visible(*KEY, 5, 1, told.clock.time_ms + 900)  # of another batch
    told.clock.time_ms += 499
    assert told.is_blocked
    told.clock.time_ms += 1
    assert not told.is_blocked


async def test_messages_that_are_taken_again_are_counted(told: Told) -> None:
    """B12: once for each attempt."""
    told.take([5, 6], "A")
    assert told.take([5, 6], "A") == "0 0 0"
    assert told.take([5, 6, 7], "B") == "0 qo0%5 1;0 qo0%6 1;0 0 0"
    assert told.take([6, 7], "C") == "0 qo0%6 2;0 qo0%7 1;0 0 1"


async def test_what_nobody_needs_is_forgotten(told: Told) -> None:
    """B12: idle for a day, or its topic is gone."""
    told.take([5])
    told.orders.forget_gone()
    assert told.orders.find(*KEY) is not None
    told.clock.time_ms += 24 * 3600 * 1000 + 1
    told.orders.forget_gone()
    assert told.orders.table == {}
    told.take([5])
    told.topics.clear()
    told.orders.forget_gone()
    assert told.orders.table == {}


async def test_the_file_is_apaches(told: Told) -> None:
    """B12: with its short names, and the distances of offsets."""
    told.take([5, 6, 9], "A")
    told.ack(6)
    told.orders.change_visible(*KEY, 5, told.clock.time_ms, 7)
    data = dumps_table(told.orders.snapshot().completed(), pretty=False)
    assert data == (
        b'{"table":{"Orders@billing":{0:{"a":"A","cm":2,"i":100,"l":1000000,"o":[5,1,4],"ot":{5:7},'
        b'"popTime":1000000}}}}'
    )
    again = Told()
    again.orders.load(loads_table(ConsumerOrderTable, data))
    assert again.orders.find(*KEY) == told.orders.find(*KEY)
    assert again.ack(5) == 9
    again.orders.stop()
