"""Blocking clients: the asyncio ones, run on one background event loop of the process.

Rules kept here:
- A blocking client adds nothing but waiting. Its methods are made by `blocking` from those of its asyncio
  twin, which alone says what a method takes, does, returns and raises.
- A call runs in the context (`contextvars`) of its caller, so that interceptors see the caller's span.
- Any number of threads may use one object. Calls that come while the loop is busy share one wake-up.
- The loop starts with the first client that needs it, on a daemon thread, so that a program that forgets to
  stop a client still ends.
- A forked child has none of its parent's threads: it gets a new loop when it needs one, and an object made
  before the fork is refused there at once.
- Waiting for the loop on its own thread would deadlock, and is refused.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextvars import Context, copy_context
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from cometmq.client.instance.group_client import AsyncClient, GroupClient
from cometmq.client.instance.instance import ForkGuard
from cometmq.client.settings import ServiceState
from cometmq.model.errors import StateError
from cometmq.ports.system import after_fork_in_child
from cometmq.remoting.loop import loop_factory

P = ParamSpec("P")
T = TypeVar("T")


class BackgroundLoop:
    """An event loop on its own thread."""

    def __init__(self) -> None:
        self.loop = loop_factory()()
        self._inbox: deque[tuple[Coroutine[Any, Any, Any], Future[Any], Context]] = deque()
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
        """Run a coroutine on the loop; any thread may wait for the future."""
        future: Future[T] = Future()
        self._enqueue(work, future)
        return future

    def _enqueue(self, work: Coroutine[Any, Any, T], future: Future[T]) -> None:
        context = copy_context()
        with self._lock:
            self._inbox.append((work, future, context))
            wake, self._woken = not self._woken, True
        if wake:
            self.loop.call_soon_threadsafe(self._drain)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait for it; an interrupt of the waiting thread cancels it."""
        if self.is_here:
            work.close()
            raise StateError(
                "a blocking client cannot be waited for on its own event loop; use cometmq.aio there"
            )
        future: Future[T] = Future()
        try:
            self._enqueue(
                work, future
            )  # in the try, because an interrupt may come as soon as the work has begun
            return future.result()
        except BaseException:
            future.cancel()  # no effect on a future that is done
            raise

    def _drain(self) -> None:
        with self._lock:
            self._woken = False
            taken, self._inbox = self._inbox, deque()
        for work, future, context in taken:
            task = self.loop.create_task(work, context=context)
            task.add_done_callback(lambda done, future=future: _copy_outcome(done, future))  # type: ignore[misc]
            future.add_done_callback(lambda done, task=task: self._cancel(done, task))  # type: ignore[misc]

    def _cancel(self, future: Future[Any], task: asyncio.Task[Any]) -> None:
        if future.cancelled():
            self.loop.call_soon_threadsafe(task.cancel)


def _copy_outcome(task: asyncio.Task[Any], future: Future[Any]) -> None:
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
    """The background loop of this process."""
    global _background
    with _making:
        if _background is None:
            _background = BackgroundLoop()
        return _background


def _forget_in_child() -> None:
    global _background, _making
    _background = None
    _making = threading.Lock()


after_fork_in_child(_forget_in_child)


C = TypeVar("C", bound=AsyncClient)
C_co = TypeVar("C_co", bound=AsyncClient, covariant=True)
G_co = TypeVar("G_co", bound=GroupClient, covariant=True)


class BlockingClient(Generic[C_co]):
    """Runs an asyncio client on the background loop."""

    def __init__(self, client: C_co) -> None:
        self.aio = client
        """The asyncio client; only its own event loop may use it."""
        self._fork_guard = ForkGuard()
        self._background: BackgroundLoop | None = None

    def start(self) -> None:
        """Start the client."""
        self._run(self.aio.start())

    def stop(self) -> None:
        """Stop the client in good order; a second call does nothing."""
        self._run(self.aio.stop())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop(work).run(work)

    def _submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return self._loop(work).submit(work)

    def _loop(self, work: Coroutine[Any, Any, Any]) -> BackgroundLoop:
        try:
            self._fork_guard.check()
        except StateError:
            work.close()
            raise
        if self._background is None:
            self._background = background()
        return self._background


def blocking(
    method: Callable[Concatenate[C, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[BlockingClient[C], P], T]:
    """The blocking twin of an asyncio client's method: same parameters, docstring, result and errors."""
    name = method.__name__

    @wraps(method)
    def wait(self: BlockingClient[C], /, *args: P.args, **kwargs: P.kwargs) -> T:
        work: Coroutine[Any, Any, T] = getattr(self.aio, name)(*args, **kwargs)
        return self._run(work)

    return wait


def on_loop(method: Callable[Concatenate[C, P], T]) -> Callable[Concatenate[BlockingClient[C], P], T]:
    """The twin of a method that is no coroutine function, but has to be called on the client's loop."""
    name = method.__name__

    @wraps(method)
    def call(self: BlockingClient[C], /, *args: P.args, **kwargs: P.kwargs) -> T:
        async def work() -> T:
            result: T = getattr(self.aio, name)(*args, **kwargs)
            return result

        return self._run(work())

    return call


class BlockingGroupClient(BlockingClient[G_co]):
    """A blocking producer or consumer."""

    @property
    def group(self) -> str:
        """The name of the group as brokers know it."""
        return self.aio.group

    @property
    def client_id(self) -> str:
        """The id of the running client."""
        return self.aio.client_id

    @property
    def state(self) -> ServiceState:
        return self.aio.state

    @property
    def name_servers(self) -> tuple[str, ...]:
        """The addresses of the name servers in use."""
        return self.aio.name_servers

    update_name_servers = on_loop(GroupClient.update_name_servers)
