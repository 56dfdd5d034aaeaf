"""Allocating the next mapped file before it is needed, and preparing pages that will be written soon.

Rules kept here:
- A new file is whole before it is used: all its room is reserved, its name and size are on the disk.
- A worker thread makes files. The writing thread waits only for a file that is not ready, and only for a
  bounded time. After a failure it does not wait again before a file has been made: a full disk must not stop
  the event loop for every message.
- An unused file is removed on close, an unfinished one at once.
- The first write to a page of a mapped file makes the kernel find the page, reserve its block on the disk,
  and wait while much else is written back. The worker takes these faults for many pages at once. That is
  optional: where the kernel cannot do it (before Linux 5.14), writes take longer. File contents are never
  touched.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Final

from cometmq.model.errors import StoreError
from cometmq.ports.mappings import make_writable
from cometmq.store.log.mapped_files import PAGE, MappedFile, MappedFiles

log = logging.getLogger("cometmq.store")
WAIT_MS: Final = 5000
_PAGES_AT_ONCE: Final = 64
WarmUp = Callable[[MappedFile], None]


class AllocationError(StoreError):
    """The next file could not be made, or not in time."""

    retriable = True


class FileAllocator:
    """Makes the files of one sequence. All methods belong to the writing thread."""

    def __init__(
        self,
        files: MappedFiles,
        executor: Executor,
        *,
        wait_ms: int = WAIT_MS,
        warm_up: WarmUp | None = None,
    ) -> None:
        self._files = files
        self._executor = executor
        self._wait_ms = wait_ms
        self._warm_up = warm_up
        self._wanted: int | None = None
        self._making: Future[MappedFile] | None = None
        self._preparing: Future[None] | None = None
        self.failure: AllocationError | None = None
        """Why there is no next file, until there is one again."""

    def request(self, start: int) -> None:
        """Begin to make the file that starts at an offset, unless that is under way."""
        self._begin(start)

    def take(self, start: int) -> MappedFile:
        """Return the file that starts at an offset; raises `AllocationError`."""
        making = self._begin(start)
        try:
            mapped = making.result(0 if self.failure else self._wait_ms / 1000)
        except Exception as error:
            raise self._failed(start, making, error) from error
        self._making = self.failure = None
        return mapped

    def prepare_pages(self, mapped: MappedFile, start: int, end: int, *, settled: bool = False) -> bool:
        """Prepare pages that will be written soon; False if the worker still prepares others.

        If `settled`, they are also synced. The file system then has no block to allocate when they are
        written again, which halves the time of a sync.
        """
        if self._preparing is not None and not self._preparing.done():
            return False
        self._preparing = self._executor.submit(_prepare_pages, mapped, start, end, settled=settled)
        return True

    def close(self) -> None:
        """Remove an unused file; blocks until none is being made."""
        making, self._making = self._making, None
        if making is not None and not making.cancel() and making.exception() is None:
            self._files.erase(making.result())

    def _begin(self, start: int) -> Future[MappedFile]:
        making = self._making
        if making is not None and self._wanted != start:  # the sequence was truncated meanwhile
            self.close()
            making = None
        if making is None:
            self._wanted = start
            making = self._making = self._executor.submit(self._make, start)
        return making

    def _make(self, start: int) -> MappedFile:
        mapped = self._files.create(start)
        try:
            mapped.reserve(mapped.size, mapped.size)
            self._files.sync_name(mapped)
            if self._warm_up is not None:
                self._warm_up(mapped)
        except OSError:
            self._files.erase(mapped)
            raise
        return mapped

    def _failed(self, start: int, making: Future[MappedFile], error: Exception) -> AllocationError:
        if making.done():
            self._making = None  # the next call tries again
            reason = f"the file could not be made: {error}"
        else:
            reason = f"the file was not ready after {self._wait_ms} ms; the disk is too slow or stuck"
        if self.failure is None:
            log.error("no room in the log after offset %d: %s", start, reason)
        if self.failure is None or making.done():
            self.failure = AllocationError(f"no room in the log after offset {start}: {reason}")
        return AllocationError(self.failure.message)


def _prepare_pages(mapped: MappedFile, start: int, end: int, *, settled: bool) -> None:
    if make_writable(mapped.buffer, start, end) and settled:
        mapped.settle()


def touch_pages(mapped: MappedFile, sync_every_pages: int | None = None) -> None:
    """Write to every page of a new file, so that no append waits for a page fault.

    With `sync_every_pages`, touched pages are synced in steps instead of all at once later.
    """
    step = _PAGES_AT_ONCE * PAGE
    zeros = bytes(step)
    unsynced = 0
    for start in range(0, mapped.size, step):
        end = min(start + step, mapped.size)
        mapped.buffer[start:end] = zeros[: end - start]
        mapped.file.wrote(start, end)
        unsynced += _PAGES_AT_ONCE
        if sync_every_pages is not None and unsynced >= sync_every_pages:
            mapped.file.sync()
            unsynced = 0
        time.sleep(0)  # lets the event loop run before the switch interval is over
    if sync_every_pages is not None:
        mapped.file.sync()
