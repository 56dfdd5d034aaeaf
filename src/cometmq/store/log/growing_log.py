"""The end of the commit log: the file that is written to, the next one, and what happens to the oldest.

Rules kept here:
- The log goes on in a next file only when there is one. If none can be made, the current one stays as it is
  and still takes whatever fits.
- The next file is asked for when the current one is half full: early enough to be ready in time, and late
  enough that a log which hardly grows takes no more of the disk than it needs.
- The last file is never removed.
- A log that grows quickly has the pages that it will write next made ready by a worker: so that the thread
  that appends does not wait for the kernel, or, if it `settles_pages`, that a sync has less to do. A log that
  grows slowly does without: a page that is made ready and flushed before is written to the disk twice.
"""

from __future__ import annotations

import logging
from typing import Final

from cometmq.model.errors import StoreError
from cometmq.store.log.allocation import PAGE, AllocationError, FileAllocator
from cometmq.store.log.mapped_files import MappedFile, MappedFiles
from cometmq.store.log.reader import LogReader
from cometmq.store.status import PutStatus
from cometmq.wire.record.layout import HEAD, write_filler

log = logging.getLogger("cometmq.store")

FREE_AT_END: Final = HEAD.size
"""What every record leaves free in its file: the room of a filler."""

_STEP: Final = 1024 * 1024
_NOTHING: Final = bytes(_STEP)
_AHEAD: Final = 8 * _STEP
_QUICK_STEP_MS: Final = 20
_QUICK_SETTLED_STEP_MS: Final = 200
"""In how much time or less a log grows by a step if its pages are to be made ready."""


