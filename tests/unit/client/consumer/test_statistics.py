"""Rates of the last minute."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from cometmq.client.consumer import statistics as module
from cometmq.client.consumer.statistics import ConsumeStatistics


def test_rates_are_those_of_the_last_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """C6."""
    now = 1000.0
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
    statistics = ConsumeStatistics()
    totals = statistics.of("orders")
    totals.count_pull(32, 0.010)
    totals.count_call(20, 0.002)
    totals.count_results(0, 10)
    now += 10
    statistics.note()
    status = statistics.status()["orders"]
    assert (status.pull_tps, status.pull_rt) == (3.2, 10.0)
    assert (status.consume_ok_tps, status.consume_failed_tps, status.consume_failed_msgs) == (2.0, 1.0, 10)
    assert status.consume_rt == 2.0
    for _ in range(20):
        now += 5
        statistics.note()
    status = statistics.status()["orders"]
    assert (status.pull_tps, status.consume_ok_tps, status.consume_failed_msgs) == (0.0, 0.0, 0)
