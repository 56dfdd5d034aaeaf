"""PEEK_MESSAGE and NOTIFICATION: looking for messages without taking them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

from cometmq.broker.pop.checks import PopChecks, PopPermit
from cometmq.broker.pop.consumer_order import ConsumerOrders
from cometmq.broker.pop.long_polling import Held, Waiter, Waiters
from cometmq.broker.pop.offsets import PopOffsets
from cometmq.broker.pop.pop import END_EARLY_MS
from cometmq.broker.settings import Settings
from cometmq.broker.time_slices import TimeSlice
from cometmq.broker.topics.topics import Topics
from cometmq.ports.clock import Clock
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import DEFERRED, Answer, Deferred
from cometmq.store.message_store import MessageStore
from cometmq.store.read.reader import GetStatus
from cometmq.wire.codes import ResponseCode
from cometmq.wire.frame.command import Command
from cometmq.wire.headers.pop import (
    NotificationRequest,
    NotificationResponse,
    PeekMessageRequest,
    PopMessageResponse,
)

MAX_PEEKED_BYTES: Final = 4 * 1024 * 1024
"""With more than this found, a peek looks no further."""
_MISPLACED = (GetStatus.OFFSET_TOO_SMALL, GetStatus.OFFSET_OVERFLOW_BADLY)


class Peeker:
    """Answers what a pop would find; belongs to the event loop."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        store: MessageStore,
        topics: Topics,
        checks: PopChecks,
        pop_offsets: PopOffsets,
        orders: ConsumerOrders,
    ) -> None:
        self._topics = topics
        self._store = store
        self._clock = clock
        self._checks = checks
        self._pop_offsets = pop_offsets
        self._orders = orders
        self.waiters = Waiters(settings, clock, store, self._run_again, last_first=True)

    def _queues(
        self, permit: PopPermit, queue_id: int, *, in_order: bool = False
    ) -> Iterator[tuple[str, int]]:
        """The queues that a pop would read: those of the topic, then, not in order, of its retry topics."""
        chance = random.randrange(100)
        topic, count = permit.topic.topic_name, permit.topic.read_queue_nums
        if queue_id >= 0:
            yield topic, queue_id
        else:
            yield from ((topic, (chance + number) % count) for number in range(count))
        for name in () if in_order else permit.retry_topics:
            retry_topic = self._topics.get(name)
            if retry_topic is not None:
                yield from ((name, number) for number in range(retry_topic.read_queue_nums))

    # Peeking

    async def peek(self, header: PeekMessageRequest, request: Command, connection: Connection) -> Answer:
        """The next messages, which stay where they are."""
        permit = self._checks.check_look(header, connection)
        store, group = self._store, header.consumer_group
        records: list[memoryview] = []
        rest = 0
        size, time_slice = 0, TimeSlice()
        for topic, queue_id in self._queues(permit, header.queue_id):
            await time_slice.pause()
            offset = self._pop_offsets.peek(topic, group, queue_id)
            rest += self._pop_offsets.remaining(topic, queue_id, offset)
            room = header.max_msg_nums - len(records)
            if room <= 0 or size > MAX_PEEKED_BYTES:
                continue
            result = await store.get(topic, queue_id, offset, room)
            if result.status in _MISPLACED:
                result = await store.get(topic, queue_id, result.next_offset, room)
            records += result.records
            size += result.size
        fields = PopMessageResponse(pop_time=0, invisible_time=0, revive_qid=0, rest_num=rest)
        if not records:
            status = GetStatus.NO_MESSAGE_IN_QUEUE
            return Answer(ResponseCode.PULL_NOT_FOUND, fields, remark=status.value)
        return Answer(header=fields, body=records, remark=GetStatus.FOUND.value)

    # Questions

    def notify(
        self, header: NotificationRequest, request: Command, connection: Connection
    ) -> Answer | Deferred:
        """Say whether there are messages, now or as soon as some come."""
        now_ms = self._clock.now_ms()
        if header.born_time == 0:
            header.born_time = now_ms
        permit = self._checks.check_look(header, connection)
        has_messages = self._has_messages(header, permit)
        held = Held.TOO_LATE
        if not has_messages and header.poll_time > 0:
            hold_ms = header.born_time + header.poll_time - END_EARLY_MS - now_ms
            held = self.waiters.hold(Waiter(header, request, connection), hold_ms)
            if held is Held.HELD:
                return DEFERRED
        return Answer(header=NotificationResponse(has_msg=has_messages, polling_full=held is Held.FULL))

    def _has_messages(self, header: NotificationRequest, permit: PopPermit) -> bool:
        group = header.consumer_group
        for topic, queue_id in self._queues(permit, header.queue_id, in_order=header.order):
            if header.order and self._orders.is_blocked(topic, group, queue_id, header.attempt_id, 0):
                continue
            if self._pop_offsets.remaining(topic, queue_id, self._pop_offsets.peek(topic, group, queue_id)):
                return True
        return False

    def _run_again(self, waiter: Waiter) -> Answer | Deferred:
        assert isinstance(waiter.header, NotificationRequest)
        return self.notify(waiter.header, waiter.request, waiter.connection)
