"""Pops, and questions for messages, that wait: held without a task and without a timer of their own.

Rules kept here:
- Who waits is woken by a message of its topic, or of the retry topics of its group, when its time is over, or
  when somebody else left messages over. A pop that finds nothing then is held again for the rest of its time.
- A message wakes one request that waits for any queue and one that waits for its own, the first that came (or
  the last, for questions); what they leave over wakes the next. Messages that come in one turn of the event
  loop wake once, and who is woken runs when the turn ends, so that the producers have their answers first.
- A message that nobody waits for costs one look into a table, and nothing while nobody waits at all.
- There are limits to how many wait, for one queue and in all; who comes then is told that it is full.
- A connection that ends takes its requests along. A broker that stops answers all of them.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable, Iterable
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, Final

from cometmq.broker.pop.handles import retry_topic_v1, retry_topic_v2
from cometmq.broker.pull.filters import PullFilter
from cometmq.broker.turns import ArrivalFilters, Turns
from cometmq.remoting.connection import Connection
from cometmq.wire.frame.command import Command
from cometmq.wire.headers.pop import NotificationRequest, PopMessageRequest

if TYPE_CHECKING:
    from cometmq.broker.context import BrokerState

log = logging.getLogger("cometmq.broker")

ANY_QUEUE: Final = -1
TICK_MS: Final = 50
"""How exact the end of the waiting time is; it is early rather than late."""
MAX_HOLD_MS: Final = 300_000
"""Nothing is held longer, whatever it asks for and whatever its clock says."""
ASKED: Final = 8
"""So many who wait are asked whether they want a message, until one does."""
MAX_IDLE_GROUPS: Final = 10_000
"""With more groups known of which nobody waits, these are forgotten."""


class Waiter:
    """A request that waits."""

    __slots__ = ("connection", "group", "header", "request", "tick", "wanted")

    def __init__(
        self,
        header: PopMessageRequest | NotificationRequest,
        request: Command,
        connection: Connection,
        wanted: PullFilter | None = None,
    ) -> None:
        self.header = header
        self.request = request
        self.connection = connection
        self.wanted = wanted
        self.tick = 0
        self.group: WaitingGroup | None = None


class WaitingGroup:
    """Those of a group who wait for a topic."""

    __slots__ = ("count", "queues", "retry_topics", "topic", "woken")

    def __init__(self, topic: str, group: str) -> None:
        self.topic = topic
        self.retry_topics = (retry_topic_v1(topic, group), retry_topic_v2(topic, group))
        self.queues: dict[int, dict[Waiter, None]] = {}
        """By queue id, in the order in which they came."""
        self.woken: set[int] = set()
        """The queues for which somebody was woken and has not run yet."""
        self.count = 0


class Held(Enum):
    """What became of a request that wanted to wait."""

    HELD = "held"
    FULL = "full"
    TOO_LATE = "too late"


class Waiters:
    """Everybody who waits for one kind of request; belongs to the event loop."""

    def __init__(self, state: BrokerState, run: Callable[[Waiter], None], *, last_first: bool) -> None:
        self._state = state
        self._run_again = run
        self._last_first = last_first
        self._groups: dict[tuple[str, str], WaitingGroup] = {}
        self._of_topic: dict[str, dict[WaitingGroup, None]] = {}
        """Whom a message of a topic may wake."""
        self._ends: dict[int, set[Waiter]] = {}
        """By the tick at which their time is over."""
        self._ticks: list[int] = []
        """Those ticks, as a heap."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_tick = 0
        self._of_connection: dict[Connection, set[Waiter]] = {}
        self._woken: Turns[Waiter] = Turns(self._run_woken)
        self._filters = ArrivalFilters()
        self._is_stopped = False
        self._listens = False
        self.count = 0
        state.on_closed.append(self.connection_closed)

    # Holding

    def hold(self, waiter: Waiter, hold_ms: int) -> Held:
        """Keep a request until there is something for it or its time is over."""
        if self._is_stopped or hold_ms <= 0:
            return Held.TOO_LATE
        header, config = waiter.header, self._state.config
        group = self._group(header.topic, header.consumer_group)
        waiters = group.queues.get(header.queue_id)
        if self.count >= config.max_pop_polling_size or (
            waiters is not None and len(waiters) > config.pop_polling_size
        ):
            return Held.FULL
        if waiters is None:
            waiters = group.queues[header.queue_id] = {}
        now_ms = self._state.clock.monotonic_ms()
        waiter.tick = max((now_ms + min(hold_ms, MAX_HOLD_MS)) // TICK_MS, now_ms // TICK_MS + 1)
        if not self._listens:
            self._listens = True
            self._state.store.arrivals.append(self.arrived, waiting=self._waits_for)
        waiter.group = group
        waiters[waiter] = None
        group.count += 1
        self.count += 1
        self._of_connection.setdefault(waiter.connection, set()).add(waiter)
        # What it was read from need not be kept for so long.
        waiter.request.received_fields = None
        waiter.request.body = b""
        waiter.request.is_held = True
        ending = self._ends.get(waiter.tick)
        if ending is None:
            ending = self._ends[waiter.tick] = set()
            heapq.heappush(self._ticks, waiter.tick)
            self._watch(now_ms)
        ending.add(waiter)
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

    def _let_go(self, waiter: Waiter) -> None:
        group = waiter.group
        assert group is not None
        waiters = group.queues[waiter.header.queue_id]
        del waiters[waiter]
        if not waiters:
            del group.queues[waiter.header.queue_id]
        group.count -= 1
        self.count -= 1
        ending = self._ends[waiter.tick]
        ending.discard(waiter)
        if not ending:
            del self._ends[waiter.tick]
        others = self._of_connection[waiter.connection]
        others.discard(waiter)
        if not others:
            del self._of_connection[waiter.connection]

    def count_of(self, topic: str, group: str, queue_id: int) -> int:
        """How many wait for a queue."""
        found = self._groups.get((topic, group))
        return 0 if found is None else len(found.queues.get(queue_id, ()))

    # Messages

    def _waits_for(self, topic: str, queue_id: int) -> bool:
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
        """A message can be read from now on; called for every single one."""
        groups = self._of_topic.get(topic)
        if groups is None:
            return
        interval = self._state.config.pop_long_polling_force_notify_interval
        forced = interval > 0 and queue_offset % interval == 0
        for group in groups:
            if not group.count:
                continue
            if group.topic != topic:  # whoever pops the topic reads the retry topic, too
                queues: Iterable[int] = [ANY_QUEUE] if ANY_QUEUE in group.queues else list(group.queues)[:1]
            else:
                queues = (ANY_QUEUE, queue_id)
            for each in queues:
                if each not in group.woken:
                    self._wake_first(group, each, None if forced else (tags_code, properties_block))

    def wake(self, topic: str, group: str, queue_id: int) -> bool:
        """Let somebody look who waits for this queue, whatever it is that came; False if nobody waits."""
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
                self._let_go(waiter)
                self._woken.add((waiter,))
                return True
        return False

    def _run_woken(self, waiter: Waiter) -> None:
        if waiter.group is not None:
            waiter.group.woken.discard(waiter.header.queue_id)
        if waiter.connection.is_open:
            self._run(waiter)
        elif waiter.group is not None:  # it left meanwhile; somebody else may want what came
            self._wake_first(waiter.group, waiter.header.queue_id, None)
        if not self.count and self._listens:
            self._listens = False
            self._state.store.arrivals.remove(self.arrived)

    def _run(self, waiter: Waiter) -> None:
        if not waiter.connection.is_open:
            return  # nothing is handed out to nobody
        try:
            self._run_again(waiter)
        except Exception:  # the others are to be run all the same
            log.exception("a request of %s that waited failed", waiter.connection.remote_address)

    # Time

    def _watch(self, now_ms: int) -> None:
        """Have one timer for the first who ends."""
        if self._timer is not None:
            if self._timer_tick <= self._ticks[0]:
                return
            self._timer.cancel()
        self._timer_tick = self._ticks[0]
        delay_s = max(self._timer_tick * TICK_MS - now_ms, 1) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._look_at_clock)

    def _look_at_clock(self) -> None:
        self._timer = None
        self.end_overdue()
        if self._ticks:
            self._watch(self._state.clock.monotonic_ms())

    def end_overdue(self) -> None:
        """Run those whose time is over."""
        now_ms = self._state.clock.monotonic_ms()
        while self._ticks and self._ticks[0] * TICK_MS <= now_ms:
            self._release(self._ends.get(heapq.heappop(self._ticks), ()))

    def _release(self, waiters: Iterable[Waiter]) -> None:
        for waiter in list(waiters):
            self._let_go(waiter)
            self._run(waiter)

    def connection_closed(self, connection: Connection) -> None:
        """Nobody is left to answer on this connection."""
        for waiter in list(self._of_connection.get(connection, ())):
            self._let_go(waiter)

    def stop(self) -> None:
        """Answer everybody, and hold no more."""
        self._is_stopped = True
        self._release(waiter for waiters in list(self._ends.values()) for waiter in list(waiters))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
