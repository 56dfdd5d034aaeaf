"""Clients that a worker process keeps for its next task: connecting takes longer than a small task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

import msgspec

from cometmq.ports.system import after_fork_in_child

C = TypeVar("C")

MAX_KEPT: Final = 4


class ProcessCache(Generic[C]):
    """Up to `MAX_KEPT` clients by their settings; a forked process starts with none."""

    def __init__(self, close: Callable[[C], None]) -> None:
        self._close = close
        self._kept: dict[bytes, C] = {}  # the least recently used first
        after_fork_in_child(self._kept.clear)

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, settings: object, make: Callable[[], C]) -> C:
        """Return the client with these settings; `make` it, and close the least recently used, if needed."""
        key = msgspec.json.encode(settings)
        client = self._kept.pop(key, None)
        if client is None:
            while len(self._kept) >= MAX_KEPT:
                self._close(self._kept.pop(next(iter(self._kept))))
            client = make()
        self._kept[key] = client
        return client
