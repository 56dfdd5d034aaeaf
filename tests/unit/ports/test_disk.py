"""The machine's disk, where the operating system is asked for more than reading and writing."""

from __future__ import annotations

from pathlib import Path

from cometmq.ports.disk import SystemDisk

SIZE = 64 * 1024 * 1024


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
