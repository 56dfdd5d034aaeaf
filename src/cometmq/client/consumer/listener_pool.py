"""Worker pools that run listeners: threads for plain functions, tasks for coroutine functions.

Rules kept here:
- Jobs are submitted and collected in groups; no job costs a future, a task or a wake-up of its own.
- One worker serves jobs that take microseconds; once jobs turn out to be slow, all workers join in. So
  threads that compete for the interpreter do not slow down a fast listener, and a slow one gets them all.
- A result comes with the seconds that its job took.
- The submitter bounds the jobs that wait: messages count against the thresholds of their queue until they are
  done.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from queue import SimpleQueue
from typing import Final, Generic, TypeVar

log = logging.getLogger("cometmq.client")

J = TypeVar("J")
R = TypeVar("R")

_QUICK_S: Final = 0.000_2
"""Jobs with a longer mean time get more threads."""
_LOOK_AGAIN_S: Final = 0.002
_TURN_S: Final = 0.005
"""How long a task runs jobs that never wait before it yields to other tasks."""


class _Worker(Generic[J]):
    """One thread and its current job."""

    __slots__ = ("job", "since")

    def __init__(self) -> None:
        self.job: J | None = None
        self.since = 0.0


class ThreadWorkers(Generic[J, R]):
    """Threads that run a plain function. Results arrive on the loop that is running at construction."""

    def __init__(
        self,
        name: str,
        threads: int,
        run: Callable[[J], R],
        finished: Callable[[list[tuple[J, R, float]]], None],
    ) -> None:
        self._name = name
        self._limit = threads
        self._run = run
        self._finished = finished
        self._loop = asyncio.get_running_loop()
        self._jobs: deque[J] = deque()
        self._results: deque[tuple[J, R, float]] = deque()
        self._wake: SimpleQueue[bool] = SimpleQueue()
        self._workers: list[_Worker[J]] = []
        self._idle = 0
        self._lock = threading.Lock()
        self._reported = False
        self._done = 0
        self._done_seen = 0
        self._mean_s = 0.0
        self._looking = False
        self._stopping = False
        self._all_quiet = asyncio.Event()

    def submit(self, jobs: Iterable[J]) -> None:
        """Run these jobs."""
        if self._stopping:
            return
        self._jobs.extend(jobs)
        if self._idle == len(self._workers):
            self._wake_workers(1)
        if not self._looking:
            self._looking = True
            self._loop.call_later(_LOOK_AGAIN_S, self._look_again)

    def _wake_workers(self, count: int) -> None:
        for _ in range(count):
            with self._lock:
                idle = self._idle
                if idle:
                    self._idle -= 1
            if idle:
                self._wake.put(True)
            elif len(self._workers) < self._limit:
                worker = _Worker[J]()
                self._workers.append(worker)
                number = len(self._workers)
                threading.Thread(
                    target=self._work, args=(worker,), name=f"{self._name}-{number}", daemon=True
                ).start()

    def _look_again(self) -> None:
        """Wake more workers for waiting jobs, unless the running ones are about to get to them."""
        waiting = len(self._jobs)
        if not waiting or self._stopping:
            self._looking = False
            return
        if self._done == self._done_seen or self._mean_s > _QUICK_S:
            busy = len(self._workers) - self._idle
            self._wake_workers(min(waiting, self._limit - busy))
        self._done_seen = self._done
        self._loop.call_later(_LOOK_AGAIN_S, self._look_again)

    def _work(self, worker: _Worker[J]) -> None:
        jobs, results, run, clock = self._jobs, self._results, self._run, time.monotonic
        while True:
            began = now = clock()
            count = 0
            while True:
                try:
                    job = jobs.popleft()
                except IndexError:
                    break
                since = worker.since = now
                worker.job = job
                result = run(job)
                worker.job = None
                now = clock()
                results.append((job, result, now - since))
                count += 1
                self._done += 1
                if not self._reported:
                    self._report()
            if count:
                self._mean_s += ((now - began) / count - self._mean_s) * 0.5
            if not self._rest():
                return

    def _rest(self) -> bool:
        """Wait to be woken; False ends the thread."""
        with self._lock:
            self._idle += 1
        if self._jobs:  # submitted after the last look, by a caller that took this worker for busy
            with self._lock:
                if self._idle:
                    self._idle -= 1
                    return True
        if self._stopping:
            self._report()
        return self._wake.get()

    def _report(self) -> None:
        self._reported = True
        try:
            self._loop.call_soon_threadsafe(self._collect)
        except RuntimeError:  # the loop is closed: nobody wants the result
            log.debug("%s ended a job when its loop was closed", self._name)

    def _collect(self) -> None:
        self._reported = False
        results = self._results
        taken: list[tuple[J, R, float]] = []
        while results:
            taken.append(results.popleft())
        if taken:
            self._finished(taken)
        if self._stopping and self._idle == len(self._workers) and not results:
            self._all_quiet.set()

    def running(self) -> list[tuple[J, float]]:
        """The running jobs, each with its start by the monotonic clock."""
        found = [(worker.job, worker.since) for worker in self._workers]
        return [(job, since) for job, since in found if job is not None]

    def withdraw(self) -> None:
        """Drop waiting jobs, and take no more."""
        self._stopping = True
        self._jobs.clear()

    async def stop(self, timeout_s: float) -> bool:
        """Withdraw, and wait for running jobs; True if all ended in time."""
        self.withdraw()
        self._collect()
        quiet = True
        try:
            async with asyncio.timeout(timeout_s):
                await self._all_quiet.wait()
        except TimeoutError:
            quiet = False
        for _ in self._workers:
            self._wake.put(False)
        return quiet


class TaskWorkers(Generic[J, R]):
    """Tasks on the event loop that run a coroutine function."""

    def __init__(
        self,
        name: str,
        tasks: int,
        run: Callable[[J], Awaitable[R]],
        finished: Callable[[list[tuple[J, R, float]]], None],
    ) -> None:
        self._name = name
        self._limit = tasks
        self._run = run
        self._finished = finished
        self._jobs: deque[J] = deque()
        self._results: list[tuple[J, R, float]] = []
        self._reported = False
        self._current: dict[asyncio.Task[None], tuple[J, float]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._loop = asyncio.get_running_loop()

    def submit(self, jobs: Iterable[J]) -> None:
        """Run these jobs."""
        if self._stopping:
            return
        self._jobs.extend(jobs)
        wanted = min(len(self._jobs), self._limit - len(self._tasks))
        for _ in range(wanted):
            self._tasks.add(self._loop.create_task(self._work(), name=self._name))

    async def _work(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        jobs, run, clock = self._jobs, self._run, time.monotonic
        now = turn_began = clock()
        try:
            while jobs:
                job = jobs.popleft()
                self._current[task] = (job, now)
                since = now
                result = await run(job)
                now = clock()
                self._results.append((job, result, now - since))
                if not self._reported:
                    self._reported = True
                    self._loop.call_soon(self._collect)
                if now - turn_began > _TURN_S:
                    await asyncio.sleep(0)
                    now = turn_began = clock()
        finally:
            # At once, not by a callback of the loop: a job that is submitted before that callback would
            # find every worker busy, and wait for the next job.
            self._tasks.discard(task)
            self._current.pop(task, None)

    def _collect(self) -> None:
        self._reported = False
        taken, self._results = self._results, []
        if taken:
            self._finished(taken)

    def running(self) -> list[tuple[J, float]]:
        """The running jobs, each with its start by the monotonic clock."""
        return list(self._current.values())

    def withdraw(self) -> None:
        """Drop waiting jobs, and take no more."""
        self._stopping = True
        self._jobs.clear()

    async def stop(self, timeout_s: float) -> bool:
        """Withdraw, and wait for running jobs; True if all ended in time."""
        self.withdraw()
        late: set[asyncio.Task[None]] = set()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=timeout_s)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=1.0)
        self._collect()
        return not late

    async def finish(self, timeout_s: float) -> bool:
        """Run all waiting jobs to their end; True if that was done in time."""
        deadline = self._loop.time() + timeout_s
        while self._tasks and (left_s := deadline - self._loop.time()) > 0:
            await asyncio.wait(self._tasks, timeout=left_s)
        return await self.stop(0.0)
