"""One index file: a hash table from keys to places in the commit log, with chains of entries.

Rules kept here:
- 40 bytes of header, then slots of 4 bytes, then entries of 20 bytes. A slot has the number of the newest
  entry of its chain, an entry that of the one before it; 0 is the end. Entry 0 is never used.
- An entry has the key's hash, the physical offset, and the seconds since the first entry of the file; those
  of the first one count from the end of the file before.
- Entry, slot and header are written in this order, so that what can be found is always complete.
- Slots are written all over, so the room for all of them is reserved with the first entry; that for entries
  in steps.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cometmq.model.errors import StoreError
from cometmq.ports.disk import Disk, DiskFile
from cometmq.wire.java_hash import extend_hash

_HEADER: Final = struct.Struct(">qqqqii")
_SLOT: Final = struct.Struct(">i")
_ENTRY: Final = struct.Struct(">iqii")
_HEADER_SIZE: Final = _HEADER.size
_SLOT_SIZE: Final = _SLOT.size
_ENTRY_SIZE: Final = _ENTRY.size
_read_slot: Final = _SLOT.unpack_from
_write_slot: Final = _SLOT.pack_into
_write_entry: Final = _ENTRY.pack_into
_write_header: Final = _HEADER.pack_into

_MAX_SECONDS: Final = 0x7FFFFFFF
_RESERVE_STEP: Final = 1024 * 1024


def index_file_size(slots: int, entries: int) -> int:
    return _HEADER_SIZE + slots * _SLOT_SIZE + entries * _ENTRY_SIZE


def index_hash(beginning: int, key: str) -> int:
    """The hash under which a key is found; `beginning` is the Java hash of the topic and a `#`."""
    value = extend_hash(beginning, key)
    if value >= 0:
        return value
    return -value if value > -0x80000000 else 0  # Java has no positive number for that one


class IndexFile:
    """A file of the index, mapped."""

    __slots__ = (
        "_entries_at",
        "_file",
        "_reserved",
        "_slots",
        "_synced_count",
        "_written_count",
        "begin_offset",
        "begin_time_ms",
        "capacity",
        "count",
        "end_offset",
        "end_time_ms",
        "used_slots",
    )

    def __init__(self, file: DiskFile, slots: int, entries: int) -> None:
        self._file = file
        self._slots = slots
        self._entries_at = _HEADER_SIZE + slots * _SLOT_SIZE
        self._reserved = 0
        self.capacity = entries
        """The number that no entry can have any more."""
        header: tuple[int, ...] = _HEADER.unpack_from(file.buffer)
        self.begin_time_ms, self.end_time_ms, self.begin_offset, self.end_offset, self.used_slots = header[:5]
        self.count = max(header[5], 1)
        """The number of the next entry."""
        self._written_count = self.count
        """What the header says."""
        self._synced_count = 0
        """What it says on the disk."""

    @classmethod
    def create(
        cls, disk: Disk, path: Path, slots: int, entries: int, previous: IndexFile | None
    ) -> IndexFile:
        """A new file, which begins where the previous one ends."""
        index_file = cls(disk.create(path, index_file_size(slots, entries), scattered=True), slots, entries)
        if previous is not None:
            index_file.begin_time_ms = index_file.end_time_ms = previous.end_time_ms
            index_file.begin_offset = index_file.end_offset = previous.end_offset
        return index_file

    @classmethod
    def load(cls, disk: Disk, path: Path, slots: int, entries: int, *, writable: bool = True) -> IndexFile:
        """A file that is there."""
        file = disk.open(path, writable=writable, scattered=True)
        if file.size != index_file_size(slots, entries):
            raise StoreError(
                f"{path} has {file.size} bytes, expected {index_file_size(slots, entries)} for {slots} slots "
                f"and {entries} entries; set the numbers that it was made with, or remove it"
            )
        return cls(file, slots, entries)

    @property
    def path(self) -> Path:
        return self._file.path

    @property
    def is_full(self) -> bool:
        return self.count >= self.capacity

    @property
    def is_synced(self) -> bool:
        return self._synced_count == self.count

    def put(self, key_hashes: Sequence[int], physical_offset: int, store_time_ms: int) -> None:
        """Add the entries of a record, for which there has to be room."""
        number = self.count
        entry_at = self._entries_at + number * _ENTRY_SIZE
        if entry_at + len(key_hashes) * _ENTRY_SIZE > self._reserved:
            self._reserve(entry_at + len(key_hashes) * _ENTRY_SIZE)
        buffer, wrote = self._file.buffer, self._file.wrote
        begin_time_ms = self.begin_time_ms
        for key_hash in key_hashes:
            slot_at = _HEADER_SIZE + key_hash % self._slots * _SLOT_SIZE
            previous = _read_slot(buffer, slot_at)[0]
            if not 0 < previous < number:
                previous = 0
                self.used_slots += 1
            seconds = (store_time_ms - begin_time_ms) // 1000 if begin_time_ms > 0 else 0
            if not 0 <= seconds <= _MAX_SECONDS:
                seconds = 0 if seconds < 0 else _MAX_SECONDS
            _write_entry(buffer, entry_at, key_hash, physical_offset, seconds, previous)
            wrote(entry_at, entry_at + _ENTRY_SIZE)
            _write_slot(buffer, slot_at, number)
            wrote(slot_at, slot_at + _SLOT_SIZE)
            if number == 1:
                self.begin_offset = physical_offset
                self.begin_time_ms = begin_time_ms = store_time_ms
            number += 1
            entry_at += _ENTRY_SIZE
        self.end_offset = physical_offset
        self.end_time_ms = store_time_ms
        self.count = number
        _write_header(
            buffer,
            0,
            begin_time_ms,
            store_time_ms,
            self.begin_offset,
            physical_offset,
            self.used_slots,
            number,
        )
        wrote(0, _HEADER_SIZE)
        self._written_count = number

    def _reserve(self, end: int) -> None:
        end = min(max(end, self._entries_at, self._reserved) + _RESERVE_STEP, self._file.size)
        self._file.reserve(self._reserved, end)
        self._reserved = end

    def overlaps(self, begin_ms: int, end_ms: int) -> bool:
        """Whether messages of this span of time may be here."""
        return begin_ms <= self.end_time_ms and self.begin_time_ms <= end_ms

    def find(self, key_hash: int, max_count: int, begin_ms: int, end_ms: int) -> list[int]:
        """The physical offsets for a hash, newest first, of messages stored in a span of time."""
        found: list[int] = []
        buffer = self._file.buffer
        number = _SLOT.unpack_from(buffer, _HEADER_SIZE + key_hash % self._slots * _SLOT_SIZE)[0]
        newer = self.count
        # A chain leads to ever smaller numbers; what does not is the rest of a crash.
        while 0 < number < newer and len(found) < max_count:
            entry_at = self._entries_at + number * _ENTRY_SIZE
            entry_hash, physical_offset, seconds, previous = _ENTRY.unpack_from(buffer, entry_at)
            time_ms = self.begin_time_ms + seconds * 1000
            if seconds < 0 or time_ms < begin_ms:
                break
            if entry_hash == key_hash and time_ms <= end_ms:
                found.append(physical_offset)
            number, newer = previous, number
        return found

    def entries_of(self, physical_offset: int) -> int:
        """How many of the last entries are those of one record."""
        number = self.count
        while number > 1 and self._physical_offset(number - 1) == physical_offset:
            number -= 1
        return self.count - number

    def _physical_offset(self, number: int) -> int:
        entry: tuple[int, int, int, int] = _ENTRY.unpack_from(
            self._file.buffer, self._entries_at + number * _ENTRY_SIZE
        )
        return entry[1]

    def sync(self) -> None:
        """Put everything put so far on the disk; blocks."""
        count = self._written_count
        self._file.sync()
        self._synced_count = count

    def close(self) -> None:
        self._file.close()
