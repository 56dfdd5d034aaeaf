"""Putting messages into the store: checks, queue offsets, append to the log, and dispatch in the same turn.

Rules kept here:
- A refused message changes nothing, and the status says why. An accepted one gets the next offset of its
  queue: no gaps, no offset twice.
- Prepared and rolled back messages are in no queue; their queue offset is 0.
- Consumers see a message when it is confirmed: at once, or with synchronous flush when it is on the disk. See
  `unconfirmed.py`.
- While a queue unit cannot be written, nothing more is accepted.
- Messages of a group are put as `put` would put each of them: the same bytes, offsets and statuses. `put`
  itself takes those that are not plain or need more than the log has ready: large and empty bodies, open
  transactions, the first message of a queue, the last one of a file. The rest of the group is in the log as a
  whole, or not at all if the process is killed meanwhile.
- Everything happens on one thread. Whoever delays messages, or hides them from consumers, changes the record
  before it comes here.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from operator import itemgetter
from typing import Final

import msgspec
from zlib_ng.zlib_ng import crc32

from cometmq.model.java_numbers import natural_int
from cometmq.model.message_properties import DELAY
from cometmq.model.names import DELAY_TOPIC, RETRY_PREFIX
from cometmq.model.sysflag import HOST_V6_MASK, INNER_BATCH, TRANSACTION_MASK, TransactionType
from cometmq.store.config import StoreConfig
from cometmq.store.dispatch.dispatcher import Dispatcher
from cometmq.store.dispatch.multi_dispatch import MultiDispatch
from cometmq.store.dispatch_rules import NO_VALUES, Values, is_queued, put_values
from cometmq.store.log.batch import Batch, Part
from cometmq.store.log.commit_log import LENGTHS, MAX_TOPIC_LENGTH, SHORT, CommitLog
from cometmq.store.log.group_walk import RecordGroup
from cometmq.store.put.bulk import can_take
from cometmq.store.put.unconfirmed import UnconfirmedMessages
from cometmq.store.queue.consume_queue import ConsumeQueue
from cometmq.store.queue.consume_queues import ConsumeQueues
from cometmq.store.status import PutStatus, RunningFlags, Trouble
from cometmq.wire.frame.command import Body
from cometmq.wire.record.codec import Record
from cometmq.wire.record.crc import BEFORE_CRC, CRC_PROPERTY_LENGTH, SIGN_CLEARED, without_crc_property
from cometmq.wire.record.ids import encode_offset_id
from cometmq.wire.record.layout import HEAD, MAX_TOPIC_LENGTH_V1
from cometmq.wire.record.properties import MAX_PROPERTIES_LENGTH, find_property

log = logging.getLogger("cometmq.store")

_OK: Final = PutStatus.PUT_OK
_NOT_PLAIN: Final = TRANSACTION_MASK | INNER_BATCH
_NOT_IN_GROUP: Final = TransactionType.PREPARED | INNER_BATCH
"""Bits that neither a plain nor a committed message has."""
_NO_HOST_BITS: Final = ~HOST_V6_MASK
_LARGEST_BODY: Final = 4096
"""Larger bodies are put one by one: a group would copy them once more."""

PlainMessage = tuple[str, int, int, int, int, bytes, int, int, Body, bytes, int, bytes | None, bytes | None]
"""Topic, queue id, flag, system flag, born time, born host, reconsume times, prepared transaction offset,
body and properties of a message; then the hash of its tags, its unique key and its keys.

