"""Endpoint: the handlers, limits, counters and timers that all connections of a server or client share.

Rules kept here:
- One timer wakes for the nearest call deadline and one for the health checks of all connections; no
  connection and no call has a timer of its own.
- Watching many connections and calls holds up nobody: health checks take 500 connections at a time, and
  expiring calls takes a tenth of the time at most.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import sys
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from cometmq.ports.rarely import Rarely
from cometmq.remoting.handler import HandlerTable, RequestHook
from cometmq.remoting.limits import Limits
from cometmq.remoting.metrics.counters import RemotingMetrics
from cometmq.remoting.tls import ServerContexts

if TYPE_CHECKING:  # an endpoint has connections, and each knows its endpoint
    from cometmq.remoting.connection import Connection

log = logging.getLogger("cometmq.remoting")

_MAX_OPAQUE: Final = 0x7FFFFFFF
_UNREADABLE_LOG_PERIOD_S: Final = 1.0
_HEALTH_SLICE: Final = 500
_HEALTH_SLICE_PERIOD_S: Final = 0.01
_REST_OF_EXPIRY: Final = 10
"""Expiring calls waits this many times as long as it took the last time."""


class Endpoint:
    """The shared part of a server and of a client."""

    answers_first: bool = True
    """Read on only when the peer takes our answers. A client must not: it and a server could wait for each
    other for ever."""

    def __init__(
        self,
        *,
        limits: Limits | None = None,
        handlers: HandlerTable | None = None,
        hooks: Sequence[RequestHook] = (),
    ) -> None:
        self.limits = limits or Limits()
        self.max_running_per_connection = (
            self.limits.max_running_per_connection if self.answers_first else sys.maxsize
        )
        """With this many handlers of a connection running, reading from it stops."""
        self.handlers = handlers or HandlerTable()
        self.hooks = tuple(hooks)
        self.metrics = RemotingMetrics()
        self.connections: set[Connection] = set()
        self.calling: set[Connection] = set()
        """Connections with calls that await an answer."""
        self.calls_in_flight = 0
        self.tasks: set[asyncio.Task[Any]] = set()
        self.going_away = False
        """Answer GO_AWAY to everyone who understands it."""
        self.tls_mode = "disabled"
        self.tls_contexts: ServerContexts | None = None
        self.on_closed: list[Callable[[Connection], None]] = []
        """Called with each connection that has ended."""
        self.buffered_bytes = 0
        """Bytes of incomplete and waiting frames over all connections."""
        self._opaques = itertools.count()
        self._next_unreadable_log = 0.0
        self._deadline = 0.0
        self._deadline_timer: asyncio.TimerHandle | None = None
        self._health_timer: asyncio.TimerHandle | None = None
        self._health_round: list[Connection] = []
        self._round_bytes = 0
        self._emptied: asyncio.Event | None = None
        self._draining = False
        self.refusals: Final = Rarely()
        self.slow_senders: Final = Rarely()
        self.broken_streams: Final = Rarely()

    @cached_property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop of the first use."""
        return asyncio.get_running_loop()

    def next_opaque(self) -> int:
        return next(self._opaques) & _MAX_OPAQUE

    # Connections report here.

    def note_unreadable(self, connection: Connection, reason: str) -> None:
        """Count an unreadable frame; the log has the first, then at most one a second."""
        metrics = self.metrics
        metrics.unreadable += 1
        now = self.loop.time()
        if now >= self._next_unreadable_log:
            self._next_unreadable_log = now + _UNREADABLE_LOG_PERIOD_S
            log.warning(
                "a frame of %s cannot be read: %s; %d since the start",
                *(connection.remote_address, reason, metrics.unreadable),
            )

    def opened(self, connection: Connection) -> str | None:
        """Register a connection; returns the reason to refuse it, or None."""
        self.metrics.accepted += 1
        refusal = "endpoint stopped" if self._draining else self._refusal()
        if refusal is not None:
            self.metrics.refused += 1
            return refusal
        self.connections.add(connection)
        self.metrics.connections = len(self.connections)
        if self._health_timer is None:
            self._health_timer = self.loop.call_later(self._health_period(), self._check_connections)
        return None

    def _refusal(self) -> str | None:
        if len(self.connections) >= self.limits.max_connections:
            return f"there are {self.limits.max_connections} connections (maxConnections)"
        return None

    def closed(self, connection: Connection) -> None:
        if connection not in self.connections:
            return
        self.connections.discard(connection)
        self.calling.discard(connection)
        self.metrics.connections = len(self.connections)
        self.metrics.count_closed(connection.close_reason)
        for listener in self.on_closed:
            try:
                listener(connection)
            except Exception:
                log.exception("a listener failed when %s had ended", connection)
        if not self.connections and self._emptied is not None:
            self._emptied.set()

    def fell_silent(self, connection: Connection) -> None:
        """A call timed out, and no byte came from the peer meanwhile."""

    def shed_load(self) -> None:
        """Close the connections with the most buffered bytes until the rest is within the limit."""
        log.warning("more than %d bytes are buffered; closing who holds most", self.limits.max_buffered_bytes)
        held = sorted(self.connections, key=lambda connection: connection.held_bytes, reverse=True)
        excess = sum(connection.held_bytes for connection in held) - self.limits.max_buffered_bytes
        for connection in held:
            if excess <= 0:
                return
            excess -= connection.held_bytes
            connection.close("too much buffered", abort=True)

    # Deadlines of calls.

    def watch_deadline(self, deadline: float) -> None:
        """Wake at the deadline of a call, unless the timer is earlier."""
        timer = self._deadline_timer
        if timer is None or deadline < self._deadline:
            if timer is not None:
                timer.cancel()
            # Kept here, because a timer of uvloop that is due at once does not say when.
            self._deadline = deadline
            self._deadline_timer = self.loop.call_at(deadline, self._expire_calls)

    def _expire_calls(self) -> None:
        self._deadline_timer = None
        now = self.loop.time()
        nearest: float | None = None
        for connection in list(self.calling):
            left = connection.expire_calls(now)
            if left is None:
                self.calling.discard(connection)
            elif nearest is None or left < nearest:
                nearest = left
        if nearest is not None:
            rested = now + _REST_OF_EXPIRY * (self.loop.time() - now)
            self.watch_deadline(max(nearest, rested))

    # Housekeeping.

    def _health_period(self) -> float:
        limits = self.limits
        periods = [limits.frame_timeout_s, limits.write_timeout_s, limits.idle_timeout_s or 120.0]
        return min(1.0, min(periods) / 4)

    def _check_connections(self) -> None:
        self._health_timer = None
        if not self._health_round:
            self._health_round = list(self.connections)
            self._round_bytes = 0
        now = self.loop.time()
        for connection in self._health_round[-_HEALTH_SLICE:]:
            connection.channel.check_health(now)
            self._round_bytes += connection.held_bytes
        del self._health_round[-_HEALTH_SLICE:]
        period = _HEALTH_SLICE_PERIOD_S
        if not self._health_round:
            if self._round_bytes > self.limits.max_buffered_bytes:
                self.shed_load()
            period = self._health_period()
        if self.connections:
            self._health_timer = self.loop.call_later(period, self._check_connections)

    # Stopping.

    async def drain(self) -> None:
        """Wait for running handlers and unwritten answers, then close everything."""
        deadline = self.loop.time() + self.limits.stop_timeout_s
        self._draining = True
        for connection in list(self.connections):
            connection.finish("endpoint stopped")
        await self.all_closed(deadline)
        if self.tasks:  # of peers that did not wait for the answer
            await asyncio.wait(self.tasks, timeout=max(0.0, deadline - self.loop.time()))
        for task in list(self.tasks):
            task.cancel()
        if self.tasks:
            await asyncio.wait(self.tasks, timeout=1.0)
        for connection in list(self.connections):
            connection.close("endpoint stopped", abort=True)
        await self.all_closed(self.loop.time() + 1.0)
        for timer in (self._deadline_timer, self._health_timer):
            if timer is not None:
                timer.cancel()
        self._deadline_timer = self._health_timer = None

    async def all_closed(self, deadline: float) -> None:
        """Wait until no connection is left, or until the deadline."""
        self._emptied = asyncio.Event()
        if self.connections:
            try:
                async with asyncio.timeout_at(deadline):
                    await self._emptied.wait()
            except TimeoutError:
                pass
