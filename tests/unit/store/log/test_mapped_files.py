"""A sequence of mapped files: how it is found, how it grows, what a sync promises."""

from __future__ import annotations

import errno
import gc
from pathlib import Path

import pytest

from cometmq.model.errors import StoreError
from cometmq.ports.disk import SystemDisk
from cometmq.store.log.mapped_files import MappedFile, MappedFiles
from cometmq.testing.simulation.disk import CrashMode, SimulatedDisk

FOLDER = Path("/store/commitlog")
SIZE = 4096


def grown(disk: SimulatedDisk | SystemDisk, folder: Path, count: int, first: int = 0) -> MappedFiles:
    """A sequence of so many files, the last of them empty and the others full."""
    files = MappedFiles(disk, folder, SIZE)
    for number in range(first, first + count):
        if files.files:
            files.files[-1].wrote = SIZE
        mapped = files.add(files.create(number * SIZE))
        mapped.reserve(SIZE, SIZE)
        files.sync_name(mapped)
    return files


def write(mapped: MappedFile, data: bytes) -> None:
    at = mapped.wrote
    mapped.buffer[at : at + len(data)] = data
    mapped.file.wrote(at, at + len(data))
    mapped.wrote = at + len(data)


def test_files_are_named_after_their_first_offset(tmp_path: Path) -> None:
    """B4"""
    grown(SystemDisk(), tmp_path, 2)

    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{0:020}", f"{SIZE:020}"]
    assert all(path.stat().st_size == SIZE for path in tmp_path.iterdir())


def test_a_loaded_sequence_counts_as_written_until_recovery_says_less(tmp_path: Path) -> None:
    """B5"""
    grown(SystemDisk(), tmp_path, 3, first=5)
    loaded = MappedFiles(SystemDisk(), tmp_path, SIZE)
    loaded.load()

    assert (loaded.min_offset, loaded.max_offset, loaded.flushed_offset) == (5 * SIZE, 8 * SIZE, 8 * SIZE)
    assert loaded.next_start == 8 * SIZE


def test_folders_in_between_are_ignored_and_empty_last_files_removed(tmp_path: Path) -> None:
    """B5: a crash may leave files that have a name and no size yet."""
    grown(SystemDisk(), tmp_path, 1)
    (tmp_path / "backup").mkdir()
    for number in (1, 2):
        (tmp_path / f"{number * SIZE:020}").touch()
    loaded = MappedFiles(SystemDisk(), tmp_path, SIZE)
    loaded.load()

    assert [mapped.start for mapped in loaded.files] == [0]
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{0:020}", "backup"]


@pytest.mark.parametrize("size", [0, 100, SIZE * 2])
def test_a_file_of_another_size_is_refused(tmp_path: Path, size: int) -> None:
    grown(SystemDisk(), tmp_path, 2)
    (tmp_path / f"{0:020}").write_bytes(bytes(size))

    with pytest.raises(StoreError, match=f"{size} bytes, expected {SIZE}"):
        MappedFiles(SystemDisk(), tmp_path, SIZE).load()


@pytest.mark.parametrize("name", ["notes.txt", "123", "²" * 20])
def test_a_file_that_is_not_named_after_an_offset_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(bytes(SIZE))

    with pytest.raises(StoreError, match="move it away"):
        MappedFiles(SystemDisk(), tmp_path, SIZE).load()


def test_an_offset_is_found_in_its_file_and_nowhere_else() -> None:
    files = grown(SimulatedDisk(), FOLDER, 3, first=7)

    def start_of(offset: int) -> int | None:
        mapped = files.at(offset)
        return None if mapped is None else mapped.start

    assert [start_of(offset) for offset in (7 * SIZE, 8 * SIZE - 1, 9 * SIZE)] == [
        7 * SIZE,
        7 * SIZE,
        9 * SIZE,
    ]
    assert [start_of(offset) for offset in (-1, 7 * SIZE - 1, 10 * SIZE)] == [None] * 3
    assert MappedFiles(SimulatedDisk(), FOLDER, SIZE).at(0) is None


def test_a_missing_file_is_a_gap_that_can_be_stepped_over() -> None:
    files = grown(SimulatedDisk(), FOLDER, 4)
    files.remove(files.files[1])

    assert files.gaps() == [(SIZE, 2 * SIZE)]
    assert files.at(SIZE) is None
    found = files.at(3 * SIZE)
    assert found is files.files[2]
    assert files.after(files.files[0]) is files.files[1]
    assert files.after(files.files[2]) is None


