"""What a stop left of an index file: which of its entries count, and the slots that lead to them.

Rules kept here:
- Entries are written one behind the other, so they count up to the first that cannot be: without a hash, or
  with an offset smaller than that of the one before it. Of those, what reached the disk is not to be told.
- Slots follow from the entries: each leads to the last entry of its chain. They are written all over the
  file, so after a stop of the machine they may be older than the entries, and are made anew.
- A hash of 0, which one key in two thousand million has, counts as none. That costs time, never a key.
"""

from __future__ import annotations

import sys
from array import array
from struct import Struct
from typing import Final

from cometmq.ports.disk import Buffer
from cometmq.store.index.arrays import arrays_are_loaded, load_arrays

_ENTRY: Final = Struct(">iqii")
_AT_ONCE: Final = 65_536
_MANY: Final = 200_000
"""From so many entries on it is worth to load NumPy for them."""


def count_good(buffer: Buffer, entries_at: int, count: int, limit: int) -> tuple[int, bool]:
    """The number of the first entry that does not count, and whether all from there on are only too new.

    `count` is the number behind the last one. Those of records at and behind `limit` in the log do not count.
    """
    if count > _MANY:
        load_arrays()
    number, last_offset = 1, 0
    while number < count:
        behind = min(number + _AT_ONCE, count)
        start, end = entries_at + number * _ENTRY.size, entries_at + behind * _ENTRY.size
        look = _look_at_arrays if arrays_are_loaded() else _look
        found, last_offset = look(bytes(buffer[start:end]), number, last_offset)
        good = found if last_offset < limit else _before_limit(buffer, entries_at, number, found, limit)
        if good < found:
            return good, True
        if found < behind:
            return found, False
        number = behind
    return count, False


def _look(entries: bytes, first: int, last_offset: int) -> tuple[int, int]:
    """The number of the first entry that cannot be, and the offset of the one before it."""
    for number, (hashed, offset, seconds, previous) in enumerate(_ENTRY.iter_unpack(entries), first):
        if hashed <= 0 or offset < last_offset or seconds < 0 or not 0 <= previous < number:
            return number, last_offset
        last_offset = offset
    return first + len(entries) // _ENTRY.size, last_offset


def _look_at_arrays(entries: bytes, first: int, last_offset: int) -> tuple[int, int]:
    """The same by columns."""
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
    """The number of the first entry of a record at or behind a limit."""
    while low < high:
        middle = (low + high) // 2
        if _ENTRY.unpack_from(buffer, entries_at + middle * _ENTRY.size)[1] < limit:
            low = middle + 1
        else:
            high = middle
    return low


def slots_for(buffer: Buffer, entries_at: int, count: int, slots: int) -> tuple[bytes, int]:
    """The slots that lead to the entries before a number, as a file has them, and how many are in use."""
    if arrays_are_loaded():
        return _slots_by_arrays(buffer, entries_at, count, slots)
    heads = array("i", bytes(slots * 4))
    for number in range(1, count, _AT_ONCE):
        behind = min(number + _AT_ONCE, count)
        entries = bytes(buffer[entries_at + number * _ENTRY.size : entries_at + behind * _ENTRY.size])
        for each, (hashed, _, _, _) in enumerate(_ENTRY.iter_unpack(entries), number):
            heads[hashed % slots] = each
    used = slots - heads.count(0)
    if sys.byteorder == "little":
        heads.byteswap()
    return heads.tobytes(), used


def _slots_by_arrays(buffer: Buffer, entries_at: int, count: int, slots: int) -> tuple[bytes, int]:
    import numpy as np

    heads = np.zeros(slots, ">i4")
    for number in range(1, count, _AT_ONCE):
        behind = min(number + _AT_ONCE, count)
        entries = bytes(buffer[entries_at + number * _ENTRY.size : entries_at + behind * _ENTRY.size])
        hashes = np.frombuffer(entries, [("hash", ">i4"), ("rest", "V16")])["hash"].astype(np.int64)
        heads[hashes % slots] = np.arange(number, behind)  # of several, the last one stays
    return heads.tobytes(), int(np.count_nonzero(heads))
