"""The disk: memory-mapped files of fixed size, folders, locks, and free space.

Rules kept here:
- A mapped file is written through its `buffer`; `wrote` reports a complete write, so that a simulated disk
  can stop there. A crash may lose, tear or reorder everything that is not synced.
- Room is reserved before it is written: a write into a hole of a full disk would kill the process.
- `sync` and everything that creates, removes or lists blocks; it belongs on a worker thread.
- A mapping lives as long as somebody holds a view of it; closing or removing the file does not hurt readers.
- A mapped file needs no descriptor to be synced. One that is written from front to back keeps one, as that is
  quicker. Opening a file for a moment may take a spare descriptor (`descriptors.py`).
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import shutil
import time
from pathlib import Path
from threading import Lock
from typing import Final, Protocol

import msgspec

from cometmq.ports import mappings, system
from cometmq.ports.descriptors import hold_spares, open_descriptor, opened, with_spare
from cometmq.ports.files import Files, SystemFiles, sync_folder

_FETCH_BYTES: Final = 1024 * 1024
_MANY_BYTES: Final = 16 * 1024
_REMOVE_S: Final = 2.0
"""How long Windows may keep a file that a reader still has mapped."""
_REMOVE_STEP_S: Final = 0.02
_CLOSED: Final = mmap.mmap(-1, 1)
_CLOSED.close()

Buffer = mmap.mmap | bytearray
"""The buffer of a real or a simulated file."""
Readable = bytes | bytearray | memoryview


class Entry(msgspec.Struct, frozen=True):
    """One entry of a folder."""

    name: str
    size: int
    is_folder: bool
    modified_ms: int


class DiskUsage(msgspec.Struct, frozen=True):
    """How full a partition is, in bytes."""

    total: int
    used: int
    usable: int


UNKNOWN_PERCENT: Final = -1


def used_percent(usage: DiskUsage | None) -> int:
    """The used share of the usable space, rounded up; `UNKNOWN_PERCENT` for a path that does not exist."""
    if usage is None:
        return UNKNOWN_PERCENT
    available = usage.used + usage.usable
    return -(-usage.used * 100 // available) if available else 100


class DiskFile(Protocol):
    """A file of fixed size, mapped whole."""

    path: Path
    size: int
    buffer: Buffer

    def reserve(self, start: int, end: int) -> None:
        """Make sure that the disk has room for these bytes; raises OSError if it has not."""

    def wrote(self, start: int, end: int) -> None:
        """A write to the buffer is complete."""

    def write_through(self, start: int, data: Readable) -> None:
        """Write bytes and report it.

        Many bytes are written past the buffer, so that pages need not be loaded first; it shows them, too.
        """

    def fetch(self, start: int, end: int) -> None:
        """Load bytes into memory, so that reading them through the buffer does not wait.

        A page fault in the buffer holds up every thread; this call only its own.
        """

    def is_in_memory(self, start: int, end: int) -> bool:
        """Whether these bytes are in memory; False if the system cannot tell."""

    def expect(self, *, scattered: bool) -> None:
        """Change the expected access pattern; see `Disk.create`."""

    def data_ranges(self, start: int) -> list[tuple[int, int]]:
        """Returns the ranges after `start` that may have been written; all others read as zeros."""

    def sync(self) -> None:
        """Return when everything written so far is on the disk."""

    def close(self) -> None:
        """Let go of the mapping; views that are still held keep it."""


class DiskLock(Protocol):
    """A lock that no other process holds."""

    def release(self) -> None: ...


class Disk(Files, Protocol):
    """Everything the store does to the disk."""

    def entries(self, folder: Path) -> list[Entry]:
        """Returns the entries of a folder by name; none if the folder does not exist."""

    def create(self, path: Path, size: int, *, scattered: bool = False) -> DiskFile:
        """A new file of this size, with its folders; it reads as zeros and has no room reserved yet.

        `scattered` announces random access: reading ahead is not worth it.
        """

    def open(self, path: Path, *, writable: bool = True, scattered: bool = False) -> DiskFile:
        """Map an existing file."""

    def remove(self, path: Path) -> None:
        """Remove a file or an empty folder; a missing one is no error."""

    def rename(self, path: Path, name: str) -> None:
        """Give a file or folder another name in its folder; a file of that name is replaced."""

    def sync_folder(self, folder: Path) -> None:
        """Return when the names in a folder are on the disk."""

    def usage(self, path: Path) -> DiskUsage | None:
        """Returns the usage of the partition of a path; None if the path does not exist."""

    def lock(self, path: Path) -> DiskLock | None:
        """Lock a file, created if necessary; returns None if another process has it."""


class SystemDisk(SystemFiles):
    """The machine's disk."""

    def __init__(self) -> None:
        hold_spares()

    def entries(self, folder: Path) -> list[Entry]:
        try:
            with with_spare(lambda: os.scandir(folder)) as found:
                entries = [_entry(each) for each in found]
        except FileNotFoundError:
            return []
        return sorted(entries, key=lambda entry: entry.name)

    def create(self, path: Path, size: int, *, scattered: bool = False) -> DiskFile:
        path.parent.mkdir(parents=True, exist_ok=True)
        with opened(path, os.O_RDWR | os.O_CREAT | os.O_EXCL) as handle:
            try:
                os.ftruncate(handle, size)
                return SystemFile(path, handle, writable=True, scattered=scattered)
            except OSError:  # half a file is of no use, and in the way of the next attempt
                path.unlink(missing_ok=True)
                raise

    def open(self, path: Path, *, writable: bool = True, scattered: bool = False) -> DiskFile:
        with opened(path, os.O_RDWR if writable else os.O_RDONLY) as handle:
            return SystemFile(path, handle, writable=writable, scattered=scattered)

    def remove(self, path: Path) -> None:
        deadline = time.monotonic() + _REMOVE_S if system.IS_WINDOWS else 0
        while True:
            try:
                if path.is_dir():
                    path.rmdir()
                else:
                    path.unlink()
            except FileNotFoundError:
                pass
            except PermissionError:
                if time.monotonic() < deadline:
                    time.sleep(_REMOVE_STEP_S)
                    continue
                raise
            return

    def rename(self, path: Path, name: str) -> None:
        path.replace(path.with_name(name))

    def sync_folder(self, folder: Path) -> None:
        sync_folder(folder)

    def usage(self, path: Path) -> DiskUsage | None:
        try:
            return DiskUsage(*shutil.disk_usage(path))
        except FileNotFoundError:
            return None

    def lock(self, path: Path) -> DiskLock | None:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = open_descriptor(path, os.O_RDWR | os.O_CREAT)
        if not system.lock(handle):
            os.close(handle)
            return None
        with contextlib.suppress(OSError):  # the content does not matter, and the disk may be full
            system.pwrite(handle, b"lock", 0)
        return SystemLock(handle)


