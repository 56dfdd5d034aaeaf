"""What Java push consumers may expect of the broker: sharing, order, filters, retries, broadcasts.

Rules kept here: order is asked for only where it is promised (one queue, ordered listener), exactly-once
nowhere; where consumers come and go a message may come twice, but never not at all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from statistics import median

from msgspec import convert

from tests.compat.client.subject import Subject
from tests.compat.client.suite_sending import LATEST_LATE_MS, texts
from tests.compat.foreign import ForeignClient, ForeignError, Listening, Received, fresh
from tests.waiting import wait_until

QUEUES = 8
SHARDS = 5
# A consumer that is stopped while it rebalances may lock a queue once more; such a lock lasts for a minute.
LOCK_SECONDS = 120.0
# Far above what it takes, and far below what a consumer that is not woken waits.
WAKE_MS = 500


def wait_for_all(consumers: Iterable[Listening], bodies: Iterable[str], seconds: float = 60) -> None:
    """Wait until every body has come to any of the consumers."""
    consumers, missing = list(consumers), set(bodies)

    def complete() -> bool:
        for consumer in consumers:
            missing.difference_update(consumer.texts)
        return not missing

    try:
        wait_until(complete, seconds=seconds, what="every message has come to somebody")
    except AssertionError as late:
        raise AssertionError(f"{late}; missing are {sorted(missing)[:30]}") from None


def wait_for_progress(java: ForeignClient, group: str, topic: str) -> None:
    """Wait until the broker has the group's offset at the end of every queue."""

    def is_at_the_end() -> bool:
        java.call("persist")
        progress = java.call("progress", group=group, topic=topic)
        return bool(progress) and all(queue["consumer"] == queue["broker"] for queue in progress)

    wait_until(is_at_the_end, seconds=20, what=f"{group} is at the end of {topic}")


def owners(*consumers: Listening) -> dict[int, set[str]]:
    """Who has been given messages of which queue."""
    found = defaultdict(set)
    for consumer in consumers:
        for message in consumer.messages:
            found[message.queue_id].add(consumer.name)
    return dict(found)


def first_deliveries(*consumers: Listening) -> dict[int, list[int]]:
    """By queue: the offsets in the order in which they first came to anybody."""
    everything = sorted((message for one in consumers for message in one.messages), key=lambda one: one.at)
    found: dict[int, dict[int, None]] = defaultdict(dict)
    for message in everything:
        found[message.queue_id].setdefault(message.queue_offset)
    return {queue: list(offsets) for queue, offsets in found.items()}


def send_to_every_queue(java: ForeignClient, topic: str, prefix: str, rounds: int = 4) -> list[str]:
    """Send this many messages to each queue; returns their bodies."""
    producer = java.producer()
    bodies = []
    for number in range(rounds * QUEUES):
        bodies.append(f"{prefix}-{number}")
        producer.send(topic, bodies[-1], form="selector", arg=number)
    return bodies


class SharingSuite:
    """Consumers of one group share the queues, while any of them comes or goes."""

    def test_consumers_that_join_and_leave_share_the_queues(
        self, subject: Subject, java: ForeignClient
    ) -> None:
        """B3: the group is told at once; nothing is lost, and at rest every queue has one owner."""
        topic, group = subject.create_topic(fresh("Shared"), queues=QUEUES), fresh("G")
        first = java.push(group, topic)
        bodies = send_to_every_queue(java, topic, "alone")
        wait_for_all([first], bodies)

        second, third = java.push(group, topic), java.push(group, topic)
        self._wait_until_shared(java, topic, first, second, third)

        second.stop()
        bodies = send_to_every_queue(java, topic, "two-left")
        wait_for_all([first, third], bodies)
        assert not set(bodies) & set(second.texts)
        self._wait_until_shared(java, topic, first, third)
        wait_for_progress(java, group, topic)
        for consumer in (first, third):
            consumer.stop()

    def _wait_until_shared(self, java: ForeignClient, topic: str, *consumers: Listening) -> None:
        def is_shared() -> bool:
            for consumer in consumers:
                consumer.calls.clear()
            wait_for_all(consumers, send_to_every_queue(java, topic, fresh("round"), rounds=1))
            owned = owners(*consumers)
            shares = [sum(consumer.name in names for names in owned.values()) for consumer in consumers]
            return max(shares) - min(shares) <= 1 and all(len(names) == 1 for names in owned.values())

        wait_until(is_shared, seconds=30, what=f"{len(consumers)} consumers share {QUEUES} queues evenly")

    def test_a_consumer_continues_where_its_group_stopped(
        self, subject: Subject, java: ForeignClient
    ) -> None:
        """B9: a clean stop leaves the offsets with the broker; nothing comes twice, nothing is left out."""
        topic, group = subject.create_topic(fresh("Continued")), fresh("G")
        producer = java.producer()
        before = java.push(group, topic)
        producer.send(topic, *texts(20, "before"))
        before.wait_for(texts(20, "before"))
        before.stop()
        producer.send(topic, *texts(20, "after"))
        after = java.push(group, topic)
        after.wait_for(texts(20, "after"))
        wait_for_progress(java, group, topic)
        assert sorted(after.texts) == sorted(texts(20, "after"))
        after.stop()

    def test_groups_do_not_touch_each_other(self, subject: Subject, java: ForeignClient) -> None:
        topic = subject.create_topic(fresh("ManyGroups"))
        consumers = [java.push(fresh("G"), topic) for _ in range(3)]
        java.producer().send(topic, *texts(12))
        for consumer in consumers:
            consumer.wait_for(texts(12))
            assert len(consumer.messages) == 12
            consumer.stop()


