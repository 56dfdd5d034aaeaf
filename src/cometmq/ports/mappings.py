"""Memory-mapped files without a descriptor for each and without holes that kill, and their resident pages.

Python's own mappings keep a descriptor of the file as long as they live, and sync with the interpreter held.
Here the C library does both: room in memory is taken first, and the file is mapped over it.

Rules kept here:
- A mapping needs no descriptor, neither to live nor to be synced.
- On tmpfs, reading a hole of a file takes room, and kills the process with a signal if there is none. There,
  read-only zeros are mapped instead of holes. `show` maps the file when room was reserved. A read-only
  mapping has the holes, too, if there is room for all of them: the writing process may be filling them.
- Without these functions of the C library, Python's mapping is used, with its descriptor.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import sys
from typing import Final

from cometmq.ports.system import SYNCS_MAPPINGS

_FIXED: Final = 0x10
_IS_LINUX: Final = sys.platform == "linux"
_NO_RESERVE: Final = getattr(mmap, "MAP_NORESERVE", 0x4000 if _IS_LINUX else 0)
_MS_SYNC: Final = 0x10 if sys.platform == "darwin" else 4
_POPULATE_WRITE: Final = 23
_IN_MEMORY: Final = 1
_FAILED: Final = ctypes.c_void_p(-1).value
_MEMORY_FILE_SYSTEMS: Final = (0x01021994, 0x858458F6)
"""The kernel's numbers of tmpfs and ramfs."""
_STATFS_SIZE: Final = 512
_MANY_RANGES: Final = 64
"""A file with more data ranges than this is filled up instead."""


class _PyBuffer(ctypes.Structure):
    """CPython's `Py_buffer`."""

    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.c_void_p),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


def _find(
    name: str, *argtypes: type, library: type[ctypes.CDLL] = ctypes.CDLL
) -> ctypes._NamedFuncPointer | None:
    try:
        found = library(None, use_errno=True)[name]
    except (AttributeError, OSError, TypeError):  # the last one from Windows, which has no such library
        return None
    found.argtypes = argtypes
    return found


_mmap: Final = _find(
    "mmap", ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long
)
_msync: Final = _find("msync", ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_fstatfs: Final = _find("fstatfs", ctypes.c_int, ctypes.c_char_p) if _IS_LINUX else None
_madvise: Final = _find("madvise", ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int) if _IS_LINUX else None
_mincore: Final = _find("mincore", ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, library=ctypes.PyDLL)
"""Called with the interpreter held: it does not wait for the disk, and letting go of the GIL takes longer."""
if _mmap is not None:
    _mmap.restype = ctypes.c_void_p

HOLDS_NO_DESCRIPTOR: Final = _mmap is not None and _msync is not None

_in_memory: dict[int, bool] = {}
"""Whether the file system of a device is in memory, by device."""


def map_file(handle: int, size: int, *, writable: bool) -> mmap.mmap:
    """Map the first `size` bytes of a file, without its holes if it `has_holes_to_avoid`."""
    if not HOLDS_NO_DESCRIPTOR:
        return mmap.mmap(handle, size, access=mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ)
    prot = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
    try:
        mapping = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE, prot=prot)
    except OSError:  # a system that lends no more memory than it has
        if has_holes_to_avoid(handle):
            raise
        return mmap.mmap(handle, size, access=mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ)
    if not has_holes_to_avoid(handle) or (not writable and _has_room_for(handle, size)):
        _map_over(mapping, handle, 0, size, prot)
        return mapping
    if writable:
        _map_over(mapping, -1, 0, size, mmap.PROT_READ)
    ranges = data_ranges(handle, 0, size)
    if writable and len(ranges) > _MANY_RANGES:
        os.posix_fallocate(handle, 0, size)  # on Linux only; see `has_holes_to_avoid`
        ranges = [(0, size)]
    for start, end in ranges:
        _map_over(mapping, handle, start, end, prot)
    return mapping


def show(mapping: mmap.mmap, handle: int, start: int, end: int) -> None:
    """Map a part of a file with reserved room where a hole was left out."""
    _map_over(mapping, handle, start, end, mmap.PROT_READ | mmap.PROT_WRITE)


