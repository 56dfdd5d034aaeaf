"""The producer of a worker process, and the window of requests that a task has in flight.

Rules kept here:
- Requests run on the client's event loop while the task encodes the next ones. With `MAX_IN_FLIGHT` requests
  under way the task waits.
- A request that a broker is too busy for, or cannot be reached for, is retried; other failures end the task.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from cometmq.client.blocking.loop import background
from cometmq.client.producer.preencoded import PreencodedProducer
from cometmq.spark.process_cache import ProcessCache
from cometmq.spark.retry import retry
from cometmq.spark.sink.options import SinkOptions

MAX_IN_FLIGHT: Final = 8
_ROUTE_TIMEOUT_S: Final = 10.0
"""A topic without a route may belong to a broker that is starting; more often its name is misspelt."""

T = TypeVar("T")


class WorkerProducer:
    """A producer on the background loop of this process."""

    def __init__(self, options: SinkOptions) -> None:
        self._background = background()
        self.producer = PreencodedProducer(options.group, options.producer_settings())
        self.run(self.producer.start())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._background.run(work)

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return self._background.submit(work)

    def close(self) -> None:
        self.run(self.producer.stop())


_producers: Final = ProcessCache[WorkerProducer]()


def worker_producer(options: SinkOptions) -> WorkerProducer:
    """The producer of this process for a sink with these options."""
    settings = options.group, options.producer_settings()
    return _producers.get(settings, lambda: WorkerProducer(options))


async def retry_send(attempt: Callable[[], Awaitable[T]], options: SinkOptions) -> T:
    """Retry for `retryTimeoutMs`; a topic without a route gets less."""
    return await retry(attempt, options.retry_timeout_ms / 1000, route_timeout_s=_ROUTE_TIMEOUT_S)


class Window:
    """The requests of a task that are in flight."""

    def __init__(self) -> None:
        self._futures: deque[Future[None]] = deque()

    def add(self, future: Future[None]) -> None:
        """Add a request. If the window is full, wait for the oldest one and raise its error."""
        self._futures.append(future)
        while len(self._futures) >= MAX_IN_FLIGHT:
            self._futures.popleft().result()

    def drain(self) -> None:
        while self._futures:
            self._futures.popleft().result()

    def abandon(self) -> None:
        """Cancel all requests, because another one failed."""
        for future in self._futures:
            future.cancel()
        self._futures.clear()
