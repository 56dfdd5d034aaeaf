"""Mapped files: sequences of files of one size, each named after its first offset, as one stream of bytes.

Rules kept here:
- File names are offsets of 20 digits; each file begins where the previous one ends. `load` refuses a file of
  another size, except empty last ones, which a crash may leave.
- `wrote` moves forward by writing and backward by `truncate`; `flushed` never passes `wrote`.
- Room is reserved ahead of the writes, so that a full disk is an error and never a dead process.
- A failed sync has failed for good. The kernel forgets which pages it could not write, so a second sync would
  succeed without saving them. A file that could not be opened was not synced at all; that is tried again.
- The list of files is replaced and never changed, so that other threads always see a whole one.
- With several folders, files take turns by their number. A read-only folder gets no new files, nor does a
  full one while another has room.
- `sync`, `create`, `remove` and `erase` block and belong on a worker thread; `load`, `truncate` and `close`
  belong to start and stop.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import Final

from cometmq.model.errors import StoreError
from cometmq.ports.descriptors import NotOpenedError
from cometmq.ports.disk import Disk, DiskFile, Entry, SystemFile, used_percent

NAME_DIGITS: Final = 20
PAGE: Final = 4096
_STEP: Final = 1024 * 1024
_ZEROS: Final = bytes(_STEP)


def erase_after(file: DiskFile, start: int) -> int:
    """Zero everything in a file from a position on; returns how many bytes were written. Blocks.

    Only pages with content are written, so that it takes no room on the disk.
    """
    erased = 0
    # Before anything is read, because pages that the kernel reads ahead count as written.
    for at, range_end in file.data_ranges(start):
        while at < range_end:
            step_end = min((at // _STEP + 1) * _STEP, range_end)
            file.fetch(at, step_end)
            while at < step_end:
                end = _end_of_pages(file, at, step_end, empty=False)
                if at < end:
                    file.reserve(at, end)
                    file.buffer[at:end] = _ZEROS[: end - at]
                    file.wrote(at, end)
                    erased += end - at
                at = _end_of_pages(file, end, step_end, empty=True)
    return erased


def _end_of_pages(file: DiskFile, at: int, limit: int, *, empty: bool) -> int:
    """Where the pages from a position on end that are all empty, or all not."""
    if empty and file.buffer[at:limit] == _ZEROS[: limit - at]:
        return limit
    while at < limit:
        end = min((at // PAGE + 1) * PAGE, limit)
        if (file.buffer[at:end] == _ZEROS[: end - at]) is not empty:
            break
        at = end
    return at


class MappedFile:
    """One file of a sequence."""

    __slots__ = (
        "_settling",
        "_sync_error",
        "buffer",
        "file",
        "flushed",
        "is_gone",
        "is_mapped",
        "modified_ms",
        "report",
        "reserved",
        "size",
        "start",
        "view",
        "was_read",
        "wrote",
    )

    def __init__(self, file: DiskFile, start: int, modified_ms: int = 0) -> None:
        self.map(file)
        self.start = start
        """The offset of the first byte in the stream."""
        self.size = file.size
        self.wrote = 0
        """How many bytes are written."""
        self.flushed = 0
        """How many of them are on the disk."""
        self.reserved = 0
        """Up to where room on the disk is reserved."""
        self.modified_ms = modified_ms
        self.is_gone = False
        """Whether the file was deleted."""
        self.was_read = False
        """Whether it was read since the last check; see `OpenFiles`."""
        self._sync_error: OSError | None = None
        self._settling: Lock | None = None

    def map(self, file: DiskFile) -> None:
        """Read and write through a mapping of this file."""
        self.file = file
        self.buffer = file.buffer
        self.view = memoryview(file.buffer)
        """Readers get slices of it: they need no copy, and keep the mapping alive."""
        self.report = None if isinstance(file, SystemFile) else file.wrote
        """Reports writes to a simulated disk; None on a real one, to save the call."""
        self.is_mapped = True

    def unmap(self) -> None:
        """Drop the mapping until `map` is called; the file can still be synced."""
        self.is_mapped = False
        self.view.release()
        self.file.close()
        self.buffer = self.file.buffer

    @property
    def end(self) -> int:
        """The offset after the last byte that the file can hold."""
        return self.start + self.size

    @property
    def is_full(self) -> bool:
        return self.wrote >= self.size

    def reserve(self, end: int, step: int) -> None:
        """Reserve room up to a position, and a step beyond it."""
        if end > self.reserved:
            upto = min(max(end, self.reserved + step), self.size)
            self.file.reserve(self.reserved, upto)
            self.reserved = upto

    def sync(self) -> None:
        """Sync what is written at this moment."""
        if self._sync_error is not None:
            raise self._sync_error.with_traceback(None)
        wrote = self.wrote
        try:
            self.file.sync()
            if self._settling is not None:
                with self._settling:
                    if self._sync_error is not None:
                        raise self._sync_error
        except OSError as error:
            if self.is_gone:
                return
            if not isinstance(error, NotOpenedError):
                self._sync_error = error
            raise
        # Not more than is still written: the file may have been truncated meanwhile.
        self.flushed = min(max(self.flushed, wrote), self.wrote)
        if self.flushed == self.size and isinstance(self.file, SystemFile):
            self.file.release()

    def settle(self) -> None:
        """Sync prepared pages beside another sync.

        The kernel reports a failed write to only one of the two, so a sync succeeds only if this one does.
        """
        if self._settling is None:
            self._settling = Lock()
        with self._settling:
            try:
                self.file.sync()
            except OSError as error:
                if not self.is_gone and not isinstance(error, NotOpenedError):
                    self._sync_error = error

    def close(self) -> None:
        self.unmap()


class MappedFiles:
    """The files of one folder.

    Files that are not `writable` are never changed. `scattered` ones are accessed at random, without
    read-ahead.
    """

    def __init__(
        self, disk: Disk, folder: Path, file_size: int, *, writable: bool = True, scattered: bool = False
    ) -> None:
        self._disk = disk
        self._writable = writable
        self._scattered = scattered
        self._changing = Lock()
        self.folder = folder
        self.file_size = file_size
        self.files: list[MappedFile] = []
        self.first_start = 0
        """The offset at which the first file begins, while there is none."""

    def load(self) -> None:
        """Map the existing files; each counts as written and flushed to its end until recovery says less."""
        found = self._found()
        while found and found[-1][1].size == 0:
            path, _ = found.pop()
            if self._writable:
                self._disk.remove(path)
        loaded: list[MappedFile] = []
        for path, entry in found:
            if not entry.name.isdecimal() or len(entry.name) != NAME_DIGITS:
                raise StoreError(f"{path} is not named after an offset of {NAME_DIGITS} digits; move it away")
            if entry.size != self.file_size:
                raise StoreError(
                    f"{path} has {entry.size} bytes, expected {self.file_size}; "
                    "the configured file size must be the one the store was made with"
                )
            # `reserved` stays 0: a file made by another process, or a copy of one, may have holes.
            file = self._disk.open(path, writable=self._writable, scattered=self._scattered)
            mapped = MappedFile(file, int(entry.name), entry.modified_ms)
            mapped.wrote = mapped.flushed = mapped.size
            loaded.append(mapped)
        self.files = loaded

    def _found(self) -> list[tuple[Path, Entry]]:
        """The existing files, by name."""
        entries = self._disk.entries(self.folder)
        return [(self.folder / entry.name, entry) for entry in entries if not entry.is_folder]

    def path_of(self, start: int) -> Path:
        """The path for a new file that begins at an offset."""
        return self.folder / f"{start:0{NAME_DIGITS}}"

    def expect(self, *, scattered: bool) -> None:
        """Set whether these files, and new ones, are accessed at random."""
        self._scattered = scattered
        for mapped in self.files:
            mapped.file.expect(scattered=scattered)

    @property
    def min_offset(self) -> int:
        return self.files[0].start if self.files else 0

    @property
    def max_offset(self) -> int:
        """The offset after the last byte written."""
        return self.files[-1].start + self.files[-1].wrote if self.files else 0

    @property
    def next_start(self) -> int:
        """The offset at which the next file begins."""
        return self.files[-1].end if self.files else self.first_start

    @property
    def flushed_offset(self) -> int:
        """The offset up to which everything is on the disk."""
        for mapped in reversed(self.files):
            if mapped.flushed:
                return mapped.start + mapped.flushed
        return self.min_offset

    def at(self, offset: int) -> MappedFile | None:
        """The file that contains an offset."""
        files = self.files
        if not files:
            return None
        index = (offset - files[0].start) // self.file_size
        if 0 <= index < len(files):
            mapped = files[index]
            if mapped.start <= offset < mapped.start + mapped.size:
                return mapped
        # Only if files are missing in between.
        return next((mapped for mapped in files if mapped.start <= offset < mapped.end), None)

    def after(self, mapped: MappedFile) -> MappedFile | None:
        """The file after another; if some are missing, the next existing one."""
        return self.at(mapped.end) or next(
            (other for other in self.files if other.start > mapped.start), None
        )

    def gaps(self) -> list[tuple[int, int]]:
        """The ranges of missing files."""
        return [
            (before.end, after.start) for before, after in pairwise(self.files) if before.end != after.start
        ]

    def create(self, start: int) -> MappedFile:
        """Create a file that begins at an offset; it is not part of the sequence until added."""
        return MappedFile(
            self._disk.create(self.path_of(start), self.file_size, scattered=self._scattered), start
        )

    def add(self, mapped: MappedFile) -> MappedFile:
        """Add a new file after the last one."""
        with self._changing:
            self.files = [*self.files, mapped]
        return mapped

    def sync_name(self, mapped: MappedFile) -> None:
        """Make sure that a new file survives a crash: its size first, then its name."""
        mapped.file.sync()
        folder = mapped.file.path.parent
        self._disk.sync_folder(folder)
        if not self.files:
            self._disk.sync_folder(folder.parent)  # the folder itself may be new

    def sync(self) -> int:
        """Sync everything written so far; returns up to which offset."""
        dirty: list[MappedFile] = []
        for mapped in reversed(self.files):
            if mapped.flushed >= mapped.size:
                break  # older files are synced first, so all before it are
            if mapped.flushed < mapped.wrote:
                dirty.append(mapped)
        for mapped in reversed(dirty):
            mapped.sync()
        return self.flushed_offset

    def truncate(self, offset: int) -> None:
        """Forget everything from an offset on; files that lie wholly after it are removed."""
        while self.files and self.files[-1].start >= offset and self.files[-1].start > 0:
            self.remove(self.files[-1])
        if self.files:
            last = self.files[-1]
            last.wrote = min(last.wrote, max(offset - last.start, 0))
            last.flushed = min(last.flushed, last.wrote)

    def remove(self, mapped: MappedFile) -> None:
        """Detach and delete a file."""
        self.detach(mapped)
        self.erase(mapped)

    def detach(self, mapped: MappedFile) -> None:
        """Take a file out of the sequence; `erase` deletes it."""
        with self._changing:
            self.files = [other for other in self.files if other is not mapped]

    def erase(self, mapped: MappedFile) -> None:
        """Delete a detached file; readers that hold views of it finish safely."""
        mapped.is_gone = True  # first: a sync may be under way
        mapped.close()  # Windows removes no file that is mapped
        self._disk.remove(mapped.file.path)

    def close(self) -> None:
        files, self.files = self.files, []
        for mapped in files:
            mapped.close()


class MultiPathMappedFiles(MappedFiles):
    """The files of several folders, usually one a disk, as one sequence."""

    def __init__(
        self,
        disk: Disk,
        folders: Sequence[Path],
        writable: Sequence[Path],
        file_size: int,
        full_above_percent: int = 100,
    ) -> None:
        super().__init__(disk, writable[0], file_size)
        self._folders = folders
        self._targets = sorted(writable)
        self._full_above_percent = full_above_percent

    def _found(self) -> list[tuple[Path, Entry]]:
        found = [
            (folder / entry.name, entry)
            for folder in self._folders
            for entry in self._disk.entries(folder)
            if not entry.is_folder
        ]
        found.sort(key=lambda item: item[1].name)
        for (path, entry), (other, following) in pairwise(found):
            if entry.name == following.name:
                raise StoreError(
                    f"{path} and {other} begin at the same offset; one of them does not belong here"
                )
        return found

    def path_of(self, start: int) -> Path:
        candidates = [folder for folder in self._targets if not self._is_full(folder)] or self._targets
        folder = candidates[start // self.file_size % len(candidates)]
        return folder / f"{start:0{NAME_DIGITS}}"

    def _is_full(self, folder: Path) -> bool:
        return used_percent(self._disk.usage(folder)) > self._full_above_percent
