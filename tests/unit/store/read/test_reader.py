"""Reading messages of a queue: statuses, next offsets and limits are RocketMQ's in every case (B4)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from cometmq.store.queue.extension import ExtUnit
from cometmq.store.read.reader import GetResult, GetStatus, MessageReader
from cometmq.wire.java_hash import tags_code
from cometmq.wire.record.codec import decode_record
from tests.unit.store.small_store import UNITS_PER_FILE, SmallStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SmallStore]:
    small = SmallStore(tmp_path)
    yield small
    small.close()


class Tagged:
    """Wants messages with one tag, and of these only those whose body begins as given."""

    def __init__(self, tag: str, beginning: bytes = b"") -> None:
        self._code = tags_code(tag)
        self._beginning = beginning
        self.units = 0

    def wants_unit(self, tags_code: int, ext: ExtUnit | None) -> bool:
        self.units += 1
        return tags_code == self._code

    def wants_record(self, record: memoryview) -> bool:
        return bytes(decode_record(record).body).startswith(self._beginning)


def bodies(result: GetResult) -> list[bytes]:
    return [bytes(decode_record(record).body) for record in result.records]


def everything(reader: MessageReader) -> dict[int, bytes]:
    """What a consumer gets that reads on from where each answer tells it to."""
    served: dict[int, bytes] = {}
    offset, max_offset = 0, 1
    while offset < max_offset:
        result = reader.get("orders", 0, offset, 32)
        served |= zip(result.queue_offsets, map(bytes, result.records), strict=True)
        assert result.next_offset > offset
        offset, max_offset = result.next_offset, result.max_offset
    return served


def put_numbers(store: SmallStore, *numbers: int, tag: str = "") -> None:
    for number in numbers:
        if tag:
            store.put(body=b"%d" % number, TAGS=tag)
        else:
            store.put(body=b"%d" % number)


def test_messages_come_from_the_offset_on_in_their_order(store: SmallStore) -> None:
    """B4"""
    put_numbers(store, *range(8))
    result = store.reader().get("orders", 0, 3, 4)

    assert result.status is GetStatus.FOUND
    assert bodies(result) == [b"3", b"4", b"5", b"6"]
    assert list(result.queue_offsets) == [3, 4, 5, 6]
    assert (result.next_offset, result.min_offset, result.max_offset) == (7, 0, 8)
    assert result.size == sum(map(len, result.records))
    assert not result.suggest_pulling_from_slave


def test_records_are_views_of_the_log_and_survive_its_end(tmp_path: Path) -> None:
    store = SmallStore(tmp_path)
    store.put(body=b"still here")
    (record,) = store.reader().get("orders", 0, 0, 1).records
    assert record.obj is store.log.files.files[0].view.obj
    store.log.files.files[0].file.close()

    assert bytes(decode_record(record).body) == b"still here"
    record.release()
    store.close()


@pytest.mark.parametrize(
    ("offset", "status", "next_offset"),
    [
        (3, GetStatus.OFFSET_TOO_SMALL, 5),
        (8, GetStatus.OFFSET_OVERFLOW_ONE, 8),
        (9, GetStatus.OFFSET_OVERFLOW_BADLY, 8),
        (10**12, GetStatus.OFFSET_OVERFLOW_BADLY, 8),
        (-1, GetStatus.OFFSET_TOO_SMALL, 5),
    ],
)
def test_an_offset_outside_the_queue_is_corrected(
    store: SmallStore, offset: int, status: GetStatus, next_offset: int
) -> None:
    put_numbers(store, *range(8))
    store.queues.get("orders", 0).min_offset = 5
    result = store.reader().get("orders", 0, offset, 32)

    assert (result.status, result.next_offset) == (status, next_offset)
    assert (result.min_offset, result.max_offset) == (5, 8)
    assert not result.records


def test_an_empty_queue_and_none_at_all_look_the_same(store: SmallStore) -> None:
    store.queues.get("orders", 7)
    for queue_id in (7, 8):
        result = store.reader().get("orders", queue_id, 12, 32)
        assert (result.status, result.next_offset) == (GetStatus.NO_MESSAGE_IN_QUEUE, 0)
    assert store.queues.find("orders", 8) is None


def test_a_replica_leaves_offsets_as_they_are_unless_told(tmp_path: Path) -> None:
    for checks, next_offset in ((False, 9), (True, 2)):
        folder = tmp_path / str(checks)
        store = SmallStore(folder, broker_role="SLAVE", offset_check_in_slave=checks)
        put_numbers(store, 0, 1)
        result = store.reader().get("orders", 0, 9, 32)
        assert (result.status, result.next_offset) == (GetStatus.OFFSET_OVERFLOW_BADLY, next_offset)
        store.close()


def test_a_read_ends_with_the_queue_file_and_the_next_goes_on_in_the_next(store: SmallStore) -> None:
    put_numbers(store, *range(UNITS_PER_FILE + 3))
    first = store.reader().get("orders", 0, 2, 32)
    second = store.reader().get("orders", 0, first.next_offset, 32)

    assert first.next_offset == UNITS_PER_FILE
    assert bodies(first) + bodies(second) == [b"%d" % number for number in range(2, UNITS_PER_FILE + 3)]


def test_messages_of_several_log_files_come_in_one_read(store: SmallStore) -> None:
    for _ in range(6):
        store.put(body=bytes(1500))
    result = store.reader().get("orders", 0, 0, 32)

    assert len(store.log.files.files) == 3
    assert [record.obj for record in result.records] == [
        mapped.view.obj for mapped in store.log.files.files for _ in range(2)
    ]


@pytest.mark.parametrize("check_crc", [False, True])
def test_a_read_stops_at_the_number_of_messages_and_bytes(tmp_path: Path, check_crc: bool) -> None:
    store = SmallStore(
        tmp_path,
        mapped_file_size_consume_queue=2000,
        max_transfer_count_on_message_in_memory=7,
        max_transfer_bytes_on_message_in_memory=600,
    )
    size = store.put(body=bytes(50)).total_size
    for _ in range(20):
        store.put(body=bytes(50))
    reader = store.reader(check_crc=check_crc)

    assert len(reader.get("orders", 0, 0, 3).records) == 3
    assert len(reader.get("orders", 0, 0, 32).records) == 600 // size
    assert len(reader.get("orders", 0, 0, 32, max_bytes=3 * size).records) == 3
    assert len(reader.get("orders", 0, 0, 32, max_bytes=3 * size - 1).records) == 2
    for max_count, max_bytes in ((0, 10**6), (32, 0), (-5, -5)):
        assert len(reader.get("orders", 0, 0, max_count, max_bytes=max_bytes).records) == 1
    store.close()


def test_no_more_messages_than_may_be_in_one_answer(tmp_path: Path) -> None:
    store = SmallStore(
        tmp_path, mapped_file_size_consume_queue=2000, max_transfer_count_on_message_in_memory=7
    )
    put_numbers(store, *range(20))

    assert len(store.reader().get("orders", 0, 0, 32).records) == 7
    assert len(store.reader(check_crc=True).get("orders", 0, 0, 32).records) == 7
    store.close()


def test_what_is_far_behind_is_cold_and_comes_in_smaller_parts(tmp_path: Path) -> None:
    store = SmallStore(tmp_path, mapped_file_size_consume_queue=2000, max_transfer_count_on_message_in_disk=3)
    put_numbers(store, *range(20))
    size = store.log.max_offset // 20
    reader = store.reader(memory_bytes=5 * size * 100 // 40 + 100)

    assert reader.cold_ranges("orders", 0, 0, 32)
    assert not reader.cold_ranges("orders", 0, 19, 32)
    assert not reader.cold_ranges("orders", 0, 20, 32)
    assert not reader.cold_ranges("nothing", 0, 0, 32)
    cold, hot = reader.get("orders", 0, 0, 32), reader.get("orders", 0, 16, 32)
    assert (len(cold.records), cold.suggest_pulling_from_slave) == (3, True)
    assert (len(hot.records), hot.suggest_pulling_from_slave) == (4, False)
    store.close()


def test_only_wanted_messages_come_and_the_others_are_passed_over(store: SmallStore) -> None:
    """B4"""
    for number in range(8):
        put_numbers(store, number, tag="even" if number % 2 == 0 else "odd")
    result = store.reader().get("orders", 0, 1, 2, wanted=Tagged("even"))

    assert bodies(result) == [b"2", b"4"]
    assert list(result.queue_offsets) == [2, 4]
    # The unit behind the last one that fits is not looked at as a message, but those before it are.
    assert result.next_offset == 5


def test_nothing_wanted_leads_behind_what_was_looked_at(tmp_path: Path) -> None:
    store = SmallStore(tmp_path, mapped_file_size_consume_queue=2000, max_filter_message_size=100)
    put_numbers(store, *range(12), tag="other")
    wanted = Tagged("mine")
    result = store.reader().get("orders", 0, 1, 2, wanted=wanted)

    assert (result.status, result.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 6)
    assert wanted.units == 5
    assert store.reader().get("orders", 0, 0, 8, wanted=wanted).next_offset == 8
    store.close()


def test_a_filter_may_look_at_the_record(store: SmallStore) -> None:
    put_numbers(store, 1, 2, 10, 3, tag="a")
    result = store.reader().get("orders", 0, 0, 32, wanted=Tagged("a", b"1"))
    assert bodies(result) == [b"1", b"10"]
    nothing = store.reader().get("orders", 0, 0, 32, wanted=Tagged("a", b"x"))
    assert (nothing.status, nothing.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 4)


def test_several_queue_files_are_looked_through_if_so_configured(tmp_path: Path) -> None:
    store = SmallStore(tmp_path, travel_cq_file_num_when_get_message=2)
    put_numbers(store, *range(UNITS_PER_FILE), tag="other")
    put_numbers(store, 77, tag="mine")

    assert bodies(store.reader().get("orders", 0, 0, 32, wanted=Tagged("mine"))) == [b"77"]
    store.close()


def test_messages_whose_log_file_is_gone_are_passed_over(store: SmallStore) -> None:
    """Until the queue's smallest offset follows, as §12 of the format lets it."""
    for _ in range(6):
        store.put(body=bytes(1500))
    first = store.log.detach_first()
    assert first is not None
    some = store.reader().get("orders", 0, 0, 32)
    none = store.reader().get("orders", 0, 0, 32, wanted=Tagged("x"))

    assert (some.status, list(some.queue_offsets), some.next_offset) == (GetStatus.FOUND, [2, 3, 4, 5], 6)
    assert none.status is GetStatus.NO_MATCHED_MESSAGE
    store.log.detach_first()
    gone = store.reader().get("orders", 0, 0, 2)
    assert gone.next_offset == 6
    assert list(gone.queue_offsets) == [4, 5]
    store.log.erase(first)


