"""What both pull consumers of Java may expect of the broker."""

from __future__ import annotations

from typing import Any

from msgspec import convert

from tests.answers import now_ms
from tests.compat.client.subject import Subject
from tests.compat.client.suite_sending import texts
from tests.compat.foreign import ForeignClient, Received, fresh
from tests.waiting import wait_until

HELD_MS = 2_000
# Far above what it takes, and far below what a pull that is not woken is held.
WAKE_MS = 4_000


class Puller:
    """A pull consumer that looks at one queue."""

    def __init__(self, java: ForeignClient, topic: str, group: str | None = None) -> None:
        self.name = fresh("puller")
        self.java = java
        self.queue: dict[str, Any] = {"topic": topic, "brokerName": "broker-a", "queueId": 0}
        java.call("puller", name=self.name, group=group or fresh("G"))

    def pull(self, offset: int, *, count: int = 32, tags: str = "*", **how: Any) -> dict[str, Any]:
        args = {**self.queue, "offset": offset, "max": count, "tags": tags, **how}
        told: dict[str, Any] = self.java.call("pull", name=self.name, **args)
        return told

    def texts(self, offset: int, **how: Any) -> list[str]:
        return [message.text for message in convert(self.pull(offset, **how)["messages"], list[Received])]

    def stored_offset(self) -> int:
        return int(self.java.call("fetchOffset", name=self.name, **self.queue))


class PullSuite:
    """The consumer that names the offset itself."""

    def test_a_pull_gets_what_it_names(self, subject: Subject, java: ForeignClient) -> None:
        """B8: from the offset on, no more than asked for, with the queue's bounds."""
        topic = subject.create_topic(fresh("Pulled"), queues=1)
        java.producer().send(topic, *texts(40))
        puller = Puller(java, topic)
        told = puller.pull(5, count=10)
        assert (told["status"], told["next"], told["min"], told["max"]) == ("FOUND", 15, 0, 40)
        assert puller.texts(5, count=10) == texts(40)[5:15]
        assert puller.texts(38) == texts(40)[38:]

    def test_a_pull_says_why_there_is_nothing(self, subject: Subject, java: ForeignClient) -> None:
        """B8: nothing new, nothing that matches, an offset out of the queue's bounds."""
        topic = subject.create_topic(fresh("Nothing"), queues=1)
        java.producer().send(topic, *texts(6), tags="T")
        puller = Puller(java, topic)
        assert puller.pull(6)["status"] == "NO_NEW_MSG"
        unmatched = puller.pull(0, tags="other")
        assert (unmatched["status"], unmatched["next"]) == ("NO_MATCHED_MSG", 6)
        beyond = puller.pull(1_000)
        assert (beyond["status"], beyond["next"]) == ("OFFSET_ILLEGAL", 6)

    def test_a_waiting_pull_is_answered_when_a_message_comes(
        self, subject: Subject, java: ForeignClient
    ) -> None:
        """B8: not before, and at once."""
        topic = subject.create_topic(fresh("Waiting"), queues=1)
        puller = Puller(java, topic)
        producer = java.producer()
        producer.send(topic, "first")
        waiting = java.begin(
            "pull", name=puller.name, **puller.queue, offset=1, max=8, tags="*", waiting=True
        )
        begun = now_ms()
        wait_until(lambda: now_ms() - begun > HELD_MS, seconds=10, what="the pull is held")
        assert not waiting.done()
        producer.send(topic, "second")
        (message,) = convert(waiting.result(10)["messages"], list[Received])
        assert message.text == "second"
        assert message.at - message.store_timestamp < WAKE_MS

    def test_offsets_that_were_stored_can_be_fetched(self, subject: Subject, java: ForeignClient) -> None:
        """B9: by the group that stored them; nothing has been lost, so every other group begins at 0."""
        topic, group = subject.create_topic(fresh("Stored"), queues=1), fresh("G")
        java.producer().send(topic, *texts(10))
        puller, another = Puller(java, topic, group), Puller(java, topic)
        assert puller.stored_offset() == 0

        def is_stored() -> bool:
            # One-way, and without effect until a heartbeat has told the broker of the group.
            java.call("updateOffset", name=puller.name, offset=7, **puller.queue)
            return puller.stored_offset() == 7

        wait_until(is_stored, seconds=10, what="the broker has the offset")
        assert another.stored_offset() == 0


