"""Consume queue extensions: for each message, the bits of the registered filters that it passes.

Rules kept here:
- A queue unit has the address of its extension in place of its tags code. Addresses are below every hash that
  a tag can have, so the two cannot be confused.
- A unit is `i16 size, i64 tags code, i64 store time, i16 length, filter bits` and lies in one file; the size
  -1 says that the rest of a file is empty.
- An address is never reused, not even after a crash: the filter bits of another message would hide this one.
- Extensions only save work. If one is missing, the filter itself is applied.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from cometmq.store.log.mapped_files import MappedFile
from cometmq.store.queue.files import FolderFiles

_HEAD: Final = struct.Struct(">hqqh")
_SIZE: Final = struct.Struct(">h")
_END_OF_FILE: Final = -1
_END_ROOM: Final = 4
"""Every unit leaves this much of its file free."""

MAX_UNIT_SIZE: Final = 0x7FFF
_FIRST_ADDRESS: Final = -(1 << 63)
_LAST_ADDRESS: Final = -(1 << 31) - 1

_RESERVE_STEP: Final = 64 * 1024


def is_ext_address(tags_code: int) -> bool:
    """Whether the tags code of a queue unit is an extension address."""
    return tags_code <= _LAST_ADDRESS


class ExtUnit(NamedTuple):
    """The extension of a queue unit."""

    tags_code: int
    store_time_ms: int
    filter_bits: bytes


class ConsumeQueueExt(FolderFiles):
    """The extensions of one consume queue, in the folder `<topic>/<queue id>` of all extensions."""

    _next_start = 0
    """The earliest start of the next file."""

    def put(self, tags_code: int, store_time_ms: int, filter_bits: bytes) -> int | None:
        """Write an extension; returns its address, or None if it is too long or no address is left."""
        size = _HEAD.size + len(filter_bits)
        if size > min(MAX_UNIT_SIZE, self.file_size - _END_ROOM):
            return None
        mapped = self._with_room(size)
        at = mapped.wrote
        address = _FIRST_ADDRESS + mapped.start + at
        if not is_ext_address(address):
            return None
        mapped.reserve(at + size, _RESERVE_STEP)
        mapped.buffer[at : at + size] = (
            _HEAD.pack(size, tags_code, store_time_ms, len(filter_bits)) + filter_bits
        )
        mapped.wrote = at + size
        mapped.file.wrote(at, at + size)
        return address

    def _with_room(self, size: int) -> MappedFile:
        files = self.files
        last = files[-1] if files and files[-1].end > self._next_start else None
        if last is not None and not last.is_full:
            self.map(last)
            if size <= last.size - last.wrote - _END_ROOM:
                return last
            self._end(last)
        start = max(files[-1].end if files else 0, self._next_start)
        return self.add(self.create(start))

    def _end(self, mapped: MappedFile) -> None:
        """Mark the rest of a file as empty."""
        at = mapped.wrote
        mapped.reserve(at + _SIZE.size, _RESERVE_STEP)
        _SIZE.pack_into(mapped.buffer, at, _END_OF_FILE)
        mapped.wrote = mapped.size
        mapped.file.wrote(at, at + _SIZE.size)

    def get(self, address: int) -> ExtUnit | None:
        """The extension at an address; None if it does not exist, or no longer."""
        offset = address - _FIRST_ADDRESS
        mapped = self.at(offset) if is_ext_address(address) else None
        if mapped is None:
            return None
        at = offset - mapped.start
        size = _size_at(mapped, at, mapped.wrote)
        if size == 0:
            return None
        _, tags_code, store_time_ms, length = _HEAD.unpack_from(mapped.buffer, at)
        bits_at = at + _HEAD.size
        return ExtUnit(tags_code, store_time_ms, bytes(mapped.buffer[bits_at : bits_at + max(length, 0)]))

    # Upkeep: everything below blocks

    def load(self) -> None:
        """Map the files and find the end; call `cut_after` next."""
        super().load()
        if self.files:
            last = self.map(self.files[-1])
            at = 0
            while size := _size_at(last, at, last.size):
                at += size
            last.wrote, last.flushed = at, 0

    def cut_after(self, address: int | None) -> None:
        """Drop everything after the last address that a queue unit refers to; all, if none does."""
        if address is None:
            self.remove_all()
            return
        offset = address - _FIRST_ADDRESS
        unit_size = (
            0
            if (mapped := self.at(offset)) is None
            else _size_at(mapped, offset - mapped.start, mapped.wrote)
        )
        if mapped is None or unit_size == 0:
            # A crash took it. The addresses up to there are in use, so the next file begins after them.
            self._next_start = (offset // self.file_size + 1) * self.file_size
            return
        end = offset + unit_size
        for later in [each for each in self.files if each.start > offset]:
            self.remove(later)
        mapped.wrote = end - mapped.start
        mapped.flushed = 0

    def remove_before(self, address: int) -> None:
        """Remove the files that end before an address."""
        for mapped in [each for each in self.files if each.end < address - _FIRST_ADDRESS]:
            self.remove(mapped)


def _size_at(mapped: MappedFile, at: int, end: int) -> int:
    """The size of the unit at a position; 0 without one that ends before `end`."""
    if not 0 <= at <= end - _HEAD.size:
        return 0
    size: int = _SIZE.unpack_from(mapped.buffer, at)[0]
    return size if _HEAD.size <= size <= end - at else 0
