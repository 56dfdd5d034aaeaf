"""Where a consumer begins in a queue that it was given.

Rules kept here: a stored offset always wins; without one the setting decides; an offset that cannot be found
out raises, and the queue waits for the next rebalance instead of being read from the wrong place.
"""

from __future__ import annotations

from typing import Final

from cometmq.client.consumer.broker_calls import QueueCalls
from cometmq.client.consumer.offset_store import OffsetStore
from cometmq.client.consumer.settings import HALF_AN_HOUR_MS, ConsumerSettings
from cometmq.model.names import RETRY_PREFIX
from cometmq.model.queue import MessageQueue
from cometmq.wire.bodies.heartbeat import ConsumeFromWhere

_AT_THE_END: Final = (
    ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
    ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST,
    ConsumeFromWhere.CONSUME_FROM_MAX_OFFSET,
)


class StartOffsets:
    """Finds the first offset of a queue."""

    def __init__(
        self, offsets: OffsetStore, calls: QueueCalls, settings: ConsumerSettings, started_ms: int
    ) -> None:
        self._offsets = offsets
        self._calls = calls
        self._where = settings.consume_from_where
        asked = settings.consume_timestamp_ms
        self._timestamp_ms = started_ms - HALF_AN_HOUR_MS if asked is None else asked

    async def of(self, queue: MessageQueue) -> int:
        """The offset to begin with."""
        # At the end of a new queue the first message may come between two questions; 0 does not lose it.
        stored = await self._offsets.read(queue, zero_if_new=self._where in _AT_THE_END)
        if stored is not None and stored >= 0:
            return stored
        is_retry = queue.topic.startswith(RETRY_PREFIX)
        if self._where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
            if is_retry:
                return await self._calls.max_offset(queue)
            return await self._calls.search_offset(queue, self._timestamp_ms)
        if is_retry or self._where not in _AT_THE_END:
            return 0  # a broker that has lost the beginning says where it has messages
        return await self._calls.max_offset(queue)
