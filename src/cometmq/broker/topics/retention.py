"""Retention by topic: `reserve.time` hours, where that is less than `fileReservedTime`.

Rules kept here:
- All topics share the files of the log. So the queues of a topic begin later: messages older than its time
  are no longer pulled or popped, and offsets before them are corrected as after any retention. The log keeps
  their bytes until the whole file expires; until then they are found by key and by id, and by tools that read
  the files.
- Nothing of that is saved: a start does it anew before it takes requests.
- A topic cannot be kept longer than the files of the log are. Topics of the broker itself are left alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Final

from cometmq.broker.query.messages import Queries
from cometmq.broker.settings import Settings
from cometmq.broker.time_slices import sliced
from cometmq.broker.topics.attributes import RESERVE_TIME
from cometmq.broker.topics.topics import Topics
from cometmq.model.java_numbers import java_long
from cometmq.ports.clock import Clock
from cometmq.store.message_store import MessageStore
from cometmq.store.queue.consume_queue import ConsumeQueue

log = logging.getLogger("cometmq.broker")

RETENTION_S: Final = 60.0
_HOUR_MS: Final = 3_600_000


def reserved_hours(attributes: Mapping[str, str] | None) -> int | None:
    """How long a topic is to be kept; None if the broker decides."""
    hours = java_long((attributes or {}).get(RESERVE_TIME, ""))
    return hours if hours is not None and hours > 0 else None


class TopicRetention:
    """Lets queues begin with their first message that is to be kept; belongs to the event loop."""

    def __init__(self, settings: Settings, clock: Clock, store: MessageStore, topics: Topics) -> None:
        self._settings = settings
        self._clock = clock
        self._store = store
        self._topics = topics
        self._queries = Queries(store)
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Run once, unless the last run is not over."""
        if self._task is None:
            self._task = asyncio.ensure_future(self.run())
            self._task.add_done_callback(self._ended)

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def run(self) -> None:
        """Look at every queue of the topics with a time of their own."""
        now_ms = self._clock.now_ms()
        for queue, hours in [each async for each in self._shorter()]:
            expired = await self._queries.offset_by_time(
                queue.topic, queue.queue_id, now_ms - hours * _HOUR_MS
            )
            is_there = self._store.queues.find(queue.topic, queue.queue_id) is queue
            if is_there and expired > queue.min_offset:
                queue.begin_with(expired)
                log.info("%s-%d begins with %d (reserve.time)", queue.topic, queue.queue_id, expired)

    async def _shorter(self) -> AsyncIterator[tuple[ConsumeQueue, int]]:
        longest = self._settings.store.file_reserved_time
        async for name, topic in sliced(list(self._topics.table.items())):
            hours = reserved_hours(topic.attributes) if topic.attributes else None
            if hours is not None and hours < longest and not self._topics.is_system_topic(name):
                for queue in self._store.queues.of_topic(name):
                    yield queue, hours

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and task.exception() is not None:
            log.error("retention of topics failed, and is tried again: %s", task.exception())
