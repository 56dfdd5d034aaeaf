"""From the log to the consume queues, the index, and whoever waits for messages.

Rules kept here:
- Records are dispatched in the order of the log, one by one or in groups, each group completely before the
  next. What was dispatched before may be dispatched again: queues and index take nothing twice.
- When a unit or a key cannot be written, because the disk is full for example, dispatch stops before that
  record, or group, and nothing is lost: `catch_up` goes on there. Whoever puts messages has to stop
  meanwhile.
- Arrivals are announced when the unit is there, so that who hears of a message can read it.
- Bytes of the log that are no record are passed over once there is a whole one behind them.
- What is dispatched is given as values, not as a record: whoever puts a message may go on using its record.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from cometmq.model.names import DELAY_TOPIC, LOST_TOPIC
from cometmq.model.sysflag import TRANSACTION_MASK
from cometmq.ports.names import is_file_name
from cometmq.store.dispatch.arrivals import Arrivals
from cometmq.store.dispatch.rules import (
    NO_VALUES,
    DelayLevels,
    Keyed,
    QueuePlace,
    Values,
    further_places,
    is_indexed,
    is_queued,
    put_values,
    unique_keys_of_all,
)
from cometmq.store.index.arrays import bulk_columns
from cometmq.store.index.index import Index
from cometmq.store.log.damage import behind_damage
from cometmq.store.log.group_walk import RecordGroup
from cometmq.store.log.reader import LogReader
from cometmq.store.put.batch import MessageBatch, behind_each_other
from cometmq.store.queue.consume_queue import ConsumeQueue
from cometmq.store.queue.consume_queues import ConsumeQueues
from cometmq.store.read.skipped import Skipped
from cometmq.wire.record.codec import Record
from cometmq.wire.record.walk import WalkEnd

if TYPE_CHECKING:
    from cometmq.store.put.bulk import RecordBulk
    from cometmq.store.put.runs import RunUnit

log = logging.getLogger("cometmq.store")

Block = bytes | memoryview
Place = tuple[int, int, int]
"""Queue offset, place in the log and store time of the first of several records."""


class BatchUnits:
    """What is to be dispatched of a batch: the columns of its units, its keys, and its properties."""

    __slots__ = ("blocks", "codes", "end", "keyed", "queue_offset", "sizes", "starts", "stored_ms")

    def __init__(self, batch: MessageBatch) -> None:
        head = batch.head
        self.queue_offset = head.queue_offset
        self.stored_ms = head.store_timestamp_ms
        self.sizes = batch.sizes
        *self.starts, self.end = accumulate(batch.sizes, initial=head.physical_offset)
        self.codes: list[int] = []
        self.keyed: list[Keyed] = []
        self.blocks: list[Block] = [item.properties_block for item in batch.items]
        topic, stored_ms, own = head.topic, self.stored_ms, bytes(head.properties_block)
        previous: Block | None = None
        counts = bool(own) and put_values(own) != NO_VALUES  # hardly ever do a batch's own properties
        unique_keys = None if counts or not self.blocks else unique_keys_of_all(self.blocks)
        if unique_keys is not None:
            self.codes = [put_values(self.blocks[0])[0]] * len(self.blocks)
            self.keyed = [
                (topic, unique_key, None, start, stored_ms)
                for unique_key, start in zip(unique_keys, self.starts, strict=True)
            ]
            return
        for start, block in zip(self.starts, self.blocks, strict=True):
            if block != previous:  # without keys, those of all items are often the same
                code, unique_key, keys, _ = put_values(behind_each_other(block, own) if counts else block)
                previous = block
            self.codes.append(code)
            if unique_key or keys:
                self.keyed.append((topic, unique_key, keys, start, stored_ms))


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
        skipped: Skipped | None = None,
    ) -> None:
        """With `spreads`, messages are dispatched to the further queues that they name, too."""
        self._skipped = skipped or Skipped()
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
        self.arrivals: Final = Arrivals()

    def queue_of(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, made if need be; None if there cannot be such a queue, or not yet."""
        queue = self._queues.find(topic, queue_id)
        if queue is not None:
            return queue
        if topic in self._queues.leaving or queue_id < 0 or not is_file_name(topic):
            return None
        return self._queues.get(topic, queue_id)

    def dispatch(
        self,
        queue: ConsumeQueue,
        offset: int,
        size: int,
        queue_offset: int,
        sys_flag: int,
        stored_ms: int,
        values: Values,
        block: Block,
    ) -> bool:
        """Dispatch the record at `position` to its queue; False, and the failure is kept, if that failed.

        `values` are what `put_values` found in `block`, the message's properties.
        """
        code, unique_key, keys, _ = values
        try:
            if not sys_flag & TRANSACTION_MASK or is_queued(sys_flag):
                if queue.topic == DELAY_TOPIC:
                    code = self._levels.unit_code(DELAY_TOPIC, code, block, stored_ms)
                queue.append(offset, size, code, queue_offset)
                if self._spreads:
                    self._spread(offset, size, code, further_places(block, queue.queue_id))
            elif not is_indexed(sys_flag):
                unique_key = keys = None
            if (unique_key or keys) and self._index is not None:
                self._index.put(queue.topic, unique_key, keys, offset, stored_ms)
        except OSError as error:
            return self._failed(error, offset)
        self.position = offset + size
        self.last_store_time_ms = stored_ms
        if self.arrivals and is_queued(sys_flag):
            places = [QueuePlace(queue.topic, queue.queue_id, queue_offset)]
            if self._spreads:
                places += further_places(block, queue.queue_id)
            for place in places:
                self._tell(*place, code, stored_ms, block)
        return True

    def dispatch_run(self, units: Sequence[RunUnit], stored_ms: int) -> bool:
        """The same for plain messages, behind one another in the log."""
        keyed: list[Keyed] = []
        try:
            for queue, offset, size, code, queue_offset, unique_key, keys, _ in units:
                queue.append(offset, size, code, queue_offset)
                if unique_key or keys:
                    keyed.append((queue.topic, unique_key, keys, offset, stored_ms))
            if self._index is not None:
                self._index.put_all(keyed)
        except OSError as error:
            return self._failed(error, units[0][1])
        self.position = offset + size
        self.last_store_time_ms = stored_ms
        if self.arrivals:
            topic, listeners = "", self.arrivals.of("")
            for queue, _, _, code, queue_offset, _, _, block in units:
                if queue.topic != topic:
                    topic = queue.topic
                    listeners = self.arrivals.of(topic)
                for arrived in listeners:
                    try:
                        arrived(topic, queue.queue_id, queue_offset, code, stored_ms, block)
                    except Exception:
                        _not_taken(topic, queue.queue_id, queue_offset)
        return True

    def _spread(self, offset: int, size: int, code: int, places: Iterable[QueuePlace]) -> None:
        for topic, queue_id, queue_offset in places:
            queue = self.queue_of(topic, queue_id)
            if queue is not None:
                queue.append(offset, size, code, queue_offset)

    def _tell(
        self, topic: str, queue_id: int, queue_offset: int, code: int, stored_ms: int, block: Block
    ) -> None:
        for arrived in self.arrivals.of(topic):
            try:
                arrived(topic, queue_id, queue_offset, code, stored_ms, block)
            except Exception:
                _not_taken(topic, queue_id, queue_offset)

    def dispatch_batch(self, queue: ConsumeQueue, units: BatchUnits) -> bool:
        """The same for a batch, which is never part of a transaction."""
        topic, stored_ms = queue.topic, units.stored_ms
        try:
            queue.append_many(units.queue_offset, units.starts, units.sizes, units.codes)
            if self._index is not None:
                self._index.put_all(units.keyed)
        except OSError as error:
            return self._failed(error, units.starts[0])
        self.position = units.end
        self.last_store_time_ms = stored_ms
        if self.arrivals:
            places = zip(units.codes, units.blocks, strict=True)
            for queue_offset, (code, block) in enumerate(places, units.queue_offset):
                self._tell(topic, queue.queue_id, queue_offset, code, stored_ms, block)
        return True

    def dispatch_bulk(self, queue: ConsumeQueue, bulk: RecordBulk, place: Place) -> bool:
        """The same for records that came as such."""
        queue_offset, start, stored_ms = place
        try:
            queue.append_packed(queue_offset, bulk.units(start))
            if self._index is not None and bulk.hashes is not None:
                self._index.put_columns(bulk_columns(bulk.hashes, start + bulk.starts, stored_ms))
        except OSError as error:
            return self._failed(error, start)
        self.position = start + bulk.size
        self.last_store_time_ms = stored_ms
        if self.arrivals.awaited(queue.topic, queue.queue_id):
            messages = zip(bulk.codes.tolist(), bulk.blocks(), strict=True)
            for offset, (code, block) in enumerate(messages, queue_offset):
                self._tell(queue.topic, queue.queue_id, offset, code, stored_ms, block)
        return True

    def dispatch_group(self, group: RecordGroup) -> bool:
        """The same for records that were read in the log, of which none is part of a transaction."""
        try:
            for run in group.runs:
                queue = self.queue_of(run.topic, run.queue_id)
                if queue is None:
                    self._pass_over(run.units[0], run.topic, run.queue_id)
                else:
                    queue.append_many(run.first_offset, run.units[::3], run.units[1::3], run.units[2::3])
            if self._index is not None:
                self._index.put_all(group.keyed)
        except OSError as error:
            return self._failed(error, group.start)
        self.position = group.end
        self.last_store_time_ms = group.last_stored_ms
        if self.arrivals:
            for arrival in group.arrivals:
                self._tell(*arrival)
        return True

    def _failed(self, error: OSError, offset: int) -> bool:
        if self.failure is None:
            log.error(
                "queue units or keys of the records from %d on could not be written: %s; trying again",
                *(offset, error),
            )
        self.failure = error
        return False

    def catch_up(self, limit: int) -> bool:
        """Dispatch what the log has up to an offset; False if that failed, or still fails."""
        if self.position < self._log.min_offset:
            self.position = self._log.min_offset
        while True:
            walk = self._log.walk_groups(
                self.position, limit, one_by_one=self._spreads, with_arrivals=bool(self.arrivals)
            )
            for found in walk:
                if not self.dispatch_found(found):
                    return False
            self.position = max(self.position, walk.position)  # which may be behind a filler
            if walk.end is not WalkEnd.MALFORMED or not self._pass_damage(limit):
                break
        self.failure = None
        return True

    def _pass_damage(self, limit: int) -> bool:
        """Go on behind bytes that are no record; False if there is nothing yet to go on with."""
        behind = behind_damage(self._log, self.position)
        if behind >= limit:
            return False  # it may be a record that is not complete yet
        self._skipped.log_range(self.position, behind, "they are damaged, and their messages are skipped")
        self.position = behind
        return True

    def dispatch_found(self, found: RecordGroup | Record) -> bool:
        """Dispatch what a walk over the log gave."""
        if isinstance(found, RecordGroup):
            return self.dispatch_group(found)
        if found.topic.startswith(LOST_TOPIC) and not is_indexed(found.sys_flag):
            self.position = found.physical_offset + found.total_size
            return True
        queue = self.queue_of(found.topic, found.queue_id)
        if queue is None:
            self._pass_over(found.physical_offset, found.topic, found.queue_id)
            return True
        block = found.properties_block
        return self.dispatch(
            queue,
            found.physical_offset,
            found.total_size,
            found.queue_offset,
            found.sys_flag,
            found.store_timestamp_ms,
            put_values(block),
            block,
        )

    def _pass_over(self, offset: int, topic: str, queue_id: int) -> None:
        if topic not in self._queues.leaving:  # what is deleted this moment is rightly not there
            log.warning(
                "the records from %d on have the impossible queue %r %d, and are passed over",
                *(offset, topic, queue_id),
            )


def _not_taken(topic: str, queue_id: int, queue_offset: int) -> None:
    """The message is there, whatever becomes of those who wait for it."""
    log.exception("somebody could not take the arrival of %s-%d-%d", topic, queue_id, queue_offset)
