"""Numbers by topic, and the version that says whether they changed."""

from __future__ import annotations

from cometmq.broker.monitor.counters import TopicCounts
from cometmq.model.topic import DataVersion
from cometmq.store.tables.tables import Metric
from cometmq.testing.clock import VirtualClock


def test_changes_are_counted_in_the_version_and_dated() -> None:
    clock = VirtualClock(1000)
    counts = TopicCounts(clock)
    counts.load(DataVersion(1, 2, 3), {"Orders": Metric(5, 600)})
    assert counts.copy() == (DataVersion(1, 2, 3), {"Orders": Metric(5, 600)})
    clock.advance(500)
    counts.add("Orders", 2)
    counts.add("Bills", 1)
    assert (counts.is_dirty, counts.total) == (True, 8)
    version, copied = counts.copy()
    assert version == DataVersion(1, 1500, 5)
    assert copied == {"Orders": Metric(7, 1500), "Bills": Metric(1, 1500)}
    assert not counts.is_dirty
    counts.add("Bills", 1)
    assert copied["Bills"].count == 1


def test_numbers_that_are_known_to_be_wrong_are_put_right() -> None:
    counts = TopicCounts(VirtualClock())
    counts.add("Orders", 3)
    counts.copy()
    counts.clear()
    assert (counts.total, counts.is_dirty) == (0, True)
    counts.copy()
    counts.clear()
    assert not counts.is_dirty
