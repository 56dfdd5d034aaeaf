"""The blocking classes: thin faces of the asyncio ones, which run on the background loop.

Rules kept here:
- A face adds nothing but waiting; what a method does, takes, returns and raises is said by its asyncio twin.
- Any number of threads may use one object.
- An object made before a fork is refused in the child, by its first call and without waiting for anything.
"""

from __future__ import annotations

from collections.abc import Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from cometmq.client.blocking.loop import BackgroundLoop, background
from cometmq.client.instance.home_process import HomeProcess
from cometmq.model.errors import StateError

T = TypeVar("T")


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
