"""The Node client sends to our broker and consumes from it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.compat.client.subject import Subject, running_subject
from tests.compat.client.suite_basics import QUICK_LEVELS, BasicsSuite, SharedGroupSuite
from tests.compat.foreign import ForeignClient, fresh
from tests.compat.foreign_clients import NodeClient


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    with running_subject(tmp_path_factory.mktemp("node"), QUICK_LEVELS) as running:
        yield running


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, subject: Subject) -> Iterator[NodeClient]:
    with NodeClient(tmp_path_factory.mktemp("client"), subject.namesrv.address) as started:
        yield started


class TestBasics(BasicsSuite):
    pass


class TestSharedGroup(SharedGroupSuite):
    pass


def test_a_large_body_is_compressed_on_the_way_and_whole_again_at_the_end(
    subject: Subject, client: ForeignClient
) -> None:
    topic, group = subject.create_topic(fresh("Large")), fresh("G")
    consumer = client.push(group, topic)
    body = "this compresses well. " * 1_000
    client.producer().send(topic, body)
    assert [message.text for message in consumer.wait_for([body])] == [body]
    consumer.stop()


def test_properties_are_filtered_with_sql(subject: Subject, client: ForeignClient) -> None:
    """B8"""
    topic, group = subject.create_topic(fresh("Queried")), fresh("G")
    consumer = client.push(group, topic, sql="price > 10 AND color = 'red'")
    producer = client.producer()
    for price in (5, 15, 25):
        for color in ("red", "blue"):
            producer.send(topic, f"{color}-{price}", properties={"price": str(price), "color": color})
    consumer.wait_for(["red-15", "red-25"])
    assert sorted(consumer.texts) == ["red-15", "red-25"]
    consumer.stop()
