"""Saved tables: written soon after a change or periodically, never on the event loop.

Rules kept here:
- A table is copied on the event loop and encoded and written on a worker thread; one save of a table runs at
  a time, and changes that come meanwhile share the next one.
- Whoever needs to know waits for the save that covers the change. One that fails, because the disk is full
  for example, is tried again until it succeeds; who waits is told at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from cometmq.model.errors import StoreError
from cometmq.ports.disk import Disk
from cometmq.store.tables.files import ConfigFile
from cometmq.store.tables.tables import ConfigTable

log = logging.getLogger("cometmq.broker")

RETRY_S: Final = 5.0

Table = TypeVar("Table", bound=ConfigTable)
Saved = Callable[[OSError | None], None]


class SavedTable(Generic[Table]):
    """One table and its file; everything but the writing happens on the event loop."""

    def __init__(self, file: ConfigFile[Table], snapshot: Callable[[], Table], worker: Executor) -> None:
        self.file = file
        self._snapshot = snapshot
        self._worker = worker
        self._running: asyncio.Future[bool] | None = None
        self._waiting: list[Saved] = []
        self._covered: list[Saved] = []
        self._retry: asyncio.TimerHandle | None = None
        self.is_dirty = False
        """Whether there are changes that no save has covered yet."""

    def changed(self) -> None:
        """Save soon."""
        self.is_dirty = True
        if self._running is None and self._retry is None:
            self._begin()

    def when_saved(self, done: Saved) -> None:
        """Call back when all changes so far are on the disk, or could not be put there."""
        if not self.is_dirty and self._running is None:
            done(None)
            return
        (self._waiting if self.is_dirty else self._covered).append(done)
        if self._running is None:
            self._begin()

    async def load(self) -> Table | None:
        """The saved table, read by the worker thread; None if there is none."""
        return await asyncio.get_running_loop().run_in_executor(self._worker, self.file.load)

    async def saved(self) -> None:
        """Return when all changes so far are on the disk; raises `StoreError` if that failed."""
        future: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()
        self.when_saved(lambda error: None if future.done() else future.set_result(error))
        error = await future
        if error is not None:
            raise StoreError(self.describe(error))

    def describe(self, error: OSError) -> str:
        reason = error.strerror or error
        return (
            f"{self.file.path.name} could not be saved: {reason}; the change is in force and is saved later"
        )

    async def stop(self) -> None:
        """Save what is unsaved, for the last time."""
        self._cancel_retry()
        while self._running is not None:
            await asyncio.wait([self._running])
            await asyncio.sleep(0)  # for what follows from its end
        if self.is_dirty:
            try:
                await self.saved()
            except StoreError as error:
                log.error("%s", error.message)
        self._cancel_retry()

    def _begin(self) -> None:
        self._cancel_retry()
        self.is_dirty = False
        self._covered, self._waiting = self._waiting, []
        loop = asyncio.get_running_loop()
        self._running = loop.run_in_executor(self._worker, self.file.save, self._snapshot())
        self._running.add_done_callback(self._ended)

    def _cancel_retry(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    def _ended(self, running: asyncio.Future[bool]) -> None:
        self._running = None
        covered, self._covered = self._covered, []
        failure = running.exception()
        if failure is not None:
            if not isinstance(failure, OSError):
                failure = OSError(str(failure))
            log.error("%s", self.describe(failure))
            self.is_dirty = True
            self._retry = asyncio.get_running_loop().call_later(RETRY_S, self._begin)
        elif self.is_dirty:
            self._begin()
        for done in covered:
            done(failure)


class TableFiles:
    """The folder that tables are kept in, and the worker thread that writes them, one after the other."""

    def __init__(self, disk: Disk, folder: Path, worker: Executor) -> None:
        self._disk = disk
        self._folder = folder
        self._worker = worker
        self._tables: list[SavedTable[Any]] = []

    def table(self, table_type: type[Table], snapshot: Callable[[], Table]) -> SavedTable[Table]:
        """A table of this folder."""
        table = SavedTable(ConfigFile(self._disk, self._folder, table_type), snapshot, self._worker)
        self._tables.append(table)
        return table

    async def stop(self) -> None:
        """Save the unsaved changes of all tables, for the last time."""
        for table in self._tables:
            await table.stop()


class Periodic:
    """Calls something on the event loop, first after a while, then at a fixed interval, until stopped."""

    def __init__(self, first_s: float, interval_s: float, work: Callable[[], object], what: str) -> None:
        self._first_s = first_s
        self._interval_s = interval_s
        self._work = work
        self._what = what
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._first_s, self._run)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _run(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._interval_s, self._run)
        try:
            self._work()
        except Exception:  # the next time is due all the same
            log.exception("%s failed", self._what)
