"""Stores of Apache RocketMQ 5.3.3, after an orderly stop and after a kill, opened as a whole."""

from __future__ import annotations

import base64
import gzip
import json
import tarfile
from pathlib import Path
from typing import Any

from cometmq.ports.clock import SystemClock
from cometmq.ports.disk import SystemDisk
from cometmq.store.config import StoreConfig
from cometmq.store.directory import StoreFiles
from cometmq.store.status import PutStatus
from cometmq.testing.clock import VirtualClock
from cometmq.wire.record.codec import Record, decode_record, encode_record
from cometmq.wire.record.walk import RecordWalk, to_stored_message
from tests.unit.store.log_kit import STORE_HOST
from tests.unit.store.store_kit import files_below, messages_in, running

DATA = Path(__file__).parents[2] / "data"
ADDED_WHILE_READING = {"MIN_OFFSET", "MAX_OFFSET"}
DELETED_TOPICS = {"VecAuto", "VecAutoB"}
"""Their messages are in the log; the topics were deleted before the broker stopped."""


def config(root: Path) -> StoreConfig:
    return StoreConfig(
        store_path_root_dir=str(root),
        mapped_file_size_commit_log=1024 * 1024,
        mapped_file_size_consume_queue=60_000,
        max_hash_slot_num=500,
        max_index_num=2000,
        message_delay_level="1s 2s 3s 4s 5s 6s 7s 8s 9s 10s 20m 30m 1h 2h",
    )


def unpacked(name: str, folder: Path) -> Path:
    with tarfile.open(DATA / "store" / name) as archive:
        archive.extractall(folder, filter="data")
    return folder / "store"


def consumed(path: Path) -> list[dict[str, Any]]:
    """What a Java consumer read from the store."""
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).decode("utf-8").splitlines()]


def seen_in(files: StoreFiles) -> dict[tuple[str, int, int], dict[str, Any]]:
    """The same for this store, by topic, queue and offset."""
    return {
        (record.topic, record.queue_id, record.queue_offset): as_java_sees(record)
        for records in messages_in(files).values()
        for record in records
        if record.topic not in DELETED_TOPICS
    }


def as_java_sees(record: Record) -> dict[str, Any]:
    size, flags = record.total_size, record.sys_flag
    if flags & 1:
        record = decode_record(encode_record(record), decompress_body=True)
    message = to_stored_message(record, "broker-a")
    return {
        "topic": message.topic,
        "brokerName": "broker-a",
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "commitLogOffset": message.commit_log_offset,
        "storeSize": size,
        "bodyCRC": message.body_crc,
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "bornTimestamp": message.born_timestamp_ms,
        "bornHost": f"/{message.born_host}",
        "storeTimestamp": message.store_timestamp_ms,
        "storeHost": f"/{message.store_host}",
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "msgId": message.msg_id,
        "offsetMsgId": message.offset_msg_id,
        "properties": dict(message.properties),
        "body": base64.b64encode(message.body).decode("ascii"),
    }


def expected(path: Path) -> dict[tuple[str, int, int], dict[str, Any]]:
    messages = {}
    for seen in consumed(path):
        for name in ADDED_WHILE_READING:
            seen["properties"].pop(name, None)
        messages[seen["topic"], seen["queueId"], seen["queueOffset"]] = seen
    return messages


async def test_every_message_of_apaches_store_is_read_back(tmp_path: Path) -> None:
    """B4: by queue and offset, every field and property as a Java consumer saw it."""
    root = unpacked("store-clean.tar.gz", tmp_path)
    async with running(SystemDisk(), config(root), SystemClock()) as store:
        assert seen_in(store.files) == expected(DATA / "messages-clean.jsonl.gz")


async def test_opening_and_closing_apaches_store_changes_nothing(tmp_path: Path) -> None:
    """B5: no byte of log, queues, index, checkpoint and all the rest; `lock` and `abort.bak` aside."""
    root = unpacked("store-clean.tar.gz", tmp_path)
    before = files_below(root)
    async with running(SystemDisk(), config(root), SystemClock()):
        pass
    after = files_below(root)

    assert after.pop("lock") == b"lock"
    before.pop("abort.bak"), after.pop("abort.bak")
    assert after == before


async def test_the_same_messages_make_the_same_files(tmp_path: Path) -> None:
    """B4, B10: put again at the same times, they give the log, the queues and the index byte for byte."""
    apache = unpacked("store-clean.tar.gz", tmp_path / "apache")
    (log_file,) = (apache / "commitlog").iterdir()
    clock, root = VirtualClock(), tmp_path / "ours"
    async with running(SystemDisk(), config(root), clock) as store:
        for record in RecordWalk(log_file.read_bytes()):
            clock.set_wall_clock(record.store_timestamp_ms)
            queue_offset = record.queue_offset
            assert record.store_host == STORE_HOST
            result = store.put(record)
            assert (result.status, result.queue_offset) == (PutStatus.PUT_OK, queue_offset)
        await store.delete_topics(DELETED_TOPICS)

    assert files_below(root / "commitlog") == files_below(apache / "commitlog")
    assert files_below(root / "consumequeue") == files_below(apache / "consumequeue")
    assert list(files_below(root / "index").values()) == list(files_below(apache / "index").values())
    assert (root / "checkpoint").read_bytes() == (apache / "checkpoint").read_bytes()


async def test_apaches_store_is_recovered_after_a_kill(tmp_path: Path) -> None:
    """B5: exactly the messages that Apache's own recovery gives, and all that was acknowledged."""
    root = unpacked("store-crashed.tar.gz", tmp_path)
    assert (root / "abort").exists()
    async with running(SystemDisk(), config(root), SystemClock()) as store:
        seen = seen_in(store.files)
    acknowledged = (DATA / "store" / "acked-before-crash.txt").read_text().split("\n")
    places = [line.split() for line in acknowledged if line]

    assert len(places) == 300
    for offset_id, queue_id, queue_offset in places:
        assert seen["VecNormal", int(queue_id), int(queue_offset)]["offsetMsgId"] == offset_id
    assert seen == expected(DATA / "store" / "messages-crashed.jsonl.gz")
    assert not (root / "abort").exists()


async def test_a_recovered_store_of_apache_finds_its_keys(tmp_path: Path) -> None:
    """B10: the index was behind, and is made anew from the log."""
    root = unpacked("store-crashed.tar.gz", tmp_path)
    async with running(SystemDisk(), config(root), SystemClock()) as store:
        keyed = [
            (record.topic, key, record.physical_offset)
            for records in messages_in(store.files).values()
            for record in records
            if (key := record.properties().get("UNIQ_KEY"))
        ]
        for topic, key, physical_offset in keyed:
            assert physical_offset in store.index.find(topic, key, 100, 0, 2**63 - 1).physical_offsets
        assert len(keyed) > 400
