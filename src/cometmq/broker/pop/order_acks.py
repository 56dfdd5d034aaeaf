"""Acknowledgements of messages that were popped in order, and changes of their time.

Rules kept here:
- There are no checkpoints: the group goes on behind the last message up to which all are done. That is
  written down, because offsets are saved only every now and then.
- Messages that the group is past already are done, whoever says so again.
- Who waits for the queue is woken when it is free.
"""

from __future__ import annotations

from collections.abc import Callable

from cometmq.broker.groups.offsets import ConsumerOffsets
from cometmq.broker.monitor.counters import Traffic
from cometmq.broker.pop.consumer_order import ILLEGAL, UNCHANGED, ConsumerOrders
from cometmq.broker.pop.handles import ORDER_QUEUE, Handle, PopRefused
from cometmq.broker.pop.in_flight import InFlight
from cometmq.broker.pop.offsets import Places
from cometmq.broker.pop.revive_topic import ReviveLog, not_written
from cometmq.broker.settings import Settings
from cometmq.ports.clock import Clock
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import Answer
from cometmq.store.put.writer import PutResult
from cometmq.store.status import PutStatus
from cometmq.wire.bodies.pop import Ack
from cometmq.wire.codes import ResponseCode
from cometmq.wire.headers.pop import ChangeInvisibleTimeRequest, ChangeInvisibleTimeResponse


class OrderAcks:
    """Acknowledges in order; belongs to the event loop."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        offsets: ConsumerOffsets,
        traffic: Traffic,
        places: Places,
        revive_log: ReviveLog,
        orders: ConsumerOrders,
        in_flight: InFlight,
        on_free: Callable[[str, str, int], object],
    ) -> None:
        self._offsets = offsets
        self._traffic = traffic
        self._settings = settings
        self._clock = clock
        self._places = places
        self._revive_log = revive_log
        self._orders = orders
        self._in_flight = in_flight
        self._on_free = on_free

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
            self._places.move(connection.remote_address, topic, group, queue_id, next_offset)
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
        put = self._revive_log.put_ack(ack, 0, 0, next_offset)
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
