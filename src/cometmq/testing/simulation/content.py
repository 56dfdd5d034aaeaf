"""The content of a simulated file: the bytes that programs see, and the bytes that survive a crash.

Rules kept here:
- Both images are immutable pages in a dict, without pages of zeros, so that the survivor of a crash shares
  all unchanged pages, and a file of a gigabyte costs only its written pages.
- Only reported writes count. A write can be lost until a sync that began after it ends.
- The mapping is anonymous memory: it behaves like that of a real file, and cannot grow.
"""

from __future__ import annotations

import mmap
from enum import StrEnum
from random import Random
from typing import Final

from cometmq.ports.disk import Buffer

SECTOR_SIZE: Final = 512
"""A disk writes a sector whole or not at all."""
PAGE_SIZE: Final = 4096
"""The unit of images and of reserved room."""

_ZEROS: Final = bytes(PAGE_SIZE)

Pages = dict[int, bytes]


class CrashMode(StrEnum):
    """What happens to unsynced writes."""

    DROP = "drop"
    """All of it is lost: the power failed before anything was written back."""
    KEEP = "keep"
    """All of it is kept: the process was killed, and the system lived on. It still is not synced."""
    TORN = "torn"
    """Each sector is as some number of its writes left it, none of them included; names are a prefix."""
    REORDER = "reorder"
    """Each write, and each change of a name, is kept or lost by itself."""
    CUT = "cut"
    """The process was killed in the middle of its last write; all the rest is kept.

    A part of the range is written, from its beginning on: code that relies on an order within a write has to
    report it in steps.
    """


