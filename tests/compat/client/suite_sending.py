"""What a Java producer may expect of the broker: every form of sending, and clear refusals.

The classes are suites: a test module makes one its own by deriving a `Test…` class, and says with its
fixture `java` which release of the client sends, and with which headers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import pytest
from msgspec import convert

from tests.answers import now_ms
from tests.compat.client.subject import Subject
from tests.compat.foreign import ForeignClient, ForeignError, Received, Sent, fresh
from tests.waiting import wait_until

QUEUES = 4
MESSAGE_ILLEGAL = 13
NOT_FOUND_TOPIC = 10005

DELAY_SECONDS = {1: 1, 2: 5}
# Far above what it takes: a busy machine may let everybody wait.
LATEST_LATE_MS = 6_000


def everything_in(java: ForeignClient, topic: str, queues: int = QUEUES) -> list[Received]:
    """All messages of a topic, queue after queue, as a puller gets them."""
    name = fresh("puller")
    java.call("puller", name=name, group=fresh("G"))
    found: list[Received] = []
    for queue_id in range(queues):
        found += pull_all(java, name, topic, queue_id)
    return found


def pull_all(java: ForeignClient, puller: str, topic: str, queue_id: int) -> list[Received]:
    offset = 0
    found: list[Received] = []
    while True:
        told = java.call(
            "pull",
            name=puller,
            topic=topic,
            brokerName="broker-a",
            queueId=queue_id,
            offset=offset,
            max=32,
            tags="*",
        )
        if told["status"] != "FOUND":
            return found
        found += convert(told["messages"], list[Received])
        assert told["next"] == offset + len(told["messages"])
        offset = told["next"]


def texts(count: int, prefix: str = "message") -> list[str]:
    return [f"{prefix}-{number}" for number in range(count)]


def places(sent: Sequence[Sent]) -> dict[int, list[int]]:
    """The queue offsets that were told, by queue."""
    told = defaultdict(list)
    for one in sent:
        told[one.queue_id].append(one.queue_offset)
    return dict(told)


class SendingSuite:
    """Every form of sending puts the message where it says, once, with all that belongs to it."""

    def test_a_message_arrives_with_all_that_belongs_to_it(
        self, subject: Subject, java: ForeignClient
    ) -> None:
        """B6, B7: body, tag, keys, flag and properties are stored as they were sent."""
        topic = subject.create_topic(fresh("Whole"), queues=1)
        body = bytes(range(256)) * 3
        before = now_ms()
        (sent,) = java.producer().send(
            topic,
            body,
            tags="größe",
            keys="first second",
            flag=77,
            properties={"color": "rød", "weight": "3 kg"},
        )
        (message,) = everything_in(java, topic, queues=1)
        assert sent.status == "SEND_OK"
        assert (sent.broker_name, sent.queue_id, sent.queue_offset) == ("broker-a", 0, 0)
        assert (message.body, message.flag) == (body, 77)
        assert message.msg_id == sent.msg_id
        assert message.offset_msg_id == sent.offset_msg_id
        expected = {"TAGS": "größe", "KEYS": "first second", "color": "rød", "weight": "3 kg"}
        assert expected.items() <= message.properties.items()
        assert before <= message.born_timestamp <= message.store_timestamp <= now_ms()

    @pytest.mark.parametrize("form", ["sync", "async", "oneway"])
    def test_messages_are_spread_over_the_queues(
        self, subject: Subject, java: ForeignClient, form: str
    ) -> None:
        """B6: each is stored once; the offsets of each queue are those that were told, without gaps."""
        topic = subject.create_topic(fresh(f"Spread-{form}"))
        bodies = texts(20)
        producer = java.producer()
        told = places(producer.send(topic, *bodies, form=form))
        found = wait_for_bodies(java, topic, bodies)
        assert sorted(found) == sorted(bodies)
        if form != "oneway":
            assert all(sorted(offsets) == list(range(len(offsets))) for offsets in told.values())
            assert sum(map(len, told.values())) == len(bodies)
            assert set(told) == set(range(QUEUES))

    @pytest.mark.parametrize("form", ["queue", "queueAsync", "queueOneway"])
    def test_a_message_for_a_named_queue_is_in_that_queue(
        self, subject: Subject, java: ForeignClient, form: str
    ) -> None:
        topic = subject.create_topic(fresh(f"Named-{form}"))
        bodies = texts(12)
        sent = java.producer().send(topic, *bodies, form=form, brokerName="broker-a", queueId=2)
        found = wait_for_bodies(java, topic, bodies)
        assert {message.queue_id for message in everything_in(java, topic)} == {2}
        assert sorted(found) == sorted(bodies)
        if form == "queue":
            assert found == bodies
            assert places(sent) == {2: list(range(len(bodies)))}

    @pytest.mark.parametrize("form", ["selector", "selectorAsync", "selectorOneway"])
    def test_a_selector_decides_about_the_queue(
        self, subject: Subject, java: ForeignClient, form: str
    ) -> None:
        topic = subject.create_topic(fresh(f"Selected-{form}"))
        producer = java.producer()
        for number in range(8):
            producer.send(topic, f"message-{number}", form=form, arg=number)
        wait_for_bodies(java, topic, texts(8))
        assert {message.text: message.queue_id for message in everything_in(java, topic)} == {
            f"message-{number}": number % QUEUES for number in range(8)
        }

    @pytest.mark.parametrize("form", ["batch", "batchQueue", "batchAsync"])
    def test_a_batch_is_stored_as_single_messages_one_after_the_other(
        self, subject: Subject, java: ForeignClient, form: str
    ) -> None:
        """B6: each message of a batch has its own offset, id, tag and keys."""
        topic = subject.create_topic(fresh(f"Batch-{form}"))
        batch = [
            {"body": f"item-{number}".encode(), "tags": f"T{number % 3}", "keys": f"{topic}-{number}"}
            for number in range(10)
        ]
        (sent,) = java.producer().send_each(topic, batch, form=form, brokerName="broker-a", queueId=1)
        found = everything_in(java, topic)
        assert sent.status == "SEND_OK"
        assert [message.text for message in found] == texts(10, "item")
        assert [message.queue_offset for message in found] == list(range(10))
        assert {message.queue_id for message in found} == {sent.queue_id}
        assert [message.offset_msg_id for message in found] == sent.offset_msg_id.split(",")
        assert [message.properties["TAGS"] for message in found] == [one["tags"] for one in batch]
        assert [message.properties["KEYS"] for message in found] == [one["keys"] for one in batch]

    def test_a_large_body_is_compressed_on_the_way_and_whole_again_at_the_end(
        self, subject: Subject, java: ForeignClient
    ) -> None:
        topic = subject.create_topic(fresh("Large"), queues=1)
        body = b"this compresses well. " * 50_000
        java.producer().send(topic, body)
        (message,) = everything_in(java, topic, queues=1)
        assert message.body == body

    @pytest.mark.parametrize("level", DELAY_SECONDS)
    def test_a_delayed_message_comes_after_its_delay(
        self, subject: Subject, java: ForeignClient, level: int
    ) -> None:
        """B6: not before its time, soon after it, to the queue it was sent to, and once."""
        topic, group = subject.create_topic(fresh("Delayed")), fresh("G")
        consumer = java.push(group, topic)
        producer = java.producer()
        producer.send(topic, "at once", form="queue", brokerName="broker-a", queueId=3)
        consumer.wait_for(["at once"])
        sent_at = now_ms()
        producer.send(topic, "later", form="queue", brokerName="broker-a", queueId=3, delayLevel=level)
        message = next(one for one in consumer.wait_for(["later"]) if one.text == "later")
        late_ms = message.at - sent_at - DELAY_SECONDS[level] * 1000
        assert 0 <= late_ms < LATEST_LATE_MS
        assert (message.topic, message.queue_id) == (topic, 3)
        assert message.properties["DELAY"] == str(level)
        assert consumer.texts.count("later") == 1
        consumer.stop()

    def test_the_first_message_creates_its_topic(self, java: ForeignClient) -> None:
        """B2: with the default topic's permission, and the smaller of both queue numbers."""
        topic = fresh("Created")
        sent = java.producer(queues=3).send(topic, *texts(6))
        assert {one.queue_id for one in sent} == {0, 1, 2}
        assert [queue["queueId"] for queue in java.call("bounds", topic=topic)] == [0, 1, 2]


