"""What every client of another language may expect of the broker.

The classes are suites: a test module makes one its own by deriving a `Test…` class, and says with its
fixture `client` who sends and consumes. What a client cannot do is not in the suite that it takes.
"""

from __future__ import annotations

from collections import defaultdict

from tests.answers import now_ms
from tests.compat.client.subject import Subject
from tests.compat.client.suite_sending import texts
from tests.compat.foreign import DELIVERY_SECONDS, ForeignClient, fresh
from tests.waiting import wait_until

# Retries begin with the third level; a test has not the usual ten seconds for it.
QUICK_LEVELS = {"messageDelayLevel": "1s 3s 1s 1s 2s"}
DELAY_MS = {1: 1_000, 2: 3_000}
# Far above what it takes: a busy machine may let everybody wait.
LATEST_LATE_MS = 6_000


class BasicsSuite:
    """Sending and consuming, with content, counts and offsets."""

    def test_a_message_arrives_with_all_that_belongs_to_it(
        self, subject: Subject, client: ForeignClient
    ) -> None:
        """B6: body, tag, key and properties are what was sent; it is where the producer was told."""
        topic, group = subject.create_topic(fresh("Whole")), fresh("G")
        consumer = client.push(group, topic)
        before = now_ms()
        (sent,) = client.producer().send(
            topic, "hällo", tags="T", keys="key-1", properties={"color": "rød", "weight": "3 kg"}
        )
        (message,) = consumer.wait_for(["hällo"])
        assert sent.status == "SEND_OK"
        assert (message.topic, message.queue_offset, message.reconsume_times) == (topic, sent.queue_offset, 0)
        expected = {"TAGS": "T", "KEYS": "key-1", "color": "rød", "weight": "3 kg"}
        assert expected.items() <= message.properties.items()
        assert before <= message.born_timestamp <= message.store_timestamp <= message.at
        consumer.stop()

    def test_everything_is_consumed_once_and_the_offsets_are_kept(
        self, subject: Subject, client: ForeignClient
    ) -> None:
        """B9: one consumer, nothing fails: each message comes once, and the broker knows the end."""
        topic, group = subject.create_topic(fresh("Counted")), fresh("G")
        bodies = texts(100)
        consumer = client.push(group, topic)
        client.producer().send(topic, *bodies)
        consumer.wait_for(bodies)
        subject.wait_for_progress(group, topic)
        assert sum(subject.ends_of(topic)) == len(bodies)
        assert sorted(consumer.texts) == sorted(bodies)
        by_queue = defaultdict(set)
        for message in consumer.messages:
            by_queue[message.queue_id].add(message.queue_offset)
        assert {
            queue_id: set(range(end)) for queue_id, end in enumerate(subject.ends_of(topic)) if end
        } == by_queue
        consumer.stop()

    def test_a_later_consumer_continues_where_the_group_stopped(
        self, subject: Subject, client: ForeignClient
    ) -> None:
        """B9"""
        topic, group = subject.create_topic(fresh("Continued")), fresh("G")
        producer = client.producer()
        first = client.push(group, topic)
        producer.send(topic, *texts(20, "before"))
        first.wait_for(texts(20, "before"))
        subject.wait_for_progress(group, topic)
        first.stop()
        producer.send(topic, *texts(20, "after"))
        second = client.push(group, topic)
        second.wait_for(texts(20, "after"))
        assert sorted(second.texts) == sorted(texts(20, "after"))
        second.stop()

    def test_tags_are_filtered(self, subject: Subject, client: ForeignClient) -> None:
        """B8"""
        topic, group = subject.create_topic(fresh("Tagged")), fresh("G")
        consumer = client.push(group, topic, tags="red || green")
        producer = client.producer()
        for tag in ("red", "blue", "green"):
            producer.send(topic, *texts(8, tag), tags=tag)
        wanted = texts(8, "red") + texts(8, "green")
        consumer.wait_for(wanted)
        assert sorted(consumer.texts) == sorted(wanted)
        consumer.stop()

    def test_a_failed_message_comes_again(self, subject: Subject, client: ForeignClient) -> None:
        """B7: through the retry topic of its group, and no longer once it succeeded."""
        topic, group = subject.create_topic(fresh("Retried")), fresh("G")
        consumer = client.push(group, topic, failures=2)
        client.producer().send(topic, "try me", tags="T")
        consumer.wait_until(lambda got: len(got) == 3, seconds=120)
        assert [message.reconsume_times for message in consumer.messages] == [0, 1, 2]
        assert {(message.text, message.properties["TAGS"]) for message in consumer.messages} == {
            ("try me", "T")
        }
        subject.wait_for_progress(group, f"%RETRY%{group}", queues=1)
        assert len(consumer.messages) == 3
        consumer.stop()

    def test_a_delayed_message_comes_after_its_delay(self, subject: Subject, client: ForeignClient) -> None:
        """B6"""
        topic, group = subject.create_topic(fresh("Delayed")), fresh("G")
        consumer = client.push(group, topic)
        producer = client.producer()
        producer.send(topic, "at once")
        consumer.wait_for(["at once"])
        for level, delay_ms in DELAY_MS.items():
            sent_at = now_ms()
            producer.send(topic, f"level {level}", delayLevel=level)
            got = consumer.wait_for([f"level {level}"])
            (message,) = (one for one in got if one.text == f"level {level}")
            assert 0 <= message.at - sent_at - delay_ms < LATEST_LATE_MS
            assert message.topic == topic
        consumer.stop()

    def test_every_consumer_of_a_broadcast_gets_everything(
        self, subject: Subject, client: ForeignClient
    ) -> None:
        topic, group = subject.create_topic(fresh("Broadcast")), fresh("G")
        consumers = [client.push(group, topic, broadcast=True) for _ in range(2)]
        client.producer().send(topic, *texts(16))
        for consumer in consumers:
            consumer.wait_for(texts(16))
            assert sorted(consumer.texts) == sorted(texts(16))
            consumer.stop()


class SharedGroupSuite:
    """Consumers of one group share the queues."""

    def test_consumers_that_join_and_leave_lose_nothing(
        self, subject: Subject, client: ForeignClient
    ) -> None:
        """B3: both get some while both are there; what is sent afterwards goes to the one that is left."""
        topic, group = subject.create_topic(fresh("Shared"), queues=8), fresh("G")
        producer = client.producer()
        first, second = client.push(group, topic), client.push(group, topic)
        sent: list[str] = []

        def both_have_some() -> bool:
            more = texts(16, fresh("both"))
            producer.send(topic, *more)
            sent.extend(more)
            return bool(first.messages) and bool(second.messages)

        wait_until(both_have_some, seconds=DELIVERY_SECONDS, what="both consumers have messages")
        first.stop()
        rest = texts(32, "rest")
        producer.send(topic, *rest)
        sent += rest
        wait_until(
            lambda: set(sent) <= {*first.texts, *second.texts},
            seconds=DELIVERY_SECONDS,
            what="every message has come to somebody",
        )
        assert set(rest) <= set(second.texts)
        subject.wait_for_progress(group, topic, queues=8)
        second.stop()