class OrderSuite:
    """An ordered listener gets every queue in the order of its offsets."""

    def test_order_holds_while_consumers_join_and_leave(self, subject: Subject, java: ForeignClient) -> None:
        """B6: queues are locked by one consumer at a time; the next begins where the last one stopped."""
        topic, group = subject.create_topic(fresh("Ordered"), queues=SHARDS), fresh("G")
        producer = java.producer()
        bodies: list[str] = []

        def send_some() -> None:
            for number in range(len(bodies), len(bodies) + 6 * SHARDS):
                bodies.append(f"step-{number}")
                producer.send(topic, bodies[-1], form="selector", arg=number)

        consumers = [java.push(group, topic, ordered=True)]
        send_some()
        consumers.append(java.push(group, topic, ordered=True))
        send_some()
        wait_for_all(consumers, bodies, LOCK_SECONDS)
        consumers.append(java.push(group, topic, ordered=True))
        send_some()
        consumers[0].stop()
        send_some()
        wait_for_all(consumers, bodies, LOCK_SECONDS)
        for queue_id, offsets in first_deliveries(*consumers).items():
            assert offsets == sorted(offsets), f"queue {queue_id}"
        wait_for_progress(java, group, topic)
        for consumer in consumers[1:]:
            consumer.stop()

    def test_a_message_that_fails_holds_up_its_queue_only(
        self, subject: Subject, java: ForeignClient
    ) -> None:
        """B6: the failed one comes again, before anything that is behind it."""
        topic, group = subject.create_topic(fresh("HeldUp"), queues=2), fresh("G")
        consumer = java.push(group, topic, ordered=True, failures=2, suspendMillis=100, threads=2)
        producer = java.producer()
        for number in range(6):
            producer.send(topic, f"message-{number}", form="selector", arg=number % 2)
        consumer.wait_until(lambda got: len(got) >= 18)
        for queue_id in range(2):
            tried = [
                (message.text, message.reconsume_times)
                for message in consumer.messages
                if message.queue_id == queue_id
            ]
            assert tried == [(f"message-{queue_id + 2 * n}", times) for n in range(3) for times in range(3)]
        consumer.stop()


class RetrySuite:
    """A message that was not consumed comes again, later each time, and ends with the dead letters."""

    def test_a_failed_message_comes_again_until_it_succeeds(
        self, subject: Subject, java: ForeignClient
    ) -> None:
        """B7: through the retry topic of its group, with its own topic and its own content."""
        topic, group, other = subject.create_topic(fresh("Retried")), fresh("G"), fresh("G")
        failing = java.push(group, topic, failures=2, retryLevel=1)
        content = java.push(other, topic)
        (sent,) = java.producer().send(topic, "try me", tags="T", keys="k", properties={"a": "b"})
        failing.wait_until(lambda got: len(got) == 3)
        tries = failing.messages
        assert [message.reconsume_times for message in tries] == [0, 1, 2]
        assert {(message.text, message.topic) for message in tries} == {("try me", topic)}
        assert {message.properties["TAGS"] for message in tries} == {"T"}
        assert {message.properties["a"] for message in tries} == {"b"}
        assert tries[-1].properties["ORIGIN_MESSAGE_ID"] == sent.offset_msg_id
        pauses = [later.at - earlier.at for earlier, later in pairwise(tries)]
        assert all(1_000 <= pause < 1_000 + LATEST_LATE_MS for pause in pauses)
        content.wait_for(["try me"])
        assert content.texts == ["try me"]
        wait_for_progress(java, group, topic)
        wait_for_progress(java, group, f"%RETRY%{group}")
        for consumer in (failing, content):
            consumer.stop()

    def test_a_message_that_always_fails_ends_with_the_dead_letters(
        self, subject: Subject, java: ForeignClient
    ) -> None:
        """B7: after the last try it is in the group's dead-letter topic, and comes no more."""
        topic, group = subject.create_topic(fresh("Dead")), fresh("G")
        consumer = java.push(group, topic, failures=100, retryLevel=1, maxTries=2)
        java.producer().send(topic, "hopeless", keys="dead-key")
        found: list[Received] = []

        def is_dead() -> bool:
            found[:] = dead_letters(java, group)
            return bool(found)

        wait_until(is_dead, seconds=30, what="the message is a dead letter")
        (letter,) = found
        assert letter.text == "hopeless"
        assert letter.topic == f"%DLQ%{group}"
        assert letter.properties["RETRY_TOPIC"] == topic
        assert [message.reconsume_times for message in consumer.messages] == [0, 1, 2]
        consumer.stop()

    def test_a_listener_that_raises_gets_its_message_again(
        self, subject: Subject, java: ForeignClient
    ) -> None:
        topic, group = subject.create_topic(fresh("Raising")), fresh("G")
        consumer = java.push(group, topic, failures=1, raising=True, retryLevel=1)
        java.producer().send(topic, "one", "two")
        consumer.wait_until(lambda got: len(got) == 4, seconds=60)
        assert sorted((message.text, message.reconsume_times) for message in consumer.messages) == [
            ("one", 0),
            ("one", 1),
            ("two", 0),
            ("two", 1),
        ]
        consumer.stop()


