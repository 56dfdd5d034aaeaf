"""Consumption of popped messages: acknowledged, delivered again, or made a dead letter.

Rules kept here:
- A message whose listener returned is acknowledged. A failed one is delivered again after a growing delay; if
  ordered, after a short one, with all later messages of its queue. One that failed too often becomes a dead
  letter.
- A message whose invisible time ends before its listener starts, or before it fails, is left to the broker,
  which delivers it to another consumer.
- Removing a job from the table of waiting jobs claims it: a worker runs it, or a stop gives it back.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from cometmq.client.consumer.consumption import Consumption
from cometmq.client.consumer.listener import (
    DEAD_LETTER,
    DONE,
    ConsumeContext,
    ConsumeResult,
    Listener,
    Outcome,
)
from cometmq.client.consumer.listener_pool import TaskWorkers
from cometmq.client.consumer.pop.acks import PopAcks
from cometmq.client.consumer.pop.handles import PopHandle
from cometmq.client.consumer.pop.requests import PopRequests
from cometmq.model.errors import CometError
from cometmq.model.message import StoredMessage
from cometmq.model.queue import MessageQueue

if TYPE_CHECKING:
    from cometmq.client.consumer.pop.queues import PopQueue
    from cometmq.client.consumer.pop.settings import PopSettings

log = logging.getLogger("cometmq.client")

GIVEN_BACK_MS: Final = 1_000
"""The delay of a message that no listener has seen."""
_CHANGES_AT_ONCE: Final = 16


class Job(NamedTuple):
    """Messages for one call of a listener or, if ordered, for calls one after the other."""

    number: int
    pq: PopQueue
    messages: Sequence[StoredMessage]
    handles: Sequence[PopHandle]
    expires_s: float
    listener: Listener


Progress = tuple[int, Outcome]
"""The number of first messages that are done, and the outcome of the next."""


class _Change(NamedTuple):
    """A message to be delivered again or, with a delay of None, to become a dead letter."""

    pq: PopQueue
    message: StoredMessage
    handle: PopHandle
    expires_s: float
    delay_ms: int | None


@dataclass(eq=False, repr=False)
class PopConsumption(Consumption[Job, Progress]):
    """Runs listeners over popped messages."""

    _settings: PopSettings
    _pops: PopRequests
    _acks: PopAcks

    def __post_init__(self) -> None:
        super().__post_init__()
        self._numbers = itertools.count()
        self._waiting: dict[int, Job] = {}
        self._changes: TaskWorkers[_Change, bool] = TaskWorkers(
            f"{self._name}-returns", _CHANGES_AT_ONCE, self._change, self._changed
        )

    def submit(
        self,
        pq: PopQueue,
        messages: Sequence[StoredMessage],
        handles: Sequence[PopHandle],
        expires_s: float,
    ) -> None:
        """Consume these messages of one topic."""
        listener = self._listener_of(messages[0].topic)
        if listener is None:
            self._changes.submit(_given_back(pq, messages, handles, expires_s))
            return
        jobs = [
            Job(
                next(self._numbers),
                pq,
                [messages[at] for at in part],
                [handles[at] for at in part],
                expires_s,
                listener,
            )
            for part in self._parts(messages)
        ]
        self._waiting.update((job.number, job) for job in jobs)
        self._submit(listener, jobs)

    def _parts(self, messages: Sequence[StoredMessage]) -> Iterator[Sequence[int]]:
        """The indexes of the messages of each job: fixed sizes or, if ordered, one job for each queue."""
        if not self._settings.ordered:
            numbers = range(len(messages))
            size = self._batch_size
            yield from (numbers[at : at + size] for at in range(0, len(messages), size))
            return
        queues: dict[int, list[int]] = {}
        for number, message in enumerate(messages):
            queues.setdefault(message.queue_id, []).append(number)
        yield from queues.values()

    # On a worker.

    def _run(self, job: Job) -> Progress:
        if self._waiting.pop(job.number, None) is None:
            return _WITHDRAWN
        done = 0
        for batch in self._batches(job):
            if time.monotonic() >= job.expires_s:
                return done, _LATE
            outcome = job.listener.call(batch, batch[0].queue)
            finished = outcome.done_count(len(batch))
            done += finished
            if finished < len(batch):
                return done, outcome
        return done, DONE

    async def _run_async(self, job: Job) -> Progress:
        if self._waiting.pop(job.number, None) is None:
            return _WITHDRAWN
        done = 0
        for batch in self._batches(job):
            if time.monotonic() >= job.expires_s:
                return done, _LATE
            outcome = await job.listener.call_async(batch, batch[0].queue)
            finished = outcome.done_count(len(batch))
            done += finished
            if finished < len(batch):
                return done, outcome
        return done, DONE

    def _batches(self, job: Job) -> Iterator[Sequence[StoredMessage]]:
        size = self._batch_size
        return (job.messages[at : at + size] for at in range(0, len(job.messages), size))

    # Back on the event loop.

    def _finished(self, finished: list[tuple[Job, Progress, float]]) -> None:
        for job, progress, seconds in finished:
            if progress is _WITHDRAWN:
                continue
            done, outcome = progress
            statistics = self._statistics.of(job.messages[0].topic)
            statistics.count_call(done, seconds)
            job.pq.last_consumed_s = time.monotonic()
            if done:
                self._acks.add(job.pq, job.handles[:done], job.expires_s)
            left = len(job.messages) - done
            if not left:
                continue
            statistics.count_results(0, left)
            if outcome is _LATE or job.pq.last_consumed_s >= job.expires_s:
                log.warning("the time of %d message(s) of %s is over; they come again", left, job.pq.queue)
                job.pq.settled(left)
            else:
                self._changes.submit(self._changes_of(job, done, outcome))

    def _changes_of(self, job: Job, done: int, outcome: Outcome) -> list[_Change]:
        context = outcome.context
        if not self._settings.ordered:
            return [
                _Change(job.pq, message, handle, job.expires_s, self._delay_ms(message, context))
                for message, handle in zip(job.messages[done:], job.handles[done:], strict=True)
            ]
        pause_ms = outcome.pause_ms(self._settings.suspend_current_queue_time_ms)
        failed_until = (done // self._batch_size + 1) * self._batch_size
        return [
            _Change(
                job.pq,
                message,
                handle,
                job.expires_s,
                None if at < failed_until and self._is_hopeless(message, context) else pause_ms,
            )
            for at, (message, handle) in enumerate(zip(job.messages, job.handles, strict=True))
            if at >= done
        ]

    def _delay_ms(self, message: StoredMessage, context: ConsumeContext | None) -> int | None:
        if self._is_hopeless(message, context):
            return None
        delays_s = self._settings.retry_delays_s
        level = (context.delay_level if context is not None else 0) or message.reconsume_times
        return delays_s[min(level, len(delays_s) - 1)] * 1000

    def _is_hopeless(self, message: StoredMessage, context: ConsumeContext | None) -> bool:
        if context is not None and context.delay_level <= DEAD_LETTER:
            return True
        settings = self._settings
        if settings.ordered and settings.max_reconsume_times < 0:
            return False
        return message.reconsume_times >= settings.send_back_limit

    async def _change(self, change: _Change) -> bool:
        """Tell the broker; False if the message still has to be acknowledged."""
        topic, handle = change.pq.queue.topic, change.handle
        try:
            if change.delay_ms is None:
                queue = MessageQueue(topic, handle.broker_name, handle.queue_id)
                await self._send_back.send_back(change.message, queue, DEAD_LETTER)
                self._acks.add(change.pq, (handle,), change.expires_s)
                return False
            await self._pops.change_time((topic, handle), change.delay_ms)
        except CometError as error:
            log.warning(
                "message %s comes again when its time is over, as %s did not take it back: %s",
                change.message.msg_id,
                handle.broker_name,
                error,
            )
        return True

    def _changed(self, finished: list[tuple[_Change, bool, float]]) -> None:
        for change, is_settled, _ in finished:
            if is_settled:
                change.pq.settled(1)

    # Stop.

    async def give_back(
        self, pq: PopQueue, messages: Sequence[StoredMessage], handles: Sequence[PopHandle]
    ) -> None:
        """Give back messages that no listener has seen, even after the stop."""
        await asyncio.gather(*map(self._change, _given_back(pq, messages, handles, 0.0)))
        pq.settled(len(messages))

    def withdraw(self) -> None:
        """Start no more listeners, and give waiting messages back."""
        super().withdraw()
        while self._waiting:
            try:
                _, job = self._waiting.popitem()
            except KeyError:  # a worker was faster
                break
            self._changes.submit(_given_back(job.pq, job.messages, job.handles, job.expires_s))

    async def stop(self, timeout_s: float) -> bool:
        """Withdraw, wait for running listeners, and tell the brokers; True if all was done in time."""
        ended = await super().stop(timeout_s)
        told = [await self._changes.finish(timeout_s), await self._acks.drain(timeout_s)]
        return ended and all(told)


_LATE: Final = Outcome(ConsumeResult.RECONSUME_LATER)
"""The outcome of messages whose invisible time ended before a listener got them."""
_WITHDRAWN: Final[Progress] = (0, Outcome(ConsumeResult.RECONSUME_LATER))
"""The result of a job that was given back before a worker took it."""


def _given_back(
    pq: PopQueue, messages: Sequence[StoredMessage], handles: Sequence[PopHandle], expires_s: float
) -> list[_Change]:
    return [
        _Change(pq, message, handle, expires_s, GIVEN_BACK_MS)
        for message, handle in zip(messages, handles, strict=True)
    ]
