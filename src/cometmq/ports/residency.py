"""Which pages of a mapped file are in memory, as the kernel tells.

Python has no call for it, so it is made through the C library. It does not wait for the disk, and is made
with the interpreter held: to give that up and to get it back takes longer than the call.
"""

from __future__ import annotations

import ctypes
import mmap
from typing import Final

_IN_MEMORY: Final = 1


def _find_mincore() -> ctypes._NamedFuncPointer | None:
    try:
        found = ctypes.PyDLL(None).mincore
    except (AttributeError, OSError):  # a system that cannot tell
        return None
    found.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
    found.restype = ctypes.c_int
    return found


_mincore: Final = _find_mincore()


def address_of(mapping: mmap.mmap) -> int | None:
    """Where a mapping begins; None if that cannot be told, because it is not writable."""
    try:
        first = ctypes.c_char.from_buffer(mapping)
    except TypeError:
        return None
    return ctypes.addressof(first)


def is_in_memory(address: int, start: int, end: int) -> bool:
    """Whether all of these bytes of the mapping that begins at an address are; False if nobody knows."""
    if _mincore is None or start >= end:
        return start >= end
    start -= start % mmap.PAGESIZE
    pages = (end - start + mmap.PAGESIZE - 1) // mmap.PAGESIZE
    told = ctypes.create_string_buffer(pages)
    if _mincore(address + start, end - start, told) != 0:
        return False
    return all(page & _IN_MEMORY for page in told.raw)