def dead_letters(java: ForeignClient, group: str) -> list[Received]:
    """Dead letters may not be consumed unless somebody allows it, but they can be looked up."""
    try:
        return convert(java.call("byKey", topic=f"%DLQ%{group}", key="dead-key", max=8), list[Received])
    except ForeignError:
        return []  # no such topic yet, or nothing in it


class DeliverySuite:
    """Filters, broadcasts, batches."""

    def test_every_consumer_of_a_broadcast_gets_everything(
        self, subject: Subject, java: ForeignClient
    ) -> None:
        topic, group = subject.create_topic(fresh("Broadcast")), fresh("G")
        consumers = [java.push(group, topic, broadcast=True) for _ in range(2)]
        java.producer().send(topic, *texts(16))
        for consumer in consumers:
            consumer.wait_for(texts(16))
            assert sorted(consumer.texts) == sorted(texts(16))
            consumer.stop()

    def test_tags_are_filtered(self, subject: Subject, java: ForeignClient) -> None:
        """B8: what does not match is passed over, and counts as consumed."""
        topic, group = subject.create_topic(fresh("Tagged")), fresh("G")
        consumer = java.push(group, topic, tags="red || green")
        producer = java.producer()
        producer.send(topic, *texts(8, "none"))
        for tag in ("red", "blue", "green"):
            producer.send(topic, *texts(8, tag), tags=tag)
        consumer.wait_for(texts(8, "red") + texts(8, "green"))
        wait_for_progress(java, group, topic)
        assert sorted(consumer.texts) == sorted(texts(8, "red") + texts(8, "green"))
        consumer.stop()

    def test_properties_are_filtered_with_sql(self, subject: Subject, java: ForeignClient) -> None:
        """B8: SQL92 over the properties, evaluated by the broker."""
        topic, group = subject.create_topic(fresh("Queried")), fresh("G")
        consumer = java.push(
            group, topic, sql="(price BETWEEN 10 AND 20 AND color IN ('red', 'green')) OR TAGS = 'always'"
        )
        producer = java.producer()
        for price in (5, 10, 15, 20, 25):
            for color in ("red", "blue"):
                producer.send(topic, f"{color}-{price}", properties={"price": str(price), "color": color})
        producer.send(topic, "no properties")
        producer.send(topic, *texts(8, "tagged"), tags="always")
        consumer.wait_for(texts(8, "tagged"))
        wait_for_progress(java, group, topic)
        assert sorted(consumer.texts) == ["red-10", "red-15", "red-20", *texts(8, "tagged")]
        consumer.stop()

    def test_a_listener_may_take_many_at_once(self, subject: Subject, java: ForeignClient) -> None:
        topic, group = subject.create_topic(fresh("Batches"), queues=1), fresh("G")
        java.producer().send(topic, *texts(64))
        consumer = java.push(group, topic, batch=16)
        consumer.wait_for(texts(64))
        assert max(map(len, consumer.calls)) > 1
        assert all(len(call) <= 16 for call in consumer.calls)
        assert sorted(consumer.texts) == sorted(texts(64))
        consumer.stop()

    def test_a_message_wakes_a_waiting_consumer(self, subject: Subject, java: ForeignClient) -> None:
        """B8: the pull is held until something comes, so a message does not wait for the next poll."""
        topic, group = subject.create_topic(fresh("Woken")), fresh("G")
        consumer = java.push(group, topic)
        producer = java.producer()
        producer.send(topic, *texts(16, "warm-up"))
        consumer.wait_for(texts(16, "warm-up"))
        for body in texts(10):
            producer.send(topic, body)
            consumer.wait_for([body])
        woken = [one for one in consumer.messages if one.text in texts(10)]
        assert median(one.at - one.store_timestamp for one in woken) < WAKE_MS
        consumer.stop()
