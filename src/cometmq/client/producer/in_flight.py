"""The limit on what a producer has under way.

Rules kept here:
- At most so many messages and so many bytes wait for their answers; whoever comes then waits in line, as long
  as its own time-out allows.
- A single message larger than the limit of bytes goes when nothing else is under way.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress

from cometmq.model.errors import CallTimeoutError


class InFlight:
    """Counts what is under way, and lets in as much as fits."""

    __slots__ = ("_idle", "_max_bytes", "_max_messages", "_waiting", "bytes", "messages")

    def __init__(self, max_messages: int, max_bytes: int) -> None:
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()
        self._idle: asyncio.Future[None] | None = None
        self.messages = 0
        self.bytes = 0

    def enter_at_once(self, size: int) -> bool:
        """Come in if there is room and nobody waits in line."""
        if self._waiting or (self.messages and not self._fits(size)):
            return False
        self.messages += 1
        self.bytes += size
        return True

    def _fits(self, size: int) -> bool:
        return self.messages < self._max_messages and (
            self.bytes + size <= self._max_bytes or not self.messages
        )

    async def enter(self, size: int, deadline: float) -> None:
        """Come in, after waiting in line if need be; raises `CallTimeoutError` at the deadline."""
        if self.enter_at_once(size):
            return
        place = asyncio.get_running_loop().create_future()
        entry = (place, size)
        self._waiting.append(entry)
        try:
            async with asyncio.timeout_at(deadline):
                await place
        except BaseException as error:
            if place.done() and not place.cancelled():  # let in at the very moment
                self.leave(size)
            else:
                with suppress(ValueError):  # passed over already, if it was cancelled
                    self._waiting.remove(entry)
                self._let_in()
            if isinstance(error, TimeoutError):
                late = CallTimeoutError(
                    f"{self.messages} messages ({self.bytes} bytes) were under way the whole time; "
                    "send slower, or allow more in flight"
                )
                late.maybe_applied = False
                raise late from None
            raise

    def leave(self, size: int) -> None:
        """What entered is done."""
        self.messages -= 1
        self.bytes -= size
        if self._waiting:
            self._let_in()
        if not self.messages and self._idle is not None:
            self._idle.set_result(None)
            self._idle = None

    def _let_in(self) -> None:
        while self._waiting and self._fits(self._waiting[0][1]):
            place, size = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
                self.messages += 1
                self.bytes += size

    async def idle(self) -> None:
        """Wait until nothing is under way."""
        while self.messages or self._waiting:
            if self._idle is None:
                self._idle = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._idle)
