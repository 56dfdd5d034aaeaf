"""Topics in the tables: permissions, deletion, lists (N9)."""

from __future__ import annotations

import pytest

from cometmq.model.topic import PERM_INHERIT, TOPIC_UNIT, TOPIC_UNIT_SUB
from tests.unit.namesrv.kit import A1, A2, CLUSTER, NAME, READ, READ_WRITE, Registry, broker, topic


def test_wiping_the_write_permission_touches_every_topic_of_the_broker_only() -> None:
    """N9: the count is that of the topics that the broker has."""
    registry = Registry(
        broker(topics=["T1", topic("T2", perm=READ)]), broker(A2, name="broker-b", topics=["T1", "T3"])
    )
    assert registry.wipe_write_perm(NAME) == 2
    assert (registry.perm("T1"), registry.perm("T2")) == (READ, READ)
    assert registry.perm("T1", "broker-b") == READ_WRITE
    assert registry.heard.take() == ({"T1"}, False), "T2 was read-only before"


def test_adding_the_write_permission_sets_reading_and_writing() -> None:
    """N9: other bits are lost, as in RocketMQ."""
    registry = Registry(broker(topics=[topic("T1", perm=READ), topic("T2", perm=READ_WRITE | PERM_INHERIT)]))
    assert registry.add_write_perm(NAME) == 2
    assert (registry.perm("T1"), registry.perm("T2")) == (READ_WRITE, READ_WRITE)


def test_an_unknown_broker_has_no_topics_to_touch() -> None:
    """N9: that is no error."""
    registry = Registry(broker())
    assert registry.wipe_write_perm("nobody") == 0
    assert registry.add_write_perm("nobody") == 0
    assert registry.heard.take() == (set(), False)


def test_deleting_a_topic_everywhere() -> None:
    """N9: whatever clusters it is in."""
    registry = Registry(broker(), broker(A2, name="broker-b", cluster="Other"))
    registry.delete_topic("T1", None)
    assert set(registry.topics) == {"T2"}


def test_deleting_a_topic_in_one_cluster() -> None:
    """N9: the topic goes with the last broker that has it."""
    registry = Registry(broker(), broker(A2, name="broker-b", cluster="Other"))
    registry.delete_topic("T1", "Nowhere")
    assert set(registry.topics["T1"]) == {NAME, "broker-b"}
    registry.delete_topic("T1", "Other")
    assert set(registry.topics["T1"]) == {NAME}
    registry.delete_topic("T1", CLUSTER)
    assert "T1" not in registry.topics
    registry.delete_topic("T1", CLUSTER)


def test_a_deleted_topic_comes_back_with_its_broker() -> None:
    """N9: the name server is not where topics live."""
    registry = Registry(broker())
    registry.delete_topic("T1", None)
    registry.come(broker(counter=2))
    assert "T1" in registry.topics


def test_the_topics_of_a_cluster() -> None:
    """N9: those that one of its brokers has."""
    registry = Registry(
        broker(topics=["T1", "T2"]), broker(A2, name="broker-b", cluster="Other", topics=["T2", "T3"])
    )
    assert sorted(registry.topics_of_cluster(CLUSTER)) == ["T1", "T2"]
    assert sorted(registry.topics_of_cluster("Other")) == ["T2", "T3"]
    assert registry.topics_of_cluster("Nowhere") == []


@pytest.mark.parametrize(
    ("wanted", "unwanted", "found"),
    [
        (TOPIC_UNIT, 0, ["U", "US"]),
        (TOPIC_UNIT_SUB, 0, ["S", "US"]),
        (TOPIC_UNIT_SUB, TOPIC_UNIT, ["S"]),
    ],
    ids=["unit", "unit subscription", "unit subscription but not unit"],
)
def test_topics_by_their_system_flag(wanted: int, unwanted: int, found: list[str]) -> None:
    """N9: unit topics and unit subscriptions."""
    topics = [topic("P"), topic("U", flag=1), topic("S", flag=2), topic("US", flag=3)]
    registry = Registry(broker(topics=topics))
    assert sorted(registry.topics_with_flag(wanted, unwanted)) == found


def test_the_system_flag_is_that_of_the_topics_first_broker() -> None:
    """N9: brokers may disagree."""
    registry = Registry(
        broker(A1, topics=[topic("T1", flag=1), "T2"]),
        broker(A2, name="broker-b", topics=["T1", topic("T2", flag=1)]),
    )
    assert registry.topics_with_flag(TOPIC_UNIT) == ["T1"]
