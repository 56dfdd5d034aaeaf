"""What the kernel tells about the pages of a mapped file."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from cometmq.ports.disk import SystemDisk

PAGES = 64


def _file_on_disk_only(path: Path) -> None:
    handle = os.open(path, os.O_RDWR | os.O_CREAT)
    os.write(handle, os.urandom(PAGES * mmap.PAGESIZE))
    os.fsync(handle)
    os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(handle)


def test_what_was_read_is_in_memory_and_the_rest_is_not(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000"
    _file_on_disk_only(path)
    # Scattered: the kernel reads nothing ahead.
    file = SystemDisk().open(path, writable=True, scattered=True)
    cold = [not file.is_in_memory(at * mmap.PAGESIZE, (at + 1) * mmap.PAGESIZE) for at in range(PAGES)]
    file.buffer[5 * mmap.PAGESIZE + 17]
    assert file.is_in_memory(5 * mmap.PAGESIZE + 1, 6 * mmap.PAGESIZE - 1)
    assert file.is_in_memory(5 * mmap.PAGESIZE, 6 * mmap.PAGESIZE + 1) is not cold[6]
    file.fetch(0, PAGES * mmap.PAGESIZE)
    assert file.is_in_memory(0, PAGES * mmap.PAGESIZE)
    file.close()


def test_a_file_of_which_nothing_can_be_told_counts_as_on_disk(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000"
    _file_on_disk_only(path)
    file = SystemDisk().open(path, writable=False)
    assert not file.is_in_memory(0, 1)
    assert not file.is_in_memory(0, mmap.PAGESIZE)
    file.close()
