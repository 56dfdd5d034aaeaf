"""Pops: taking messages for an invisible time, at once, after a cold read, or when some come.

Rules kept here:
- What is in memory is handed out in the turn of the event loop in which the pop came. What is further back is
  brought into memory by a worker thread first.
- A message is handed out only once its checkpoint is in the log, and with synchronous flush on the disk:
  whatever happens, it comes back unless it is acknowledged.
- A pop that took nothing is held, as long as it says. What a pop leaves over wakes the next one that waits.
"""

from __future__ import annotations

from typing import Final

from cometmq.broker.pop.checks import PopChecks, PopPermit
from cometmq.broker.pop.handles import ORDER_QUEUE
from cometmq.broker.pop.long_polling import Held, Waiter, Waiters
from cometmq.broker.pop.take import Pop, Taker
from cometmq.broker.settings import Settings
from cometmq.ports.clock import Clock
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import DEFERRED, Answer, Deferred, Result
from cometmq.store.message_store import MessageStore
from cometmq.store.read.reader import GetStatus
from cometmq.wire.codes import ResponseCode
from cometmq.wire.frame.command import Command
from cometmq.wire.headers.pop import PopMessageRequest, PopMessageResponse

END_EARLY_MS: Final = 50
"""So much before its time is over a pop that waits is answered."""
MOST_FETCHES: Final = 16
"""So often a pop has something brought into memory before it gives up."""


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
        self._waits_for_flush = settings.store.flush_disk_type == "SYNC_FLUSH"
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
