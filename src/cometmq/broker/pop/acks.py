"""Pop acknowledgements, and changes of the invisible time.

Rules kept here:
- An acknowledgement is answered when it is in the log, and with synchronous flush on the disk. So a message
  whose acknowledgement was answered in time never comes back.
- Single acknowledgements of one checkpoint that come in the same turn of the event loop are written as one
  record, and answered when the turn ends.
- A changed time is a new checkpoint of one message, and then an acknowledgement of the old one; the answer
  has the parts of the new handle.
- Messages popped in order have no checkpoints: the group goes on after the last message up to which all are
  acknowledged. That is written down, because offsets are saved only every few seconds. Messages that the
  group is past already count as done. A request that waits for the queue is woken when it is free.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from cometmq.broker.groups.offsets import ConsumerOffsets
from cometmq.broker.monitor.counters import Traffic
from cometmq.broker.pop.checks import PopChecks
from cometmq.broker.pop.consumer_order import ILLEGAL, UNCHANGED, ConsumerOrders
from cometmq.broker.pop.handles import ORDER_QUEUE, Handle, PopRefused, marked_topic, read_handle
from cometmq.broker.pop.in_flight import InFlight
from cometmq.broker.pop.revive_topic import AckedCheckpoint, ReviveTopic, ack_of, not_written
from cometmq.broker.settings import Settings
from cometmq.model.java_numbers import LARGEST_LONG
from cometmq.ports.clock import Clock
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import DEFERRED, Answer, Deferred
from cometmq.store.message_store import MessageStore
from cometmq.store.put.writer import PutResult
from cometmq.store.status import PutStatus
from cometmq.wire.bodies.pop import Ack, BatchAck, BatchAckRequest, Checkpoint
from cometmq.wire.codes import ResponseCode
from cometmq.wire.frame.command import Command
from cometmq.wire.headers.pop import (
    AckMessageRequest,
    ChangeInvisibleTimeRequest,
    ChangeInvisibleTimeResponse,
)

MAX_BATCH_ACKS: Final = 4_096
"""A request with acknowledgements of more checkpoints is refused."""
MAX_BATCH_OFFSETS: Final = 65_536
"""A request with acknowledgements of more messages is refused."""
_OK: Final = PutStatus.PUT_OK
_DONE: Final = Answer()
_NOTHING: Final = "the batch acknowledges nothing; send it with the handles of messages"


@dataclass(eq=False, repr=False)
class OrderAcks:
    """Acknowledges in order; belongs to the event loop."""

    _settings: Settings
    _clock: Clock
    _offsets: ConsumerOffsets
    _traffic: Traffic
    _revive_topic: ReviveTopic
    _orders: ConsumerOrders
    _in_flight: InFlight
    _on_free: Callable[[str, str, int], object]

    def acknowledge(
        self,
        topic: str,
        group: str,
        queue_id: int,
        offset: int,
        pop_time_ms: int,
        invisible_ms: int,
        connection: Connection,
    ) -> PutResult | None:
        """A message is done; what was written about that, if anything."""
        before = self._offsets.query(group, topic, queue_id)
        if offset < before:
            return None
        next_offset = self._orders.acknowledge(topic, group, queue_id, offset, pop_time_ms, before)
        if next_offset == ILLEGAL:
            remark = (
                f"offset is illegal, key:{topic}@{group}@{queue_id}, old:{before}, commit:{offset}, "
                f"next:{next_offset}, {connection.remote_address}"
            )
            raise PopRefused(ResponseCode.MESSAGE_ILLEGAL, remark)
        if next_offset == UNCHANGED:
            return None
        put = None
        if next_offset != before and not self._offsets.has_reset(topic, group, queue_id):
            put = self._write(topic, group, queue_id, offset, pop_time_ms, next_offset)
            self._offsets.commit(connection.remote_address, group, topic, queue_id, next_offset)
        self._in_flight.remove(topic, group, queue_id, 1, pop_time_ms)
        self._traffic.note_acknowledged(topic, group, 1)
        if not self._orders.is_blocked(topic, group, queue_id, None, invisible_ms):
            self._on_free(topic, group, queue_id)
        return put

    def _write(
        self, topic: str, group: str, queue_id: int, offset: int, pop_time_ms: int, next_offset: int
    ) -> PutResult:
        """Write down how far the group is, as an acknowledgement that belongs to no checkpoint."""
        ack = Ack(
            offset=offset,
            broker_name=self._settings.broker.broker_name,
            group=group,
            pop_time_ms=pop_time_ms,
            queue_id=queue_id,
            start_offset=offset,
            topic=topic,
        )
        put = self._revive_topic.put_ack(ack, 0, 0, next_offset)
        if put.status is not PutStatus.PUT_OK:
            raise not_written(put.status)
        return put

    def change_time(self, header: ChangeInvisibleTimeRequest, handle: Handle) -> Answer:
        """A message is to be invisible for another time from now on."""
        topic, group, queue_id = header.topic, header.consumer_group, header.queue_id
        visible_ms = self._clock.now_ms() + header.invisible_time
        if header.offset >= self._offsets.query(group, topic, queue_id):
            self._orders.change_visible(topic, group, queue_id, header.offset, handle.pop_time_ms, visible_ms)
        return Answer(
            header=ChangeInvisibleTimeResponse(
                pop_time=handle.pop_time_ms,
                invisible_time=visible_ms - handle.pop_time_ms,
                revive_qid=ORDER_QUEUE,
            )
        )


class WaitingAck(NamedTuple):
    """A request that is answered when its acknowledgement is written."""

    checkpoint: AckedCheckpoint
    connection: Connection
    request: Command


@dataclass(eq=False, repr=False)
class Acks:
    """Takes acknowledgements; belongs to the event loop."""

    _settings: Settings
    _clock: Clock
    _store: MessageStore
    _traffic: Traffic
    _checks: PopChecks
    _revive_topic: ReviveTopic
    _in_order: OrderAcks
    _in_flight: InFlight

    def __post_init__(self) -> None:
        self._waits_for_flush = self._settings.flushes_before_answer
        self._offsets: dict[AckedCheckpoint, list[int]] = {}
        """By checkpoint: the offsets acknowledged in this turn."""
        self._waiting: list[WaitingAck] = []

    # One message, or several

    def ack(self, header: AckMessageRequest, request: Command, connection: Connection) -> Answer | Deferred:
        """A message is done."""
        self._checks.check_ack(header, connection, beyond_end=1)
        handle = read_handle(header.extra_info)
        if handle.revive_queue == ORDER_QUEUE:
            put = self._in_order.acknowledge(
                header.topic,
                header.consumer_group,
                header.queue_id,
                header.offset,
                handle.pop_time_ms,
                handle.invisible_ms,
                connection,
            )
            return self._when_safe(put, _DONE, request, connection)
        self._check_handle(handle.revive_queue, handle.pop_time_ms + handle.invisible_ms)
        _check_names(header.consumer_group, handle.broker_name)
        checkpoint = _checkpoint_of(header, handle)
        self._collect(checkpoint, header.offset)
        self._waiting.append(WaitingAck(checkpoint, connection, request))
        return DEFERRED

    def ack_batch(
        self, batch: BatchAckRequest, request: Command, connection: Connection
    ) -> Answer | Deferred:
        """Messages of several pops are done; what is not there is passed over."""
        if not batch.acks:
            return Answer(ResponseCode.NO_MESSAGE, remark=_NOTHING)
        _check_names(batch.broker_name or "")
        read = self._read_batches(batch.acks)  # refused as a whole, if at all
        last_put: PutResult | None = None
        refusal: PopRefused | None = None
        for each, topic, offsets in read:
            first, end = self._store.queues.bounds(topic, each.queue_id)
            there = [offset for offset in offsets if first <= offset <= end]
            if each.revive_queue == ORDER_QUEUE:
                try:
                    last_put = self._ack_in_order(each, topic, there, connection) or last_put
                except PopRefused as error:  # the others count all the same
                    refusal = error
            elif there:
                checkpoint = AckedCheckpoint(
                    topic,
                    each.group,
                    each.queue_id,
                    each.start_offset,
                    each.pop_time_ms,
                    each.invisible_ms,
                    each.revive_queue,
                    batch.broker_name or self._settings.broker.broker_name,
                )
                put = self._write_ack(checkpoint, there)
                if put.status is _OK:
                    last_put = put
                else:
                    refusal = not_written(put.status)
        if refusal is not None:
            raise refusal
        return self._when_safe(last_put, _DONE, request, connection)

    def _ack_in_order(
        self, ack: BatchAck, topic: str, offsets: list[int], connection: Connection
    ) -> PutResult | None:
        last_put: PutResult | None = None
        for offset in offsets:
            put = self._in_order.acknowledge(
                topic, ack.group, ack.queue_id, offset, ack.pop_time_ms, ack.invisible_ms, connection
            )
            last_put = put or last_put
        return last_put

    def _read_batches(self, acks: Sequence[BatchAck]) -> list[tuple[BatchAck, str, list[int]]]:
        read: list[tuple[BatchAck, str, list[int]]] = []
        count = 0
        for each in acks:
            read.append(self._read_batch(each))
            count += len(read[-1][2])
            if len(read) > MAX_BATCH_ACKS or count > MAX_BATCH_OFFSETS:
                remark = (
                    f"more than {MAX_BATCH_ACKS} checkpoints or {MAX_BATCH_OFFSETS} messages are "
                    "acknowledged in one request; send several"
                )
                raise PopRefused(ResponseCode.MESSAGE_ILLEGAL, remark)
        return read

    def _read_batch(self, ack: BatchAck) -> tuple[BatchAck, str, list[int]]:
        _check_names(ack.topic, ack.group)
        if max(abs(ack.start_offset), abs(ack.queue_id), abs(ack.pop_time_ms)) > LARGEST_LONG:
            raise PopRefused(ResponseCode.MESSAGE_ILLEGAL, "a number of the acknowledgement has over 64 bits")
        if ack.revive_queue != ORDER_QUEUE:
            self._check_handle(ack.revive_queue, ack.pop_time_ms + ack.invisible_ms)
        return ack, marked_topic(ack.topic, ack.group, ack.mark), ack.offsets

    def _check_handle(self, revive_queue: int, visible_ms: int) -> None:
        if not 0 <= revive_queue < self._settings.broker.revive_queue_num:
            remark = f"the handle names the revive queue {revive_queue}, which this broker does not have"
            raise PopRefused(ResponseCode.MESSAGE_ILLEGAL, remark)
        if visible_ms > self._clock.now_ms() + self._revive_topic.longest_ms:
            remark = "the handle names a time that is further away than any message is invisible"
            raise PopRefused(ResponseCode.MESSAGE_ILLEGAL, remark)

    def _collect(self, checkpoint: AckedCheckpoint, offset: int) -> None:
        if not self._offsets:
            asyncio.get_running_loop().call_soon(self.write)
        collected = self._offsets.get(checkpoint)
        if collected is None:
            self._offsets[checkpoint] = [offset]
        else:
            collected.append(offset)

    def write(self) -> None:
        """Write what was acknowledged in this turn, and answer."""
        if not self._offsets:
            return
        acknowledged, self._offsets = self._offsets, {}
        waiting, self._waiting = self._waiting, []
        failed: dict[AckedCheckpoint, PutStatus] = {}
        end_offset = -1
        for checkpoint, offsets in acknowledged.items():
            put = self._write_ack(checkpoint, offsets)
            if put.status is _OK:
                end_offset = put.end_offset
            else:
                failed[checkpoint] = put.status
        if self._waits_for_flush and end_offset >= 0:
            self._store.flusher.when_flushed(end_offset, lambda status: _answer_all(waiting, failed, status))
        else:
            _answer_all(waiting, failed, _OK)

    def _write_ack(self, checkpoint: AckedCheckpoint, offsets: list[int]) -> PutResult:
        put = self._revive_topic.put_ack(
            ack_of(checkpoint, offsets),
            checkpoint.revive_queue,
            checkpoint.pop_time_ms + checkpoint.invisible_ms,
        )
        self._in_flight.remove(
            checkpoint.topic, checkpoint.group, checkpoint.queue_id, len(offsets), checkpoint.pop_time_ms
        )
        if put.status is _OK:
            self._traffic.note_acknowledged(checkpoint.topic, checkpoint.group, len(offsets))
        return put

    # Another time

    def change_time(
        self, header: ChangeInvisibleTimeRequest, request: Command, connection: Connection
    ) -> Answer | Deferred:
        """A message is to be invisible for another time from now on."""
        self._checks.check_ack(header, connection, beyond_end=0)
        self._checks.check_invisible_time(header.invisible_time)
        handle = read_handle(header.extra_info)
        if handle.revive_queue == ORDER_QUEUE:
            return self._in_order.change_time(header, handle)
        self._check_handle(handle.revive_queue, handle.pop_time_ms + handle.invisible_ms)
        _check_names(header.consumer_group, handle.broker_name)
        # Within the same millisecond the new checkpoint would be the old one.
        now_ms = max(self._clock.now_ms(), handle.pop_time_ms + 1)
        checkpoint = Checkpoint(
            broker_name=handle.broker_name,
            group=header.consumer_group,
            diffs=[0],
            invisible_ms=header.invisible_time,
            count=1,
            pop_time_ms=now_ms,
            queue_id=header.queue_id,
            start_offset=header.offset,
            topic=header.topic,
        )
        put = self._revive_topic.put_checkpoint(checkpoint, handle.revive_queue)
        if put.status is not _OK:
            raise not_written(put.status)
        old = _checkpoint_of(header, handle)
        put = self._revive_topic.put_ack(
            ack_of(old, [header.offset]), old.revive_queue, old.pop_time_ms + old.invisible_ms
        )
        if put.status is not _OK:  # it may come twice then, and does not get lost
            raise not_written(put.status)
        self._traffic.note_popped(header.topic, header.consumer_group)
        self._traffic.note_acknowledged(header.topic, header.consumer_group, 1)
        answer = ChangeInvisibleTimeResponse(
            pop_time=now_ms, invisible_time=header.invisible_time, revive_qid=handle.revive_queue
        )
        return self._when_safe(put, Answer(header=answer), request, connection)

    def _when_safe(
        self, put: PutResult | None, answer: Answer, request: Command, connection: Connection
    ) -> Answer | Deferred:
        """Answer at once, or when what was written is on the disk."""
        if put is None or not self._waits_for_flush:
            return answer

        def flushed(status: PutStatus) -> None:
            connection.answer(request, answer if status.is_stored else _refusal(status))

        self._store.when_flushed(put, flushed)
        return DEFERRED


def _checkpoint_of(header: AckMessageRequest | ChangeInvisibleTimeRequest, handle: Handle) -> AckedCheckpoint:
    return AckedCheckpoint(
        header.topic,
        header.consumer_group,
        header.queue_id,
        handle.start_offset,
        handle.pop_time_ms,
        handle.invisible_ms,
        handle.revive_queue,
        handle.broker_name,
    )


def _check_names(*names: str) -> None:
    """Refuse what would become a property of its own in what is written about a message."""
    for name in names:
        if not name.isprintable():
            remark = f"{name[:100]!r} in the handle, or the request, is no name; use those of the pop"
            raise PopRefused(ResponseCode.MESSAGE_ILLEGAL, remark)


def _answer_all(
    waiting: list[WaitingAck], failed: dict[AckedCheckpoint, PutStatus], status: PutStatus
) -> None:
    for each in waiting:
        became = failed.get(each.checkpoint, status) if failed else status
        each.connection.answer(each.request, _DONE if became.is_stored else _refusal(became))


def _refusal(status: PutStatus) -> Answer:
    error = not_written(status)
    return Answer(ResponseCode.SYSTEM_ERROR, remark=error.message)
