"""Loops over a pull consumer: `async for message in consumer`, and `for` over the blocking one.

Rules kept here:
- A message is finished when the loop asks for the next one. The message at which a loop was left, by `break`
  or an error, is not; a later loop, or a poll, finishes it by asking for more.
- Messages stay in their process queue until they are finished, so its offset never passes one that is not.
- Messages are handed out on the thread of the loop, without the event loop, which only brings more of them. A
  queue that is paused, sought or given away meanwhile gives nothing more.
- One loop at a time: a new one takes over, and the older one is refused when it asks again.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, Generic, Self

from cometmq.client.consumer.process_queue import ProcessQueue
from cometmq.client.serializer import Serializer, with_value
from cometmq.client.trace.hooks import ConsumerTrace
from cometmq.client.trace.records import ConsumeOutcome
from cometmq.model.errors import ClientError
from cometmq.model.message import StoredMessage, V
from cometmq.model.queue import MessageQueue


class HandedOut:
    """The messages that one consumer hands out one by one."""

    def __init__(self) -> None:
        self._pq: ProcessQueue | None = None
        self._waiting: deque[StoredMessage] = deque()
        self._until_s = math.inf
        self._current: tuple[ProcessQueue, StoredMessage] | None = None
        self._finished: deque[tuple[ProcessQueue, StoredMessage]] = deque()
        self.loop: object = None
        """The loop that gets the messages."""

    # On the thread of the loop.

    def next(self) -> StoredMessage | None:
        """The next message, after the last one is finished; None if more have to be brought first."""
        self.finish()
        pq = self._pq
        if pq is None or pq.dropped or pq.paused or not self._waiting or time.monotonic() >= self._until_s:
            return None
        message = self._waiting.popleft()
        self._current = (pq, message)
        return message

    def finish(self) -> None:
        """The message that was handed out last is finished."""
        current, self._current = self._current, None
        if current is not None:
            self._finished.append(current)

    # On the event loop.

    def hand_out(self, pq: ProcessQueue, messages: Sequence[StoredMessage], until_s: float) -> None:
        """Hand out these messages, which the process queue holds, until this time by the monotonic clock."""
        self._pq, self._waiting, self._until_s = pq, deque(messages), until_s

    def take_finished(self) -> Iterator[tuple[ProcessQueue, StoredMessage]]:
        """The messages that were finished since the last time."""
        while self._finished:
            yield self._finished.popleft()

    def current_offset(self) -> dict[MessageQueue, int]:
        """The offset after the message that was handed out last and is not finished."""
        current = self._current
        if current is None or current[0].released:
            return {}
        return {current[0].queue: current[1].queue_offset + 1}


class MessageLoop(Generic[V]):
    """One loop over the messages of a consumer."""

    def __init__(
        self,
        handed_out: HandedOut,
        await_messages: Callable[[], Coroutine[Any, Any, bool]],
        trace: ConsumerTrace | None,
        serializer: Serializer[V] | None,
    ) -> None:
        self._handed_out = handed_out
        handed_out.loop = self
        self.await_messages = await_messages
        """Brings more messages; False when the consumer stops."""
        self._trace = trace
        self._serializer = serializer
        self._traced: Callable[[ConsumeOutcome], None] | None = None

    def next_held(self) -> StoredMessage[V] | None:
        """The next message; None if `await_messages` has to bring more first."""
        handed_out = self._handed_out
        if handed_out.loop is not self:
            raise ClientError("another loop reads this consumer now; give each loop a consumer of its own")
        message = handed_out.next()
        if self._trace is not None:
            if self._traced is not None:
                self._traced(ConsumeOutcome.SUCCESS)
            self._traced = None if message is None else self._trace.began((message,))
        if self._serializer is None or message is None:
            return message  # type: ignore[return-value]  # values are bodies
        return with_value(message, self._serializer)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StoredMessage[V]:
        while (message := self.next_held()) is None:
            if not await self.await_messages():
                raise StopAsyncIteration
        return message
