"""Waiting for a condition: `eventually` on an event loop, `wait_until` on a thread.

Both look again and again until `wanted` accepts what they see (by default anything true) and return it.
After `seconds` they fail with what was waited for and what was seen last.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any, Final, TypeVar, overload

T = TypeVar("T")

PATIENCE_S: Final = 40.0
"""Far more than anything takes that works."""
_POLL_S: Final = 0.005
_BLOCKING_POLL_S: Final = 0.02


@overload
async def eventually(
    look: Callable[[], Awaitable[T]],
    what: str = ...,
    wanted: Callable[[T], object] = ...,
    *,
    seconds: float = ...,
) -> T: ...


@overload
async def eventually(
    look: Callable[[], T], what: str = ..., wanted: Callable[[T], object] = ..., *, seconds: float = ...
) -> T: ...


async def eventually(
    look: Callable[[], Any],
    what: str = "the condition holds",
    wanted: Callable[[Any], object] = bool,
    *,
    seconds: float = PATIENCE_S,
) -> Any:
    """Wait on the event loop; `look` may be asynchronous."""
    seen: Any = None
    try:
        async with asyncio.timeout(seconds):
            while True:
                seen = look()
                if isawaitable(seen):
                    seen = await seen
                if wanted(seen):
                    return seen
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        raise AssertionError(_failure(what, seconds, seen)) from None


def wait_until(
    look: Callable[[], T],
    what: str = "the condition holds",
    wanted: Callable[[T], object] = bool,
    *,
    seconds: float = PATIENCE_S,
) -> T:
    """Wait on this thread."""
    deadline = time.monotonic() + seconds
    while not wanted(seen := look()):
        if time.monotonic() > deadline:
            raise AssertionError(_failure(what, seconds, seen))
        time.sleep(_BLOCKING_POLL_S)
    return seen


def _failure(what: str, seconds: float, seen: object) -> str:
    return f"not within {seconds:g} s: {what}; last seen: {seen!r}"
