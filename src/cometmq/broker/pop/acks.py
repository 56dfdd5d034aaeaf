"""Acknowledgements, and changes of the time for which a message is invisible.

Rules kept here:
- An acknowledgement is answered when it is in the log, and with synchronous flush on the disk; what cannot be
  written is answered with an error. So a message whose acknowledgement was answered in time never comes back.
- Acknowledgements of one checkpoint that come in the same turn of the event loop are written as one record,
  and answered when the turn ends.
- A changed time is a new checkpoint of one message, and then an acknowledgement of the old one; the answer
  has what the new handle is made of.
- In order there are no checkpoints: the group goes on behind the last message up to which all are done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from cometmq.broker.pop.checks import PopChecks
from cometmq.broker.pop.in_flight import InFlight
from cometmq.broker.pop.names import ORDER_QUEUE, Handle, PopRefused, marked_topic, read_handle
from cometmq.broker.pop.orders import ILLEGAL, UNCHANGED, ConsumerOrders
from cometmq.broker.pop.places import Places
from cometmq.broker.pop.revive_log import ReviveLog
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import DEFERRED, Answer, Deferred
from cometmq.store.message_writer import PutResult
from cometmq.store.status import PutStatus
from cometmq.wire.bodies.pop import Ack, BatchAck, BatchAckRequest, Checkpoint
from cometmq.wire.codes import ResponseCode
from cometmq.wire.command import Command
from cometmq.wire.headers.pop import (
    AckMessageRequest,
    ChangeInvisibleTimeRequest,
    ChangeInvisibleTimeResponse,
)

if TYPE_CHECKING:
    from cometmq.broker.state import BrokerState

_OK: Final = PutStatus.PUT_OK
_DONE: Final = Answer()


class AckedCheckpoint(NamedTuple):
    """A checkpoint of which messages are acknowledged."""

    topic: str
    group: str
    queue_id: int
    start_offset: int
    pop_time_ms: int
    invisible_ms: int
    revive_queue: int
    broker_name: str


class Waiting(NamedTuple):
    """A request that is answered when its acknowledgements are written."""

    checkpoints: tuple[AckedCheckpoint, ...]
    connection: Connection
    request: Command


class Acks:
    """Takes acknowledgements; belongs to the event loop."""

    def __init__(
        self,
        state: BrokerState,
        checks: PopChecks,
        places: Places,
        revive_log: ReviveLog,
        orders: ConsumerOrders,
        in_flight: InFlight,
        on_free: Callable[[str, str, int], object],
    ) -> None:
        self._state = state
        self._checks = checks
        self._places = places
        self._revive_log = revive_log
        self._orders = orders
        self._in_flight = in_flight
        self._on_free = on_free
        self._waits_for_flush = state.store_config.flush_disk_type == "SYNC_FLUSH"
        self._offsets: dict[AckedCheckpoint, list[int]] = {}
        """What is acknowledged in this turn."""
        self._waiting: list[Waiting] = []

    # One message, or several

    def ack(self, header: AckMessageRequest, request: Command, connection: Connection) -> Answer | Deferred:
        """A message is done."""
        self._checks.check_ack(header, connection, behind_max=1)
        handle = read_handle(header.extra_info)
        if handle.revive_queue == ORDER_QUEUE:
            put = self._ack_in_order(
                header.topic,
                header.consumer_group,
                header.queue_id,
                header.offset,
                handle.pop_time_ms,
                handle.invisible_ms,
                connection,
            )
            return self._when_safe(put, _DONE, request, connection)
        self._check_revive_queue(handle.revive_queue)
        checkpoint = AckedCheckpoint(
            header.topic,
            header.consumer_group,
            header.queue_id,
            handle.start_offset,
            handle.pop_time_ms,
            handle.invisible_ms,
            handle.revive_queue,
            handle.broker_name,
        )
        self._collect(checkpoint, [header.offset])
        self._waiting.append(Waiting((checkpoint,), connection, request))
        return DEFERRED

    def ack_batch(
        self, batch: BatchAckRequest, request: Command, connection: Connection
    ) -> Answer | Deferred:
        """Messages of several pops are done; what is not there is passed over."""
        if not batch.acks:
            return Answer(ResponseCode.NO_MESSAGE)
        read = [self._read_batch(each) for each in batch.acks]  # refused as a whole, if at all
        checkpoints: list[AckedCheckpoint] = []
        last_put: PutResult | None = None
        for each, topic, offsets in read:
            first, end = self._checks.offsets_of(topic, each.queue_id)
            there = [offset for offset in offsets if first <= offset <= end]
            if each.revive_queue == ORDER_QUEUE:
                for offset in there:
                    put = self._ack_in_order(
                        topic,
                        each.group,
                        each.queue_id,
                        offset,
                        each.pop_time_ms,
                        each.invisible_ms,
                        connection,
                    )
                    last_put = put or last_put
            elif there:
                checkpoint = AckedCheckpoint(
                    topic,
                    each.group,
                    each.queue_id,
                    each.start_offset,
                    each.pop_time_ms,
                    each.invisible_ms,
                    each.revive_queue,
                    batch.broker_name or self._state.config.broker_name,
                )
                self._collect(checkpoint, there)
                checkpoints.append(checkpoint)
        if not checkpoints:
            return self._when_safe(last_put, _DONE, request, connection)
        self._waiting.append(Waiting(tuple(checkpoints), connection, request))
        return DEFERRED

    def _read_batch(self, ack: BatchAck) -> tuple[BatchAck, str, list[int]]:
        if ack.revive_queue != ORDER_QUEUE:
            self._check_revive_queue(ack.revive_queue)
        return ack, marked_topic(ack.topic, ack.group, ack.mark), ack.offsets

    def _check_revive_queue(self, revive_queue: int) -> None:
        if not 0 <= revive_queue < self._state.config.revive_queue_num:
            remark = f"the handle names the revive queue {revive_queue}, which this broker does not have"
            raise PopRefused(ResponseCode.MESSAGE_ILLEGAL, remark)

    def _collect(self, checkpoint: AckedCheckpoint, offsets: list[int]) -> None:
        if not self._offsets:
            asyncio.get_running_loop().call_soon(self.write)
        collected = self._offsets.get(checkpoint)
        if collected is None:
            self._offsets[checkpoint] = offsets
        else:
            collected += offsets

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
            self._state.store.flusher.when_flushed(
                end_offset, lambda status: _answer_all(waiting, failed, status)
            )
        else:
            _answer_all(waiting, failed, _OK)

    def _write_ack(self, checkpoint: AckedCheckpoint, offsets: list[int]) -> PutResult:
        is_one = len(offsets) == 1
        put = self._revive_log.put_ack(
            Ack(
                offset=offsets[0] if is_one else -1,
                offsets=None if is_one else offsets,
                broker_name=checkpoint.broker_name,
                group=checkpoint.group,
                pop_time_ms=checkpoint.pop_time_ms,
                queue_id=checkpoint.queue_id,
                start_offset=checkpoint.start_offset,
                topic=checkpoint.topic,
            ),
            checkpoint.revive_queue,
            checkpoint.pop_time_ms + checkpoint.invisible_ms,
        )
        self._in_flight.remove(
            checkpoint.topic, checkpoint.group, checkpoint.queue_id, len(offsets), checkpoint.pop_time_ms
        )
        return put

    # In order

    def _ack_in_order(
        self,
        topic: str,
        group: str,
        queue_id: int,
        offset: int,
        pop_time_ms: int,
        invisible_ms: int,
        connection: Connection,
    ) -> PutResult | None:
        """A message that was popped in order is done; what was written about it, if anything."""
        before = self._state.offsets.query(group, topic, queue_id)
        if offset < before:
            return None
        orders = self._orders
        next_offset = orders.acknowledge(topic, group, queue_id, offset, pop_time_ms, before)
        if next_offset == ILLEGAL:
            remark = (
                f"offset is illegal, key:{topic}@{group}@{queue_id}, old:{before}, commit:{offset}, "
                f"next:{next_offset}, {connection.remote_address}"
            )
            raise PopRefused(ResponseCode.MESSAGE_ILLEGAL, remark)
        if next_offset == UNCHANGED:
            return None
        put = None
        if next_offset != before and not self._state.offsets.has_reset(topic, group, queue_id):
            put = self._write_progress(topic, group, queue_id, offset, pop_time_ms, next_offset)
            self._places.move(connection.remote_address, topic, group, queue_id, next_offset)
        self._in_flight.remove(topic, group, queue_id, 1, pop_time_ms)
        if not orders.is_blocked(topic, group, queue_id, None, invisible_ms):
            self._on_free(topic, group, queue_id)
        return put

    def _write_progress(
        self, topic: str, group: str, queue_id: int, offset: int, pop_time_ms: int, next_offset: int
    ) -> PutResult:
        """Write down how far a group is; there is no checkpoint that this would acknowledge."""
        ack = Ack(
            offset=offset,
            broker_name=self._state.config.broker_name,
            group=group,
            pop_time_ms=pop_time_ms,
            queue_id=queue_id,
            start_offset=offset,
            topic=topic,
        )
        put = self._revive_log.put_ack(ack, 0, 0, next_offset)
        if put.status is not _OK:
            raise _not_written(put.status)
        return put

    # Another time

    def change_time(
        self, header: ChangeInvisibleTimeRequest, request: Command, connection: Connection
    ) -> Answer | Deferred:
        """A message is to be invisible for another time from now on."""
        self._checks.check_ack(header, connection, behind_max=0)
        self._checks.check_invisible_time(header.invisible_time)
        handle = read_handle(header.extra_info)
        if handle.revive_queue == ORDER_QUEUE:
            return self._change_in_order(header, handle)
        self._check_revive_queue(handle.revive_queue)
        now_ms = self._state.clock.now_ms()
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
        put = self._revive_log.put_checkpoint(checkpoint, handle.revive_queue)
        if put.status is not _OK:
            raise _not_written(put.status)
        old = Ack(
            offset=header.offset,
            broker_name=handle.broker_name,
            group=header.consumer_group,
            pop_time_ms=handle.pop_time_ms,
            queue_id=header.queue_id,
            start_offset=handle.start_offset,
            topic=header.topic,
        )
        deliver_ms = handle.pop_time_ms + handle.invisible_ms
        put = self._revive_log.put_ack(old, handle.revive_queue, deliver_ms)
        if put.status is not _OK:  # it may come twice then, and does not get lost
            raise _not_written(put.status)
        answer = ChangeInvisibleTimeResponse(
            pop_time=now_ms, invisible_time=header.invisible_time, revive_qid=handle.revive_queue
        )
        return self._when_safe(put, Answer(header=answer), request, connection)

    def _change_in_order(self, header: ChangeInvisibleTimeRequest, handle: Handle) -> Answer:
        topic, group, queue_id = header.topic, header.consumer_group, header.queue_id
        visible_ms = self._state.clock.now_ms() + header.invisible_time
        if header.offset >= self._state.offsets.query(group, topic, queue_id):
            self._orders.change_visible(topic, group, queue_id, header.offset, handle.pop_time_ms, visible_ms)
        return Answer(
            header=ChangeInvisibleTimeResponse(
                pop_time=handle.pop_time_ms,
                invisible_time=visible_ms - handle.pop_time_ms,
                revive_qid=ORDER_QUEUE,
            )
        )

    def _when_safe(
        self, put: PutResult | None, answer: Answer, request: Command, connection: Connection
    ) -> Answer | Deferred:
        """Answer at once, or when what was written is on the disk."""
        if put is None or not self._waits_for_flush:
            return answer
        self._state.store.when_flushed(put, lambda _: connection.answer(request, answer))
        return DEFERRED


def _answer_all(waiting: list[Waiting], failed: dict[AckedCheckpoint, PutStatus], status: PutStatus) -> None:
    for each in waiting:
        answer = _DONE
        if failed or not status.is_stored:
            statuses = [failed.get(checkpoint, status) for checkpoint in each.checkpoints]
            answer = next((_refusal(status) for status in statuses if not status.is_stored), _DONE)
        each.connection.answer(each.request, answer)


def _refusal(status: PutStatus) -> Answer:
    error = _not_written(status)
    return Answer(ResponseCode.SYSTEM_ERROR, remark=error.message)


def _not_written(status: PutStatus) -> PopRefused:
    remark = f"the broker could not write this down: {status.value}; try again"
    return PopRefused(ResponseCode.SYSTEM_ERROR, remark)