def test_a_sync_covers_what_was_written_before_it_began() -> None:
    """B5"""
    disk = SimulatedDisk()
    files = grown(disk, FOLDER, 1)
    mapped = files.files[0]
    write(mapped, b"before")
    disk.on_point(lambda point: write(mapped, b"during") if point.startswith("sync begins") else None)

    assert files.sync() == len("before")
    assert (mapped.flushed, mapped.wrote) == (6, 12)
    assert disk.crash(CrashMode.DROP).read(FOLDER / f"{0:020}") == b"before".ljust(SIZE, b"\0")


def test_a_sync_leaves_no_file_out_and_touches_no_flushed_one() -> None:
    disk = SimulatedDisk()
    files = grown(disk, FOLDER, 3)
    write(files.files[2], b"end")
    assert files.sync() == 2 * SIZE + 3
    assert [mapped.flushed for mapped in files.files] == [SIZE, SIZE, 3]

    points = disk.points
    write(files.files[2], b"more")
    files.sync()
    assert disk.points == points + 3  # one write, and the begin and end of one sync


def test_a_sync_that_failed_once_has_failed_for_good() -> None:
    """B5: the kernel would let the next one succeed although the pages are lost."""
    disk = SimulatedDisk()
    files = grown(disk, FOLDER, 1)
    write(files.files[0], b"lost")
    disk.fail("sync", number=errno.EIO, times=1)

    for _ in range(2):
        with pytest.raises(OSError, match="Input/output error") as caught:
            files.sync()
        assert caught.value.errno == errno.EIO
    assert (files.flushed_offset, files.files[0].flushed) == (0, 0)


def test_truncation_removes_what_lies_behind_and_keeps_what_lies_before() -> None:
    """B5"""
    disk = SimulatedDisk()
    files = grown(disk, FOLDER, 3)
    files.sync()

    files.truncate(SIZE + 100)

    assert (files.max_offset, files.flushed_offset) == (SIZE + 100, SIZE + 100)
    assert [entry.name for entry in disk.entries(FOLDER)] == [f"{0:020}", f"{SIZE:020}"]
    files.truncate(0)
    assert (files.max_offset, files.flushed_offset, len(files.files)) == (0, 0, 1)


def test_a_loaded_file_is_reserved_again_before_it_is_written() -> None:
    """B4: a copy of a store may have holes where the original had room."""
    disk = SimulatedDisk()
    grown(disk, FOLDER, 1)
    loaded = MappedFiles(disk.crash(CrashMode.KEEP), FOLDER, SIZE)
    loaded.load()
    assert loaded.files[0].reserved == 0

    loaded.files[0].reserve(10, 64)
    assert loaded.files[0].reserved == 64
    loaded.files[0].reserve(64, 64)
    assert loaded.files[0].reserved == 64
    loaded.files[0].reserve(SIZE, 64)
    assert loaded.files[0].reserved == SIZE


def test_a_reader_keeps_its_view_when_the_file_is_removed(tmp_path: Path) -> None:
    """B4"""
    files = grown(SystemDisk(), tmp_path, 2)
    files.files[0].buffer[:4] = b"seen"
    view = files.files[0].view[:4]

    files.remove(files.files[0])
    gc.collect()

    assert bytes(view) == b"seen"
    assert [path.name for path in tmp_path.iterdir()] == [f"{SIZE:020}"]
    assert files.min_offset == SIZE


def test_names_and_sizes_of_new_files_survive_a_crash() -> None:
    """B4"""
    disk = SimulatedDisk()
    grown(disk, FOLDER, 2)

    for mode in CrashMode:
        loaded = MappedFiles(disk.crash(mode), FOLDER, SIZE)
        loaded.load()
        assert [mapped.start for mapped in loaded.files] == [0, SIZE]


def test_a_sequence_that_is_only_read_is_left_as_it_is(tmp_path: Path) -> None:
    """D3"""
    grown(SystemDisk(), tmp_path, 1)
    (tmp_path / f"{SIZE:020}").touch()
    files = MappedFiles(SystemDisk(), tmp_path, SIZE, writable=False)
    files.load()

    assert len(files.files) == 1
    assert files.files[0].view.readonly
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{0:020}", f"{SIZE:020}"]


def test_a_file_that_is_erased_while_a_sync_is_on_its_way_is_no_failure() -> None:
    """B5"""
    disk = SimulatedDisk()
    files = grown(disk, FOLDER, 2)
    write(files.files[1], b"kept")
    first = files.files[0]

    def erase_first(point: str) -> None:
        disk.on_point(None)
        files.remove(first)
        raise OSError(errno.ENOENT, "as a real disk says when the file is gone")

    disk.on_point(erase_first)
    assert files.sync() == SIZE + 4
    assert files.sync() == SIZE + 4


def test_closing_lets_go_of_all_files(tmp_path: Path) -> None:
    files = grown(SystemDisk(), tmp_path, 2)
    mapped = files.files[0]

    files.close()

    assert files.files == []
    with pytest.raises(ValueError, match="closed"):
        mapped.buffer[0]
