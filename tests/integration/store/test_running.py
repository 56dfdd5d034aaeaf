"""A store on a real disk with everything going on at once: puts, reads, flushes, upkeep and deletion."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from cometmq.ports.clock import SystemClock
from cometmq.ports.disk import SystemDisk
from cometmq.store.config import StoreConfig
from cometmq.store.log.batch import MessageBatch
from cometmq.store.message_store import MessageStore
from cometmq.store.read.reader import GetStatus
from cometmq.store.status import PutStatus
from cometmq.wire.record.batch import BatchItem
from cometmq.wire.record.codec import decode_record
from tests.unit.store.log_kit import STORE_HOST
from tests.unit.store.store_kit import a_message, messages_in, small
from tests.waiting import eventually

QUEUES = 4
MESSAGES = 6000
"""For each queue."""


def busy(root: Path, **changes: object) -> StoreConfig:
    """A store that does everything beside all the time."""
    return small(
        root,
        flush_interval_commit_log=1,
        flush_interval_consume_queue=1,
        flush_consume_queue_thorough_interval=3,
        clean_resource_interval=1,
        max_index_num=3000,
        delete_when=";".join(map(str, range(24))),
        **changes,
    )


def body_of(queue_id: int, number: int) -> bytes:
    return b"%d-%d" % (queue_id, number) * (1 + number % 40)


async def produce(store: MessageStore, queue_id: int) -> None:
    number = 0
    while number < MESSAGES:
        if number % 7 == 3:
            bodies = [body_of(queue_id, each) for each in range(number, min(number + 8, MESSAGES))]
            items = [BatchItem(body, b"KEYS\x01b\x02") for body in bodies]
            result = store.put_batch(MessageBatch(a_message(b"", queue_id=queue_id), items, 100))
        else:
            bodies = [body_of(queue_id, number)]
            block = b"TAGS\x01t\x02KEYS\x01%d\x02" % number
            result = store.put(a_message(bodies[0], queue_id=queue_id, properties_block=block))
        assert (result.status, result.queue_offset) == (PutStatus.PUT_OK, number)
        number += len(bodies)
        if number % 20 == 0:
            await asyncio.sleep(0)


async def consume(store: MessageStore, queue_id: int) -> int:
    """Read to the end; the answer is how many messages were gone before they could be read."""
    offset = missed = 0
    while offset < MESSAGES:
        result = store.reader.get("orders", queue_id, offset, 32)
        for record, queue_offset in zip(result.records, result.queue_offsets, strict=True):
            message = decode_record(record, check_crc=True)
            assert (message.queue_id, message.queue_offset) == (queue_id, queue_offset)
            assert message.body == body_of(queue_id, queue_offset)
            missed += queue_offset - offset
            offset = queue_offset + 1
        if result.status is not GetStatus.FOUND:
            missed += max(result.next_offset - offset, 0)
            offset = max(result.next_offset, offset)
        await asyncio.sleep(0)
    return missed


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_everything_at_once(
    flush: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B4, B5: every message is read as it was put, or was deleted; nothing is complained about."""
    monkeypatch.setattr("cometmq.store.message_store.FIRST_RETENTION_S", 0)
    caplog.set_level(logging.WARNING)
    config = busy(tmp_path, flush_disk_type=flush, file_reserved_time=0)
    store = MessageStore(SystemDisk(), SystemClock(), config, STORE_HOST)
    await store.start()
    consumers = [asyncio.ensure_future(consume(store, queue_id)) for queue_id in range(QUEUES)]
    await asyncio.gather(*(produce(store, queue_id) for queue_id in range(QUEUES)))
    missed = await asyncio.gather(*consumers)
    first_kept = await eventually(lambda: store.log.min_offset, "a file is deleted")
    assert await store.stop()

    assert caplog.text == ""
    again = MessageStore(SystemDisk(), SystemClock(), config, STORE_HOST)
    recovered = await again.start()
    assert recovered.stopped_orderly
    assert again.log.min_offset >= first_kept > 0
    for (_, queue_id), records in messages_in(again.files).items():
        assert records[-1].queue_offset == MESSAGES - 1
        assert [record.body for record in records] == [
            body_of(queue_id, record.queue_offset) for record in records
        ]
    assert all(0 <= count < MESSAGES for count in missed)
    assert await again.stop()
