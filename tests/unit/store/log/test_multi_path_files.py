"""A log that is spread over several folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from cometmq.model.errors import StoreError
from cometmq.ports.disk import UNKNOWN_PERCENT, DiskUsage, SystemDisk, used_percent
from cometmq.store.log.mapped_files import MultiPathMappedFiles

SIZE = 4096


class PartlyFullDisk(SystemDisk):
    """A disk whose partitions are as full as a test says."""

    def __init__(self) -> None:
        self.used: dict[Path, int] = {}

    def usage(self, path: Path) -> DiskUsage | None:
        used = self.used.get(path, 10)
        return DiskUsage(100, used, 100 - used)


def spread(
    disk: SystemDisk, *folders: Path, writable: tuple[Path, ...] | None = None
) -> MultiPathMappedFiles:
    return MultiPathMappedFiles(disk, folders, writable or folders, SIZE, full_above_percent=85)


def test_folders_take_turns_in_the_order_of_their_names(tmp_path: Path) -> None:
    """B4"""
    a, b, c = (tmp_path / name for name in "abc")
    files = spread(PartlyFullDisk(), c, a, b)

    assert [files.path_of(number * SIZE).parent for number in range(4)] == [a, b, c, a]
    assert files.path_of(SIZE).name == f"{SIZE:020}"


def test_a_read_only_folder_is_read_and_gets_no_new_files(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    (old / f"{0:020}").write_bytes(bytes(SIZE))
    files = spread(PartlyFullDisk(), old, new, writable=(new,))
    files.load()

    assert [mapped.file.path.parent for mapped in files.files] == [old]
    assert {files.path_of(number * SIZE).parent for number in range(4)} == {new}


def test_a_full_folder_is_passed_over_while_another_has_room(tmp_path: Path) -> None:
    """B5"""
    a, b = tmp_path / "a", tmp_path / "b"
    disk = PartlyFullDisk()
    files = spread(disk, a, b)

    disk.used[a] = 86
    assert {files.path_of(number * SIZE).parent for number in range(4)} == {b}
    disk.used[b] = 99
    assert {files.path_of(number * SIZE).parent for number in range(4)} == {a, b}


def test_the_files_of_all_folders_are_one_sequence(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    for folder, number in ((b, 1), (a, 0), (a, 2)):
        folder.mkdir(exist_ok=True)
        (folder / f"{number * SIZE:020}").write_bytes(bytes([number]) * SIZE)
    files = spread(SystemDisk(), a, b)
    files.load()

    assert [mapped.buffer[0] for mapped in files.files] == [0, 1, 2]
    assert files.gaps() == []


def test_the_same_offset_in_two_folders_is_refused(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    for folder in (a, b):
        folder.mkdir()
        (folder / f"{0:020}").write_bytes(bytes(SIZE))

    with pytest.raises(StoreError, match="same offset"):
        spread(SystemDisk(), a, b).load()


@pytest.mark.parametrize(
    ("usage", "percent"),
    [
        (DiskUsage(1000, 750, 250), 75),
        (DiskUsage(1000, 751, 249), 76),
        (DiskUsage(1000, 500, 100), 84),
        (DiskUsage(1000, 0, 1000), 0),
        (DiskUsage(0, 0, 0), 100),
        (None, UNKNOWN_PERCENT),
    ],
)
def test_the_used_share_is_rounded_up_and_leaves_reserved_blocks_out(
    usage: DiskUsage | None, percent: int
) -> None:
    """B5"""
    assert used_percent(usage) == percent
