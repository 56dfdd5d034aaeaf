"""Orderly pops: the last batch of a group in a queue, and when it may take the next.

Rules kept here:
- A queue is blocked for a group as long as a message of its last batch is neither acknowledged nor visible
  again. The request that took the batch may ask for it again: it is known by its attempt id.
- Acknowledged messages at the beginning of a batch are done; the group goes on at the first one that is not.
  An acknowledgement of an older batch changes nothing. Without a batch to compare with, only the message that
  the group is at can be acknowledged: a later one would take others along.
- Who waits for a queue is told when it becomes free, by one timer for all queues.
- What is idle for a day, or belongs to a topic, queue or group that is gone, is forgotten.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from cometmq.broker.groups.groups import Groups
from cometmq.broker.pop.handles import mark_of
from cometmq.broker.settings import Settings
from cometmq.broker.topics.topics import Topics
from cometmq.ports.clock import Clock
from cometmq.store.tables.tables import TOPIC_GROUP_SEPARATOR, ConsumerOrderTable, OrderInfo

ILLEGAL: Final = -1
UNCHANGED: Final = -2
"""In place of the offset that a group goes on from."""
FORGOTTEN_AFTER_MS: Final = 24 * 3600 * 1000
LONGEST_SLEEP_S: Final = 1.0
"""The wall clock, which decides, may be set."""


def offsets_of(info: OrderInfo) -> list[int]:
    """The queue offsets of a batch; all but the first are kept as their distance from it."""
    offsets = info.offsets or []
    return [*offsets[:1], *(offsets[0] + distance for distance in offsets[1:])]


@dataclass(eq=False, repr=False)
class ConsumerOrders:
    """The last batches of all groups that pop in order; belongs to the event loop."""

    _settings: Settings
    _clock: Clock
    _topics: Topics
    _groups: Groups
    _on_free: Callable[[str, str, int], None]

    def __post_init__(self) -> None:
        self.table: dict[str, dict[int, OrderInfo]] = {}
        """By `topic@group` and queue id."""
        self.is_dirty = False
        """Whether anything changed since this was set to False."""
        self._free_ms: dict[tuple[str, str, int], int] = {}
        self._frees: list[tuple[int, tuple[str, str, int]]] = []
        """When queues become free, as a heap; only what `_free_ms` says, too, counts."""
        self._timer: asyncio.TimerHandle | None = None

    # File

    def load(self, saved: ConsumerOrderTable | None) -> None:
        """Take over what was saved."""
        if saved is not None:
            self.table.update(saved.table)

    def start(self) -> None:
        """Tell from now on when queues become free."""
        for key, queues in self.table.items():
            topic, _, group = key.rpartition(TOPIC_GROUP_SEPARATOR)
            for queue_id, info in queues.items():
                self._note_free(topic, group, queue_id, info)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def snapshot(self) -> ConsumerOrderTable:
        return ConsumerOrderTable(
            {
                key: {queue_id: _copy(info) for queue_id, info in queues.items()}
                for key, queues in self.table.items()
            }
        )

    def forget_gone(self) -> None:
        """Forget what nobody needs any more."""
        oldest_ms = self._clock.now_ms() - FORGOTTEN_AFTER_MS
        for key, queues in list(self.table.items()):
            topic_name, _, group = key.rpartition(TOPIC_GROUP_SEPARATOR)
            topic = self._topics.get(topic_name)
            for queue_id, info in list(queues.items()):
                if (
                    topic is None
                    or self._groups.get(group) is None
                    or queue_id >= topic.read_queue_nums
                    or info.last_consume_ms < oldest_ms
                ):
                    self.clear(topic_name, group, queue_id)
            if not queues:
                del self.table[key]

    # Batches

    def find(self, topic: str, group: str, queue_id: int) -> OrderInfo | None:
        return self.table.get(f"{topic}{TOPIC_GROUP_SEPARATOR}{group}", {}).get(queue_id)

    def is_blocked(
        self, topic: str, group: str, queue_id: int, attempt_id: str | None, invisible_ms: int
    ) -> bool:
        """Whether a group has to wait before it takes more from a queue."""
        info = self.find(topic, group, queue_id)
        if info is None or not info.offsets:
            return False
        if info.attempt_id is not None and info.attempt_id == attempt_id:
            return False
        if not info.invisible_ms or info.invisible_ms <= 0:
            info.invisible_ms = invisible_ms
        free_ms = _free_at(info)
        return free_ms is not None and self._clock.now_ms() < free_ms

    def take(
        self,
        topic: str,
        group: str,
        queue_id: int,
        attempt_id: str | None,
        pop_time_ms: int,
        invisible_ms: int,
        offsets: Sequence[int],
    ) -> str:
        """A group takes a batch; returns how often it took each message before."""
        queues = self.table.setdefault(f"{topic}{TOPIC_GROUP_SEPARATOR}{group}", {})
        before = queues.get(queue_id)
        info = queues[queue_id] = OrderInfo(
            pop_time_ms=pop_time_ms,
            invisible_ms=invisible_ms,
            offsets=[offsets[0], *(offset - offsets[0] for offset in offsets[1:])],
            last_consume_ms=self._clock.now_ms(),
            attempt_id=attempt_id,
        )
        if before is not None:
            info.consumed_times = _consumed_times(before, info)
        self.is_dirty = True
        self._note_free(topic, group, queue_id, info)
        return _count_info(topic, queue_id, info)

    def acknowledge(
        self, topic: str, group: str, queue_id: int, offset: int, pop_time_ms: int, at_offset: int
    ) -> int:
        """A message is done; the offset from which the group goes on, `ILLEGAL` or `UNCHANGED`.

        `at_offset` is the message that the group is at.
        """
        info = self.find(topic, group, queue_id)
        if info is None:
            return offset + 1 if offset == at_offset else UNCHANGED
        if not info.offsets:
            return ILLEGAL
        if info.pop_time_ms != pop_time_ms:
            return UNCHANGED
        offsets = offsets_of(info)
        if offset not in offsets:
            return ILLEGAL
        info.commit_bits |= 1 << offsets.index(offset)
        self.is_dirty = True
        self._note_free(topic, group, queue_id, info)
        for index, each in enumerate(offsets):
            if not info.commit_bits >> index & 1:
                return each
        return offsets[-1] + 1

    def change_visible(
        self, topic: str, group: str, queue_id: int, offset: int, pop_time_ms: int, visible_ms: int
    ) -> None:
        """A message becomes visible again at another time."""
        info = self.find(topic, group, queue_id)
        if info is None or info.pop_time_ms != pop_time_ms:
            return
        if info.next_visible_ms is None:
            info.next_visible_ms = {}
        info.next_visible_ms[offset] = visible_ms
        self.is_dirty = True
        self._note_free(topic, group, queue_id, info)

    def clear(self, topic: str, group: str, queue_id: int) -> None:
        """Forget the batch of a queue, for example because its group was sent elsewhere."""
        queues = self.table.get(f"{topic}{TOPIC_GROUP_SEPARATOR}{group}")
        if queues is not None and queues.pop(queue_id, None) is not None:
            self.is_dirty = True
        self._free_ms.pop((topic, group, queue_id), None)

    # When queues become free

    def _note_free(self, topic: str, group: str, queue_id: int, info: OrderInfo) -> None:
        key = (topic, group, queue_id)
        free_ms = _free_at(info)
        if free_ms is None or not self._settings.broker.enable_notify_after_pop_order_lock_release:
            self._free_ms.pop(key, None)
            return
        if self._free_ms.get(key) == free_ms:
            return
        self._free_ms[key] = free_ms
        heapq.heappush(self._frees, (free_ms, key))
        if len(self._frees) > 2 * len(self._free_ms) + 64:  # most of it is out of date
            self._frees = [(ms, each) for each, ms in self._free_ms.items()]
            heapq.heapify(self._frees)
        self._watch()

    def _watch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._frees:
            delay_s = (self._frees[0][0] - self._clock.now_ms()) / 1000
            delay_s = min(max(delay_s, 0.001), LONGEST_SLEEP_S)
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._look_at_clock)

    def _look_at_clock(self) -> None:
        self._timer = None
        now_ms = self._clock.now_ms()
        while self._frees and self._frees[0][0] <= now_ms:
            free_ms, key = heapq.heappop(self._frees)
            if self._free_ms.get(key) == free_ms:
                del self._free_ms[key]
                self._on_free(*key)
        self._watch()


def _free_at(info: OrderInfo) -> int | None:
    """When the last message of a batch becomes visible that is not acknowledged; None if all are."""
    visible = info.next_visible_ms or {}
    usual_ms = info.pop_time_ms + (info.invisible_ms or 0)
    return max(
        (
            visible.get(offset, usual_ms)
            for index, offset in enumerate(offsets_of(info))
            if not info.commit_bits >> index & 1
        ),
        default=None,
    )


def _consumed_times(before: OrderInfo, info: OrderInfo) -> dict[int, int]:
    """By offset, how often messages of a batch were taken before."""
    times = before.consumed_times or {}
    if before.attempt_id is not None and before.attempt_id == info.attempt_id:
        return times
    taken = set(offsets_of(before))
    return {offset: times.get(offset, 0) + 1 for offset in offsets_of(info) if offset in taken}


def _count_info(topic: str, queue_id: int, info: OrderInfo) -> str:
    mark, times = mark_of(topic), info.consumed_times or {}
    parts = [f"{mark} qo{queue_id}%{offset} {count}" for offset, count in times.items()]
    # Older clients look for the queue alone.
    all_again = len(times) == len(info.offsets or ())
    parts.append(f"{mark} {queue_id} {min(times.values(), default=0) if all_again else 0}")
    return ";".join(parts)


def _copy(info: OrderInfo) -> OrderInfo:
    return msgspec.structs.replace(
        info,
        offsets=list(info.offsets or ()),
        next_visible_ms=None if info.next_visible_ms is None else dict(info.next_visible_ms),
        consumed_times=None if info.consumed_times is None else dict(info.consumed_times),
    )
