"""Pages that are made ready before they are written to."""

from __future__ import annotations

import resource
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cometmq.ports.disk import SystemDisk
from cometmq.ports.mappings import make_writable
from cometmq.store.log.allocation import FileAllocator
from cometmq.store.log.commit_log import CommitLog
from cometmq.store.log.mapped_files import MappedFile, MappedFiles
from cometmq.store.status import PutStatus
from cometmq.testing.clock import VirtualClock
from cometmq.testing.simulation.disk import SimulatedDisk
from tests.unit.store.log_kit import START_MS, InPlace, a_log, config, message

MIB = 1024 * 1024
PAGE = 4096


@pytest.fixture
def worker() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


def faults() -> int:
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt


def test_writing_to_pages_that_are_ready_makes_no_faults(tmp_path: Path) -> None:
    """B4: nor does it change a byte of them."""
    file = SystemDisk().create(tmp_path / "file", 4 * MIB)
    file.reserve(0, file.size)
    file.buffer[MIB + 5 : MIB + 10] = b"hello"
    assert make_writable(file.buffer, MIB + 5, 3 * MIB + 1)
    before = faults()
    for at in range(MIB, 3 * MIB, PAGE):
        file.buffer[at : at + 1] = b"x"
    made = faults() - before

    assert made < 50
    assert file.buffer[MIB : MIB + 12] == b"x\0\0\0\0hello\0\0"
    file.close()


def test_a_file_that_is_closed_or_is_none_is_left_alone(tmp_path: Path) -> None:
    file = SystemDisk().create(tmp_path / "file", MIB)
    file.close()

    assert not make_writable(file.buffer, 0, MIB)
    assert not make_writable(bytearray(MIB), 0, MIB)


def test_one_part_is_made_ready_at_a_time(worker: ThreadPoolExecutor) -> None:
    """B4: what is asked for meanwhile would be too late."""
    go_on = threading.Event()
    mapped = FileAllocator(MappedFiles(SimulatedDisk(), Path("/log"), MIB), InPlace()).take(0)
    allocator = FileAllocator(MappedFiles(SimulatedDisk(), Path("/log"), MIB), worker)
    held = worker.submit(go_on.wait, 10)

    assert allocator.prepare_pages(mapped, 0, PAGE)
    assert not allocator.prepare_pages(mapped, PAGE, 2 * PAGE)
    go_on.set()
    assert held.result()
    worker.submit(int).result()
    assert allocator.prepare_pages(mapped, PAGE, 2 * PAGE)


def grown(tmp_path: Path, step_ms: int, **settings: object) -> CommitLog:
    """A log that a quarter of a MiB was appended to twelve times."""
    clock = VirtualClock(START_MS)
    settings = {"mapped_file_size_commit_log": 32 * MIB, **settings}
    log = a_log(SystemDisk(), clock=clock, settings=config(tmp_path, **settings))
    large = message(b"b" * (MIB // 4))
    for _ in range(12):
        assert log.append(large) is PutStatus.PUT_OK
        clock.advance(step_ms)
    return log


@pytest.mark.parametrize(("step_ms", "is_ready"), [(0, True), (1000, False)])
def test_a_log_that_grows_quickly_has_its_next_pages_made_ready(
    tmp_path: Path, step_ms: int, is_ready: bool
) -> None:
    """B4: one that grows slowly has none written to the disk for nothing."""
    log = grown(tmp_path, step_ms)
    mapped = log.files.files[-1]
    before = faults()
    for at in range(mapped.wrote + PAGE, mapped.wrote + MIB, PAGE):
        mapped.buffer[at : at + 1] = b"\0"
    made = faults() - before

    assert (made < 20) is is_ready
    log.close()


@pytest.mark.parametrize(("step_ms", "is_settled"), [(0, True), (1000, False)])
def test_a_synchronous_log_that_grows_quickly_has_its_next_pages_on_the_disk_already(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step_ms: int, is_settled: bool
) -> None:
    """B5: a sync does not have to tell the file system of new pages then."""
    settled: list[int] = []
    monkeypatch.setattr(MappedFile, "settle", lambda mapped: settled.append(mapped.start))
    log = grown(tmp_path, step_ms, flush_disk_type="SYNC_FLUSH")

    assert (settled != []) is is_settled
    log.close()


def test_a_file_that_could_not_be_settled_cannot_be_synced_either() -> None:
    """B5: the kernel says only once what it could not write."""
    disk = SimulatedDisk()
    mapped = FileAllocator(MappedFiles(disk, Path("/log"), MIB), InPlace()).take(0)
    mapped.settle()
    mapped.sync()
    disk.fail("sync", times=1)
    mapped.settle()

    with pytest.raises(OSError, match="Input/output error"):
        mapped.sync()
