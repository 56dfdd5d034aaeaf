"""What `cometmq` asks before it does something that cannot be taken back (B9, B10)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cometmq import Admin, Message, Producer
from cometmq.model.queue import MessageQueue
from cometmq.testing import EmbeddedBroker
from tests.integration.cli.cli_kit import Cometmq


@pytest.fixture(scope="module")
def rocketmq() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        cometmq = Cometmq(running.namesrv)
        cometmq.ok("topic", "create", "orders", "--queues", "1")
        cometmq.ok("group", "create", "readers")
        cometmq.ok("group", "create", "others")
        with Producer("shop", namesrv=running.namesrv) as producer:
            producer.send(Message("orders", b"x"))
        with Admin(namesrv=running.namesrv) as admin:
            admin.commit_offset("readers", MessageQueue("orders", "embedded", 0), 1)
            admin.create_topic("%DLQ%readers", queues=1)
        yield running


@pytest.fixture
def cometmq(rocketmq: EmbeddedBroker) -> Cometmq:
    return Cometmq(rocketmq.namesrv)


def test_fewer_queues_are_asked_about_if_they_hide_what_nobody_has_read(
    cometmq: Cometmq, caplog: pytest.LogCaptureFixture
) -> None:
    """B9: what the queues hold, by group; nobody can be asked here, so `--yes` is needed."""
    cometmq.ok("topic", "create", "shrinks", "--queues", "4")
    cometmq.ok("topic", "update", "shrinks", "--queues", "3")  # there is nothing in any queue yet
    cometmq.ok("topic", "update", "shrinks", "--queues", "4")
    with Producer("shop", namesrv=cometmq.namesrv) as producer:
        for queue_id in (0, 2, 2, 3):
            producer.send(Message("shrinks", b"x"), queue=MessageQueue("shrinks", "embedded", queue_id))
    refused = cometmq("topic", "update", "shrinks", "--queues", "2", "--json")
    assert (refused.code, refused.out) == (2, "")
    assert "no group reads the topic" in refused.err
    assert "are not given 3 messages that are unread in 2 queues" in refused.err
    assert "--write-queues 2" in refused.err
    (place,) = cometmq.ok("topic", "show", "shrinks", "--json").json["brokers"]
    assert (place["readQueues"], place["writeQueues"]) == (4, 4), "nothing was changed"

    with Admin(namesrv=cometmq.namesrv) as admin:
        admin.create_group("readers")
        admin.commit_offset("readers", MessageQueue("shrinks", "embedded", 2), 1)
        refused = cometmq("topic", "update", "shrinks", "--queues", "2", "--broker", "embedded")
        assert refused.code == 2
        rows = [line.split() for line in refused.err.splitlines() if line.startswith("embedded")]
        assert rows == [["embedded", "2", "2", "readers", "1"], ["embedded", "3", "1", "readers", "1"]]
        cometmq.ok("topic", "update", "shrinks", "--write-queues", "2")
        (place,) = cometmq.ok("topic", "show", "shrinks", "--json").json["brokers"]
        assert (place["readQueues"], place["writeQueues"]) == (4, 2), "consumers read the rest"
        for queue_id, offset in ((2, 2), (3, 1)):
            admin.commit_offset("readers", MessageQueue("shrinks", "embedded", queue_id), offset)
    cometmq.ok("topic", "update", "shrinks", "--queues", "2")  # all is read
    cometmq.ok("topic", "update", "shrinks", "--queues", "4")
    with Admin(namesrv=cometmq.namesrv) as admin:
        admin.commit_offset("readers", MessageQueue("shrinks", "embedded", 2), 0)
    meant = cometmq.ok("topic", "update", "shrinks", "--queues", "1", "--yes", "--json").json
    assert meant["hidden"] == [
        {"brokerName": "embedded", "queueId": 2, "messages": 2, "unread": {"readers": 2}}
    ]
    assert "1 queues to read in place of 4: the others hold 3 messages" in caplog.text


def test_queues_that_nobody_would_read_are_not_sent_to(cometmq: Cometmq) -> None:
    """B9: more queues for producers than for consumers would hide messages, too."""
    cometmq.ok("topic", "create", "narrow", "--queues", "2")
    refused = cometmq("topic", "update", "narrow", "--write-queues", "4")
    assert refused.code == 2
    assert "say --queues 4, or fewer --write-queues" in refused.err
    assert cometmq("topic", "update", "narrow", "--read-queues", "1").code == 2
    assert cometmq("topic", "create", "wide", "--read-queues", "1", "--write-queues", "2").code == 2
    assert cometmq("topic", "update", "narrow", "--queues", "2", "--write-queues", "3").code == 2
    cometmq.ok("topic", "update", "narrow", "--queues", "4", "--write-queues", "3")


def test_a_group_that_exists_is_changed_only_when_it_is_meant(cometmq: Cometmq) -> None:
    """B10: `create` of one with other settings asks; with the same ones there is nothing to ask."""
    cometmq.ok("group", "create", "careful", "--retries", "3")
    cometmq.ok("group", "create", "careful", "--retries", "3")
    refused = cometmq("group", "create", "careful", "--no-enabled")
    assert refused.code == 2
    assert "Group careful exists with other settings. Change them?" in refused.err
    assert cometmq.ok("group", "create", "careful", "--yes", "--json").json["maxRetries"] == 16


@pytest.mark.parametrize(
    "arguments",
    [
        ("topic", "delete", "orders"),
        ("group", "delete", "readers"),
        ("group", "reset", "readers", "--topic", "orders", "--to", "earliest"),
        ("group", "skip", "readers", "--topic", "orders"),
        ("group", "clone", "readers", "others", "--topic", "orders"),
        ("dlq", "redrive", "readers"),
        ("config", "set", "fileReservedTime=1", "--all"),
        ("cluster", "wipe-write", "embedded"),
    ],
)
def test_what_cannot_be_taken_back_needs_a_yes_where_nobody_can_be_asked(
    cometmq: Cometmq, arguments: tuple[str, ...]
) -> None:
    """B9: the same words and the same exit code everywhere."""
    refused = cometmq(*arguments)
    assert refused.code == 2, refused.err
    assert "Nobody can be asked here; say --yes if this is what you want" in refused.err