class LitePullSuite:
    """The consumer that polls what it is assigned."""

    def test_a_subscriber_polls_everything_and_its_commits_are_kept(
        self, subject: Subject, java: ForeignClient
    ) -> None:
        """B9: a later consumer of the group begins after what was committed."""
        topic, group = subject.create_topic(fresh("Polled")), fresh("G")
        producer = java.producer()
        producer.send(topic, *texts(30, "before"))
        first = fresh("lite")
        java.call("lite", name=first, group=group, topic=topic, tags="*", autoCommit=False)
        assert sorted(_polled(java, first, 30)) == sorted(texts(30, "before"))
        java.call("commit", name=first)
        java.call("stopLite", name=first)

        producer.send(topic, *texts(10, "after"))
        second = fresh("lite")
        java.call("lite", name=second, group=group, topic=topic, tags="*", autoCommit=True)
        assert sorted(_polled(java, second, 10)) == sorted(texts(10, "after"))
        java.call("stopLite", name=second)

    def test_two_subscribers_share_the_queues(self, subject: Subject, java: ForeignClient) -> None:
        topic, group = subject.create_topic(fresh("PolledByTwo"), queues=4), fresh("G")
        names = [fresh("lite"), fresh("lite")]
        for name in names:
            java.call("lite", name=name, group=group, topic=topic, tags="*", autoCommit=True)

        def assigned() -> list[list[int]]:
            return [[queue["queueId"] for queue in java.call("assignment", name=name)] for name in names]

        one, other = wait_until(
            assigned, "each has two queues", lambda found: [len(each) for each in found] == [2, 2], seconds=30
        )
        assert sorted([*one, *other]) == [0, 1, 2, 3]
        for name in names:
            java.call("stopLite", name=name)

    def test_a_subscriber_may_filter_with_sql(self, subject: Subject, java: ForeignClient) -> None:
        """B8"""
        topic, lite = subject.create_topic(fresh("PolledBySql"), queues=1), fresh("lite")
        producer = java.producer()
        for number in range(10):
            producer.send(topic, f"message-{number}", properties={"n": str(number)})
        java.call("lite", name=lite, group=fresh("G"), topic=topic, sql="n > 6", autoCommit=False)
        assert _polled(java, lite, 3) == texts(10)[7:]
        java.call("stopLite", name=lite)

    def test_a_consumer_seeks_and_pauses_in_what_it_assigned_itself(
        self, subject: Subject, java: ForeignClient
    ) -> None:
        topic = subject.create_topic(fresh("Sought"), queues=2)
        producer, lite = java.producer(), fresh("lite")
        for number in range(20):
            producer.send(topic, f"message-{number}", form="queue", brokerName="broker-a", queueId=0)
        queue: dict[str, Any] = {"topic": topic, "brokerName": "broker-a", "queueId": 0}
        java.call("lite", name=lite, group=fresh("G"), topic=topic, autoCommit=False, assigned=[queue])
        assert _polled(java, lite, 20) == texts(20)

        java.call("seek", name=lite, **queue, offset=15)
        assert _polled(java, lite, 5) == texts(20)[15:]
        java.call("seek", name=lite, **queue)
        assert _polled(java, lite, 20) == texts(20)

        java.call("pause", name=lite, **queue)
        # The pull that is on its way when a queue is paused still brings what comes first.
        producer.send(topic, "on its way", form="queue", brokerName="broker-a", queueId=0)
        assert _polled(java, lite, 1) == ["on its way"]
        producer.send(topic, "while paused", form="queue", brokerName="broker-a", queueId=0)
        assert java.call("poll", name=lite, millis=1_500) == []
        java.call("resume", name=lite, **queue)
        assert _polled(java, lite, 1) == ["while paused"]
        java.call("stopLite", name=lite)


def _polled(java: ForeignClient, name: str, count: int) -> list[str]:
    """Poll until so many messages have come."""
    found: list[str] = []

    def complete() -> bool:
        messages = convert(java.call("poll", name=name, millis=500), list[Received])
        found.extend(message.text for message in messages)
        return len(found) >= count

    wait_until(complete, seconds=40, what=f"{count} messages are polled")
    return found
