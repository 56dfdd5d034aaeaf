"""Back-pressure: when sends are refused as busy.

Rules kept here:
- As many messages as `sendThreadPoolQueueCapacity` may wait for the disk.
- What is written and not yet on the disk takes a bounded share of the memory: beyond it the kernel would stop
  the whole process to write pages back, and with it everybody who only wants to read.
- A slave takes messages from its master alone.
- There is no queue before the handlers in which a request could grow old: what is not read yet waits in its
  connection, which is read no faster than answers are taken.
- Asking costs one look: `refusal` is why, or None.
"""

from __future__ import annotations

from typing import Final

from cometmq.broker.settings import Settings
from cometmq.store.message_store import MessageStore

UNFLUSHED_SHARE: Final = 10
"""The share of the memory that may wait to be flushed: 1/10."""
_OVERLOAD: Final = "[OVERLOAD]system busy, start flow control for a while"
_REJECT: Final = "[REJECTREQUEST]system busy, start flow control for a while"


class Pressure:
    """Watches what waits for the disk; belongs to the event loop."""

    def __init__(self, settings: Settings, memory_bytes: int, store: MessageStore) -> None:
        self._settings = settings
        self._flusher = store.flusher
        self._waiting = 0
        self.max_unflushed_bytes = memory_bytes // UNFLUSHED_SHARE
        self.limit_offset = 0
        """Up to here the log has room; `passed` is to be told when it grows beyond."""
        self._is_behind = False
        self.refusal: str | None = None
        """Why every send is refused as busy at the moment."""
        self._reconsider()

    @property
    def waiting(self) -> int:
        """How many messages wait for the disk."""
        return self._waiting

    def passed(self, end_offset: int) -> None:
        """The log has grown beyond `limit_offset`; what was flushed meanwhile may have made room again."""
        self.limit_offset = self._flusher.flushed_offset + self.max_unflushed_bytes
        if end_offset > self.limit_offset and not self._is_behind:
            self._is_behind = True
            self._reconsider()
            self._flusher.when_flushed(end_offset, lambda _: self._caught_up(end_offset))

    def _caught_up(self, end_offset: int) -> None:
        self._is_behind = False
        self.passed(end_offset)  # the flush may have timed out
        self._reconsider()

    def waits(self, count: int = 1) -> None:
        """More messages wait for the disk."""
        self._waiting += count
        if self._waiting >= self._settings.broker.send_thread_pool_queue_capacity:
            self._reconsider()

    def waited(self, count: int = 1) -> None:
        """Messages no longer wait for the disk."""
        self._waiting -= count
        if self.refusal is not None:
            self._reconsider()

    def _reconsider(self) -> None:
        is_slave = self._settings.is_slave
        if self._is_behind or (is_slave and not self._settings.broker.enable_slave_acting_master):
            self.refusal = _REJECT
        elif self._waiting >= self._settings.broker.send_thread_pool_queue_capacity:
            self.refusal = _OVERLOAD
        else:
            self.refusal = None
