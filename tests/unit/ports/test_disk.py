"""The machine's disk, where the operating system is asked for more than reading and writing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cometmq.ports.disk import SystemDisk
from cometmq.testing.simulation.disk import SimulatedDisk

SIZE = 64 * 1024 * 1024
MIDDLE = 512 * 1024


def test_what_was_written_is_found_without_looking_at_what_was_not(tmp_path: Path) -> None:
    """B5: a reserved file of which little is written."""
    file = SystemDisk().create(tmp_path / "log", SIZE)
    try:
        file.reserve(0, SIZE)
        file.buffer[SIZE // 2] = 7
        file.sync()
        ranges = file.data_ranges(0)
        assert any(start <= SIZE // 2 < end for start, end in ranges)
        assert ranges == sorted(ranges)
        assert sum(end - start for start, end in ranges) <= SIZE
        assert file.data_ranges(SIZE) == []
    finally:
        file.close()


def test_everything_may_be_data_in_a_file_that_was_written_whole(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * 8192)
    file = SystemDisk().open(path, writable=False)
    try:
        assert file.data_ranges(0) == [(0, 8192)]
        assert file.data_ranges(100) == [(100, 8192)]
    finally:
        file.close()


@pytest.mark.parametrize("disk", [SystemDisk, SimulatedDisk])
@pytest.mark.parametrize("size", [1, 16 * 1024 - 1, 16 * 1024, 300_000])
def test_what_is_written_through_is_seen_in_the_buffer(
    tmp_path: Path, disk: type[SystemDisk] | type[SimulatedDisk], size: int
) -> None:
    """B4: few bytes and many, between others that stay."""
    file = disk().create(tmp_path / "log", MIDDLE)
    try:
        file.reserve(0, MIDDLE)
        file.buffer[:] = b"x" * MIDDLE
        file.wrote(0, MIDDLE)
        data = os.urandom(size)
        file.write_through(5000, memoryview(data))
        assert file.buffer[:] == b"x" * 5000 + data + b"x" * (MIDDLE - 5000 - size)
    finally:
        file.close()


def test_what_cannot_be_written_past_the_buffer_is_written_there(tmp_path: Path) -> None:
    """B4: as when its name is gone; who holds the file still sees it."""
    file = SystemDisk().create(tmp_path / "log", MIDDLE)
    try:
        file.reserve(0, MIDDLE)
        (tmp_path / "log").unlink()
        file.write_through(100, b"y" * 20_000)
        assert file.buffer[99:20_101] == b"\0" + b"y" * 20_000 + b"\0"
    finally:
        file.close()
