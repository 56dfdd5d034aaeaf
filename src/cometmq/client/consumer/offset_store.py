"""Offset stores: committed offsets in memory, at the broker, or in a local file when broadcasting.

Rules kept here:
- Memory is updated whenever a message is done; the broker, or the file, every few seconds and when a queue is
  given away. Only changes are written, and to a broker everything from time to time, because one that was
  killed may have lost the last commits.
- Commits to one broker go one after the other: Apache's loses one of two that are the first of their group
  and come at the same time.
- A corrected offset (`freeze`) takes no updates until its queue is forgotten, so that messages still being
  consumed cannot undo the correction.
- The file is Java's: `<folder>/<clientId>/<group>/offsets.json`, a table whose keys are queues, with its
  predecessor as `offsets.json.bak`; Python and Java continue each other's. A file that cannot be read is
  replaced by its back-up, and that by an empty table; both are logged. Entries of other queues stay. Files
  are read and written on a worker thread.
- A stored offset decides where a consumer starts in a queue; without one, `consume_from_where` does.
  If reading it fails, the queue waits for the next rebalance instead of starting at the wrong offset.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from cometmq.client.consumer.broker_calls import BrokerCalls
from cometmq.client.consumer.settings import HALF_AN_HOUR_MS, ConsumerSettings, default_offset_folder
from cometmq.model.errors import ClientError, CometError, HeaderError, RemotingError
from cometmq.model.names import RETRY_PREFIX
from cometmq.model.queue import MessageQueue
from cometmq.ports.files import Files, SystemFiles
from cometmq.ports.names import UnsafeNameError, child
from cometmq.wire.bodies.heartbeat import ConsumeFromWhere
from cometmq.wire.bodies.queue_table import decode_queue_table
from cometmq.wire.json import fastjson

log = logging.getLogger("cometmq.client")

_WRITE_ALL_EVERY_S: Final = 30.0
_FILE: Final = "offsets.json"
_TABLE: Final = "offsetTable"

_AT_THE_END: Final = (
    ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
    ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST,
    ConsumeFromWhere.CONSUME_FROM_MAX_OFFSET,
)


class OffsetStore:
    """The offsets of a group in memory; subclasses also write them."""

    def __init__(self) -> None:
        self._offsets: dict[MessageQueue, int] = {}
        self._frozen: set[MessageQueue] = set()

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool) -> None:
        """Everything before this offset is done."""
        if queue in self._frozen:
            return
        if increase_only and offset <= self._offsets.get(queue, -1):
            return
        self._offsets[queue] = offset

    def freeze(self, queue: MessageQueue, offset: int) -> None:
        """Set an offset that updates cannot change until the queue is forgotten."""
        self._offsets[queue] = offset
        self._frozen.add(queue)

    def known(self, queue: MessageQueue) -> int | None:
        """The offset in memory."""
        return self._offsets.get(queue)

    def snapshot(self, topic: str | None = None) -> dict[MessageQueue, int]:
        """The offsets in memory, of one topic or of all."""
        return {queue: at for queue, at in self._offsets.items() if topic is None or queue.topic == topic}

    def forget(self, queue: MessageQueue) -> None:
        """Drop the offset from memory."""
        self._offsets.pop(queue, None)
        self._frozen.discard(queue)

    async def read(self, queue: MessageQueue, *, zero_if_new: bool = False) -> int | None:
        """The offset that was last written; None if there is none. Raises if it cannot be read.

        With `zero_if_new`, the offset may be 0 for a queue that still has its very first message.
        """
        return None

    async def persist(self, queues: Collection[MessageQueue]) -> None:
        """Write the offsets of these queues; a failure is logged, and the next call writes again."""


class BrokerOffsets(OffsetStore):
    """Offsets that the members of a group share through the brokers."""

    def __init__(self, group: str, calls: BrokerCalls) -> None:
        super().__init__()
        self._group = group
        self._calls = calls
        self._written: dict[MessageQueue, int] = {}
        self._all_written_s = time.monotonic()
        self._turns: dict[str, asyncio.Lock] = {}
        """By broker: the right to commit."""

    def forget(self, queue: MessageQueue) -> None:
        super().forget(queue)
        self._written.pop(queue, None)

    async def read(self, queue: MessageQueue, *, zero_if_new: bool = False) -> int | None:
        return await self._calls.committed(self._group, queue, zero_if_new=zero_if_new)

    async def persist(self, queues: Collection[MessageQueue]) -> None:
        now = time.monotonic()
        if now - self._all_written_s > _WRITE_ALL_EVERY_S:
            self._all_written_s = now
            self._written.clear()
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            if queue in self._offsets and self._offsets[queue] != self._written.get(queue):
                by_broker.setdefault(queue.broker_name, []).append(queue)
        await asyncio.gather(*(self._in_turn(broker, queues) for broker, queues in by_broker.items()))

    async def _in_turn(self, broker_name: str, queues: Sequence[MessageQueue]) -> None:
        async with self._turns.setdefault(broker_name, asyncio.Lock()):
            await self._commit_all(queues)

    async def _commit_all(self, queues: Sequence[MessageQueue]) -> None:
        for queue in queues:
            offset = self._offsets.get(queue)
            if offset is None or offset == self._written.get(queue):  # given away, or written, meanwhile
                continue
            try:
                await self._calls.commit(self._group, queue, offset)
            except RemotingError as error:
                log.warning("no offset of %s was committed from %s on: %s", queue.broker_name, queue, error)
                return  # the other queues would wait for the same broker
            except CometError as error:
                log.warning("offset %d of %s was not committed: %s", offset, queue, error)
            else:
                if queue in self._offsets:
                    self._written[queue] = offset


class LocalOffsets(OffsetStore):
    """The offsets of one client and group in a file."""

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
        """The content of the file, which is read once."""
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
    """Encode offsets as Java's client writes them."""
    entries = ",".join(
        f'{{\n\t\t\t"brokerName":{_quoted(queue.broker_name)},\n\t\t\t"queueId":{queue.queue_id},'
        f'\n\t\t\t"topic":{_quoted(queue.topic)}\n\t\t}}:{offset}'
        for queue, offset in sorted(offsets.items())
    )
    end = "\n\t" if entries else ""
    return f'{{\n\t"{_TABLE}":{{{entries}{end}}}\n}}'.encode()


