"""Index entries of many records by columns of NumPy, which cost less than lists of numbers.

Rules kept here:
- The result is what `IndexFile.put` would write, byte for byte.
- NumPy is no requirement of a broker, and loading it takes 0.1 s. It is loaded where it pays off and nobody
  waits: for a long recovery, and beside the first bulk of records.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # NumPy is no requirement of a broker
    import numpy as np

    Integers = np.ndarray[tuple[int], np.dtype[np.int64]]
    Letters = np.ndarray[tuple[int, ...], np.dtype[np.uint8]]
    Columns = tuple[Integers, Integers, Integers]
    """Hashes of keys, physical offsets and store times."""

LARGE_GROUP: Final = 256
"""Columns pay off from this many records on."""
AT_ONCE: Final = 2048
"""How many records are written at once."""

_NUMPY: Final = "numpy"
_BASE: Final = 31
_SIGN: Final = 1 << 31
_WORD: Final = (1 << 32) - 1


def has_arrays() -> bool:
    """Whether NumPy is installed."""
    return arrays_are_loaded() or find_spec(_NUMPY) is not None


def arrays_are_loaded() -> bool:
    """Whether NumPy is loaded."""
    return _NUMPY in sys.modules


def load_arrays() -> bool:
    """Load NumPy if it is installed; returns whether it is loaded. Blocks."""
    if has_arrays():
        import_module(_NUMPY)
    return arrays_are_loaded()


def key_hashes_of(beginning: int, keys: Sequence[bytes]) -> Integers | None:
    """The hashes of keys of one topic, if they are ASCII and of one length; see `key_hash.key_hash`."""
    import numpy as np

    length, joined = len(keys[0]), b"".join(keys)
    if len(joined) != length * len(keys) or not joined.isascii() or len(set(map(len, keys))) > 1:
        return None
    return hashes_of_letters(beginning, np.frombuffer(joined, np.uint8).reshape(len(keys), length))


def hashes_of_letters(beginning: int, letters: Letters) -> Integers:
    """The hashes of keys given as rows of ASCII letters."""
    import numpy as np

    count, length = letters.shape
    alike = _alike(letters)
    hashed = beginning & _WORD
    for letter in letters[0, :alike].tolist():
        hashed = (hashed * _BASE + letter) & _WORD
    values = np.full(count, hashed, np.uint32)
    for column in range(alike, length):
        values *= np.uint32(_BASE)
        values += letters[:, column]
    signed = values.view(np.int32)
    # Java's absolute value; the smallest number has none, and counts as 0.
    hashes: Integers = np.abs(signed.astype(np.int64))
    hashes[hashes == _SIGN] = 0
    return hashes


def _alike(letters: Letters) -> int:
    """How many letters all keys begin with, at least."""
    import numpy as np

    count, length = letters.shape
    for guess in (length, length - 4, length - 8, length // 2):  # most keys end with a number
        if guess > 0:
            parts = np.ndarray((count,), f"V{guess}", letters, 0, letters.strides[:1])
            if parts.tobytes() == letters[0, :guess].tobytes() * count:
                return guess
    return 0


def columns_of(hashes: Sequence[Integers], offsets: Sequence[int], times_ms: Sequence[int]) -> Columns:
    """The entries of records that have one hash in each of these columns."""
    import numpy as np

    width = len(hashes)
    mixed = np.stack(hashes, axis=1).reshape(-1)
    repeated = (np.repeat(np.array(each, np.int64), width) for each in (offsets, times_ms))
    return mixed, next(repeated), next(repeated)


def pack_entries(
    heads: memoryview, slot_count: int, first: int, columns: Columns, seconds: Integers
) -> tuple[bytes, Integers, int]:
    """Pack the entries numbered from `first` on; returns also their slots, and how many of these were unused.

    `heads` are the slots in the file, `slot_count` is their number.
    """
    import numpy as np

    hashes, offsets, _ = columns
    count = len(hashes)
    slots = hashes % slot_count
    numbers = np.arange(first, first + count)
    previous = np.frombuffer(heads, ">i4")[slots].astype(np.int64)
    order = np.argsort(slots, kind="stable")
    again = np.flatnonzero(slots[order[1:]] == slots[order[:-1]])
    previous[order[again + 1]] = numbers[order[again]]
    # A slot that leads forward is left from a crash.
    previous[(previous < 0) | (previous >= numbers)] = 0
    entries = np.empty(count, [("hash", ">i4"), ("offset", ">i8"), ("seconds", ">i4"), ("previous", ">i4")])
    entries["hash"], entries["offset"] = hashes, offsets
    entries["seconds"], entries["previous"] = seconds, previous
    return entries.tobytes(), slots, int((previous == 0).sum())


def lead(heads: memoryview, slots: Integers, first: int) -> tuple[int, int]:
    """Point slots to the entries numbered from `first` on; returns the lowest and the highest slot."""
    import numpy as np

    view = np.frombuffer(heads, ">i4")
    view[slots] = np.arange(first, first + len(slots))
    return int(slots.min()), int(slots.max())


def seconds_since(begin_ms: int, times_ms: Integers, most: int) -> Integers:
    """The seconds of entries."""
    import numpy as np

    if begin_ms <= 0:
        return np.zeros(len(times_ms), np.int64)
    return np.clip((times_ms - begin_ms) // 1000, 0, most)


def bulk_columns(hashes: Integers, offsets: Integers, time_ms: int) -> Columns:
    """The entries of records that have one key each and were stored together."""
    import numpy as np

    return hashes, offsets, np.full(len(hashes), time_ms, np.int64)
