"""Putting messages into the store: checks, queue offsets, the append, and dispatch in the same turn.

Rules kept here:
- A message that is refused has changed nothing, and the status says why. One that is accepted has the next
  offset of its queue: there are no gaps and no offset comes twice.
- Messages that are prepared or rolled back have no place in a queue; their offset is 0.
- Consumers see a message when it is confirmed: at once, or with synchronous flush when it is on the disk.
  See `unconfirmed.py` for what is dispatched then.
- While a queue unit cannot be written, nothing more is accepted.
- Everything happens on one thread. Who delays messages, or hides them from consumers, has changed the record
  before it comes here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Final

import msgspec

from cometmq.model.java_numbers import natural_int
from cometmq.model.message_properties import DELAY
from cometmq.model.names import RETRY_PREFIX
from cometmq.model.sysflag import INNER_BATCH, TRANSACTION_MASK
from cometmq.store.config import StoreConfig
from cometmq.store.dispatch.dispatcher import BatchUnits, Dispatcher
from cometmq.store.dispatch.multi_dispatch import LightQueues
from cometmq.store.dispatch.rules import NO_VALUES, is_queued, put_values
from cometmq.store.log.commit_log import MAX_TOPIC_LENGTH, CommitLog
from cometmq.store.put.batch import MessageBatch
from cometmq.store.put.runs import Later, PlainMessage, PutRun, RunPutter, RunUnit
from cometmq.store.put.unconfirmed import PutNotes
from cometmq.store.queue.consume_queue import ConsumeQueue
from cometmq.store.queue.consume_queues import ConsumeQueues
from cometmq.store.running_flags import RunningFlags, Trouble
from cometmq.store.status import PutStatus
from cometmq.wire.record.codec import Record
from cometmq.wire.record.ids import encode_offset_id
from cometmq.wire.record.layout import MAX_TOPIC_LENGTH_V1
from cometmq.wire.record.properties import find_property

if TYPE_CHECKING:
    from cometmq.store.put.bulk import RecordBulk

log = logging.getLogger("cometmq.store")

_OK: Final = PutStatus.PUT_OK
_NOT_PLAIN: Final = TRANSACTION_MASK | INNER_BATCH


class PutResult(msgspec.Struct, frozen=True, gc=False):
    """What became of a put, and where the message is; of a batch, where the first one is."""

    status: PutStatus
    queue_offset: int = -1
    physical_offset: int = -1
    end_offset: int = -1
    """Where the last record ends in the log."""
    store_timestamp_ms: int = 0
    store_host: bytes = b""
    sizes: Sequence[int] = ()
    """The sizes of the records of a batch."""

    @property
    def offset_ids(self) -> str:
        """The offset id of the message; those of a batch with commas in between."""
        starts = list(accumulate(self.sizes[:-1], initial=self.physical_offset))
        return ",".join(encode_offset_id(self.store_host, start) for start in starts)


class MessageWriter:
    """Accepts messages, while nothing speaks against it."""

    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueues,
        dispatcher: Dispatcher,
        flags: RunningFlags,
        config: StoreConfig,
        store_host: bytes,
    ) -> None:
        self._log = commit_log
        self._append = commit_log.append
        self._all_queues = queues
        self._queues = queues.by_topic
        self._dispatcher = dispatcher
        self._dispatch = dispatcher.dispatch
        self._dispatch_batch = dispatcher.dispatch_batch
        self._flags = flags
        self._store_host = store_host
        self._is_slave = config.broker_role == "SLAVE" and not config.duplication_enable
        self._confirms_at_once = config.flush_disk_type == "ASYNC_FLUSH" or config.read_un_committed
        self._shows_at_once = self._confirms_at_once
        self._light_queues = LightQueues(dispatcher, queues, config) if config.enable_lmq else None
        self._takes_notes = not config.enable_multi_dispatch
        self.notes: Final = PutNotes(commit_log, dispatcher)
        """What is to be dispatched when it is confirmed."""
        self._puts_runs = self._light_queues is None and self._takes_notes
        self._runs = RunPutter(commit_log, self.put, self._show_run)
        self._is_open = False
        self._refusal: PutResult | None = None
        self.on_append: Callable[[], None] | None = None
        """Called when something was appended, if anybody wants to know."""
        flags.on_change = self._reconsider
        self._reconsider()

    def open(self, *, is_open: bool = True) -> None:
        """Accept messages from now on, or accept none any more."""
        self._is_open = is_open
        self._reconsider()

    def become_slave(self, *, is_slave: bool = True) -> None:
        """A slave takes its messages from the master alone."""
        self._is_slave = is_slave
        self._reconsider()

    def confirm_up_to(self, offset: int | None) -> None:
        """Show consumers only what enough replicas have; None if that is not what counts."""
        self._log.confirmed_offset = offset
        self._shows_at_once = self._confirms_at_once and offset is None
        self.show_confirmed()

    def _reconsider(self) -> None:
        accepts = self._is_open and not self._is_slave and self._flags.is_writable
        self._refusal = None if accepts else PutResult(PutStatus.SERVICE_NOT_AVAILABLE)

    def put(self, record: Record) -> PutResult:
        """Put a message; its offsets, store time and size are set in the record, too."""
        if self._refusal is not None:
            return self._refusal
        topic, queue_id, block = record.topic, record.queue_id, record.properties_block
        try:
            queue: ConsumeQueue | None = self._queues[topic][queue_id]
        except KeyError:
            queue = self._new_queue(topic, queue_id)
        has_place = True
        if record.sys_flag & _NOT_PLAIN:
            if record.sys_flag & INNER_BATCH:
                return PutResult(PutStatus.MESSAGE_ILLEGAL)  # there are no queues for these
            has_place = is_queued(record.sys_flag)
        values = put_values(block) if block else NO_VALUES
        if queue is None:
            return self._without_queue(topic)
        if values[3]:
            return PutResult(PutStatus.MESSAGE_ILLEGAL)
        record.queue_offset = queue_offset = queue.next_offset if has_place else 0
        status = self._append(record) if self._light_queues is None else self._append_spread(record)
        if status is not _OK:
            return PutResult(status)
        if has_place:
            queue.next_offset = queue_offset + 1
        start, size, stored_ms = record.physical_offset, record.total_size, record.store_timestamp_ms
        flag, block = record.sys_flag, record.properties_block
        if not self._shows_at_once:
            if self._takes_notes and not flag & TRANSACTION_MASK:
                self.notes.add(queue, start, size, queue_offset, stored_ms, values, block)
        elif not self._dispatch(queue, start, size, queue_offset, flag, stored_ms, values, block):
            self._flags.set(Trouble.QUEUE_ERROR)
        if self.on_append is not None:
            self.on_append()
        return PutResult(_OK, queue_offset, start, start + size, stored_ms, self._store_host)

    def put_batch(self, batch: MessageBatch) -> PutResult:
        """Put all messages of a batch, or none."""
        if self._refusal is not None:
            return self._refusal
        head = batch.head
        try:
            queue: ConsumeQueue | None = self._queues[head.topic][head.queue_id]
        except KeyError:
            queue = self._new_queue(head.topic, head.queue_id)
        if queue is None:
            return self._without_queue(head.topic)
        if head.sys_flag & _NOT_PLAIN or _is_delayed(head):
            return PutResult(PutStatus.MESSAGE_ILLEGAL)
        head.queue_offset = queue_offset = queue.next_offset
        status = self._log.append_batch(batch)
        if status is not _OK:
            return PutResult(status)
        queue.next_offset = queue_offset + len(batch.sizes)
        start, size, stored_ms = head.physical_offset, head.total_size, head.store_timestamp_ms
        units = BatchUnits(batch)
        if not self._shows_at_once:
            if self._takes_notes:
                self.notes.add_batch(queue, units)
        elif not self._dispatch_batch(queue, units):
            self._flags.set(Trouble.QUEUE_ERROR)
        if self.on_append is not None:
            self.on_append()
        return PutResult(_OK, queue_offset, start, start + size, stored_ms, self._store_host, batch.sizes)

    @property
    def takes_bulks(self) -> bool:
        """Whether records can be put as they come."""
        return self._puts_runs and self._log.takes_bulks

    def put_bulk(self, topic: str, queue_id: int, bulk: RecordBulk, born_host: bytes) -> PutResult:
        """Put records that came as such, all or none."""
        if self._refusal is not None:
            return self._refusal
        try:
            queue: ConsumeQueue | None = self._queues[topic][queue_id]
        except KeyError:
            queue = self._new_queue(topic, queue_id)
        if queue is None:
            return self._without_queue(topic)
        if not self.takes_bulks:
            return PutResult(PutStatus.MESSAGE_ILLEGAL)
        queue_offset = queue.next_offset
        status, start, stored_ms = self._log.append_bulk(bulk, queue_offset, born_host)
        if status is not _OK:
            return PutResult(status)
        queue.next_offset = queue_offset + bulk.count
        # What is not shown at once is read in the log when it is.
        if self._shows_at_once and not self._dispatcher.dispatch_bulk(
            queue, bulk, (queue_offset, start, stored_ms)
        ):
            self._flags.set(Trouble.QUEUE_ERROR)
        if self.on_append is not None:
            self.on_append()
        return PutResult(_OK, queue_offset, start, start + bulk.size, stored_ms, self._store_host)

    def put_run(self, messages: Sequence[PlainMessage], later: Later | None = None) -> PutRun:
        """Put plain messages, one after the other.

        With `later`, what consumers see of them may be brought up to date by what it is given.
        """
        if self._refusal is not None:
            run = PutRun()
            run.places += [self._refusal.status] * len(messages)
            return run
        queues = self._queues if self._puts_runs else {}
        return self._runs.put(queues, messages, later if self._shows_at_once else None)

    def _show_run(self, units: Sequence[RunUnit], stored_ms: int) -> None:
        if not self._shows_at_once:
            self.notes.add_run(units, stored_ms)
        elif not self._dispatcher.dispatch_run(units, stored_ms):
            self._flags.set(Trouble.QUEUE_ERROR)
        if self.on_append is not None:
            self.on_append()

    def _new_queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue of a first message; None if its topic cannot be in a record."""
        longest = MAX_TOPIC_LENGTH if topic.startswith(RETRY_PREFIX) else MAX_TOPIC_LENGTH_V1
        if len(topic.encode("utf-8", "surrogatepass")) > longest:
            return None
        return self._dispatcher.queue_of(topic, queue_id)

    def _without_queue(self, topic: str) -> PutResult:
        """What becomes of a message without a queue: if its topic is being deleted, it may be sent again."""
        is_leaving = topic in self._all_queues.leaving
        return PutResult(PutStatus.SERVICE_NOT_AVAILABLE if is_leaving else PutStatus.MESSAGE_ILLEGAL)

    def _append_spread(self, record: Record) -> PutStatus:
        """Append a message that may be in further queues; their offsets are written into its properties."""
        if self._light_queues is None:
            return self._append(record)
        further = self._light_queues.places_for(record)
        if isinstance(further, PutStatus):
            return further
        status = self._append(record)
        if status is _OK:
            for queue in further:
                queue.next_offset += 1
        return status

    def show_confirmed(self, *, more_comes: bool = False) -> bool:
        """Dispatch what was confirmed meanwhile, or could not be dispatched before.

        If `more_comes`, what is noted together with messages that are to be confirmed soon may wait for them;
        the answer is False then.
        """
        confirmed, dispatcher = self._log.confirm_offset, self._dispatcher
        if dispatcher.position >= confirmed and dispatcher.failure is None:
            return True
        if self.notes.dispatch(confirmed):
            if dispatcher.position >= confirmed:
                return True
            if more_comes and self.notes.has(dispatcher.position):
                return False
        if dispatcher.catch_up(confirmed):
            if self._flags.set(Trouble.QUEUE_ERROR, on=False):
                log.info("queues and index are up to date with the log again")
        else:
            self._flags.set(Trouble.QUEUE_ERROR)
        return True


def _is_delayed(record: Record) -> bool:
    """Whether the message is for one of the delay levels; what is no number is none."""
    level = find_property(record.properties_block, DELAY) if record.properties_block else None
    return level is not None and (natural_int(level) or 0) > 0
