"""The broker under test with its name server: ours, or Apache's with `COMPAT_SUBJECT=apache`.

With Apache's the suites show that what they demand of a broker is what Apache's does.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.compat.apache import ApacheBroker, ApacheNamesrv, Broker, CometBroker, CometNamesrv, Server
from tests.compat.ask import SUCCESS, ask, is_routed
from tests.waiting import wait_until

QUERY_CONSUMER_OFFSET = 14
UPDATE_TOPIC = 17
GET_MAX_OFFSET = 30


@dataclass(frozen=True)
class Subject:
    """The broker under test, and the name server that it is registered with."""

    namesrv: Server
    broker: Broker

    def create_topic(self, topic: str, *, queues: int = 4, permission: int = 6) -> str:
        """Create a topic and wait until it has a route."""
        create_topic(self.broker.address, topic, queues=queues, permission=permission)
        wait_until(lambda: is_routed(self.namesrv.address, topic), seconds=10, what=f"{topic} has a route")
        return topic

    def ends_of(self, topic: str, *, queues: int = 4) -> list[int]:
        """How many messages each queue has had."""
        return [self._offset(GET_MAX_OFFSET, {"topic": topic}, queue_id) for queue_id in range(queues)]

    def progress_of(self, group: str, topic: str, *, queues: int = 4) -> list[int]:
        """How far the broker knows a group to be in each queue; -1 where it does not know."""
        fields = {"consumerGroup": group, "topic": topic}
        return [self._offset(QUERY_CONSUMER_OFFSET, fields, queue_id) for queue_id in range(queues)]

    def wait_for_progress(self, group: str, topic: str, *, queues: int = 4) -> None:
        """Wait until the broker has the group's offset at the end of every queue."""
        wait_until(
            lambda: self.progress_of(group, topic, queues=queues) == self.ends_of(topic, queues=queues),
            seconds=30,
            what=f"{group} is at the end of {topic}",
        )

    def _offset(self, code: int, fields: Mapping[str, str], queue_id: int) -> int:
        answer = ask(self.broker.address, code, {**fields, "queueId": str(queue_id)})
        return int(answer.fields["offset"]) if answer.code == SUCCESS else -1


def create_topic(broker_address: str, topic: str, *, queues: int = 4, permission: int = 6) -> None:
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": str(queues),
        "writeQueueNums": str(queues),
        "perm": str(permission),
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }
    answer = ask(broker_address, UPDATE_TOPIC, fields)
    assert answer.code == SUCCESS, answer


def make_broker(home: Path, namesrv: str, name: str = "broker-a", settings: Mapping[str, str] = {}) -> Broker:
    """A broker of the kind under test: ours, or Apache's with `COMPAT_SUBJECT=apache`."""
    kind = ApacheBroker if os.environ.get("COMPAT_SUBJECT") == "apache" else CometBroker
    return kind(home, namesrv, name, settings)


def make_namesrv(home: Path) -> Server:
    kind = ApacheNamesrv if os.environ.get("COMPAT_SUBJECT") == "apache" else CometNamesrv
    return kind(home)


@contextmanager
def running_subject(home: Path, settings: Mapping[str, str] = {}) -> Iterator[Subject]:
    with (
        make_namesrv(home / "namesrv") as namesrv,
        make_broker(home / "broker", namesrv.address, settings=settings) as broker,
    ):
        broker.wait_registered(namesrv.address)
        yield Subject(namesrv, broker)
