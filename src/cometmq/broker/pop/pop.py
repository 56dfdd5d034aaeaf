"""POP_MESSAGE, PEEK_MESSAGE and NOTIFICATION: taking messages for an invisible time, and looking for them.

Rules kept here:
- Messages in memory are given in the turn of the event loop in which the pop came. Older ones are brought
  into memory by a worker thread first.
- A message is given only once its checkpoint is in the log, and with synchronous flush on the disk: it comes
  back unless it is acknowledged.
- A pop that took nothing is held, as long as it asks for. Messages that a pop leaves over wake the next one.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from cometmq.broker.pop.checks import PopChecks, PopPermit
from cometmq.broker.pop.consumer_order import ConsumerOrders
from cometmq.broker.pop.handles import ORDER_QUEUE
from cometmq.broker.pop.long_polling import Held, Waiter, Waiters
from cometmq.broker.pop.offsets import PopOffsets
from cometmq.broker.pop.take import Pop, Taker
from cometmq.broker.settings import Settings
from cometmq.broker.time_slices import sliced
from cometmq.broker.topics.topics import Topics
from cometmq.ports.clock import Clock
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import DEFERRED, Answer, Deferred, Result
from cometmq.store.message_store import MessageStore
from cometmq.store.read.reader import GetStatus
from cometmq.wire.codes import ResponseCode
from cometmq.wire.frame.command import Command
from cometmq.wire.headers.pop import (
    NotificationRequest,
    NotificationResponse,
    PeekMessageRequest,
    PopMessageRequest,
    PopMessageResponse,
)

END_EARLY_MS: Final = 50
"""How long before its time is over a waiting pop is answered."""
MOST_FETCHES: Final = 16
"""The most cold reads of one pop."""
MAX_PEEKED_BYTES: Final = 4 * 1024 * 1024
"""With more than this found, a peek looks no further."""
_MISPLACED = (GetStatus.OFFSET_TOO_SMALL, GetStatus.OFFSET_OVERFLOW_BADLY)


class Popper:
    """Runs pops."""

    def __init__(
        self, settings: Settings, clock: Clock, store: MessageStore, checks: PopChecks, taker: Taker
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._store = store
        self._checks = checks
        self._taker = taker
        self._pops = 0
        self._waits_for_flush = settings.flushes_before_answer
        self.waiters = Waiters(settings, clock, store, self._run_again, last_first=False)

    def pop(self, header: PopMessageRequest, request: Command, connection: Connection) -> Result:
        """Run a pop."""
        now_ms = self._clock.now_ms()
        if header.born_time == 0:
            header.born_time = now_ms
        permit = self._checks.check_pop(header, connection, now_ms)
        pop = self._begin(header, permit, connection, now_ms)
        self._taker.take(pop)
        if pop.cold is not None and not pop.records:
            return self._pop_cold(pop, connection)
        return self._finish(pop, request, connection)

    def _begin(
        self, header: PopMessageRequest, permit: PopPermit, connection: Connection, now_ms: int
    ) -> Pop:
        self._pops += 1
        queues = max(self._settings.broker.revive_queue_num, 1)
        revive_queue = ORDER_QUEUE if header.order else self._pops % queues
        return Pop(header, permit, connection.remote_address, now_ms, revive_queue)

    async def _pop_cold(self, pop: Pop, connection: Connection) -> Answer:
        store, fetched = self._store, set()
        for _ in range(MOST_FETCHES):
            if pop.cold is None or pop.records:
                break
            await store.get(*pop.cold, pop.room, wanted=pop.permit.wanted)
            fetched.add(pop.cold)
            pop = self._begin(pop.header, pop.permit, connection, self._clock.now_ms())
            pop.fetched = frozenset(fetched)
            self._taker.take(pop)
        self._wake_next(pop)
        if pop.end_offset >= 0 and self._waits_for_flush:
            await store.flusher.wait_flushed(pop.end_offset)
        return _answer(pop)

    def _finish(self, pop: Pop, request: Command, connection: Connection) -> Answer | Deferred:
        header = pop.header
        if pop.records:
            self._wake_next(pop)
            answer = _answer(pop)
            if pop.end_offset < 0 or not self._waits_for_flush:
                return answer
            flusher = self._store.flusher
            flusher.when_flushed(pop.end_offset, lambda _: connection.answer(request, answer))
            return DEFERRED
        if header.poll_time <= 0:
            return _answer(pop)
        hold_ms = header.born_time + header.poll_time - END_EARLY_MS - self._clock.now_ms()
        held = self.waiters.hold(Waiter(header, request, connection, pop.permit.wanted), hold_ms)
        if held is Held.HELD:
            self._wake_next(pop)
            return DEFERRED
        return _answer(pop, is_full=held is Held.FULL)

    def _wake_next(self, pop: Pop) -> None:
        # Where nothing moves, because the disk is full for example, nobody is woken in vain.
        if pop.rest > 0 and pop.progressed:
            header = pop.header
            self.waiters.wake(header.topic, header.consumer_group, header.queue_id)

    def _run_again(self, waiter: Waiter) -> Result:
        assert isinstance(waiter.header, PopMessageRequest)
        return self.pop(waiter.header, waiter.request, waiter.connection)


def _answer(pop: Pop, *, is_full: bool = False) -> Answer:
    header = pop.header
    code, status = ResponseCode.SUCCESS, GetStatus.FOUND
    if not pop.records:
        code = ResponseCode.POLLING_FULL if is_full else ResponseCode.POLLING_TIMEOUT
        status = GetStatus.NO_MESSAGE_IN_QUEUE
    return Answer(
        code.value,
        PopMessageResponse(
            pop_time=pop.pop_time_ms,
            invisible_time=header.invisible_time,
            revive_qid=pop.revive_queue,
            rest_num=pop.rest,
            start_offset_info=";".join(pop.start_infos),
            msg_offset_info=";".join(pop.message_infos),
            order_count_info=";".join(pop.order_infos) if header.order else None,
        ),
        pop.records,
        status.value,
    )


@dataclass(eq=False, repr=False)
class Peeker:
    """Answers what a pop would find; belongs to the event loop."""

    _settings: Settings
    _clock: Clock
    _store: MessageStore
    _topics: Topics
    _checks: PopChecks
    _pop_offsets: PopOffsets
    _orders: ConsumerOrders

    def __post_init__(self) -> None:
        self.waiters = Waiters(self._settings, self._clock, self._store, self._run_again, last_first=True)

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
        permit = self._checks.check_peek(header, connection)
        store, group = self._store, header.consumer_group
        records: list[memoryview] = []
        rest = 0
        size = 0
        async for topic, queue_id in sliced(self._queues(permit, header.queue_id)):
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
        permit = self._checks.check_peek(header, connection)
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
