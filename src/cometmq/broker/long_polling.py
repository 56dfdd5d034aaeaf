"""Long polling: requests that wait on the broker until a message comes or their time is over.

Held pulls (`pull/long_polling.py`), waiting pops and notifications (`pop/long_polling.py`) use this engine.
They decide which request a message wakes; the engine keeps the requests and their time.

Rules kept here:
- A held request has no task and no timer of its own: one timer serves all of them.
- Requests that are woken in one turn of the event loop run when it ends, so that the producers have their
  answers first. Very many of them run in several time slices.
- A connection that ends takes its requests along. A broker that stops answers all of them.
- Expensive filters are asked about new messages for one time slice per turn. A request whose filter could not
  be asked counts as interested, and finds out when it reads.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Awaitable, Callable, Iterable
from time import perf_counter
from typing import Final, Generic, Protocol, TypeVar

from cometmq.broker.pull.filters import PullFilter
from cometmq.broker.time_slices import SLICE_S, SlicedQueue
from cometmq.model.errors import CometError
from cometmq.ports.clock import Clock
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import Answer, Deferred, Result
from cometmq.wire.codes import ResponseCode
from cometmq.wire.frame.command import Command

log = logging.getLogger("cometmq.broker")

TICK_MS: Final = 50
"""A request ends at most this late."""
MAX_HOLD_MS: Final = 300_000
"""No request is held longer, whatever it asks for and whatever its clock says."""
LONGEST_SLEEP_MS: Final = 200


class Held(Protocol):
    """A request that waits."""

    request: Command
    connection: Connection
    end_tick: int
    """When its time is over; set by the engine."""


H = TypeVar("H", bound=Held)


class LongPolling(Generic[H]):
    """Keeps waiting requests; belongs to the event loop."""

    def __init__(
        self,
        clock: Clock,
        run: Callable[[H], Result],
        released: Callable[[H], None],
        on_tick: Callable[[int], None] | None = None,
    ) -> None:
        """`run` runs a request again; `released` is told of each request that is no longer held.

        `on_tick` is called every now and then with the monotonic time, while requests are held.
        """
        self._clock = clock
        self._run_again = run
        self._released = released
        self._on_tick = on_tick
        self._ends: dict[int, set[H]] = {}
        """By the tick at which their time is over; an empty set stays until then."""
        self._ticks: list[int] = []
        """The keys of `_ends`, as a heap."""
        self._of_connection: dict[Connection, set[H]] = {}
        self._woken: SlicedQueue[H] = SlicedQueue(self._run)
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self.is_stopped = False
        self.count = 0

    def hold(self, held: H, hold_ms: int) -> None:
        """Keep a request until it is woken or its time is over."""
        now_ms = self._clock.monotonic_ms()
        tick = held.end_tick = (now_ms + min(max(hold_ms, 0), MAX_HOLD_MS)) // TICK_MS + 1
        ending = self._ends.get(tick)
        if ending is None:
            ending = self._ends[tick] = set()
            heapq.heappush(self._ticks, tick)
        ending.add(held)
        self._of_connection.setdefault(held.connection, set()).add(held)
        self.count += 1
        # The bytes that it was read from need not be kept for so long.
        held.request.received_fields = None
        held.request.body = b""
        held.request.is_held = True
        self._watch(now_ms)

    def _release(self, held: H) -> None:
        self._ends[held.end_tick].discard(held)
        others = self._of_connection[held.connection]
        others.discard(held)
        if not others:
            del self._of_connection[held.connection]
        self.count -= 1
        self._released(held)

    def wake(self, requests: Iterable[H]) -> None:
        """Run requests again at the end of this turn; they are no longer held."""
        woken = list(requests)
        for held in woken:
            self._release(held)
        self._woken.add(woken)

    def _run(self, held: H) -> None:
        connection, request = held.connection, held.request
        try:
            result = self._run_again(held)
        except CometError as error:
            result = _refusal(error)
        except Exception:  # the others are to be run all the same
            log.exception("a held request of %s failed", connection.remote_address)
            return
        if isinstance(result, Answer):
            connection.answer(request, result)
        elif not isinstance(result, Deferred):
            task = asyncio.ensure_future(_answer_later(result, request, connection))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    # Time

    def _watch(self, now_ms: int) -> None:
        """Have one timer for the first request that ends."""
        next_ms = min(self._ticks[0] * TICK_MS, now_ms + LONGEST_SLEEP_MS)  # the clock may jump
        if self._timer is not None:
            if self._timer_ms <= next_ms:
                return
            self._timer.cancel()
        self._timer_ms = next_ms
        delay_s = max(next_ms - now_ms, 1) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._look_at_clock)

    def _look_at_clock(self) -> None:
        self._timer = None
        self.end_overdue()
        if self.count:
            self._watch(self._clock.monotonic_ms())

    def end_overdue(self) -> None:
        """Run the requests whose time is over."""
        now_ms = self._clock.monotonic_ms()
        while self._ticks and self._ticks[0] * TICK_MS <= now_ms:
            tick = heapq.heappop(self._ticks)
            self.wake(self._ends[tick])
            del self._ends[tick]
        if self._on_tick is not None:
            self._on_tick(now_ms)

    def connection_closed(self, connection: Connection) -> None:
        """Drop the requests of a connection that has ended."""
        for held in list(self._of_connection.get(connection, ())):
            self._release(held)

    def stop(self) -> None:
        """Answer every request, and hold no more."""
        self.is_stopped = True
        self.wake([held for ending in self._ends.values() for held in ending])
        self._woken.run_all()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


async def _answer_later(running: Awaitable[Answer], request: Command, connection: Connection) -> None:
    try:
        answer = await running
    except CometError as error:
        answer = _refusal(error)
    connection.answer(request, answer)


def _refusal(error: CometError) -> Answer:
    return Answer(error.code or ResponseCode.SYSTEM_ERROR, remark=error.message)


class ArrivalFilters:
    """Asks filters whether they want a message that has just come."""

    __slots__ = ("_is_counting", "_spent_s")

    def __init__(self) -> None:
        self._spent_s = 0.0
        self._is_counting = False

    def wants(self, wanted: PullFilter, tags_code: int, properties_block: bytes | memoryview) -> bool:
        """Whether the filter wants the message, or True if others took all the time of this turn."""
        if not wanted.is_expensive:
            return wanted.wants_arrival(tags_code, properties_block)
        if self._spent_s > SLICE_S:
            return True
        began = perf_counter()
        outcome = wanted.wants_arrival(tags_code, properties_block)
        self._spent_s += perf_counter() - began
        if not self._is_counting:
            self._is_counting = True
            asyncio.get_running_loop().call_soon(self._next_turn)
        return outcome

    def _next_turn(self) -> None:
        self._is_counting = False
        self._spent_s = 0.0
