"""The producer of a worker process, and how a task waits for what it sends.

Rules kept here:
- A process keeps its producer for the next task that writes to the same cluster, because connecting takes
  longer than a small task; it keeps a few at most. A process that was forked off makes its own.
- Requests run on the client's own event loop, beside the task, which encodes the next ones meanwhile. So many
  are under way at most; then the task waits.
- What a broker that is away or busy did not take is tried again for a while; everything else fails at once.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar

import msgspec

from cometmq.client.blocking.loop import background
from cometmq.client.producer.preencoded import PreencodedProducer
from cometmq.model.errors import CometError, RemotingError, RouteNotFoundError
from cometmq.spark.sink.options import SinkOptions
from cometmq.wire.codes import ResponseCode

MAX_IN_FLIGHT: Final = 8
_MAX_LINKS: Final = 4
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 0.5
_ROUTE_PATIENCE_S: Final = 10.0
"""A topic that no name server knows may be that of a broker that is just starting; mostly it is misspelt."""
_BUSY: Final = frozenset(
    int(code)
    for code in (
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.FLOW_CONTROL,
        ResponseCode.GO_AWAY,
        ResponseCode.FLUSH_DISK_TIMEOUT,
    )
)

T = TypeVar("T")


class SinkLink:
    """A producer on the background loop of this process."""

    def __init__(self, options: SinkOptions) -> None:
        self._background = background()
        self.producer = PreencodedProducer(options.group, options.producer_settings())
        self.run(self.producer.start())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._background.run(work)

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return self._background.submit(work)

    def stop(self) -> None:
        self.run(self.producer.stop())


_links: dict[tuple[int, bytes], SinkLink] = {}


def sink_link(options: SinkOptions) -> SinkLink:
    """The link of this process for such a sink."""
    key = os.getpid(), msgspec.json.encode((options.group, options.producer_settings()))
    link = _links.pop(key, None)
    if link is None:
        for other in [known for known in _links if known[0] != key[0]]:
            del _links[other]  # of the process that this one was forked off
        while len(_links) >= _MAX_LINKS:
            _links.pop(next(iter(_links))).stop()
        link = SinkLink(options)
    _links[key] = link
    return link


class Window:
    """The requests of a task that are under way."""

    def __init__(self) -> None:
        self._futures: deque[Future[None]] = deque()

    def add(self, future: Future[None]) -> None:
        """Remember a request, and wait for the oldest one if there are too many; raises what that raised."""
        self._futures.append(future)
        while len(self._futures) >= MAX_IN_FLIGHT:
            self._futures.popleft().result()

    def drain(self) -> None:
        """Wait for all of them."""
        while self._futures:
            self._futures.popleft().result()

    def abandon(self) -> None:
        """Give up those that are under way, because another one failed."""
        for future in self._futures:
            future.cancel()
        self._futures.clear()


async def patiently(attempt: Callable[[], Awaitable[T]], patience_ms: int) -> T:
    """Try something until it works, fails for good, or the patience is over."""
    loop = asyncio.get_running_loop()
    begun, pause_s = loop.time(), _FIRST_PAUSE_S
    while True:
        try:
            return await attempt()
        except CometError as error:
            patience_s = patience_ms / 1000
            if isinstance(error, RouteNotFoundError):
                patience_s = min(patience_s, _ROUTE_PATIENCE_S)
            if not may_work_later(error) or loop.time() - begun + pause_s > patience_s:
                raise
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def may_work_later(error: BaseException | None) -> bool:
    """Whether a failure is one of a broker that is away or busy."""
    while error is not None:
        if isinstance(error, RemotingError | RouteNotFoundError):
            return True
        if isinstance(error, CometError) and error.code in _BUSY:
            return True
        error = error.__cause__
    return False
