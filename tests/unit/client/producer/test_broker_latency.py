"""Breaks for brokers that were slow or failed (P5)."""

from __future__ import annotations

import pytest

from cometmq.client.producer.broker_latency import BrokerFaults, break_ms
from cometmq.client.producer.queue_selection import PublishTopic
from cometmq.model.queue import MessageQueue
from cometmq.testing.clock import VirtualClock


@pytest.mark.parametrize(
    ("latency_ms", "expected_ms"),
    [
        (0, 0), (49, 0), (50, 0), (100, 0), (549, 0), (550, 2_000), (1_799, 2_000), (1_800, 5_000),
        (3_000, 6_000), (5_000, 10_000), (10_000, 10_000), (15_000, 30_000), (1_000_000, 30_000),
    ],
)  # fmt: skip
def test_the_slower_the_answer_the_longer_the_break(latency_ms: int, expected_ms: int) -> None:
    assert break_ms(latency_ms) == expected_ms


def test_a_break_ends_by_itself() -> None:
    clock = VirtualClock()
    faults = BrokerFaults(clock.monotonic_ms)
    faults.answered("a", 600)
    assert not faults.is_available("a")
    assert faults.is_reachable("a")
    assert faults.is_available("b")
    clock.advance(1_999)
    assert not faults.is_available("a")
    clock.advance(1)
    assert faults.is_available("a")


def test_a_break_is_only_ever_made_longer() -> None:
    clock = VirtualClock()
    faults = BrokerFaults(clock.monotonic_ms)
    faults.answered("a", 15_000)
    faults.answered("a", 600)
    faults.answered("a", 1)
    clock.advance(29_999)
    assert not faults.is_available("a")


def test_a_broker_that_failed_has_ten_seconds() -> None:
    clock = VirtualClock()
    faults = BrokerFaults(clock.monotonic_ms)
    faults.failed("a", reachable=True)
    clock.advance(9_999)
    assert not faults.is_available("a")
    clock.advance(1)
    assert faults.is_available("a")


def test_a_broker_that_refused_is_unreachable_until_it_answers_well_again() -> None:
    clock = VirtualClock()
    faults = BrokerFaults(clock.monotonic_ms)
    faults.failed("a", reachable=False)
    clock.advance(60_000)
    assert not faults.is_reachable("a")
    faults.answered("a", 1)
    assert faults.is_reachable("a")


def test_the_detector_looks_at_each_unreachable_broker_once_an_interval() -> None:
    clock = VirtualClock()
    faults = BrokerFaults(clock.monotonic_ms)
    faults.failed("a", reachable=False)
    faults.failed("b", reachable=True)
    assert list(faults.due_for_check(2_000)) == ["a"]
    assert list(faults.due_for_check(2_000)) == []
    clock.advance(2_000)
    assert list(faults.due_for_check(2_000)) == ["a"]
    faults.reached("a")
    clock.advance(2_000)
    assert list(faults.due_for_check(2_000)) == []


def test_the_table_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cometmq.client.producer.broker_latency.MAX_BROKERS", 2)
    faults = BrokerFaults(VirtualClock().monotonic_ms)
    for name in "abc":
        faults.failed(name, reachable=True)
    assert [faults.is_available(name) for name in "abc"] == [True, False, False]


def queues_of(*brokers: str) -> list[MessageQueue]:
    return [MessageQueue("t", name, number) for name in brokers for number in range(2)]


def test_brokers_with_a_break_are_passed_over() -> None:
    clock = VirtualClock()
    faults = BrokerFaults(clock.monotonic_ms)
    topic = PublishTopic("t", queues_of("a", "b", "c"))
    faults.failed("a", reachable=True)
    assert {topic.choose(None, faults).broker_name for _ in range(12)} == {"b", "c"}
    assert {topic.choose("b", faults).broker_name for _ in range(12)} == {"c"}


def test_if_all_have_a_break_the_reachable_ones_are_taken() -> None:
    faults = BrokerFaults(VirtualClock().monotonic_ms)
    topic = PublishTopic("t", queues_of("a", "b"))
    faults.failed("a", reachable=False)
    faults.failed("b", reachable=True)
    assert {topic.choose(None, faults).broker_name for _ in range(8)} == {"b"}
    faults.failed("b", reachable=False)
    assert {topic.choose(None, faults).broker_name for _ in range(8)} == {"a", "b"}
