"""A reader that is far behind waits for the disk beside, and nobody waits for the reader."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from cometmq.model.message import Host
from cometmq.ports.clock import SystemClock
from cometmq.ports.disk import SystemDisk, SystemFile
from cometmq.store.config import StoreConfig
from cometmq.store.message_store import MessageStore
from cometmq.store.read.reader import GetStatus
from cometmq.store.status import PutStatus
from cometmq.wire.record.codec import Record, decode_record
from cometmq.wire.record.ids import pack_host

HOST = pack_host(Host("127.0.0.1", 10911))
MESSAGES = 400


async def test_records_that_are_far_back_are_fetched_on_a_worker_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B8: a catching-up reader never stalls the appends; one that is up to date costs no thread."""
    fetched: list[tuple[int, str]] = []
    fetch = SystemFile.fetch

    def watched(file: SystemFile, start: int, end: int) -> None:
        fetched.append((start, threading.current_thread().name))
        fetch(file, start, end)

    monkeypatch.setattr(SystemFile, "fetch", watched)
    config = StoreConfig(store_path_root_dir=str(tmp_path), mapped_file_size_commit_log=64 * 1024)
    # So little memory that only the last messages count as hot.
    store = MessageStore(SystemDisk(), SystemClock(), config, HOST, memory_bytes=16 * 1024)
    await store.start()
    for number in range(MESSAGES):
        record = Record("orders", b"message %d" % number * 20, queue_id=0, born_host=HOST)
        while store.put(record).status is not PutStatus.PUT_OK:
            await store.keep_up()
    bodies: list[bytes] = []
    while (got := await store.get("orders", 0, len(bodies), 32)).status is GetStatus.FOUND:
        bodies += [bytes(decode_record(each).body) for each in got.records]
    fetched_so_far = len(fetched)
    await store.get("orders", 0, MESSAGES - 1, 32)
    assert await store.stop()
    assert bodies == [b"message %d" % number * 20 for number in range(MESSAGES)]
    assert len(fetched) == fetched_so_far > MESSAGES / 32
    assert {name.rpartition("_")[0] for _, name in fetched} == {"store-read"}
