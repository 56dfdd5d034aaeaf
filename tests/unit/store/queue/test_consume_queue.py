"""Writing and reading one consume queue."""

from __future__ import annotations

import errno
import logging
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.store.queue.consume_queue import ConsumeQueue
from cometmq.store.queue.files import BLANK_UNIT, LOST_SIZE, UNIT, UNIT_SIZE
from cometmq.testing.simulation.disk import Rules, SimulatedDisk
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


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


def names(disk: SimulatedDisk) -> list[int]:
    return [int(entry.name) for entry in disk.entries(FOLDER)]


def content(disk: SimulatedDisk, start: int = 0) -> bytes:
    data = disk.read(FOLDER / f"{start:020}")
    assert data is not None
    return data


def test_a_unit_has_offset_size_and_tags_code_in_twenty_bytes(disk: SimulatedDisk) -> None:
    """B4"""
    queue = a_queue(disk)
    queue.append(0x0102, 0x0304, -685785664, 0)

    unit = bytes.fromhex("0000000000000102 00000304 ffffffffd71fbdc0")
    assert content(disk) == unit + bytes(FILE_SIZE - UNIT_SIZE)
    assert (queue.min_offset, queue.max_offset, queue.max_physical_offset) == (0, 1, 0x0102 + 0x0304)


def test_a_new_file_begins_where_the_last_one_is_full(disk: SimulatedDisk) -> None:
    """B4"""
    queue = a_queue(disk)
    put(queue, *range(2 * UNITS_PER_FILE + 1))

    assert names(disk) == [0, FILE_SIZE, 2 * FILE_SIZE]
    assert offsets_in(queue) == list(range(2 * UNITS_PER_FILE + 1))


def test_a_queue_has_no_file_before_its_first_message(disk: SimulatedDisk) -> None:
    """B4"""
    queue = a_queue(disk)

    assert names(disk) == []
    assert (queue.min_offset, queue.max_offset, queue.unit(0)) == (0, 0, None)


def test_a_unit_that_is_there_is_not_written_again(disk: SimulatedDisk) -> None:
    """B5: a recovery dispatches records a second time."""
    queue = a_queue(disk)
    put(queue, *range(15))
    before = content(disk), content(disk, FILE_SIZE)

    assert not any(queue.append(*unit_of(offset), offset) for offset in range(15))
    assert (content(disk), content(disk, FILE_SIZE)) == before
    assert queue.max_offset == 15


def test_another_message_with_an_offset_that_is_taken_is_left_out(disk: SimulatedDisk) -> None:
    """B5"""
    queue = a_queue(disk)
    put(queue, *range(5))

    assert not queue.append(place_of(50), RECORD_SIZE, 0, 3)
    assert offsets_in(queue) == list(range(5))


def test_messages_that_the_log_has_lost_keep_their_places(disk: SimulatedDisk) -> None:
    """B5: so that those behind them keep their offsets."""
    queue = a_queue(disk)
    put(queue, *range(5))
    assert queue.append(place_of(50), RECORD_SIZE, 9, 27)

    assert queue.unit(27) == (place_of(50), RECORD_SIZE, 9)
    end = place_of(4) + RECORD_SIZE
    assert {queue.unit(offset) for offset in range(5, 27)} == {(end, LOST_SIZE, 0)}
    assert (queue.max_offset, queue.max_physical_offset) == (28, place_of(50) + RECORD_SIZE)
    queue.lose_up_to(33)
    assert (queue.max_offset, queue.max_physical_offset) == (33, place_of(50) + RECORD_SIZE)


def test_a_unit_that_should_be_elsewhere_goes_to_the_end_with_an_error(
    disk: SimulatedDisk, caplog: pytest.LogCaptureFixture
) -> None:
    """B5: that is what the peers' queues do with a gap. It is said once."""
    queue = a_queue(disk)
    put(queue, *range(5))
    with caplog.at_level(logging.ERROR):
        assert queue.append(place_of(50), RECORD_SIZE, 9, 7000)
        assert queue.append(place_of(51), RECORD_SIZE, 9, 7001)

    assert len(caplog.messages) == 1
    assert queue.unit(5) == (place_of(50), RECORD_SIZE, 9)
    assert "expected the unit of offset 5 and got that of 7000" in caplog.text


def test_a_later_unit_of_offset_0_begins_the_queue_anew(disk: SimulatedDisk) -> None:
    """B4, B5: its topic was deleted and made again; what is older is not in the queue any more."""
    queue = a_queue(disk)
    put(queue, *range(25))

    assert queue.append(place_of(50), RECORD_SIZE, 9, 0)
    assert queue.append(place_of(51), RECORD_SIZE, 9, 1)
    assert (queue.min_offset, queue.max_offset) == (0, 2)
    assert queue.unit(1) == (place_of(51), RECORD_SIZE, 9)
    assert names(disk) == [0]


def test_a_detached_queue_takes_no_units(disk: SimulatedDisk) -> None:
    """B3: its files are being removed."""
    queue = a_queue(disk)
    put(queue, 0, 1)
    queue.detach()

    assert not queue.append(place_of(2), RECORD_SIZE, 9, 2)
    queue.append_many(2, [place_of(2), place_of(3)], [RECORD_SIZE] * 2, [9] * 2)
    assert queue.max_offset == 2


