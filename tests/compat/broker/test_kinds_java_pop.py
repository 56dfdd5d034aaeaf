"""Apache's Java client 5.3 pops from our broker: consumers whose share is left to the broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.answers import now_ms
from tests.compat.broker.kinds_client import KindsClient
from tests.compat.client.subject import Subject, running_subject
from tests.compat.client.suite_sending import texts
from tests.compat.foreign import Received, fresh
from tests.waiting import wait_until

INVISIBLE_MS = 5_000
"""The shortest that the client allows."""
LATEST_LATE_MS = 20_000
"""Apache's brings a message back up to some 15 seconds after its time."""
FIRST_RETRY_MS = 10_000
TIMERS = "rmq_sys_wheel_timer"
QUIET_MS = 500
SETTINGS = {"flushDiskType": "SYNC_FLUSH", "mappedFileSizeTimerLog": "1048576"}


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    with running_subject(tmp_path_factory.mktemp("pop"), SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory, subject: Subject) -> Iterator[KindsClient]:
    with KindsClient(tmp_path_factory.mktemp("client"), subject.namesrv.address) as client:
        yield client


@pytest.fixture
def other_java(tmp_path_factory: pytest.TempPathFactory, subject: Subject) -> Iterator[KindsClient]:
    """Another process of the same kind, to be killed."""
    with KindsClient(tmp_path_factory.mktemp("other"), subject.namesrv.address) as client:
        yield client


def popped_topic(subject: Subject, java: KindsClient, name: str, group: str) -> str:
    """A topic with one queue that a group pops."""
    topic = subject.create_topic(fresh(name), queues=1)
    java.pop_mode(subject.broker.address, topic, group)
    return topic


def visible_ms(message: Received) -> int:
    """When a message that was popped may be popped again."""
    _, pop_time_ms, invisible_ms, *_ = message.properties["POP_CK"].split(" ")
    return int(pop_time_ms) + int(invisible_ms)


def wait_until_quiet(subject: Subject) -> None:
    """Wait until no more checkpoints and acknowledgements are written."""
    last = (subject.ends_of(TIMERS, queues=1), now_ms())

    def is_quiet() -> bool:
        nonlocal last
        ends = subject.ends_of(TIMERS, queues=1)
        if ends != last[0]:
            last = ends, now_ms()
        return now_ms() - last[1] >= QUIET_MS

    wait_until(is_quiet, seconds=20, what="the acknowledgements are there")


def test_consumers_share_one_queue(subject: Subject, java: KindsClient, other_java: KindsClient) -> None:
    """B12: all of them get messages of it, each message comes to one of them, and once."""
    group = fresh("G")
    topic = popped_topic(subject, java, "Shared", group)
    consumers = [
        client.pop(group, topic, invisible_ms=60_000, threads=1, batch=4, heldPerQueue=4, sleepMillis=10)
        for client in (java, java, other_java)
    ]
    producer = java.producer()
    sent: list[str] = []

    def all_have_some() -> bool:
        bodies = texts(20, fresh("round"))
        producer.send(topic, *bodies, form="queue", brokerName="broker-a", queueId=0)
        sent.extend(bodies)
        return all(consumer.messages for consumer in consumers)

    wait_until(all_have_some, seconds=40, what="every consumer has messages of the one queue")
    wait_until(
        lambda: sum(len(consumer.messages) for consumer in consumers) >= len(sent),
        seconds=40,
        what="all messages have come",
    )
    assert Counter(text for consumer in consumers for text in consumer.texts) == Counter(sent)
    for consumer in consumers:
        consumer.stop()


@pytest.mark.parametrize("crash", ["the consumer", "the consumer and the broker"])
def test_what_a_crashed_consumer_did_not_acknowledge_comes_back(
    subject: Subject, java: KindsClient, other_java: KindsClient, crash: str
) -> None:
    """B4, B12: after the invisible time and not before; what was acknowledged never does.

    Here more is asked of our broker than Apache's does: a kill makes that one forget what was popped since it
    last saved its offsets.
    """
    group = fresh("G")
    topic = popped_topic(subject, java, "Crashed", group)
    java.producer().send(topic, *texts(20), form="queue", brokerName="broker-a", queueId=0)
    first = other_java.pop(group, topic, invisible_ms=INVISIBLE_MS, threads=1, stuckOn="message-10")
    first.wait_for(["message-10"])
    wait_until_quiet(subject)
    second = java.pop(group, topic, invisible_ms=60_000)
    other_java.kill()
    if crash != "the consumer":
        subject.broker.kill()
        subject.broker.start()
        subject.broker.wait_registered(subject.namesrv.address)
    back = {message.text: message for message in second.wait_for(texts(20)[10:])}
    out = {message.text: message for message in first.messages}
    assert sorted(out) == sorted(texts(20)[:11])
    assert sorted(second.texts) == sorted(texts(20)[10:])
    # All were popped together; the listener has seen only the first of those that it has not acknowledged.
    due_ms = visible_ms(out["message-10"])
    assert {message.at - due_ms > 0 for message in back.values()} == {True}
    assert max(message.at for message in back.values()) < due_ms + LATEST_LATE_MS
    assert {message.reconsume_times for message in back.values()} == {1}
    assert {message.topic for message in back.values()} == {topic}
    second.stop()


def test_a_message_that_failed_comes_again_after_the_time_that_the_client_sets(
    subject: Subject, java: KindsClient
) -> None:
    """B12: the client changes the invisible time of what it could not consume; the rest is not touched."""
    group = fresh("G")
    topic = popped_topic(subject, java, "Failed", group)
    consumer = java.pop(group, topic, invisible_ms=60_000, failures=1)
    java.producer().send(topic, "try me")
    consumer.wait_until(lambda got: len(got) >= 2)
    first, again = consumer.messages
    assert (first.text, again.text) == ("try me", "try me")
    assert (first.reconsume_times, again.reconsume_times) == (0, 1)
    assert FIRST_RETRY_MS <= again.at - first.at < FIRST_RETRY_MS + LATEST_LATE_MS
    consumer.stop()
