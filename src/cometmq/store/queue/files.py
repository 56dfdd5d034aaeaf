"""The files of one consume queue as a stream of units.

Rules kept here:
- A unit has 20 bytes: `i64 physical offset, i32 size, i64 tags code`. It counts if the offset is not negative
  and the size is positive; the first unit that does not count ends the queue.
- A blank unit, with the largest possible size, precedes the first message of a queue that begins in the
  middle of a file. A lost unit stands for a message that the log has lost, so that the ones after it keep
  their offsets.
- Creating or removing a file is complete once its folder is synced, too.
- Room is reserved ahead, with one unit more than needed: after the last unit there is always one that does
  not count. Leftovers after the end are erased before the units before them are written, so that they never
  come back as messages.
- What a start finds may be in memory only, so it counts as not synced. A crash may take a file, or its size,
  and leave the next one; units are made anew from there on.
- Files opened for reading are never changed.
- A file may be unmapped while it is not used (`open_files.py`); whoever needs it maps it again.
"""

from __future__ import annotations

import errno
import struct
import sys
from array import array
from pathlib import Path
from threading import Lock
from typing import Final

from cometmq.ports.disk import Buffer, Disk
from cometmq.store.log.mapped_files import MappedFile, MappedFiles
from cometmq.store.queue.open_files import OpenFiles

