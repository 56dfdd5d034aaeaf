"""The SQL92 expressions with which groups filter topics, as their heartbeats register them.

Rules kept here:
- A newer expression replaces an older one of the same group and topic; one that does not compile changes
  nothing.
- An expression that its group no longer has is dead; it stays for a day, in case the group comes back, and
  is forgotten then.
- The table is saved in RocketMQ's form. After a start all expressions are dead until a heartbeat says
  otherwise.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import msgspec

from cometmq.broker.subscriptions import is_tag_type
from cometmq.store.config_tables import ConsumerFilterData, ConsumerFilterTable, TopicFilters
from cometmq.wire.bodies.heartbeat import SubscriptionData
from cometmq.wire.sql92 import Expression, Sql92Error, compile_sql

if TYPE_CHECKING:
    from cometmq.broker.state import BrokerState

log = logging.getLogger("cometmq.broker")

DEATH_BEFORE_START_MS: Final = 30_000
"""So long before a start, at the latest, the consumers of what was saved count as gone."""


class RegisteredFilter(msgspec.Struct):
    """An expression in force, and what is saved of it."""

    data: ConsumerFilterData
    expression: Expression

    @property
    def client_version(self) -> int:
        return self.data.client_version


class ConsumerFilters:
    """All expressions of a broker; belongs to the event loop."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._filters: dict[tuple[str, str], RegisteredFilter] = {}
        self.generation = 0
        """Counts changes; what was derived from the table is good as long as this stays."""
        self.is_dirty = False
        """Whether anything changed since this was set to False."""

    def get(self, topic: str, group: str) -> RegisteredFilter | None:
        return self._filters.get((topic, group))

    # File

    def load(self, saved: ConsumerFilterTable | None) -> None:
        """Take over what was saved."""
        if saved is None:
            return
        died_ms = self._state.clock.now_ms() - DEATH_BEFORE_START_MS
        for topic, filters in saved.filter_data_by_topic.items():
            for group, data in filters.group_filter_data.items():
                try:
                    expression = compile_sql(data.expression or "")
                except Sql92Error as error:
                    log.warning("the saved filter of %s for %s is dropped: %s", group, topic, error.message)
                    continue
                if not data.dead_time:
                    dead_ms = max(died_ms, data.born_time)
                    data = msgspec.structs.replace(data, dead_time=dead_ms, dead=dead_ms >= data.born_time)
                self._filters[topic, group] = RegisteredFilter(data, expression)

    def snapshot(self) -> ConsumerFilterTable:
        topics: dict[str, dict[str, ConsumerFilterData]] = {}
        for (topic, group), registered in self._filters.items():
            topics.setdefault(topic, {})[group] = registered.data
        return ConsumerFilterTable({topic: TopicFilters(topic, groups) for topic, groups in topics.items()})

    # Heartbeats

    def register(self, group: str, subscriptions: Iterable[SubscriptionData]) -> None:
        """Take over the expressions of a group; those for other topics are dead now."""
        topics = set()
        for subscription in subscriptions:
            topics.add(subscription.topic)
            if not is_tag_type(subscription.expression_type) and subscription.sub_string:
                self._register_one(group, subscription)
        for (topic, owner), registered in self._filters.items():
            if owner == group and topic not in topics:
                self._bury(registered)

    def _register_one(self, group: str, subscription: SubscriptionData) -> None:
        topic, text, version = subscription.topic, subscription.sub_string, subscription.sub_version
        registered = self._filters.get((topic, group))
        if registered is not None and version <= registered.client_version:
            if version == registered.client_version and registered.data.dead_time:
                self._change(registered, dead_time=0, dead=False)
            return
        if registered is not None and registered.data.expression == text:
            self._change(registered, client_version=version, dead_time=0, dead=False)
            return
        try:
            expression = compile_sql(text)
        except Sql92Error as error:
            log.warning("the filter of %s for %s is not taken: %s", group, topic, error.message)
            return
        data = ConsumerFilterData(
            topic=topic,
            consumer_group=group,
            expression=text,
            expression_type=subscription.expression_type,
            born_time=self._state.clock.now_ms(),
            client_version=version,
        )
        self._filters[topic, group] = RegisteredFilter(data, expression)
        self._changed()
        log.info("group %s filters %s with %r", group, topic, text)

    def unregister(self, group: str) -> None:
        """The last consumer of a group is gone."""
        for (_, owner), registered in self._filters.items():
            if owner == group:
                self._bury(registered)

    def remove_long_dead(self) -> None:
        """Forget the expressions that have been dead for long."""
        oldest = self._state.clock.now_ms() - self._state.config.filter_data_clean_time_span
        for key, registered in list(self._filters.items()):
            if 0 < registered.data.dead_time < oldest:
                del self._filters[key]
                self._changed()

    def _bury(self, registered: RegisteredFilter) -> None:
        if not registered.data.dead_time:
            self._change(registered, dead_time=self._state.clock.now_ms(), dead=True)

    def _change(self, registered: RegisteredFilter, **changes: int) -> None:
        registered.data = msgspec.structs.replace(registered.data, **changes)
        self._changed()

    def _changed(self) -> None:
        self.generation += 1
        self.is_dirty = True