def sync(mapping: mmap.mmap) -> bool:
    """Sync a mapping, without the GIL where possible; returns False if the file has to be synced instead."""
    try:
        with memoryview(mapping) as held:  # so that it stays where it is
            if _msync is None:
                if not SYNCS_MAPPINGS:
                    mapping.flush()  # stops the whole interpreter while it writes
                return False
            if _msync(_address_of(mapping), len(held), _MS_SYNC) == 0:
                return True
    except ValueError:  # it is closed
        return False
    number = ctypes.get_errno()
    raise OSError(number, os.strerror(number))


def has_holes_to_avoid(handle: int) -> bool:
    """Whether reading the holes of a file could need room that does not exist."""
    if _fstatfs is None:
        return False
    facts = os.fstat(handle)
    if facts.st_blocks * 512 >= facts.st_size:
        return False
    known = _in_memory.get(facts.st_dev)
    if known is None:
        told = ctypes.create_string_buffer(_STATFS_SIZE)
        width = ctypes.sizeof(ctypes.c_long)
        known = (
            _fstatfs(handle, told) == 0
            and int.from_bytes(told.raw[:width], sys.byteorder) & 0xFFFFFFFF in _MEMORY_FILE_SYSTEMS
        )
        _in_memory[facts.st_dev] = known
    return known


def data_ranges(handle: int, start: int, size: int) -> list[tuple[int, int]]:
    """Returns the ranges after `start` that may have been written; all others read as zeros."""
    ranges: list[tuple[int, int]] = []
    if not hasattr(os, "SEEK_DATA"):
        return [(start, size)] if start < size else []
    try:
        while start < size:
            begin = os.lseek(handle, start, os.SEEK_DATA)
            start = os.lseek(handle, begin, os.SEEK_HOLE)
            ranges.append((begin, start))
    except OSError as error:
        if error.errno != errno.ENXIO:  # which says that nothing follows
            ranges.append((start, size))  # this file system cannot tell
    return ranges


def holes(handle: int, start: int, end: int) -> list[tuple[int, int]]:
    """Returns the ranges that were never written."""
    found = []
    for begin, data_end in data_ranges(handle, start, end):
        if begin >= end:
            break
        if begin > start:
            found.append((start, begin))
        start = data_end
    if start < end:
        found.append((start, end))
    return found


def make_writable(mapping: mmap.mmap | bytearray, start: int, end: int) -> bool:
    """Take the write faults of a range of pages; blocks without the GIL, which `mmap.madvise` does not.

    Returns False if the system cannot, or the mapping was closed meanwhile.
    """
    if _madvise is None or not isinstance(mapping, mmap.mmap):
        return False
    start -= start % mmap.PAGESIZE
    try:
        held = ctypes.c_char.from_buffer(mapping)  # keeps the mapping during the call
    except ValueError:
        return False
    return bool(_madvise(ctypes.addressof(held) + start, end - start, _POPULATE_WRITE) == 0)


def _has_room_for(handle: int, size: int) -> bool:
    facts = os.fstatvfs(handle)
    return facts.f_bavail * facts.f_frsize >= size


def _map_over(mapping: mmap.mmap, handle: int, start: int, end: int, prot: int) -> None:
    """Replace pages of a mapping by those of a file, or by zeros without a handle."""
    if _mmap is None or start >= end:
        return
    start -= start % mmap.PAGESIZE
    flags = _FIXED | (mmap.MAP_SHARED if handle >= 0 else mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    address = _address_of(mapping) + start
    if _mmap(address, end - start, prot, flags, handle, start if handle >= 0 else 0) == _FAILED:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _address_of(mapping: mmap.mmap) -> int:
    told = _PyBuffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(mapping), ctypes.byref(told), 0)
    address: int = told.buf
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(told))
    return address


def address_of(mapping: mmap.mmap) -> int | None:
    """Returns where a writable mapping begins; None for others."""
    try:
        first = ctypes.c_char.from_buffer(mapping)
    except TypeError:
        return None
    return ctypes.addressof(first)


def is_in_memory(address: int, start: int, end: int) -> bool:
    """Whether these bytes of the mapping at an address are in memory; False if the system cannot tell."""
    if _mincore is None or start >= end:
        return start >= end
    start -= start % mmap.PAGESIZE
    pages = (end - start + mmap.PAGESIZE - 1) // mmap.PAGESIZE
    told = ctypes.create_string_buffer(pages)
    if _mincore(address + start, end - start, told) != 0:
        return False
    return all(page & _IN_MEMORY for page in told.raw)
