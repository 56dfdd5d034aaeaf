"""The delay of the event loop, measured by a timer every 100 ms.

Rules kept here: the cost does not depend on the load. Another thread may ask how long the loop has been
silent, which tells a hanging loop from a busy one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from cometmq.model.histogram import Histogram

INTERVAL_S: Final = 0.1
BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class LoopProbe:
    def __init__(self) -> None:
        self.delays = Histogram(BOUNDS_S)
        """How late the timer was, in seconds."""
        self.on_tick: list[Callable[[], object]] = []
        """Called at each tick."""
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._seen = 0.0

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._seen = time.monotonic()
        self._due = loop.time() + INTERVAL_S
        self._timer = loop.call_at(self._due, self._tick, loop)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def silent_s(self) -> float:
        """How long the loop has been silent beyond one interval; 0 if it does not run."""
        if self._timer is None:
            return 0.0
        return max(time.monotonic() - self._seen - INTERVAL_S, 0.0)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        self._seen = time.monotonic()
        self.delays.observe(max(now - self._due, 0.0))
        self._due = now + INTERVAL_S
        self._timer = loop.call_at(self._due, self._tick, loop)
        for work in self.on_tick:
            work()
