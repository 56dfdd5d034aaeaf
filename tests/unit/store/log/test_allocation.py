"""Files are made before they are needed, whole, and without stopping whoever appends."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cometmq.store.log.allocation import AllocationError, FileAllocator, touch_pages
from cometmq.store.log.mapped_files import MappedFile, MappedFiles
from cometmq.testing.simulation.disk import CrashMode, Rules, SimulatedDisk
from tests.unit.store.log_kit import InPlace

FOLDER = Path("/store/commitlog")
SIZE = 64 * 1024


@pytest.fixture
def worker() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


def files_on(disk: SimulatedDisk) -> MappedFiles:
    return MappedFiles(disk, FOLDER, SIZE)


def names_on(disk: SimulatedDisk) -> list[str]:
    return [entry.name for entry in disk.entries(FOLDER)]


def hold(disk: SimulatedDisk, go_on: threading.Event) -> None:
    """Let the disk stop at every point until it may go on."""

    def wait(_: str) -> None:
        go_on.wait(10)

    disk.on_point(wait)


def test_a_file_that_is_taken_has_all_its_room_and_is_found_after_any_crash() -> None:
    """B4"""
    disk = SimulatedDisk()
    mapped = FileAllocator(files_on(disk), InPlace()).take(0)

    assert (mapped.start, mapped.wrote, mapped.reserved) == (0, 0, SIZE)
    for mode in CrashMode:
        loaded = files_on(disk.crash(mode))
        loaded.load()
        assert [found.size for found in loaded.files] == [SIZE]


def test_a_prepared_file_is_made_elsewhere_and_taken_without_making_another(
    worker: ThreadPoolExecutor,
) -> None:
    """B4"""
    disk, makers = SimulatedDisk(), set[str]()
    disk.on_point(lambda _: makers.add(threading.current_thread().name))
    allocator = FileAllocator(files_on(disk), worker)

    allocator.request(SIZE)
    allocator.request(SIZE)
    mapped = allocator.take(SIZE)

    assert mapped.start == SIZE
    assert names_on(disk) == [f"{SIZE:020}"]
    assert threading.current_thread().name not in makers


def test_who_takes_a_file_that_is_not_ready_waits_for_it(worker: ThreadPoolExecutor) -> None:
    disk, go_on = SimulatedDisk(), threading.Event()
    hold(disk, go_on)
    allocator = FileAllocator(files_on(disk), worker)
    allocator.request(0)

    threading.Timer(0.02, go_on.set).start()

    assert allocator.take(0).start == 0
    assert allocator.failure is None


def test_the_wait_has_an_end_and_is_not_repeated_until_a_file_is_ready(worker: ThreadPoolExecutor) -> None:
    """B4: a disk that is stuck stops the event loop once, not once a message."""
    disk, go_on = SimulatedDisk(), threading.Event()
    hold(disk, go_on)
    allocator = FileAllocator(files_on(disk), worker, wait_ms=200)
    with pytest.raises(AllocationError, match="not ready after 200 ms"):
        allocator.take(0)

    begun = time.perf_counter()
    for _ in range(100):
        with pytest.raises(AllocationError, match="not ready after 200 ms"):
            allocator.take(0)
    assert time.perf_counter() - begun < 5  # it would be twenty seconds
    assert allocator.failure is not None

    go_on.set()
    worker.submit(int).result()  # behind the file that is being made
    assert allocator.take(0).start == 0
    assert allocator.failure is None


def test_a_full_disk_is_an_error_that_leaves_no_file_behind(caplog: pytest.LogCaptureFixture) -> None:
    """B4"""
    disk = SimulatedDisk(rules=Rules(capacity=SIZE // 2))
    allocator = FileAllocator(files_on(disk), InPlace())

    for _ in range(3):
        with pytest.raises(AllocationError, match="No space left on device") as caught:
            allocator.take(0)
        assert caught.value.retriable
    assert names_on(disk) == []
    assert len(caplog.records) == 1


def test_a_disk_that_works_again_is_noticed() -> None:
    disk = SimulatedDisk()
    disk.fail("reserve", number=errno.ENOSPC, times=1)
    allocator = FileAllocator(files_on(disk), InPlace())
    with pytest.raises(AllocationError):
        allocator.take(0)

    assert allocator.take(0).start == 0
    assert allocator.failure is None


def test_after_a_failure_the_next_try_is_not_waited_for(worker: ThreadPoolExecutor) -> None:
    disk, go_on = SimulatedDisk(), threading.Event()
    disk.fail("create", number=errno.EROFS, times=1)
    allocator = FileAllocator(files_on(disk), worker, wait_ms=60_000)
    with pytest.raises(AllocationError, match="Read-only"):
        allocator.take(0)

    hold(disk, go_on)
    with pytest.raises(AllocationError, match="Read-only"):
        allocator.take(0)

    go_on.set()
    worker.submit(int).result()
    assert allocator.take(0).start == 0


def test_what_was_made_and_not_used_is_removed_at_the_end(worker: ThreadPoolExecutor) -> None:
    disk = SimulatedDisk()
    allocator = FileAllocator(files_on(disk), worker)
    used = allocator.take(0)
    allocator.request(SIZE)

    allocator.close()

    assert names_on(disk) == [used.file.path.name]


def test_a_file_for_another_place_is_given_up_for_the_wanted_one() -> None:
    disk = SimulatedDisk()
    allocator = FileAllocator(files_on(disk), InPlace())
    allocator.request(5 * SIZE)

    assert allocator.take(SIZE).start == SIZE
    assert names_on(disk) == [f"{SIZE:020}"]


def test_warming_up_touches_every_page_and_leaves_it_empty() -> None:
    """B5"""
    disk, syncs = SimulatedDisk(), list[str]()
    warmed = list[MappedFile]()

    def warm_up(mapped: MappedFile) -> None:
        disk.on_point(lambda point: syncs.append(point) if point.startswith("sync ends") else None)
        touch_pages(mapped, sync_every_pages=64)
        warmed.append(mapped)

    mapped = FileAllocator(MappedFiles(disk, FOLDER, 5 * 64 * 4096 + 100), InPlace(), warm_up=warm_up).take(0)

    assert warmed == [mapped]
    assert mapped.buffer[:] == bytes(mapped.size)
    assert len(syncs) == 7  # one every 64 pages, and one at the end
