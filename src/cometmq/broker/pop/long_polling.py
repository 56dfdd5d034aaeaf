"""Waiting pops and notifications: requests that found nothing and wait for a message of their group's topic.

Rules kept here:
- A request is woken by a message of its topic, or of the retry topics of its group, when its time is over, or
  when another one left messages over. A pop that finds nothing then is held again for the rest of its time.
- A message wakes one request that waits for any queue and one that waits for its own: the first that came,
  the last of notifications. What they leave over wakes the next. Messages that come in one turn of the event
  loop wake once.
- A message that nobody waits for costs one look into a table, and nothing while nobody waits at all.
- `popPollingSize` and `maxPopPollingSize` limit how many wait; a further request is told that it is full.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import Final

from cometmq.broker.long_polling import ArrivalFilters, LongPolling
from cometmq.broker.pop.handles import retry_topic_v1, retry_topic_v2
from cometmq.broker.pull.filters import PullFilter
from cometmq.broker.settings import Settings
from cometmq.ports.clock import Clock
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import DEFERRED, Result
from cometmq.store.message_store import MessageStore
from cometmq.wire.frame.command import Command
from cometmq.wire.headers.pop import NotificationRequest, PopMessageRequest

ANY_QUEUE: Final = -1
ASKED: Final = 8
"""How many requests are asked whether they want a message, until one does."""
MAX_IDLE_GROUPS: Final = 10_000
"""With more groups known, those of which nobody waits are forgotten."""


@dataclass(slots=True, eq=False)
class Waiter:
    """A request that waits."""

    header: PopMessageRequest | NotificationRequest
    request: Command
    connection: Connection
    wanted: PullFilter | None = None
    end_tick: int = 0
    group: WaitingGroup | None = None
    is_woken: bool = False
    """Whether a message woke it, rather than the clock."""


class WaitingGroup:
    """The requests of a group that wait for a topic."""

    __slots__ = ("count", "queues", "retry_topics", "topic", "woken")

    def __init__(self, topic: str, group: str) -> None:
        self.topic = topic
        self.retry_topics = (retry_topic_v1(topic, group), retry_topic_v2(topic, group))
        self.queues: dict[int, dict[Waiter, None]] = {}
        """By queue id, in the order in which they came."""
        self.woken: set[int] = set()
        """Queues for which a request was woken and has not run yet."""
        self.count = 0


class Held(Enum):
    """Whether a request is held, and why not."""

    HELD = "held"
    FULL = "full"
    TOO_LATE = "too late"


class Waiters:
    """Waiting requests of one request code; belongs to the event loop."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        store: MessageStore,
        run: Callable[[Waiter], Result],
        *,
        last_first: bool,
    ) -> None:
        self._settings = settings
        self._store = store
        self._run_again = run
        self._last_first = last_first
        self._groups: dict[tuple[str, str], WaitingGroup] = {}
        self._of_topic: dict[str, dict[WaitingGroup, None]] = {}
        """The groups that a message of a topic may wake."""
        self._filters = ArrivalFilters()
        self._listens = False
        self._polling = LongPolling(clock, self._run, self._released)
        self.connection_closed: Final = self._polling.connection_closed
        self.stop: Final = self._polling.stop

    @property
    def count(self) -> int:
        return self._polling.count

    # Holding

    def hold(self, waiter: Waiter, hold_ms: int) -> Held:
        """Keep a request until there is something for it or its time is over."""
        if self._polling.is_stopped or hold_ms <= 0:
            return Held.TOO_LATE
        header, config = waiter.header, self._settings.broker
        group = self._group(header.topic, header.consumer_group)
        waiters = group.queues.get(header.queue_id)
        if self.count >= config.max_pop_polling_size or (
            waiters is not None and len(waiters) > config.pop_polling_size
        ):
            return Held.FULL
        if waiters is None:
            waiters = group.queues[header.queue_id] = {}
        if not self._listens:
            self._listens = True
            self._store.arrivals.append(self.arrived, waiting=self._waits_for)
        waiter.group = group
        waiters[waiter] = None
        group.count += 1
        self._polling.hold(waiter, hold_ms)
        return Held.HELD

    def _group(self, topic: str, name: str) -> WaitingGroup:
        group = self._groups.get((topic, name))
        if group is None:
            if len(self._groups) >= MAX_IDLE_GROUPS:
                self._forget_idle_groups()
            group = self._groups[topic, name] = WaitingGroup(topic, name)
            for each in (topic, *group.retry_topics):
                self._of_topic.setdefault(each, {})[group] = None
        return group

    def _forget_idle_groups(self) -> None:
        for key, group in [(key, group) for key, group in self._groups.items() if not group.count]:
            del self._groups[key]
            for topic in (group.topic, *group.retry_topics):
                groups = self._of_topic[topic]
                del groups[group]
                if not groups:
                    del self._of_topic[topic]

    def _released(self, waiter: Waiter) -> None:
        group = waiter.group
        assert group is not None
        waiters = group.queues[waiter.header.queue_id]
        del waiters[waiter]
        if not waiters:
            del group.queues[waiter.header.queue_id]
        group.count -= 1

    def count_of(self, topic: str, group: str, queue_id: int) -> int:
        """How many wait for a queue."""
        found = self._groups.get((topic, group))
        return 0 if found is None else len(found.queues.get(queue_id, ()))

    # Messages

    def _waits_for(self, topic: str, queue_id: int | None) -> bool:
        return topic in self._of_topic

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
        groups = self._of_topic.get(topic)
        if groups is None:
            return
        interval = self._settings.broker.pop_long_polling_force_notify_interval
        forced = interval > 0 and queue_offset % interval == 0
        for group in groups:
            if not group.count:
                continue
            if group.topic != topic:  # who pops the topic reads the retry topic, too
                queues: Iterable[int] = [ANY_QUEUE] if ANY_QUEUE in group.queues else list(group.queues)[:1]
            else:
                queues = (ANY_QUEUE, queue_id)
            for each in queues:
                if each not in group.woken:
                    self._wake_first(group, each, None if forced else (tags_code, properties_block))

    def wake(self, topic: str, group: str, queue_id: int) -> bool:
        """Wake a request that waits for this queue, whatever came; False if there is none."""
        found = self._groups.get((topic, group))
        if found is None or queue_id in found.woken:
            return False
        return self._wake_first(found, queue_id, None)

    def _wake_first(
        self, group: WaitingGroup, queue_id: int, message: tuple[int, bytes | memoryview] | None
    ) -> bool:
        waiters = group.queues.get(queue_id)
        if not waiters:
            return False
        asked = reversed(waiters) if self._last_first else iter(waiters)
        for waiter in islice(asked, ASKED):
            if message is None or waiter.wanted is None or self._filters.wants(waiter.wanted, *message):
                group.woken.add(queue_id)
                waiter.is_woken = True
                self._polling.wake((waiter,))
                return True
        return False

    def _run(self, waiter: Waiter) -> Result:
        group, queue_id = waiter.group, waiter.header.queue_id
        assert group is not None
        if waiter.is_woken:
            group.woken.discard(queue_id)
        try:
            if waiter.connection.is_open:
                return self._run_again(waiter)
            if waiter.is_woken:  # it left meanwhile; somebody else may want the message
                self._wake_first(group, queue_id, None)
            return DEFERRED
        finally:
            if not self.count and self._listens:
                self._listens = False
                self._store.arrivals.remove(self.arrived)
