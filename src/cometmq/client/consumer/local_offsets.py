"""Offsets in a file: a consumer that broadcasts reads every queue alone, and keeps its place by itself.

Rules kept here:
- The file is Java's: `<folder>/<clientId>/<group>/offsets.json`, a table whose keys are queues, with the
  previous text beside it as `offsets.json.bak`. Either side goes on where the other one stopped.
- A file that cannot be read is replaced by its back-up, and that by a fresh beginning; both are logged.
- What is in the file for queues that are not at hand stays there.
- Files are read and written on a worker thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from pathlib import Path
from typing import Final

from cometmq.client.consumer.broker_calls import QueueCalls
from cometmq.client.consumer.offset_store import BrokerOffsets, MemoryOffsets, OffsetStore
from cometmq.client.consumer.queue_tables import decode_queue_table
from cometmq.client.consumer.settings import ConsumerSettings, default_offset_folder
from cometmq.model.errors import ClientError, HeaderError
from cometmq.model.queue import MessageQueue
from cometmq.ports.files import Files, SystemFiles
from cometmq.ports.names import UnsafeNameError, child
from cometmq.wire.json import fastjson

log = logging.getLogger("cometmq.client")

_FILE: Final = "offsets.json"
_TABLE: Final = "offsetTable"


class LocalOffsets(MemoryOffsets):
    """The offsets of one client and group, in a file."""

    def __init__(self, folder: Path, client_id: str, group: str, files: Files | None = None) -> None:
        super().__init__()
        try:
            self._path = child(folder, client_id, group, _FILE)
        except UnsafeNameError as error:
            raise ClientError(
                f"offsets cannot be kept in a file: {error}; choose another instance_name, unit_name or group"
            ) from None
        self._files = files or SystemFiles()
        self._written: dict[MessageQueue, int] | None = None
        self._lock = asyncio.Lock()

    async def _content(self) -> dict[MessageQueue, int]:
        """What the file holds; read once."""
        if self._written is None:
            self._written = await asyncio.to_thread(self._load)
        return self._written

    def _load(self) -> dict[MessageQueue, int]:
        for path in (self._path, self._path.with_name(_FILE + ".bak")):
            try:
                data = self._files.read(path)
                if data is not None:
                    return decode_queue_table(data, _TABLE)
            except (OSError, HeaderError) as error:
                log.warning("the offsets in %s cannot be read: %s", path, error)
        return {}

    async def read(self, queue: MessageQueue, *, zero_if_new: bool = False) -> int | None:
        return (await self._content()).get(queue)

    async def persist(self, queues: Collection[MessageQueue]) -> None:
        async with self._lock:
            written = await self._content()
            offsets = {queue: self._offsets[queue] for queue in queues if queue in self._offsets}
            if offsets.items() <= written.items():
                return
            merged = written | offsets
            try:
                await asyncio.to_thread(self._files.replace, self._path, encode_offsets(merged))
            except OSError as error:
                log.warning("the offsets were not written to %s: %s", self._path, error)
            else:
                self._written = merged


def encode_offsets(offsets: dict[MessageQueue, int]) -> bytes:
    """The text that Java's client writes for these offsets."""
    entries = ",".join(
        f'{{\n\t\t\t"brokerName":{_quoted(queue.broker_name)},\n\t\t\t"queueId":{queue.queue_id},'
        f'\n\t\t\t"topic":{_quoted(queue.topic)}\n\t\t}}:{offset}'
        for queue, offset in sorted(offsets.items())
    )
    end = "\n\t" if entries else ""
    return f'{{\n\t"{_TABLE}":{{{entries}{end}}}\n}}'.encode()


def _quoted(text: str) -> str:
    return fastjson.dumps(text).decode()


def offset_store(client_id: str, group: str, settings: ConsumerSettings, calls: QueueCalls) -> OffsetStore:
    """Where a consumer keeps its offsets: with the brokers, or in a file when it broadcasts."""
    if settings.broadcasting:
        return LocalOffsets(settings.local_offset_folder or default_offset_folder(), client_id, group)
    return BrokerOffsets(group, calls)
