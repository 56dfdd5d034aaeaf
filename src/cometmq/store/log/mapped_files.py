"""Sequences of files of one size, each named after its first offset: one logical stream of bytes.

Rules kept here:
- File names are offsets of 20 digits; the next file begins where the previous ends. A file of another size is
  refused when the sequence is loaded, apart from empty last ones, which are what a crash may leave.
- `wrote` positions only move forward by writing and backward by `truncate`; `flushed` never passes `wrote`.
- Room is reserved ahead of the writes, in steps, so that a full disk is an error and never a dead process.
- A sync that failed once has failed for good. The kernel forgets which pages it could not write, so that a
  second sync would succeed without having saved them. A file that could not be opened was not synced at all;
  that is tried again.
- The list of files is replaced and never changed, so that other threads always find a whole one.
- `sync`, `create`, `remove` and `erase` block and belong on a worker thread; `load`, `truncate` and `close`
  into start and stop.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import Final

from cometmq.model.errors import StoreError
from cometmq.ports.descriptors import NotOpenedError
from cometmq.ports.disk import Disk, DiskFile, Entry, SystemFile

NAME_DIGITS: Final = 20


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
        """How much is written, from the beginning of the file."""
        self.flushed = 0
        """How much of it is on the disk."""
        self.reserved = 0
        """Up to where the disk is known to have room."""
        self.modified_ms = modified_ms
        self.is_gone = False
        """Whether the file was taken off the disk; nobody needs it there any more."""
        self.was_read = False
        """Whether somebody read from it since that was asked last; see `OpenFiles`."""
        self._sync_error: OSError | None = None
        self._settling: Lock | None = None

    def map(self, file: DiskFile) -> None:
        """Read and write through a mapping of this file."""
        self.file = file
        self.buffer = file.buffer
        self.view = memoryview(file.buffer)
        """Slices of it are what readers get: they cost no copy, and keep the mapping as long as they live."""
        self.report = None if isinstance(file, SystemFile) else file.wrote
        """What a write of a message is reported to; None where the kernel knows, and no call is needed."""
        self.is_mapped = True

    def unmap(self) -> None:
        """Let go of the mapping until `map` is called; the file can be synced all the same."""
        self.is_mapped = False
        self.view.release()
        self.file.close()
        self.buffer = self.file.buffer

    @property
    def end(self) -> int:
        """The offset behind the last byte that the file can hold."""
        return self.start + self.size

    @property
    def is_full(self) -> bool:
        return self.wrote >= self.size

    def reserve(self, end: int, step: int) -> None:
        """Make room up to a position, and for a step beyond it."""
        if end > self.reserved:
            upto = min(max(end, self.reserved + step), self.size)
            self.file.reserve(self.reserved, upto)
            self.reserved = upto

    def sync(self) -> None:
        """Put on the disk what is written at this moment."""
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
        # Not more than is still written: a truncation may have come in between.
        self.flushed = min(max(self.flushed, wrote), self.wrote)
        if self.flushed == self.size and isinstance(self.file, SystemFile):
            self.file.release()

    def settle(self) -> None:
        """Put on the disk what is there, while others sync.

        Of what it could not write the kernel tells one of them, so a sync succeeds only if this does, too.
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

    Those that are not `writable` are left exactly as they are; `scattered` ones are touched here and there,
    so that the disk does not read what lies around.
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

    def load(self) -> None:
        """Map what is there; every file counts as written and flushed to its end until recovery says less."""
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
            # `reserved` stays 0: a file that another process made, or a copy of one, may have holes.
            file = self._disk.open(path, writable=self._writable, scattered=self._scattered)
            mapped = MappedFile(file, int(entry.name), entry.modified_ms)
            mapped.wrote = mapped.flushed = mapped.size
            loaded.append(mapped)
        self.files = loaded

    def _found(self) -> list[tuple[Path, Entry]]:
        """The files that are there, by name."""
        entries = self._disk.entries(self.folder)
        return [(self.folder / entry.name, entry) for entry in entries if not entry.is_folder]

    def path_of(self, start: int) -> Path:
        """Where a new file that begins at an offset is to be."""
        return self.folder / f"{start:0{NAME_DIGITS}}"

    def expect(self, *, scattered: bool) -> None:
        """From now on these files, and those to come, are touched here and there, or are not."""
        self._scattered = scattered
        for mapped in self.files:
            mapped.file.expect(scattered=scattered)

    @property
    def min_offset(self) -> int:
        return self.files[0].start if self.files else 0

    @property
    def max_offset(self) -> int:
        """The offset behind the last byte written."""
        return self.files[-1].start + self.files[-1].wrote if self.files else 0

    @property
    def next_start(self) -> int:
        """The offset that a file behind the last one begins at."""
        return self.files[-1].end if self.files else 0

    @property
    def flushed_offset(self) -> int:
        """The offset up to which everything is on the disk."""
        for mapped in reversed(self.files):
            if mapped.flushed:
                return mapped.start + mapped.flushed
        return self.min_offset

    def at(self, offset: int) -> MappedFile | None:
        """The file that an offset lies in."""
        files = self.files
        if not files:
            return None
        index = (offset - files[0].start) // self.file_size
        if 0 <= index < len(files):
            mapped = files[index]
            if mapped.start <= offset < mapped.start + mapped.size:
                return mapped
        # Only where files are missing in between.
        return next((mapped for mapped in files if mapped.start <= offset < mapped.end), None)

    def after(self, mapped: MappedFile) -> MappedFile | None:
        """The file behind one; where some are missing, the next that there is."""
        return self.at(mapped.end) or next(
            (other for other in self.files if other.start > mapped.start), None
        )

    def gaps(self) -> list[tuple[int, int]]:
        """Where files are missing: from one offset to another."""
        return [
            (before.end, behind.start)
            for before, behind in pairwise(self.files)
            if before.end != behind.start
        ]

    def create(self, start: int) -> MappedFile:
        """A new, empty file that begins at an offset; not part of the sequence until it is added."""
        return MappedFile(
            self._disk.create(self.path_of(start), self.file_size, scattered=self._scattered), start
        )

    def add(self, mapped: MappedFile) -> MappedFile:
        """Put a new file behind the last one."""
        with self._changing:
            self.files = [*self.files, mapped]
        return mapped

    def sync_name(self, mapped: MappedFile) -> None:
        """Make sure that a new file is found after a crash: its name and, before anything else, its size."""
        mapped.file.sync()
        folder = mapped.file.path.parent
        self._disk.sync_folder(folder)
        if not self.files:
            self._disk.sync_folder(folder.parent)  # the folder itself may be new

    def sync(self) -> int:
        """Put everything written so far on the disk; the answer is up to which offset that is."""
        dirty: list[MappedFile] = []
        for mapped in reversed(self.files):
            if mapped.flushed >= mapped.size:
                break  # the oldest come first, so there is nothing to do before it
            if mapped.flushed < mapped.wrote:
                dirty.append(mapped)
        for mapped in reversed(dirty):
            mapped.sync()
        return self.flushed_offset

    def truncate(self, offset: int) -> None:
        """Forget everything at and behind an offset; files that lie wholly behind it are removed."""
        while self.files and self.files[-1].start >= offset and self.files[-1].start > 0:
            self.remove(self.files[-1])
        if self.files:
            last = self.files[-1]
            last.wrote = min(last.wrote, max(offset - last.start, 0))
            last.flushed = min(last.flushed, last.wrote)

    def remove(self, mapped: MappedFile) -> None:
        """Take a file out of the sequence and off the disk."""
        self.detach(mapped)
        self.erase(mapped)

    def detach(self, mapped: MappedFile) -> None:
        """Take a file out of the sequence; it is on the disk until it is erased."""
        with self._changing:
            self.files = [other for other in self.files if other is not mapped]

    def erase(self, mapped: MappedFile) -> None:
        """Take a detached file off the disk; readers that hold views of it finish safely."""
        mapped.is_gone = True  # before it is: a sync may be on its way to it
        self._disk.remove(mapped.file.path)
        mapped.close()

    def close(self) -> None:
        files, self.files = self.files, []
        for mapped in files:
            mapped.close()
