"""All queues of a store."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cometmq.ports.disk import SystemDisk
from cometmq.store.parallel_sync import ParallelSync
from cometmq.store.queue.consume_queues import ConsumeQueues
from cometmq.testing.simulation.disk import CrashMode, SimulatedDisk
from tests.unit.store.queue.queue_kit import append_extended

FOLDER = Path("/store/consumequeue")
EXT_FOLDER = Path("/store/consumequeue_ext")


def some_queues(disk: SimulatedDisk, *, file_size: int = 200) -> ConsumeQueues:
    queues = ConsumeQueues(disk, FOLDER, file_size)
    queues.load()
    return queues


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


@pytest.fixture
def queues(disk: SimulatedDisk) -> ConsumeQueues:
    """Two topics, three queues, with records of 100 bytes in the order of the lines."""
    queues = some_queues(disk)
    queues.get("orders", 0).append(0, 100, 1, 0)
    queues.get("orders", 10).append(100, 100, 2, 0)
    queues.get("%RETRY%billing", 0).append(200, 100, 3, 0)
    queues.get("orders", 0).append(300, 100, 4, 1)
    return queues


def test_a_queue_comes_into_being_when_it_is_asked_for(disk: SimulatedDisk) -> None:
    """B4"""
    queues = some_queues(disk)
    assert queues.find("orders", 2) is None
    queue = queues.get("orders", 2)

    assert queues.get("orders", 2) is queue is queues.find("orders", 2)
    assert (queue.topic, queue.queue_id) == ("orders", 2)
    assert queues.find("orders", 3) is None
    assert disk.entries(FOLDER) == []


def test_all_queues_are_found_again_with_their_next_offsets(
    disk: SimulatedDisk, queues: ConsumeQueues
) -> None:
    """B5"""
    again = some_queues(disk)

    assert {(queue.topic, queue.queue_id): queue.next_offset for queue in again} == {
        ("orders", 0): 2,
        ("orders", 10): 1,
        ("%RETRY%billing", 0): 1,
    }
    assert len(again) == 3
    assert again.max_physical_offset == 400
    assert sorted(again.topics()) == ["%RETRY%billing", "orders"]
    assert [queue.queue_id for queue in again.of_topic("orders")] == [0, 10]
    assert again.of_topic("unknown") == []


def test_without_queues_no_record_is_known_to_have_a_unit(disk: SimulatedDisk) -> None:
    """B5"""
    assert some_queues(disk).max_physical_offset == -1


def test_next_offsets_follow_from_the_units(queues: ConsumeQueues) -> None:
    """B5: after a recovery has dispatched what was missing."""
    queues.get("orders", 10).append(400, 100, 5, 1)
    assert queues.get("orders", 10).next_offset == 0
    queues.reset_next_offsets()

    assert [queue.next_offset for queue in queues.of_topic("orders")] == [2, 2]


def test_folders_that_are_no_queues_are_left_alone(disk: SimulatedDisk, queues: ConsumeQueues) -> None:
    """B4"""
    for name in ("CURRENT", "orders/notes", "orders/007/00000000000000000000", "orders/x/file"):
        disk.create(FOLDER / name, 200).close()

    assert len(some_queues(disk)) == 3


def test_a_cut_of_the_log_reaches_every_queue(queues: ConsumeQueues) -> None:
    """B5"""
    queues.truncate(200)

    assert {(queue.topic, queue.queue_id): queue.max_offset for queue in queues} == {
        ("orders", 0): 1,
        ("orders", 10): 1,
        ("%RETRY%billing", 0): 0,
    }


def test_the_check_of_a_unit_knows_its_queue(queues: ConsumeQueues) -> None:
    """B5"""
    queues.truncate(1000, lambda queue, queue_offset, unit: queue.queue_id == 10)

    assert [queue.max_offset for queue in queues.of_topic("orders")] == [0, 1]


def test_every_queue_begins_with_its_first_message_in_the_log(queues: ConsumeQueues) -> None:
    """B5"""
    queues.correct_min_offsets(150)

    assert [queue.min_offset for queue in queues.of_topic("orders")] == [1, 1]
    assert [queue.min_offset for queue in queues.of_topic("%RETRY%billing")] == [0]


def test_a_sync_with_a_threshold_leaves_out_queues_with_little_to_write(disk: SimulatedDisk) -> None:
    """B5"""
    queues = some_queues(disk, file_size=100_000)
    for offset in range(500):
        queues.get("busy", 0).append(offset * 100, 100, 0, offset)
    queues.get("idle", 0).append(100_000, 100, 0, 0)
    queues.sync(least_pages=2)

    assert [queues.get(topic, 0).unsynced for topic in ("busy", "idle")] == [0, 20]
    queues.sync()
    assert queues.get("idle", 0).unsynced == 0


def folders_synced(disk: SimulatedDisk, queues: ConsumeQueues) -> list[Path]:
    """Sync, and tell which folders that took."""
    points: list[str] = []
    disk.on_point(points.append)
    queues.sync()
    disk.on_point(None)
    return sorted(Path(point.split()[-1]) for point in points if point.startswith("sync_folder ends"))


def test_a_sync_takes_every_new_file_and_each_folder_once(disk: SimulatedDisk, queues: ConsumeQueues) -> None:
    """B5: however many queues a topic has, and topics there are."""
    orders, retries = FOLDER / "orders", FOLDER / "%RETRY%billing"
    assert folders_synced(disk, queues) == sorted(
        [FOLDER, orders, orders / "0", orders / "10", retries, retries / "0"]
    )
    assert [queue.unsynced for queue in queues] == [0, 0, 0]

    again = some_queues(disk.crash(CrashMode.DROP))
    assert {(queue.topic, queue.queue_id): queue.max_offset for queue in again} == {
        ("orders", 0): 2,
        ("orders", 10): 1,
        ("%RETRY%billing", 0): 1,
    }


def test_a_sync_leaves_alone_what_is_on_the_disk(disk: SimulatedDisk, queues: ConsumeQueues) -> None:
    """B5"""
    queues.sync()
    points = disk.points
    queues.sync()
    assert disk.points == points

    queues.get("orders", 10).append(400, 100, 5, 1)
    assert folders_synced(disk, queues) == []
    assert some_queues(disk.crash(CrashMode.DROP)).get("orders", 10).max_offset == 2


@pytest.mark.parametrize("folder", [FOLDER, FOLDER / "orders", FOLDER / "orders" / "10"])
def test_names_that_could_not_be_synced_are_synced_the_next_time(
    disk: SimulatedDisk, queues: ConsumeQueues, folder: Path
) -> None:
    """B5"""
    disk.fail("sync_folder", folder, times=1)
    with pytest.raises(OSError, match=str(folder)):
        queues.sync()
    assert sum(queue.unsynced for queue in queues) > 0

    assert folder in folders_synced(disk, queues)
    assert [queue.unsynced for queue in queues] == [0, 0, 0]


def test_queues_that_are_synced_side_by_side_are_all_on_the_disk(disk: SimulatedDisk) -> None:
    """B5"""
    workers = ParallelSync([ThreadPoolExecutor(1) for _ in range(3)])
    queues = ConsumeQueues(disk, FOLDER, 200, parallel_sync=workers)
    for number in range(20):
        queues.get(f"topic-{number % 5}", number // 5).append(number * 100, 100, 0, 0)
    folders = folders_synced(disk, queues)
    workers.dismiss()

    assert len(folders) == len(set(folders)) == 20 + 5 + 1
    assert sum(queue.max_offset for queue in some_queues(disk.crash(CrashMode.DROP))) == 20


def test_a_deleted_topic_is_gone_from_memory_and_disk(disk: SimulatedDisk, queues: ConsumeQueues) -> None:
    """B4"""
    queues.destroy("orders", queues.detach_topic("orders"))

    assert queues.topics() == ["%RETRY%billing"]
    assert [entry.name for entry in disk.entries(FOLDER)] == ["%RETRY%billing"]
    assert queues.get("orders", 0).max_offset == 0
    queues.destroy_all()
    assert disk.entries(FOLDER) == []


def test_with_extensions_each_queue_has_its_own(disk: SimulatedDisk) -> None:
    """B8"""
    queues = ConsumeQueues(disk, FOLDER, 200, ext_folder=EXT_FOLDER, ext_file_size=1024)
    append_extended(queues.get("orders", 1), (0, 100, 7), 0, store_time_ms=5, filter_bits=b"\x80")
    queues.sync()
    queues.close()

    again = ConsumeQueues(disk, FOLDER, 200, ext_folder=EXT_FOLDER, ext_file_size=1024)
    again.load()
    queue = again.get("orders", 1)
    assert queue.ext is not None
    ((_, _, code),) = queue.units(0, 1)
    found = queue.ext.get(code)
    assert found is not None
    assert (found.tags_code, found.filter_bits) == (7, b"\x80")
    again.destroy_all()
    assert disk.entries(EXT_FOLDER) == []


def test_many_queues_are_opened_on_a_real_disk(tmp_path: Path) -> None:
    """B4"""
    queues = ConsumeQueues(SystemDisk(), tmp_path, 6_000_000)
    for number in range(200):
        queues.get(f"topic-{number % 25}", number // 25).append(number * 100, 100, 0, 0)
    queues.close()
    again = ConsumeQueues(SystemDisk(), tmp_path, 6_000_000)
    again.load()

    assert sum(queue.max_offset for queue in again) == 200
    again.close()
