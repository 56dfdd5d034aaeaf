"""Descriptors: what works when none is left, and what holds one."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cometmq.ports import descriptors
from cometmq.ports.descriptors import NotOpenedError, hold_spares, opened
from cometmq.ports.disk import SystemDisk
from cometmq.store.log.mapped_files import MappedFiles

MORE = 40


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """Use up all descriptors but the spare ones."""
    hold_spares()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + MORE, hard))
    taken: list[int] = []
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        for handle in taken:
            os.close(handle)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        hold_spares()


def open_descriptors() -> int:
    gc.collect()  # sockets that earlier tests of this process left to the collector
    return len(os.listdir("/proc/self/fd"))


def test_the_store_works_when_no_descriptor_is_left(tmp_path: Path) -> None:
    """B5: connections cannot use up what a sync, a new file or a folder needs."""
    disk = SystemDisk()
    old = disk.create(tmp_path / "old", 8192)
    with no_descriptor_left():
        old.reserve(0, 8192)
        old.buffer[:3] = b"old"
        old.sync()
        new = disk.create(tmp_path / "folder" / "new", 8192)
        new.reserve(0, 8192)
        new.write_through(0, b"n" * 8192)
        new.sync()
        disk.sync_folder(tmp_path / "folder")
        disk.replace(tmp_path / "table.json", b"{}")
        assert disk.read(tmp_path / "table.json") == b"{}"
        assert [entry.name for entry in disk.entries(tmp_path)] == ["folder", "old", "table.json"]
        assert disk.open(tmp_path / "folder" / "new").buffer[:2] == b"nn"
    assert (tmp_path / "old").read_bytes()[:3] == b"old"


def test_a_file_that_cannot_be_opened_even_so_is_told_apart_from_one_that_cannot_be_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(descriptors, "SPARE_DESCRIPTORS", 0)
    monkeypatch.setattr(descriptors, "_held", [])
    with no_descriptor_left(), pytest.raises(NotOpenedError) as caught:
        SystemDisk().sync_folder(tmp_path)
    assert caught.value.errno == errno.EMFILE
    with pytest.raises(FileNotFoundError), opened(tmp_path / "nowhere", os.O_RDONLY):
        pass


def test_a_mapped_file_holds_no_descriptor(tmp_path: Path) -> None:
    disk = SystemDisk()
    before = open_descriptors()
    files = [disk.create(tmp_path / str(number), 8192, scattered=True) for number in range(50)]
    files += [disk.open(tmp_path / str(number), writable=False) for number in range(50)]
    for file in files[:50]:
        file.reserve(0, 4096)
        file.buffer[:1] = b"x"
        file.sync()
    assert open_descriptors() == before
    assert files[50].buffer[:2] == b"x\0"


def test_a_file_of_the_log_keeps_one_for_its_syncs_until_it_is_full(tmp_path: Path) -> None:
    """B5: a sync with it needs no other, and one without it needs none."""
    before = open_descriptors()
    log = MappedFiles(SystemDisk(), tmp_path, 4096)
    mapped = log.create(0)
    mapped.reserve(4096, 4096)
    for wrote in (100, 200):
        mapped.wrote = wrote
        with no_descriptor_left():
            mapped.sync()
        assert open_descriptors() == before
    mapped.wrote = 300
    mapped.sync()
    assert open_descriptors() == before + 1
    with no_descriptor_left():
        mapped.wrote = 400
        mapped.sync()
    mapped.wrote = mapped.size
    mapped.sync()
    assert open_descriptors() == before


def test_a_mapping_goes_with_its_file(tmp_path: Path) -> None:
    def mappings() -> int:
        return Path("/proc/self/maps").read_text().count(str(tmp_path))

    disk = SystemDisk()
    files = [disk.create(tmp_path / str(number), 8192) for number in range(10)]
    for file in files:
        file.reserve(0, 8192)
    assert mappings() == 10
    view = memoryview(files[0].buffer)[:1]
    for file in files:
        file.close()
    del file
    assert mappings() == 1  # of which somebody holds a view
    view.release()
    files.clear()
    assert mappings() == 0


def test_a_file_whose_place_another_has_taken_cannot_be_synced_as_if_it_were_there(tmp_path: Path) -> None:
    disk = SystemDisk()
    file = disk.create(tmp_path / "file", 4096)
    disk.remove(tmp_path / "file")
    (tmp_path / "other").write_bytes(b"")
    (tmp_path / "other").rename(tmp_path / "file")
    with pytest.raises(FileNotFoundError):
        file.sync()


def test_a_lock_can_be_had_on_a_disk_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    lock = SystemDisk().lock(tmp_path / "lock")
    assert lock is not None
    lock.release()
