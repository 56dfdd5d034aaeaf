"""One index file: a hash table from keys to physical offsets, with chains of entries.

Rules kept here:
- 40 bytes of header, then slots of 4 bytes, then entries of 20 bytes. A slot has the number of the newest
  entry of its chain, an entry that of the one before it; 0 is the end. Entry 0 is never used.
- An entry has the key's hash, the physical offset, and the seconds since the first entry of the file; those
  of the first entry count from the end of the file before.
- Entries, slots and header are written in this order, so that whatever can be found is complete.
- Slots are written in random order, so room for all of them is reserved with the first entry; room for
  entries is reserved in steps.
- After an unclean stop, entries count up to the first impossible one: without a hash, or with a smaller
  offset than the one before. A hash of 0, which one key in two thousand million has, counts as none; that
  costs time, never a key. Slots may be older than entries on the disk, so they are made anew.
- The size of a file does not tell how many slots and entries it has, but its content does: the header counts
  the slots in use, and entry 0 is empty, so the first number after them belongs to entry 1. A guess counts
  only if the newest entries are found through their slots.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from cometmq.model.errors import StoreError
from cometmq.ports.disk import Buffer, Disk, DiskFile
from cometmq.store.index.arrays import arrays_are_loaded, lead, load_arrays, pack_entries, seconds_since
from cometmq.store.log.mapped_files import erase_after

if TYPE_CHECKING:  # NumPy is no requirement of a broker
    from cometmq.store.index.arrays import Columns

HEADER: Final = struct.Struct(">qqqqii")
SLOT: Final = struct.Struct(">i")
ENTRY: Final = struct.Struct(">iqii")
DEFAULT_SLOTS: Final = 5_000_000
DEFAULT_ENTRIES: Final = 20_000_000

_PROBED_ENTRIES: Final = 50
_CHUNK: Final = 1024 * 1024
_ZEROS: Final = bytes(_CHUNK)
_ENTRY_NUMBERS: Final = 4
_KNOWN_LAYOUTS: Final = 256
_MAX_SECONDS: Final = 0x7FFFFFFF
_AT_ONCE: Final = 65_536
_MANY: Final = 200_000
"""Loading NumPy pays off from here on."""


class IndexLayout(NamedTuple):
    """The number of slots and entries of a file."""

    slots: int
    entries: int

    @property
    def file_size(self) -> int:
        return HEADER.size + self.slots * SLOT.size + self.entries * ENTRY.size

    @property
    def entries_at(self) -> int:
        return HEADER.size + self.slots * SLOT.size


class IndexHeader(NamedTuple):
    """The numbers at the beginning of a file."""

    begin_time_ms: int
    end_time_ms: int
    begin_offset: int
    end_offset: int
    used_slots: int
    next_number: int
    """The number of the next entry: one more than there are."""


def read_header(buffer: Buffer) -> IndexHeader:
    return IndexHeader(*HEADER.unpack_from(buffer))


def find_layout(buffer: Buffer, size: int, likely: Iterable[IndexLayout] = ()) -> IndexLayout | None:
    """Detect the layout of a file; None if its content does not tell."""
    if size < HEADER.size:
        return None
    header = read_header(buffer)
    if header.next_number <= 1:
        return None
    for layout in (*likely, IndexLayout(DEFAULT_SLOTS, DEFAULT_ENTRIES)):
        if layout.file_size == size and _is_plausible(buffer, layout, header):
            return layout
    seen = _seen_layout(buffer, size, header.used_slots)
    return seen if seen is not None and _is_plausible(buffer, seen, header) else None


def _seen_layout(buffer: Buffer, size: int, used_slots: int) -> IndexLayout | None:
    """The layout that follows from the position of the first number after the slots in use."""
    numbers = _positions_of_numbers(buffer, size)
    for _ in range(used_slots):
        if next(numbers, None) is None:
            return None
    first_entry_at = next(numbers, None)
    if first_entry_at is None:
        return None
    slots = (first_entry_at - ENTRY.size - HEADER.size) // SLOT.size
    entries, rest = divmod(size - HEADER.size - slots * SLOT.size, ENTRY.size)
    return IndexLayout(slots, entries) if slots > 0 and rest == 0 else None


def _positions_of_numbers(buffer: Buffer, size: int) -> Iterator[int]:
    """The positions of all numbers after the header that are not 0."""
    at = HEADER.size
    while at < size:
        chunk = bytes(buffer[at : at + _CHUNK])
        if chunk != _ZEROS[: len(chunk)]:
            for number_at in range(0, len(chunk) - SLOT.size + 1, SLOT.size):
                if chunk[number_at : number_at + SLOT.size] != b"\0\0\0\0":
                    yield at + number_at
        at += _CHUNK


def _is_plausible(buffer: Buffer, layout: IndexLayout, header: IndexHeader) -> bool:
    """Whether the newest entries are in the right chains."""
    if not 1 < header.next_number <= layout.entries:
        return False
    heads: set[int] = set()
    for number in range(header.next_number - 1, max(header.next_number - 1 - _PROBED_ENTRIES, 0), -1):
        key_hash, _, _, _ = ENTRY.unpack_from(buffer, layout.entries_at + number * ENTRY.size)
        slot = key_hash % layout.slots
        if key_hash < 0:
            return False
        if slot not in heads:
            heads.add(slot)
            if SLOT.unpack_from(buffer, HEADER.size + slot * SLOT.size)[0] != number:
                return False
    return True


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
        self._entries_at = HEADER.size + slots * SLOT.size
        self._heads = memoryview(file.buffer)[HEADER.size : self._entries_at].cast("i")
        """The slots, as numbers in the byte order of this machine; see `_turned`."""
        self._reserved = 0
        self._reserved_count = 0
        """The number of the first entry without reserved room."""
        self.capacity = entries
        """The number that the next file begins after."""
        header: tuple[int, ...] = HEADER.unpack_from(file.buffer)
        self.begin_time_ms, self.end_time_ms, self.begin_offset, self.end_offset, self.used_slots = header[:5]
        self.count = max(header[5], 1)
        """The number of the next entry."""
        self._written_count = self.count
        """The count in the header."""
        self._synced_count = 0
        """The count in the header on the disk."""

    @classmethod
    def create(
        cls, disk: Disk, path: Path, slots: int, entries: int, previous: IndexFile | None
    ) -> IndexFile:
        """Create a file that begins where the previous one ends."""
        index_file = cls(
            disk.create(path, IndexLayout(slots, entries).file_size, scattered=True), slots, entries
        )
        if previous is not None:
            index_file.begin_time_ms = index_file.end_time_ms = previous.end_time_ms
            index_file.begin_offset = index_file.end_offset = previous.end_offset
        return index_file

    @classmethod
    def load(cls, disk: Disk, path: Path, slots: int, entries: int, *, writable: bool = True) -> IndexFile:
        """Open an existing file."""
        file = disk.open(path, writable=writable, scattered=True)
        expected = IndexLayout(slots, entries).file_size
        if file.size != expected:
            raise StoreError(
                f"{path} has {file.size} bytes, expected {expected} for {slots} slots and {entries} entries; "
                "set the numbers that it was made with, or remove it"
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
        """How many more entries fit."""
        return self.capacity - self.count

    def put(self, hashes: list[int], physical_offsets: list[int], store_times_ms: list[int]) -> None:
        """Add one or more entries, for which there has to be room."""
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
        at = self._entries_at + first * ENTRY.size
        _layout_of(len(hashes)).pack_into(buffer, at, *entries)
        wrote(at, self._entries_at + count * ENTRY.size)
        heads = self._heads
        for slot, number in zip(slots, _turned(range(first, count)), strict=True):
            heads[slot] = number
        wrote(HEADER.size + min(slots) * SLOT.size, HEADER.size + (max(slots) + 1) * SLOT.size)
        if first == 1:
            self.begin_offset, self.begin_time_ms = physical_offsets[0], store_times_ms[0]
        self._put_up_to(count, previous.count(0), physical_offsets[-1], store_times_ms[-1])

    def put_columns(self, columns: Columns) -> None:
        """Add many entries, of which none is the first of the file."""
        hashes, offsets, times_ms = columns
        first = self.count
        count = first + len(hashes)
        if count > self._reserved_count:
            self._reserve(count)
        seconds = seconds_since(self.begin_time_ms, times_ms, _MAX_SECONDS)
        entries, slots, unused = pack_entries(self._heads, self._slots, first, columns, seconds)
        self._file.write_through(self._entries_at + first * ENTRY.size, entries)
        lowest, highest = lead(self._heads, slots, first)
        self._file.wrote(HEADER.size + lowest * SLOT.size, HEADER.size + (highest + 1) * SLOT.size)
        self._put_up_to(count, unused, int(offsets[-1]), int(times_ms[-1]))

    def _put_up_to(self, count: int, unused: int, end_offset: int, end_time_ms: int) -> None:
        """Write the header after entries and slots; `unused` slots were not in use before."""
        self.end_offset, self.end_time_ms = end_offset, end_time_ms
        self.used_slots += unused
        self.count = count
        self._write_header()
        self._written_count = count

    def _write_header(self) -> None:
        HEADER.pack_into(
            self._file.buffer,
            0,
            self.begin_time_ms,
            self.end_time_ms,
            self.begin_offset,
            self.end_offset,
            self.used_slots,
            self.count,
        )
        self._file.wrote(0, HEADER.size)

    def _seconds(self, store_times_ms: list[int]) -> list[int]:
        """The seconds of the next entries."""
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
        """The previous entries, in their chains, of new ones numbered from `first` on."""
        heads = self._heads
        previous = _turned([heads[slot] for slot in slots])
        if len(set(slots)) == len(slots) and max(previous) < first and min(previous) >= 0:
            return previous
        newest: dict[int, int] = {}
        for number, slot in enumerate(slots, first):
            found = newest.get(slot, previous[number - first])
            # A slot that leads forward is left from a crash.
            previous[number - first] = found if 0 < found < number else 0
            newest[slot] = number
        return previous

    def _reserve(self, count: int) -> None:
        end = self._entries_at + count * ENTRY.size
        end = min(max(end, self._reserved) + _CHUNK, self._file.size)
        self._file.reserve(self._reserved, end)
        self._reserved = end
        self._reserved_count = (end - self._entries_at) // ENTRY.size

    def overlaps(self, begin_ms: int, end_ms: int) -> bool:
        """Whether the file may have messages of a time range."""
        return begin_ms <= self.end_time_ms and self.begin_time_ms <= end_ms

    def find(self, key_hash: int, max_count: int, begin_ms: int, end_ms: int) -> list[int]:
        """The physical offsets for a hash, newest first, of messages stored in a time range."""
        found: list[int] = []
        buffer = self._file.buffer
        number = SLOT.unpack_from(buffer, HEADER.size + key_hash % self._slots * SLOT.size)[0]
        newer = self.count
        # A chain leads to ever smaller numbers; anything else is left from a crash.
        while 0 < number < newer and len(found) < max_count:
            entry_at = self._entries_at + number * ENTRY.size
            entry_hash, physical_offset, seconds, previous = ENTRY.unpack_from(buffer, entry_at)
            time_ms = self.begin_time_ms + seconds * 1000
            if seconds < 0 or time_ms < begin_ms:
                break
            if entry_hash == key_hash and time_ms <= end_ms:
                found.append(physical_offset)
            number, newer = previous, number
        return found

    def leads_beyond(self, key_hash: int) -> bool:
        """Whether another process added an entry for a hash since this file was opened."""
        number: int = SLOT.unpack_from(self._file.buffer, HEADER.size + key_hash % self._slots * SLOT.size)[0]
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
        """Drop torn entries, and those of records from a limit on; blocks.

        Returns False if anything was dropped. In the last file the last record counts as torn: it is put
        again.
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
        if self._file.buffer[HEADER.size : self._entries_at] != slots:
            self._file.write_through(HEADER.size, slots)
        erase_after(self._file, self._entries_at + good * ENTRY.size)  # where new entries will be
        if not is_whole:
            self.end_offset = self._physical_offset(good - 1)
            self.end_time_ms = store_time(self.end_offset) or self._time_of(good - 1)
        self._put_up_to(good, 0, self.end_offset, self.end_time_ms)
        # Before anything is put: dropped entries could still be on the disk, among new ones.
        self.sync()
        return is_whole

    def _time_of(self, number: int) -> int:
        """The store time of an entry, to the second."""
        seconds: int = ENTRY.unpack_from(self._file.buffer, self._entries_at + number * ENTRY.size)[2]
        return self.begin_time_ms + seconds * 1000

    def entries_of(self, physical_offset: int) -> int:
        """How many of the last entries belong to one record."""
        number = self.count
        while number > 1 and self._physical_offset(number - 1) == physical_offset:
            number -= 1
        return self.count - number

    def _physical_offset(self, number: int) -> int:
        entry: tuple[int, int, int, int] = ENTRY.unpack_from(
            self._file.buffer, self._entries_at + number * ENTRY.size
        )
        return entry[1]

    def sync(self) -> None:
        """Sync all entries; blocks."""
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
    """Swap numbers between the byte order of the file and that of the machine."""
    turned = array("i", numbers)
    if sys.byteorder == "little":
        turned.byteswap()
    return turned.tolist()


