"""Who sends when: limits, batches, and latencies that count from when a message was due."""

from __future__ import annotations

import asyncio
import time

from cometmq.cli.bench.load_send import ProducerPlan, Turn, Turns
from cometmq.cli.bench.producer import shares_of
from cometmq.cli.common.connect import Link

LINK = Link("127.0.0.1:9876")


async def taken(turns: Turns) -> list[Turn]:
    """All turns there are."""
    found = []
    while (turn := await turns.next()) is not None:
        found.append(turn)
    return found


async def test_as_many_messages_are_sent_as_were_asked_for_the_last_batch_being_shorter() -> None:
    plan = ProducerPlan(link=LINK, topic="t", messages=10, batch=4)
    turns = await taken(Turns(plan, asyncio.Event()))
    assert [(each.first, each.size) for each in turns] == [(0, 4), (4, 4), (8, 2)]


async def test_at_a_rate_everything_that_a_stall_delayed_counts_from_when_it_was_due() -> None:
    """A second was lost; ten messages were due meanwhile."""
    turns = Turns(ProducerPlan(link=LINK, topic="t", seconds=1.0, rate=10.0), asyncio.Event())
    turns.begun_s -= 1.0
    found = await taken(turns)
    assert [round(each.since_s - turns.begun_s, 6) for each in found] == [n / 10 for n in range(10)]


async def test_at_a_rate_a_message_is_not_sent_before_it_is_due() -> None:
    """But for a millisecond, which is what a timer is good for."""
    turns = Turns(ProducerPlan(link=LINK, topic="t", messages=5, rate=100.0), asyncio.Event())
    for number in range(5):
        turn = await turns.next()
        assert turn is not None
        assert time.monotonic() - turns.begun_s >= number / 100 - 0.001
        assert turn.since_s - turns.begun_s >= number / 100 - 0.001


async def test_only_one_sender_waits_for_its_time_and_nobody_gets_the_turn_of_another() -> None:
    turns = Turns(ProducerPlan(link=LINK, topic="t", messages=6, rate=1000.0), asyncio.Event())
    found = await asyncio.gather(*(taken(turns) for _ in range(3)))
    assert sorted(turn.first for each in found for turn in each) == [0, 1, 2, 3, 4, 5]


async def test_who_is_told_to_stop_gives_no_more_turns_also_while_one_is_awaited() -> None:
    stop = asyncio.Event()
    fast = Turns(ProducerPlan(link=LINK, topic="t"), stop)
    slow = Turns(ProducerPlan(link=LINK, topic="t", rate=0.1), stop)
    assert await fast.next() is not None
    assert await slow.next() is not None
    waiting = asyncio.create_task(slow.next())
    await asyncio.sleep(0)
    stop.set()
    async with asyncio.timeout(5):
        assert await waiting is None
    assert await fast.next() is None


async def test_at_the_end_of_the_time_there_are_no_more_turns() -> None:
    assert await Turns(ProducerPlan(link=LINK, topic="t", seconds=0.0), asyncio.Event()).next() is None


def test_processes_share_the_messages_and_the_rate() -> None:
    plan = ProducerPlan(link=LINK, topic="t", messages=10, rate=30.0, run="r")
    shares = shares_of(plan, 3)
    assert [each.messages for each in shares] == [4, 3, 3]
    assert {each.rate for each in shares} == {10.0}
    assert len({each.run for each in shares}) == 3
    timed = shares_of(ProducerPlan(link=LINK, topic="t", seconds=5.0), 2)
    assert [(each.messages, each.seconds, each.rate) for each in timed] == [(None, 5.0, None)] * 2
