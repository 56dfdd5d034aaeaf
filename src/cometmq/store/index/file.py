"""One index file: a hash table from keys to places in the commit log, with chains of entries.

Rules kept here:
- 40 bytes of header, then slots of 4 bytes, then entries of 20 bytes. A slot has the number of the newest
  entry of its chain, an entry that of the one before it; 0 is the end. Entry 0 is never used.
- An entry has the key's hash, the physical offset, and the seconds since the first entry of the file; those
  of the first one count from the end of the file before.
- Many entries are written at once. Entries, slots and header are written in this order, so that what can be
  found is always complete.
- Slots are written all over, so the room for all of them is reserved with the first entry; that for entries
  in steps.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cometmq.model.errors import StoreError
from cometmq.ports.disk import Disk, DiskFile
from cometmq.store.index.arrays import lead, pack_entries, seconds_since
from cometmq.store.index.mending import count_good, slots_for

if TYPE_CHECKING:
    from cometmq.store.index.arrays import Columns

_HEADER: Final = struct.Struct(">qqqqii")
_SLOT: Final = struct.Struct(">i")
_ENTRY: Final = struct.Struct(">iqii")
_HEADER_SIZE: Final = _HEADER.size
_SLOT_SIZE: Final = _SLOT.size
_ENTRY_SIZE: Final = _ENTRY.size
_ENTRY_NUMBERS: Final = 4
_KNOWN_LAYOUTS: Final = 256

_MAX_SECONDS: Final = 0x7FFFFFFF
_RESERVE_STEP: Final = 1024 * 1024
_NOTHING: Final = bytes(_RESERVE_STEP)


def index_file_size(slots: int, entries: int) -> int:
    return _HEADER_SIZE + slots * _SLOT_SIZE + entries * _ENTRY_SIZE


class IndexFile:
    """A file of the index, mapped."""

    __slots__ = (
        "_entries_at",
        "_file",
        "_heads",
        "_reserved",
        "_reserved_count",
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
        self._heads = memoryview(file.buffer)[_HEADER_SIZE : self._entries_at].cast("i")
        """The slots, as numbers of this machine: their bytes have to be turned round where it is needed."""
        self._reserved = 0
        self._reserved_count = 0
        """The number that the first entry without reserved room would have."""
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

    @property
    def room(self) -> int:
        """How many more entries there is a place for."""
        return self.capacity - self.count

    def put(self, hashes: list[int], physical_offsets: list[int], store_times_ms: list[int]) -> None:
        """Add entries, one or more, for which there has to be a place."""
        first = self.count
        count = first + len(hashes)
        if count > self._reserved_count:
            self._reserve(count)
        slots = [key_hash % self._slots for key_hash in hashes]
        previous = self._previous(slots, first)
        entries = [0] * (_ENTRY_NUMBERS * len(hashes))
        entries[0::_ENTRY_NUMBERS] = hashes
        entries[1::_ENTRY_NUMBERS] = physical_offsets
        entries[2::_ENTRY_NUMBERS] = self._seconds(store_times_ms)
        entries[3::_ENTRY_NUMBERS] = previous
        buffer, wrote = self._file.buffer, self._file.wrote
        at = self._entries_at + first * _ENTRY_SIZE
        _layout_of(len(hashes)).pack_into(buffer, at, *entries)
        wrote(at, self._entries_at + count * _ENTRY_SIZE)
        heads = self._heads
        for slot, number in zip(slots, _turned(range(first, count)), strict=True):
            heads[slot] = number
        wrote(_HEADER_SIZE + min(slots) * _SLOT_SIZE, _HEADER_SIZE + (max(slots) + 1) * _SLOT_SIZE)
        if first == 1:
            self.begin_offset, self.begin_time_ms = physical_offsets[0], store_times_ms[0]
        self._put_up_to(count, previous.count(0), physical_offsets[-1], store_times_ms[-1])

    def put_columns(self, columns: Columns) -> None:
        """The same for many entries, of which none is the first of the file."""
        hashes, offsets, times_ms = columns
        first = self.count
        count = first + len(hashes)
        if count > self._reserved_count:
            self._reserve(count)
        seconds = seconds_since(self.begin_time_ms, times_ms, _MAX_SECONDS)
        entries, slots, unused = pack_entries(self._heads, self._slots, first, columns, seconds)
        self._file.write_through(self._entries_at + first * _ENTRY_SIZE, entries)
        lowest, highest = lead(self._heads, slots, first)
        self._file.wrote(_HEADER_SIZE + lowest * _SLOT_SIZE, _HEADER_SIZE + (highest + 1) * _SLOT_SIZE)
        self._put_up_to(count, unused, int(offsets[-1]), int(times_ms[-1]))

    def _put_up_to(self, count: int, unused: int, end_offset: int, end_time_ms: int) -> None:
        """Entries are there, with the slots that lead to them; so many of these led nowhere before."""
        self.end_offset, self.end_time_ms = end_offset, end_time_ms
        self.used_slots += unused
        self.count = count
        self._write_header()
        self._written_count = count

    def _write_header(self) -> None:
        _HEADER.pack_into(
            self._file.buffer,
            0,
            self.begin_time_ms,
            self.end_time_ms,
            self.begin_offset,
            self.end_offset,
            self.used_slots,
            self.count,
        )
        self._file.wrote(0, _HEADER_SIZE)

    def _seconds(self, store_times_ms: list[int]) -> list[int]:
        """What the next entries say about their times."""
        begin_ms = self.begin_time_ms
        if self.count == 1:
            first = store_times_ms[0]
            return [
                _seconds_since(begin_ms, first),
                *(_seconds_since(first, time_ms) for time_ms in store_times_ms[1:]),
            ]
        earliest = _seconds_since(begin_ms, min(store_times_ms))
        if earliest == _seconds_since(begin_ms, max(store_times_ms)):
            return [earliest] * len(store_times_ms)
        return [_seconds_since(begin_ms, time_ms) for time_ms in store_times_ms]

    def _previous(self, slots: list[int], first: int) -> list[int]:
        """The entries that new ones, numbered from `first` on, come behind in their chains."""
        heads = self._heads
        previous = _turned([heads[slot] for slot in slots])
        if len(set(slots)) == len(slots) and max(previous) < first and min(previous) >= 0:
            return previous
        newest: dict[int, int] = {}
        for place, slot in enumerate(slots):
            found = newest.get(slot, previous[place])
            # A slot that leads forward is the rest of a crash.
            previous[place] = found if 0 < found < first + place else 0
            newest[slot] = first + place
        return previous

    def _reserve(self, count: int) -> None:
        end = self._entries_at + count * _ENTRY_SIZE
        end = min(max(end, self._reserved) + _RESERVE_STEP, self._file.size)
        self._file.reserve(self._reserved, end)
        self._reserved = end
        self._reserved_count = (end - self._entries_at) // _ENTRY_SIZE

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

    def leads_beyond(self, key_hash: int) -> bool:
        """Whether the newest entry for a hash came after this file was opened, by another process."""
        number: int = _SLOT.unpack_from(
            self._file.buffer, _HEADER_SIZE + key_hash % self._slots * _SLOT_SIZE
        )[0]
        return number >= self.count

    @property
    def is_plausible(self) -> bool:
        """Whether header, first and last entry agree."""
        if self.count == 1:
            return True
        return (
            self.count <= self.capacity
            and self._physical_offset(1) == self.begin_offset
            and self._physical_offset(self.count - 1) == self.end_offset >= self.begin_offset >= 0
        )

    def mend(self, limit: int, store_time: Callable[[int], int | None], *, is_last: bool) -> bool:
        """Forget entries that a stop tore, and those of records at and behind a limit; blocks.

        False if anything was forgotten. Of the last file the last record counts as torn: it is put again.
        """
        known = min(self.count, self.capacity)
        good, is_cut = count_good(self._file.buffer, self._entries_at, known, limit)
        if good > 1 and not is_cut and (is_last or good < self.count):
            last_offset = self._physical_offset(good - 1)
            while good > 1 and self._physical_offset(good - 1) == last_offset:
                good -= 1
        is_whole = good == self.count
        self.count = good
        if good == 1:
            return False
        self._reserve(good)
        slots, self.used_slots = slots_for(self._file.buffer, self._entries_at, good, self._slots)
        if self._file.buffer[_HEADER_SIZE : self._entries_at] != slots:
            self._file.write_through(_HEADER_SIZE, slots)
        self._clear_behind(good)
        if not is_whole:
            self.end_offset = self._physical_offset(good - 1)
            self.end_time_ms = store_time(self.end_offset) or self._time_of(good - 1)
        self._put_up_to(good, 0, self.end_offset, self.end_time_ms)
        # Before anything is put: what was forgotten could be on the disk still, among what is to come.
        self.sync()
        return is_whole

    def _clear_behind(self, number: int) -> None:
        """Overwrite what is left where entries from a number on will be."""
        for start, end in self._file.data_ranges(self._entries_at + number * _ENTRY_SIZE):
            for at in range(start, end, _RESERVE_STEP):
                size = min(_RESERVE_STEP, end - at)
                if self._file.buffer[at : at + size] != _NOTHING[:size]:
                    self._file.reserve(at, at + size)
                    self._file.write_through(at, _NOTHING[:size])

    def _time_of(self, number: int) -> int:
        """When a message was stored, to the second."""
        seconds: int = _ENTRY.unpack_from(self._file.buffer, self._entries_at + number * _ENTRY_SIZE)[2]
        return self.begin_time_ms + seconds * 1000

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
        self._heads.release()
        self._file.close()


@lru_cache(_KNOWN_LAYOUTS)
def _layout_of(count: int) -> struct.Struct:
    return struct.Struct(">" + "iqii" * count)


def _seconds_since(begin_ms: int, time_ms: int) -> int:
    return min(max((time_ms - begin_ms) // 1000, 0), _MAX_SECONDS) if begin_ms > 0 else 0


def _turned(numbers: Iterable[int]) -> list[int]:
    """Numbers with their bytes in the order of the file, or back in that of the machine."""
    turned = array("i", numbers)
    if sys.byteorder == "little":
        turned.byteswap()
    return turned.tolist()
