"""Finding single messages: by place, time, key and unique key (B4, B10)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cometmq.store.queue.consume_queue import Boundary
from cometmq.store.read.lookup import MessageLookup
from cometmq.wire.record.codec import decode_record
from tests.unit.store.log_kit import START_MS
from tests.unit.store.small_store import SmallStore

EVER = 2**63 - 1


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SmallStore]:
    small = SmallStore(tmp_path)
    yield small
    small.close()


def lookup_in(store: SmallStore) -> MessageLookup:
    return MessageLookup(store.log, store.queues, store.index, store.config)


def offsets_of(records: list[memoryview]) -> list[int]:
    return [decode_record(record).physical_offset for record in records]


def test_a_message_is_found_at_its_place_and_nowhere_else(store: SmallStore) -> None:
    """B4"""
    record = store.put(body=b"one")
    found = lookup_in(store).at(record.physical_offset)

    assert found is not None
    assert bytes(decode_record(found).body) == b"one"
    for place in (record.physical_offset + 1, record.total_size, 10**9, -1):
        assert lookup_in(store).at(place) is None


def test_every_key_finds_its_messages_in_the_order_of_the_log(store: SmallStore) -> None:
    """B10"""
    first = store.put(KEYS="a b", UNIQ_KEY="U1")
    second = store.put(KEYS="b", UNIQ_KEY="U2")
    lookup = lookup_in(store)

    for key, expected in (("a", [first]), ("b", [first, second]), ("U2", [second]), ("c", [])):
        result = lookup.query("orders", key, 10, 0, EVER)
        assert offsets_of(result.records) == [record.physical_offset for record in expected]
        assert result.size == sum(record.total_size for record in expected)
    assert lookup.query("payments", "a", 10, 0, EVER).records == []
    result = lookup.query("orders", "b", 10, 0, EVER)
    assert (result.index_last_offset, result.index_last_time_ms) == (
        second.physical_offset,
        second.store_timestamp_ms,
    )


def test_a_query_names_the_newest_and_no_more_than_may_be_asked_for(tmp_path: Path) -> None:
    store = SmallStore(tmp_path, max_msgs_num_batch=4, default_query_max_num=3)
    places = [store.put(KEYS="same").physical_offset for _ in range(8)]
    lookup = lookup_in(store)

    assert offsets_of(lookup.query("orders", "same", 2, 0, EVER).records) == places[-2:]
    assert offsets_of(lookup.query("orders", "same", 100, 0, EVER).records) == places[-4:]
    assert offsets_of(lookup.query("orders", "same", 1, 0, EVER, unique=True).records) == places[-3:]
    store.close()


def test_a_message_that_is_gone_from_the_log_is_not_found_by_key(store: SmallStore) -> None:
    for _ in range(6):
        store.put(body=bytes(1500), KEYS="big")
    first = store.log.detach_first()
    assert first is not None
    result = lookup_in(store).query("orders", "big", 10, 0, EVER)

    assert len(result.records) == 4
    assert lookup_in(store).earliest() == START_MS + 3
    store.log.erase(first)


def test_offsets_are_found_by_time(store: SmallStore) -> None:
    """B4"""
    for _ in range(5):
        store.put()
        store.clock.advance(9)
    lookup = lookup_in(store)

    assert lookup.offset_by_time("orders", 0, START_MS + 21) == 2
    assert lookup.offset_by_time("orders", 0, START_MS + 22) == 3
    assert lookup.offset_by_time("orders", 0, START_MS + 22, Boundary.UPPER) == 2
    assert lookup.offset_by_time("orders", 0, EVER) == 5
    assert lookup.offset_by_time("nothing", 0, START_MS) == 0


def test_times_of_messages_and_of_what_is_not_there(store: SmallStore) -> None:
    lookup = lookup_in(store)
    assert lookup.earliest() == -1
    assert lookup.store_time("orders", 0, 0) == -1

    first, second = store.put(), store.put()
    assert lookup.earliest() == first.store_timestamp_ms
    assert lookup.store_time("orders", 0, 0) == first.store_timestamp_ms
    assert lookup.store_time("orders", 0, 1) == second.store_timestamp_ms
    assert lookup.store_time("orders", 0, 2) == -1
    assert lookup.store_time("nothing", 0, 0) == -1