class Content:
    """The content of one file; folders have its names."""

    def __init__(self, size: int, modified_ms: int) -> None:
        self.size = size
        self.modified_ms = modified_ms
        self.handles = 0
        self.buffer: Buffer | None = None
        """The mapping, while somebody has the file open."""
        self.reserved = 0
        """The pages that the disk has room for, a bit each."""
        self._current: Pages = {}
        self._durable: Pages = {}
        self._durable_reserved = 0
        self._durable_size = 0
        self._pending: list[tuple[int, bytes]] = []
        self._settled = 0
        self._overwritten = b""

    @classmethod
    def stored(cls, data: bytes, modified_ms: int) -> Content:
        """Content that is on the disk already; pages of zeros are holes."""
        content = cls(len(data), modified_ms)
        for index in range(-(-len(data) // PAGE_SIZE)):
            page = data[index * PAGE_SIZE : (index + 1) * PAGE_SIZE]
            if page.count(0) != len(page):
                content._current[index] = page.ljust(PAGE_SIZE, b"\0")
        return content._as_stored(content._current, len(data), 0)

    def _as_stored(self, pages: Pages, size: int, reserved: int) -> Content:
        """Content of these pages, all of it durable."""
        stored = Content(size, self.modified_ms)
        stored._current, stored._durable, stored._durable_size = pages, dict(pages), size
        for index in pages:
            reserved |= 1 << index
        stored.reserved = stored._durable_reserved = reserved
        return stored

    def map(self) -> Buffer:
        """The mapping; all that open the file share one."""
        if self.buffer is None:
            self.buffer = mmap.mmap(-1, self.size) if self.size else bytearray()
            for index, page in self._current.items():
                start = index * PAGE_SIZE
                self.buffer[start : start + PAGE_SIZE] = page[: self.size - start]
        return self.buffer

    def unmap(self) -> None:
        """Let go of the mapping, as far as readers let go of it."""
        if isinstance(self.buffer, mmap.mmap):
            try:
                self.buffer.close()
            except BufferError:
                pass
        self.buffer = None

    def read(self) -> bytes:
        """The whole content as programs see it."""
        data = bytearray(self.size)
        for index, page in self._current.items():
            start = index * PAGE_SIZE
            data[start : start + PAGE_SIZE] = page[: self.size - start]
        return bytes(data)

    def unreserved(self, start: int, end: int) -> int | None:
        """The first position from `start` to `end` that the disk has no room for."""
        missing = _bits(start, end) & ~self.reserved
        return None if not missing else max(((missing & -missing).bit_length() - 1) * PAGE_SIZE, start)

    def missing_room(self, start: int, end: int) -> int:
        """How many bytes a reservation would take from the disk."""
        return (_bits(start, end) & ~self.reserved).bit_count() * PAGE_SIZE

    def reserve(self, start: int, end: int) -> None:
        self.reserved |= _bits(start, end)

    def write(self, start: int, data: bytes) -> None:
        """Note a write; the mapping, if there is one, has it already."""
        self._overwritten = _read(self._current, start, len(data))
        _patch(self._current, start, data)
        self._pending.append((start, data))

    def unreported(self) -> int | None:
        """A position that was changed in the mapping, and not reported."""
        if not isinstance(self.buffer, mmap.mmap):
            return None
        for index in range(-(-self.size // PAGE_SIZE)):
            start = index * PAGE_SIZE
            found, known = self.buffer[start : start + PAGE_SIZE], self._current.get(index, _ZEROS)
            if found != known[: len(found)]:
                return start + next(i for i, byte in enumerate(found) if byte != known[i])
        return None

    @property
    def written(self) -> int:
        """The number of writes so far."""
        return self._settled + len(self._pending)

    def synced(self, writes: int) -> None:
        """The first writes, up to this number, are on the disk, and so are size and reservations."""
        for start, data in self._pending[: max(writes - self._settled, 0)]:
            _patch(self._durable, start, data)
        self.forget(writes)
        self._durable_size, self._durable_reserved = self.size, self.reserved

    def forget(self, writes: int) -> None:
        """The first writes, up to this number, are never synced again, also if that failed."""
        del self._pending[: max(writes - self._settled, 0)]
        self._settled = max(writes, self._settled)

    def named(self) -> None:
        """The size is on the disk, as it is on file systems that keep it together with the name."""
        self._durable_size = self.size

    def survivor(self, mode: CrashMode, chance: Random, *, is_last_written: bool) -> Content:
        """Returns the content after a crash."""
        if mode in (CrashMode.KEEP, CrashMode.CUT):
            kept = self._copy()
            if mode is CrashMode.CUT and is_last_written:
                kept._cut_last_write(chance.randrange(len(self._overwritten) + 1))
            return kept
        size = self._durable_size
        if size != self.size and mode is not CrashMode.DROP and chance.random() < 0.5:
            size = self.size
        pages = dict(self._durable)
        if size and mode is CrashMode.TORN:
            self._tear(pages, chance)
        elif size and mode is CrashMode.REORDER:
            for start, data in self._pending:
                if chance.random() < 0.5:
                    _patch(pages, start, data)
        return self._as_stored(pages if size else {}, size, self._durable_reserved if size else 0)

    def _copy(self) -> Content:
        """Returns a copy that is not open, as when the process is gone."""
        copy = Content(self.size, self.modified_ms)
        copy.reserved, copy._durable_reserved = self.reserved, self._durable_reserved
        copy._current, copy._durable, copy._durable_size = (
            dict(self._current),
            dict(self._durable),
            self._durable_size,
        )
        copy._pending, copy._overwritten = list(self._pending), self._overwritten
        return copy

    def _cut_last_write(self, kept: int) -> None:
        start, data = self._pending[-1]
        _patch(self._current, start + kept, self._overwritten[kept:])
        self._pending[-1] = (start, data[:kept])

    def _tear(self, pages: Pages, chance: Random) -> None:
        """Apply a random number of the pending writes of each sector."""
        writes: dict[int, list[tuple[int, bytes]]] = {}
        for start, data in self._pending:
            end = start + len(data)
            for sector in range(start // SECTOR_SIZE, -(-end // SECTOR_SIZE)):
                first, last = max(start, sector * SECTOR_SIZE), min(end, (sector + 1) * SECTOR_SIZE)
                writes.setdefault(sector, []).append((first, data[first - start : last - start]))
        for parts in writes.values():
            for start, part in parts[: chance.randrange(len(parts) + 1)]:
                _patch(pages, start, part)

    def pages(self) -> Pages:
        """The pages as programs see them; for copies to a real disk."""
        return self._current


def _bits(start: int, end: int) -> int:
    """The pages that a range touches, a bit each."""
    first, last = start // PAGE_SIZE, -(-end // PAGE_SIZE)
    return ((1 << (last - first)) - 1) << first if last > first else 0


def _read(pages: Pages, start: int, size: int) -> bytes:
    first, last = start // PAGE_SIZE, -(-(start + size) // PAGE_SIZE)
    joined = b"".join(pages.get(index, _ZEROS) for index in range(first, last))
    return joined[start - first * PAGE_SIZE :][:size]


def _patch(pages: Pages, start: int, data: bytes) -> None:
    position = 0
    while position < len(data):
        index, offset = divmod(start + position, PAGE_SIZE)
        part = data[position : position + PAGE_SIZE - offset]
        page = pages.get(index, _ZEROS)
        pages[index] = b"".join((page[:offset], part, page[offset + len(part) :]))
        position += len(part)
