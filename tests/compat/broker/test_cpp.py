"""The C++ client sends to our broker and consumes from it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.compat.client.subject import Subject, running_subject
from tests.compat.client.suite_basics import QUICK_LEVELS, BasicsSuite, SharedGroupSuite
from tests.compat.client.suite_sending import texts
from tests.compat.foreign import ForeignClient, fresh
from tests.compat.foreign_clients import CppClient
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    with running_subject(tmp_path_factory.mktemp("cpp"), QUICK_LEVELS) as running:
        yield running


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, subject: Subject) -> Iterator[CppClient]:
    with CppClient(tmp_path_factory.mktemp("client"), subject.namesrv.address) as started:
        yield started


class TestBasics(BasicsSuite):
    pass


class TestSharedGroup(SharedGroupSuite):
    pass


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
