"""The topics of a broker: their table, their version, and how new ones come to be.

Rules kept here:
- Every change makes a new data version, is saved, and is announced to whoever listens, at once.
- A topic that nobody has made is made from the default topic if that may be inherited: with the smaller of
  both sides' numbers of queues, and its permission without the inheritance.
- System topics exist from the start, whatever the file says; the file wins where it has them too.
- With `maxAutoCreateTopics` topics none is made for a message any more; with `maxTopics` neither an
  administrator nor a group that wants to retry gets one. The dead letters of a group, and what was popped
  already, always have a topic: there are not more of them than groups, or than pops that were let in.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from cometmq.broker.config import BrokerConfig
from cometmq.broker.settings import Settings
from cometmq.broker.topics.names import legal_names, refuse_topic
from cometmq.model.names import (
    BENCHMARK_TOPIC,
    DEFAULT_TOPIC,
    DELAY_TOPIC,
    OFFSET_MOVED_EVENT,
    REVIVE_PREFIX,
    SELF_TEST_TOPIC,
    SYNC_BROKER_MEMBER_PREFIX,
    SYSTEM_PREFIX,
    SYSTEM_TOPICS,
    TIMER_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
    dead_letter_topic,
    reply_topic,
    retry_topic,
)
from cometmq.model.topic import (
    MAX_QUEUES,
    PERM_INHERIT,
    PERM_READ,
    PERM_WRITE,
    TOPIC_UNIT_SUB,
    DataVersion,
    TopicConfig,
)
from cometmq.ports.clock import Clock
from cometmq.ports.rarely import Rarely
from cometmq.store.tables.tables import TopicTable

log = logging.getLogger("cometmq.broker")

DELAY_QUEUES: Final = 18
_READ_WRITE: Final = PERM_READ | PERM_WRITE
_INHERITABLE: Final = _READ_WRITE | PERM_INHERIT


class Topics:
    """The table of topics; belongs to the event loop."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._clock = clock
        self._settings = settings
        self.data_version = DataVersion(0, clock.now_ms(), 0)
        self._refusals = Rarely()
        self.generation = 0
        """Counts changes; what was derived from the table is good as long as this stays."""
        self.on_change: list[Callable[[list[TopicConfig]], None]] = []
        """Called after each change with the topics that changed; with none when topics were deleted."""
        self.on_dirty: Callable[[], None] | None = None
        """Called when the table has to be saved."""
        built_in = list(_built_in(settings.broker, has_timers=settings.has_timers))
        self.table: dict[str, TopicConfig] = {topic.topic_name: topic for topic in built_in}
        self.system_topics = SYSTEM_TOPICS | self.table.keys()
        self.get: Callable[[str], TopicConfig | None] = self.table.get

    def has_queue(self, topic: str, queue_id: int) -> bool:
        """Whether a topic has a queue with this id, for reading or for writing."""
        found = self.table.get(topic)
        return found is not None and 0 <= queue_id < max(found.read_queue_nums, found.write_queue_nums)

    def is_system_topic(self, topic: str) -> bool:
        return topic in self.system_topics or topic.startswith(SYSTEM_PREFIX)

    def refuse(self, topic: str) -> str | None:
        """Why a request cannot mean this topic; None if it is there, or if its name is legal."""
        return None if topic in self.table else refuse_topic(topic)

    # File

    def load(self, saved: TopicTable | None) -> None:
        """Take over what was saved."""
        if saved is not None:
            found = saved.topic_config_table
            legal = legal_names({key: topic.topic_name for key, topic in found.items()}, "topics")
            self.table.update((name, _bounded(found[name])) for name in legal)
            self.data_version = saved.data_version
            self.generation += 1

    def snapshot(self) -> TopicTable:
        return TopicTable(self.data_version, dict(self.table))

    # Changes

    def update(self, topic: TopicConfig) -> bool:
        """Create or change a topic; returns whether that changed anything."""
        return self.update_all([topic])

    def update_all(self, topics: Iterable[TopicConfig]) -> bool:
        """Create or change several, as one change."""
        changed = [topic for topic in topics if self.table.get(topic.topic_name) != topic]
        if changed:
            self.table.update((topic.topic_name, topic) for topic in changed)
            self._changed(changed)
        return bool(changed)

    def delete(self, topic: str) -> bool:
        if self.table.pop(topic, None) is None:
            return False
        log.info("topic %s is deleted", topic)
        self._changed([])
        return True

    def take_over(self, copied: TopicTable) -> None:
        """Have the topics of the master and their version, and only these besides the system's."""
        found = copied.topic_config_table
        legal = legal_names({key: topic.topic_name for key, topic in found.items()}, "topics")
        wanted = {name: _bounded(found[name]) for name in legal}
        gone = [name for name in self.table if name not in wanted and not self.is_system_topic(name)]
        changed = [topic for name, topic in wanted.items() if self.table.get(name) != topic]
        if not gone and not changed and self.data_version == copied.data_version:
            return
        for name in gone:
            del self.table[name]
        self.table.update((topic.topic_name, topic) for topic in changed)
        self._changed([] if gone else changed, copied.data_version)

    def create_by_default(
        self, topic: str, default_topic: str, client_queues: int, peer: str, sys_flag: int = 0
    ) -> TopicConfig | None:
        """Make a topic the way the default topic says; None if there is none to inherit from."""
        template = self.table.get(default_topic)
        if template is None:
            log.warning("%s wants %s made like %s, which does not exist", peer, topic, default_topic)
            return None
        if len(self.table) >= self._settings.broker.max_auto_create_topics:
            if count := self._refusals.count():
                log.warning(
                    "%s wants %s made, and %d more were refused: there are %d topics (maxAutoCreateTopics)",
                    *(peer, topic, count - 1, len(self.table)),
                )
            return None
        perm = template.perm
        if default_topic == DEFAULT_TOPIC and not self._settings.broker.auto_create_topic_enable:
            perm = _READ_WRITE
        if not perm & PERM_INHERIT:
            log.warning("%s wants %s made like %s, which is not for inheriting", peer, topic, default_topic)
            return None
        queues = max(min(client_queues, template.write_queue_nums), 0)
        made = TopicConfig(
            topic,
            queues,
            queues,
            perm & ~PERM_INHERIT,
            template.topic_filter_type,
            sys_flag,
            attributes={},
        )
        log.info("topic %s with %d queues is made from %s for %s", topic, queues, default_topic, peer)
        self.update(made)
        return made

    def ensure(self, topic: str, queues: int, perm: int = _READ_WRITE, sys_flag: int = 0) -> TopicConfig:
        """The topic as it is, or made like this."""
        found = self.table.get(topic)
        if found is None:
            queues = min(queues, MAX_QUEUES)
            found = TopicConfig(topic, queues, queues, perm, topic_sys_flag=sys_flag, attributes={})
            log.info("topic %s with %d queues is made", topic, queues)
            self.update(found)
        return found

    def ensure_retry_topic(
        self, group: str, queues: int, *, has_unit_sub: bool = False
    ) -> TopicConfig | None:
        """The topic in which messages of a group wait to be delivered again; None if it may not be made."""
        name = retry_topic(group)
        if not self.has_room_for(name):
            return None
        return self.ensure(name, queues, sys_flag=TOPIC_UNIT_SUB if has_unit_sub else 0)

    def no_room_for(self, topic: str) -> str:
        """The refusal of a topic that cannot be made."""
        return (
            f"topic[{topic}] does not exist, and this broker has {len(self.table)} topics; "
            "delete topics that nobody needs, or raise maxTopics"
        )

    def has_room_for(self, *topics: str) -> bool:
        """Whether all of these are there or may be made."""
        new = len(set(topics) - self.table.keys())
        if not new or len(self.table) + new <= self._settings.broker.max_topics:
            return True
        if count := self._refusals.count():
            log.warning(
                "topic %s is not made, nor were %d more: there are %d topics (maxTopics)",
                *(topics[-1], count - 1, len(self.table)),
            )
        return False

    def ensure_dead_letter_topic(self, group: str) -> TopicConfig:
        """The topic of messages that a group could not consume."""
        return self.ensure(dead_letter_topic(group), 1)

    def touch(self) -> None:
        """Make a new version, because something that name servers are told with the topics has changed."""
        self._changed([])

    def apply_order_topics(self, ordered: Iterable[str]) -> None:
        """Mark the topics that name servers call ordered; a topic that is not among them stays as it is."""
        found = (self.table.get(name) for name in ordered)
        self.update_all(
            msgspec.structs.replace(topic, order=True)
            for topic in found
            if topic is not None and not topic.order
        )

    def _changed(self, topics: list[TopicConfig], version: DataVersion | None = None) -> None:
        self.data_version = version or self.data_version.after(self._clock.now_ms())
        self.generation += 1
        if self.on_dirty is not None:
            self.on_dirty()
        for listener in self.on_change:
            listener(topics)


