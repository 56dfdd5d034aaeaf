"""A process that writes to a store with synchronous flush and says what was acknowledged, until it is killed.

Run as `python store_writer.py DIRECTORY ROUND`; each line it prints is `queue_id queue_offset body`.
"""

from __future__ import annotations

import asyncio
import sys

from cometmq.model.message import Host
from cometmq.ports.clock import SystemClock
from cometmq.ports.disk import SystemDisk
from cometmq.store.config import StoreConfig
from cometmq.store.message_store import MessageStore
from cometmq.store.status import PutStatus
from cometmq.wire.record.codec import Record
from cometmq.wire.record.ids import pack_host

WRITERS = 4
HOST = pack_host(Host("127.0.0.1", 10911))


def store_in(directory: str) -> MessageStore:
    config = StoreConfig(
        store_path_root_dir=directory,
        flush_disk_type="SYNC_FLUSH",
        mapped_file_size_commit_log=256 * 1024,
        mapped_file_size_consume_queue=20 * 500,
        max_hash_slot_num=100,
        max_index_num=1000,
        flush_interval_consume_queue=20,
    )
    return MessageStore(SystemDisk(), SystemClock(), config, HOST)


async def write(store: MessageStore, queue_id: int, round_name: str) -> None:
    """Put one message after the other, each when the one before it is safe."""
    number = 0
    while True:
        body = f"{round_name}-{queue_id}-{number}".ljust(100 + number % 400, ".")
        record = Record("orders", body.encode(), b"KEYS\x01k\x02", queue_id=queue_id, born_host=HOST)
        result = store.put(record)
        status = await store.flusher.wait_flushed(result.end_offset)
        if not result.status is status is PutStatus.PUT_OK:
            raise SystemExit(f"a put ended with {result.status}, its flush with {status}")
        print(queue_id, result.queue_offset, body.rstrip("."), flush=True)
        number += 1


async def main(directory: str, round_name: str) -> None:
    store = store_in(directory)
    await store.start()
    print("started", flush=True)
    await asyncio.gather(*(write(store, queue_id, round_name) for queue_id in range(WRITERS)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
