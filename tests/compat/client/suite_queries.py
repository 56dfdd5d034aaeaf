"""What a Java client may ask the broker about messages, offsets and the members of a group."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import convert

from tests.answers import now_ms
from tests.compat.client.subject import Subject
from tests.compat.client.suite_consuming import wait_for_progress
from tests.compat.client.suite_sending import texts
from tests.compat.foreign import ForeignClient, ForeignError, Received, fresh
from tests.waiting import wait_until


class LookUpSuite:
    """Messages are found by key, by unique id and by place."""

    def test_messages_are_found_by_key(self, subject: Subject, java: ForeignClient) -> None:
        """B10: every message with the key, and no other; a message may have several keys."""
        topic = subject.create_topic(fresh("Keyed"))
        producer = java.producer()
        for number in range(6):
            producer.send(topic, f"message-{number}", keys=f"order-{number % 2} all-{topic}")

        def found(key: str, count: int = 32) -> list[str]:
            try:
                told = java.call("byKey", topic=topic, key=key, max=count)
            except ForeignError:
                return []
            return sorted(message.text for message in convert(told, list[Received]))

        wait_until(lambda: len(found(f"all-{topic}")) == 6, seconds=10, what="the index has all messages")
        assert found(f"all-{topic}") == texts(6)
        assert found("order-1") == ["message-1", "message-3", "message-5"]
        assert found("order-2") == []
        assert len(found(f"all-{topic}", count=2)) == 2

    def test_a_message_is_found_by_either_id(self, subject: Subject, java: ForeignClient) -> None:
        """B10: the id that the client made, and the one that says where the message is."""
        topic = subject.create_topic(fresh("Identified"))
        (sent,) = java.producer().send(topic, "here", tags="T")
        for msg_id in (sent.offset_msg_id, sent.msg_id):
            found: list[Received] = []

            def is_found(msg_id: str = msg_id, found: list[Received] = found) -> bool:
                try:
                    found[:] = [convert(java.call("byId", topic=topic, msgId=msg_id), Received)]
                except ForeignError:
                    return False
                return True

            wait_until(is_found, seconds=10, what=f"{msg_id} is found")
            assert (found[0].text, found[0].topic, found[0].properties["TAGS"]) == ("here", topic, "T")
            assert (found[0].queue_id, found[0].queue_offset) == (sent.queue_id, sent.queue_offset)

    def test_an_id_that_names_nothing_is_an_error(self, subject: Subject, java: ForeignClient) -> None:
        topic = subject.create_topic(fresh("Unidentified"))
        (sent,) = java.producer().send(topic, "here")
        nowhere = sent.offset_msg_id[:-16] + "00000000FFFFFFF0"
        with pytest.raises(ForeignError):
            java.call("byId", topic=topic, msgId=nowhere)


class OffsetSuite:
    """Bounds, offsets by time, and setting a group back."""

    def test_bounds_count_the_messages(self, subject: Subject, java: ForeignClient) -> None:
        """B9"""
        topic = subject.create_topic(fresh("Bounded"), queues=2)
        producer = java.producer()
        producer.send(topic, *texts(5), form="queue", brokerName="broker-a", queueId=0)
        producer.send(topic, *texts(3), form="queue", brokerName="broker-a", queueId=1)
        assert [(queue["min"], queue["max"]) for queue in java.call("bounds", topic=topic)] == [
            (0, 5),
            (0, 3),
        ]

    def test_an_offset_is_found_by_time(self, subject: Subject, java: ForeignClient) -> None:
        """B9: the first message stored at that time or after it."""
        topic = subject.create_topic(fresh("Timed"), queues=1)
        producer = java.producer()
        producer.send(topic, *texts(4, "early"))
        between = _a_later_millisecond()
        producer.send(topic, *texts(4, "late"))
        queue: dict[str, Any] = {"topic": topic, "brokerName": "broker-a", "queueId": 0}
        assert java.call("offsetByTime", **queue, timestamp=between) == 4
        assert java.call("offsetByTime", **queue, timestamp=0) == 0
        assert java.call("offsetByTime", **queue, timestamp=now_ms() + 60_000) in (7, 8)

    def test_a_running_group_is_set_back_in_time(self, subject: Subject, java: ForeignClient) -> None:
        """B9: the broker tells the consumers, which begin again from there."""
        topic, group = subject.create_topic(fresh("SetBack"), queues=2), fresh("G")
        consumer = java.push(group, topic)
        producer = java.producer()
        producer.send(topic, *texts(8, "old"))
        consumer.wait_for(texts(8, "old"))
        between = _a_later_millisecond()
        producer.send(topic, *texts(8, "new"))
        consumer.wait_for(texts(8, "new"))
        wait_for_progress(java, group, topic)

        consumer.calls.clear()
        told = java.call("resetOffset", group=group, topic=topic, timestamp=between, force=True)
        assert [(queue["queueId"], queue["offset"]) for queue in told] == [(0, 4), (1, 4)]
        # The client drops what it holds, sleeps ten seconds, and is then given its queues anew.
        consumer.wait_for(texts(8, "new"), seconds=90)
        wait_for_progress(java, group, topic)
        assert set(consumer.texts) == set(texts(8, "new"))
        consumer.stop()


class GroupSuite:
    """The broker knows the members of a group and passes questions on to them."""

    def test_the_members_of_a_group_are_known_while_they_are_there(
        self, subject: Subject, java: ForeignClient
    ) -> None:
        """B3"""
        topic, group = subject.create_topic(fresh("Members")), fresh("G")
        consumers = [java.push(group, topic) for _ in range(2)]
        wait_until(
            lambda: java.call("members", group=group) == sorted(one.client_id for one in consumers),
            seconds=10,
            what="both are members",
        )
        consumers[0].stop()
        wait_until(
            lambda: java.call("members", group=group) == [consumers[1].client_id],
            seconds=10,
            what="one has left",
        )
        consumers[1].stop()
        with pytest.raises(ForeignError):
            java.call("members", group=group)

    def test_a_member_is_asked_through_the_broker(self, subject: Subject, java: ForeignClient) -> None:
        """B3: for what it is doing, and to consume one message at once."""
        topic, group = subject.create_topic(fresh("Asked")), fresh("G")
        consumer = java.push(group, topic)
        (sent,) = java.producer().send(topic, "again")
        consumer.wait_for(["again"])
        info = java.call("runningInfo", group=group, clientId=consumer.client_id)
        assert {"PROP_CLIENT_VERSION", "PROP_CONSUME_TYPE"} <= set(info)
        told = java.call(
            "consumeDirectly",
            group=group,
            clientId=consumer.client_id,
            topic=topic,
            msgId=sent.offset_msg_id,
        )
        assert told == "CR_SUCCESS"
        consumer.wait_until(lambda got: [one.text for one in got] == ["again", "again"])
        consumer.stop()


def _a_later_millisecond() -> int:
    begun = now_ms()
    wait_until(lambda: now_ms() > begun + 5, seconds=5, what="the clock has moved on")
    return now_ms()
