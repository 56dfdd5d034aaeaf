"""Differences between operating systems. Linux has everything; each missing thing has its fallback here.

Rules kept here:
- What a system has is decided once, at import; on Linux the names here are the functions of `os` themselves.
- A sync means durable on every system: macOS needs `F_FULLFSYNC` for that.
- Nothing else in the package asks which system this is.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Final

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:
    fcntl = None

IS_WINDOWS: Final = os.name == "nt"

BINARY: Final[int] = getattr(os, "O_BINARY", 0)
"""Without this flag, Windows changes line ends."""
SYNC_FLAGS: Final = os.O_RDWR | BINARY if IS_WINDOWS else os.O_RDONLY
"""How a file is opened to be synced: Windows syncs only what may be written."""
SYNCS_MAPPINGS: Final = hasattr(os, "fdatasync")
"""Whether syncing a file covers what was written through a mapping; elsewhere the mapping is synced first."""
WRITES_TO_SOCKETS: Final = hasattr(os, "writev")
"""Whether a socket is a descriptor that `os.write` accepts."""
BINDS_TWICE: Final = sys.platform == "linux" and not IS_WINDOWS
"""Whether two sockets may be bound to a port as long as only one listens."""
WAIT_S: Final = 0.5 if IS_WINDOWS else None
"""How long the main thread may wait at once: Windows interrupts no wait for a signal."""

_NO_FULL_SYNC: Final = (errno.ENOTSUP, errno.EINVAL, errno.ENOTTY)


def _full_sync(handle: int) -> None:
    """Sync through the cache of the drive, which `fsync` on macOS leaves out."""
    assert fcntl is not None
    try:
        fcntl.fcntl(handle, fcntl.F_FULLFSYNC)
    except OSError as error:
        if error.errno not in _NO_FULL_SYNC:
            raise
        os.fsync(handle)  # the most that this file system has, such as one on the network


sync: Final[Callable[[int], None]] = _full_sync if hasattr(fcntl, "F_FULLFSYNC") else os.fsync
"""Put a file on the disk."""
sync_data: Final[Callable[[int], None]] = os.fdatasync if hasattr(os, "fdatasync") else sync
"""Put the content of a file on the disk, and of the rest what it takes to find it."""


def allocate(handle: int, start: int, size: int) -> bool:
    """Reserve room for a part of a file; returns False if that has to be done by writing."""
    if not hasattr(os, "posix_fallocate"):
        return False
    try:
        os.posix_fallocate(handle, start, size)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
            raise
        return False  # this file system cannot reserve
    return True


def expect_random_reads(handle: int) -> None:
    """Ask for no reading ahead, where that can be asked for."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_RANDOM)


def _read_at(handle: int, size: int, start: int) -> bytes:
    os.lseek(handle, start, os.SEEK_SET)
    return os.read(handle, size)


def _write_at(handle: int, data: bytes | memoryview, start: int) -> int:
    os.lseek(handle, start, os.SEEK_SET)
    return os.write(handle, data)


pread: Final[Callable[[int, int, int], bytes]] = os.pread if hasattr(os, "pread") else _read_at
"""Read at a position, with a descriptor that no other thread uses."""
pwrite: Final[Callable[[int, bytes | memoryview, int], int]] = (
    os.pwrite if hasattr(os, "pwrite") else _write_at
)
"""Write at a position, with a descriptor that no other thread uses."""


def lock(handle: int, *, shared: bool = False) -> bool:
    """Lock the first byte of an open file, as a Java process does, until it is closed.

    Returns False if another process has locked it.
    """
    try:
        if fcntl is not None:
            fcntl.lockf(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB, 1, 0)
        else:
            import msvcrt

            os.lseek(handle, 0, os.SEEK_SET)
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
    except OSError:
        return False
    return True


def after_fork_in_child(act: Callable[[], object]) -> None:
    """Do something in every forked child, where a process can fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=act)


def physical_memory() -> int:
    """The memory of this machine in bytes; a guess of 4 GiB where it cannot be told."""
    with contextlib.suppress(AttributeError, OSError, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with contextlib.suppress(AttributeError, OSError):
        told = (ctypes.c_uint64 * 8)()  # MEMORYSTATUSEX: two numbers of 32 bits, then seven of 64
        ctypes.memmove(told, ctypes.byref(ctypes.c_uint32(ctypes.sizeof(told))), 4)
        if ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(told)):  # type: ignore[attr-defined,unused-ignore]
            return int(told[1])
    return 4 << 30
