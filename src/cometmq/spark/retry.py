"""Retries while a broker is away or busy; every other failure is raised at once."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeVar

from cometmq.model.errors import CometError, RemotingError, RouteNotFoundError
from cometmq.wire.codes import ResponseCode

T = TypeVar("T")

_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 0.5
_BUSY: Final = frozenset(
    {
        ResponseCode.SYSTEM_BUSY.value,
        ResponseCode.SERVICE_NOT_AVAILABLE.value,
        ResponseCode.FLOW_CONTROL.value,
        ResponseCode.GO_AWAY.value,
        ResponseCode.FLUSH_DISK_TIMEOUT.value,
    }
)


async def retry(
    attempt: Callable[[], Awaitable[T]],
    timeout_s: float,
    *,
    route_timeout_s: float = math.inf,
    recover: Callable[[], Awaitable[object]] | None = None,
) -> T:
    """Call `attempt` until it succeeds, fails for good, or `timeout_s` is over; then raise its last error.

    `route_timeout_s` limits the time for a topic without a route; `recover` runs before each further attempt.
    """
    loop = asyncio.get_running_loop()
    began, pause_s = loop.time(), _FIRST_PAUSE_S
    while True:
        try:
            return await attempt()
        except CometError as error:
            limit_s = timeout_s
            if isinstance(error, RouteNotFoundError):
                limit_s = min(timeout_s, route_timeout_s)
            if not is_transient(error) or loop.time() - began + pause_s > limit_s:
                raise
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        if recover is not None:
            with suppress(CometError):
                await recover()


def is_transient(error: BaseException | None) -> bool:
    """Whether the error, or one that caused it, means that a broker is away or busy."""
    while error is not None:
        if isinstance(error, RemotingError | RouteNotFoundError):
            return True
        if isinstance(error, CometError) and error.code in _BUSY:
            return True
        error = error.__cause__
    return False
