"""How far each group is in each queue.

Rules kept here:
- Offsets are kept by `topic@group`, as they are saved. They are saved every now and then: after a kill a
  group may get messages once more, and never misses one.
- A reset by an administrator counts until the group has been told of it, once a queue; who asks meanwhile
  gets it at once.
- How far a group has pulled is kept in memory only.
- The offsets of the broker's own groups say how far its services are. Only these move them: one that a client
  could set would let the services pass over everything, or begin anew.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from cometmq.broker.settings import Settings
from cometmq.broker.topics.names import OWN_GROUPS
from cometmq.model.java_numbers import LARGEST_LONG
from cometmq.model.topic import DataVersion
from cometmq.ports.clock import Clock
from cometmq.store.tables.tables import TOPIC_GROUP_SEPARATOR, ConsumerOffsetTable, QueueOffsets

log = logging.getLogger("cometmq.broker")

MAX_OFFSETS: Final = 2_000_000
"""With this many offsets of all groups and queues together, a commit for another queue is refused."""
NONE = -1
"""The offset of a group that has none."""


class ConsumerOffsets:
    """Committed, pulled and reset offsets; belongs to the event loop."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._clock = clock
        self._settings = settings
        self._version_step = settings.broker.consumer_offset_update_version_step
        self._commits = 0
        self.data_version = DataVersion(0, clock.now_ms(), 0)
        self.table: dict[str, QueueOffsets] = {}
        self._pulled: dict[str, QueueOffsets] = {}
        self._resets: dict[str, QueueOffsets] = {}
        self._count = 0
        self.is_dirty = False
        """Whether anything changed since this was set to False."""

    # File

    def load(self, saved: ConsumerOffsetTable | None) -> None:
        """Take over what was saved."""
        if saved is not None:
            self.table.update(saved.offset_table)
            for key, queues in saved.offset_table.items():
                if any(abs(offset) > LARGEST_LONG for offset in queues.values()):
                    log.error("%s has offsets of over 64 bits in the file, and begins without them", key)
                    self.table[key] = {
                        each: offset for each, offset in queues.items() if abs(offset) <= LARGEST_LONG
                    }
            self.data_version = saved.data_version
            self._recount()

    def snapshot(self) -> ConsumerOffsetTable:
        offsets = {key: dict(queues) for key, queues in self.table.items()}
        return ConsumerOffsetTable(self.data_version, offsets)

    # Offsets

    def commit(self, client_host: str, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Note that a group has consumed a queue up to an offset; nothing comes of it for an own group."""
        if group not in OWN_GROUPS:
            self._commit(client_host, group, topic, queue_id, offset)

    def commit_own(self, service: str, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Note how far a service of the broker is."""
        self._commit(service, group, topic, queue_id, offset)

    def _commit(self, client_host: str, group: str, topic: str, queue_id: int, offset: int) -> None:
        queues = self.table.get(key := f"{topic}@{group}")
        if queues is None:
            queues = self.table[key] = {}
        before = queues.get(queue_id)
        if before == offset:
            return
        if before is None:
            self._count += 1
        queues[queue_id] = offset
        self.is_dirty = True
        if before is not None and offset < before:
            log.warning(
                "%s sets the offset of %s in %s-%d back from %d to %d",
                *(client_host, group, topic, queue_id, before, offset),
            )
        self._commits += 1
        if self._commits % self._version_step == 0:
            self._next_version()

    def __len__(self) -> int:
        return self._count

    @property
    def is_full(self) -> bool:
        """Whether no further offset is taken, except for a queue in which the group has one."""
        return self._count >= MAX_OFFSETS

    def _recount(self) -> None:
        self._count = sum(map(len, self.table.values()))

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """The offset that a group goes on from; -1 if it has none."""
        key = f"{topic}@{group}"
        if self._resets and self._settings.broker.use_server_side_reset_offset:
            reset = self._resets.get(key, {}).get(queue_id)
            if reset is not None:
                return reset
        queues = self.table.get(key)
        return NONE if queues is None else queues.get(queue_id, NONE)

    def queues_of(self, group: str, topic: str) -> QueueOffsets | None:
        """All offsets of a group in a topic."""
        return self.table.get(f"{topic}@{group}")

    def pulled(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Note how far a group has pulled a queue."""
        queues = self._pulled.get(key := f"{topic}@{group}")
        if queues is None:
            queues = self._pulled[key] = {}
        queues[queue_id] = offset

    def query_pulled(self, group: str, topic: str, queue_id: int) -> int:
        """How far a group has pulled a queue; what it has consumed if it has not pulled since the start."""
        offset = self._pulled.get(f"{topic}@{group}", {}).get(queue_id)
        return self.query(group, topic, queue_id) if offset is None else offset

    # Resets

    def assign_reset(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Let a group go on from here, also if it commits something else before it is told."""
        if group in OWN_GROUPS:
            return
        key = f"{topic}@{group}"
        self._resets.setdefault(key, {})[queue_id] = offset
        queues = self.table.setdefault(key, {})
        self._count += queue_id not in queues
        queues[queue_id] = offset  # for a group that nobody tells: it is not online
        self.is_dirty = True

    def take_reset(self, topic: str, group: str, queue_id: int) -> int | None:
        """The reset that a group has not been told of yet; it counts as told from now on."""
        if not self._resets:
            return None
        queues = self._resets.get(key := f"{topic}@{group}")
        if queues is None:
            return None
        offset = queues.pop(queue_id, None)
        if not queues:
            del self._resets[key]
        return offset

    def has_reset(self, topic: str, group: str, queue_id: int) -> bool:
        return bool(self._resets) and queue_id in self._resets.get(f"{topic}@{group}", ())

    # Groups and topics

    def topics_by_group(self) -> dict[str, set[str]]:
        """The topics in which each group has an offset."""
        topics: dict[str, set[str]] = {}
        for topic, group in self._keys():
            topics.setdefault(group, set()).add(topic)
        return topics

    def topics_of_group(self, group: str) -> set[str]:
        return {topic for topic, each in self._keys() if each == group}

    def groups_of_topic(self, topic: str) -> set[str]:
        return {group for each, group in self._keys() if each == topic}

    def min_offsets(self, topic: str, without: Iterable[str] = ()) -> dict[int, int]:
        """By queue, how far the group is that is least far."""
        left_out = set(without)
        least: dict[int, int] = {}
        for each, group in self._keys():
            if each == topic and group not in left_out:
                for queue_id, offset in self.table[f"{topic}@{group}"].items():
                    least[queue_id] = min(offset, least.get(queue_id, offset))
        return least

    def clone(self, source: str, target: str, topic: str) -> None:
        """Let one group go on where another one is."""
        queues = self.table.get(f"{topic}@{source}")
        if queues is not None and target not in OWN_GROUPS:
            self.table[f"{topic}@{target}"] = dict(queues)
            self._recount()
            self._next_version()

    def remove(self, group: str, topic: str | None = None) -> None:
        """Forget the offsets of a group, in one topic or in all."""
        if group not in OWN_GROUPS:
            self._remove(lambda each, other: other == group and topic in (None, each))

    def remove_topic(self, topic: str) -> None:
        """Forget how far any group is in a topic."""
        self._remove(lambda each, _: each == topic)

    def _remove(self, wanted: Callable[[str, str], bool]) -> None:
        for table in (self.table, self._pulled, self._resets):
            for key in list(table):
                topic, separator, group = key.partition(TOPIC_GROUP_SEPARATOR)
                if separator and wanted(topic, group):
                    del table[key]
                    self.is_dirty = True
        self._recount()

    def _keys(self) -> Iterator[tuple[str, str]]:
        for key in self.table:
            topic, separator, group = key.partition(TOPIC_GROUP_SEPARATOR)
            if separator:
                yield topic, group

    def _next_version(self) -> None:
        version = self.data_version
        self.data_version = DataVersion(version.state_version, self._clock.now_ms(), version.counter + 1)
        self.is_dirty = True
