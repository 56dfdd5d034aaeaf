"""Putting the log on the disk: on request with an answer, and every now and then without.

Rules kept here:
- One sync runs at a time, on a worker thread, and all that was appended before it began shares it. Whoever
  asks while it runs shares the next one, which begins at once.
- Success is answered only for what a sync that succeeded covers. What takes longer than `syncFlushTimeout`
  is answered with `FLUSH_DISK_TIMEOUT`: stored, and not known to be safe.
- After a sync that failed there is no other. The kernel forgets the pages that it could not write, and a
  second sync would succeed without them. Whoever waits, or asks later, gets `FLUSH_DISK_TIMEOUT`; the store
  is told and has to refuse writes.
- Everything but the sync itself happens on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final, NamedTuple, Protocol

from cometmq.store.config import StoreConfig
from cometmq.store.status import PutStatus

log = logging.getLogger("cometmq.store")

PAGE: Final = 4096

Done = Callable[[PutStatus], None]


class Flushable(Protocol):
    """What can be put on the disk: the commit log."""

    @property
    def max_offset(self) -> int: ...

    @property
    def flushed_offset(self) -> int: ...

    def sync(self) -> int:
        """Put on the disk what is written at this moment; the answer is up to which offset."""


class _Waiter(NamedTuple):
    offset: int
    deadline: float
    done: Done


class Flusher:
    """Flushes one log; `start` and `stop` on the event loop that it then belongs to."""

    def __init__(
        self,
        target: Flushable,
        executor: Executor,
        config: StoreConfig,
        *,
        on_flushed: Callable[[int], None] | None = None,
        on_failure: Callable[[BaseException], None] | None = None,
    ) -> None:
        self._target = target
        self._executor = executor
        self._synchronous = config.flush_disk_type == "SYNC_FLUSH"
        self._timed = config.flush_commit_log_timed
        self._timeout_s = config.sync_flush_timeout / 1000
        self._interval_s = config.flush_interval_commit_log / 1000
        self._thorough_interval_s = config.flush_commit_log_thorough_interval / 1000
        self._least_pages = config.flush_commit_log_least_pages
        self._on_flushed = on_flushed
        self._on_failure = on_failure
        self._waiting: deque[_Waiter] = deque()
        self._idle = asyncio.Event()
        self._idle.set()
        self._stopped = False
        self._tick_timer: asyncio.TimerHandle | None = None
        self._timeout_timer: asyncio.TimerHandle | None = None
        self.flushed_offset = 0
        """Up to where the log is known to be on the disk."""
        self.failure: BaseException | None = None
        """What the sync that failed failed with."""

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.flushed_offset = self._target.flushed_offset
        self._last_thorough = self._loop.time()
        self._tick_timer = self._loop.call_later(self._interval_s, self._tick)

    async def stop(self) -> bool:
        """Put everything on the disk; False if that failed."""
        if self._tick_timer is not None:
            self._tick_timer.cancel()
        everything: asyncio.Future[PutStatus] = self._loop.create_future()
        self._add(self._target.max_offset, math.inf, everything.set_result)
        status = await everything
        self._stopped = True
        await self._idle.wait()
        if self._timeout_timer is not None:
            self._timeout_timer.cancel()
        return status is PutStatus.PUT_OK

    def when_flushed(self, offset: int, done: Done) -> None:
        """Call back with `PUT_OK` when the log is on the disk up to an offset, or with what else came of it.

        The call may happen before this returns.
        """
        self._add(offset, self._loop.time() + self._timeout_s, done)
        if self._timeout_timer is None and self._waiting:
            self._timeout_timer = self._loop.call_later(self._timeout_s, self._expire)

    def wait_flushed(self, offset: int) -> asyncio.Future[PutStatus]:
        """The same as something to await."""
        future: asyncio.Future[PutStatus] = self._loop.create_future()

        def done(status: PutStatus) -> None:
            if not future.done():  # whoever waited may have given up
                future.set_result(status)

        self.when_flushed(offset, done)
        return future

    def wake(self) -> None:
        """Something was appended that nobody waits for."""
        if self._synchronous or (not self._timed and self._dirty_pages() >= self._least_pages):
            self._request()

    def _add(self, offset: int, deadline: float, done: Done) -> None:
        if offset <= self.flushed_offset:
            done(PutStatus.PUT_OK)
        elif self.failure is not None or self._stopped:
            done(PutStatus.FLUSH_DISK_TIMEOUT)
        else:
            self._waiting.append(_Waiter(offset, deadline, done))
            self._request()

    def _request(self) -> None:
        """Sync soon: behind what else is appended in this turn of the loop."""
        if self.failure is None and self._idle.is_set():
            self._idle.clear()
            self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        self._loop.run_in_executor(self._executor, self._target.sync).add_done_callback(self._ended)

    def _ended(self, sync: asyncio.Future[int]) -> None:
        self._idle.set()
        error = asyncio.CancelledError() if sync.cancelled() else sync.exception()
        if error is not None:
            self._fail(error)
            return
        self.flushed_offset = max(self.flushed_offset, sync.result())
        waiting = self._waiting
        while waiting and waiting[0].offset <= self.flushed_offset:
            _answer(waiting.popleft().done, PutStatus.PUT_OK)
        if waiting:
            self._request()
        if self._on_flushed is not None:
            self._on_flushed(self.flushed_offset)

    def _fail(self, error: BaseException) -> None:
        log.critical("the log could not be put on the disk and takes no more messages: %s", error)
        self.failure = error
        if self._on_failure is not None:
            self._on_failure(error)
        waiting, self._waiting = self._waiting, deque()
        for waiter in waiting:
            _answer(waiter.done, PutStatus.FLUSH_DISK_TIMEOUT)

    def _expire(self) -> None:
        """Answer those that have waited too long, and look again when the next one would have."""
        self._timeout_timer = None
        waiting, now = self._waiting, self._loop.time()
        while waiting and waiting[0].deadline <= now:
            _answer(waiting.popleft().done, PutStatus.FLUSH_DISK_TIMEOUT)
        if waiting and waiting[0].deadline < math.inf:
            self._timeout_timer = self._loop.call_at(waiting[0].deadline, self._expire)

    def _tick(self) -> None:
        self._tick_timer = self._loop.call_later(self._interval_s, self._tick)
        now = self._loop.time()
        thorough = now - self._last_thorough >= self._thorough_interval_s
        if thorough:
            self._last_thorough = now
        if self._target.max_offset > self.flushed_offset and (
            thorough or self._dirty_pages() >= self._least_pages
        ):
            self._request()

    def _dirty_pages(self) -> int:
        return self._target.max_offset // PAGE - self.flushed_offset // PAGE


def _answer(done: Done, status: PutStatus) -> None:
    try:
        done(status)
    except Exception:  # one waiter's defect must not cost the others their answers
        log.exception("a waiter could not take %s", status)
