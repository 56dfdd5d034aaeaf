"""Up to which moment all acknowledgements are in the revive topic, for whoever reads it.

An acknowledgement goes a long way: into the timer topic, into the wheel, and from there into the revive
topic; with synchronous flush it can be read, each time, only when it is on the disk. A message must not be
brought back as long as one that came in time may be on that way.

Rules kept here:
- A moment counts when the timers have delivered everything before it, when they have then taken everything
  that was in the log by that time, and when all that they have put meanwhile can be read.
- Slots of the wheel count as a whole.
"""

from __future__ import annotations

from cometmq.broker.settings import Settings
from cometmq.broker.timers.service import TimerService
from cometmq.broker.topics.names import TIMER_TOPIC
from cometmq.ports.clock import Clock
from cometmq.store.message_store import MessageStore


class Settling:
    """Follows moments until they count; belongs to the event loop."""

    def __init__(self, settings: Settings, clock: Clock, store: MessageStore, timers: TimerService) -> None:
        self._store = store
        self._timers = timers
        self._settings = settings
        self._clock = clock
        self._dispatcher = store.files.dispatcher
        self._settled_ms = 0
        self._delivered: tuple[int, int, int] | None = None
        """A moment; how far the log, and the timer topic, were when the timers had passed it."""
        self._taken: tuple[int, int] | None = None
        """A moment; how far the log was when the timers had taken everything up to there."""

    def settled_ms(self) -> int:
        """The moment up to which all acknowledgements can be read."""
        while self._step():
            pass
        return self._settled_ms

    def _step(self) -> bool:
        store, timers = self._store, self._timers
        readable = self._dispatcher.position
        if self._taken is not None:
            moment_ms, log_end = self._taken
            if readable < log_end:
                return False
            self._settled_ms, self._taken = moment_ms, None
        if self._delivered is None:
            moment_ms = self._passed_ms()
            if moment_ms <= self._settled_ms:
                return False
            queue = store.queues.find(TIMER_TOPIC, 0)
            next_timer = 0 if queue is None else queue.next_offset
            self._delivered = moment_ms, store.log.max_offset, next_timer
        moment_ms, log_end, next_timer = self._delivered
        if readable < log_end or timers.enqueuing.queue_offset < next_timer:
            return False
        self._taken, self._delivered = (moment_ms, store.log.max_offset), None
        return True

    def _passed_ms(self) -> int:
        """The moment before which the timers have delivered everything."""
        timers, slot_ms = self._timers, self._settings.store.timer_slot_ms
        read_ms = timers.delivery.read_time_ms
        if timers.enqueuing.latest_ms < read_ms and not timers.enqueuing.behind:
            return self._clock.now_ms() // slot_ms * slot_ms
        return read_ms