def count_good(buffer: Buffer, entries_at: int, count: int, limit: int) -> tuple[int, bool]:
    """The number of the first entry that does not count, and whether it is only too new.

    `count` is the number after the last entry. Entries of records from `limit` on do not count.
    """
    if count > _MANY:
        load_arrays()
    number, last_offset = 1, 0
    while number < count:
        after = min(number + _AT_ONCE, count)
        start, end = entries_at + number * ENTRY.size, entries_at + after * ENTRY.size
        check = _check_columns if arrays_are_loaded() else _check
        found, last_offset = check(bytes(buffer[start:end]), number, last_offset)
        good = found if last_offset < limit else _before_limit(buffer, entries_at, number, found, limit)
        if good < found:
            return good, True
        if found < after:
            return found, False
        number = after
    return count, False


def _check(entries: bytes, first: int, last_offset: int) -> tuple[int, int]:
    """The number of the first impossible entry, and the offset of the one before it."""
    for number, (hashed, offset, seconds, previous) in enumerate(ENTRY.iter_unpack(entries), first):
        if hashed <= 0 or offset < last_offset or seconds < 0 or not 0 <= previous < number:
            return number, last_offset
        last_offset = offset
    return first + len(entries) // ENTRY.size, last_offset


def _check_columns(entries: bytes, first: int, last_offset: int) -> tuple[int, int]:
    import numpy as np

    columns = np.frombuffer(
        entries, [("hash", ">i4"), ("offset", ">i8"), ("seconds", ">i4"), ("previous", ">i4")]
    )
    offsets, previous = columns["offset"].astype(np.int64), columns["previous"]
    numbers = np.arange(first, first + len(columns))
    is_bad = (columns["hash"] <= 0) | (columns["seconds"] < 0) | (previous < 0) | (previous >= numbers)
    is_bad |= offsets < np.concatenate(([last_offset], offsets[:-1]))
    if is_bad.any():
        bad = int(is_bad.argmax())
        return first + bad, int(offsets[bad - 1]) if bad else last_offset
    return first + len(columns), int(offsets[-1])


