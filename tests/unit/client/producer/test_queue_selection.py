"""Which queue a message goes to (P5)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.client.producer.queue_selection import PublishTopic, by_hash, by_random
from cometmq.model.queue import MessageQueue

QUEUES = [MessageQueue("t", name, number) for name in "ab" for number in range(2)]


def test_queues_take_turns() -> None:
    topic = PublishTopic("t", QUEUES)
    first = [topic.choose(None, None) for _ in QUEUES]
    assert sorted(first) == QUEUES
    assert [topic.choose(None, None) for _ in QUEUES] == first


def test_the_beginning_is_random_so_that_producers_spread() -> None:
    assert len({PublishTopic("t", QUEUES).next_queue() for _ in range(200)}) == 4


def test_the_broker_that_just_failed_is_passed_over() -> None:
    topic = PublishTopic("t", QUEUES)
    assert {topic.choose("a", None).broker_name for _ in range(8)} == {"b"}


def test_a_lone_broker_is_taken_although_it_failed() -> None:
    topic = PublishTopic("t", QUEUES[:2])
    assert {topic.choose("a", None) for _ in range(8)} == set(QUEUES[:2])


def test_a_broker_may_be_asked_for_by_name() -> None:
    topic = PublishTopic("t", QUEUES)
    assert {topic.queue_at("b") for _ in range(4)} == set(QUEUES[2:])
    assert topic.queue_at("z") is None


def test_the_turn_survives_new_queues() -> None:
    topic = PublishTopic("t", QUEUES)
    topic.queues = QUEUES[:1]
    assert topic.next_queue() == QUEUES[0]


@pytest.mark.parametrize(
    ("key", "java_hash"), [("a", 97), ("Hello", 69609650), ("polygenelubricants", -(2**31))]
)
def test_a_key_gives_the_queue_that_java_takes(key: str, java_hash: int) -> None:
    queues = [MessageQueue("t", "a", number) for number in range(7)]
    assert by_hash(queues, None, key).queue_id == abs(java_hash) % 7


@given(st.text(), st.integers(1, 64))
def test_a_key_always_gives_the_same_queue(key: str, count: int) -> None:
    queues = [MessageQueue("t", "a", number) for number in range(count)]
    assert by_hash(queues, None, key) == by_hash(list(queues), object(), key)


def test_the_random_selector_uses_all_queues() -> None:
    assert {by_random(QUEUES, None, None) for _ in range(200)} == set(QUEUES)
