"""Names of topics and groups, with and without a namespace."""

from __future__ import annotations

import pytest

from cometmq.client.names import check_group, check_topic, is_system_group, unwrap, wrap_group, wrap_topic
from cometmq.model.errors import ClientError, MessageError
from cometmq.model.names import SYSTEM_GROUPS, TRANSACTION_GROUP


@pytest.mark.parametrize("topic", ["orders", "%RETRY%g", "a|b-c_d%9", "x" * 127])
def test_topics_that_are_allowed(topic: str) -> None:
    check_topic(topic)


@pytest.mark.parametrize("topic", ["", " ", "a.b", "a b", "ä", "x" * 128])
def test_topics_that_are_not(topic: str) -> None:
    with pytest.raises(MessageError):
        check_topic(topic)


@pytest.mark.parametrize("group", ["", "a.b", "x" * 121, "DEFAULT_CONSUMER"])
def test_groups_that_are_not_allowed(group: str) -> None:
    with pytest.raises(ClientError):
        check_group(group)


@pytest.mark.parametrize(
    ("plain", "wrapped"),
    [
        ("orders", "ns%orders"),
        ("%RETRY%g", "%RETRY%ns%g"),
        ("%DLQ%g", "%DLQ%ns%g"),
        ("TBW102", "TBW102"),
        ("rmq_sys_REVIVE", "rmq_sys_REVIVE"),
        ("DefaultCluster_REPLY_TOPIC", "DefaultCluster_REPLY_TOPIC"),
    ],
)
def test_a_topic_is_wrapped_once_and_unwrapped_again(plain: str, wrapped: str) -> None:
    assert wrap_topic("ns", plain) == wrapped
    assert wrap_topic("ns", wrapped) == wrapped
    assert unwrap("ns", wrapped) == plain
    assert wrap_topic("", plain) == plain
    assert unwrap("", wrapped) == wrapped


def test_groups_of_the_system_stay_as_they_are() -> None:
    assert wrap_group("ns", "g") == "ns%g"
    assert wrap_group("ns", "CLIENT_INNER_PRODUCER") == "CLIENT_INNER_PRODUCER"
    assert wrap_group("ns", TRANSACTION_GROUP) == "CID_RMQ_SYS_TRANS"
    assert wrap_group("ns", "CID_SYS_RMQ_TRANS") == "ns%CID_SYS_RMQ_TRANS"


def test_groups_that_nobody_made_are_system_groups() -> None:
    for group in (*SYSTEM_GROUPS, "SCHEDULE_CONSUMER", "__MONITOR_CONSUMER", "CID_RMQ_SYS_REVIVE_GROUP"):
        assert is_system_group(group)
    assert not is_system_group("CID_SYS_RMQ_TRANS")
