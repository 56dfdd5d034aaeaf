"""Who reads too much of what is not in memory (B13)."""

from __future__ import annotations

import pytest

from cometmq.broker.config import BrokerConfig
from cometmq.broker.pull import cold_reads as module
from cometmq.broker.pull.cold_reads import FORGET_MS, SPAN_MS, ColdReads
from cometmq.broker.settings import Settings
from cometmq.model.errors import CometError
from cometmq.store.config import StoreConfig
from cometmq.testing.clock import VirtualClock


def cold_reads(clock: VirtualClock) -> ColdReads:
    config = BrokerConfig(cg_cold_read_threshold=100, global_cold_read_threshold=1000)
    return ColdReads(Settings(config, StoreConfig(cold_data_flow_control_enable=True)), clock)


def test_a_group_is_held_back_from_its_threshold_on_until_the_span_is_over() -> None:
    clock = VirtualClock(1_000_000)
    reads = cold_reads(clock)
    reads.count("billing", 99)
    assert not reads.is_over("billing")
    reads.count("billing", 1)
    assert reads.is_over("billing")
    assert not reads.is_over("audit")
    clock.advance(SPAN_MS)
    assert not reads.is_over("billing")


def test_a_threshold_of_its_own_counts_and_groups_of_the_system_have_none() -> None:
    reads = cold_reads(VirtualClock(1_000_000))
    reads.set_thresholds({"billing": 10})
    reads.count("billing", 10)
    reads.count("CID_RMQ_SYS_TRANS", 500)
    assert reads.is_over("billing")
    assert not reads.is_over("CID_RMQ_SYS_TRANS")


def test_everybody_is_held_back_when_all_together_read_too_much() -> None:
    reads = cold_reads(VirtualClock(1_000_000))
    for number in range(11):
        reads.count(f"group{number}", 99)
    assert reads.is_over("group0")
    assert reads.is_over("another")
    assert not reads.is_over("CID_RMQ_SYS_TRANS")


def test_a_group_that_has_long_read_nothing_is_forgotten() -> None:
    clock = VirtualClock(1_000_000)
    reads = cold_reads(clock)
    reads.count("billing", 5)
    clock.advance(FORGET_MS)
    reads.count("audit", 5)
    assert reads.groups.keys() == {"audit"}


def test_groups_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_GROUPS", 1)
    reads = cold_reads(VirtualClock(1_000_000))
    reads.count("billing", 5)
    reads.count("audit", 5)
    assert (reads.total, list(reads.groups)) == (10, ["billing"])
    reads.set_thresholds({"billing": 5})
    with pytest.raises(CometError, match="1 groups have a threshold already; remove one"):
        reads.set_thresholds({"audit": 5})
    assert reads.thresholds == {"billing": 5}
