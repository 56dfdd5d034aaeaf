"""The base of concurrent, ordered and pop consumption: listeners that run on threads or as tasks."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from cometmq.client.consumer.listener import Listener
from cometmq.client.consumer.listener_pool import TaskWorkers, ThreadWorkers
from cometmq.client.consumer.process_queue import ProcessQueue
from cometmq.client.consumer.send_back import SendBack
from cometmq.client.consumer.settings import PushSettings
from cometmq.client.consumer.statistics import ConsumeStatistics

J = TypeVar("J")
R = TypeVar("R")


@dataclass(eq=False, repr=False)
class Consumption(ABC, Generic[J, R]):
    """Runs listeners over messages; plain functions run on threads, coroutine functions as tasks."""

    _name: str
    _settings: PushSettings
    _send_back: SendBack
    _listener_of: Callable[[str], Listener | None]
    _statistics: ConsumeStatistics

    def __post_init__(self) -> None:
        name, threads = self._name, self._settings.consume_threads
        self._batch_size = self._settings.consume_message_batch_max_size
        self._threads: ThreadWorkers[J, R] = ThreadWorkers(name, threads, self._run, self._finished)
        self._tasks: TaskWorkers[J, R] = TaskWorkers(name, threads, self._run_async, self._finished)
        self._stopping = False

    def _submit(self, listener: Listener, jobs: Iterable[J]) -> None:
        (self._tasks if listener.is_async else self._threads).submit(jobs)

    @abstractmethod
    def _run(self, job: J) -> R:
        """Call a plain function, on a thread."""

    @abstractmethod
    async def _run_async(self, job: J) -> R:
        """Call a coroutine function."""

    @abstractmethod
    def _finished(self, finished: list[tuple[J, R, float]]) -> None:
        """Take the results, on the event loop."""

    def running_count(self) -> int:
        """How many calls of listeners are running."""
        return len(self._threads.running()) + len(self._tasks.running())

    def is_busy(self, pq: ProcessQueue) -> bool:
        """Whether a listener has messages that the queue has to wait for."""
        return False

    def send_back_expired(self) -> None:
        """Send back messages that exceed the consume timeout, if there can be any."""

    def withdraw(self) -> None:
        """Start no more listeners; waiting messages stay with the broker."""
        self._stopping = True
        self._threads.withdraw()
        self._tasks.withdraw()

    async def stop(self, timeout_s: float) -> bool:
        """Withdraw, and wait for running listeners; True if they ended in time."""
        self.withdraw()
        return all(await asyncio.gather(self._threads.stop(timeout_s), self._tasks.stop(timeout_s)))
