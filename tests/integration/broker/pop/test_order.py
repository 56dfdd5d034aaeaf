"""Popping in order: a queue waits for its messages to be done, or to be visible again (B12)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from cometmq.wire.json import fastjson
from tests.integration.broker.broker_kit import BrokerKit, running_broker
from tests.integration.broker.message_types_kit import kill
from tests.integration.broker.pop.pop_kit import GROUP, QUICK, SAFE, TOPIC, Consumer, Popped, filled
from tests.waiting import eventually

BODIES = [b"%d" % number for number in range(6)]


class Ordered(Consumer):
    """A consumer that pops in order."""

    async def pop(
        self, count: int = 32, invisible_ms: int = 60_000, poll_ms: int = 0, **fields: Any
    ) -> Popped:
        return await super().pop(count, invisible_ms, poll_ms, **{"order": True, **fields})


async def test_a_queue_is_blocked_until_all_of_its_messages_are_done() -> None:
    """B12: others of the topic are not."""
    async with running_broker(settings=QUICK) as kit:
        await filled(kit, BODIES)
        await filled(kit, [b"elsewhere"], queue_id=1)
        consumer = Ordered(kit)
        popped = await consumer.pop(2)
        assert (popped.bodies, popped.told.fields["reviveQid"]) == (BODIES[:2], "999")
        assert popped.told.fields["orderCountInfo"] == "0 0 0"
        blocked = await Ordered(kit).pop(2)
        assert (blocked.told.code, blocked.rest) == (210, 0)
        assert (await consumer.pop(2, queue_id=1)).bodies == [b"elsewhere"]
        first, second = popped.messages
        assert (await consumer.ack(second)).code == 0
        assert (await consumer.pop(2)).bodies == []
        assert kit.broker.context.offsets.query(GROUP, TOPIC, 0) == 0
        assert (await consumer.ack(first)).code == 0
        assert kit.broker.context.offsets.query(GROUP, TOPIC, 0) == 2
        assert (await consumer.pop(2)).bodies == BODIES[2:4]


async def test_a_batch_is_handed_out_again_when_its_time_is_over() -> None:
    """B12: from its first message that is not done, and counted."""
    async with running_broker(settings=QUICK) as kit:
        await filled(kit, BODIES)
        consumer = Ordered(kit)
        first = (await consumer.pop(3, invisible_ms=700)).messages[0]
        assert (await consumer.ack(first)).code == 0
        again = await consumer.pop(3, invisible_ms=700, poll_ms=5000)
        assert again.bodies == BODIES[1:4]
        assert again.messages[0].pop_time_ms >= first.pop_time_ms + 700
        counts = set((again.told.fields["orderCountInfo"] or "").split(";"))
        assert counts == {"0 qo0%1 1", "0 qo0%2 1", "0 0 0"}
        third = await consumer.pop(3, poll_ms=5000)
        assert set((third.told.fields["orderCountInfo"] or "").split(";")) == {
            "0 qo0%1 2",
            "0 qo0%2 2",
            "0 qo0%3 1",
            "0 0 1",
        }
        assert (await consumer.ack(first)).code == 0  # it is done already


async def test_an_acknowledgement_wakes_who_waits_for_the_queue() -> None:
    """B12."""
    async with running_broker(settings=QUICK) as kit:
        await filled(kit, BODIES)
        consumer = Ordered(kit)
        (message,) = (await consumer.pop(1)).messages
        asking = asyncio.ensure_future(Ordered(kit).notify(8000, order=True))
        pop = kit.broker.context.pop
        await eventually(lambda: pop.peeker.waiters.count == 1, "somebody asks")
        assert (await consumer.ack_batch([message])).code == 0
        assert (await asyncio.wait_for(asking, 1)).fields["hasMsg"] == "true"
        (message,) = (await consumer.pop(1)).messages
        waiting = asyncio.ensure_future(Ordered(kit).pop(1, poll_ms=8000, queue_id=-1))
        await eventually(lambda: pop.popper.waiters.count == 1, "somebody waits")
        assert (await consumer.ack(message)).code == 0
        assert (await asyncio.wait_for(waiting, 1)).bodies == BODIES[2:3]


async def test_the_same_attempt_gets_its_batch_again() -> None:
    """B12: its answer was lost; that does not count as another time."""
    async with running_broker(settings=QUICK) as kit:
        await filled(kit, BODIES)
        consumer = Ordered(kit)
        assert (await consumer.pop(2, attempt_id="A")).bodies == BODIES[:2]
        again = await consumer.pop(2, attempt_id="A")
        assert (again.bodies, again.told.fields["orderCountInfo"]) == (BODIES[:2], "0 0 0")
        assert (await consumer.pop(2, attempt_id="B")).bodies == []


async def test_the_time_of_one_message_can_be_changed() -> None:
    """B12: the queue is free when the last one is visible."""
    async with running_broker(settings=QUICK) as kit:
        await filled(kit, BODIES)
        consumer = Ordered(kit)
        first, second = (await consumer.pop(2)).messages
        changed = await consumer.change_time(first, 500)
        assert changed.pop_time_ms == first.pop_time_ms
        assert (await consumer.ack(second)).code == 0
        again = await consumer.pop(2, poll_ms=5000)
        assert again.bodies == BODIES[:2]
        assert (await consumer.ack(changed)).code == 0  # of a batch that is over: it changes nothing
        assert kit.broker.context.offsets.query(GROUP, TOPIC, 0) == 0


async def test_a_message_that_is_not_in_the_batch_cannot_be_acknowledged() -> None:
    """B12."""
    async with running_broker(settings=QUICK) as kit:
        await filled(kit, BODIES)
        consumer = Ordered(kit)
        (message,) = (await consumer.pop(1)).messages
        told = await consumer.ack(message, offset=3)
        assert told.code == 13
        assert (told.remark or "").startswith(
            "offset is illegal, key:Orders@billing@0, old:0, commit:3, next:-1"
        )
        parts = message.handle.split(" ")
        told = await consumer.ack_batch([message._replace(offset=3)], pt=int(parts[1]))
        assert told.code == 13
        assert kit.broker.context.offsets.query(GROUP, TOPIC, 0) == 0


def _order_file(kit: BrokerKit) -> Any:
    return fastjson.loads((kit.embedded.folder / "config/consumerOrderInfo.json").read_bytes())


async def test_a_restart_keeps_queues_blocked(tmp_path: Path) -> None:
    """B12: in Apache's file."""
    async with running_broker(tmp_path, QUICK) as kit:
        await filled(kit, BODIES)
        consumer = Ordered(kit)
        first, second = (await consumer.pop(2, attempt_id="A")).messages
        assert (await consumer.ack(first)).code == 0
    async with running_broker(tmp_path, QUICK) as kit:
        info = _order_file(kit)["table"][f"{TOPIC}@{GROUP}"][0]
        assert info["popTime"] == first.pop_time_ms
        assert (info["o"], info["cm"], info["a"], info["i"]) == ([0, 1], 1, "A", 60_000)
        consumer = Ordered(kit)
        assert (await consumer.pop(2)).told.code == 210
        assert (await consumer.ack(second)).code == 0
        assert (await consumer.pop(2)).bodies == BODIES[2:4]


async def test_what_is_done_in_order_is_done_over_a_kill(tmp_path: Path) -> None:
    """B12: also if nothing else about the batch was saved; a later message takes none along then."""
    async with running_broker(tmp_path / "a", SAFE) as kit:
        await filled(kit, BODIES)
        consumer = Ordered(kit)
        await consumer.ack_all((await consumer.pop(2)).messages)
        third, fourth = (await consumer.pop(2)).messages
        copy = kill(kit, tmp_path / "b")
    async with running_broker(copy, SAFE) as kit:
        consumer = Ordered(kit)
        assert (await consumer.ack(fourth)).code == 0
        assert kit.broker.context.offsets.query(GROUP, TOPIC, 0) == 2
        assert (await consumer.ack(third)).code == 0
        assert (await consumer.pop(2)).bodies == BODIES[3:5]
