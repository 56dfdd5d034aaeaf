"""Pop offsets: the next offset of a group in a queue, and where a new group begins."""

from __future__ import annotations

from typing import Final

from cometmq.broker.groups.offsets import ConsumerOffsets
from cometmq.broker.settings import Settings
from cometmq.model.names import RETRY_PREFIX
from cometmq.store.message_store import MessageStore

FROM_MIN: Final = 0
"""Where a group without an offset begins: at the oldest message; otherwise at the newest."""


class PopOffsets:
    """Looks up where groups go on; belongs to the event loop."""

    def __init__(self, settings: Settings, store: MessageStore, offsets: ConsumerOffsets) -> None:
        self._store = store
        self._settings = settings
        self._offsets = offsets

    def peek(self, topic: str, group: str, queue_id: int) -> int:
        """The next offset of a group; the oldest message if it has none."""
        offset = self._offsets.query(group, topic, queue_id)
        return offset if offset >= 0 else self._store.queues.bounds(topic, queue_id)[0]

    def find(self, topic: str, group: str, queue_id: int, init_mode: int) -> int:
        """The next offset of a group; a group without one gets one, and keeps it."""
        offset = self._offsets.query(group, topic, queue_id)
        if offset < 0:
            offset = self._first(topic, queue_id, init_mode)
            self._offsets.commit("popping", group, topic, queue_id, offset)
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
            and not store.reader.cold_ranges(topic, queue_id, 0, 1)
        ):
            return 0
        return max(queue.max_offset - 1, 0)

    def remaining(self, topic: str, queue_id: int, offset: int) -> int:
        """How many messages a queue has from an offset on."""
        return max(self._store.queues.bounds(topic, queue_id)[1] - offset, 0)
