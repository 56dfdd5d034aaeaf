"""A process that puts messages into a store without end, until it is killed.

Usage: python -m tests.compat.store.store_writer SETTINGS PORT BROKER-NAME    (settings as JSON)

Rules kept here:
- A line is printed for a message when it is safe, and says what readers must see of it.
- A line is short enough for a pipe to take it whole: what the killer reads are whole lines.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from collections.abc import Iterator

import msgspec

from cometmq.model.message import StoredMessage
from cometmq.store.message_store import MessageStore
from cometmq.store.status import PutStatus
from cometmq.wire.record.batch import BatchItem
from cometmq.wire.record.properties import encode_properties
from tests.compat.store.store_kit import open_store, store_config, store_host, unique_ids
from tests.compat.store.store_messages import (
    BAZAAR,
    QUEUES,
    a_batch,
    a_message,
    as_stored,
    batch_as_stored,
    changed,
)

BODY_SIZES = itertools.cycle(range(1, 1500, 7))
BATCH_SIZE = 5


class Writer:
    """Writes with several tasks, each of which waits until its last message is safe."""

    def __init__(self, store: MessageStore, host: bytes, broker_name: str) -> None:
        self._store = store
        self._host = host
        self._broker_name = broker_name
        self._numbers = itertools.count()
        self._key = f"crash-{os.getpid()}"
        self._next_id = unique_ids()

    async def write_singles(self, queue_id: int) -> None:
        for number in self._numbers:
            body = f"message {number} ".encode() + b"m" * next(BODY_SIZES)
            message = a_message(BAZAAR, body, KEYS=f"{self._key}-{number}", UNIQ_KEY=self._next_id())
            message = changed(message, queue_id=queue_id)
            result = self._store.put(message)
            assert result.status is PutStatus.PUT_OK, result
            assert await self._store.flusher.wait_flushed(result.end_offset) is PutStatus.PUT_OK
            _tell([as_stored(message, self._host, self._broker_name)])

    async def write_batches(self) -> None:
        while True:
            numbers = itertools.islice(self._numbers, BATCH_SIZE)
            items = [
                BatchItem(
                    f"batched {number}".encode(),
                    encode_properties({"KEYS": f"{self._key}-{number}", "UNIQ_KEY": self._next_id()}),
                )
                for number in numbers
            ]
            batch = a_batch(items)
            result = self._store.put_batch(batch)
            assert result.status is PutStatus.PUT_OK, result
            assert await self._store.flusher.wait_flushed(result.end_offset) is PutStatus.PUT_OK
            _tell(batch_as_stored(batch, self._host, self._broker_name))


def _tell(messages: Iterator[StoredMessage] | list[StoredMessage]) -> None:
    for message in messages:
        print(msgspec.json.encode(message).decode(), flush=True)


async def main(settings: dict[str, str], port: int, broker_name: str) -> None:
    host = store_host(port)
    store = open_store(store_config(settings), host)
    await store.start()
    writer = Writer(store, host, broker_name)
    async with asyncio.TaskGroup() as tasks:
        for queue_id in range(QUEUES[BAZAAR]):
            tasks.create_task(writer.write_singles(queue_id))
        tasks.create_task(writer.write_batches())


if __name__ == "__main__":
    asyncio.run(main(msgspec.json.decode(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
