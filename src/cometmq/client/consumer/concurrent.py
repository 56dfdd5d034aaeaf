"""Concurrent consumption: many messages of a queue at once, in any order.

Rules kept here:
- A message is done when its listener returned, or when the broker took it back. Until then the offset of its
  queue does not pass it.
- A message that cannot be sent back is retried here some seconds later.
- A listener that exceeds `consume_timeout_min` loses its message: the broker delivers it again, and the
  listener's result no longer counts.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import msgspec

from cometmq.client.consumer.consumption import Consumption
from cometmq.client.consumer.listener import DONE, ConsumeResult, Listener, Outcome
from cometmq.client.consumer.listener_pool import TaskWorkers
from cometmq.client.consumer.offset_store import OffsetStore
from cometmq.client.consumer.process_queue import ProcessQueue
from cometmq.model.message import StoredMessage

log = logging.getLogger("cometmq.client")

TRY_AGAIN_HERE_S: Final = 5.0
_EXPIRED_DELAY_LEVEL: Final = 3
_SEND_BACKS_AT_ONCE: Final = 16

Job = tuple[ProcessQueue, Sequence[StoredMessage], Listener]
_Return = tuple[ProcessQueue, StoredMessage, int]


@dataclass(eq=False, repr=False)
class ConcurrentConsumption(Consumption[Job, Outcome]):
    """Runs listeners over messages, and tracks which are done."""

    _offsets: OffsetStore

    def __post_init__(self) -> None:
        super().__post_init__()
        self._sending_back: TaskWorkers[_Return, bool] = TaskWorkers(
            f"{self._name}-returns", _SEND_BACKS_AT_ONCE, self._give_back, self._given_back
        )

    def submit(self, pq: ProcessQueue, messages: Sequence[StoredMessage]) -> None:
        """Consume these messages, which the process queue holds."""
        for topic, group in groupby(messages, key=_topic_of):
            listener = self._listener_of(topic)
            if listener is None:  # a topic that only an earlier version of the program subscribed to
                log.error("no listener for topic %s; its messages are given back", topic)
                self._sending_back.submit((pq, message, 0) for message in group)
                continue
            self._submit(listener, self._jobs(pq, list(group), listener))

    def _jobs(self, pq: ProcessQueue, messages: list[StoredMessage], listener: Listener) -> Iterable[Job]:
        size = self._batch_size
        if size == 1:
            return [(pq, (message,), listener) for message in messages]
        return [(pq, messages[at : at + size], listener) for at in range(0, len(messages), size)]

    @staticmethod
    def _run(job: Job) -> Outcome:
        pq, messages, listener = job
        return _DROPPED if pq.dropped else listener.call(messages, pq.queue)

    @staticmethod
    async def _run_async(job: Job) -> Outcome:
        pq, messages, listener = job
        return _DROPPED if pq.dropped else await listener.call_async(messages, pq.queue)

    def _finished(self, finished: list[tuple[Job, Outcome, float]]) -> None:
        touched: set[ProcessQueue] = set()
        statistics = self._statistics
        for (pq, messages, _), outcome, seconds in finished:
            touched.add(pq)
            if outcome is DONE:
                pq.done(messages)
                statistics.of(messages[0].topic).count_call(len(messages), seconds)
            elif outcome is not _DROPPED:
                statistics.of(messages[0].topic).count_call(0, seconds)
                self._settle(pq, messages, outcome)
        for pq in touched:
            self._advance(pq)

    def _advance(self, pq: ProcessQueue) -> None:
        pq.made_room()
        if not pq.dropped:
            offset = pq.commit_offset()
            if offset is not None:
                self._offsets.update(pq.queue, offset, increase_only=True)

    def _settle(self, pq: ProcessQueue, messages: Sequence[StoredMessage], outcome: Outcome) -> None:
        context = outcome.context
        done_count = outcome.done_count(len(messages))
        self._statistics.of(messages[0].topic).count_results(done_count, len(messages) - done_count)
        pq.done(messages[:done_count])
        failed = messages[done_count:]
        if self._settings.broadcasting:
            for message in failed:
                log.warning("message %s of %s failed and is dropped", message.msg_id, pq.queue)
            pq.done(failed)
            return
        level = 0 if context is None else context.delay_level
        # A message that is no longer held was sent back before, because it took too long.
        held = [message for message in failed if message.queue_offset in pq.messages]
        self._sending_back.submit([(pq, message, level) for message in held])

    async def _give_back(self, item: _Return) -> bool:
        pq, message, level = item
        if pq.dropped:  # the new owner of the queue gets the message anyway
            return True
        return await self._send_back.give_back(message, pq.queue, level)

    def _given_back(self, finished: list[tuple[_Return, bool, float]]) -> None:
        for (pq, message, _), taken, _seconds in finished:
            if taken:
                pq.done((message,))
            elif not self._stopping:
                again = msgspec.structs.replace(message, reconsume_times=message.reconsume_times + 1)
                asyncio.get_running_loop().call_later(TRY_AGAIN_HERE_S, self._try_again, pq, again)
        for pq in {item[0] for item, _, _ in finished}:
            self._advance(pq)

    def _try_again(self, pq: ProcessQueue, message: StoredMessage) -> None:
        if not pq.dropped and not self._stopping:
            pq.put((message,))
            self.submit(pq, (message,))

    def send_back_expired(self) -> None:
        """Send back messages that exceed the consume timeout."""
        if self._settings.broadcasting:
            return
        begun_before = time.monotonic() - self._settings.consume_timeout_min * 60
        for (pq, messages, _), since in (*self._threads.running(), *self._tasks.running()):
            if since < begun_before:
                late = [message for message in messages if message.queue_offset in pq.messages]
                if late:
                    log.warning("%d message(s) of %s took too long and are given back", len(late), pq.queue)
                self._sending_back.submit([(pq, message, _EXPIRED_DELAY_LEVEL) for message in late])

    async def stop(self, timeout_s: float) -> bool:
        """Withdraw, and wait for running listeners and send-backs; True if the listeners ended in time."""
        ended = await super().stop(timeout_s)
        await self._sending_back.finish(timeout_s)
        return ended


_DROPPED: Final = Outcome(ConsumeResult.RECONSUME_LATER)
"""The outcome of messages whose queue was dropped before a listener got them."""


def _topic_of(message: StoredMessage) -> str:
    return message.topic