def test_a_queue_with_nothing_left_in_the_log_says_so(tmp_path: Path) -> None:
    store = SmallStore(tmp_path, max_filter_message_size=40)
    for _ in range(5):
        store.put(body=bytes(1500))
    store.log.detach_first()
    result = store.reader().get("orders", 0, 0, 2)

    assert (result.status, result.next_offset) == (GetStatus.MESSAGE_WAS_REMOVING, 2)
    store.close()


def test_a_queue_file_that_is_gone_leads_to_the_next(store: SmallStore) -> None:
    put_numbers(store, *range(UNITS_PER_FILE + 2))
    queue = store.queues.get("orders", 0)
    queue.detach_expired(store.log.max_offset - 1)
    queue.min_offset = 0
    result = store.reader().get("orders", 0, 3, 32)

    assert (result.status, result.next_offset) == (GetStatus.OFFSET_FOUND_NULL, UNITS_PER_FILE)


def test_no_flipped_bit_of_log_or_queue_makes_a_wrong_message(tmp_path: Path) -> None:
    """B5: what comes is what was stored, or nothing."""
    store = SmallStore(tmp_path, enabled_append_prop_crc=True, mapped_file_size_commit_log=16384)
    for number in range(8):
        store.put(body=bytes(range(number + 1)), TAGS="a")
    (log_file,) = store.log.files.files
    queue_file = store.queues.get("orders", 0)._files.files[0]
    reader = store.reader(check_crc=True)
    right = [bytes(record) for record in reader.get("orders", 0, 0, 32).records]
    assert len(right) == 8
    chance = random.Random(5)
    for _ in range(3000):
        mapped = chance.choice((log_file, queue_file))
        place, bit = chance.randrange(mapped.wrote), 1 << chance.randrange(8)
        mapped.buffer[place] ^= bit
        served = everything(reader)
        assert all(right[offset] == record for offset, record in served.items())
        # The tags in a unit are not looked at here; everything else takes one message and no other.
        is_tags = mapped is queue_file and place % 20 >= 12
        assert len(served) >= (8 if is_tags else 7)
        assert len(served) < 8 or is_tags
        mapped.buffer[place] ^= bit
    store.close()


def test_a_damaged_record_is_not_served_when_checksums_are_checked(store: SmallStore) -> None:
    """B5"""
    places = [store.put(body=b"message %d" % number).physical_offset for number in range(3)]
    store.log.files.files[0].buffer[places[1] + 90] ^= 1
    result = store.reader(check_crc=True).get("orders", 0, 0, 32)

    assert bodies(result) == [b"message 0", b"message 2"]
    assert list(result.queue_offsets) == [0, 2]
