"""The counters behind the metrics of sends."""

from __future__ import annotations

import pytest

from cometmq.broker.monitor import counters as module
from cometmq.broker.monitor.counters import DELAYED, OTHERS, PLAIN, Traffic


def test_messages_that_came_in_one_go_count_with_their_average_size() -> None:
    traffic = Traffic()
    traffic.took("Orders", 4, 8000, 0.001)
    traffic.took("Orders", 1, 100, 0.5)
    traffic.took("Orders", 1, 300, 0.5, DELAYED)
    sizes = traffic.sizes["Orders", PLAIN]
    assert sizes.counts[:3] == [1, 4, 0]
    assert sizes.total == 8100
    assert traffic.sizes["Orders", DELAYED].total == 300
    assert sum(traffic.append_times.counts) == 3


def test_topics_beyond_the_limit_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_TOPICS", 2)
    traffic = Traffic()
    for number in range(5):
        traffic.took(f"t{number}", 1, 100, 0.0)
    traffic.took("t0", 1, 100, 0.0)
    assert {topic: sizes.total for (topic, _), sizes in traffic.sizes.items()} == {
        "t0": 200,
        "t1": 100,
        OTHERS: 300,
    }


def test_groups_beyond_the_limit_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_GROUPS", 1)
    traffic = Traffic()
    for group in ("billing", "billing", "mail", "audit"):
        traffic.gave_up("Orders", group)
    assert traffic.dead_letters == {("Orders", "billing"): 2, (OTHERS, OTHERS): 2}


def test_times_of_topics_beyond_the_limit_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_TOPICS", 1)
    traffic = Traffic()
    for topic, delay_ms in (("Orders", 59_999), ("Bills", 70_000), ("Parcels", 80_000)):
        traffic.delayed(topic, delay_ms)
        traffic.committed(topic, delay_ms)
    assert {topic: times.counts[:2] for topic, times in traffic.delays.items()} == {
        "Orders": [1, 0],
        OTHERS: [0, 2],
    }
    assert {topic: times.total for topic, times in traffic.commit_times.items()} == {
        "Orders": 59,
        OTHERS: 150,
    }
