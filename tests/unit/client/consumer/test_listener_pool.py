"""Threads and tasks that run listeners: all jobs, in batches, and a stop that waits for what has begun."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from cometmq.client.consumer.listener_pool import TaskWorkers, ThreadWorkers
from tests.waiting import eventually

PATIENCE_S = 30.0


class Results:
    """Collects what workers report."""

    def __init__(self) -> None:
        self.reports: list[list[tuple[int, int, float]]] = []

    def __call__(self, finished: list[tuple[int, int, float]]) -> None:
        self.reports.append(finished)

    @property
    def jobs(self) -> list[int]:
        return [job for report in self.reports for job, _, _ in report]


async def test_threads_run_every_job_and_report_many_at_a_time() -> None:
    results = Results()
    workers = ThreadWorkers("w", 4, lambda job: job * 2, results)
    for start in range(0, 10_000, 100):
        workers.submit(range(start, start + 100))
    await eventually(lambda: len(results.jobs) == 10_000)
    assert sorted(results.jobs) == list(range(10_000))
    assert all(result == job * 2 for report in results.reports for job, result, _ in report)
    assert len(results.reports) < 5_000
    assert await workers.stop(1.0)


async def test_jobs_that_wait_get_all_threads() -> None:
    results, together = Results(), threading.Barrier(8)
    workers: ThreadWorkers[int, int] = ThreadWorkers(
        "w", 8, lambda job: together.wait(timeout=PATIENCE_S), results
    )
    workers.submit(range(8))
    await eventually(lambda: len(results.jobs) == 8)
    assert await workers.stop(1.0)


async def test_a_stuck_job_holds_up_no_other() -> None:
    results, free = Results(), threading.Event()

    def run(job: int) -> int:
        if job == 0:
            free.wait()
        return job

    workers = ThreadWorkers("w", 2, run, results)
    workers.submit(range(50))
    await eventually(lambda: len(results.jobs) == 49)
    ((job, since),) = workers.running()
    assert job == 0
    assert since <= time.monotonic()
    free.set()
    await eventually(lambda: len(results.jobs) == 50)
    assert await workers.stop(1.0)


@pytest.mark.parametrize("kind", ["threads", "tasks"])
async def test_a_stop_waits_for_what_has_begun_and_drops_the_rest(kind: str) -> None:
    """C5."""
    results, begun = Results(), threading.Event()
    free = asyncio.Event()
    loop = asyncio.get_running_loop()

    def run(job: int) -> int:
        begun.set()
        asyncio.run_coroutine_threadsafe(free.wait(), loop).result(PATIENCE_S)
        return job

    async def run_async(job: int) -> int:
        begun.set()
        await free.wait()
        return job

    workers: ThreadWorkers[int, int] | TaskWorkers[int, int]
    workers = (
        ThreadWorkers("w", 1, run, results) if kind == "threads" else TaskWorkers("w", 1, run_async, results)
    )
    workers.submit(range(10))
    await eventually(begun.is_set)
    stopping = asyncio.create_task(workers.stop(PATIENCE_S))
    await asyncio.sleep(0)
    free.set()
    assert await stopping
    assert results.jobs == [0]
    workers.submit([99])
    assert results.jobs == [0]


async def test_a_stop_gives_up_on_a_job_that_does_not_end() -> None:
    """C5."""
    free = threading.Event()
    workers: ThreadWorkers[int, bool] = ThreadWorkers("w", 1, lambda job: free.wait(), lambda finished: None)
    workers.submit([1])
    await eventually(lambda: bool(workers.running()))
    assert not await workers.stop(0.01)
    free.set()


async def test_tasks_report_a_job_although_the_next_one_waits() -> None:
    results, free = Results(), asyncio.Event()

    async def run(job: int) -> int:
        if job == 1:
            await free.wait()
        return job

    workers = TaskWorkers("w", 1, run, results)
    workers.submit([0, 1])
    await eventually(lambda: results.jobs == [0])
    free.set()
    assert await workers.finish(PATIENCE_S)
    assert results.jobs == [0, 1]


async def test_tasks_that_never_wait_leave_room_for_others() -> None:
    async def run(job: int) -> int:
        return job

    results = Results()
    workers = TaskWorkers("w", 4, run, results)
    workers.submit(range(200_000))
    turns = 0
    while len(results.jobs) < 200_000 and turns < 1_000_000:
        turns += 1
        await asyncio.sleep(0)
    assert turns > 3
    assert await workers.stop(1.0)


async def test_a_job_handed_over_as_the_last_one_ends_is_run_too() -> None:
    ended = asyncio.Event()

    async def run(job: int) -> int:
        return job

    def finished(report: list[tuple[int, int, float]]) -> None:
        if report[-1][0] == 1:
            workers.submit([2])  # the task that ran job 1 has ended, and the loop has not heard of it yet
        else:
            ended.set()

    workers: TaskWorkers[int, int] = TaskWorkers("w", 1, run, finished)
    workers.submit([1])
    async with asyncio.timeout(PATIENCE_S):
        await ended.wait()
    assert await workers.stop(1.0)
