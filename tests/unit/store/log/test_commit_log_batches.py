"""A batch in the commit log: ordinary records, stored as one unit."""

from __future__ import annotations

import pytest

from cometmq.store.log.batch import MessageBatch
from cometmq.store.status import PutStatus
from cometmq.testing.simulation.disk import SimulatedDisk
from cometmq.wire.record.batch import BatchItem
from cometmq.wire.record.layout import MAGIC_FILLER, peek_head
from tests.unit.store.log_kit import (
    FILE_SIZE,
    START_MS,
    a_log,
    batch_of,
    config,
    message,
    message_of,
)


def test_a_batch_becomes_consecutive_records_of_one_unit() -> None:
    """B6"""
    log = a_log(SimulatedDisk())
    items = [BatchItem(f"item {n}".encode(), f"KEYS\x01k{n}\x02".encode(), flag=n) for n in range(3)]
    batch = batch_of(items, queue_offset=10, queue_id=2, sys_flag=0x1, reconsume_times=4)

    assert log.append_batch(batch) is PutStatus.PUT_OK

    found = list(log.walk(0, check_crc=True))
    assert [bytes(record.body) for record in found] == [b"item 0", b"item 1", b"item 2"]
    assert [record.flag for record in found] == [0, 1, 2]
    assert [record.queue_offset for record in found] == [10, 11, 12]
    assert {(r.queue_id, r.sys_flag, r.reconsume_times, r.store_timestamp_ms) for r in found} == {
        (2, 0x1, 4, START_MS)
    }
    assert [record.total_size for record in found] == batch.sizes
    assert (batch.head.physical_offset, batch.head.total_size) == (0, sum(batch.sizes))


@pytest.mark.parametrize(
    ("item", "own", "expected"),
    [
        (b"a\x011\x02", b"", b"a\x011\x02"),
        (b"a\x011\x02", b"b\x012\x02", b"a\x011\x02b\x012\x02"),
        (b"a\x011", b"b\x012\x02", b"a\x011\x02b\x012\x02"),
        (b"", b"b\x012\x02", b"b\x012\x02"),
    ],
)
def test_the_properties_of_a_batch_follow_those_of_each_item(
    item: bytes, own: bytes, expected: bytes
) -> None:
    """B6"""
    log = a_log(SimulatedDisk())
    log.append_batch(batch_of([BatchItem(b"x", memoryview(item))], properties_block=own))

    assert [bytes(record.properties_block) for record in log.walk(0)] == [expected]


def test_a_batch_never_spans_files() -> None:
    """B6"""
    log = a_log(SimulatedDisk())
    log.append(message_of(3000))
    batch = batch_of(BatchItem(bytes(300)) for _ in range(4))

    assert log.append_batch(batch) is PutStatus.PUT_OK

    assert batch.head.physical_offset == FILE_SIZE
    assert peek_head(log.files.files[0].view, 3000) == (FILE_SIZE - 3000, MAGIC_FILLER)
    walk = log.walk(0, check_crc=True)
    assert [record.physical_offset - FILE_SIZE for record in walk][1:] == [
        sum(batch.sizes[:n]) for n in range(4)
    ]


def test_batches_have_limits_too() -> None:
    """B7"""
    log = a_log(SimulatedDisk(), settings=config(max_message_size=1000, mapped_file_size_commit_log=2**18))

    assert log.append_batch(batch_of([])) is PutStatus.MESSAGE_ILLEGAL
    assert log.append_batch(batch_of(BatchItem(bytes(480)) for _ in range(2))) is PutStatus.MESSAGE_ILLEGAL
    too_long = batch_of([BatchItem(b"x"), BatchItem(b"y", b"k\x01v\x02")], properties_block=bytes(32764))
    assert log.append_batch(too_long) is PutStatus.PROPERTIES_SIZE_EXCEEDED
    odd = MessageBatch(message(b""), [BatchItem(b"x", flag=2**31)], 1)
    assert log.append_batch(odd) is PutStatus.MESSAGE_ILLEGAL
    assert log.append_batch(batch_of([BatchItem(b"x")], born_host=b"?")) is PutStatus.MESSAGE_ILLEGAL
    assert log.max_offset == 0
    assert log.append_batch(batch_of(BatchItem(bytes(478)) for _ in range(2))) is PutStatus.PUT_OK