class GrowingLog(LogReader):
    """A log with an end that moves, and a beginning that follows."""

    def __init__(self, files: MappedFiles, allocator: FileAllocator, *, settles_pages: bool = False) -> None:
        super().__init__(files)
        self._allocator = allocator
        self._settles_pages = settles_pages
        self._quick_step_ms = _QUICK_SETTLED_STEP_MS if settles_pages else _QUICK_STEP_MS
        self._ready = 0
        """Up to where the pages of the current file were made ready."""
        self._step_began_ms = 0
        self._current: MappedFile | None = None
        self._room_ends = 0
        """The position in the current file behind which an append has to ask for room."""
        self._has_room = True
        self.cuts = 0
        """How often the log was cut off: what was behind its end is not there any more."""
        self.store_timestamp_ms = 0
        """The store time of the last record; after a start, recovery sets it."""
        self.flushed_timestamp_ms = 0
        """A store time up to which every record is on the disk."""

    @property
    def flushed_offset(self) -> int:
        return self.files.flushed_offset

    @property
    def allocation_failure(self) -> AllocationError | None:
        """Why the log cannot grow, while it cannot."""
        return self._allocator.failure

    def prepare_to_append(self) -> None:
        """Have a file to append to, so that the first message does not wait for it.

        Blocks, and not on a thread that the allocator needs.
        """
        if self.files.files and not self.files.files[-1].is_full:
            self._enter(self.files.files[-1])
        else:
            self._enter(self.files.add(self._allocator.take(self.files.next_start)))

    def sync(self) -> int:
        """Put on the disk what is written at this moment; the answer is up to which offset. Blocks."""
        stored_ms = self.store_timestamp_ms  # first, so that it is not later than what is written
        offset = self.files.sync()
        self.flushed_timestamp_ms = stored_ms
        return offset

    def truncate(self, offset: int) -> None:
        """Forget everything at and behind an offset. Blocks."""
        self.files.truncate(offset)
        self._current = None
        self.cuts += 1

    def clear_behind_end(self) -> int:
        """Overwrite what is left behind the end in the last file; the answer is how many bytes. Blocks.

        After a crash whole records can be left there. Were they not cleared, a new record that happens to end
        where one of them begins would bring it back to life after the next crash.
        """
        if not self.files.files:
            return 0
        mapped = self.files.files[-1]
        # Asked for before anything is read, because what the kernel reads ahead counts as written.
        parts = mapped.file.data_ranges(mapped.wrote)
        cleared = sum(self._clear_part(mapped, start, end) for start, end in parts)
        if cleared:
            mapped.file.sync()
        return cleared

    def _clear_part(self, mapped: MappedFile, start: int, last: int) -> int:
        cleared = 0
        while start < last:
            end = min((start // _STEP + 1) * _STEP, last)
            mapped.file.fetch(start, end)
            if mapped.buffer[start:end] != _NOTHING[: end - start]:
                cleared += self._clear(mapped, start, end)
            start = end
        return cleared

    def _clear(self, mapped: MappedFile, start: int, end: int) -> int:
        """Overwrite the pages that hold something; the answer is how many bytes that are."""
        cleared = 0
        while start < end:
            page_end = min((start // PAGE + 1) * PAGE, end)
            if mapped.buffer[start:page_end] != _NOTHING[: page_end - start]:
                mapped.buffer[start:page_end] = _NOTHING[: page_end - start]
                mapped.file.wrote(start, page_end)
                cleared += page_end - start
            start = page_end
        return cleared

    def detach_first(self) -> MappedFile | None:
        """Let the log begin at its second file; the first is to be erased then. None if there is only one."""
        if len(self.files.files) < 2:
            return None
        mapped = self.files.files[0]
        self.files.detach(mapped)
        return mapped

    def erase(self, mapped: MappedFile) -> None:
        """Take a detached file off the disk. Blocks."""
        self.files.erase(mapped)

    def close(self) -> None:
        """Let go of all files. Blocks."""
        self._allocator.close()
        self._current = None
        self.files.close()

    def _writable(self) -> MappedFile:
        if self._current is None:
            raise StoreError("the log has no file to append to; ask for room first")
        return self._current

    def _make_room(self, size: int, now_ms: int, *, in_memory: bool = True) -> PutStatus:
        """Have a current file with room for so many bytes, and the next one made in good time.

        Pages are made ready only if they are to be written in memory.
        """
        if size + FREE_AT_END > self.files.file_size:
            return PutStatus.MESSAGE_ILLEGAL
        if not self._resume():
            return PutStatus.CREATE_MAPPED_FILE_FAILED
        current = self._current
        if current is None or current.wrote + size + FREE_AT_END > current.size:
            return self._go_on(now_ms)
        if current.wrote + size > self._room_ends:
            last = current.size - FREE_AT_END
            self._look_ahead(current, current.wrote + size, last, now_ms, in_memory=in_memory)
        return PutStatus.PUT_OK

    def _make_room_for_data(self, now_ms: int) -> PutStatus:
        """Have a current file that is not full; whatever goes into it brings its own filler."""
        if not self._resume():
            return PutStatus.CREATE_MAPPED_FILE_FAILED
        current = self._current
        if current is None or current.is_full:
            return self._go_on(now_ms)
        if current.wrote > self._room_ends:
            self._look_ahead(current, current.wrote, current.size, now_ms)
        return PutStatus.PUT_OK

    def _look_ahead(
        self, current: MappedFile, end: int, last: int, now_ms: int, *, in_memory: bool = True
    ) -> None:
        """Do what has to be done in good time, before the log reaches an end in its current file."""
        half = current.size // 2
        if end > half:
            self._allocator.prepare(current.end)
        self._room_ends = min(end + _STEP, half if end <= half else last)
        is_quick = now_ms - self._step_began_ms <= self._quick_step_ms
        self._step_began_ms = now_ms
        upto = min(end + _AHEAD, current.size)
        start = max(end, self._ready)
        if (
            is_quick
            and in_memory
            and start < upto
            and self._allocator.make_ready(current, start, upto, settled=self._settles_pages)
        ):
            self._ready = upto

    def _resume(self) -> bool:
        """Append to the last of the loaded files; False if the disk has no room for the rest of it."""
        if self._current is None and self.files.files:
            try:
                self._enter(self.files.files[-1])
            except OSError as error:
                if self._has_room:  # said once, not once a message
                    log.error("%s cannot be appended to: %s", self.files.files[-1].file.path, error)
                self._has_room = False
                return False
            self._has_room = True
        return True

    def _go_on(self, now_ms: int) -> PutStatus:
        """Go on in the next file."""
        try:
            following = self._allocator.take(self.files.next_start)
        except AllocationError:
            return PutStatus.CREATE_MAPPED_FILE_FAILED
        current = self._current
        if current is not None:
            rest = current.size - current.wrote
            if rest >= FREE_AT_END:
                write_filler(current.buffer, current.wrote, rest)
                current.file.wrote(current.wrote, current.wrote + FREE_AT_END)
            current.wrote = current.size
            current.modified_ms = now_ms
        self._enter(self.files.add(following))
        return PutStatus.PUT_OK

    def _enter(self, mapped: MappedFile) -> None:
        """Append to this file from now on."""
        mapped.reserve(mapped.size, mapped.size)
        self._current = mapped
        self._room_ends = min(mapped.wrote + _STEP, mapped.size // 2)
        self._ready = 0