class SystemFile:
    """A mapped file of the machine."""

    __slots__ = (
        "_address",
        "_handle",
        "_has_holes",
        "_inode",
        "_scattered",
        "_syncing",
        "buffer",
        "path",
        "size",
    )

    def __init__(self, path: Path, handle: int, *, writable: bool, scattered: bool) -> None:
        self.path = path
        facts = os.fstat(handle)
        self.size, self._inode = facts.st_size, facts.st_ino
        self._has_holes = writable and mappings.has_holes_to_avoid(handle)
        self.buffer: Buffer = (
            mappings.map_file(handle, self.size, writable=writable) if self.size else bytearray()
        )
        self._syncing = Lock()
        self._handle: int | None = None
        """Kept by a file that is written from front to back, such as a log file: it saves a third of a sync.
        Closed when the file is full, or with the file."""
        self._scattered = False
        self.expect(scattered=scattered)
        self._address = mappings.address_of(self.buffer) if isinstance(self.buffer, mmap.mmap) else None

    def reserve(self, start: int, end: int) -> None:
        if start >= end:
            return
        with opened(self.path, os.O_RDWR) as handle:
            if not system.allocate(handle, start, end - start):
                self._fill_holes(handle, start, end)
            if self._has_holes and isinstance(self.buffer, mmap.mmap):
                mappings.show(self.buffer, handle, start, end)

    def _fill_holes(self, handle: int, start: int, end: int) -> None:
        for begin, hole_end in mappings.holes(handle, start, end):
            for at in range(begin, hole_end, _FETCH_BYTES):
                system.pwrite(handle, bytes(min(hole_end - at, _FETCH_BYTES)), at)

    def wrote(self, start: int, end: int) -> None:
        """The kernel has it; nothing to do."""

    def write_through(self, start: int, data: Readable) -> None:
        end = start + len(data)
        if len(data) < _MANY_BYTES or system.IS_WINDOWS:  # which promises no agreement between the two ways
            self.buffer[start:end] = data
            return
        try:
            with opened(self.path, os.O_WRONLY) as handle, memoryview(data) as rest:
                at = start
                while at < end:
                    at += system.pwrite(handle, rest[at - start :], at)
        except OSError:  # the way that every other write takes
            self.buffer[start:end] = data

    def expect(self, *, scattered: bool) -> None:
        if scattered != self._scattered:
            self._scattered = scattered
            if isinstance(self.buffer, mmap.mmap) and hasattr(mmap, "MADV_RANDOM"):
                self.buffer.madvise(mmap.MADV_RANDOM if scattered else mmap.MADV_NORMAL)

    def fetch(self, start: int, end: int) -> None:
        with opened(self.path, os.O_RDONLY) as handle:
            if self._scattered:
                system.expect_random_reads(handle)
            while start < end and (read := system.pread(handle, min(end - start, _FETCH_BYTES), start)):
                start += len(read)

    def is_in_memory(self, start: int, end: int) -> bool:
        return self._address is not None and mappings.is_in_memory(self._address, start, end)

    def data_ranges(self, start: int) -> list[tuple[int, int]]:
        with opened(self.path, os.O_RDONLY) as handle:
            return mappings.data_ranges(handle, start, self.size)

    def sync(self) -> None:
        if not os.access(self.path, os.F_OK):
            raise FileNotFoundError(errno.ENOENT, "it was removed while it was in use", str(self.path))
        if system.SYNCS_MAPPINGS and not self._scattered and self._sync_kept():
            return
        if isinstance(self.buffer, mmap.mmap) and mappings.sync(self.buffer) and system.SYNCS_MAPPINGS:
            return
        with opened(self.path, system.SYNC_FLAGS) as handle:
            system.sync_data(handle)

    def _sync_kept(self) -> bool:
        """Sync with the kept descriptor; returns False if there is none."""
        with self._syncing:
            if self._handle is None:
                try:
                    handle = os.open(self.path, os.O_RDONLY)
                except OSError:
                    return False
                if os.fstat(handle).st_ino != self._inode:
                    os.close(handle)
                    raise FileNotFoundError(errno.ENOENT, "another file has taken its place", str(self.path))
                self._handle = handle
            system.sync_data(self._handle)
            return True

    def release(self) -> None:
        """Close the kept descriptor; the next sync opens it again."""
        with self._syncing:
            if self._handle is not None:
                os.close(self._handle)
                self._handle = None

    def close(self) -> None:
        self.release()
        self._address = None
        if isinstance(self.buffer, mmap.mmap):
            try:
                self.buffer.close()
            except BufferError:  # a reader holds a view; the mapping goes with its last view
                self.buffer = _CLOSED


class SystemLock:
    """A lock held by this process."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def release(self) -> None:
        os.close(self._handle)


def _entry(found: os.DirEntry[str]) -> Entry:
    facts = found.stat()
    return Entry(found.name, facts.st_size, found.is_dir(), facts.st_mtime_ns // 1_000_000)
