"""Flushing the commit log: group commit on request, and syncs at intervals.

Rules kept here:
- One sync runs at a time, on a worker thread, and covers everything appended before it began. Requests made
  while it runs share the next one, which begins at once.
- A put is answered with `PUT_OK` only after a successful sync that covers it. After
  `syncFlushTimeout` the answer is `FLUSH_DISK_TIMEOUT`: stored, and not known to be safe.
- A sync that cannot begin, because too many files are open, is repeated until it can; callers wait up to the
  timeout.
- After a failed sync there is no other. The kernel forgets pages that it could not write, and a second sync
  would succeed without them. All callers get `FLUSH_DISK_TIMEOUT`, and the store has to refuse writes.
- Everything but the sync itself happens on the event loop. Callers are answered first; flushed messages are
  dispatched after that, while the next sync runs if there is one.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from time import perf_counter
from typing import Final, Protocol

from cometmq.model.histogram import Histogram
from cometmq.ports.descriptors import NotOpenedError
from cometmq.store.config import StoreConfig
from cometmq.store.log.mapped_files import PAGE
from cometmq.store.status import PutStatus

log = logging.getLogger("cometmq.store")

_TRY_AGAIN_S: Final = 0.1
SYNC_BOUNDS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)

Done = Callable[[PutStatus], None]


class Flushable(Protocol):
    """The commit log, as far as flushing needs it."""

    @property
    def max_offset(self) -> int: ...

    @property
    def flushed_offset(self) -> int: ...

    def sync(self) -> int:
        """Sync everything written so far; returns up to which offset."""


class Flusher:
    """Flushes one log; `start` and `stop` on the event loop that it then belongs to."""

    def __init__(
        self,
        target: Flushable,
        executor: Executor,
        config: StoreConfig,
        *,
        on_begin: Callable[[], None] | None = None,
        on_flushed: Callable[[], None] | None = None,
        on_failure: Callable[[BaseException], object] | None = None,
    ) -> None:
        self._target = target
        self._executor = executor
        self._synchronous = config.flush_disk_type == "SYNC_FLUSH"
        self._timed = config.flush_commit_log_timed
        self._timeout_s = config.sync_flush_timeout / 1000
        self._interval_s = config.flush_interval_commit_log / 1000
        self._thorough_interval_s = config.flush_commit_log_thorough_interval / 1000
        self._least_pages = config.flush_commit_log_least_pages
        self._on_begin = on_begin
        self._on_flushed = on_flushed
        self._on_failure = on_failure
        self._waiting: deque[tuple[int, float, Done]] = deque()
        """Offset, deadline and callback of each waiter."""
        self._idle = asyncio.Event()
        self._idle.set()
        self.is_busy = False
        """Whether a sync runs, or is about to begin."""
        self._begins_soon = False
        self._stopped = False
        self._tick_timer: asyncio.TimerHandle | None = None
        self._timeout_timer: asyncio.TimerHandle | None = None
        self.flushed_offset = 0
        """The offset up to which the log is on the disk."""
        self.has_news = False
        """Whether `tell` has something to report."""
        self._could_not_open = False
        self.failure: BaseException | None = None
        """The error of the failed sync."""
        self.sync_times = Histogram(SYNC_BOUNDS_S)
        """Durations of syncs in seconds, counted by the worker."""

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.flushed_offset = self._target.flushed_offset
        self._last_thorough = self._loop.time()
        self._tick_timer = self._loop.call_later(self._interval_s, self._tick)

    async def stop(self) -> bool:
        """Sync everything; False if that failed."""
        if self._tick_timer is not None:
            self._tick_timer.cancel()
        status = await self.wait_flushed(self._target.max_offset, timeout_s=math.inf)
        self._stopped = True
        await self._idle.wait()
        self.tell()
        if self._timeout_timer is not None:
            self._timeout_timer.cancel()
        return status is PutStatus.PUT_OK

    def when_flushed(self, offset: int, done: Done) -> None:
        """Call back with `PUT_OK` when the log is on the disk up to an offset, or with the failure.

        The call may happen before this returns.
        """
        self._wait(offset, self._timeout_s, done)

    @property
    def longest_wait_s(self) -> float:
        """How long the first waiter has waited."""
        if not self._waiting:
            return 0.0
        waited_s = self._timeout_s - (self._waiting[0][1] - self._loop.time())
        return max(waited_s, 0.0)  # unknown without a timeout

    def tell(self) -> None:
        """Report a finished sync, if that is still to be done."""
        if self.has_news:
            self.has_news = False
            if self._on_flushed is not None:
                self._on_flushed()

    def wait_flushed(self, offset: int, *, timeout_s: float | None = None) -> asyncio.Future[PutStatus]:
        """Wait until the log is on the disk up to an offset."""
        future: asyncio.Future[PutStatus] = self._loop.create_future()
        self._wait(offset, self._timeout_s if timeout_s is None else timeout_s, future.set_result)
        return future

    def wake(self) -> None:
        """Something was appended that nobody waits for."""
        if not self.is_busy and (
            self._synchronous or (not self._timed and self._dirty_pages() >= self._least_pages)
        ):
            self._request()

    def _wait(self, offset: int, timeout_s: float, done: Done) -> None:
        if offset <= self.flushed_offset:
            done(PutStatus.PUT_OK)
        elif self.failure is not None or self._stopped:
            done(PutStatus.FLUSH_DISK_TIMEOUT)
        else:
            self._waiting.append((offset, self._loop.time() + timeout_s, done))
            if not self.is_busy:
                self._request()
            if self._timeout_timer is None and timeout_s < math.inf:
                self._timeout_timer = self._loop.call_later(timeout_s, self._expire)

    def _request(self) -> None:
        """Sync soon, after everything appended in this turn of the loop."""
        if self.failure is None and not self.is_busy:
            self.is_busy = self._begins_soon = True
            self._idle.clear()
            self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        self._begins_soon = False
        if self._on_begin is not None:
            self._on_begin()
        work = self._tell_and_sync if self.has_news else self._sync
        self._loop.run_in_executor(self._executor, work).add_done_callback(self._ended)

    def _tell_and_sync(self) -> int:
        """On the worker, which begins when the loop is idle and so has to be woken."""
        self._loop.call_soon_threadsafe(self.tell)
        return self._sync()

    def _sync(self) -> int:
        started = perf_counter()
        offset = self._target.sync()
        self.sync_times.observe(perf_counter() - started)
        return offset

    def _ended(self, sync: asyncio.Future[int]) -> None:
        self.is_busy = False
        self._idle.set()
        error = asyncio.CancelledError() if sync.cancelled() else sync.exception()
        if isinstance(error, NotOpenedError):
            self._try_later(error)
            return
        if error is not None:
            self._fail(error)
            return
        if self._could_not_open:
            log.info("the log is put on the disk again")
            self._could_not_open = False
        self.flushed_offset = max(self.flushed_offset, sync.result())
        waiting = self._waiting
        flushed: list[Done] = []
        while waiting and waiting[0][0] <= self.flushed_offset:
            flushed.append(waiting.popleft()[2])
        if waiting:
            self._request()
        self.has_news = True
        _answer(flushed, PutStatus.PUT_OK)
        self._loop.call_soon(self._tell_in_time)

    def _tell_in_time(self) -> None:
        if not self._begins_soon:
            self.tell()

    def _try_later(self, error: NotOpenedError) -> None:
        if not self._could_not_open:  # logged once, not for every attempt
            log.error(
                "the log cannot be put on the disk for now: %s; close connections or raise the limit of open "
                "files (ulimit -n); it is tried again every %d ms",
                *(error, _TRY_AGAIN_S * 1000),
            )
        self._could_not_open = True
        self._loop.call_later(_TRY_AGAIN_S, self._request)

    def _fail(self, error: BaseException) -> None:
        log.critical("the log could not be put on the disk and takes no more messages: %s", error)
        self.failure = error
        if self._on_failure is not None:
            self._on_failure(error)
        waiting, self._waiting = self._waiting, deque()
        _answer([done for _, _, done in waiting], PutStatus.FLUSH_DISK_TIMEOUT)

    def _expire(self) -> None:
        """Answer waiters past their deadline, and schedule the next look."""
        self._timeout_timer = None
        waiting, now = self._waiting, self._loop.time()
        expired: list[Done] = []
        while waiting and waiting[0][1] <= now:
            expired.append(waiting.popleft()[2])
        _answer(expired, PutStatus.FLUSH_DISK_TIMEOUT)
        if waiting and waiting[0][1] < math.inf:
            self._timeout_timer = self._loop.call_at(waiting[0][1], self._expire)

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


def _answer(waiters: list[Done], status: PutStatus) -> None:
    for done in waiters:
        try:
            done(status)
        except asyncio.InvalidStateError:
            pass  # the waiter has given up
        except Exception:  # one waiter's defect must not cost the others their answers
            log.exception("a waiter could not take %s", status)
