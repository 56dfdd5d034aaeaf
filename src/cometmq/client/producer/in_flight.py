"""Limits on the messages that a producer has in flight, and sends that run in the background.

Rules kept here:
- Messages and bytes that wait for a response are limited. A further send waits in line within its timeout.
- A single message larger than the byte limit goes when nothing else is in flight.
- Background sends are limited too. A further one is refused, because nothing else would slow the caller down.
- A callback that fails is logged.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from cometmq.client.producer.sender import SendReceipt
from cometmq.model.errors import CallTimeoutError, CometError, TooManyRequestsError
from cometmq.remoting.calls import never_sent

log = logging.getLogger("cometmq.client")

Callback = Callable[[SendReceipt | CometError], Any]


class InFlight:
    """Counts messages and bytes in flight, and admits as many as fit."""

    __slots__ = ("_idle", "_max_bytes", "_max_messages", "_waiting", "bytes", "messages")

    def __init__(self, max_messages: int, max_bytes: int) -> None:
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()
        self._idle: asyncio.Future[None] | None = None
        self.messages = 0
        self.bytes = 0

    def enter_at_once(self, size: int) -> bool:
        """Enter if there is room and nobody waits in line."""
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
        """Enter, after waiting in line if needed; raises `CallTimeoutError` at the deadline."""
        if self.enter_at_once(size):
            return
        admitted = asyncio.get_running_loop().create_future()
        entry = (admitted, size)
        self._waiting.append(entry)
        try:
            async with asyncio.timeout_at(deadline):
                await admitted
        except BaseException as error:
            if admitted.done() and not admitted.cancelled():  # admitted at that very moment
                self.leave(size)
            else:
                with suppress(ValueError):  # skipped already, if it was cancelled
                    self._waiting.remove(entry)
                self._let_in()
            if isinstance(error, TimeoutError):
                late = CallTimeoutError(
                    f"{self.messages} messages ({self.bytes} bytes) were under way the whole time; "
                    "send slower, or allow more in flight"
                )
                raise never_sent(late) from None
            raise

    def leave(self, size: int) -> None:
        """Leave, and admit others."""
        self.messages -= 1
        self.bytes -= size
        if self._waiting:
            self._let_in()
        if not self.messages and self._idle is not None:
            self._idle.set_result(None)
            self._idle = None

    def _let_in(self) -> None:
        while self._waiting and self._fits(self._waiting[0][1]):
            admitted, size = self._waiting.popleft()
            if not admitted.done():
                admitted.set_result(None)
                self.messages += 1
                self.bytes += size

    async def idle(self) -> None:
        """Wait until nothing is in flight."""
        while self.messages or self._waiting:
            if self._idle is None:
                self._idle = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._idle)


def run_callback(callback: Callback, receipt: SendReceipt | None, error: BaseException | None) -> None:
    """Call back with the receipt or the error of a send."""
    try:
        if receipt is not None:
            callback(receipt)
        elif isinstance(error, CometError):
            callback(error)
        else:
            log.error("a send failed in a way that it should not", exc_info=error)
    except Exception:
        log.exception("the callback of a send failed")


class BackgroundSends:
    """The background sends of one producer."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tasks: set[asyncio.Task[SendReceipt]] = set()

    def check_room(self) -> None:
        """Raise if too many are running."""
        if len(self._tasks) >= self._limit:
            raise TooManyRequestsError(f"{len(self._tasks)} messages are under way; send slower")

    def begin(
        self, sending: Coroutine[Any, Any, SendReceipt], callback: Callback | None
    ) -> asyncio.Task[SendReceipt]:
        """Run a send; the callback, if any, gets the receipt or the error."""
        task = asyncio.get_running_loop().create_task(sending)
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._ended(done, callback))
        return task

    def _ended(self, task: asyncio.Task[SendReceipt], callback: Callback | None) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if callback is not None:
            run_callback(callback, None if error is not None else task.result(), error)

    async def all_ended(self) -> None:
        """Wait for all of them."""
        if self._tasks:
            await asyncio.wait(self._tasks)
