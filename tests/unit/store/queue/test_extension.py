"""Extensions of queue units."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.store.queue.consume_queue import ConsumeQueue
from cometmq.store.queue.extension import MAX_UNIT_SIZE, ConsumeQueueExt, ExtUnit, is_ext_address
from cometmq.testing.simulation.disk import CrashMode, SimulatedDisk, crashes
from tests.unit.store.queue.queue_kit import FILE_SIZE, FOLDER, RECORD_SIZE, append_extended, place_of

EXT_FOLDER = Path("/store/consumequeue_ext/orders/3")
EXT_FILE_SIZE = 256
FIRST_ADDRESS = -(2**63)


def an_ext(disk: SimulatedDisk, file_size: int = EXT_FILE_SIZE) -> ConsumeQueueExt:
    return ConsumeQueueExt(disk, EXT_FOLDER, file_size)


def a_queue_with_ext(disk: SimulatedDisk) -> ConsumeQueue:
    queue = ConsumeQueue(disk, FOLDER, FILE_SIZE, ext=an_ext(disk))
    queue.load()
    return queue


def put(queue: ConsumeQueue, *queue_offsets: int) -> None:
    for offset in queue_offsets:
        unit = (place_of(offset), RECORD_SIZE, offset)
        append_extended(queue, unit, offset, store_time_ms=1000 + offset, filter_bits=bytes([offset]) * 4)


def extensions(queue: ConsumeQueue) -> list[ExtUnit | None]:
    assert queue.ext is not None
    return [
        queue.ext.get(code)
        for offset in range(queue.min_offset, queue.max_offset)
        for _, _, code in queue.units(offset, 1)
    ]


def extension(offset: int) -> ExtUnit:
    return ExtUnit(offset, 1000 + offset, bytes([offset]) * 4)


def names(disk: SimulatedDisk) -> list[int]:
    return [int(entry.name) for entry in disk.entries(EXT_FOLDER)]


def content(disk: SimulatedDisk, start: int = 0) -> bytes:
    data = disk.read(EXT_FOLDER / f"{start:020}")
    assert data is not None
    return data


def test_no_hash_of_tags_is_taken_for_an_address() -> None:
    """B8"""
    assert not is_ext_address(-(2**31))
    assert not is_ext_address(0)
    assert is_ext_address(-(2**31) - 1)
    assert is_ext_address(FIRST_ADDRESS)


def test_a_unit_has_size_tags_code_store_time_and_bits() -> None:
    """B8"""
    disk = SimulatedDisk()
    ext = an_ext(disk)

    assert ext.put(-7, 0x0102, b"\xaa\xbb") == FIRST_ADDRESS
    assert ext.put(1, 2, b"") == FIRST_ADDRESS + 22
    written = bytes.fromhex("0016 fffffffffffffff9 0000000000000102 0002 aabb0014 0000000000000001")
    assert content(disk).startswith(written)
    assert ext.get(FIRST_ADDRESS) == ExtUnit(-7, 0x0102, b"\xaa\xbb")
    assert ext.get(FIRST_ADDRESS + 22) == ExtUnit(1, 2, b"")


def test_a_unit_leaves_four_bytes_free_and_the_end_of_a_file_is_marked() -> None:
    """B8"""
    disk = SimulatedDisk()
    ext = an_ext(disk, file_size=64)

    assert ext.put(1, 1, bytes(40)) == FIRST_ADDRESS
    assert ext.put(1, 1, b"") == FIRST_ADDRESS + 64
    assert content(disk)[60:] == b"\xff\xff\x00\x00"
    assert names(disk) == [0, 64]
    assert ext.get(FIRST_ADDRESS + 60) is None


@pytest.mark.parametrize("length", [MAX_UNIT_SIZE - 19, 100_000])
def test_bits_that_are_too_long_have_no_extension(length: int) -> None:
    """B8: the unit of the queue has the tags code then."""
    ext = an_ext(SimulatedDisk(), file_size=200_000)

    assert ext.put(1, 1, bytes(length)) is None
    assert ext.put(1, 1, bytes(MAX_UNIT_SIZE - 20)) == FIRST_ADDRESS


def test_an_address_without_extension_gives_none() -> None:
    """B8"""
    ext = an_ext(SimulatedDisk())
    ext.put(1, 1, b"")

    assert [ext.get(address) for address in (0, 5, FIRST_ADDRESS + 20, FIRST_ADDRESS + 10**6)] == [None] * 4


@given(st.integers(0, 40), st.integers(0, 40))
def test_extensions_are_found_again_and_cut_with_the_queue(units: int, kept: int) -> None:
    """B5"""
    disk = SimulatedDisk()
    put(a_queue_with_ext(disk), *range(units))
    kept = min(units, kept)
    queue = a_queue_with_ext(disk)
    assert extensions(queue) == [extension(offset) for offset in range(units)]
    queue.truncate(place_of(kept))
    put(queue, *range(kept, kept + 3))

    again = a_queue_with_ext(disk)
    assert extensions(again) == [extension(offset) for offset in range(kept + 3)]
    assert names(disk)[-1] == (kept + 2) // 10 * EXT_FILE_SIZE  # ten units of 24 bytes a file


def test_a_message_that_is_dispatched_again_takes_no_second_extension() -> None:
    """B5"""
    disk = SimulatedDisk()
    queue = a_queue_with_ext(disk)
    put(queue, 0, 1)
    before = content(disk)
    put(queue, 0, 1)

    assert content(disk) == before


def test_extensions_go_with_the_messages_that_they_belong_to() -> None:
    """B5"""
    disk = SimulatedDisk()
    queue = a_queue_with_ext(disk)
    put(queue, *range(35))
    queue.erase(queue.detach_expired(place_of(22)))

    assert names(disk) == [2 * EXT_FILE_SIZE, 3 * EXT_FILE_SIZE]
    assert extensions(queue) == [extension(offset) for offset in range(22, 35)]


def test_after_every_crash_an_extension_is_right_or_missing() -> None:
    """B5: filter bits of another message would hide this one."""

    def work(disk: SimulatedDisk) -> None:
        queue = a_queue_with_ext(disk)
        for offset in range(25):
            put(queue, offset)
            if offset % 7 == 0:
                queue.sync()

    def disk_for(point: int | None) -> SimulatedDisk:
        return SimulatedDisk(point or 0, stop_at=point)

    modes = [CrashMode.DROP, CrashMode.KEEP, CrashMode.REORDER]
    for _, mode, after in crashes(work, disk_for, modes):
        queue = a_queue_with_ext(after)
        put(queue, *range(queue.max_offset, 30))
        for offset, found in enumerate(extensions(queue)):
            assert found is None or found == extension(offset), mode
        assert extensions(queue)[-1] == extension(29)
