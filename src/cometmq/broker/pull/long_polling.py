"""Held pulls: pulls that found nothing and wait for a message of their queue.

Rules kept here:
- A held pull is woken by the first message that it wants, when its time is over, or when its queue went on
  with messages that it does not want. It is answered then, and never held again.
- Messages that come in one turn of the event loop wake a pull once, and its answer has all of them.
- A message that nobody waits for costs one look into a table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cometmq.broker.long_polling import ArrivalFilters, LongPolling
from cometmq.broker.pull.filters import PullFilter
from cometmq.broker.settings import Settings
from cometmq.ports.clock import Clock
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import DEFERRED, Result
from cometmq.store.message_store import MessageStore
from cometmq.wire.frame.command import Command
from cometmq.wire.headers.pull import PullMessageRequest

MAX_HELD: Final = 100_000
"""With this many pulls held, a further one is told that the broker is busy."""
MAX_HELD_CHARACTERS: Final = 4 * 1024 * 1024
"""The limit of the characters of all subscriptions that held pulls brought along."""
RECHECK_MS: Final = 5_000
SHORT_RECHECK_MS: Final = 1_000
"""How often pulls are run whose queue went on without a wanted message; the second without long polling."""


@dataclass(slots=True, eq=False)
class HeldPull:
    """A pull that waits."""

    header: PullMessageRequest
    request: Command
    connection: Connection
    wanted: PullFilter | None
    end_tick: int = 0


class HeldPulls:
    """All held pulls of a broker; belongs to the event loop."""

    def __init__(self, settings: Settings, clock: Clock, store: MessageStore) -> None:
        self._settings = settings
        self._clock = clock
        self.run: Callable[[HeldPull], Result] | None = None
        """Runs a pull that was woken, without holding it again."""
        self._waiting: dict[str, dict[int, dict[HeldPull, None]]] = {}
        """By topic and queue id."""
        self._passed_over: set[HeldPull] = set()
        """Pulls whose queue went on with messages that they do not want."""
        self._filters = ArrivalFilters()
        self._characters = 0
        self._rechecked_ms = 0
        self._polling = LongPolling(clock, self._run, self._released, self._recheck)
        self.end_overdue: Final = self._polling.end_overdue
        self.connection_closed: Final = self._polling.connection_closed
        self.stop: Final = self._polling.stop
        store.arrivals.append(self.arrived, waiting=self._waits_for)

    @property
    def count(self) -> int:
        return self._polling.count

    def hold(self, pull: HeldPull, hold_ms: int) -> bool:
        """Keep a pull until a message comes or its time is over; False if the limits do not allow it."""
        header = pull.header
        characters = self._characters + len(header.subscription or "")
        if self.count >= MAX_HELD or self._polling.is_stopped or characters > MAX_HELD_CHARACTERS:
            return False
        self._characters = characters
        if not self.count:
            self._rechecked_ms = self._clock.monotonic_ms()
        self._waiting.setdefault(header.topic, {}).setdefault(header.queue_id, {})[pull] = None
        self._polling.hold(pull, hold_ms)
        return True

    def _released(self, pull: HeldPull) -> None:
        header = pull.header
        queues = self._waiting[header.topic]
        pulls = queues[header.queue_id]
        del pulls[pull]
        if not pulls:
            del queues[header.queue_id]
            if not queues:
                del self._waiting[header.topic]
        self._passed_over.discard(pull)
        self._characters -= len(header.subscription or "")

    def _run(self, pull: HeldPull) -> Result:
        return DEFERRED if self.run is None or not pull.connection.is_open else self.run(pull)

    def _recheck(self, now_ms: int) -> None:
        period_ms = RECHECK_MS if self._settings.broker.long_polling_enable else SHORT_RECHECK_MS
        if now_ms - self._rechecked_ms >= period_ms:
            self._rechecked_ms = now_ms
            self._polling.wake(self._passed_over)

    def _waits_for(self, topic: str, queue_id: int | None) -> bool:
        return topic in self._waiting and (queue_id is None or queue_id in self._waiting[topic])

    def arrived(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        tags_code: int,
        store_time_ms: int,
        properties_block: bytes | memoryview,
    ) -> None:
        """A message can be read from now on; called for every single one of an awaited topic."""
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
                self._polling.wake((pull,))
            else:
                self._passed_over.add(pull)
