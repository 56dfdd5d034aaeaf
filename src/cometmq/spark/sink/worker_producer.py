"""The producer of a worker process, and how long its requests are retried.

Rules kept here:
- Requests run on the client's event loop while the task encodes the next ones. With `MAX_IN_FLIGHT` requests
  under way the task waits.
- A request that a broker is too busy for, or cannot be reached for, is retried; other failures end the task.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

from cometmq.client.blocking.loop import background
from cometmq.client.producer.preencoded import PreencodedProducer
from cometmq.spark.process_cache import ProcessCache
from cometmq.spark.retry import retry
from cometmq.spark.sink.options import SinkOptions

MAX_IN_FLIGHT: Final = 8
_ROUTE_TIMEOUT_S: Final = 10.0
"""A topic without a route may belong to a broker that is starting; more often its name is misspelt."""

T = TypeVar("T")


def start_producer(options: SinkOptions) -> PreencodedProducer:
    """A producer on the background loop of this process."""
    producer = PreencodedProducer(options.group, options.producer_settings())
    background().run(producer.start())
    return producer


def stop_producer(producer: PreencodedProducer) -> None:
    background().run(producer.stop())


_producers: Final = ProcessCache(stop_producer)


def worker_producer(options: SinkOptions) -> PreencodedProducer:
    """The producer of this process for a sink with these options."""
    settings = options.group, options.producer_settings()
    return _producers.get(settings, partial(start_producer, options))


async def retry_send(attempt: Callable[[], Awaitable[T]], options: SinkOptions) -> T:
    """Retry for `retryTimeoutMs`; a topic without a route gets less."""
    return await retry(attempt, options.retry_timeout_ms / 1000, route_timeout_s=_ROUTE_TIMEOUT_S)
