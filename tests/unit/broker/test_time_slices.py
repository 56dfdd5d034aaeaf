"""Work that many wait for is done in several turns of the event loop."""

from __future__ import annotations

import asyncio
import time

from cometmq.broker.long_polling import ArrivalFilters
from cometmq.broker.time_slices import SLICE_S, SlicedQueue, Steps, run_at_once, run_sliced


class Slow:
    """A filter that takes a while, and wants nothing."""

    is_expensive = True

    def __init__(self) -> None:
        self.asked = 0

    def wants_unit(self, tags_code: int, ext: object) -> bool:
        return True

    def wants_record(self, record: memoryview) -> bool:
        return False

    def wants_arrival(self, tags_code: int, properties_block: bytes | memoryview) -> bool:
        self.asked += 1
        busy(SLICE_S / 2)
        return False


def busy(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


async def test_others_have_their_turn_between_and_the_order_stays() -> None:
    done: list[int] = []

    def do(number: int) -> None:
        busy(SLICE_S)
        done.append(number)

    turns = SlicedQueue(do)
    turns.add(range(5))
    turns.add([5])
    seen = []
    while len(done) < 6:
        await asyncio.sleep(0)
        seen.append(len(done))
    assert done == list(range(6))
    assert len(set(seen)) > 3, "others ran in between"


async def test_everything_is_done_at_once_where_there_is_no_later() -> None:
    done: list[int] = []
    turns = SlicedQueue(done.append)
    turns.add(range(5))
    turns.run_all()
    assert done == list(range(5))


async def test_one_that_fails_leaves_the_others_their_turn() -> None:
    done: list[int] = []
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context["exception"]))

    def do(number: int) -> None:
        if number == 1:
            raise ValueError(number)
        done.append(number)

    SlicedQueue(do).add(range(4))
    for _ in range(3):
        await asyncio.sleep(0)
    assert done == [0, 2, 3]
    assert len(failures) == 1


async def test_who_cannot_be_asked_in_this_turn_counts_as_interested() -> None:
    filters, slow = ArrivalFilters(), Slow()
    outcomes = [filters.wants(slow, 0, b"") for _ in range(10)]
    assert outcomes[0] is False
    assert outcomes[-1]
    assert slow.asked < 5
    await asyncio.sleep(0)
    assert not filters.wants(slow, 0, b""), "the next turn has time again"


async def test_steps_come_to_the_same_in_one_turn_and_in_several() -> None:
    def steps() -> Steps[str]:
        for _ in range(3):
            busy(SLICE_S)
            yield
        return "done"

    assert run_at_once(steps()) == await run_sliced(steps()) == "done"
