"""Numbers by topic that people look at and that outlive a restart: waiting timers, open transactions.

Rules kept here: the table says when each number last changed, and its version how often any did. After a kill
the numbers may be off by what happened since they were last saved.
"""

from __future__ import annotations

from collections.abc import Mapping

from cometmq.model.topic import DataVersion
from cometmq.ports.clock import Clock
from cometmq.store.tables.tables import Metric


class TopicCounts:
    """The numbers; belongs to the event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.counts: dict[str, Metric] = {}
        """By topic."""
        self._version = DataVersion(0, clock.now_ms(), 0)
        self._changes = 0

    @property
    def is_dirty(self) -> bool:
        """Whether something changed since it was last copied."""
        return self._changes > 0

    @property
    def total(self) -> int:
        return sum(metric.count for metric in self.counts.values())

    def load(self, version: DataVersion | None, counts: Mapping[str, Metric]) -> None:
        """Take over what was saved."""
        self.counts = dict(counts)
        self._version = version or self._version

    def copy(self) -> tuple[DataVersion, dict[str, Metric]]:
        """The version and the numbers, as they are to be saved."""
        version = self._version
        if self._changes:
            now_ms = self._clock.now_ms()
            version = DataVersion(version.state_version, now_ms, version.counter + self._changes)
            self._version, self._changes = version, 0
        return version, {topic: Metric(each.count, each.time_stamp) for topic, each in self.counts.items()}

    def add(self, topic: str, change: int) -> None:
        """So many more, or fewer."""
        metric = self.counts.get(topic)
        if metric is None:
            metric = self.counts[topic] = Metric()
        metric.count += change
        metric.time_stamp = self._clock.now_ms()
        self._changes += 1

    def clear(self) -> None:
        """Put right what went wrong in a kill: it is known that there is nothing."""
        for topic, metric in self.counts.items():
            if metric.count:
                self.add(topic, -metric.count)
