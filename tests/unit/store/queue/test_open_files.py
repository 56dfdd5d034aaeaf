"""Queues of which more are there than may be mapped."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from cometmq.ports.disk import Disk, SystemDisk
from cometmq.store.queue.consume_queues import ConsumeQueues
from cometmq.store.queue.files import UNIT_SIZE
from cometmq.testing.simulation.disk import CrashMode, SimulatedDisk
from tests.unit.store.queue.queue_kit import append_extended

QUEUES = 25
MOST = 6
FILE_SIZE = 10 * UNIT_SIZE
SIZE = 100


def queues_of(disk: Disk, root: Path, *, most: int = MOST, ext: bool = False) -> ConsumeQueues:
    return ConsumeQueues(
        disk,
        root / "consumequeue",
        FILE_SIZE,
        ext_folder=root / "ext" if ext else None,
        ext_file_size=1024,
        most_open_files=most,
    )


def put_one_each(queues: ConsumeQueues, number: int) -> None:
    """Write the unit of one offset to every queue."""
    for queue_id in range(QUEUES):
        queue = queues.get("orders", queue_id)
        assert queue.append((number * QUEUES + queue_id) * SIZE, SIZE, 7, number)


def offsets_of(queues: ConsumeQueues, queue_id: int) -> list[int]:
    queue = queues.get("orders", queue_id)
    found = [queue.unit(offset) for offset in range(queue.min_offset, queue.max_offset)]
    return [unit[0] // SIZE for unit in found if unit is not None]


@pytest.fixture(params=["system", "simulated"])
def disk(request: pytest.FixtureRequest) -> Disk:
    return SystemDisk() if request.param == "system" else SimulatedDisk()


def test_queues_are_written_read_synced_and_found_again_with_few_of_them_mapped(
    disk: Disk, tmp_path: Path
) -> None:
    """B7: a store may have more queues than a process may have mappings or descriptors."""
    queues = queues_of(disk, tmp_path)
    for number in range(25):  # three files each
        put_one_each(queues, number)
        assert len(queues.open_files) <= MOST
    for queue_id in range(QUEUES):
        assert offsets_of(queues, queue_id) == [number * QUEUES + queue_id for number in range(25)]
    queues.sync()
    assert all(queue.unsynced == 0 for queue in queues)
    queues.close()

    again = queues_of(disk, tmp_path)
    again.load()
    assert len(again.open_files) <= MOST
    put_one_each(again, 25)
    assert all(len(offsets_of(again, queue_id)) == 26 for queue_id in range(QUEUES))
    again.close()


def test_what_was_not_synced_when_a_file_was_unmapped_is_synced_later(tmp_path: Path) -> None:
    """B5: a sync covers queues that nobody has mapped any more."""
    disk = SimulatedDisk()
    queues = queues_of(disk, tmp_path)
    for number in range(5):
        put_one_each(queues, number)
    queues.sync()
    after = queues_of(disk.crash(CrashMode.DROP), tmp_path)
    after.load(crashed=True)
    assert all(len(offsets_of(after, queue_id)) == 5 for queue_id in range(QUEUES))


def test_retention_and_deletion_reach_queues_that_are_not_mapped(disk: Disk, tmp_path: Path) -> None:
    queues = queues_of(disk, tmp_path)
    for number in range(25):
        put_one_each(queues, number)
    log_start = 15 * QUEUES * SIZE
    for queue in queues:
        queue.erase(queue.detach_expired(log_start))
        assert queue.min_offset == 15
    assert len(queues.open_files) <= MOST
    folder = tmp_path / "consumequeue" / "orders" / "0"
    assert [entry.name for entry in disk.entries(folder)] == [f"{start:020}" for start in (200, 400)]
    queues.destroy("orders", queues.detach_topic("orders"))
    assert disk.entries(tmp_path / "consumequeue") == []
    assert len(queues.open_files) == 0


def test_extensions_are_unmapped_and_mapped_again_too(disk: Disk, tmp_path: Path) -> None:
    queues = queues_of(disk, tmp_path, ext=True)
    for number in range(12):
        for queue_id in range(QUEUES):
            queue = queues.get("orders", queue_id)
            unit = (number * QUEUES + queue_id) * SIZE, SIZE, number
            assert append_extended(queue, unit, number, store_time_ms=number, filter_bits=bytes([queue_id]))
    assert len(queues.open_files) <= MOST
    for queue in queues:
        last = queue.unit(11)
        assert last is not None
        assert queue.ext is not None
        found = queue.ext.get(last[2])
        assert found is not None
        assert found.filter_bits == bytes([queue.queue_id])


def test_a_file_in_use_is_hardly_ever_unmapped(tmp_path: Path) -> None:
    queues = queues_of(SystemDisk(), tmp_path)
    put_one_each(queues, 0)
    busy = queues.get("orders", 0)
    asked = unmapped = 0
    for number in range(1, 9):
        for queue_id in range(1, QUEUES):
            assert busy.unit(0) is not None
            queues.get("orders", queue_id).append((number * QUEUES + queue_id) * SIZE, SIZE, 7, number)
            asked += 1
            unmapped += not busy._files.files[0].is_mapped
    assert unmapped <= asked / (MOST - 1)


def test_only_the_thread_that_writes_unmaps(tmp_path: Path) -> None:
    """Another thread, as that of a scrape, may read; the writing one must not lose a file meanwhile."""
    queues = queues_of(SystemDisk(), tmp_path)
    put_one_each(queues, 0)
    mapped = {queue.queue_id for queue in queues if queue._files.files[0].is_mapped}
    found: list[list[int]] = []
    reader = threading.Thread(target=lambda: found.extend(offsets_of(queues, each) for each in range(QUEUES)))
    reader.start()
    reader.join()
    assert found == [[queue_id] for queue_id in range(QUEUES)]
    assert all(queues.get("orders", queue_id)._files.files[0].is_mapped for queue_id in mapped)
    queues.get("payments", 0).append(QUEUES * SIZE, SIZE, 7, 0)
    assert len(queues.open_files) <= MOST


def test_neither_descriptors_nor_mappings_are_left(tmp_path: Path) -> None:
    def held() -> tuple[int, int]:
        maps = Path("/proc/self/maps").read_text().count(str(tmp_path))
        return len(os.listdir("/proc/self/fd")), maps

    disk = SystemDisk()
    before = held()
    queues = queues_of(disk, tmp_path)
    for number in range(15):
        put_one_each(queues, number)
    assert held()[0] == before[0]
    assert 0 < held()[1] <= MOST
    queues.close()
    assert held() == before


def test_a_file_that_somebody_cut_off_while_it_was_not_mapped_is_an_error(tmp_path: Path) -> None:
    """To read behind the end of a file would kill the process."""
    queues = queues_of(SystemDisk(), tmp_path)
    for number in range(2):
        put_one_each(queues, number)
    queue = next(queue for queue in queues if not queue._files.files[0].is_mapped)
    os.truncate(queue._files.files[0].file.path, 5)
    with pytest.raises(OSError, match="has 5 bytes now, and had 200"):
        queue.unit(0)
