"""Where a message belongs that waited elsewhere."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from cometmq.broker.real_targets import RealTargets
from cometmq.broker.set_aside import UnprocessableError
from cometmq.broker.settings import Settings
from cometmq.broker.topics.names import is_for_clients
from cometmq.broker.topics.topics import Topics
from cometmq.model.names import NOT_FOR_CLIENTS, TIMER_TOPIC
from cometmq.model.topic import TopicConfig
from cometmq.store.message_store import MessageStore
from cometmq.testing.clock import VirtualClock

REVIVE_TOPIC = "rmq_sys_REVIVE_LOG_DefaultCluster"


@pytest.fixture
def targets() -> RealTargets:
    settings = Settings()
    topics = Topics(settings, VirtualClock())
    topics.update(TopicConfig("Orders", 4, 2))
    queues = SimpleNamespace(
        find=lambda topic, queue_id: "queue" if (topic, queue_id) == ("Orders", 9) else None
    )
    return RealTargets(settings, cast(MessageStore, SimpleNamespace(queues=queues)), topics)


def test_a_queue_of_a_topic_is_a_target(targets: RealTargets) -> None:
    assert targets.find("Orders", "3") == ("Orders", 3)


def test_a_queue_that_has_messages_is_one_also_if_the_topic_was_made_smaller(targets: RealTargets) -> None:
    assert targets.find("Orders", "9") == ("Orders", 9)


@pytest.mark.parametrize("topic", ["Deleted", "%RETRY%billing", "%DLQ%billing", "RMQ_SYS_TRACE_TOPIC"])
def test_a_topic_that_is_gone_or_is_made_later_is_a_target(targets: RealTargets, topic: str) -> None:
    assert targets.find(topic, "7") == (topic, 7)


@pytest.mark.parametrize(
    "queue_id", [None, "", "-1", "4", "2147483648", "9" * 5000, "1_0", "\u0661", "x", "1.0"]
)
def test_what_is_no_queue_is_no_target(targets: RealTargets, queue_id: str | None) -> None:
    with pytest.raises(UnprocessableError, match="REAL_QID"):
        targets.find("Orders", queue_id)


@pytest.mark.parametrize("topic", [None, "", "..", "a/b", "a b", "x" * 128, "\x00"])
def test_what_is_no_topic_is_no_target(targets: RealTargets, topic: str | None) -> None:
    with pytest.raises(UnprocessableError, match="REAL_TOPIC"):
        targets.find(topic, "0")


@pytest.mark.parametrize("topic", [*sorted(NOT_FOR_CLIENTS), TIMER_TOPIC, REVIVE_TOPIC, "rmq_sys_other"])
def test_a_topic_of_the_broker_is_no_target(targets: RealTargets, topic: str) -> None:
    assert not is_for_clients(topic)
    with pytest.raises(UnprocessableError, match="only the broker writes"):
        targets.find(topic, "0")


def test_timers_bring_back_what_belongs_to_popping(targets: RealTargets) -> None:
    assert targets.find(REVIVE_TOPIC, "7", from_timers=True) == (REVIVE_TOPIC, 7)
    with pytest.raises(UnprocessableError, match="no queue"):
        targets.find(REVIVE_TOPIC, "8", from_timers=True)
    with pytest.raises(UnprocessableError, match="only the broker writes"):
        targets.find("rmq_sys_REVIVE_LOG_Other", "0", from_timers=True)