def test_a_queue_that_begins_in_the_middle_has_blank_units_before(disk: SimulatedDisk) -> None:
    """B4: as on a replica that joined late."""
    queue = a_queue(disk)
    put(queue, 23, 24)

    assert names(disk) == [2 * FILE_SIZE]
    assert content(disk, 2 * FILE_SIZE)[: 4 * UNIT_SIZE] == BLANK_UNIT * 3 + UNIT.pack(*unit_of(23))
    assert (queue.min_offset, queue.max_offset) == (23, 25)
    assert queue.unit(22) is None


def test_a_queue_that_begins_with_a_file_has_no_blank_units(disk: SimulatedDisk) -> None:
    """B4"""
    queue = a_queue(disk)
    put(queue, 20)

    assert names(disk) == [2 * FILE_SIZE]
    assert offsets_in(queue) == [20]


def test_blank_units_are_never_read_after_a_start_either(disk: SimulatedDisk) -> None:
    """B5"""
    put(a_queue(disk), 23, 24)
    queue = a_queue(disk)

    assert offsets_in(queue) == [23, 24]
    assert queue.max_physical_offset == place_of(24) + RECORD_SIZE


def test_a_read_ends_with_the_file_and_with_the_queue(disk: SimulatedDisk) -> None:
    """B8"""
    queue = a_queue(disk)
    put(queue, *range(13))

    assert list(queue.units(2, 3)) == [unit_of(2), unit_of(3), unit_of(4)]
    assert list(queue.units(8, 32)) == [unit_of(8), unit_of(9)]
    assert list(queue.units(11, 32)) == [unit_of(11), unit_of(12)]
    assert bytes(queue.read(12, 1)) == UNIT.pack(*unit_of(12))
    assert [bytes(queue.read(offset, 1)) for offset in (-1, 13, 500)] == [b"", b"", b""]


@given(st.lists(st.integers(0, 25), max_size=8), st.integers(0, 30))
def test_batches_are_written_like_single_units(counts: list[int], first: int) -> None:
    """B6: whatever their lengths and wherever files end."""
    one_by_one, in_batches = SimulatedDisk(), SimulatedDisk()
    singles, batches = a_queue(one_by_one), a_queue(in_batches)
    queue_offset, physical_offset = first, 500
    for count in counts:
        sizes = [90 + index for index in range(count)]
        codes = [index - 3 for index in range(count)]
        starts = list(accumulate(sizes[:-1], initial=physical_offset))
        batches.append_many(queue_offset, starts, sizes, codes)
        for size, code in zip(sizes, codes, strict=True):
            singles.append(physical_offset, size, code, queue_offset)
            physical_offset, queue_offset = physical_offset + size, queue_offset + 1
        physical_offset += 77

    assert names(in_batches) == names(one_by_one)
    assert [content(in_batches, start) for start in names(in_batches)] == [
        content(one_by_one, start) for start in names(one_by_one)
    ]
    assert positions(batches) == positions(singles)


def positions(queue: ConsumeQueue) -> tuple[int, int, int]:
    return queue.min_offset, queue.max_offset, queue.max_physical_offset


def test_a_batch_of_which_a_part_is_there_is_completed(disk: SimulatedDisk) -> None:
    """B5"""
    queue = a_queue(disk)
    put(queue, 0)
    sizes, codes = [50] * 4, [1, 2, 3, 4]
    queue.append(5000, 50, 1, 1)
    queue.append_many(1, [5000, 5050, 5100, 5150], sizes, codes)

    assert list(queue.units(1, 9)) == [(5000 + 50 * n, 50, n + 1) for n in range(4)]


def test_a_batch_of_old_records_is_left_out(disk: SimulatedDisk) -> None:
    """B5"""
    queue = a_queue(disk)
    put(queue, *range(5))
    queue.append_many(5, [0, 50], [50, 50], [1, 2])

    assert offsets_in(queue) == list(range(5))


def test_a_full_disk_is_an_error_and_the_same_unit_can_be_written_later() -> None:
    """B4: room is reserved before it is written."""
    disk = SimulatedDisk(rules=Rules(capacity=8 * 4096))
    queue = a_queue(disk, units_per_file=3000)
    queue_offset = 0
    with pytest.raises(OSError, match=r".") as error:  # noqa: PT012
        while queue_offset < 3000:
            queue.append(*unit_of(queue_offset), queue_offset)
            queue_offset += 1
    assert error.value.errno == errno.ENOSPC
    assert queue.max_offset == queue_offset


def test_a_queue_whose_first_file_cannot_be_made_begins_later(disk: SimulatedDisk) -> None:
    """B4"""
    queue = a_queue(disk)
    disk.fail("reserve", number=errno.ENOSPC)
    with pytest.raises(OSError, match=r"."):
        queue.append(*unit_of(23), 23)
    disk.heal()
    put(queue, 23)

    assert offsets_in(queue) == [23]
