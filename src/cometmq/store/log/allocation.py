"""Making the next file of a sequence before it is needed.

Rules kept here:
- A new file is whole before it is used: all of its room is reserved, its name and size are on the disk.
- Files are made on a worker thread. The thread that writes waits only if it needs a file that is not ready,
  and only for a bounded time. After a failure it does not wait again before a file has been made: a full disk
  must not stop the event loop once a message.
- A file that was made and not used is removed at the end; a file that could not be finished at once.
- What will be written to soon can be made ready for that on the same worker, one part at a time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Final

from cometmq.model.errors import StoreError
from cometmq.store.log.mapped_files import MappedFile, MappedFiles
from cometmq.store.log.page_faults import make_writable

log = logging.getLogger("cometmq.store")

WAIT_MS: Final = 5000
PAGE: Final = 4096
_PAGES_AT_ONCE: Final = 64

WarmUp = Callable[[MappedFile], None]


class AllocationError(StoreError):
    """The next file could not be made, or not in time; the message says why."""

    retriable = True


class FileAllocator:
    """Makes the files of one sequence. All methods belong to the thread that writes."""

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
        self._readying: Future[None] | None = None
        self.failure: AllocationError | None = None
        """Why there is no next file, until there is one again."""

    def prepare(self, start: int) -> None:
        """Begin to make the file that starts at an offset, if it is not being made already."""
        self._begin(start)

    def take(self, start: int) -> MappedFile:
        """The file that starts at an offset, made and ready; raises `AllocationError`."""
        making = self._begin(start)
        try:
            mapped = making.result(0 if self.failure else self._wait_ms / 1000)
        except Exception as error:
            raise self._failed(start, making, error) from error
        self._making = self.failure = None
        return mapped

    def make_ready(self, mapped: MappedFile, start: int, end: int, *, settled: bool = False) -> bool:
        """Have a part of a file ready to be written to soon; False if that was asked for too often.

        If `settled`, it is written to the disk as it is. The file system has nothing to note down about it
        when it is written again, and a sync takes half of the time.
        """
        if self._readying is not None and not self._readying.done():
            return False
        self._readying = self._executor.submit(_make_ready, mapped, start, end, settled=settled)
        return True

    def close(self) -> None:
        """Remove what was made and not used; blocks until nothing is being made any more."""
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
            log.error("no room in the log behind offset %d: %s", start, reason)
        if self.failure is None or making.done():
            self.failure = AllocationError(f"no room in the log behind offset {start}: {reason}")
        return AllocationError(self.failure.message)


def _make_ready(mapped: MappedFile, start: int, end: int, *, settled: bool) -> None:
    if make_writable(mapped.buffer, start, end) and settled:
        mapped.settle()


def touch_pages(mapped: MappedFile, sync_every_pages: int | None = None) -> None:
    """Write to every page of a new file, so that no append has to wait for the kernel to find one.

    With `sync_every_pages` what was touched is put on the disk every so many pages, instead of all at once
    some time later.
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
        time.sleep(0)  # lets the event loop in; it would wait for the whole switch interval otherwise
    if sync_every_pages is not None:
        mapped.file.sync()
