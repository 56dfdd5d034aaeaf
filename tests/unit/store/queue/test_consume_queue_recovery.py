"""What a start makes of the files of a consume queue, and what a cut of the commit log leaves of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.model.errors import StoreError
from cometmq.ports.disk import SystemDisk
from cometmq.store.queue.consume_queue import ConsumeQueue
from cometmq.store.queue.files import UNIT, UNIT_SIZE
from cometmq.testing.simulation.disk import CrashMode, SimulatedDisk, crashes
from tests.unit.store.queue.queue_kit import (
    FILE_SIZE,
    FOLDER,
    RECORD_SIZE,
    UNITS_PER_FILE,
    a_queue,
    offsets_in,
    place_of,
    put,
    unit_of,
)

UNITS = 4 * UNITS_PER_FILE + 3


def a_disk_with(units: int, first: int = 0) -> SimulatedDisk:
    disk = SimulatedDisk()
    queue = a_queue(disk)
    put(queue, *range(first, first + units))
    queue.close()
    return disk


def overwrite(disk: SimulatedDisk, queue_offset: int, unit: bytes) -> None:
    """Change a unit behind the store's back."""
    start = queue_offset * UNIT_SIZE // FILE_SIZE * FILE_SIZE
    file = disk.open(FOLDER / f"{start:020}")
    at = queue_offset * UNIT_SIZE - start
    file.buffer[at : at + len(unit)] = unit
    file.wrote(at, at + len(unit))
    file.close()


@pytest.mark.parametrize("units", range(2 * UNITS_PER_FILE + 2))
def test_a_queue_is_found_again_as_it_was(units: int) -> None:
    """B5: whether its last file is empty, full or in between."""
    queue = a_queue(a_disk_with(units))

    assert offsets_in(queue) == list(range(units))
    assert queue.next_offset == units
    assert queue.max_physical_offset == (place_of(units - 1) + RECORD_SIZE if units else -1)


@pytest.mark.parametrize("lost", range(1, 4))
def test_after_a_crash_a_queue_ends_before_a_file_that_is_missing(lost: int) -> None:
    """B5: files that were removed together may come back one by one."""
    disk = a_disk_with(UNITS)
    disk.remove(FOLDER / f"{lost * FILE_SIZE:020}")
    queue = ConsumeQueue(disk, FOLDER, FILE_SIZE)
    queue.load(crashed=True)

    assert offsets_in(queue) == list(range(lost * UNITS_PER_FILE))
    put(queue, *range(lost * UNITS_PER_FILE, UNITS))
    assert offsets_in(a_queue(disk)) == list(range(UNITS))


@pytest.mark.parametrize("lost", range(4))
def test_after_a_crash_a_queue_ends_before_a_file_that_has_lost_its_size(lost: int) -> None:
    """B5: those behind it may have kept theirs; after an orderly stop somebody else has done that."""
    disk = a_disk_with(UNITS)
    path = FOLDER / f"{lost * FILE_SIZE:020}"
    disk.remove(path)
    disk.create(path, 0).close()
    with pytest.raises(StoreError, match=f"{path.name} has 0 bytes, expected {FILE_SIZE}"):
        a_queue(disk)
    queue = ConsumeQueue(disk, FOLDER, FILE_SIZE)
    queue.load(crashed=True)

    assert offsets_in(queue) == list(range(lost * UNITS_PER_FILE))
    put(queue, *range(lost * UNITS_PER_FILE, UNITS))
    assert offsets_in(a_queue(disk)) == list(range(UNITS))


@pytest.mark.parametrize("broken", range(UNITS - 2 * UNITS_PER_FILE, UNITS))
def test_a_queue_ends_before_a_unit_that_does_not_count(broken: int) -> None:
    """B5: and is written on from there, with nothing of what was behind."""
    disk = a_disk_with(UNITS)
    overwrite(disk, broken, bytes(UNIT_SIZE))
    queue = a_queue(disk)

    assert offsets_in(queue) == list(range(broken))
    put(queue, broken, broken + 1)
    assert offsets_in(queue) == list(range(broken + 2))
    assert offsets_in(a_queue(disk)) == list(range(broken + 2))


def test_only_the_last_three_files_are_looked_through() -> None:
    """B5: so that a start is quick; what is older was on the disk long ago."""
    disk = a_disk_with(UNITS)
    overwrite(disk, UNITS_PER_FILE + 2, bytes(UNIT_SIZE))

    assert a_queue(disk).max_offset == UNITS


