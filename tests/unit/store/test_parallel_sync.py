"""Work that is spread over several workers."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from threading import Barrier

import pytest

from cometmq.store.parallel_sync import ParallelSync
from tests.unit.store.log_kit import InPlace


@pytest.fixture
def two_threads() -> Iterator[ParallelSync]:
    workers = ParallelSync([ThreadPoolExecutor(1), ThreadPoolExecutor(1)])
    yield workers
    workers.dismiss()


def test_as_many_things_are_done_at_once_as_there_are_workers(two_threads: ParallelSync) -> None:
    """B5: one after the other would wait here for the second for ever."""
    both = Barrier(2, timeout=60)
    done: list[int] = []

    def act(number: int) -> None:
        both.wait()
        done.append(number)

    two_threads.each(act, range(6))

    assert sorted(done) == list(range(6))


def test_a_failure_is_raised_when_the_others_have_finished(two_threads: ParallelSync) -> None:
    """B5"""
    done: list[int] = []

    def act(number: int) -> None:
        if number == 0:
            raise OSError("no such disk")
        done.append(number)

    with pytest.raises(OSError, match="no such disk"):
        two_threads.each(act, range(6))

    assert done == [1, 3, 5]


@pytest.mark.parametrize("workers", [[], [InPlace()], [InPlace(), InPlace(), InPlace()]])
@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_without_threads_everything_is_done_in_an_order_that_stays(
    workers: list[Executor], count: int
) -> None:
    """B5"""
    runs: list[list[int]] = [[], []]
    for done in runs:
        ParallelSync(workers).each(done.append, range(count))

    assert runs[0] == runs[1]
    assert sorted(runs[0]) == list(range(count))
