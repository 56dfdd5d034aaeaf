"""Pulls that wait for a message: held without a task and without a timer of their own.

Rules kept here:
- A held pull is woken by the first message that it wants, when its time is over, or when its queue went on
  with messages that it does not want. It is answered then, and never held again.
- Messages that come in one turn of the event loop wake a pull once; it is run when the turn ends, so that its
  answer has all of them, and the producers have theirs first. Very many pulls are run in several turns.
- A message that nobody waits for costs one look into a table.
- A connection that ends takes its held pulls along. A broker that stops answers all of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from cometmq.broker.pull.filters import PullFilter
from cometmq.broker.turns import ArrivalFilters, Turns
from cometmq.remoting.connection import Connection
from cometmq.wire.frame.command import Command
from cometmq.wire.headers.pull import PullMessageRequest

if TYPE_CHECKING:
    from cometmq.broker.context import BrokerState

log = logging.getLogger("cometmq.broker")

MAX_HELD: Final = 100_000
"""With this many pulls held, a further one is told that the broker is busy."""
MAX_HELD_CHARACTERS: Final = 4 * 1024 * 1024
"""The same if the subscriptions that held pulls brought along have so many characters together."""
MAX_HOLD_MS: Final = 300_000
"""No pull is held longer, whatever it asks for."""
TICK_MS: Final = 200
"""How exact the end of the waiting time is."""
RECHECK_MS: Final = 5_000
SHORT_RECHECK_MS: Final = 1_000
"""So often a pull whose queue went on without a wanted message gets to know it; the second one without long
polling."""


class HeldPull:
    """A pull that waits."""

    __slots__ = ("connection", "header", "request", "tick", "wanted")

    def __init__(
        self, header: PullMessageRequest, request: Command, connection: Connection, wanted: PullFilter | None
    ) -> None:
        self.header = header
        self.request = request
        self.connection = connection
        self.wanted = wanted
        self.tick = 0


class HeldPulls:
    """All held pulls of a broker; belongs to the event loop."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self.run: Callable[[HeldPull], None] | None = None
        """Runs a pull that was woken, without holding it again."""
        self._waiting: dict[str, dict[int, dict[HeldPull, None]]] = {}
        """By topic and queue id."""
        self._ends: dict[int, set[HeldPull]] = {}
        """By the tick at which their time is over."""
        self._of_connection: dict[Connection, set[HeldPull]] = {}
        self._passed_over: set[HeldPull] = set()
        """Those whose queue went on with messages that they do not want."""
        self._woken: Turns[HeldPull] = Turns(self._run)
        self._filters = ArrivalFilters()
        self._characters = 0
        self._timer: asyncio.TimerHandle | None = None
        self._rechecked_ms = 0
        self._is_stopped = False
        self.count = 0
        state.store.arrivals.append(self.arrived, waiting=self._waits_for)

    # Holding

    def hold(self, pull: HeldPull, hold_ms: int) -> bool:
        """Keep a pull until a message comes or its time is over; False if that is not possible any more."""
        if self.count >= MAX_HELD or self._is_stopped:
            return False
        header = pull.header
        characters = len(header.subscription or "")
        if self._characters + characters > MAX_HELD_CHARACTERS:
            return False
        self._characters += characters
        now_ms = self._state.clock.monotonic_ms()
        tick = pull.tick = (now_ms + min(max(hold_ms, 0), MAX_HOLD_MS)) // TICK_MS + 1
        self._waiting.setdefault(header.topic, {}).setdefault(header.queue_id, {})[pull] = None
        self._ends.setdefault(tick, set()).add(pull)
        self._of_connection.setdefault(pull.connection, set()).add(pull)
        self.count += 1
        # What it was read from need not be kept for so long.
        pull.request.received_fields = None
        pull.request.body = b""
        pull.request.is_held = True
        if self._timer is None:
            self._rechecked_ms = now_ms
            self._timer = asyncio.get_running_loop().call_later(TICK_MS / 1000, self._look_at_clock)
        return True

    def _let_go(self, pull: HeldPull) -> None:
        header = pull.header
        queues = self._waiting[header.topic]
        pulls = queues[header.queue_id]
        del pulls[pull]
        if not pulls:
            del queues[header.queue_id]
            if not queues:
                del self._waiting[header.topic]
        ending = self._ends[pull.tick]
        ending.discard(pull)
        if not ending:
            del self._ends[pull.tick]
        others = self._of_connection[pull.connection]
        others.discard(pull)
        if not others:
            del self._of_connection[pull.connection]
        self._passed_over.discard(pull)
        self._characters -= len(header.subscription or "")
        self.count -= 1

    # Messages

    def _waits_for(self, topic: str, queue_id: int) -> bool:
        return queue_id in self._waiting.get(topic, ())

    def arrived(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        tags_code: int,
        store_time_ms: int,
        properties_block: bytes | memoryview,
    ) -> None:
        """A message can be read from now on; called for every single one."""
        queues = self._waiting.get(topic)
        if queues is None:
            return
        pulls = queues.get(queue_id)
        if pulls is None:
            return
        for pull in list(pulls):
            if queue_offset < pull.header.queue_offset:
                continue
            wanted = pull.wanted
            if wanted is None or self._filters.wants(wanted, tags_code, properties_block):
                self._let_go(pull)
                self._woken.add((pull,))
            else:
                self._passed_over.add(pull)

    def _run(self, pull: HeldPull) -> None:
        if self.run is None or not pull.connection.is_open:
            return
        try:
            self.run(pull)
        except Exception:  # the others are to be run all the same
            log.exception("a held pull of %s failed", pull.connection.remote_address)

    # Time

    def _look_at_clock(self) -> None:
        self._timer = None
        self.end_overdue()
        if self.count:
            self._timer = asyncio.get_running_loop().call_later(TICK_MS / 1000, self._look_at_clock)

    def end_overdue(self) -> None:
        """Run the pulls whose time is over, and every now and then those whose queue went on without them."""
        now_ms = self._state.clock.monotonic_ms()
        overdue = [tick for tick in self._ends if tick <= now_ms // TICK_MS]
        self._release(pull for tick in overdue for pull in self._ends[tick])
        period_ms = RECHECK_MS if self._state.config.long_polling_enable else SHORT_RECHECK_MS
        if now_ms - self._rechecked_ms >= period_ms:
            self._rechecked_ms = now_ms
            self._release(self._passed_over)

    def _release(self, pulls: Iterable[HeldPull]) -> None:
        released = list(pulls)
        for pull in released:
            self._let_go(pull)
        self._woken.add(released)

    def connection_closed(self, connection: Connection) -> None:
        """Nobody is left to answer on this connection."""
        for pull in list(self._of_connection.get(connection, ())):
            self._let_go(pull)

    def stop(self) -> None:
        """Answer every held pull, and hold no more."""
        self._is_stopped = True
        self._release(pull for pulls in self._ends.values() for pull in pulls)
        self._woken.run_all()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
