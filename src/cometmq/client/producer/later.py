"""Sends that nobody waits for at once.

Rules kept here:
- So many may be under way; a further one is refused, because nobody would stop the caller otherwise.
- A callback that fails is logged and hurts nobody else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from cometmq.client.producer.send_result import SendReceipt
from cometmq.model.errors import CometError, TooManyRequestsError

log = logging.getLogger("cometmq.client")

Callback = Callable[[SendReceipt | CometError], Any]


class LaterSends:
    """The sends of one producer that run beside."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tasks: set[asyncio.Task[SendReceipt]] = set()

    def check_room(self) -> None:
        """Refuse one more if there are too many."""
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
        if callback is None:
            return
        if error is not None and not isinstance(error, CometError):
            log.error("a send failed in a way that it should not", exc_info=error)
            return
        try:
            callback(error if error is not None else task.result())
        except Exception:
            log.exception("the callback of a send failed")

    async def all_ended(self) -> None:
        """Wait until nothing is under way."""
        if self._tasks:
            await asyncio.wait(self._tasks)
