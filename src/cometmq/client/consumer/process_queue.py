"""The process queue: messages of one assigned queue that were pulled and are not done yet.

Rules kept here:
- Messages come in the order of their offsets and may be done in any order. The commit offset never passes a
  message that is not done.
- Everything happens on the event loop; worker threads only read `dropped` and the lock.
- A queue that is given away is `dropped`; its messages are not consumed any more.
- The pull loop limits what is held here by `flow_control`.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable
from enum import Enum
from itertools import islice
from typing import Final

import msgspec

from cometmq.client.consumer.statistics import QueueStatistics
from cometmq.model.message import StoredMessage
from cometmq.model.queue import MessageQueue

PULL_MAX_IDLE_S: Final = 120.0
"""A queue that was not pulled for this long has lost its pull loop, and is added again."""
LOCK_MAX_LIVE_S: Final = 30.0
"""A lock that was not renewed for this long no longer counts; the broker keeps it twice as long."""
LOCK_MOVES_S: Final = 60.0
"""After this long a broker may have given the lock to another client, and back again."""


class FlowControl(Enum):
    """Why a queue is not pulled now."""

    COUNT = "too many messages"
    SIZE = "too many bytes"
    SPAN = "too far between the first message and the last"


class Thresholds(msgspec.Struct):
    """How much of one queue may be held before pulling waits."""

    count: int
    size_bytes: int
    span: int | None
    """None if ordered: the span does not matter then."""


class ProcessQueue:
    """The messages of one queue that are held here."""

    def __init__(self, queue: MessageQueue) -> None:
        self.queue = queue
        self.messages: dict[int, StoredMessage] = {}
        self._order: deque[int] = deque()
        self._next_offset = -1
        self._room = asyncio.Event()
        self.cached_bytes = 0
        self.being_consumed = 0
        """If ordered, the number of first messages that the listener has not committed."""
        self.attempts: dict[int, int] = {}
        """If ordered, the attempts of each message here, by offset."""
        self.dropped = False
        self.released = False
        """Another client may have the queue: nothing done here counts any more."""
        self.paused = False
        self.locked = False
        self.locked_at_s = 0.0
        now = time.monotonic()
        self.last_pull_s = now
        self.last_consumed_s = now
        self.flow_control_times = 0
        self.pull_offset = 0
        self.end_offset: int | None = None
        """Where the next pull begins, and where the queue ends, as of the last pull."""

    def put(self, messages: Iterable[StoredMessage]) -> None:
        """Add messages after those that are held."""
        held, order = self.messages, self._order
        for message in messages:
            offset = message.queue_offset
            if offset not in held:
                order.append(offset)
                self.cached_bytes += len(message.body)
            held[offset] = message
            if offset >= self._next_offset:
                self._next_offset = offset + 1

    def done(self, messages: Iterable[StoredMessage]) -> None:
        """Remove messages that are done; those no longer held are ignored."""
        held = self.messages
        for message in messages:
            if held.pop(message.queue_offset, None) is not None:
                self.cached_bytes -= len(message.body)
        self.last_consumed_s = time.monotonic()

    def commit_offset(self) -> int | None:
        """The smallest offset that is not done, or the one after all; None if nothing was ever held."""
        order, held = self._order, self.messages
        while order and order[0] not in held:
            order.popleft()
        if order:
            return order[0]
        return self._next_offset if self._next_offset >= 0 else None

    def next_messages(self, count: int) -> list[StoredMessage]:
        """The first messages in order that are not being consumed."""
        self.commit_offset()
        begin = self.being_consumed
        return [self.messages[offset] for offset in islice(self._order, begin, begin + count)]

    def first_messages(self, count: int) -> list[StoredMessage]:
        """The first messages in order."""
        self.commit_offset()
        return [self.messages[offset] for offset in islice(self._order, count)]

    def clear(self) -> None:
        """Remove everything."""
        self.messages.clear()
        self._order.clear()
        self._next_offset = -1
        self.cached_bytes = 0

    @property
    def min_offset(self) -> int:
        self.commit_offset()
        return self._order[0] if self._order else 0

    @property
    def max_offset(self) -> int:
        return self._order[-1] if self._order else 0

    @property
    def lag(self) -> int | None:
        """The messages of the queue that are not done, as of the last pull; None before the first."""
        if self.end_offset is None:
            return None
        return max(0, self.end_offset - (self.min_offset if self.messages else self.pull_offset))

    def statistics(self) -> QueueStatistics:
        """What is held, and how much is left."""
        return QueueStatistics(len(self.messages), self.cached_bytes, self.lag)

    def flow_control(self, thresholds: Thresholds) -> FlowControl | None:
        """The threshold that is exceeded, if any."""
        if len(self.messages) > thresholds.count:
            return FlowControl.COUNT
        if self.cached_bytes > thresholds.size_bytes:
            return FlowControl.SIZE
        if thresholds.span is not None and self.max_offset - self.min_offset > thresholds.span:
            return FlowControl.SPAN
        return None

    def made_room(self) -> None:
        """Wake whoever waits for room, or for the queue to be dropped."""
        self._room.set()

    async def wait_for_room(self, timeout_s: float) -> None:
        """Wait until something is done, at most this long."""
        self._room.clear()
        try:
            async with asyncio.timeout(timeout_s):
                await self._room.wait()
        except TimeoutError:
            pass

    def drop(self) -> None:
        """The queue is no longer read here."""
        self.dropped = True
        self._room.set()

    @property
    def pull_expired(self) -> bool:
        return time.monotonic() - self.last_pull_s > PULL_MAX_IDLE_S

    @property
    def lock_expired(self) -> bool:
        return time.monotonic() - self.locked_at_s > LOCK_MAX_LIVE_S

    @property
    def lock_held(self) -> bool:
        """Whether ordered messages may be consumed now."""
        return self.locked and not self.lock_expired

    @property
    def lock_may_have_moved(self) -> bool:
        """Whether another client may have had the lock in between."""
        return self.locked and time.monotonic() - self.locked_at_s > LOCK_MOVES_S

    def lock_renewed(self) -> None:
        self.locked = True
        self.locked_at_s = time.monotonic()