def _bounded(topic: TopicConfig) -> TopicConfig:
    """A topic that was saved, with no more queues than a topic can have."""
    if max(topic.read_queue_nums, topic.write_queue_nums) <= MAX_QUEUES:
        return topic
    log.warning(
        "topic %s was saved with more than %d queues; it has as many now", topic.topic_name, MAX_QUEUES
    )
    return msgspec.structs.replace(
        topic,
        read_queue_nums=min(topic.read_queue_nums, MAX_QUEUES),
        write_queue_nums=min(topic.write_queue_nums, MAX_QUEUES),
    )


def _built_in(config: BrokerConfig, *, has_timers: bool) -> Iterable[TopicConfig]:
    def topic(name: str, queues: int, perm: int = _READ_WRITE) -> TopicConfig:
        return TopicConfig(name, queues, queues, perm, attributes={})

    yield topic(SELF_TEST_TOPIC, 1)
    if config.auto_create_topic_enable:
        yield topic(DEFAULT_TOPIC, config.default_topic_queue_nums, _INHERITABLE)
    yield topic(BENCHMARK_TOPIC, 1024)
    yield topic(config.broker_cluster_name, 16, _INHERITABLE if config.cluster_topic_enable else PERM_INHERIT)
    yield topic(config.broker_name, 1, _INHERITABLE if config.broker_topic_enable else PERM_INHERIT)
    yield topic(OFFSET_MOVED_EVENT, 1)
    yield topic(DELAY_TOPIC, DELAY_QUEUES)
    if config.trace_topic_enable:
        yield topic(config.msg_trace_topic_name, 1)
    yield topic(reply_topic(config.broker_cluster_name), 1)
    yield topic(REVIVE_PREFIX + config.broker_cluster_name, config.revive_queue_num)
    yield topic(SYNC_BROKER_MEMBER_PREFIX + config.broker_name, 1, PERM_INHERIT)
    yield topic(TRANS_HALF_TOPIC, 1)
    yield topic(TRANS_OP_HALF_TOPIC, 1)
    if has_timers:
        yield topic(TIMER_TOPIC, 1)
