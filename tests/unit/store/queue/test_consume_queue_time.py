"""Looking up queue offsets by time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cometmq.store.queue.consume_queue import Boundary, ConsumeQueue
from cometmq.testing.simulation.disk import SimulatedDisk
from tests.unit.store.queue.queue_kit import a_queue, place_of, put

GAPS = st.lists(st.integers(0, 3), max_size=45)


def a_queue_with_times(gaps: list[int]) -> tuple[ConsumeQueue, dict[int, int]]:
    """A queue, and the store times by physical offset."""
    queue = a_queue(SimulatedDisk())
    times: dict[int, int] = {}
    now = 100
    for queue_offset, gap in enumerate(gaps):
        now += gap
        put(queue, queue_offset)
        times[place_of(queue_offset)] = now
    return queue, times


@given(GAPS, st.integers(95, 250), st.integers(0, 50))
def test_the_offset_for_a_time_is_that_of_a_look_at_every_message(
    gaps: list[int], moment: int, removed: int
) -> None:
    """B9: also when the first messages are gone from the log."""
    queue, times = a_queue_with_times(gaps)
    removed = min(removed, len(gaps))
    queue.correct_min_offset(place_of(removed))

    def store_time(physical_offset: int, size: int) -> int:
        return times[physical_offset] if physical_offset >= place_of(removed) else -1

    readable = [(times[place_of(offset)], offset) for offset in range(removed, len(gaps))]
    at_or_after = [offset for time, offset in readable if time >= moment]
    at_or_before = [offset for time, offset in readable if time <= moment]

    assert queue.offset_by_time(moment, store_time) == min(at_or_after, default=len(gaps))
    if readable:
        upper = queue.offset_by_time(moment, store_time, Boundary.UPPER)
        assert upper == max(at_or_before, default=0)


def test_of_messages_stored_in_the_same_moment_the_first_or_the_last_is_meant() -> None:
    """B9"""
    queue, times = a_queue_with_times([0, 5, 0, 0, 5])

    def store_time(physical_offset: int, size: int) -> int:
        return times[physical_offset]

    assert queue.offset_by_time(105, store_time, Boundary.LOWER) == 1
    assert queue.offset_by_time(105, store_time, Boundary.UPPER) == 3
    assert queue.offset_by_time(107, store_time, Boundary.LOWER) == 4
    assert queue.offset_by_time(107, store_time, Boundary.UPPER) == 3


def test_a_queue_whose_messages_are_all_gone_answers_with_its_end() -> None:
    """B9"""
    queue, _ = a_queue_with_times([1, 1, 1])
    queue.correct_min_offset(place_of(9))

    assert queue.offset_by_time(50, lambda *_: -1) == 3
    assert queue.offset_by_time(50, lambda *_: -1, Boundary.UPPER) == 2


def test_an_empty_queue_answers_with_0() -> None:
    """B9"""
    queue = a_queue(SimulatedDisk())

    assert queue.offset_by_time(50, lambda *_: -1) == 0
    assert queue.offset_by_time(50, lambda *_: -1, Boundary.UPPER) == 0


def test_a_time_is_found_with_few_looks_into_the_log() -> None:
    """B9"""
    queue, times = a_queue_with_times([1] * 1000)
    looks = 0

    def store_time(physical_offset: int, size: int) -> int:
        nonlocal looks
        looks += 1
        return times[physical_offset]

    assert queue.offset_by_time(700, store_time) == 599
    assert looks <= 11
