"""Time slices: long work on the event loop in slices of 20 ms, so that others get their turn.

- `SlicedQueue` does the same work for many items, one slice per turn of the event loop.
- `run_sliced` takes the steps of a generator in the same way.
- `sliced` and `encode_in_thread` are for coroutines that go through a long table.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterable
from time import perf_counter
from typing import Final, Generic, TypeVar, cast

T = TypeVar("T")
Steps = Generator[None, None, T]
"""Work that can be interrupted after each step, and its result."""

SLICE_S: Final = 0.02
"""The longest time that one kind of work takes in a turn of the event loop."""
_SHORT_TABLE: Final = 500
"""Encoding as much takes a few milliseconds."""


class SlicedQueue(Generic[T]):
    """Does the same work for many items, one time slice per turn of the event loop."""

    def __init__(self, do: Callable[[T], None]) -> None:
        self._do = do
        self._waiting: deque[T] = deque()
        self._is_scheduled = False

    def add(self, things: Iterable[T]) -> None:
        """Work on these from the end of this turn on, after the items that wait already."""
        self._waiting.extend(things)
        if self._waiting and not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self.run)

    def run(self) -> None:
        """Work for one time slice."""
        self._is_scheduled = False
        waiting, until = self._waiting, perf_counter() + SLICE_S
        try:
            while waiting:
                self._do(waiting.popleft())
                if perf_counter() > until:
                    return
        finally:  # also when one of them failed
            self.add(())

    def run_all(self) -> None:
        """Do all the work now."""
        while self._waiting:
            self._do(self._waiting.popleft())


async def encode_in_thread(encode: Callable[[], bytes], count: int) -> bytes:
    """Encode a table with `count` entries: a short one at once, a long one on a thread."""
    return encode() if count < _SHORT_TABLE else await asyncio.to_thread(encode)


async def run_sliced(steps: Steps[T]) -> T:
    """Take all steps, one time slice per turn of the event loop."""
    time_slice = TimeSlice()
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return cast(T, end.value)
        await time_slice.pause()


def run_at_once(steps: Steps[T]) -> T:
    """Take all steps in this turn."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return cast(T, end.value)


async def sliced(items: Iterable[T]) -> AsyncIterator[T]:
    """The items of a long loop: `async for item in sliced(items)` lets others run after each time slice."""
    time_slice = TimeSlice()
    for item in items:
        await time_slice.pause()
        yield item


class TimeSlice:
    """`await time_slice.pause()` in each round of a long loop lets others run when the slice is over."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until = perf_counter() + SLICE_S

    async def pause(self) -> None:
        if perf_counter() > self._until:
            await asyncio.sleep(0)
            self._until = perf_counter() + SLICE_S
