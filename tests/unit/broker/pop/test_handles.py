"""Retry topics, marks and handles (B12)."""

from __future__ import annotations

import pytest

from cometmq.broker.pop.handles import (
    Handle,
    PopRefused,
    mark_of,
    marked_topic,
    normal_topic,
    read_handle,
    retry_topic_v1,
    retry_topic_v2,
)


def test_both_versions_of_a_retry_topic_lead_back_to_the_topic() -> None:
    """B12: whatever the names look like."""
    for topic, group in (("Orders", "billing"), ("a_b", "c_d"), ("Orders", "g_Orders")):
        for mark, name in (("1", retry_topic_v1(topic, group)), ("2", retry_topic_v2(topic, group))):
            assert (mark_of(name), marked_topic(topic, group, mark)) == (mark, name)
            assert normal_topic(name, group) == topic
        assert (mark_of(topic), marked_topic(topic, group, "0")) == ("0", topic)
        assert normal_topic(topic, group) == topic
    with pytest.raises(PopRefused):
        marked_topic("Orders", "billing", "3")


def test_a_handle_is_what_apaches_clients_make() -> None:
    """B12."""
    text = Handle(7, 1000, 60_000, 3, mark_of("%RETRY%g+t"), "broker-a").format(1, 9)
    assert text == "7 1000 60000 3 2 broker-a 1 9"
    assert read_handle(text) == Handle(7, 1000, 60_000, 3, "2", "broker-a")
    assert read_handle(text + " 4711") == read_handle(text)  # the proxy adds an offset of the log


@pytest.mark.parametrize(
    "text", ["", "1", "1 2 3 4 0", "x 2 3 4 0 b", f"{2**63} 2 3 4 0 b", f"1 {2**62} {2**62} 4 0 b"]
)
def test_what_is_no_handle_is_refused(text: str) -> None:
    """B12: with a sentence."""
    with pytest.raises(PopRefused, match="is no handle of a message"):
        read_handle(text)
