"""Ordered consumption: the messages of a queue one after the other, by one listener at a time.

Rules kept here:
- A message is consumed only while this client holds the lock of its queue, and after all messages before it.
- A worker consumes many messages of a queue before the event loop gets the outcomes. It stops at the first
  failure, when the lock is lost, and after 0.1 s, so that offsets move.
- A failed message is retried after a pause, while its queue waits. After `max_reconsume_times` attempts it
  goes to the retry topic, where it becomes a dead letter, and the queue continues.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from cometmq.client.consumer.assigned_queues import QueueLocks
from cometmq.client.consumer.consumption import Consumption
from cometmq.client.consumer.listener import DONE, ConsumeResult, Listener, Outcome
from cometmq.client.consumer.offset_store import OffsetStore
from cometmq.client.consumer.process_queue import ProcessQueue
from cometmq.model.message import StoredMessage

log = logging.getLogger("cometmq.client")

_MAX_MESSAGES: Final = 256
_MAX_S: Final = 0.1
"""A worker consumes at most this much of a queue before it reports."""
_RELOCK_AFTER_S: Final = 3.0
UNLIMITED: Final = 2**31 - 1

Job = tuple[ProcessQueue, Sequence[StoredMessage], Listener]
Outcomes = list[tuple[Sequence[StoredMessage], Outcome]]
"""Batches in order, each with its outcome; only the last one may have failed."""


@dataclass(eq=False, repr=False)
class OrderedConsumption(Consumption[Job, Outcomes]):
    """Runs listeners over the messages of queues, in order."""

    _offsets: OffsetStore
    _locks: QueueLocks | None
    """None when broadcasting: no other client reads these queues."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._busy: set[ProcessQueue] = set()
        """Queues that a worker has, or that are scheduled."""
        self._with_listener: set[ProcessQueue] = set()
        self._settling: set[asyncio.Task[None]] = set()

    def submit(self, pq: ProcessQueue, messages: Sequence[StoredMessage]) -> None:
        """Consume new messages in this process queue."""
        if pq not in self._busy:
            self._go_on(pq)

    def is_busy(self, pq: ProcessQueue) -> bool:
        """Whether a listener has messages of this queue."""
        return pq in self._with_listener

    def _go_on(self, pq: ProcessQueue) -> None:
        """Consume the next messages, if there are any and the lock is held."""
        self._busy.discard(pq)
        if pq.dropped or self._stopping:
            return
        if self._locks is not None and not pq.lock_held:
            self._busy.add(pq)
            self._spawn(self._lock_and_go_on(pq, self._locks))
            return
        messages = pq.next_messages(_MAX_MESSAGES)
        if not messages:
            return
        listener = self._listener_of(messages[0].topic)
        if listener is None:
            log.error("no listener for topic %s; queue %s waits", messages[0].topic, pq.queue)
            self._later(pq, self._settings.suspend_current_queue_time_ms)
            return
        same_topic = [message for message in messages if message.topic == messages[0].topic]
        self._busy.add(pq)
        self._with_listener.add(pq)
        self._submit(listener, [(pq, same_topic, listener)])

    async def _lock_and_go_on(self, pq: ProcessQueue, locks: QueueLocks) -> None:
        while not pq.dropped and not self._stopping and not await locks.lock(pq.queue, pq):
            await pq.wait_for_room(_RELOCK_AFTER_S)
        self._go_on(pq)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    # On a worker.

    def _batches(self, job: Job) -> Iterator[Sequence[StoredMessage]]:
        """The messages for each call, until the lock is lost or the time is over."""
        pq, messages, _ = job
        size = self._batch_size
        until = time.monotonic() + _MAX_S
        for at in range(0, len(messages), size):
            if pq.dropped or self._stopping or time.monotonic() > until:
                return
            if self._locks is not None and not pq.lock_held:
                return
            yield self._with_attempts(pq, messages[at : at + size])

    def _run(self, job: Job) -> Outcomes:
        pq, _, listener = job
        outcomes: Outcomes = []
        for batch in self._batches(job):
            outcome = listener.call(batch, pq.queue)
            outcomes.append((batch, outcome))
            if outcome is not DONE and _is_failure(outcome):
                break
        return outcomes

    async def _run_async(self, job: Job) -> Outcomes:
        pq, _, listener = job
        outcomes: Outcomes = []
        for batch in self._batches(job):
            outcome = await listener.call_async(batch, pq.queue)
            outcomes.append((batch, outcome))
            if outcome is not DONE and _is_failure(outcome):
                break
        return outcomes

    def _with_attempts(self, pq: ProcessQueue, batch: Sequence[StoredMessage]) -> Sequence[StoredMessage]:
        """The messages with their number of attempts in `reconsume_times`."""
        if not pq.attempts:
            return batch
        return [_tried(message, pq.attempts.get(message.queue_offset)) for message in batch]

    # Back on the event loop.

    def _finished(self, finished: list[tuple[Job, Outcomes, float]]) -> None:
        for (pq, _, _), outcomes, seconds in finished:
            self._with_listener.discard(pq)
            failed: tuple[Sequence[StoredMessage], Outcome] | None = None
            for batch, outcome in outcomes:
                if _is_failure(outcome):
                    failed = (batch, outcome)
                else:
                    self._apply(pq, batch, outcome)
            if outcomes:
                count = sum(len(batch) for batch, _ in outcomes) - (len(failed[0]) if failed else 0)
                self._statistics.of(outcomes[0][0][0].topic).count_call(count, seconds)
            self._advance(pq)
            if failed is not None:
                self._spawn(self._settle(pq, *failed))
            else:
                self._go_on(pq)

    def _apply(self, pq: ProcessQueue, batch: Sequence[StoredMessage], outcome: Outcome) -> None:
        context = outcome.context
        auto_commit = context is None or context.auto_commit
        if not auto_commit and outcome.result is ConsumeResult.SUCCESS:
            pq.being_consumed += len(batch)  # until the listener commits
        elif pq.being_consumed:
            pq.done(pq.first_messages(pq.being_consumed + len(batch)))
            pq.being_consumed = 0
        else:
            pq.done(batch)
        for message in batch if pq.attempts else ():
            pq.attempts.pop(message.queue_offset, None)

    def _advance(self, pq: ProcessQueue) -> None:
        pq.made_room()
        offset = pq.commit_offset()
        if offset is not None and not pq.released:
            self._offsets.update(pq.queue, offset, increase_only=False)

    async def _settle(self, pq: ProcessQueue, batch: Sequence[StoredMessage], outcome: Outcome) -> None:
        """Schedule a retry of failed messages, or send them to the retry topic."""
        self._statistics.of(batch[0].topic).count_results(0, len(batch))
        if outcome.result is ConsumeResult.ROLLBACK:
            pq.being_consumed = 0
            self._later(pq, outcome.pause_ms(self._settings.suspend_current_queue_time_ms))
            return
        gone = 0
        limit = self._settings.max_reconsume_times
        for message in batch:
            attempts = pq.attempts.get(message.queue_offset, message.reconsume_times)
            if attempts >= (UNLIMITED if limit < 0 else limit) and await self._give_up(pq, message):
                gone += 1
            else:
                pq.attempts[message.queue_offset] = attempts + 1
        if gone == len(batch):
            pq.done(batch)
            for message in batch:
                pq.attempts.pop(message.queue_offset, None)
            self._advance(pq)
            self._go_on(pq)
        else:
            self._later(pq, outcome.pause_ms(self._settings.suspend_current_queue_time_ms))

    async def _give_up(self, pq: ProcessQueue, message: StoredMessage) -> bool:
        if self._settings.broadcasting:
            log.warning("message %s of %s failed too often and is dropped", message.msg_id, pq.queue)
            return True
        return await self._send_back.send_copy(message)

    def _later(self, pq: ProcessQueue, pause_ms: int) -> None:
        self._busy.add(pq)
        asyncio.get_running_loop().call_later(pause_ms / 1000, self._go_on, pq)

    async def stop(self, timeout_s: float) -> bool:
        """Withdraw, and wait for running listeners; True if they ended in time."""
        ended = await super().stop(timeout_s)
        for task in list(self._settling):
            task.cancel()
        if self._settling:
            await asyncio.wait(self._settling)
        return ended


def _is_failure(outcome: Outcome) -> bool:
    """Whether messages are retried; a rollback counts as success while `auto_commit` is enabled."""
    if outcome.result is ConsumeResult.ROLLBACK:
        return outcome.context is not None and not outcome.context.auto_commit
    return outcome.failed


def _tried(message: StoredMessage, attempts: int | None) -> StoredMessage:
    return message if attempts is None else msgspec.structs.replace(message, reconsume_times=attempts)
