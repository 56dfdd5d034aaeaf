"""The messages of one assigned queue that were pulled and are not done yet.

Rules kept here:
- Messages come in the order of their offsets and may be done in any order. The offset to commit never passes
  a message that is not done.
- Everything happens on the event loop, except that worker threads look at `dropped` and at the lock.
- A queue that was taken away is `dropped`; whoever still holds its messages lets go of them.
- How much is held here is limited by who pulls, through `flow_control`.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable
from enum import Enum
from itertools import islice
from typing import Final

from cometmq.model.message import StoredMessage
from cometmq.model.queue import MessageQueue

PULL_MAX_IDLE_S: Final = 120.0
"""A queue that was not pulled for this long has lost its pull, and is taken anew."""
LOCK_MAX_LIVE_S: Final = 30.0
"""A lock that was not renewed for this long no longer counts; the broker keeps it twice as long."""
LOCK_MOVES_S: Final = 60.0
"""After this long a broker may have given the lock to somebody else, and back again."""


class FlowControl(Enum):
    """Why a queue is not pulled at the moment."""

    COUNT = "too many messages"
    SIZE = "too many bytes"
    SPAN = "too far between the first message and the last"


class Thresholds:
    """How much of one queue may be held before pulling waits."""

    __slots__ = ("count", "size_bytes", "span")

    def __init__(self, count: int, size_bytes: int, span: int | None) -> None:
        self.count = count
        self.size_bytes = size_bytes
        self.span = span
        """None where the span does not matter, because messages are done in order."""


class ProcessQueue:
    """What is held of one queue."""

    __slots__ = (
        "_next_offset",
        "_order",
        "_room",
        "attempts",
        "being_consumed",
        "cached_bytes",
        "dropped",
        "flow_control_times",
        "last_consumed_s",
        "last_pull_s",
        "locked",
        "locked_at_s",
        "messages",
        "paused",
        "queue",
        "released",
    )

    def __init__(self, queue: MessageQueue) -> None:
        self.queue = queue
        self.messages: dict[int, StoredMessage] = {}
        self._order: deque[int] = deque()
        self._next_offset = -1
        self._room = asyncio.Event()
        self.cached_bytes = 0
        self.being_consumed = 0
        """How many of the first messages are with the listener, when order is kept."""
        self.attempts: dict[int, int] = {}
        """How often a message was tried again here, when order is kept."""
        self.dropped = False
        self.released = False
        """Another client may have the queue: what is still done here no longer counts."""
        self.paused = False
        self.locked = False
        self.locked_at_s = 0.0
        now = time.monotonic()
        self.last_pull_s = now
        self.last_consumed_s = now
        self.flow_control_times = 0

    def put(self, messages: Iterable[StoredMessage]) -> None:
        """Hold these messages, which come behind those that are held."""
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
        """These messages are done; one that is not held, because it took too long, is ignored."""
        held = self.messages
        for message in messages:
            if held.pop(message.queue_offset, None) is not None:
                self.cached_bytes -= len(message.body)
        self.last_consumed_s = time.monotonic()

    def commit_offset(self) -> int | None:
        """The smallest offset that is not done, or the one behind all; None if nothing was ever held."""
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
        """Let go of everything."""
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

    def flow_control(self, thresholds: Thresholds) -> FlowControl | None:
        """Whether enough is held for now."""
        if len(self.messages) > thresholds.count:
            return FlowControl.COUNT
        if self.cached_bytes > thresholds.size_bytes:
            return FlowControl.SIZE
        if thresholds.span is not None and self.max_offset - self.min_offset > thresholds.span:
            return FlowControl.SPAN
        return None

    def made_room(self) -> None:
        """Something is done, or the queue was dropped: whoever waits for that looks again."""
        self._room.set()

    async def wait_for_room(self, timeout_s: float) -> None:
        """Wait until something is done, but not for longer than this."""
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
        """Whether messages may be consumed in order now."""
        return self.locked and not self.lock_expired

    @property
    def lock_may_have_moved(self) -> bool:
        """Whether another client may have had the lock since this one did."""
        return self.locked and time.monotonic() - self.locked_at_s > LOCK_MOVES_S

    def lock_renewed(self) -> None:
        self.locked = True
        self.locked_at_s = time.monotonic()
