"""The files of one consume queue, as one stream of units.

Rules kept here:
- A new or removed file is only there, or gone, once its folder is synced, too.
- Room is reserved ahead of the units, with a place more than they need: behind the last unit is always one
  that does not count.
- What a crash or a cut left behind the end is erased before the units in front of it are written, so that it
  can never come back as messages.
- What was found at a start may be in the system's memory only, so it counts as not synced. A crash may have
  taken a file, or its size, and left the one behind it; units are made anew from there on.
- Files that are opened only to be read are never changed, whatever their state is.
- A file may be unmapped while nobody uses it (`open_files.py`), and is mapped again by whoever needs it.
"""

from __future__ import annotations

import errno
from pathlib import Path
from threading import Lock
from typing import Final

from cometmq.ports.disk import Disk
from cometmq.store.log.mapped_files import MappedFile, MappedFiles
from cometmq.store.queue.open_files import OpenFiles
from cometmq.store.queue.units import BLANK_SIZE, BLANK_UNIT, UNIT, UNIT_SIZE, end_of_units

Unit = tuple[int, int, int]
"""Physical offset, size and tags code."""

_NEW_FILE_STEP: Final = 64 * 1024
_OLD_FILE_STEP: Final = 4 * 1024
"""How much room is reserved at a time at most; in a file of an earlier run that much is erased, too."""

_mapping = Lock()
"""Held by whoever maps a file again, which is rare: two threads must not do it at once."""

_MEASURED_FILES: Final = 3
"""How many files, counted from the last, are looked through after a start."""


