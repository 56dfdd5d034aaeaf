"""Dispatch: from the commit log to the consume queues, the index, and listeners for new messages.

Rules kept here:
- Records are dispatched in the order of the log, singly or in groups, each group completely before the next.
  Dispatching a record again is harmless: queues and index take nothing twice.
- There are two ways in. `dispatch` takes one record of any type, `dispatch_group` plain records from a put or
  from the log.
- When a unit or a key cannot be written, on a full disk for example, dispatch stops before that record or
  group and nothing is lost: `catch_up` continues there. Puts have to stop meanwhile.
- Arrivals are announced once the unit is written, so that a listener can read the message. A listener for one
  topic costs the messages of other topics nothing.
- Damaged bytes of the log are passed over once a whole record follows them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from cometmq.model.names import DELAY_TOPIC, LOST_TOPIC
from cometmq.model.sysflag import TRANSACTION_MASK
from cometmq.ports.names import is_file_name
from cometmq.store.dispatch_rules import (
    DelayLevels,
    QueuePosition,
    Values,
    further_positions,
    is_indexed,
    is_queued,
    put_values,
)
from cometmq.store.index.index import Index
from cometmq.store.log.damage import after_damage
from cometmq.store.log.group_walk import Arrived, GroupWalk, RecordGroup
from cometmq.store.log.reader import LogReader
from cometmq.store.queue.consume_queue import ConsumeQueue
from cometmq.store.queue.consume_queues import ConsumeQueues
from cometmq.store.skipped import Skipped
from cometmq.wire.record.codec import Record
from cometmq.wire.record.walk import WalkEnd

log = logging.getLogger("cometmq.store")

Block = bytes | memoryview
Arrival = Callable[[str, int, int, int, int, bytes | memoryview], None]
"""Called with topic, queue id, queue offset, tags code, store time and properties of each new message."""

Waiting = Callable[[str, int | None], bool]
"""Whether anybody waits for messages of a topic and queue id."""


class Arrivals:
    """The listeners of a store; belongs to the writing thread."""

    def __init__(self) -> None:
        self._to_all: list[Arrival] = []
        self._to_topic: dict[str, list[Arrival]] = {}
        self._waiting: dict[Arrival, Waiting] = {}
        self._always = 0
        """How many of the listeners for all messages want each of them."""

    def __bool__(self) -> bool:
        """Whether anybody listens."""
        return bool(self._to_all or self._to_topic)

    def append(self, arrived: Arrival, topic: str | None = None, *, waiting: Waiting | None = None) -> None:
        """Add a listener for all messages, or for a topic; `waiting` says for which queues it is of use."""
        if waiting is not None:
            self._waiting[arrived] = waiting
        elif topic is None:
            self._always += 1
        listeners = self._to_all if topic is None else self._to_topic.setdefault(topic, [])
        listeners.append(arrived)

    def remove(self, arrived: Arrival, topic: str | None = None) -> None:
        """Remove a listener."""
        if topic is None:
            self._to_all.remove(arrived)
            if self._waiting.pop(arrived, None) is None:
                self._always -= 1
            return
        self._to_topic[topic].remove(arrived)
        if not self._to_topic[topic]:
            del self._to_topic[topic]

    def awaited(self, topic: str, queue_id: int | None = None) -> bool:
        """Whether anybody waits for messages of a queue, or of any queue of the topic."""
        if self._always or topic in self._to_topic:
            return True
        for waits_for in self._waiting.values():  # noqa: SIM110 - a generator takes twice the time
            if waits_for(topic, queue_id):
                return True
        return False

    def of(self, topic: str) -> Sequence[Arrival]:
        """The listeners for messages of a topic."""
        listeners = self._to_topic.get(topic)
        return self._to_all if listeners is None else [*self._to_all, *listeners]


class Dispatcher:
    """Writes records into queues and index; belongs to the writing thread."""

    def __init__(
        self,
        log_reader: LogReader,
        queues: ConsumeQueues,
        index: Index | None,
        levels: DelayLevels,
        *,
        multi_dispatch: bool = False,
        skipped: Skipped | None = None,
    ) -> None:
        """With `multi_dispatch`, messages also go to the further queues that they name."""
        self._skipped = skipped or Skipped()
        self._log = log_reader
        self._queues = queues
        self._index = index
        self._levels = levels
        self._multi_dispatch = multi_dispatch
        self.position = 0
        """Everything before this physical offset is dispatched."""
        self.failure: OSError | None = None
        """Why dispatch has stopped, while it has."""
        self.last_store_time_ms = 0
        """The store time of the last dispatched record."""
        self.arrivals: Final = Arrivals()
        self.passes_damage = True
        """Whether damaged bytes are passed over; a slave waits for the rest of a record instead."""

    def queue_of(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, made if need be; None if it cannot exist, or not yet."""
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
        """Dispatch the record at `position`; False if that failed, and `failure` says why.

        `values` are what `put_values` found in `block`, the properties. This is not a group of one: making
        the group costs 1 µs, twice as much as writing the unit.
        """
        code, unique_key, keys, _ = values
        try:
            if not sys_flag & TRANSACTION_MASK or is_queued(sys_flag):
                if queue.topic == DELAY_TOPIC:
                    code = self._levels.unit_code(DELAY_TOPIC, code, block, stored_ms)
                queue.append(offset, size, code, queue_offset)
                if self._multi_dispatch:
                    self._append_to_many(offset, size, code, further_positions(block, queue.queue_id))
            elif not is_indexed(sys_flag):
                unique_key = keys = None
            if (unique_key or keys) and self._index is not None:
                self._index.put(queue.topic, unique_key, keys, offset, stored_ms)
        except OSError as error:
            return self._failed(error, offset)
        self.position = offset + size
        self.last_store_time_ms = stored_ms
        if self.arrivals and is_queued(sys_flag):
            topic, queue_id = queue.topic, queue.queue_id
            if self._multi_dispatch:
                positions = [(topic, queue_id, queue_offset), *further_positions(block, queue_id)]
                self._announce(_arrivals_at(positions, code, stored_ms, block))
            elif self.arrivals.awaited(topic, queue_id):
                self._announce(((topic, queue_id, queue_offset, code, stored_ms, block),))
        return True

    def _append_to_many(self, offset: int, size: int, code: int, positions: Iterable[QueuePosition]) -> None:
        for topic, queue_id, queue_offset in positions:
            queue = self.queue_of(topic, queue_id)
            if queue is not None:
                queue.append(offset, size, code, queue_offset)

    def dispatch_group(self, group: RecordGroup) -> bool:
        """Dispatch records that follow one another in the log and are not part of a transaction."""
        try:
            for target, offset, size, code, queue_offset in group.singles:
                target.append(offset, size, code, queue_offset)
            for each in group.queues:
                units, queue = each.units, self.queue_of(each.topic, each.queue_id)
                if queue is None:
                    self._pass_over(units[0], each.topic, each.queue_id)
                elif each.packed:
                    queue.append_packed(each.first_offset, each.packed)
                else:
                    queue.append_many(each.first_offset, units[::3], units[1::3], units[2::3])
            if group.columns is not None:
                target, first_offset, starts, sizes, codes = group.columns
                target.append_many(first_offset, starts, sizes, codes)
            if self._index is not None:
                self._index.put_all(group.keyed)
                if group.key_columns is not None:
                    self._index.put_columns(group.key_columns)
        except OSError as error:
            return self._failed(error, group.start)
        self.position = group.end
        self.last_store_time_ms = group.last_stored_ms
        if group.arrivals:
            self._announce(group.arrivals)
        return True

    def _announce(self, arrivals: Iterable[Arrived]) -> None:
        last_topic: str | None = None
        listeners: Sequence[Arrival] = ()
        for arrival in arrivals:
            if arrival[0] != last_topic:
                last_topic = arrival[0]
                listeners = self.arrivals.of(last_topic)
            for arrived in listeners:
                try:
                    arrived(*arrival)
                except Exception:  # the message is stored, whatever becomes of its listeners
                    log.exception("a listener failed at the arrival of %s-%d-%d", *arrival[:3])

    def _failed(self, error: OSError, offset: int) -> bool:
        if self.failure is None:
            log.error(
                "queue units or keys of the records from %d on could not be written: %s; trying again",
                *(offset, error),
            )
        self.failure = error
        return False

    def catch_up(self, limit: int) -> bool:
        """Dispatch the log up to an offset; False if that failed, or still fails."""
        if self.position < self._log.min_offset:
            self.position = self._log.min_offset
        while True:
            walk = GroupWalk(
                *(self._log.files, self.position, limit),
                one_by_one=self._multi_dispatch,
                with_arrivals=bool(self.arrivals),
            )
            for found in walk:
                if not self.dispatch_found(found):
                    return False
            self.position = max(self.position, walk.position)  # it may be after a filler
            if walk.end is not WalkEnd.MALFORMED or not self._pass_damage(limit):
                break
        self.failure = None
        return True

    def _pass_damage(self, limit: int) -> bool:
        """Continue after damaged bytes; False if no record follows them yet."""
        if not self.passes_damage:
            return False
        after = after_damage(self._log, self.position)
        if after >= limit:
            return False  # it may be a record that is not complete yet
        self._skipped.log_range(self.position, after, "they are damaged, and their messages are skipped")
        self.position = after
        return True

    def dispatch_found(self, found: RecordGroup | Record) -> bool:
        """Dispatch what a walk over the log found."""
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
        if topic not in self._queues.leaving:  # queues that are being deleted are rightly missing
            log.warning(
                "the records from %d on have the impossible queue %r %d, and are passed over",
                *(offset, topic, queue_id),
            )


def _arrivals_at(
    positions: Iterable[tuple[str, int, int]], code: int, stored_ms: int, block: Block
) -> list[Arrived]:
    """The arrival of a message in several queues; not inside `dispatch`, which it would slow down."""
    return [(*position, code, stored_ms, block) for position in positions]
