"""Records that come as such, which are put as if they had come as messages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cometmq.model.errors import MessageError
from cometmq.ports.disk import SystemDisk
from cometmq.store.dispatch_rules import put_values
from cometmq.store.log.batch import MessageBatch
from cometmq.store.status import PutStatus
from cometmq.testing.simulation.disk import SimulatedDisk
from cometmq.wire.record.batch import BatchItem
from cometmq.wire.record.codec import Record
from tests.unit.store.log_kit import BORN_HOST, START_MS
from tests.unit.store.put.record_bulk_kit import QUEUE, alike, bulk, message, record, request
from tests.unit.store.put.test_groups import IPV6_HOST, contents
from tests.unit.store.store_kit import Engine, bodies_in, messages_in, small


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@pytest.mark.parametrize("message", [message, alike], ids=["of many lengths", "of one length"])
@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_records_leave_the_same_bytes_as_messages(
    tmp_path: Path,
    flush: str,
    message: Callable[[int], tuple[bytes, bytes]],
    kind: type[bytes] | type[bytearray],
) -> None:
    """B4, B10: in the log, the queues and the index, over the ends of files."""
    disks = SimulatedDisk(), SimulatedDisk()
    config = small(flush_disk_type=flush)
    one, other = (Engine(disk, config) for disk in disks)
    for first in range(0, 600, 20):
        messages = [message(number) for number in range(first, first + 20)]
        put = one.put_batch(bulk(kind(request(messages)), 20))
        head = Record("orders", b"", queue_id=QUEUE, born_timestamp_ms=START_MS, born_host=BORN_HOST)
        result = other.put_batch(MessageBatch(head, [BatchItem(*each) for each in messages], 20))
        assert put.status is result.status is PutStatus.PUT_OK
        assert (put.queue_offset, put.physical_offset) == (first, result.physical_offset)
        assert put.end_offset == result.end_offset
    for engine in (one, other):
        engine.sync_log()
        engine.writer.show_confirmed()
    assert bodies_in(one.files) == [message(number)[0] for number in range(600)]
    key = f"{599:016X}"
    (place,) = one.files.index.find("orders", key, 10, 0, 2**62).physical_offsets
    assert place == max(each.physical_offset for queue in messages_in(one.files).values() for each in queue)
    assert one.close()
    assert other.close()
    assert contents(disks[0], tmp_path / "records") == contents(disks[1], tmp_path / "batches")


WRONG: dict[str, Callable[[list[bytes]], None]] = {
    "size": lambda records: records.__setitem__(3, record(*message(3), size=77)),
    "magic": lambda records: records.__setitem__(3, record(*message(3), magic=1)),
    "flags": lambda records: records.__setitem__(3, record(*message(3), sys_flag=4)),
    "prepared": lambda records: records.__setitem__(3, record(*message(3), prepared=4)),
    "length of the body": lambda records: records.__setitem__(3, record(*message(3), length=1)),
    "no body": lambda records: records.__setitem__(3, record(b"", message(3)[1])),
    "topic": lambda records: records.__setitem__(3, records[3].replace(b"orders", b"ordery")),
    "length of the properties": lambda records: records.__setitem__(3, records[3][:-1] + b"\x02\x02"),
    "end of the properties": lambda records: records.__setitem__(3, records[3][:-1] + b"x"),
}


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("others", [message, alike], ids=["of many lengths", "of one length"])
def test_what_is_no_record_of_the_topic_is_refused(
    what: str, others: Callable[[int], tuple[bytes, bytes]]
) -> None:
    """B4: with all that came with it, and by its number."""
    messages = [others(number) for number in range(8)]
    messages[3] = message(3)
    records = [record(*each) for each in messages]
    WRONG[what](records)
    sizes = b"".join(len(each).to_bytes(4, "big") for each in records)
    with pytest.raises(MessageError, match="record 3 of 8 is not one of this topic"):
        bulk(sizes + bytes(8 * 8) + b"".join(records), 8, keyed=False)


CHANGES = [
    *({"magic": 1}, {"sys_flag": 4}, {"size": 77}, {"length": 31}, {"length": 0}, {"length": -1}),
    *({"prepared": 1}, {"consumed": 1}),
]


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_what_is_wrong_among_records_of_one_length_is_refused(change: dict[str, int]) -> None:
    """B4"""
    records = [record(*alike(number)) for number in range(8)]
    body, block = alike(5)
    records[5] = record(body, block, **change)
    sizes = b"".join(len(each).to_bytes(4, "big") for each in records)
    with pytest.raises(MessageError, match="record 5 of 8 is not one of this topic"):
        bulk(sizes + bytes(8 * 8) + b"".join(records), 8, keyed=False)


@pytest.mark.parametrize("part", [b"orders", b"\x02"], ids=["topic", "end of the properties"])
@pytest.mark.parametrize("number", [0, 5, 7])
def test_a_wrong_part_of_a_record_of_one_length_is_found(part: bytes, number: int) -> None:
    """B4: in the first and the last of them, too."""
    records = [record(*alike(each)) for each in range(8)]
    before, _, behind = records[number].rpartition(part)
    records[number] = before + b"x" * len(part) + behind
    sizes = b"".join(len(each).to_bytes(4, "big") for each in records)
    with pytest.raises(MessageError, match=f"record {number} of 8 is not one of this topic"):
        bulk(sizes + bytes(8 * 8) + b"".join(records), 8, keyed=False)


def test_a_body_of_many_that_is_too_large_is_refused() -> None:
    """B4"""
    with pytest.raises(MessageError, match="a record has 5000 bytes; msg body length limit 4096B"):
        bulk(request([(bytes(5000), b"")] * 3), 3)


def test_many_records_leave_the_same_bytes_as_messages(tmp_path: Path) -> None:
    """B4, B10: on a real disk, so many that they are written past the mapping; over the ends of files."""
    config = {
        "mapped_file_size_commit_log": 1024 * 1024,
        "mapped_file_size_consume_queue": 20 * 3000,
        "max_hash_slot_num": 5000,
        "max_index_num": 20_000,
    }
    disk, folders = SystemDisk(), (tmp_path / "records", tmp_path / "batches")
    one, other = (Engine(disk, small(folder, **config)) for folder in folders)
    for first in range(0, 20_000, 2000):
        messages = [alike(number) for number in range(first, first + 2000)]
        put = one.put_batch(bulk(request(messages), 2000))
        head = Record("orders", b"", queue_id=QUEUE, born_timestamp_ms=START_MS, born_host=BORN_HOST)
        result = other.put_batch(MessageBatch(head, [BatchItem(*each) for each in messages], 2000))
        assert put.status is result.status is PutStatus.PUT_OK
        assert put.physical_offset == result.physical_offset
    assert bodies_in(one.files) == [alike(number)[0] for number in range(20_000)]
    assert one.close()
    assert other.close()
    assert _files_in(folders[0]) == _files_in(folders[1])


def _files_in(folder: Path) -> dict[str, bytes]:
    """Log, queues and index; indexes are named by the time, which is the same for both."""
    parts = ("commitlog", "consumequeue", "index")
    found = {
        str(path.relative_to(folder)): path.read_bytes()
        for part in parts
        for path in sorted((folder / part).rglob("*"))
        if path.is_file()
    }
    assert {name.partition("/")[0] for name in found} == set(parts)
    return found


@pytest.mark.parametrize("count", [0, 7, 9, 1_000_000])
def test_what_is_no_such_number_of_records_is_refused(count: int) -> None:
    """B4"""
    with pytest.raises(MessageError):
        bulk(request([message(number) for number in range(8)]), count)


def test_a_body_that_is_too_large_is_refused() -> None:
    """B4: as that of a message is."""
    messages = [message(1), (bytes(5000), b"")]
    with pytest.raises(MessageError, match="a record has 5000 bytes; msg body length limit 4096B"):
        bulk(request(messages), 2)


def test_hashes_cannot_be_negative() -> None:
    """B10"""
    body = bytearray(request([message(1)]))
    body[12] = 0xFF
    with pytest.raises(MessageError, match="the hash of a key is negative"):
        bulk(bytes(body), 1)


def test_a_writer_with_a_long_address_is_refused() -> None:
    """B4: and nothing is changed."""
    engine = Engine(SimulatedDisk())
    put = engine.put_batch(bulk(request([message(1)]), 1, born_host=IPV6_HOST))
    assert put.status is PutStatus.MESSAGE_ILLEGAL
    assert bodies_in(engine.files) == []


def test_those_who_wait_hear_of_each_record() -> None:
    """B3: and whoever waits for nothing is not told."""
    engine = Engine(SimulatedDisk())
    arrivals, heard = engine.files.dispatcher.arrivals, []
    waiting = False

    def hear(topic: str, queue_id: int, offset: int, code: int, _: int, block: bytes | memoryview) -> None:
        heard.append((topic, queue_id, offset, code, bytes(block)))

    arrivals.append(hear, waiting=lambda topic, queue_id: waiting and (topic, queue_id) == ("orders", QUEUE))
    messages = [message(number) for number in range(4)]
    engine.put_batch(bulk(request(messages), 4))
    assert heard == []
    waiting = True
    engine.put_batch(bulk(request(messages), 4))
    assert heard == [
        ("orders", QUEUE, 4 + number, put_values(block)[0], block)
        for number, (_, block) in enumerate(messages)
    ]
