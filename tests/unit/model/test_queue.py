"""Message queues as values."""

from itertools import permutations

import pytest

from cometmq.model.queue import MessageQueue


def test_queues_sort_by_topic_then_broker_then_number() -> None:
    """C2"""
    in_order = (
        MessageQueue("A", "broker-a", 2),
        MessageQueue("A", "broker-a", 10),
        MessageQueue("A", "broker-b", 0),
        MessageQueue("B", "broker-a", 0),
    )

    for shuffled in permutations(in_order):
        assert tuple(sorted(shuffled)) == in_order


def test_equal_queues_are_one_key() -> None:
    assert {MessageQueue("T", "b", 1): "first"}[MessageQueue("T", "b", 1)] == "first"
    assert MessageQueue("T", "b", 1) != MessageQueue("T", "b", 2)


def test_a_queue_cannot_be_changed() -> None:
    queue = MessageQueue("T", "b", 1)

    with pytest.raises(AttributeError):
        queue.queue_id = 2  # type: ignore[misc]


def test_a_queue_reads_as_topic_at_broker_and_number() -> None:
    assert str(MessageQueue("orders", "broker-a", 3)) == "orders@broker-a:3"