A plain tuple, because a NamedTuple of 13 fields takes 3 times as long to make. Unpack it to give the fields
these names, or use a getter.
"""
unique_key_of: Final[Callable[[PlainMessage], bytes | None]] = itemgetter(11)
_born_host_of: Final[Callable[[PlainMessage], bytes]] = itemgetter(5)

PutOffsets = tuple[int, int, int]
"""Queue offset, physical offset and size of a message that was put."""

Later = Callable[[Callable[[], None]], object]
"""Takes a call that is to be made later."""

_NO_QUEUES: Final[dict[int, ConsumeQueue]] = {}


class PutResult(msgspec.Struct, frozen=True, gc=False):
    """Status and offsets of a put; of a batch, the offsets of the first message."""

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
        """The offset id of the message; those of a batch are separated by commas."""
        starts = list(accumulate(self.sizes[:-1], initial=self.physical_offset))
        return ",".join(encode_offset_id(self.store_host, start) for start in starts)


class PutGroupResult(msgspec.Struct):
    """Statuses and offsets of the messages of a group."""

    offsets: list[PutOffsets | PutStatus] = msgspec.field(default_factory=list)
    """Those of each message; or why it was refused."""
    count: int = 0
    """How many messages were put."""
    size: int = 0
    """How many bytes of the log they take."""
    end_offset: int = -1
    """Where the last of them ends in the log; -1 if all were refused."""


class MessageWriter:
    """Accepts messages while the store is open, a master, and has no trouble."""

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
        self._flags = flags
        self._store_host = store_host
        self._is_slave = config.broker_role == "SLAVE" and not config.duplication_enable
        self._confirms_at_once = config.flush_disk_type == "ASYNC_FLUSH" or config.read_un_committed
        self._shows_at_once = self._confirms_at_once
        self._multi_dispatch = (
            MultiDispatch(dispatcher, queues, commit_log, config) if config.enable_lmq else None
        )
        self._keeps_unconfirmed = not config.enable_multi_dispatch
        self.unconfirmed: Final = UnconfirmedMessages(commit_log, dispatcher)
        self._puts_groups = self._multi_dispatch is None and self._keeps_unconfirmed
        self.takes_bulks: Final = (
            self._puts_groups and not commit_log.seals and can_take(store_host, store_host)
        )
        """Whether encoded records can be put as a `RecordBulk`."""
        self._is_open = False
        self._refusal: PutResult | None = None
        self.on_append: Callable[[], None] | None = None
        """Called after every append."""
        flags.on_change = self._reconsider
        self._reconsider()

    def open(self, *, is_open: bool = True) -> None:
        """Accept messages from now on, or stop accepting them."""
        self._is_open = is_open
        self._reconsider()

    def become_slave(self, *, is_slave: bool = True) -> None:
        """A slave takes messages only from its master."""
        self._is_slave = is_slave
        self._reconsider()

    def confirm_up_to(self, offset: int | None) -> None:
        """Show consumers only messages that enough replicas have; None if replicas do not count."""
        self._log.confirmed_offset = offset
        self._shows_at_once = self._confirms_at_once and offset is None
        self.show_confirmed()

    def _reconsider(self) -> None:
        accepts = self._is_open and not self._is_slave and self._flags.is_writable
        self._refusal = None if accepts else PutResult(PutStatus.SERVICE_NOT_AVAILABLE)

    # One message

    def put(self, record: Record) -> PutResult:
        """Put a message; its offsets, store time and size are also set in the record."""
        if self._refusal is not None:
            return self._refusal
        topic, queue_id, block = record.topic, record.queue_id, record.properties_block
        try:
            queue = self._queues[topic][queue_id]
        except KeyError:
            made = self._make_queue(topic, queue_id)
            if isinstance(made, PutResult):
                return made
            queue = made
        has_queue = True
        if record.sys_flag & _NOT_PLAIN:
            if record.sys_flag & INNER_BATCH:
                return PutResult(PutStatus.MESSAGE_ILLEGAL)  # there are no queues for these
            has_queue = is_queued(record.sys_flag)
        values = put_values(block) if block else NO_VALUES
        if values[3]:
            return PutResult(PutStatus.MESSAGE_ILLEGAL)
        record.queue_offset = queue_offset = queue.next_offset if has_queue else 0
        status = self._append(record) if self._multi_dispatch is None else self._append_to_many(record)
        if status is not _OK:
            return PutResult(status)
        if has_queue:
            queue.next_offset = queue_offset + 1
        start, size, stored_ms = record.physical_offset, record.total_size, record.store_timestamp_ms
        flag, block = record.sys_flag, record.properties_block
        if not self._shows_at_once:
            if self._keeps_unconfirmed and not flag & TRANSACTION_MASK:
                self.unconfirmed.add(self._group_of_one(queue, record, values))
        elif not self._dispatch(queue, start, size, queue_offset, flag, stored_ms, values, block):
            self._flags.set(Trouble.QUEUE_ERROR)
        if self.on_append is not None:
            self.on_append()
        return PutResult(_OK, queue_offset, start, start + size, stored_ms, self._store_host)

    def _group_of_one(self, queue: ConsumeQueue, record: Record, values: Values) -> RecordGroup:
        code, unique_key, keys, _ = values
        group = RecordGroup(record.physical_offset, record.physical_offset)
        group.singles.append((queue, record.physical_offset, record.total_size, code, record.queue_offset))
        stored_ms, block = record.store_timestamp_ms, record.properties_block
        if unique_key or keys:
            group.keyed.append((queue.topic, unique_key, keys, record.physical_offset, stored_ms))
        if self._dispatcher.arrivals:
            arrival = queue.topic, queue.queue_id, record.queue_offset, code, stored_ms, block
            group.arrivals.append(arrival)
        group.end, group.count = record.physical_offset + record.total_size, 1
        group.last_stored_ms = stored_ms
        return group

    def _append_to_many(self, record: Record) -> PutStatus:
        """Append a multi-dispatch message; its offsets in further queues are written into its properties."""
        if self._multi_dispatch is None:
            return self._append(record)
        further = self._multi_dispatch.queues_for(record)
        if isinstance(further, PutStatus):
            return further
        status = self._append(record)
        if status is _OK:
            for queue in further:
                queue.next_offset += 1
        return status

    # A batch, which is in the log as a whole or not at all

    def put_batch(self, batch: Batch) -> PutResult:
        """Put all messages of a batch, or none."""
        if self._refusal is not None:
            return self._refusal
        head, is_bulk = batch.head, batch.is_bulk
        try:
            queue = self._queues[head.topic][head.queue_id]
        except KeyError:
            made = self._make_queue(head.topic, head.queue_id)
            if isinstance(made, PutResult):
                return made
            queue = made
        if head.sys_flag & _NOT_PLAIN or _is_delayed(head) or (is_bulk and not self.takes_bulks):
            return PutResult(PutStatus.MESSAGE_ILLEGAL)
        head.queue_offset = queue_offset = queue.next_offset
        status = self._log.append_batch(batch)
        if status is not _OK:
            return PutResult(status)
        queue.next_offset = queue_offset + batch.count
        # Unconfirmed bulks are read from the log again.
        if self._shows_at_once or (self._keeps_unconfirmed and not is_bulk):
            arrivals = self._dispatcher.arrivals
            announced = arrivals.awaited(head.topic, head.queue_id) if is_bulk else bool(arrivals)
            self._show(batch.group(queue, with_arrivals=announced))
        elif self.on_append is not None:
            self.on_append()
        start, stored_ms = head.physical_offset, head.store_timestamp_ms
        end = start + head.total_size
        return PutResult(_OK, queue_offset, start, end, stored_ms, self._store_host, batch.sizes)

    # A group of messages that arrived together

    def put_group(self, messages: Sequence[PlainMessage], later: Later | None = None) -> PutGroupResult:
        """Put plain messages, one after the other, with as few appends as possible.

        With `later`, the last dispatch is left to the call that it is given. That call has to be made before
        anything else is asked of the store.
        """
        result = PutGroupResult()
        if self._refusal is not None:
            result.offsets += [self._refusal.status] * len(messages)
            return result
        if not self._shows_at_once:
            later = None
        while (done := len(result.offsets)) < len(messages):
            group = self._append_group(result, messages[done:] if done else messages)
            done = len(result.offsets)
            if group is not None and later is not None and done == len(messages):
                later(partial(self._show, group))
            elif group is not None:
                self._show(group)
            if done < len(messages):
                self._put_alone(result, messages[done])
        return result

    def _append_group(self, result: PutGroupResult, messages: Sequence[PlainMessage]) -> RecordGroup | None:
        """Append the first messages, as far as they are plain and fit; returns them for dispatch.

        One function, which packs in its loop: a call for each message costs 5 % of a put, and packing by
        columns more.
        """
        host_length = len(_born_host_of(messages[0]))
        room = self._log.room_for_group(host_length) if self._puts_groups else None
        if room is None:
            return None
        layout, host_bits, topics, store_host, start, end, now = room
        pack, crc_of, fixed_size = layout.pack, crc32, layout.size + 2
        largest_body = min(_LARGEST_BODY, self._log.max_message_size)
        arrivals, queues, with_arrivals = self._dispatcher.arrivals, self._queues, False
        offset, offsets = start, result.offsets
        parts: list[Part] = []
        group = RecordGroup(start, start)
        singles, keyed = group.singles, group.keyed
        last_topic, of_topic, magic, name = DELAY_TOPIC, _NO_QUEUES, 0, b""
        try:
            for (
                topic,
                queue_id,
                flag,
                sys_flag,
                born_ms,
                born_host,
                consumed,
                prepared,
                body,
                block,
                code,
                unique_key,
                keys,
            ) in messages:
                if topic != last_topic:
                    magic, name = topics.get(topic, (0, b""))
                    of_topic = queues.get(topic, _NO_QUEUES) if name and topic != DELAY_TOPIC else _NO_QUEUES
                    last_topic = topic
                    # A group that is shown later may have become awaited by then.
                    with_arrivals = arrivals.awaited(topic) if self._shows_at_once else bool(arrivals)
                queue = of_topic.get(queue_id)
                body_length, block_length = len(body), len(block)
                size = fixed_size + len(name) + body_length + block_length
                if (
                    queue is None
                    or offset + size > end
                    or not 0 < body_length <= largest_body
                    or block_length > MAX_PROPERTIES_LENGTH
                    or sys_flag & _NOT_IN_GROUP
                    or len(born_host) != host_length
                    or (
                        block_length >= CRC_PROPERTY_LENGTH
                        and block[BEFORE_CRC] == 1
                        and without_crc_property(block) is not block
                    )
                ):
                    break
                queue_offset = queue.next_offset
                fixed = pack(
                    size,
                    magic,
                    crc_of(body) & SIGN_CLEARED,
                    queue_id,
                    flag,
                    queue_offset,
                    offset,
                    sys_flag & _NO_HOST_BITS | host_bits,
                    born_ms,
                    born_host,
                    now,
                    store_host,
                    consumed,
                    prepared,
                    body_length,
                )
                length = LENGTHS[block_length] if block_length < SHORT else block_length.to_bytes(2, "big")
                parts += (fixed, body, name, length, block)
                singles.append((queue, offset, size, code, queue_offset))
                if unique_key or keys:
                    keyed.append((topic, unique_key, keys, offset, now))
                if with_arrivals:
                    group.arrivals.append((topic, queue_id, queue_offset, code, now, block))
                offsets.append((queue_offset, offset, size))
                queue.next_offset = queue_offset + 1
                offset += size
        except struct.error:  # a number that does not fit into its field; `put` refuses the message
            pass
        if not singles:
            return None
        group.count = len(singles)
        first, parts[0] = parts[0], parts[0][HEAD.size :]
        self._log.append_packed(first[: HEAD.size], b"".join(parts), now)
        result.count += group.count
        result.size += offset - start
        result.end_offset = group.end = offset
        group.last_stored_ms = now
        return group

    def _put_alone(self, result: PutGroupResult, message: PlainMessage) -> None:
        """Put a message of a group that cannot be appended with the others."""
        topic, queue_id, flag, sys_flag, born_ms, born_host, consumed, prepared, body, block, *_ = message
        record = Record(
            topic,
            body,
            block,
            queue_id=queue_id,
            flag=flag,
            sys_flag=sys_flag,
            born_timestamp_ms=born_ms,
            born_host=born_host,
            reconsume_times=consumed,
            prepared_transaction_offset=prepared,
        )
        put = self.put(record)
        if put.status is _OK:
            size = put.end_offset - put.physical_offset
            result.offsets.append((put.queue_offset, put.physical_offset, size))
            result.count += 1
            result.size += size
            result.end_offset = put.end_offset
        else:
            result.offsets.append(put.status)

    def _show(self, group: RecordGroup) -> None:
        """Dispatch a group of plain messages that is in the log, or keep it until it is confirmed."""
        if not self._shows_at_once:
            self.unconfirmed.add(group)
        elif not self._dispatcher.dispatch_group(group):
            self._flags.set(Trouble.QUEUE_ERROR)
        if self.on_append is not None:
            self.on_append()

    # Queues

    def _make_queue(self, topic: str, queue_id: int) -> ConsumeQueue | PutResult:
        """The queue of a first message; or why the message is refused."""
        longest = MAX_TOPIC_LENGTH if topic.startswith(RETRY_PREFIX) else MAX_TOPIC_LENGTH_V1
        if len(topic.encode("utf-8", "surrogatepass")) <= longest:
            queue = self._dispatcher.queue_of(topic, queue_id)
            if queue is not None:
                return queue
        # While its topic is being deleted, a message may be sent again.
        is_leaving = topic in self._all_queues.leaving
        return PutResult(PutStatus.SERVICE_NOT_AVAILABLE if is_leaving else PutStatus.MESSAGE_ILLEGAL)

    def show_confirmed(self, *, more_comes: bool = False) -> bool:
        """Dispatch messages that were confirmed meanwhile, or could not be dispatched before.

        If `more_comes`, messages kept together with others that will be confirmed soon may wait for them;
        returns False then.
        """
        confirmed, dispatcher = self._log.confirm_offset, self._dispatcher
        if dispatcher.position >= confirmed and dispatcher.failure is None:
            return True
        if self.unconfirmed.dispatch(confirmed):
            if dispatcher.position >= confirmed:
                return True
            if more_comes and self.unconfirmed.has(dispatcher.position):
                return False
        if dispatcher.catch_up(confirmed):
            if self._flags.set(Trouble.QUEUE_ERROR, on=False):
                log.info("queues and index are up to date with the log again")
        else:
            self._flags.set(Trouble.QUEUE_ERROR)
        return True


def _is_delayed(record: Record) -> bool:
    """Whether a message has a delay level; a value that is no number does not count."""
    level = find_property(record.properties_block, DELAY) if record.properties_block else None
    return level is not None and (natural_int(level) or 0) > 0
