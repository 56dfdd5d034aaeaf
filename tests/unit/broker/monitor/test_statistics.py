"""Rates by topic, group and queue, read from the one table of counts (B13)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from cometmq.broker.config import BrokerConfig
from cometmq.broker.monitor.counters import Traffic
from cometmq.broker.monitor.statistics import Statistics
from cometmq.broker.settings import Settings
from cometmq.broker.topics.topics import Topics
from cometmq.store.message_store import MessageStore
from cometmq.testing.clock import VirtualClock

GROUP_KEY = "Orders@billing"


class Counted:
    """Statistics of a store whose queues are made up."""

    def __init__(self, **settings: Any) -> None:
        values = Settings(BrokerConfig(broker_cluster_name="C", **settings))
        self.clock = VirtualClock(1_000_000)
        self.queue = SimpleNamespace(queue_id=0, min_offset=0, max_offset=0, written_size=0)
        queues = SimpleNamespace(by_topic={"Orders": {0: self.queue}})
        store = cast(MessageStore, SimpleNamespace(queues=queues))
        self.traffic = Traffic()
        self.statistics = Statistics(values, self.clock, store, Topics(values, self.clock), self.traffic)
        self.statistics.start()

    def sum_of(self, name: str, key: str) -> int | None:
        found = self.statistics.find(name, key)
        return None if found is None else found.stats_minute.sum

    def sample(self) -> None:
        self.clock.advance(10_000)
        self.statistics.sample()


def test_gets_are_counted_once_and_read_by_group_and_broker() -> None:
    counted = Counted(enable_detail_stat=False)
    counted.traffic.got("Orders", "billing", 0, 5, 500)
    counted.traffic.got("Orders", "billing", 1, 2, 200)
    assert counted.sum_of("GROUP_GET_NUMS", GROUP_KEY) == 0, "known, and not sampled yet"
    counted.sample()
    assert counted.sum_of("GROUP_GET_NUMS", GROUP_KEY) == 7
    assert counted.sum_of("GROUP_GET_SIZE", GROUP_KEY) == 700
    assert counted.sum_of("BROKER_GET_NUMS", "C") == 7
    assert counted.sum_of("QUEUE_GET_NUMS", "Orders@0@billing") is None, "queues are not told apart"
    traffic = counted.traffic
    assert (traffic.got_messages, traffic.got_bytes, traffic.found_pulls) == (7, 700, 2)


def test_queues_are_told_apart_with_detail() -> None:
    counted = Counted(enable_detail_stat=True)
    counted.traffic.got("Orders", "billing", 1, 2, 200)
    counted.queue.max_offset, counted.queue.written_size = 3, 300
    counted.sample()
    assert counted.sum_of("QUEUE_GET_NUMS", "Orders@1@billing") == 2
    assert counted.sum_of("QUEUE_PUT_SIZE", "Orders@0") == 300


def test_puts_follow_from_the_offsets_of_the_queues() -> None:
    counted = Counted()
    counted.queue.max_offset, counted.queue.written_size = 4, 400
    assert counted.sum_of("TOPIC_PUT_NUMS", "Orders") == 0
    counted.sample()
    assert counted.sum_of("TOPIC_PUT_NUMS", "Orders") == 4
    assert counted.statistics.put_tps("Orders") == 0.4


def test_acks_checkpoints_and_messages_sent_back_are_those_of_the_table() -> None:
    counted = Counted()
    counted.traffic.note_acknowledged("Orders", "billing", 3)
    counted.traffic.note_popped("Orders", "billing")
    counted.traffic.note_sent_back("Orders", "billing")
    assert counted.sum_of("GROUP_ACK_NUMS", GROUP_KEY) == 0
    counted.sample()
    names = ("GROUP_ACK_NUMS", "GROUP_CK_NUMS", "SNDBCK_PUT_NUMS")
    assert [counted.sum_of(name, GROUP_KEY) for name in names] == [3, 1, 1]
    assert (counted.sum_of("BROKER_ACK_NUMS", "C"), counted.sum_of("BROKER_CK_NUMS", "C")) == (3, 1)


def test_a_deleted_topic_is_forgotten_and_stays_in_the_sums() -> None:
    counted = Counted()
    counted.traffic.got("Orders", "billing", 0, 5, 500)
    counted.sample()
    counted.statistics.forget_topic("Orders")
    assert counted.sum_of("GROUP_GET_NUMS", GROUP_KEY) is None
    counted.sample()
    assert counted.sum_of("BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC", "C") == 5