def test_an_empty_file_behind_the_end_is_no_trouble() -> None:
    """B5: the crash came when the file was there and its first unit was not."""
    disk = a_disk_with(UNITS_PER_FILE)
    disk.create(FOLDER / f"{FILE_SIZE:020}", FILE_SIZE).close()
    queue = a_queue(disk)
    put(queue, UNITS_PER_FILE)

    assert offsets_in(queue) == list(range(UNITS_PER_FILE + 1))


def test_a_queue_whose_last_files_are_all_empty_ends_in_the_one_before() -> None:
    """B5"""
    disk = a_disk_with(UNITS)
    for queue_offset in range(15, UNITS):
        overwrite(disk, queue_offset, bytes(UNIT_SIZE))
    queue = a_queue(disk)
    assert offsets_in(queue) == list(range(15))
    put(queue, *range(15, UNITS))

    assert offsets_in(queue) == list(range(UNITS))


def test_what_a_start_finds_is_synced_once_more() -> None:
    """B5: after a kill it may be in the system's memory only."""
    queue = a_queue(a_disk_with(15))
    assert queue.unsynced == 15 * UNIT_SIZE
    queue.sync()

    assert queue.unsynced == 0


@given(st.integers(0, UNITS), st.integers(0, 30))
def test_a_cut_of_the_log_leaves_the_units_of_its_records(kept: int, first: int) -> None:
    """B5: at every unit."""
    disk = a_disk_with(UNITS, first)
    queue = a_queue(disk)
    queue.truncate(place_of(first + kept))

    assert offsets_in(queue) == list(range(first, first + kept))
    assert queue.next_offset == queue.max_offset == first + kept
    assert queue.max_physical_offset == (place_of(first + kept - 1) + RECORD_SIZE if kept else -1)
    assert offsets_in(a_queue(disk)) == list(range(first, first + kept))


@given(st.integers(0, UNITS), st.integers(0, 12))
def test_what_was_cut_off_never_comes_back(kept: int, more: int) -> None:
    """B5: not even when the queue is written on only for a little while before the next crash."""
    disk = a_disk_with(UNITS)
    queue = a_queue(disk)
    queue.truncate(place_of(kept))
    put(queue, *range(kept, kept + more))

    assert offsets_in(a_queue(disk)) == list(range(kept + more))


def test_a_cut_between_two_units_keeps_the_record_that_begins_before_it() -> None:
    """B5: where a record begins counts."""
    queue = a_queue(a_disk_with(5))
    queue.truncate(place_of(3) + 1)

    assert offsets_in(queue) == [0, 1, 2, 3]


def test_a_cut_drops_torn_units_that_seem_to_be_before_it() -> None:
    """B5: the records of the last three were lost, and of one unit a part, too."""
    disk = a_disk_with(8)
    overwrite(disk, 6, UNIT.pack(place_of(6) & 0xFF, RECORD_SIZE, 0))
    queue = a_queue(disk)
    queue.truncate(place_of(5), lambda queue_offset, unit: unit == unit_of(queue_offset))

    assert offsets_in(queue) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("queue_offset", [0, 4, 7])
@pytest.mark.parametrize("lost", [slice(0, 8), slice(10, 20), slice(11, 12), slice(15, 20)])
def test_a_torn_unit_is_repaired_when_its_record_is_dispatched_again(queue_offset: int, lost: slice) -> None:
    """B5"""
    disk = a_disk_with(8)
    torn = bytearray(UNIT.pack(*unit_of(queue_offset)))
    torn[lost] = bytes(len(torn[lost]))
    overwrite(disk, queue_offset, bytes(torn))
    queue = a_queue(disk)
    put(queue, *range(9))

    assert offsets_in(queue) == list(range(9))


def test_a_repaired_unit_is_on_the_disk_after_the_next_sync() -> None:
    """B5"""
    disk = a_disk_with(8)
    overwrite(disk, 4, UNIT.pack(place_of(4), RECORD_SIZE, 0))
    queue = a_queue(disk)
    queue.sync()
    put(queue, 4)
    assert queue.unsynced == 4 * UNIT_SIZE
    queue.sync()

    assert offsets_in(a_queue(disk.crash(CrashMode.DROP))) == list(range(8))


def test_a_queue_of_blank_units_only_begins_where_its_first_message_says() -> None:
    """B5: the crash came between the blank units and the first real one."""
    disk = a_disk_with(1, first=25)
    overwrite(disk, 24, bytes(2 * UNIT_SIZE))
    queue = a_queue(disk)
    assert offsets_in(queue) == []
    put(queue, 25, 26)

    assert offsets_in(queue) == [25, 26]
    assert offsets_in(a_queue(disk)) == [25, 26]


