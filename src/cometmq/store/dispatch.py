"""From the log to the consume queues, the index, and whoever waits for messages.

Rules kept here:
- Records are dispatched in the order of the log, each completely before the next. What was dispatched before
  may be dispatched again: queues and index take nothing twice.
- When a unit or a key cannot be written, because the disk is full for example, dispatch stops before that
  record and nothing is lost: `catch_up` goes on there. Whoever puts messages has to stop meanwhile.
- Arrivals are announced when the unit is there, so that who hears of a message can read it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from cometmq.model.sysflag import TRANSACTION_MASK
from cometmq.store.batch_packing import MessageBatch
from cometmq.store.consume_queue import ConsumeQueue
from cometmq.store.consume_queues import ConsumeQueues
from cometmq.store.dispatch_rules import (
    DELAY_TOPIC,
    DelayLevels,
    QueuePlace,
    Values,
    further_places,
    is_indexed,
    is_queued,
    put_values,
)
from cometmq.store.index import Index
from cometmq.store.log_reader import LogReader
from cometmq.wire.java_hash import tags_code
from cometmq.wire.record import Record

log = logging.getLogger("cometmq.store")

Arrival = Callable[[str, int, int, int, int, bytes | memoryview], None]
"""Called with topic, queue id, queue offset, tags code, store time and properties of each new message."""

_NO_FOLDER_NAMES: Final = frozenset({"", ".", ".."})
_MAX_FOLDER_NAME: Final = 255


class Dispatcher:
    """Brings records into queues and index; belongs to the thread that writes."""

    def __init__(
        self,
        log_reader: LogReader,
        queues: ConsumeQueues,
        index: Index | None,
        levels: DelayLevels,
        *,
        spreads: bool = False,
    ) -> None:
        """With `spreads`, messages are dispatched to the further queues that they name, too."""
        self._log = log_reader
        self._queues = queues
        self._index = index
        self._levels = levels
        self._spreads = spreads
        self.position = 0
        """The offset of the log before which everything is dispatched."""
        self.failure: OSError | None = None
        """Why dispatch does not go on, while it does not."""
        self.last_store_time_ms = 0
        """When the last record that was dispatched was stored."""
        self.arrivals: list[Arrival] = []

    def queue_of(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, made if need be; None if there cannot be such a queue."""
        queue = self._queues.find(topic, queue_id)
        if queue is not None:
            return queue
        if queue_id < 0 or topic in _NO_FOLDER_NAMES or "/" in topic or "\0" in topic:
            return None
        if len(topic.encode("utf-8", "replace")) > _MAX_FOLDER_NAME:
            return None
        return self._queues.get(topic, queue_id)

    def dispatch(self, record: Record, queue: ConsumeQueue, values: Values) -> bool:
        """Dispatch the record at `position` to its queue; False, and the failure is kept, if that failed.

        `values` are what `put_values` found in the message.
        """
        topic, block = record.topic, record.properties_block
        offset, stored_ms, code = record.physical_offset, record.store_timestamp_ms, 0
        try:
            tags, unique_key, keys, _ = values
            if not record.sys_flag & TRANSACTION_MASK or is_queued(record.sys_flag):
                if topic == DELAY_TOPIC:
                    code = self._levels.unit_code(topic, tags, block, stored_ms)
                elif tags:
                    code = tags_code(tags)
                queue.append(offset, record.total_size, code, record.queue_offset)
                if self._spreads:
                    self._spread(record, code)
            elif not is_indexed(record.sys_flag):
                unique_key = keys = None
            if self._index is not None and (unique_key or keys):
                self._index.put(topic, unique_key, keys, offset, stored_ms)
        except OSError as error:
            return self._failed(error, record)
        self.position = offset + record.total_size
        self.last_store_time_ms = stored_ms
        if self.arrivals and is_queued(record.sys_flag):
            self._announce(record, code)
        return True

    def _spread(self, record: Record, code: int) -> None:
        for topic, queue_id, queue_offset in further_places(record):
            queue = self.queue_of(topic, queue_id)
            if queue is not None:
                queue.append(record.physical_offset, record.total_size, code, queue_offset)

    def _announce(self, record: Record, code: int) -> None:
        places = [QueuePlace(record.topic, record.queue_id, record.queue_offset)]
        if self._spreads:
            places += further_places(record)
        for place in places:
            self._tell(*place, code, record.store_timestamp_ms, record.properties_block)

    def _tell(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        code: int,
        stored_ms: int,
        block: bytes | memoryview,
    ) -> None:
        for arrived in self.arrivals:
            try:
                arrived(topic, queue_id, queue_offset, code, stored_ms, block)
            except Exception:  # the message is there, whatever becomes of those who wait for it
                log.exception(
                    "somebody could not take the arrival of %s-%d-%d", topic, queue_id, queue_offset
                )

    def dispatch_batch(self, batch: MessageBatch, queue: ConsumeQueue) -> bool:
        """The same for a batch, which is never part of a transaction."""
        head = batch.head
        codes: list[int] = []
        try:
            keyed = self._batch_codes(batch, codes)
            queue.append_batch(head.physical_offset, batch.sizes, codes, head.queue_offset)
            if self._index is not None:
                for offset, unique_key, keys in keyed:
                    self._index.put(head.topic, unique_key, keys, offset, head.store_timestamp_ms)
        except OSError as error:
            return self._failed(error, head)
        self.position = head.physical_offset + head.total_size
        self.last_store_time_ms = head.store_timestamp_ms
        if self.arrivals:
            self._announce_batch(batch, codes)
        return True

    def _batch_codes(
        self, batch: MessageBatch, codes: list[int]
    ) -> Sequence[tuple[int, str | None, str | None]]:
        """Note the codes of all units; the answer is where messages with keys are, and these."""
        head = batch.head
        own_tags, own_unique_key, own_keys, _ = put_values(head.properties_block)
        keyed = []
        offset = head.physical_offset
        for item, size in zip(batch.items, batch.sizes, strict=True):
            tags, unique_key, keys = own_tags, own_unique_key, own_keys
            if item.properties_block:
                # The batch's own properties stand behind those of the item, so they win.
                item_tags, item_unique_key, item_keys, _ = put_values(item.properties_block)
                tags, unique_key, keys = tags or item_tags, unique_key or item_unique_key, keys or item_keys
            codes.append(tags_code(tags) if tags else 0)
            if unique_key or keys:
                keyed.append((offset, unique_key, keys))
            offset += size
        return keyed

    def _announce_batch(self, batch: MessageBatch, codes: list[int]) -> None:
        head = batch.head
        topic, queue_id, stored_ms = head.topic, head.queue_id, head.store_timestamp_ms
        for offset, (item, code) in enumerate(zip(batch.items, codes, strict=True), head.queue_offset):
            self._tell(topic, queue_id, offset, code, stored_ms, item.properties_block)

    def _failed(self, error: OSError, record: Record) -> bool:
        if self.failure is None:
            log.error(
                "queue unit or keys of the record at %d (%s-%d) could not be written: %s; trying again",
                *(record.physical_offset, record.topic, record.queue_id, error),
            )
        self.failure = error
        return False

    def catch_up(self, limit: int) -> bool:
        """Dispatch what the log has up to an offset; False if that failed, or still fails."""
        if self.position < self._log.min_offset:
            self.position = self._log.min_offset
        walk = self._log.walk(self.position, limit)
        for record in walk:
            queue = self.queue_of(record.topic, record.queue_id)
            if queue is None:
                log.warning(
                    "the record at %d has the impossible queue %r %d, and is passed over",
                    *(record.physical_offset, record.topic, record.queue_id),
                )
            elif not self.dispatch(record, queue, put_values(record.properties_block)):
                return False
        self.position = max(self.position, walk.position)  # which may be behind a filler
        self.failure = None
        return True
