"""What is damaged is never served: it is skipped, counted and logged once, and everything else is served."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from cometmq.ports.disk import SystemDisk
from cometmq.store.message_store import MessageStore
from cometmq.store.read.reader import FRESH_LOOKS, GetStatus
from cometmq.wire.record.codec import Record, decode_record
from tests.unit.store.store_kit import a_message, running, small

COUNT = 40
BAD = 17
"""The offset of the message that is damaged; the one before it is `BAD - 1`, the next one is not."""

Damage = Callable[[MessageStore, Record], None]


async def fill(store: MessageStore) -> dict[tuple[str, int], list[Record]]:
    stored: dict[tuple[str, int], list[Record]] = {}
    for number in range(COUNT):
        for topic, queue_id in (("orders", 0), ("orders", 1), ("bills", 0)):
            body = b"%s-%d-%d " % (topic.encode(), queue_id, number) * 5
            block = b"KEYS\x01k%d\x02TAGS\x01t\x02" % number
            record = a_message(body, topic, queue_id, properties_block=block)
            store.put(record)
            stored.setdefault((topic, queue_id), []).append(record)
    for _ in range(FRESH_LOOKS + 1):  # a minute passes
        store._look_again()
    return stored


def change_log(store: MessageStore, at: int, data: bytes) -> None:
    mapped = store.log.files.at(at)
    assert mapped is not None
    mapped.buffer[at - mapped.start : at - mapped.start + len(data)] = data


def change_entry(store: MessageStore, queue_offset: int, unit: bytes, place: int = 0) -> None:
    """Write into a file of the queue, as somebody else would."""
    size = store.files.queues._file_size
    at = queue_offset * 20 + place
    path = store._config.root / "consumequeue" / "orders" / "0" / f"{at - at % size:020}"
    with path.open("r+b") as file:
        file.seek(at % size)
        file.write(unit)


def flip(store: MessageStore, at: int) -> None:
    view = store.log.view(at, 1)
    assert view is not None
    change_log(store, at, bytes([view[0] ^ 0x55]))


def size(store: MessageStore, bad: Record) -> None:
    flip(store, bad.physical_offset + 3)


def magic(store: MessageStore, bad: Record) -> None:
    flip(store, bad.physical_offset + 5)


def queue_id(store: MessageStore, bad: Record) -> None:
    flip(store, bad.physical_offset + 15)


def queue_offset(store: MessageStore, bad: Record) -> None:
    flip(store, bad.physical_offset + 27)


def physical_offset(store: MessageStore, bad: Record) -> None:
    flip(store, bad.physical_offset + 35)


def body_length(store: MessageStore, bad: Record) -> None:
    flip(store, bad.physical_offset + 87)


def topic(store: MessageStore, bad: Record) -> None:
    flip(store, bad.physical_offset + 88 + len(bad.body) + 3)


def topic_length(store: MessageStore, bad: Record) -> None:
    flip(store, bad.physical_offset + 88 + len(bad.body))


def properties_length(store: MessageStore, bad: Record) -> None:
    flip(store, bad.physical_offset + 88 + len(bad.body) + 1 + len(bad.topic) + 1)


def zeroed_record(store: MessageStore, bad: Record) -> None:
    change_log(store, bad.physical_offset, bytes(bad.total_size))


def blank_record(store: MessageStore, bad: Record) -> None:
    change_log(store, bad.physical_offset, struct.pack(">iI", 4711, 0xCBD43194))


def zeroed_entry(store: MessageStore, _: Record) -> None:
    change_entry(store, BAD, bytes(20))


def entry_beyond_the_log(store: MessageStore, _: Record) -> None:
    change_entry(store, BAD, struct.pack(">qiq", 1 << 40, 200, 0))


def negative_entry(store: MessageStore, _: Record) -> None:
    change_entry(store, BAD, struct.pack(">qiq", -5, 200, 0))


def entry_a_byte_off(store: MessageStore, bad: Record) -> None:
    change_entry(store, BAD, struct.pack(">q", bad.physical_offset + 1))


def entry_of_another_size(store: MessageStore, bad: Record) -> None:
    change_entry(store, BAD, struct.pack(">i", bad.total_size - 7), 8)


def entry_of_the_message_before(store: MessageStore, bad: Record) -> None:
    unit = store.queues.get("orders", 0).read(BAD - 1, 1)
    change_entry(store, BAD, bytes(unit))


def entry_of_another_queue(store: MessageStore, bad: Record) -> None:
    change_entry(store, BAD, bytes(store.queues.get("orders", 1).read(BAD, 1)))


def entry_of_another_topic(store: MessageStore, bad: Record) -> None:
    change_entry(store, BAD, bytes(store.queues.get("bills", 0).read(BAD, 1)))


ALWAYS_FOUND: list[Damage] = [
    size,
    magic,
    queue_id,
    queue_offset,
    physical_offset,
    body_length,
    topic,
    topic_length,
    properties_length,
    zeroed_record,
    blank_record,
    zeroed_entry,
    entry_beyond_the_log,
    negative_entry,
    entry_a_byte_off,
    entry_of_another_size,
    entry_of_the_message_before,
    entry_of_another_queue,
    entry_of_another_topic,
]


def read_all(store: MessageStore, *, at_once: int = 32, bulk: bool = False, **wanted: object) -> list[bytes]:
    """What a consumer of the queue gets; it never asks for an offset twice."""
    reader, offset = (store.bulk_reader if bulk else store.reader), 0
    found: list[bytes] = []
    while True:
        result = reader.get("orders", 0, offset, at_once, **wanted)  # type: ignore[arg-type]
        if result.status is GetStatus.OFFSET_OVERFLOW_ONE:
            return found
        assert result.next_offset > offset
        offset = result.next_offset
        for piece in result.records:
            at = 0
            while at < len(piece):
                record = decode_record(piece, at, check_crc=False)
                found.append(bytes(record.body))
                at += record.total_size


@pytest.mark.parametrize("at_once", [1, 5, 32])
@pytest.mark.parametrize("damage", ALWAYS_FOUND)
async def test_a_damaged_message_is_skipped_and_nothing_else(
    damage: Damage, at_once: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """B5: whatever is damaged of it, in the log or in its queue, while the broker runs."""
    async with running(SystemDisk(), small(tmp_path)) as store:
        stored = (await fill(store))["orders", 0]
        damage(store, stored[BAD])
        right = [bytes(record.body) for record in stored if record is not stored[BAD]]
        for _ in range(3):
            assert read_all(store, at_once=at_once) == right
            assert store.skipped.messages == 1
        await store.keep_up()
        await store.keep_up()
        lines = [line for line in caplog.messages if "cannot be served" in line]
        assert len(lines) == 1
        assert "orders-0: 1 messages from offset 17 to 17" in lines[0]
        caplog.clear()


@pytest.mark.parametrize("damage", [size, magic, queue_offset, zeroed_record, zeroed_entry, entry_a_byte_off])
async def test_bulk_reads_and_filtered_reads_skip_it_too(damage: Damage, tmp_path: Path) -> None:
    """B5"""

    class TagT:
        def wants_unit(self, tags_code: int, ext: object) -> bool:
            return True

        def wants_record(self, record: memoryview) -> bool:
            return True

    async with running(SystemDisk(), small(tmp_path)) as store:
        stored = (await fill(store))["orders", 0]
        damage(store, stored[BAD])
        right = [bytes(record.body) for record in stored if record is not stored[BAD]]
        assert read_all(store, at_once=4096, bulk=True) == right
        assert read_all(store, wanted=TagT()) == right


async def test_a_zeroed_range_of_a_queue_is_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """B5"""
    async with running(SystemDisk(), small(tmp_path)) as store:
        stored = (await fill(store))["orders", 0]
        for offset in range(3, 19):
            change_entry(store, offset, bytes(20))
        assert read_all(store) == [bytes(record.body) for record in stored[:3] + stored[19:]]
        await store.keep_up()
        assert [line for line in caplog.messages if "16 messages from offset 3 to 18" in line]
        assert store.skipped.messages == 16


@pytest.mark.parametrize("sealed", ["enabled_append_prop_crc", "force_verify_prop_crc"])
@pytest.mark.parametrize("place", [90, -10])
async def test_with_checksums_nothing_changed_is_served_in_any_way(
    sealed: str, place: int, tmp_path: Path
) -> None:
    """B5: by pull, bulk pull, key or place. Without checksums of records, that of the body counts."""
    async with running(SystemDisk(), small(tmp_path, **{sealed: True})) as store:
        stored = (await fill(store))["orders", 0]
        bad = stored[BAD]
        if place < 0 and sealed == "force_verify_prop_crc":
            return  # nothing covers the properties then
        flip(store, bad.physical_offset + (place if place > 0 else bad.total_size + place))
        right = [bytes(record.body) for record in stored if record is not bad]
        assert read_all(store) == right
        assert read_all(store, bulk=True, at_once=4096) == right
        assert store.lookup.at(bad.physical_offset) is None
        assert store.lookup.at(stored[BAD + 1].physical_offset) is not None
        assert not store.lookup.query("orders", f"k{BAD}", 10, 0, 2**62).records[2:]
        assert store.skipped.messages == 1
        assert store.skipped.index_entries == 1


async def test_with_checksums_a_wrong_tag_code_hides_no_message(tmp_path: Path) -> None:
    """B5"""

    class Tag:
        def wants_unit(self, tags_code: int, ext: object) -> bool:
            return tags_code == ord("t")

        def wants_record(self, record: memoryview) -> bool:
            return True

    async with running(SystemDisk(), small(tmp_path, force_verify_prop_crc=True)) as store:
        stored = (await fill(store))["orders", 0]
        change_entry(store, BAD, struct.pack(">q", 4711), 12)
        assert read_all(store, wanted=Tag()) == [bytes(record.body) for record in stored]


async def test_swapped_queue_files_hand_out_nothing_of_the_other_queue(tmp_path: Path) -> None:
    """B5"""
    async with running(SystemDisk(), small(tmp_path)) as store:
        await fill(store)
        folder = tmp_path / "consumequeue"
        one, other = folder / "orders" / "0" / f"{0:020}", folder / "bills" / "0" / f"{0:020}"
        first, second = one.read_bytes(), other.read_bytes()
        with one.open("r+b") as file:
            file.write(second)
        with other.open("r+b") as file:
            file.write(first)
        assert all(body.startswith(b"orders-0-") for body in read_all(store))
        assert store.skipped.messages == 20


async def test_an_index_entry_that_leads_nowhere_is_counted(tmp_path: Path) -> None:
    """B5"""
    async with running(SystemDisk(), small(tmp_path)) as store:
        stored = (await fill(store))["orders", 0]
        zeroed_record(store, stored[BAD])
        assert len(store.lookup.query("orders", f"k{BAD}", 10, 0, 2**62).records) == 1
        assert store.skipped.index_entries == 1


async def test_what_is_read_again_at_once_is_not_checked_again(tmp_path: Path) -> None:
    """B9: consumers of the same messages share the work; a second later it is done anew."""
    async with running(SystemDisk(), small(tmp_path)) as store:
        await fill(store)
        read_all(store)
        known = dict(store.reader._checked)
        assert sum(behind - first for (_, first), behind in known.items()) == COUNT
        await store.keep_up()
        assert not store.reader._checked


@pytest.fixture(autouse=True)
def _logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="cometmq.store")


async def test_what_this_process_just_wrote_is_not_checked_for_a_minute(tmp_path: Path) -> None:
    """It is in memory as it was written; what was there at the start is checked from the first read on."""
    async with running(SystemDisk(), small(tmp_path)) as store:
        for number in range(COUNT):
            store.put(a_message(b"%d" % number, "orders", 0))
        for _ in range(FRESH_LOOKS):
            store._look_again()
        read_all(store)
        assert not store.reader._checked
        store._look_again()
        read_all(store)
        assert store.reader._checked
    async with running(SystemDisk(), small(tmp_path)) as store:
        read_all(store)
        assert store.reader._checked
