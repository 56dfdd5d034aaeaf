"""The limit on what is under way."""

from __future__ import annotations

import asyncio

import pytest

from cometmq.client.producer.in_flight import InFlight
from cometmq.model.errors import CallTimeoutError


def soon() -> float:
    return asyncio.get_running_loop().time() + 5


async def turn() -> None:
    """Let everybody who can go on do so."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_messages_and_bytes_are_limited() -> None:
    flight = InFlight(2, 100)
    assert flight.enter_at_once(60)
    assert not flight.enter_at_once(60)
    assert flight.enter_at_once(40)
    assert not flight.enter_at_once(0)
    flight.leave(60, 0)
    assert flight.enter_at_once(60)


async def test_a_message_larger_than_the_limit_goes_alone() -> None:
    flight = InFlight(10, 100)
    assert flight.enter_at_once(500)
    assert not flight.enter_at_once(1)
    flight.leave(500, 0)
    assert flight.enter_at_once(1)
    assert not flight.enter_at_once(500)


async def test_who_waits_is_let_in_in_order() -> None:
    flight = InFlight(1, 100)
    order: list[int] = []

    async def enter(number: int) -> None:
        await flight.enter(1, soon())
        order.append(number)

    assert flight.enter_at_once(1)
    tasks = [asyncio.create_task(enter(number)) for number in range(3)]
    await turn()
    assert not flight.enter_at_once(1)
    for count in (1, 2, 3):
        flight.leave(1, 0)
        await turn()
        assert order == list(range(count))
    await asyncio.gather(*tasks)
    flight.leave(1, 0)
    assert (flight.messages, flight.bytes) == (0, 0)


async def test_a_large_one_in_line_is_not_overtaken() -> None:
    flight = InFlight(10, 100)
    assert flight.enter_at_once(50)
    large = asyncio.create_task(flight.enter(80, soon()))
    await turn()
    assert not flight.enter_at_once(10)
    flight.leave(50, 0)
    await large
    assert (flight.messages, flight.bytes) == (1, 80)


async def test_waiting_ends_at_the_deadline() -> None:
    flight = InFlight(1, 100)
    assert flight.enter_at_once(1)
    with pytest.raises(CallTimeoutError, match="send slower"):
        await flight.enter(1, asyncio.get_running_loop().time() + 0.01)
    flight.leave(1, 0)
    assert flight.enter_at_once(1)


async def test_one_that_is_cancelled_lets_the_next_in() -> None:
    flight = InFlight(10, 100)
    assert flight.enter_at_once(50)
    large = asyncio.create_task(flight.enter(80, soon()))
    small = asyncio.create_task(flight.enter(20, soon()))
    await turn()
    large.cancel()
    await small
    assert (flight.messages, flight.bytes) == (2, 70)


async def test_one_that_is_cancelled_as_it_is_let_in_leaves_again() -> None:
    flight = InFlight(1, 100)
    assert flight.enter_at_once(1)
    waiting = asyncio.create_task(flight.enter(1, soon()))
    await turn()
    flight.leave(1, 0)
    waiting.cancel()
    await turn()
    assert waiting.cancelled()
    assert (flight.messages, flight.bytes) == (0, 0)


async def test_a_wait_ends_with_the_last_one_that_came_before_it() -> None:
    flight = InFlight(2, 100)
    await flight.passed()
    first, last = flight.turn, None
    assert flight.enter_at_once(1)
    assert flight.enter_at_once(1)
    in_line = asyncio.create_task(flight.enter(1, soon()))
    await turn()
    passed = asyncio.create_task(flight.passed())
    await turn()
    flight.leave(1, first)
    await in_line
    flight.leave(1, first)
    last = flight.turn
    assert last != first
    assert flight.enter_at_once(1)
    await turn()
    assert not passed.done()
    flight.leave(1, last)
    await turn()
    assert not passed.done()
    flight.leave(1, first)
    await passed
    assert (flight.messages, flight.bytes) == (0, 0)


async def test_a_wait_does_not_count_those_that_gave_up_in_line() -> None:
    flight = InFlight(1, 100)
    assert flight.enter_at_once(1)
    in_line = [asyncio.create_task(flight.enter(1, soon())) for _ in range(2)]
    await turn()
    passed = [asyncio.create_task(flight.passed()) for _ in range(2)]
    await turn()
    for task in in_line:
        task.cancel()
    await turn()
    assert not any(task.done() for task in passed)
    flight.leave(1, 0)
    await asyncio.gather(*passed)
