"""Pops that wait for messages, questions whether there are some, and looks without taking (B12, B8)."""

from __future__ import annotations

import asyncio
import time

import pytest

from cometmq.remoting.client import RemotingClient
from cometmq.wire.codes import RequestCode
from cometmq.wire.headers.pop import PopMessageRequest
from tests.answers import now_ms
from tests.integration.broker.broker_kit import BrokerKit, idle_share, running_broker
from tests.integration.broker.pop.pop_kit import GROUP, QUICK, TOPIC, Consumer, Popped, filled
from tests.waiting import eventually

# Far above what it takes, and far below what a pop that is not woken waits.
SOON_S = 4.0
"""A busy machine may take so long for what takes milliseconds."""


async def waiting_pops(
    kit: BrokerKit, number: int, poll_ms: int = 8000, **fields: object
) -> list[asyncio.Task[Popped]]:
    """Pops that the broker holds."""
    consumer = Consumer(kit)
    held = kit.broker.context.pop.popper.waiters
    before = held.count
    pops = [asyncio.ensure_future(consumer.pop(poll_ms=poll_ms, **fields)) for _ in range(number)]  # type: ignore[arg-type]
    await eventually(lambda: held.count == before + number, f"{number} pops wait")
    return pops


@pytest.mark.parametrize("queue_id", [0, -1])
async def test_a_message_wakes_one_pop_at_once(queue_id: int) -> None:
    """B12: the one that came first; the others wait on."""
    async with running_broker(settings=QUICK) as kit:
        await kit.embedded.create_topic(TOPIC, queues=4)
        pops = await waiting_pops(kit, 3, queue_id=queue_id)
        started = time.monotonic()
        await filled(kit, [b"news"])
        done, _ = await asyncio.wait(pops, timeout=SOON_S, return_when=asyncio.FIRST_COMPLETED)
        assert [(await each).bodies for each in done] == [[b"news"]]
        assert time.monotonic() - started < SOON_S
        assert done == {pops[0]}
        assert await Consumer(kit).waiting(queue_id) == 2
        for each in pops:
            each.cancel()


async def test_what_a_pop_leaves_over_wakes_the_next() -> None:
    """B12: each takes one."""
    async with running_broker(settings=QUICK) as kit:
        await kit.embedded.create_topic(TOPIC, queues=4)
        pops = await waiting_pops(kit, 3, count=1)
        await kit.send_batch(TOPIC, [(b"%d" % number, {"UNIQ_KEY": str(number)}) for number in range(3)])
        found = await asyncio.wait_for(asyncio.gather(*pops), SOON_S)
        assert [each.bodies for each in found] == [[b"0"], [b"1"], [b"2"]]


async def test_messages_that_come_back_wake_a_pop() -> None:
    """B12: also one that waits for a single queue."""
    async with running_broker(settings=QUICK) as kit:
        await filled(kit, [b"again"])
        await Consumer(kit).pop(invisible_ms=800)
        (waiting,) = await waiting_pops(kit, 1, queue_id=2)
        assert (await waiting).bodies == [b"again"]


async def test_a_pop_is_woken_only_by_what_it_wants() -> None:
    """B12."""
    async with running_broker(settings=QUICK) as kit:
        await kit.embedded.create_topic(TOPIC, queues=4)
        await kit.send(TOPIC, b"first", {"UNIQ_KEY": "0", "TAGS": "new"})  # every 800th wakes in any case
        (waiting,) = await waiting_pops(kit, 1, exp="paid", exp_type="TAG")
        for number in range(3):
            await kit.send(TOPIC, b"%d" % number, {"UNIQ_KEY": str(number), "TAGS": "new"})
        assert await Consumer(kit).waiting() == 1
        await kit.send(TOPIC, b"mine", {"UNIQ_KEY": "A", "TAGS": "paid"})
        assert (await asyncio.wait_for(waiting, SOON_S)).bodies == [b"mine"]


async def test_a_pop_ends_when_its_time_is_over() -> None:
    """B12: not much before, and hardly after it."""
    async with running_broker(settings=QUICK) as kit:
        await kit.embedded.create_topic(TOPIC, queues=4)
        started = time.monotonic()
        popped = await Consumer(kit).pop(poll_ms=600)
        assert 0.45 <= time.monotonic() - started < 0.6 + SOON_S
        told = popped.told
        assert (told.code, told.remark, told.fields["restNum"]) == (210, "NO_MESSAGE_IN_QUEUE", "0")
        assert kit.broker.context.pop.popper.waiters.count == 0


async def test_too_many_who_wait_are_told_so() -> None:
    """B12: for one queue, and in all."""
    async with running_broker(settings={**QUICK, "popPollingSize": "1", "maxPopPollingSize": "3"}) as kit:
        await kit.embedded.create_topic(TOPIC, queues=4)
        pops = await waiting_pops(kit, 2)
        told = (await Consumer(kit).pop(poll_ms=5000)).told
        assert (told.code, told.remark, told.fields["restNum"]) == (209, "NO_MESSAGE_IN_QUEUE", "0")
        pops += await waiting_pops(kit, 1, queue_id=1)
        assert (await Consumer(kit).pop(poll_ms=5000, queue_id=2)).told.code == 209
        for each in pops:
            each.cancel()


