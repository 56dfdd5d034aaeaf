"""Our consumer and a Java consumer in one group share its queues, and offsets move between them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Self

import pytest

import cometmq
from cometmq.wire.bodies.heartbeat import ConsumeFromWhere
from tests.compat.client.subject import Subject, running_subject
from tests.compat.client.suite_consuming import LOCK_SECONDS, wait_for_progress
from tests.compat.foreign import ForeignClient, Listening, fresh
from tests.compat.foreign_clients import JavaClient
from tests.waiting import wait_until

QUEUES = 8


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    with running_subject(tmp_path_factory.mktemp("mixed")) as running:
        yield running


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory, subject: Subject) -> Iterator[JavaClient]:
    """With its own interval of 20 s between rebalances: a change that is not told at once is noticed."""
    client = JavaClient(tmp_path_factory.mktemp("client"), subject.namesrv.address)
    client.props.pop("rocketmq.client.rebalance.waitInterval")
    with client:
        yield client


class PythonConsumer:
    """Our push consumer, with what its listener was given: queue, offset and body."""

    def __init__(self, subject: Subject, group: str, topic: str, *, ordered: bool = False) -> None:
        self.given: list[tuple[int, int, str]] = []
        self._lock = threading.Lock()
        self._consumer = cometmq.PushConsumer(
            group,
            namesrv=subject.namesrv.address,
            instance_name=fresh("python"),
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            ordered=ordered,
        )
        self._consumer.subscribe(topic, listener=self._take)

    def _take(self, message: cometmq.StoredMessage) -> None:
        with self._lock:
            self.given.append((message.queue_id, message.queue_offset, message.body.decode()))

    @property
    def texts(self) -> list[str]:
        return [text for _, _, text in self.given]

    @property
    def queues(self) -> set[int]:
        return {queue.queue_id for queue in self._consumer.assignment()}

    def stop(self) -> None:
        self._consumer.stop()

    def __enter__(self) -> Self:
        self._consumer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Flow:
    """Messages for every queue of a topic, and who has got them."""

    def __init__(self, java: ForeignClient, topic: str) -> None:
        self._producer = java.producer()
        self._topic = topic
        self.sent: list[str] = []

    def send(self, rounds: int = 3) -> list[str]:
        bodies = [f"message-{len(self.sent) + number}" for number in range(rounds * QUEUES)]
        for number, body in enumerate(bodies):
            self._producer.send(self._topic, body, form="selector", arg=number)
        self.sent += bodies
        return bodies

    def wait(self, *consumers: PythonConsumer | Listening) -> None:
        def missing() -> set[str]:
            return set(self.sent).difference(*(consumer.texts for consumer in consumers))

        try:
            wait_until(lambda: not missing(), seconds=LOCK_SECONDS, what="every message has come to somebody")
        except AssertionError as late:
            raise AssertionError(f"{late}; missing are {sorted(missing())[:20]}") from None


def test_they_share_the_queues_while_either_joins_or_leaves(subject: Subject, java: ForeignClient) -> None:
    """B3, B9: nothing is lost; at rest each has half of the queues, and nothing comes twice."""
    topic, group = subject.create_topic(fresh("Mixed"), queues=QUEUES), fresh("G")
    flow = Flow(java, topic)
    first_java = java.push(group, topic)
    flow.send()
    flow.wait(first_java)

    with PythonConsumer(subject, group, topic) as python:
        wait_until(lambda: len(python.queues) == QUEUES // 2, seconds=15, what="ours has half of the queues")
        flow.send()
        flow.wait(first_java, python)
        _wait_for_exact_halves(flow, first_java, python)

        first_java.stop()
        wait_until(lambda: len(python.queues) == QUEUES, seconds=15, what="ours has all queues")
        flow.send()
        flow.wait(first_java, python)

        second_java = java.push(group, topic)
        wait_until(lambda: len(python.queues) == QUEUES // 2, seconds=15, what="ours gave half away")
        flow.send()
        flow.wait(first_java, python, second_java)
    flow.send()
    flow.wait(first_java, python, second_java)
    wait_for_progress(java, group, topic)
    second_java.stop()


def _wait_for_exact_halves(flow: Flow, java: Listening, python: PythonConsumer) -> None:
    """Wait until a round comes to both, exactly once in all."""

    def is_exact() -> bool:
        bodies = set(flow.send(rounds=1))
        flow.wait(java, python)
        by_java, by_python = bodies & set(java.texts), bodies & set(python.texts)
        return len(by_java) == len(by_python) == QUEUES // 2 and not by_java & by_python

    wait_until(is_exact, seconds=20, what="each gets one half")


def test_order_holds_when_a_queue_moves_between_them(subject: Subject, java: ForeignClient) -> None:
    """B6: both lock their queues with the broker; the next owner begins where the last one stopped."""
    topic, group = subject.create_topic(fresh("MixedOrder"), queues=QUEUES), fresh("G")
    flow = Flow(java, topic)
    java_consumer = java.push(group, topic, ordered=True)
    flow.send()
    flow.wait(java_consumer)
    with PythonConsumer(subject, group, topic, ordered=True) as python:
        half = QUEUES // 2
        wait_until(
            lambda: len(python.queues) == half, seconds=LOCK_SECONDS, what="ours has half of the queues"
        )
        flow.send()
        flow.wait(java_consumer, python)
        java_consumer.stop()
        wait_until(lambda: len(python.queues) == QUEUES, seconds=LOCK_SECONDS, what="ours has all queues")
        flow.send()
        flow.wait(java_consumer, python)
    by_java = [(message.queue_id, message.queue_offset) for message in java_consumer.messages]
    by_python = [(queue_id, offset) for queue_id, offset, _ in python.given]
    for queue_id in range(QUEUES):
        for given in (by_java, by_python):
            first = list(dict.fromkeys(offset for queue, offset in given if queue == queue_id))
            assert first == sorted(first)
        assert {offset for queue, offset in by_java + by_python if queue == queue_id} == set(range(9))


def test_one_continues_where_the_other_stopped(subject: Subject, java: ForeignClient) -> None:
    """B9: offsets that one wrote are offsets that the other begins at; nothing comes twice."""
    topic, group = subject.create_topic(fresh("Handed"), queues=QUEUES), fresh("G")
    flow = Flow(java, topic)
    with PythonConsumer(subject, group, topic) as python:
        first = flow.send()
        flow.wait(python)
    assert subject.progress_of(group, topic, queues=QUEUES) == [3] * QUEUES
    second = flow.send()
    java_consumer = java.push(group, topic)
    flow.wait(python, java_consumer)
    wait_for_progress(java, group, topic)
    java_consumer.stop()
    third = flow.send()
    with PythonConsumer(subject, group, topic) as again:
        flow.wait(python, java_consumer, again)
    assert sorted(python.texts) == sorted(first)
    assert sorted(java_consumer.texts) == sorted(second)
    assert sorted(again.texts) == sorted(third)
