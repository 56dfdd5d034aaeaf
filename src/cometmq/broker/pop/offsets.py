"""Where a group is in a queue, as popping sees it."""

from __future__ import annotations

from typing import Final

from cometmq.broker.groups.offsets import ConsumerOffsets
from cometmq.broker.settings import Settings
from cometmq.broker.topics.names import RETRY_PREFIX
from cometmq.store.message_store import MessageStore

FROM_MIN: Final = 0
"""How a group begins that has no place yet: with the oldest message; otherwise with the newest."""


class Places:
    """Looks up, and sets, where groups go on; belongs to the event loop."""

    def __init__(self, settings: Settings, store: MessageStore, offsets: ConsumerOffsets) -> None:
        self._store = store
        self._settings = settings
        self._offsets = offsets

    def look(self, topic: str, group: str, queue_id: int) -> int:
        """Where a group goes on; one without a place at the oldest message."""
        offset = self._offsets.query(group, topic, queue_id)
        if offset >= 0:
            return offset
        queue = self._store.queues.find(topic, queue_id)
        return 0 if queue is None else queue.min_offset

    def find(self, topic: str, group: str, queue_id: int, init_mode: int) -> int:
        """Where a group goes on; one without a place gets one, and keeps it."""
        offset = self._offsets.query(group, topic, queue_id)
        if offset < 0:
            offset = self._first(topic, queue_id, init_mode)
            self.move("popping", topic, group, queue_id, offset)
        return offset

    def _first(self, topic: str, queue_id: int, init_mode: int) -> int:
        store = self._store
        queue = store.queues.find(topic, queue_id)
        if queue is None:
            return 0
        if init_mode == FROM_MIN or topic.startswith(RETRY_PREFIX):
            return queue.min_offset
        if (
            self._settings.broker.init_pop_offset_by_check_msg_in_mem
            and queue.min_offset == 0
            and not store.reader.cold_places(topic, queue_id, 0, 1)
        ):
            return 0
        return max(queue.max_offset - 1, 0)

    def move(self, client_host: str, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Let a group go on at another offset."""
        self._offsets.commit(client_host, group, topic, queue_id, offset)

    def rest(self, topic: str, queue_id: int, offset: int) -> int:
        """How many messages a queue has from an offset on."""
        queue = self._store.queues.find(topic, queue_id)
        return 0 if queue is None else max(queue.max_offset - offset, 0)