UNIT: Final = struct.Struct(">qiq")
UNIT_SIZE: Final = UNIT.size
_SIZE_AT: Final = 8
_WORD: Final = 4
_SIZES: Final = slice(_SIZE_AT // _WORD, None, UNIT_SIZE // _WORD)
"""The sizes of messages in units as 32-bit words."""

BLANK_SIZE: Final = 0x7FFFFFFF
BLANK_UNIT: Final = UNIT.pack(0, BLANK_SIZE, 0)

LOST_SIZE: Final = 0x4000_0001
"""The size in a lost unit: larger than a file of the log, so that it leads to nothing.

Its physical offset is where the message before it ended, so that the units stay in order.
"""

_FIRST_READ: Final = 200 * UNIT_SIZE
_LONGEST_READ: Final = 6400 * UNIT_SIZE


Unit = tuple[int, int, int]
"""Physical offset, size and tags code."""
_NEW_FILE_STEP: Final = 64 * 1024
_OLD_FILE_STEP: Final = 4 * 1024
"""Room reserved at a time; in a file of an earlier process it is also erased."""
_mapping = Lock()
"""Held while a file is mapped again: two threads must not do that at once."""
_MEASURED_FILES: Final = 3
"""How many files, counted from the last, are scanned after a start."""


def whole_units(size: int) -> int:
    """Round a file size up to whole units."""
    return -(-size // UNIT_SIZE) * UNIT_SIZE


def sum_of_sizes(units: bytes) -> int:
    """The total size of the messages of packed units."""
    words = array("I")
    words.frombytes(units)
    if sys.byteorder == "little":
        words.byteswap()
    return sum(words[_SIZES])


def end_of_units(buffer: Buffer, start: int, end: int) -> int:
    """Where the units that count end between two positions.

    Starts with short reads, because most queues of a large store hold little. Checks whole byte columns at a
    time: a start has to look at millions of units.
    """
    length = _FIRST_READ
    while start < end:
        stop = min(start + length, end)
        units = bytes(buffer[start:stop])
        if not _all_count(units):
            return start + _end_of_good(units)
        start = stop
        length = min(length * 2, _LONGEST_READ)
    return start


def _all_count(units: bytes) -> bool:
    # A number is negative if its first bit is set, which ASCII never has.
    if not (units[::UNIT_SIZE].isascii() and units[_SIZE_AT::UNIT_SIZE].isascii()):
        return False
    columns = (units[column::UNIT_SIZE] for column in range(_SIZE_AT, _SIZE_AT + 4))
    any_bit = 0
    for column in columns:
        any_bit |= int.from_bytes(column, "little")
    return 0 not in any_bit.to_bytes(len(units) // UNIT_SIZE, "little")


def _end_of_good(units: bytes) -> int:
    for number, (physical_offset, size, _) in enumerate(UNIT.iter_unpack(units)):
        if physical_offset < 0 or size <= 0:
            return number * UNIT_SIZE
    return len(units)


class FolderFiles(MappedFiles):
    """The files in a folder `<topic>/<queue id>`, which is created and removed with them."""

    def __init__(
        self,
        disk: Disk,
        folder: Path,
        file_size: int,
        *,
        writable: bool = True,
        open_files: OpenFiles | None = None,
    ) -> None:
        """Queues share `open_files`, which limits how many files are mapped."""
        super().__init__(disk, folder, file_size, writable=writable, scattered=True)
        self._open_files = OpenFiles() if open_files is None else open_files
        self.names_changed = False
        """Whether a name in the folder, or in the folders above, may not be on the disk yet."""

    def load(self) -> None:
        super().load()
        self.names_changed = bool(self.files)  # by an earlier process, and maybe in memory only
        for mapped in self.files:
            self._open_files.add(self, mapped)

    def at(self, offset: int) -> MappedFile | None:
        # A copy of `MappedFiles.at`, which saves every read a call.
        files = self.files
        index = (offset - files[0].start) // self.file_size if files else -1
        mapped = files[index] if 0 <= index < len(files) else None
        if mapped is None or not mapped.start <= offset < mapped.start + mapped.size:
            mapped = super().at(offset)
            if mapped is None:
                return None
        mapped.was_read = True
        return mapped if mapped.is_mapped else self.map(mapped)

    def map(self, mapped: MappedFile) -> MappedFile:
        """Map a file again if it was unmapped; returns it."""
        if mapped.is_mapped or mapped.is_gone:
            return mapped
        with _mapping:
            if mapped.is_mapped:
                return mapped
            file = self._disk.open(mapped.file.path, writable=self._writable, scattered=self._scattered)
            if file.size != mapped.size:
                file.close()
                raise OSError(
                    errno.EIO, f"it has {file.size} bytes now, and had {mapped.size}", str(file.path)
                )
            mapped.map(file)
        self._open_files.add(self, mapped)
        return mapped

    def unmapped(self, mapped: MappedFile) -> None:
        """Called when `OpenFiles` has unmapped a file."""

    @property
    def unsynced(self) -> int:
        """How many bytes may not be on the disk yet; a changed name counts as one."""
        return self.max_offset - self.flushed_offset or int(self.names_changed)

    def add(self, mapped: MappedFile) -> MappedFile:
        self.names_changed = True
        super().add(mapped)
        self._open_files.add(self, mapped)
        return mapped

    def detach(self, mapped: MappedFile) -> None:
        super().detach(mapped)
        self._open_files.forget(mapped)

    def close(self) -> None:
        for mapped in self.files:
            self._open_files.forget(mapped)
        super().close()

    def erase(self, mapped: MappedFile) -> None:
        if self._writable:
            super().erase(mapped)
            self.names_changed = True
        else:
            mapped.close()

    @property
    def folders_above(self) -> tuple[Path, Path]:
        """The folders of topic and queues, which contain the names of this folder and the one above."""
        return self.folder.parent, self.folder.parent.parent

    def sync(self, renamed: list[FolderFiles] | None = None) -> int:
        """Sync everything written so far, and every name; returns up to which offset.

        Many queues share the folders above. With `renamed`, files that need them synced add themselves to it,
        and the caller syncs each of these folders once, or sets `names_changed` again.
        """
        names_changed, self.names_changed = self.names_changed, False
        try:
            synced = super().sync()
            if names_changed:
                self._disk.sync_folder(self.folder)
                if renamed is None:
                    for folder in self.folders_above:
                        self._disk.sync_folder(folder)
                else:
                    renamed.append(self)
        except OSError:
            self.names_changed = True
            raise
        return synced

    def remove_all(self) -> None:
        for mapped in list(self.files):
            self.remove(mapped)

    def destroy(self) -> None:
        """Remove the files and the folder."""
        self.remove_all()
        self._disk.remove(self.folder)


class QueueFiles(FolderFiles):
    """The files of a consume queue."""

    last: MappedFile | None = None
    """The file that is written to."""
    full_at = 0
    """The position in it from which on a unit needs `make_room` first."""
    _step = _NEW_FILE_STEP

    @property
    def first_unit(self) -> int:
        """The queue offset of the first unit in the files."""
        return self.min_offset // UNIT_SIZE

    def unit(self, queue_offset: int) -> Unit:
        """The unit of a queue offset; a blank one if its file was just deleted or unmapped."""
        at = queue_offset * UNIT_SIZE
        mapped = self.at(at)
        if mapped is None:
            return 0, BLANK_SIZE, 0
        try:
            physical_offset, size, tags_code = UNIT.unpack_from(mapped.buffer, at - mapped.start)
        except ValueError:
            return 0, BLANK_SIZE, 0
        return physical_offset, size, tags_code

    def physical_offset(self, queue_offset: int) -> int:
        """The physical offset of a message; -1 for a blank unit."""
        physical_offset, size, _ = self.unit(queue_offset)
        return -1 if size == BLANK_SIZE else physical_offset

    # Writing

    def make_room(self) -> MappedFile:
        """The last file, or a new one after it, with room for a unit."""
        last = self.last
        if last is None or last.is_full:
            last = self._add_file(0 if last is None else last.end)
        self._reserve(self.map(last), last.wrote + UNIT_SIZE)
        return last

    def unmapped(self, mapped: MappedFile) -> None:
        if mapped is self.last:
            self.full_at = 0  # so that the next append calls `make_room`

    def begin_at(self, queue_offset: int) -> None:
        """Start over with blank units up to a queue offset; there must be nothing to lose."""
        blank = queue_offset * UNIT_SIZE % self.file_size
        start = queue_offset * UNIT_SIZE - blank
        last = self.last
        if last is None or last.start != start:
            self.remove_all()
            last = self._add_file(start)
        self._reserve(self.map(last), blank)
        last.wrote = blank
        if blank:
            last.buffer[:blank] = BLANK_UNIT * (blank // UNIT_SIZE)
            last.file.wrote(0, blank)

    def repair(self, queue_offset: int, unit: bytes) -> bool:
        """Write again a unit that a crash tore; False if another unit is there, which stays."""
        at = queue_offset * UNIT_SIZE
        mapped = self.at(at)
        if mapped is None or at - mapped.start >= mapped.wrote:
            return False
        at -= mapped.start
        found = mapped.buffer[at : at + UNIT_SIZE]
        if found != unit:
            if any(old not in (0, new) for old, new in zip(found, unit, strict=True)):
                return False
            mapped.file.reserve(at, at + UNIT_SIZE)  # a torn unit may be in a hole of the file
            mapped.buffer[at : at + UNIT_SIZE] = unit
            mapped.flushed = min(mapped.flushed, at)
            mapped.file.wrote(at, at + UNIT_SIZE)
        return True

    def _add_file(self, start: int) -> MappedFile:
        self.last = self.add(self.create(start))
        self.full_at = 0
        self._step = _NEW_FILE_STEP
        return self.last

    def _reserve(self, mapped: MappedFile, end: int) -> None:
        """Reserve room up to a position, and for one more unit."""
        known = mapped.reserved
        # Small at first, then doubling: most queues of a large store hold little.
        step = min(self._step, max(known, _OLD_FILE_STEP))
        mapped.reserve(min(end + UNIT_SIZE, mapped.size), step)
        if self._step == _OLD_FILE_STEP and mapped.reserved > known:
            mapped.buffer[known : mapped.reserved] = bytes(mapped.reserved - known)
            mapped.file.wrote(known, mapped.reserved)
        is_whole = mapped.reserved == mapped.size
        self.full_at = mapped.size if is_whole else mapped.reserved - 2 * UNIT_SIZE + 1

    # Upkeep: everything below blocks

    def forget_after_hole(self) -> None:
        """Before loading, remove the files after one that is missing or has lost its size."""
        found = self._found()
        if not all(entry.name.isdecimal() for _, entry in found):
            return  # files of somebody else
        kept = 0
        for path, entry in found:
            if kept and path != self.path_of(int(found[kept - 1][1].name) + self.file_size):
                break
            kept += 1
            if entry.size == 0:
                break
        if kept < len(found):
            for path, _ in reversed(found[kept:]):
                self._disk.remove(path)
            self._disk.sync_folder(
                self.folder
            )  # before an empty file is removed, which would leave a hole again

    def find_end(self) -> int:
        """Find the end of the units after a start, as a position in the stream."""
        files = self.files
        index = max(0, len(files) - _MEASURED_FILES)
        while index > 0 and _measure(self.map(files[index])) == 0:
            index -= 1
        while index < len(files) and _measure(self.map(files[index])) == self.file_size:
            index += 1
        return files[index].start + files[index].wrote if index < len(files) else self.max_offset

    def end_at(self, end: int) -> None:
        """Let the stream end at a position; an empty first file stays: its name tells where the queue was."""
        files = list(self.files)
        while len(files) > 1 and files[-1].start >= end:
            self.remove(files.pop())
        self.last = last = files[-1] if files else None
        self.full_at = 0
        if last is None:
            return
        self.map(last)
        last.wrote = last.reserved = end - last.start
        last.flushed = 0
        self._step = _OLD_FILE_STEP
        if self._writable and any(last.buffer[last.wrote : last.wrote + UNIT_SIZE]):
            self._reserve(last, last.wrote)
            last.file.sync()  # now, because an empty queue has nothing else to sync

    def remove_all(self) -> None:
        super().remove_all()
        self.last = None
        self.full_at = 0

    def close(self) -> None:
        super().close()
        self.last = None
        self.full_at = 0


def _measure(mapped: MappedFile) -> int:
    """Find how much of a file are units that count."""
    mapped.wrote = end_of_units(mapped.buffer, 0, mapped.size)
    mapped.flushed = 0
    return mapped.wrote
