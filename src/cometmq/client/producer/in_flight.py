"""Limits on the messages that a producer has in flight, and sends that run in the background.

Rules kept here:
- Messages and bytes that wait for a response are limited. A further send waits in line within its timeout.
- A single message larger than the byte limit goes when nothing else is in flight.
- Who waits for the others waits for those that came before, and not for later ones: a send notes the `turn`
  when it enters, and every wait ends a turn.
- Background sends are limited too. A further one is refused, because nothing else would slow the caller down.
- A callback that fails is logged. A failure without a callback is kept for the next `flush`.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

from cometmq.client.producer.sender import SendReceipt
from cometmq.model.errors import CallTimeoutError, CometError, FlushError, SendError, TooManyRequestsError
from cometmq.remoting.calls import never_sent

log = logging.getLogger("cometmq.client")

SendCallback = Callable[[SendReceipt | CometError], Any]
"""Gets the receipt of a send, or its error."""

MAX_KEPT_FAILURES: Final = 100


class InFlight:
    """Counts messages and bytes in flight, and admits as many as fit."""

    __slots__ = ("_max_bytes", "_max_messages", "_queued", "_waiting", "_waits", "bytes", "messages", "turn")

    def __init__(self, max_messages: int, max_bytes: int) -> None:
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()
        self._queued = 0
        self._waits: dict[int, _Wait] = {}
        self.turn = 0
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
        turn = self.turn
        admitted = asyncio.get_running_loop().create_future()
        entry = (admitted, size)
        self._waiting.append(entry)
        self._queued += 1
        try:
            async with asyncio.timeout_at(deadline):
                await admitted
        except BaseException as error:
            if admitted.done() and not admitted.cancelled():  # admitted at that very moment
                self.leave(size, turn)
            else:
                with suppress(ValueError):  # skipped already, if it was cancelled
                    self._waiting.remove(entry)
                self._queued -= 1
                self._let_in()
                self._gone(turn)
            if isinstance(error, TimeoutError):
                late = CallTimeoutError(
                    f"{self.messages} messages ({self.bytes} bytes) were under way the whole time; "
                    "send slower, or allow more in flight"
                )
                raise never_sent(late) from None
            raise

    def leave(self, size: int, turn: int) -> None:
        """Leave, and admit others; `turn` was the turn before entering."""
        self.messages -= 1
        self.bytes -= size
        if self._waiting:
            self._let_in()
        if turn != self.turn:
            self._gone(turn)

    def _gone(self, turn: int) -> None:
        for began, wait in self._waits.items():
            if turn <= began:
                wait.left -= 1
                if not wait.left and not wait.over.done():
                    wait.over.set_result(None)

    def _let_in(self) -> None:
        while self._waiting and self._fits(self._waiting[0][1]):
            admitted, size = self._waiting.popleft()
            if not admitted.done():
                admitted.set_result(None)
                self._queued -= 1
                self.messages += 1
                self.bytes += size

    async def passed(self) -> None:
        """Wait until everything has left that is in flight or in line now."""
        left = self.messages + self._queued
        if not left:
            return
        turn, wait = self.turn, _Wait(left)
        self._waits[turn] = wait
        self.turn += 1
        try:
            await wait.over
        finally:
            del self._waits[turn]


class _Wait:
    """Somebody who waits until others have left."""

    __slots__ = ("left", "over")

    def __init__(self, left: int) -> None:
        self.left = left
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()


def run_callback(callback: SendCallback, receipt: SendReceipt | None, error: BaseException | None) -> None:
    """Call back with the receipt or the error of a send."""
    try:
        if receipt is not None:
            callback(receipt)
        elif error is not None:
            callback(_as_comet_error(error))
    except Exception:
        log.exception("the callback of a send failed")


def _as_comet_error(error: BaseException) -> CometError:
    """The error of a send; a selector or an interceptor may raise any."""
    if isinstance(error, CometError):
        return error
    failure = SendError(f"a message was not sent: {type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure


class UnseenFailures:
    """Failures of background sends that no callback got. Any thread may add some, and another raise them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._first: list[CometError] = []

    def add(self, error: BaseException | None) -> None:
        """Keep a failure for the next flush, if it is one."""
        if error is not None:
            with self._lock:
                self._count += 1
                if len(self._first) < MAX_KEPT_FAILURES:
                    self._first.append(_as_comet_error(error))

    def raise_all(self) -> None:
        """Raise what was kept, once."""
        with self._lock:
            count, first = self._count, self._first
            self._count, self._first = 0, []
        if not count:
            return
        error = FlushError(f"{count} of the messages that were sent in the background failed: {first[0]}")
        error.count, error.errors = count, tuple(first)
        error.retriable = all(each.retriable for each in first)
        error.maybe_applied = any(each.maybe_applied for each in first)
        raise error from first[0]


def flush_timeout(count: int, timeout_s: float) -> CallTimeoutError:
    """The error of a flush that takes too long."""
    return CallTimeoutError(
        f"{count} messages are still in flight after {timeout_s:g} s; flush again, or look at the brokers"
    )


class BackgroundSends:
    """The background sends of one producer."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tasks: set[asyncio.Task[SendReceipt]] = set()
        self.failures = UnseenFailures()

    def check_room(self) -> None:
        """Raise if too many are running."""
        if len(self._tasks) >= self._limit:
            raise TooManyRequestsError(f"{len(self._tasks)} messages are under way; send slower")

    def begin(
        self, sending: Coroutine[Any, Any, SendReceipt], callback: SendCallback | None
    ) -> asyncio.Task[SendReceipt]:
        """Run a send; the callback, if any, gets the receipt or the error."""
        task = asyncio.get_running_loop().create_task(sending)
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._ended(done, callback))
        return task

    def _ended(self, task: asyncio.Task[SendReceipt], callback: SendCallback | None) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if callback is None:
            self.failures.add(error)
        else:
            run_callback(callback, None if error is not None else task.result(), error)

    def running(self) -> frozenset[asyncio.Task[SendReceipt]]:
        """Those that run now."""
        return frozenset(self._tasks)

    async def ended(self, tasks: frozenset[asyncio.Task[SendReceipt]]) -> None:
        """Wait for these, and their callbacks."""
        if tasks:
            await asyncio.wait(tasks)