def _before_limit(buffer: Buffer, entries_at: int, low: int, high: int, limit: int) -> int:
    """The number of the first entry of a record at or after a limit."""
    while low < high:
        middle = (low + high) // 2
        if ENTRY.unpack_from(buffer, entries_at + middle * ENTRY.size)[1] < limit:
            low = middle + 1
        else:
            high = middle
    return low


def slots_for(buffer: Buffer, entries_at: int, count: int, slots: int) -> tuple[bytes, int]:
    """The packed slots for the entries before a number, and how many are in use."""
    if arrays_are_loaded():
        return _slots_by_arrays(buffer, entries_at, count, slots)
    heads = array("i", bytes(slots * 4))
    for number in range(1, count, _AT_ONCE):
        after = min(number + _AT_ONCE, count)
        entries = bytes(buffer[entries_at + number * ENTRY.size : entries_at + after * ENTRY.size])
        for each, (hashed, _, _, _) in enumerate(ENTRY.iter_unpack(entries), number):
            heads[hashed % slots] = each
    used = slots - heads.count(0)
    if sys.byteorder == "little":
        heads.byteswap()
    return heads.tobytes(), used


def _slots_by_arrays(buffer: Buffer, entries_at: int, count: int, slots: int) -> tuple[bytes, int]:
    import numpy as np

    heads = np.zeros(slots, ">i4")
    for number in range(1, count, _AT_ONCE):
        after = min(number + _AT_ONCE, count)
        entries = bytes(buffer[entries_at + number * ENTRY.size : entries_at + after * ENTRY.size])
        hashes = np.frombuffer(entries, [("hash", ">i4"), ("rest", "V16")])["hash"].astype(np.int64)
        heads[hashes % slots] = np.arange(number, after)  # the last of several stays
    return heads.tobytes(), int(np.count_nonzero(heads))