class RefusalSuite:
    """What must not be stored is refused with the code that clients know."""

    def test_a_message_that_is_too_large_is_refused(self, subject: Subject, java: ForeignClient) -> None:
        """B7: the limit is the broker's, whatever the producer thinks it is."""
        topic = subject.create_topic(fresh("TooLarge"), queues=1)
        producer = java.producer(maxBytes=64 << 20, compressOver=64 << 20, retries=0)
        with pytest.raises(ForeignError) as refused:
            producer.send(topic, bytes((4 << 20) + 1))
        assert refused.value.code == MESSAGE_ILLEGAL
        assert everything_in(java, topic, queues=1) == []

    def test_a_topic_that_may_only_be_read_takes_no_message(
        self, subject: Subject, java: ForeignClient
    ) -> None:
        """B7: its route says so, and a producer finds no queue to send to."""
        topic = subject.create_topic(fresh("ReadOnly"), permission=4)
        with pytest.raises(ForeignError) as refused:
            java.producer().send(topic, "no")
        assert refused.value.code == NOT_FOUND_TOPIC
        assert everything_in(java, topic) == []

    def test_a_queue_that_does_not_exist_takes_no_message(
        self, subject: Subject, java: ForeignClient
    ) -> None:
        topic = subject.create_topic(fresh("FewQueues"), queues=2)
        with pytest.raises(ForeignError) as refused:
            java.producer().send(topic, "no", form="queue", brokerName="broker-a", queueId=9)
        assert "queueId[9] is illegal" in str(refused.value)
        assert everything_in(java, topic, queues=2) == []


def wait_for_bodies(java: ForeignClient, topic: str, bodies: Sequence[str]) -> list[str]:
    """The bodies of a topic once there are as many as these: one-way sends and callbacks take a moment."""
    found: list[str] = []

    def complete() -> bool:
        found[:] = [message.text for message in everything_in(java, topic)]
        return len(found) >= len(bodies)

    wait_until(complete, seconds=20, what=f"{len(bodies)} messages are in {topic}")
    return found
