"""Offset stores: how far a group has come, in memory, and with the broker when members share the queues.

Rules kept here:
- Memory is written whenever a message is done; the broker, or the file, every few seconds and when a queue is
  given away. Only what has changed since is written; to a broker now and then everything, because one that
  was killed may have lost what it was told last.
- A broker is told one offset after the other: Apache's loses one of two that are the first of their group and
  come at the same time.
- An offset that was corrected (`freeze`) takes no further updates until its queue is forgotten: messages that
  are still being consumed must not undo the correction.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Sequence
from typing import Final, Protocol

from cometmq.client.consumer.broker_calls import QueueCalls
from cometmq.model.errors import CometError, RemotingError
from cometmq.model.queue import MessageQueue

log = logging.getLogger("cometmq.client")

_WRITE_ALL_EVERY_S: Final = 30.0


class OffsetStore(Protocol):
    """Where the offsets of a group are kept."""

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool) -> None:
        """Everything before this offset is done."""

    def freeze(self, queue: MessageQueue, offset: int) -> None:
        """Set an offset that updates cannot change until the queue is forgotten."""

    def known(self, queue: MessageQueue) -> int | None:
        """The offset in memory."""

    def snapshot(self, topic: str | None = None) -> dict[MessageQueue, int]:
        """The offsets in memory, of one topic or of all."""

    def forget(self, queue: MessageQueue) -> None:
        """Drop the offset from memory."""

    async def read(self, queue: MessageQueue, *, zero_if_new: bool = False) -> int | None:
        """The offset that was last written; None if there is none. Raises if it cannot be found out.

        With `zero_if_new`, a queue that still has its very first message may count as one at 0.
        """

    async def persist(self, queues: Collection[MessageQueue]) -> None:
        """Write the offsets of these queues; a failure is logged and made good by the next time."""


class MemoryOffsets:
    """The part that all stores share."""

    def __init__(self) -> None:
        self._offsets: dict[MessageQueue, int] = {}
        self._frozen: set[MessageQueue] = set()

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool) -> None:
        if queue in self._frozen:
            return
        if increase_only and offset <= self._offsets.get(queue, -1):
            return
        self._offsets[queue] = offset

    def freeze(self, queue: MessageQueue, offset: int) -> None:
        self._offsets[queue] = offset
        self._frozen.add(queue)

    def known(self, queue: MessageQueue) -> int | None:
        return self._offsets.get(queue)

    def snapshot(self, topic: str | None = None) -> dict[MessageQueue, int]:
        return {queue: at for queue, at in self._offsets.items() if topic is None or queue.topic == topic}

    def forget(self, queue: MessageQueue) -> None:
        self._offsets.pop(queue, None)
        self._frozen.discard(queue)


class BrokerOffsets(MemoryOffsets):
    """Offsets that the members of a group share through the brokers."""

    def __init__(self, group: str, calls: QueueCalls) -> None:
        super().__init__()
        self._group = group
        self._calls = calls
        self._written: dict[MessageQueue, int] = {}
        self._all_written_s = time.monotonic()

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
        await asyncio.gather(*map(self._commit_all, by_broker.values()))

    async def _commit_all(self, queues: Sequence[MessageQueue]) -> None:
        for queue in queues:
            offset = self._offsets.get(queue)
            if offset is None:  # given away meanwhile
                continue
            try:
                await self._calls.commit(self._group, queue, offset)
            except RemotingError as error:
                log.warning("no offset of %s was committed from %s on: %s", queue.broker_name, queue, error)
                return  # the others would wait for the same broker in vain
            except CometError as error:
                log.warning("offset %d of %s was not committed: %s", offset, queue, error)
            else:
                if queue in self._offsets:
                    self._written[queue] = offset
