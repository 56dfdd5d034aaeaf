"""Reading in bulk brings the same messages as reading little by little, in fewer and larger pieces (D1)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cometmq.store.read.reader import BulkReader, GetResult, GetStatus
from cometmq.wire.record.codec import Record
from cometmq.wire.record.walk import RecordWalk
from tests.unit.store.small_store import LOG_FILE_SIZE, PLENTY_OF_MEMORY, UNITS_PER_FILE, SmallStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SmallStore]:
    small = SmallStore(tmp_path)
    yield small
    small.close()


def bulk_reader(store: SmallStore, memory_bytes: int = PLENTY_OF_MEMORY) -> BulkReader:
    return BulkReader(store.log, store.queues.find, store.config, memory_bytes)


def messages(result: GetResult) -> list[Record]:
    return list(RecordWalk(b"".join(result.records)))


def read_all(reader: BulkReader, queue_id: int) -> list[bytes]:
    """The bodies of a queue, reading on from where each answer tells."""
    bodies: list[bytes] = []
    offset, end = 0, 1
    while offset < end:
        result = reader.get("orders", queue_id, offset, 4096)
        assert result.status is GetStatus.FOUND
        found = messages(result)
        assert [record.queue_offset for record in found] == list(result.queue_offsets)
        assert result.size == sum(record.total_size for record in found)
        bodies += (bytes(record.body) for record in found)
        offset, end = result.next_offset, result.max_offset
    return bodies


def test_records_next_to_each_other_are_one_piece(store: SmallStore) -> None:
    for number in range(UNITS_PER_FILE - 1):
        store.put(body=b"%d" % number)

    result = bulk_reader(store).get("orders", 0, 2, 5)

    assert len(result.records) == 1
    assert [bytes(record.body) for record in messages(result)] == [b"2", b"3", b"4", b"5", b"6"]
    assert (result.next_offset, list(result.queue_offsets)) == (7, [2, 3, 4, 5, 6])


def test_a_run_ends_where_a_message_of_another_queue_lies_between(store: SmallStore) -> None:
    for queue_id in (0, 0, 0, 0, 1, 0, 0, 0, 0):
        store.put(queue_id=queue_id, body=b"x" * 20)

    result = bulk_reader(store).get("orders", 0, 0, 4096)

    assert [len(list(RecordWalk(piece))) for piece in result.records] == [4, 4]


def test_many_queues_over_many_files_are_read_whole(store: SmallStore) -> None:
    """D1: nothing is left out where log files and queue files end."""
    store.fill(200)
    assert store.log.max_offset > 3 * LOG_FILE_SIZE

    for queue_id in range(3):
        expected = [
            bytes((number + place) % 251 for place in range(40 + number % 50))
            for number in range(queue_id, 200, 3)
        ]
        assert read_all(bulk_reader(store), queue_id) == expected


def test_the_bytes_are_limited_but_a_first_message_always_comes(store: SmallStore) -> None:
    for _ in range(4):
        store.put(body=b"x" * 300)
    size = store.put(body=b"x" * 300).total_size

    assert len(bulk_reader(store).get("orders", 0, 0, 99, max_bytes=2 * size).queue_offsets) == 2
    assert len(bulk_reader(store).get("orders", 0, 0, 99, max_bytes=100).queue_offsets) == 1


@pytest.mark.parametrize(
    ("offset", "status", "next_offset"),
    [(3, GetStatus.OFFSET_OVERFLOW_ONE, 3), (9, GetStatus.OFFSET_OVERFLOW_BADLY, 3)],
)
def test_an_offset_that_is_not_there_is_answered_as_ever(
    store: SmallStore, offset: int, status: GetStatus, next_offset: int
) -> None:
    for _ in range(3):
        store.put()
    result = bulk_reader(store).get("orders", 0, offset, 4096)
    assert (result.status, result.next_offset) == (status, next_offset)


def test_cold_messages_are_fetched_in_few_places_and_none_spans_two_files(store: SmallStore) -> None:
    store.fill(200)
    cold = bulk_reader(store, memory_bytes=0)

    places = cold.cold_ranges("orders", 0, 0, 4096)
    result = cold.get("orders", 0, 0, 4096)

    assert len(places) < len(result.queue_offsets)
    assert result.suggest_pulling_from_slave
    fetched = [(start, start + size) for start, size in places]
    assert all(start // LOG_FILE_SIZE == (end - 1) // LOG_FILE_SIZE for start, end in fetched)
    for record in messages(result):
        end = record.physical_offset + record.total_size
        assert any(start <= record.physical_offset and end <= stop for start, stop in fetched)