def _quoted(text: str) -> str:
    return fastjson.dumps(text).decode()


def offset_store(client_id: str, group: str, settings: ConsumerSettings, calls: BrokerCalls) -> OffsetStore:
    """The offset store of a consumer: brokers, or a file when broadcasting."""
    if settings.broadcasting:
        return LocalOffsets(settings.local_offset_folder or default_offset_folder(), client_id, group)
    return BrokerOffsets(group, calls)


class StartOffsets:
    """Finds the start offset of a queue."""

    def __init__(
        self, offsets: OffsetStore, calls: BrokerCalls, settings: ConsumerSettings, started_ms: int
    ) -> None:
        self._offsets = offsets
        self._calls = calls
        self._where = settings.consume_from_where
        asked = settings.consume_timestamp_ms
        self._timestamp_ms = started_ms - HALF_AN_HOUR_MS if asked is None else asked

    async def of(self, queue: MessageQueue) -> int:
        """The offset to start with."""
        # A new queue may get its first message between two requests; 0 does not lose it.
        stored = await self._offsets.read(queue, zero_if_new=self._where in _AT_THE_END)
        if stored is not None and stored >= 0:
            return stored
        is_retry = queue.topic.startswith(RETRY_PREFIX)
        if self._where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
            if is_retry:
                return await self._calls.max_offset(queue)
            return await self._calls.search_offset(queue, self._timestamp_ms)
        if is_retry or self._where not in _AT_THE_END:
            return 0  # a broker that has deleted the first messages corrects the offset
        return await self._calls.max_offset(queue)
