"""Blocking clients: faces of the asyncio ones, which run on one background event loop of the process.

Rules kept here:
- A face adds nothing but waiting; its asyncio twin says what a method does, takes, returns and raises.
- Any number of threads may use one object. Calls that come while the loop is busy share one wake-up.
- The loop starts with the first client that needs it, on a daemon thread, so that a program that forgets to
  stop a client still ends.
- A forked child has none of its parent's threads: it gets a new loop when it needs one, and an object made
  before the fork is refused there at once.
- Waiting for the loop on its own thread would deadlock, and is refused.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections import deque
from collections.abc import Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from cometmq.client.instance.instance import HomeProcess
from cometmq.model.errors import StateError
from cometmq.remoting.loop import loop_factory

log = logging.getLogger("cometmq.client")


T = TypeVar("T")


class BackgroundLoop:
    """An event loop on a thread of its own."""

    def __init__(self) -> None:
        self.loop = loop_factory()()
        self._inbox: deque[tuple[Coroutine[Any, Any, Any], Future[Any]]] = deque()
        self._lock = threading.Lock()
        self._woken = False
        self._thread = threading.Thread(target=self._serve, name="cometmq-client", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    @property
    def is_here(self) -> bool:
        """Whether the caller is on the loop's own thread."""
        return threading.current_thread() is self._thread

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run something there; the future gives its result to any thread."""
        future: Future[T] = Future()
        self._hand_in(work, future)
        return future

    def _hand_in(self, work: Coroutine[Any, Any, T], future: Future[T]) -> None:
        with self._lock:
            self._inbox.append((work, future))
            wake, self._woken = not self._woken, True
        if wake:
            self.loop.call_soon_threadsafe(self._take)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something there and wait for it; an interrupt of the waiting thread cancels it."""
        if self.is_here:
            work.close()
            raise StateError(
                "a blocking client cannot be waited for on its own event loop; use cometmq.aio there"
            )
        future: Future[T] = Future()
        try:
            self._hand_in(work, future)  # here, because an interrupt may come as soon as the work has begun
            return future.result()
        except BaseException:
            future.cancel()  # does nothing to one that is done
            raise

    def _take(self) -> None:
        with self._lock:
            self._woken = False
            taken, self._inbox = self._inbox, deque()
        for work, future in taken:
            task = self.loop.create_task(work)
            task.add_done_callback(lambda done, future=future: _hand_over(done, future))  # type: ignore[misc]
            future.add_done_callback(lambda done, task=task: self._cancel(done, task))  # type: ignore[misc]

    def _cancel(self, future: Future[Any], task: asyncio.Task[Any]) -> None:
        if future.cancelled():
            self.loop.call_soon_threadsafe(task.cancel)


def _hand_over(task: asyncio.Task[Any], future: Future[Any]) -> None:
    if task.cancelled():
        future.cancel()
    if not future.set_running_or_notify_cancel():
        if not task.cancelled():
            task.exception()  # nobody waits for it any more
        return
    error = task.exception()
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(task.result())


_background: BackgroundLoop | None = None

_making = threading.Lock()


def background() -> BackgroundLoop:
    """The process's background loop."""
    global _background
    with _making:
        if _background is None:
            _background = BackgroundLoop()
        return _background


def _forget_in_child() -> None:
    global _background, _making
    _background = None
    _making = threading.Lock()


os.register_at_fork(after_in_child=_forget_in_child)


class AsyncClient(Protocol):
    """What every asyncio client has."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


C = TypeVar("C", bound=AsyncClient)


class Face(Generic[C]):
    """A client that blocks."""

    def __init__(self, client: C) -> None:
        self.aio = client
        """The asyncio client behind this one; only its own event loop may use it."""
        self._home = HomeProcess()
        self._background: BackgroundLoop | None = None

    def start(self) -> None:
        """Start the client."""
        self._run(self.aio.start())

    def stop(self) -> None:
        """Stop the client in good order; a second time does nothing."""
        self._run(self.aio.stop())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop(work).run(work)

    def _submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return self._loop(work).submit(work)

    def _loop(self, work: Coroutine[Any, Any, Any]) -> BackgroundLoop:
        try:
            self._home.check()
        except StateError:
            work.close()
            raise
        if self._background is None:
            self._background = background()
        return self._background
