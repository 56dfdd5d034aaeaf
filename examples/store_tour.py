"""A store in a few seconds: messages written with synchronous flush, the process "killed", all of them found.

Run it with `python examples/store_tour.py`. It shows the store as a broker uses it.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cometmq.model.message import Host
from cometmq.ports.clock import SystemClock
from cometmq.ports.disk import SystemDisk
from cometmq.store.config import StoreConfig
from cometmq.store.message_store import MessageStore
from cometmq.store.read.reader import GetStatus
from cometmq.store.status import PutStatus
from cometmq.wire.record.codec import Record, decode_record
from cometmq.wire.record.ids import pack_host
from cometmq.wire.record.properties import encode_properties

TOPIC = "orders"
QUEUES = 4
MESSAGES = 20_000
HOST = pack_host(Host("127.0.0.1", 10911))


def config_in(folder: Path) -> StoreConfig:
    """Small files, and an acknowledgement only for what is on the disk."""
    return StoreConfig(
        store_path_root_dir=str(folder),
        mapped_file_size_commit_log=4 * 1024 * 1024,
        mapped_file_size_consume_queue=200_000,
        max_hash_slot_num=10_000,
        max_index_num=40_000,
        flush_disk_type="SYNC_FLUSH",
    )


def order(number: int) -> Record:
    properties = encode_properties({"TAGS": "paid", "KEYS": f"order-{number}"})
    body = b'{"order":%d,"amount":%d}' % (number, number * 7 % 100)
    return Record(TOPIC, body, properties, queue_id=number % QUEUES, born_host=HOST)


async def write_and_vanish(folder: Path) -> None:
    """Write, wait until everything is on the disk, and end without a word, as a killed process does."""
    store = MessageStore(SystemDisk(), SystemClock(), config_in(folder), HOST)
    await store.start()
    began = time.perf_counter()
    results = [store.put(order(number)) for number in range(MESSAGES)]
    assert all(result.status is PutStatus.PUT_OK for result in results)
    status = await store.flusher.wait_flushed(results[-1].end_offset)
    taken = time.perf_counter() - began
    print(
        f"  {MESSAGES} messages put in {taken:.2f} s: {MESSAGES / taken:,.0f} a second; flush: {status.name}"
    )
    sys.stdout.flush()
    os._exit(0)


async def open_and_read(folder: Path) -> None:
    """Recover the store that nobody closed, and find every message."""
    store = MessageStore(SystemDisk(), SystemClock(), config_in(folder), HOST)
    await store.start()
    counts = []
    for queue_id in range(QUEUES):
        offset = count = 0
        while (got := await store.get(TOPIC, queue_id, offset, 32)).status is GetStatus.FOUND:
            count += len(got.records)
            offset = got.next_offset
        counts.append(count)
    print(f"  recovered: {sum(counts)} messages, {counts} in queues 0 to {QUEUES - 1}")
    found = store.lookup.query(TOPIC, "order-4711", 32, 0, 2**62)
    print(f"  by key order-4711: {[bytes(decode_record(each).body).decode() for each in found.records]}")
    await store.stop()


def show(folder: Path) -> None:
    """The whole tour."""
    subprocess.run([sys.executable, __file__, "write", str(folder)], check=True)
    asyncio.run(open_and_read(folder))
    command = [sys.executable, "-m", "cometmq.cli.main", "store", "verify", str(folder)]
    verified = subprocess.run(command, capture_output=True, text=True, check=False)
    print("  cometmq store verify:", (verified.stdout + verified.stderr).strip().splitlines()[-1])


if __name__ == "__main__":
    if sys.argv[1:2] == ["write"]:
        asyncio.run(write_and_vanish(Path(sys.argv[2])))
    else:
        with tempfile.TemporaryDirectory(prefix="cometmq-store-") as home:
            show(Path(home, "store"))
