"""Where header, slots and entries of an index file are, for those who read files that others made.

Rules kept here:
- The size of a file does not tell how many slots and entries it has, but its content does: the slots in use
  are counted in the header, and entry 0 is empty, so the first number behind them belongs to entry 1.
- A guess counts only if the newest entries are found through the slots that they should be found through.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from cometmq.ports.disk import Buffer

HEADER: Final = struct.Struct(">qqqqii")
SLOT: Final = struct.Struct(">i")
ENTRY: Final = struct.Struct(">iqii")
DEFAULT_SLOTS: Final = 5_000_000
DEFAULT_ENTRIES: Final = 20_000_000

_PROBED_ENTRIES: Final = 50
_LOOK: Final = 1024 * 1024
_EMPTY: Final = bytes(_LOOK)


class IndexShape(NamedTuple):
    """How many slots a file has, and how many entries it has room for."""

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
    """That of the next entry: one more than there are."""


def read_header(buffer: Buffer) -> IndexHeader:
    return IndexHeader(*HEADER.unpack_from(buffer))


def find_shape(buffer: Buffer, size: int, likely: Iterable[IndexShape] = ()) -> IndexShape | None:
    """The shape of a file; None if its content does not tell."""
    if size < HEADER.size:
        return None
    header = read_header(buffer)
    if header.next_number <= 1:
        return None
    for shape in (*likely, IndexShape(DEFAULT_SLOTS, DEFAULT_ENTRIES)):
        if shape.file_size == size and _is_plausible(buffer, shape, header):
            return shape
    seen = _seen_shape(buffer, size, header.used_slots)
    return seen if seen is not None and _is_plausible(buffer, seen, header) else None


def _seen_shape(buffer: Buffer, size: int, used_slots: int) -> IndexShape | None:
    """The shape that follows from the place of the first number behind the slots in use."""
    numbers = _places_of_numbers(buffer, size)
    for _ in range(used_slots):
        if next(numbers, None) is None:
            return None
    first_entry_at = next(numbers, None)
    if first_entry_at is None:
        return None
    slots = (first_entry_at - ENTRY.size - HEADER.size) // SLOT.size
    entries, rest = divmod(size - HEADER.size - slots * SLOT.size, ENTRY.size)
    return IndexShape(slots, entries) if slots > 0 and rest == 0 else None


def _places_of_numbers(buffer: Buffer, size: int) -> Iterator[int]:
    """The places of all numbers behind the header that are not 0."""
    at = HEADER.size
    while at < size:
        look = bytes(buffer[at : at + _LOOK])
        if look != _EMPTY[: len(look)]:
            for number_at in range(0, len(look) - SLOT.size + 1, SLOT.size):
                if look[number_at : number_at + SLOT.size] != b"\0\0\0\0":
                    yield at + number_at
        at += _LOOK


def _is_plausible(buffer: Buffer, shape: IndexShape, header: IndexHeader) -> bool:
    """Whether the newest entries are in the chains that they belong into."""
    if not 1 < header.next_number <= shape.entries:
        return False
    heads: set[int] = set()
    for number in range(header.next_number - 1, max(header.next_number - 1 - _PROBED_ENTRIES, 0), -1):
        key_hash, _, _, _ = ENTRY.unpack_from(buffer, shape.entries_at + number * ENTRY.size)
        slot = key_hash % shape.slots
        if key_hash < 0:
            return False
        if slot not in heads:
            heads.add(slot)
            if SLOT.unpack_from(buffer, HEADER.size + slot * SLOT.size)[0] != number:
                return False
    return True