async def test_a_connection_that_ends_takes_its_pops_along() -> None:
    """B12: a message goes to somebody who is still there."""
    async with running_broker(settings=QUICK) as kit:
        await kit.embedded.create_topic(TOPIC, queues=4)
        gone = RemotingClient()
        header = PopMessageRequest(
            consumer_group=GROUP,
            topic=TOPIC,
            queue_id=0,
            max_msg_nums=1,
            invisible_time=60_000,
            poll_time=8000,
            born_time=now_ms(),
            init_mode=0,
        )
        lost = asyncio.ensure_future(gone.call(kit.embedded.address, RequestCode.POP_MESSAGE, header))
        waiters = kit.broker.context.pop.popper.waiters
        await eventually(lambda: waiters.count == 1, "it waits")
        (waiting,) = await waiting_pops(kit, 1)
        await gone.stop()
        await asyncio.gather(lost, return_exceptions=True)
        await eventually(lambda: waiters.count == 1, "one is gone")
        await filled(kit, [b"news"])
        assert (await asyncio.wait_for(waiting, SOON_S)).bodies == [b"news"]


async def test_a_broker_that_stops_answers_who_waits() -> None:
    """B12."""
    async with running_broker(settings=QUICK) as kit:
        await kit.embedded.create_topic(TOPIC, queues=4)
        pops = await waiting_pops(kit, 2)
        asking = asyncio.ensure_future(Consumer(kit).notify(8000))
        await eventually(lambda: kit.broker.context.pop.peeker.waiters.count == 1, "somebody asks")
        await kit.embedded.stop()
        assert [(await each).told.code for each in pops] == [210, 210]
        assert (await asking).fields["hasMsg"] == "false"


async def test_a_thousand_pops_that_wait_cost_next_to_nothing() -> None:
    """B12: one of them is woken in an instant."""
    async with running_broker(settings=QUICK) as kit:
        await kit.embedded.create_topic(TOPIC, queues=4)
        pops = await waiting_pops(kit, 1000, poll_ms=60_000)
        assert await idle_share() < 0.05
        await filled(kit, [b"news"])
        assert (await asyncio.wait_for(pops[0], SOON_S)).bodies == [b"news"]
        for each in pops:
            each.cancel()


# Questions


async def test_a_question_is_answered_as_soon_as_there_is_a_message() -> None:
    """B12: nothing is taken by it."""
    async with running_broker(settings=QUICK) as kit:
        await kit.embedded.create_topic(TOPIC, queues=4)
        consumer = Consumer(kit)
        told = await consumer.notify()
        assert (told.code, told.fields) == (0, {"hasMsg": "false", "pollingFull": "false"})
        asking = asyncio.ensure_future(consumer.notify(8000))
        await eventually(lambda: kit.broker.context.pop.peeker.waiters.count == 1, "the question waits")
        await filled(kit, [b"news"])
        assert (await asyncio.wait_for(asking, SOON_S)).fields["hasMsg"] == "true"
        assert (await consumer.notify(queue_id=0)).fields["hasMsg"] == "true"
        assert (await consumer.notify(queue_id=1)).fields["hasMsg"] == "false"
        assert (await consumer.pop()).bodies == [b"news"]
        assert (await consumer.notify()).fields["hasMsg"] == "false"


async def test_too_many_questions_are_told_so() -> None:
    """B12."""
    async with running_broker(settings={**QUICK, "maxPopPollingSize": "0"}) as kit:
        await kit.embedded.create_topic(TOPIC, queues=4)
        told = await Consumer(kit).notify(5000)
        assert told.fields == {"hasMsg": "false", "pollingFull": "true"}


async def test_messages_that_came_back_count_for_a_question() -> None:
    """B12."""
    async with running_broker(settings=QUICK) as kit:
        await filled(kit, [b"again"])
        consumer = Consumer(kit)
        await consumer.pop(invisible_ms=500)
        assert (await consumer.notify()).fields["hasMsg"] == "false"
        assert (await consumer.notify(8000)).fields["hasMsg"] == "true"
        assert (await consumer.pop(queue_id=-1)).bodies == [b"again"]


# Looks


async def test_a_look_takes_nothing() -> None:
    """B12: the same messages can be popped then, and are gone for looks after that."""
    async with running_broker(settings=QUICK) as kit:
        bodies = [b"%d" % number for number in range(5)]
        await filled(kit, bodies)
        consumer = Consumer(kit)
        for _ in range(2):
            peeked = await consumer.peek(3)
            assert (peeked.told.code, peeked.told.remark, peeked.bodies) == (0, "FOUND", bodies[:3])
            assert peeked.rest == 5
        assert (await consumer.pop(4)).bodies == bodies[:4]
        assert (await consumer.peek(queue_id=-1)).bodies == bodies[4:]
        await consumer.pop()
        nothing = (await consumer.peek()).told
        assert (nothing.code, nothing.remark, nothing.fields["restNum"]) == (19, "NO_MESSAGE_IN_QUEUE", "0")


async def test_looks_at_what_is_not_there_are_refused() -> None:
    """B12: with Apache's codes."""
    async with running_broker(settings=QUICK) as kit:
        consumer = Consumer(kit)
        assert (await consumer.peek()).told.code == 17
        assert (await consumer.notify()).code == 17
        await filled(kit, [b"x"])
        assert (await consumer.peek(queue_id=4)).told.code == 29
        assert (await consumer.notify(queue_id=4)).code == 29
        assert (await Consumer(kit, "not legal!").peek()).told.code == 26
        assert await consumer.waiting() == 0
