"""The simulated disk and the real one answer alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from cometmq.ports.disk import Disk, SystemDisk
from cometmq.testing.simulation.disk import SimulatedDisk


@pytest.fixture(params=["system", "simulated"])
def disk(request: pytest.FixtureRequest) -> Disk:
    return SystemDisk() if request.param == "system" else SimulatedDisk()


def test_a_new_file_reads_as_zeros_and_keeps_what_is_written(disk: Disk, tmp_path: Path) -> None:
    path = tmp_path / "commitlog" / "00000000000000000000"
    file = disk.create(path, 10_000)
    assert bytes(file.buffer[:]) == bytes(10_000)
    file.reserve(0, 10_000)
    file.buffer[5000:5003] = b"abc"
    file.wrote(5000, 5003)
    file.sync()
    file.close()

    again = disk.open(path)
    assert again.size == 10_000
    assert bytes(again.buffer[4999:5004]) == b"\0abc\0"
    again.close()
    assert disk.read(path) == bytes(5000) + b"abc" + bytes(4997)


def test_two_that_open_a_file_see_each_other(disk: Disk, tmp_path: Path) -> None:
    writer = disk.create(tmp_path / "file", 4096)
    reader = disk.open(tmp_path / "file", writable=False)
    writer.reserve(0, 4096)
    writer.buffer[0:2] = b"hi"
    writer.wrote(0, 2)
    assert bytes(reader.buffer[0:2]) == b"hi"
    writer.close()
    assert bytes(reader.buffer[0:2]) == b"hi"
    reader.close()


def test_a_mapping_cannot_grow_or_shrink(disk: Disk, tmp_path: Path) -> None:
    file = disk.create(tmp_path / "file", 8)
    with pytest.raises((IndexError, ValueError)):
        file.buffer[0:2] = b"three"
    file.close()


def test_a_closed_file_cannot_be_used_by_mistake(disk: Disk, tmp_path: Path) -> None:
    file = disk.create(tmp_path / "file", 8)
    file.close()
    with pytest.raises(ValueError, match="closed"):
        file.buffer[0]


def test_a_view_outlives_the_file_that_it_was_taken_from(disk: Disk, tmp_path: Path) -> None:
    path = tmp_path / "file"
    file = disk.create(path, 4096)
    file.reserve(0, 4096)
    file.buffer[0:4] = b"kept"
    file.wrote(0, 4)
    view = memoryview(file.buffer)[0:4]
    disk.remove(path)
    file.close()
    assert view.tobytes() == b"kept"
    assert disk.read(path) is None
    view.release()


def test_folders_list_their_entries_by_name(disk: Disk, tmp_path: Path) -> None:
    assert disk.entries(tmp_path / "nowhere") == []
    for name in ("b", "a", "c/d"):
        disk.create(tmp_path / "folder" / name, 7).close()
    found = [(entry.name, entry.is_folder) for entry in disk.entries(tmp_path / "folder")]
    assert found == [("a", False), ("b", False), ("c", True)]
    assert disk.entries(tmp_path / "folder")[0].size == 7


def test_removing_takes_files_and_empty_folders_and_nothing_else(disk: Disk, tmp_path: Path) -> None:
    disk.create(tmp_path / "folder" / "file", 7).close()
    with pytest.raises(OSError, match="not empty"):
        disk.remove(tmp_path / "folder")
    disk.remove(tmp_path / "folder" / "file")
    disk.remove(tmp_path / "folder" / "file")
    disk.remove(tmp_path / "folder")
    assert disk.entries(tmp_path) == []


def test_what_is_not_there_cannot_be_opened_and_what_is_cannot_be_created(disk: Disk, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        disk.open(tmp_path / "file")
    with pytest.raises(FileNotFoundError):
        disk.sync_folder(tmp_path / "folder")
    file = disk.create(tmp_path / "file", 7)
    with pytest.raises(FileExistsError):
        disk.create(tmp_path / "file", 7)
    disk.remove(tmp_path / "file")
    with pytest.raises(FileNotFoundError):
        file.sync()
    file.close()


def test_replacing_keeps_the_previous_content_beside_it(disk: Disk, tmp_path: Path) -> None:
    path = tmp_path / "config" / "topics.json"
    assert disk.read(path) is None
    disk.replace(path, b"one")
    disk.replace(path, b"")
    disk.replace(path, b"three")
    assert disk.read(path) == b"three"
    assert disk.read(path.with_name("topics.json.bak")) == b""
    assert [entry.name for entry in disk.entries(path.parent)] == ["topics.json", "topics.json.bak"]


def test_usage_is_known_for_what_is_there(disk: Disk, tmp_path: Path) -> None:
    disk.create(tmp_path / "folder" / "file", 7).close()
    usage = disk.usage(tmp_path / "folder")
    assert usage is not None
    assert usage.total >= usage.used + usage.usable > 0
    assert disk.usage(tmp_path / "nowhere") is None


def test_a_lock_leaves_its_file_behind_and_can_be_had_again(disk: Disk, tmp_path: Path) -> None:
    lock = disk.lock(tmp_path / "lock")
    assert lock is not None
    assert disk.read(tmp_path / "lock") == b"lock"
    lock.release()
    again = disk.lock(tmp_path / "lock")
    assert again is not None
    again.release()
