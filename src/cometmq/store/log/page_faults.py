"""Sparing the writing thread the page faults of a mapped file.

Rules kept here:
- The first write to a page of a mapped file makes the kernel find the page, prepare its place on the disk,
  and wait while much else is being written back. Somebody else can do that before, for many pages at once.
- It is a favour, not a condition: where the kernel does not know it (before Linux 5.14), or refuses, nothing
  changes but the time that a write takes. The content of the file is never touched.
"""

from __future__ import annotations

import ctypes
import mmap
from typing import Final

from cometmq.ports.disk import Buffer

_POPULATE_WRITE: Final = 23
_PAGE: Final = mmap.PAGESIZE

# Not `mmap.madvise`, which keeps all other threads waiting while the kernel works.
_madvise: Final = getattr(ctypes.CDLL(None), "madvise", None)
if _madvise is not None:
    _madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    _madvise.restype = ctypes.c_int


def make_writable(buffer: Buffer, start: int, end: int) -> bool:
    """Have the pages of these bytes ready to be written to; blocks, but holds up nobody else.

    False if the kernel did not do it, or the file was closed meanwhile.
    """
    if _madvise is None or not isinstance(buffer, mmap.mmap):
        return False
    start -= start % _PAGE
    try:
        held = ctypes.c_char.from_buffer(buffer)  # which keeps the mapping until the call is over
    except ValueError:
        return False
    done = _madvise(ctypes.addressof(held) + start, end - start, _POPULATE_WRITE)
    return bool(done == 0)