def test_a_queue_that_lost_all_its_units_does_not_go_back_to_offset_0() -> None:
    """B5: consumers have offsets that are far on."""
    disk = a_disk_with(UNITS)
    queue = a_queue(disk)
    queue.erase(queue.detach_expired(place_of(UNITS - 1)))
    queue.truncate(0)

    assert queue.min_offset == queue.max_offset == queue.next_offset == 4 * UNITS_PER_FILE
    assert a_queue(disk).next_offset == 4 * UNITS_PER_FILE


@given(st.integers(0, UNITS))
def test_a_queue_begins_with_the_first_message_that_is_in_the_log(start: int) -> None:
    """B5"""
    queue = a_queue(a_disk_with(UNITS))
    queue.correct_min_offset(place_of(start))

    assert offsets_in(queue) == list(range(start, UNITS))


@given(st.integers(0, UNITS), st.integers(0, UNITS))
def test_files_go_when_all_their_messages_are_gone(start: int, later: int) -> None:
    """B5: the last file stays, and with it the offset of the next message."""
    disk = a_disk_with(UNITS)
    queue = a_queue(disk)
    deleted = 0
    for log_start in sorted((start, later)):
        expired = queue.detach_expired(place_of(log_start))
        queue.erase(expired)
        deleted += len(expired)
        expected = min(log_start, UNITS) // UNITS_PER_FILE
        assert deleted == min(expected, UNITS // UNITS_PER_FILE)
        assert len(disk.entries(FOLDER)) == 5 - deleted
        assert offsets_in(queue) == list(range(log_start, UNITS))
    put(queue, UNITS)
    assert queue.max_offset == UNITS + 1


def test_a_queue_on_a_real_disk_is_found_again(tmp_path: Path) -> None:
    """B4"""
    disk = SystemDisk()
    queue = ConsumeQueue(disk, tmp_path / "orders" / "3", FILE_SIZE)
    put(queue, *range(25))
    queue.sync()
    assert queue.unsynced == 0
    queue.close()
    again = ConsumeQueue(disk, tmp_path / "orders" / "3", FILE_SIZE)
    again.load()

    assert (again.topic, again.queue_id) == ("orders", 3)
    assert offsets_in(again) == list(range(25))
    again.destroy()
    assert list((tmp_path / "orders").iterdir()) == []


def test_what_was_synced_survives_every_crash_and_the_rest_is_dispatched_again() -> None:
    """B4: at every point, in every way, with files that come and go; then a second start finds the same."""
    synced: list[int] = []

    def work(disk: SimulatedDisk) -> None:
        synced.clear()
        queue = a_queue(disk, units_per_file=30)
        for queue_offset in range(3, 70):
            put(queue, queue_offset)
            if queue_offset % 11 == 0:
                queue.sync()
                synced.append(queue_offset)

    def disk_for(point: int | None) -> SimulatedDisk:
        return SimulatedDisk(point or 0, stop_at=point)

    for _, mode, after in crashes(work, disk_for, list(CrashMode)):
        queue = a_queue(after, units_per_file=30)
        assert queue.max_offset > (synced[-1] if synced else -1), mode
        for queue_offset in range(3, 71):
            queue.append(*unit_of(queue_offset), queue_offset)
        assert offsets_in(queue) == list(range(3, 71)), mode
        queue.close()
        assert offsets_in(a_queue(after, units_per_file=30)) == list(range(3, 71)), mode


def test_a_unit_of_which_a_crash_took_the_second_page_is_repaired_where_there_is_room(tmp_path: Path) -> None:
    """B5: the rest of the unit lies in a hole, and to write there without room would kill the process."""
    units = [UNIT.pack(*unit_of(offset)) for offset in range(205)]
    size = 600 * UNIT_SIZE
    torn = b"".join(units)[:4096].ljust(size, b"\0")  # of the last unit, 16 bytes are before the page ends
    path = tmp_path / "orders" / "3" / f"{0:020}"
    path.parent.mkdir(parents=True)
    path.write_bytes(torn)
    disk = SimulatedDisk()
    disk.load_from(tmp_path, FOLDER.parents[1])
    queue = a_queue(disk, units_per_file=600)
    assert queue.max_offset == 205
    put(queue, 204)
    assert queue.unit(204) == unit_of(204)
