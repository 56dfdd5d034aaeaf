"""SQL92 filters of groups, as their heartbeats register them.

Rules kept here:
- A newer expression replaces an older one of the same group and topic; one that does not compile changes
  nothing.
- Expressions are compiled beside the event loop before a heartbeat is registered, and only where the settings
  allow filters. What was saved is compiled when it is first needed.
- An expression that its group no longer has is dead; it stays for a day, in case the group comes back, and is
  forgotten then.
- The table is saved in RocketMQ's form. After a start all expressions are dead until a heartbeat says
  otherwise.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from cometmq.broker.groups.subscriptions import is_tag_type
from cometmq.broker.saved_tables import TableFiles
from cometmq.broker.settings import Settings
from cometmq.model.errors import CometError
from cometmq.ports.clock import Clock
from cometmq.store.tables.tables import ConsumerFilterData, ConsumerFilterTable, TopicFilters
from cometmq.wire.bodies.heartbeat import ConsumerData, SubscriptionData
from cometmq.wire.codes import ResponseCode
from cometmq.wire.sql92.expression import MAX_SQL_CHARACTERS, Expression, Sql92Error, compile_sql

log = logging.getLogger("cometmq.broker")

DEATH_BEFORE_START_MS: Final = 30_000
"""Saved filters count as dead since this long before a start, at the latest."""
MAX_FILTERS: Final = 20_000
"""With this many expressions in all, a further one is not taken."""
MAX_CHARACTERS: Final = 4 * 1024 * 1024
"""The limit of the length of all expressions together."""
MAX_FILTERS_OF_HEARTBEAT: Final = 1_000
"""A heartbeat that brings more expressions is refused."""
MAX_NEW_CHARACTERS: Final = 256 * 1024
"""A heartbeat whose new expressions are longer together is refused; compiling as much takes half a second."""
_NAMED: Final = 10
"""How many dropped filters the log names."""
_LOGGED: Final = 200
"""How many characters of an expression the log shows."""

Compiled = Expression | Sql92Error


class RegisteredFilter(msgspec.Struct):
    """An expression in force, and what is saved of it."""

    data: ConsumerFilterData
    expression: Expression | None = None
    """None until it is first needed."""

    @property
    def client_version(self) -> int:
        return self.data.client_version


def compile_all(texts: Iterable[str]) -> dict[str, Compiled]:
    """Compile expressions; this takes its time, and is meant for a thread beside the event loop."""
    compiled: dict[str, Compiled] = {}
    for text in texts:
        try:
            compiled[text] = compile_sql(text)
        except Sql92Error as error:
            compiled[text] = error
    return compiled


class ConsumerFilters:
    """All expressions of a broker; belongs to the event loop."""

    def __init__(self, settings: Settings, clock: Clock, files: TableFiles) -> None:
        self._clock = clock
        self._settings = settings
        self._groups: dict[str, dict[str, RegisteredFilter]] = {}
        """By group and topic."""
        self._count = 0
        self._characters = 0
        self.generation = 0
        """Counts changes; what was derived from the table is good as long as this stays."""
        self._is_dirty = False
        self._file = files.table(ConsumerFilterTable, self.snapshot)

    def get(self, topic: str, group: str) -> RegisteredFilter | None:
        """The filter of a group for a topic, ready for use."""
        registered = self._find(topic, group)
        if registered is not None and registered.expression is None:
            try:
                registered.expression = compile_sql(registered.data.expression or "")
            except Sql92Error as error:
                log.warning("the saved filter of %s for %s is dropped: %s", group, topic, error.message)
                self._remove(topic, group)
                return None
        return registered

    def _find(self, topic: str, group: str) -> RegisteredFilter | None:
        topics = self._groups.get(group)
        return None if topics is None else topics.get(topic)

    def _put(self, topic: str, group: str, registered: RegisteredFilter) -> bool:
        """Add or replace a filter; False if there are too many."""
        before = self._find(topic, group)
        count = self._count + (before is None)
        characters = self._characters + _length(registered) - (0 if before is None else _length(before))
        if (count > MAX_FILTERS and before is None) or characters > max(MAX_CHARACTERS, self._characters):
            return False
        self._count, self._characters = count, characters
        self._groups.setdefault(group, {})[topic] = registered
        return True

    def _remove(self, topic: str, group: str) -> None:
        topics = self._groups[group]
        self._count -= 1
        self._characters -= _length(topics.pop(topic))
        if not topics:
            del self._groups[group]
        self._changed()

    # File

    def load(self) -> None:
        """Take over what was saved; nothing is compiled yet. Blocks."""
        saved = self._file.file.load()
        if saved is None:
            return
        dropped: list[str] = []
        died_ms = self._clock.now_ms() - DEATH_BEFORE_START_MS
        for topic, filters in saved.filter_data_by_topic.items():
            for group, data in filters.group_filter_data.items():
                if not data.dead_time:
                    dead_ms = max(died_ms, data.born_time)
                    data = msgspec.structs.replace(data, dead_time=dead_ms, dead=dead_ms >= data.born_time)
                registered = RegisteredFilter(data)
                if _length(registered) > MAX_SQL_CHARACTERS or not self._put(topic, group, registered):
                    dropped.append(f"that of {group} for {topic} with {_length(registered)} characters")
        if dropped:
            log.warning(
                "%d saved filters are dropped: a filter may have %d characters and all of them %d, and there "
                "may be %d filters; dropped are %s",
                *(len(dropped), MAX_SQL_CHARACTERS, MAX_CHARACTERS, MAX_FILTERS, "; ".join(dropped[:_NAMED])),
            )

    def snapshot(self) -> ConsumerFilterTable:
        topics: dict[str, dict[str, ConsumerFilterData]] = {}
        for group, filters in self._groups.items():
            for topic, registered in filters.items():
                topics.setdefault(topic, {})[group] = registered.data
        return ConsumerFilterTable({topic: TopicFilters(topic, groups) for topic, groups in topics.items()})

    # Heartbeats

    def to_compile(self, consumers: Iterable[ConsumerData]) -> list[str]:
        """The expressions of a heartbeat that are not compiled yet; raises `CometError` if they are many."""
        if not self._settings.broker.enable_property_filter:
            return []
        count, texts = 0, set()
        for consumer in consumers:
            topics = self._groups.get(consumer.group_name, {})
            for subscription in consumer.subscription_data_set:
                if not _is_filter(subscription):
                    continue
                count += 1
                known = topics.get(subscription.topic)
                if known is None or known.data.expression != subscription.sub_string:
                    texts.add(subscription.sub_string)
        characters = sum(min(len(text), MAX_SQL_CHARACTERS) for text in texts)
        if count > MAX_FILTERS_OF_HEARTBEAT or characters > MAX_NEW_CHARACTERS:
            raise CometError(
                f"the heartbeat brings {count} SQL92 expressions, of which {len(texts)} are new and have "
                f"{characters} characters; {MAX_FILTERS_OF_HEARTBEAT} expressions and {MAX_NEW_CHARACTERS} "
                "new characters are allowed: start fewer consumers in one client, or shorten the expressions",
                code=ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            )
        return list(texts)

    def register(
        self, group: str, subscriptions: Iterable[SubscriptionData], compiled: Mapping[str, Compiled]
    ) -> None:
        """Take over the expressions of a group; those for other topics are dead now."""
        topics = set()
        for subscription in subscriptions:
            topics.add(subscription.topic)
            if _is_filter(subscription) and self._settings.broker.enable_property_filter:
                self._register_one(group, subscription, compiled)
        for topic, registered in self._groups.get(group, {}).items():
            if topic not in topics:
                self._mark_dead(registered)

    def _register_one(
        self, group: str, subscription: SubscriptionData, compiled: Mapping[str, Compiled]
    ) -> None:
        topic, text, version = subscription.topic, subscription.sub_string, subscription.sub_version
        registered = self._find(topic, group)
        if registered is not None and version <= registered.client_version:
            if version == registered.client_version and registered.data.dead_time:
                self._change(registered, dead_time=0, dead=False)
            return
        if registered is not None and registered.data.expression == text:
            self._change(registered, client_version=version, dead_time=0, dead=False)
            return
        expression = compiled.get(text)
        if not isinstance(expression, Expression):
            reason = "it was not compiled" if expression is None else expression.message
            log.warning("the filter of %s for %s is not taken: %s", group, topic, reason)
            return
        data = ConsumerFilterData(
            topic=topic,
            consumer_group=group,
            expression=text,
            expression_type=subscription.expression_type,
            born_time=self._clock.now_ms(),
            client_version=version,
        )
        if not self._put(topic, group, RegisteredFilter(data, expression)):
            log.warning("the filter of %s for %s is not taken: the broker has too many filters", group, topic)
            return
        self._changed()
        log.info("group %s filters %s with %r", group, topic, text[:_LOGGED])

    def unregister(self, group: str) -> None:
        """The last consumer of a group is gone."""
        for registered in self._groups.get(group, {}).values():
            self._mark_dead(registered)

    def save(self) -> None:
        """Forget the expressions that have been dead for long; save soon if anything changed."""
        self._remove_long_dead()
        if self._is_dirty:
            self._is_dirty = False
            self._file.changed()

    def _remove_long_dead(self) -> None:
        oldest = self._clock.now_ms() - self._settings.broker.filter_data_clean_time_span
        for group, topics in list(self._groups.items()):
            for topic, registered in list(topics.items()):
                if 0 < registered.data.dead_time < oldest:
                    self._remove(topic, group)

    def _mark_dead(self, registered: RegisteredFilter) -> None:
        if not registered.data.dead_time:
            self._change(registered, dead_time=self._clock.now_ms(), dead=True)

    def _change(self, registered: RegisteredFilter, **changes: int) -> None:
        registered.data = msgspec.structs.replace(registered.data, **changes)
        self._changed()

    def _changed(self) -> None:
        self.generation += 1
        self._is_dirty = True


def _is_filter(subscription: SubscriptionData) -> bool:
    return bool(subscription.sub_string) and not is_tag_type(subscription.expression_type)


def _length(registered: RegisteredFilter) -> int:
    return len(registered.data.expression or "")
