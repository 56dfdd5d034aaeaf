"""Clients of other languages, Go, C++ and Node, send to our broker and consume from it.

A test that not every client can do names those that can.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.compat.client.subject import Subject, running_subject
from tests.compat.client.suite_basics import QUICK_LEVELS, BasicsSuite, SharedGroupSuite
from tests.compat.client.suite_sending import texts
from tests.compat.foreign import ForeignClient, fresh
from tests.compat.foreign_clients import CppClient, GoClient, NodeClient
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    with running_subject(tmp_path_factory.mktemp("languages"), QUICK_LEVELS) as running:
        yield running


@pytest.fixture(scope="module", params=[GoClient, CppClient, NodeClient])
def client(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, subject: Subject
) -> Iterator[ForeignClient]:
    with request.param(tmp_path_factory.mktemp("client"), subject.namesrv.address) as started:
        yield started


def only(*clients: type[ForeignClient]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("client", clients, indirect=True, scope="module")


class TestBasics(BasicsSuite):
    pass


class TestSharedGroup(SharedGroupSuite):
    pass


@only(GoClient, CppClient)
@pytest.mark.parametrize("form", ["sync", "async", "oneway"])
def test_every_form_of_sending_stores_each_message_once(
    subject: Subject, client: ForeignClient, form: str
) -> None:
    topic, group = subject.create_topic(fresh(f"Form-{form}")), fresh("G")
    client.producer().send(topic, *texts(20), form=form)
    wait_until(lambda: sum(subject.ends_of(topic)) >= 20, seconds=10, what="all are stored")
    consumer = client.push(group, topic)
    consumer.wait_for(texts(20))
    assert sorted(consumer.texts) == sorted(texts(20))
    consumer.stop()


@only(GoClient, CppClient)
def test_a_batch_is_stored_as_single_messages(subject: Subject, client: ForeignClient) -> None:
    """B6"""
    topic, group = subject.create_topic(fresh("Batch"), queues=1), fresh("G")
    batch = [{"body": f"item-{number}".encode(), "tags": f"T{number}"} for number in range(10)]
    (sent,) = client.producer().send_each(topic, batch, form="batch")
    assert sent.status == "SEND_OK"
    consumer = client.push(group, topic)
    found = sorted(consumer.wait_for(texts(10, "item")), key=lambda message: message.queue_offset)
    assert [message.text for message in found] == texts(10, "item")
    assert [message.queue_offset for message in found] == list(range(10))
    assert [message.properties["TAGS"] for message in found] == [one["tags"] for one in batch]
    consumer.stop()


@only(GoClient)
def test_the_first_message_creates_its_topic(client: ForeignClient, subject: Subject) -> None:
    """B2: without anybody having asked for it."""
    topic = fresh("Created")
    client.producer().send(topic, "first")
    wait_until(lambda: sum(subject.ends_of(topic)) == 1, seconds=10, what="the queue has it")
    consumer = client.push(fresh("G"), topic)
    assert [message.text for message in consumer.wait_for(["first"])] == ["first"]
    consumer.stop()


@only(GoClient)
def test_messages_with_one_sharding_key_come_in_order(subject: Subject, client: ForeignClient) -> None:
    """B6: they share a queue; an ordered listener gets it in order, a failed one before all behind it."""
    topic, group = subject.create_topic(fresh("Ordered")), fresh("G")
    consumer = client.push(group, topic, ordered=True)
    producer = client.producer()
    for number in range(60):
        message = {"body": f"step-{number}".encode(), "shardingKey": f"shard-{number % 5}"}
        producer.send_each(topic, [message])
    consumer.wait_for(texts(60, "step"))
    for shard in range(5):
        steps = [message.text for message in consumer.messages if int(message.text[5:]) % 5 == shard]
        assert steps == [f"step-{number}" for number in range(shard, 60, 5)]
    consumer.stop()


@only(CppClient)
def test_messages_of_one_queue_come_in_order(subject: Subject, client: ForeignClient) -> None:
    """B6: the selector puts them into one queue; an ordered listener gets it in order."""
    topic, group = subject.create_topic(fresh("Ordered")), fresh("G")
    consumer = client.push(group, topic, ordered=True)
    producer = client.producer()
    for number in range(60):
        producer.send(topic, f"step-{number}", form="selector", arg=number % 4)
    consumer.wait_for(texts(60, "step"))
    for shard in range(4):
        steps = [message.text for message in consumer.messages if int(message.text[5:]) % 4 == shard]
        assert steps == [f"step-{number}" for number in range(shard, 60, 4)]
    consumer.stop()


@only(GoClient, NodeClient)
def test_properties_are_filtered_with_sql(subject: Subject, client: ForeignClient) -> None:
    """B8"""
    topic, group = subject.create_topic(fresh("Queried")), fresh("G")
    consumer = client.push(group, topic, sql="price > 10 AND color = 'red'")
    producer = client.producer()
    for price in (5, 15, 25):
        for color in ("red", "blue"):
            producer.send(topic, f"{color}-{price}", properties={"price": str(price), "color": color})
    consumer.wait_for(["red-15", "red-25"])
    subject.wait_for_progress(group, topic)
    assert sorted(consumer.texts) == ["red-15", "red-25"]
    consumer.stop()


@only(GoClient)
def test_a_message_that_always_fails_ends_with_the_dead_letters(
    subject: Subject, client: ForeignClient
) -> None:
    """B7"""
    topic, group = subject.create_topic(fresh("Dead")), fresh("G")
    consumer = client.push(group, topic, failures=100, maxTries=2, retryLevel=1)
    client.producer().send(topic, "hopeless")
    dead_letters = f"%DLQ%{group}"
    wait_until(
        lambda: subject.ends_of(dead_letters, queues=1) == [1], seconds=120, what="there is a dead letter"
    )
    assert [message.reconsume_times for message in consumer.messages] == [0, 1, 2]
    consumer.stop()


@only(NodeClient)
def test_a_large_body_is_compressed_on_the_way_and_whole_again_at_the_end(
    subject: Subject, client: ForeignClient
) -> None:
    topic, group = subject.create_topic(fresh("Large")), fresh("G")
    consumer = client.push(group, topic)
    body = "this compresses well. " * 1_000
    client.producer().send(topic, body)
    assert [message.text for message in consumer.wait_for([body])] == [body]
    consumer.stop()