class FolderFiles(MappedFiles):
    """The files in a folder `<topic>/<queue id>`, which comes and goes with them."""

    def __init__(
        self,
        disk: Disk,
        folder: Path,
        file_size: int,
        *,
        writable: bool = True,
        open_files: OpenFiles | None = None,
    ) -> None:
        """With `open_files`, files are unmapped when too many of all queues are mapped."""
        super().__init__(disk, folder, file_size, writable=writable, scattered=True)
        self._open_files = open_files
        self.names_changed = False
        """Whether a name in the folder, or the way to it, may not be on the disk yet."""

    def load(self) -> None:
        super().load()
        self.names_changed = bool(self.files)  # by the process before, and maybe in memory only
        if self._open_files is not None:
            for mapped in self.files:
                self._open_files.add(self, mapped)

    def at(self, offset: int) -> MappedFile | None:
        # As in `MappedFiles`, without a call more for every read.
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
        """Map a file again if it was unmapped; the same file."""
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
        if self._open_files is not None:
            self._open_files.add(self, mapped)
        return mapped

    def unmapped(self, mapped: MappedFile) -> None:
        """A file was unmapped; nothing depends on it."""

    @property
    def unsynced(self) -> int:
        """How many bytes may not be on the disk yet; a new or removed name counts as one."""
        return self.max_offset - self.flushed_offset or int(self.names_changed)

    def add(self, mapped: MappedFile) -> MappedFile:
        self.names_changed = True
        super().add(mapped)
        if self._open_files is not None:
            self._open_files.add(self, mapped)
        return mapped

    def detach(self, mapped: MappedFile) -> None:
        super().detach(mapped)
        if self._open_files is not None:
            self._open_files.forget(mapped)

    def close(self) -> None:
        if self._open_files is not None:
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
        """Where the names of the folders of queue and topic are, which come and go with the files."""
        return self.folder.parent, self.folder.parent.parent

    def sync(self, renamed: list[FolderFiles] | None = None) -> int:
        """Put everything written so far on the disk, and every name; the answer is up to which offset.

        Many queues have the folders above in common. With `renamed`, those who need them add themselves to
        it, and whoever gave it syncs each of these folders once, or says that names have changed still.
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

    def __init__(
        self,
        disk: Disk,
        folder: Path,
        file_size: int,
        *,
        writable: bool = True,
        open_files: OpenFiles | None = None,
    ) -> None:
        super().__init__(disk, folder, file_size, writable=writable, open_files=open_files)
        self.last: MappedFile | None = None
        """The file that is written to."""
        self.full_at = 0
        """The place in it from which on no unit may be written before `reserve` was asked."""
        self._step = _NEW_FILE_STEP

    @property
    def first_unit(self) -> int:
        """The offset of the first unit that there is a place for."""
        return self.min_offset // UNIT_SIZE

    def unit(self, queue_offset: int) -> Unit:
        """The unit of an offset; a blank one if its file was just deleted or unmapped."""
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
        """Where the message of an offset is in the commit log; -1 for a blank unit."""
        physical_offset, size, _ = self.unit(queue_offset)
        return -1 if size == BLANK_SIZE else physical_offset

    # Writing

    def make_place(self) -> MappedFile:
        """The last file, or a new one behind it, with room for a unit."""
        last = self.last
        if last is None or last.is_full:
            last = self._add_file(0 if last is None else last.end)
        self._reserve(self.map(last), last.wrote + UNIT_SIZE)
        return last

    def unmapped(self, mapped: MappedFile) -> None:
        if mapped is self.last:
            self.full_at = 0  # so that the next append asks for a place

    def begin_at(self, queue_offset: int) -> None:
        """Start over, with blank units up to this offset; there must be nothing to lose."""
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
        """Write a unit again of which a crash took a part; False if another one is there, which stays."""
        at = queue_offset * UNIT_SIZE
        mapped = self.at(at)
        if mapped is None or at - mapped.start >= mapped.wrote:
            return False
        at -= mapped.start
        found = mapped.buffer[at : at + UNIT_SIZE]
        if found != unit:
            if any(old not in (0, new) for old, new in zip(found, unit, strict=True)):
                return False
            mapped.file.reserve(at, at + UNIT_SIZE)  # what a crash took may be a hole of the file
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
        """Make room up to a place, and for one more unit behind it."""
        known = mapped.reserved
        # Small at first, and then twice as much each time: most queues of a large store hold little.
        step = min(self._step, max(known, _OLD_FILE_STEP))
        mapped.reserve(min(end + UNIT_SIZE, mapped.size), step)
        if self._step == _OLD_FILE_STEP and mapped.reserved > known:
            mapped.buffer[known : mapped.reserved] = bytes(mapped.reserved - known)
            mapped.file.wrote(known, mapped.reserved)
        is_whole = mapped.reserved == mapped.size
        self.full_at = mapped.size if is_whole else mapped.reserved - 2 * UNIT_SIZE + 1

    # Upkeep: everything below blocks

    def forget_behind_hole(self) -> None:
        """Remove the files behind one that is missing or has lost its size, before they are loaded."""
        found = self._found()
        if not all(entry.name.isdecimal() for _, entry in found):
            return  # somebody else has been here
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
            self._disk.sync_folder(self.folder)  # before an empty one goes, or there would be a hole again

    def find_end(self) -> int:
        """Where the units end that a start finds, as a place in the stream."""
        files = self.files
        index = max(0, len(files) - _MEASURED_FILES)
        while index > 0 and _measure(self.map(files[index])) == 0:
            index -= 1
        while index < len(files) and _measure(self.map(files[index])) == self.file_size:
            index += 1
        return files[index].start + files[index].wrote if index < len(files) else self.max_offset

    def end_at(self, end: int) -> None:
        """Let the stream end at a place; an empty first file stays, it knows where the queue was."""
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
            last.file.sync()  # now, because of an empty queue there will be nothing else to sync

    def remove_all(self) -> None:
        super().remove_all()
        self.last = None
        self.full_at = 0

    def close(self) -> None:
        super().close()
        self.last = None
        self.full_at = 0


def _measure(mapped: MappedFile) -> int:
    """How much of a file are units that count."""
    mapped.wrote = end_of_units(mapped.buffer, 0, mapped.size)
    mapped.flushed = 0
    return mapped.wrote
