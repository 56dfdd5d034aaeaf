"""The `cometmq` command on a cluster of Apache's: every command that reads, and many that change it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cometmq import Message, PushConsumer
from cometmq.client.admin.redrive import REDRIVEN_FROM
from tests.compat.apache import ApacheBroker, ApacheNamesrv
from tests.integration.cli.cli_kit import Cometmq, check_admin_commands, make_dead_letters, send_all
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home = tmp_path_factory.mktemp("cli")
    with (
        ApacheNamesrv(home / "namesrv") as server,
        ApacheBroker(home / "broker", server.address, settings={"diskMaxUsedSpaceRatio": "95"}) as broker,
    ):
        broker.wait_registered(server.address)
        yield server.address


@pytest.fixture
def cometmq(namesrv: str) -> Cometmq:
    return Cometmq(namesrv)


def messages(cometmq: Cometmq, topic: str, count: int) -> None:
    """Wait until a topic shows so many messages: Apache's queues follow its log a moment later."""
    wait_until(
        lambda: cometmq.ok("topic", "status", topic, "--json").json["messages"],
        f"{topic} shows {count} messages",
        lambda found: found == count,
    )


def test_the_cluster_is_shown(cometmq: Cometmq) -> None:
    """B9."""
    (line,) = cometmq.ok("cluster", "list", "--json").json["brokers"]
    assert (line["cluster"], line["brokerName"], line["brokerId"]) == ("DefaultCluster", "broker-a", 0)
    (status,) = cometmq.ok("cluster", "status", "--json").json["brokers"]
    assert (status["reachable"], status["version"]) == (True, "V5_3_3")
    assert cometmq.ok("cluster", "show", "broker-a", "--json").json["info"]["brokerVersionDesc"] == "V5_3_3"


def test_topics_and_messages(cometmq: Cometmq) -> None:
    """B9, B10."""
    cometmq.ok("topic", "create", "letters", "--queues", "2", "--attributes", "+message.type=NORMAL")
    sent = cometmq.ok("message", "send", "letters", "hello", "--tag", "t", "--key", "k1", "--json").json
    cometmq.ok("message", "send", "letters", "--lines", stdin=b"one\ntwo\n")
    messages(cometmq, "letters", 3)
    (line,) = [
        each for each in cometmq.ok("topic", "list", "--json").json["topics"] if each["topic"] == "letters"
    ]
    assert (line["queues"], line["perm"], line["messageType"]) == (2, 6, "NORMAL")
    cometmq.ok("topic", "update", "letters", "--queues", "3")
    (place,) = cometmq.ok("topic", "show", "letters", "--json").json["brokers"]
    assert (place["writeQueues"], place["brokerName"]) == (3, "broker-a")

    found = wait_until(
        lambda: cometmq("message", "find", "letters", "--key", "k1", "--json"),
        "the index has the key",
        lambda ended: ended.code == 0,
    )
    assert [(each["msgId"], each["text"]) for each in found.lines] == [(sent["msgId"], "hello")]
    for arguments in ([sent["msgId"], "--topic", "letters"], [sent["offsetMsgId"]]):
        assert cometmq.ok("message", "get", *arguments, "--json").json["text"] == "hello"
    recent = cometmq.ok("message", "find", "letters", "--from", "10m", "--limit", "2")
    assert len(recent.out.splitlines()) == 2
    assert "there are more" in recent.err
    assert len(cometmq.ok("message", "tail", "letters").out.splitlines()) == 3
    by_tag = cometmq.ok("message", "tail", "letters", "--tags", "t", "--json").lines
    assert [each["text"] for each in by_tag] == ["hello"]
    assert cometmq("message", "get", "0" * 32, "--topic", "letters").code == 4
    assert cometmq("message", "trace", sent["msgId"]).code == 4


def test_groups_and_their_offsets(cometmq: Cometmq, namesrv: str) -> None:
    """B9."""
    cometmq.ok("topic", "create", "events", "--queues", "2")
    cometmq.ok("group", "create", "readers", "--retries", "3")
    consumer = PushConsumer("readers", namesrv=namesrv, persist_consumer_offset_interval_ms=50)
    consumer.subscribe("events", "a || b")(lambda message: None)
    with consumer:
        member = wait_until(
            lambda: cometmq("group", "members", "readers", "--json"),
            "the member has its queues",
            lambda ended: ended.code == 0 and len(ended.json["members"][0]["queues"] or ()) == 3,
        ).json["members"][0]
        assert member["subscriptions"]["events"] == "a || b"
        cometmq.ok("message", "send", "events", "--lines", "--tag", "a", stdin=b"1\n2\n3\n4\n")
        wait_until(
            lambda: cometmq.ok("group", "progress", "readers", "--topic", "events", "--json").json,
            "everything is consumed",
            lambda found: found["lag"] == 0 and sum(each["brokerOffset"] for each in found["queues"]) == 4,
        )
    (group,) = [
        each for each in cometmq.ok("group", "list", "--json").json["groups"] if each["group"] == "readers"
    ]
    assert group["maxRetries"] == 3
    overview = cometmq.ok("group", "progress", "--json").json["groups"]
    assert {"readers"} <= {each["group"] for each in overview}
    assert "readers" in cometmq.ok("topic", "show", "events", "--json").json["groups"]
    planned = cometmq.ok(
        "group", "reset", "readers", "--topic", "events", "--to", "earliest", "--dry-run", "--json"
    )
    assert [each["after"] for each in planned.json["queues"]] == [0, 0]

    def lag_of(name: str) -> int:
        lag: int = cometmq.ok("group", "progress", name, "--topic", "events", "--json").json["lag"]
        return lag

    cometmq.ok("group", "reset", "readers", "--topic", "events", "--to", "earliest", "--yes")
    wait_until(lambda: lag_of("readers"), "the group was set back", lambda lag: lag == 4)
    cometmq.ok("group", "clone", "readers", "others", "--topic", "events", "--yes")
    wait_until(lambda: lag_of("others"), "the other group is at the same place", lambda lag: lag == 4)
    cometmq.ok("group", "skip", "others", "--topic", "events", "--yes")
    wait_until(lambda: lag_of("others"), "the other group is at the end", lambda lag: lag == 0)
    cometmq.ok("group", "delete", "others", "--offsets", "--yes")


def test_configuration_producers_and_single_messages(cometmq: Cometmq) -> None:
    """B9, B10, N8: the same commands run on our own broker."""
    check_admin_commands(cometmq, "broker-a")


def test_dead_letters_are_sent_once_more_and_once_only(cometmq: Cometmq, namesrv: str) -> None:
    """B8."""
    cometmq.ok("topic", "create", "failing", "--queues", "1")
    make_dead_letters(
        namesrv, "failers", "failing", [Message("failing", b"%d" % number) for number in range(6)]
    )
    shown = cometmq.ok("dlq", "show", "failers", "--json").lines
    assert [each["originTopic"] for each in shown] == ["failing"] * 6
    (line,) = cometmq.ok("dlq", "list", "--json").json["groups"]
    assert (line["group"], line["waiting"]) == ("failers", 6)
    assert cometmq.ok("dlq", "redrive", "failers", "--dry-run", "--json").json["sent"] == 6
    first = cometmq.ok("dlq", "redrive", "failers", "--limit", "4", "--yes", "--json").json
    assert (first["sent"], first["complete"]) == (4, False)
    rest = cometmq.ok("dlq", "redrive", "failers", "--yes", "--json").json
    assert (rest["sent"], rest["already"], rest["failed"]) == (2, 0, 0)
    messages(cometmq, "failing", 12)
    copies = cometmq.ok("message", "tail", "failing", "--limit", "20", "--json").lines
    redriven = [each["text"] for each in copies if REDRIVEN_FROM in each["properties"]]
    assert sorted(redriven) == [str(number) for number in range(6)]


def test_settings_are_shown_changed_and_compared(cometmq: Cometmq) -> None:
    """B9, N9."""
    assert cometmq.ok("config", "get", "fileReservedTime").out == "fileReservedTime  72\n"
    changed = cometmq.ok(
        "config", "set", "fileReservedTime=71", "--broker", "broker-a", "--yes", "--json"
    ).json
    assert changed["changes"][0]["after"] == "71"
    different = cometmq("config", "diff", "--defaults", "--json")
    assert different.code == 1
    assert "fileReservedTime" in {each["key"] for each in different.json["differences"]}
    (settings,) = (
        cometmq.ok("config", "get", "orderMessageEnable", "--name-servers", "--json").json["servers"].values()
    )
    assert settings == {"orderMessageEnable": "false"}


def test_the_doctor_is_silent_on_a_healthy_cluster_and_finds_what_is_wrong(
    cometmq: Cometmq, namesrv: str
) -> None:
    """B13: clocks, subscriptions, permissions and name servers are read from what Apache's servers answer."""
    healthy = cometmq("doctor", "--sample", "0.5", "--json")
    assert healthy.json["findings"] == []
    assert healthy.code == 0
    send_all(namesrv, [Message("checked", b"x")])
    readers = []
    for number, tag in enumerate(("paid", "refunded")):
        consumer = PushConsumer("torn", namesrv=namesrv, instance_name=f"torn-{number}")
        consumer.subscribe("checked", tag)(lambda message: None)
        consumer.start()
        readers.append(consumer)
    cometmq.ok("cluster", "wipe-write", "broker-a", "--yes")
    try:
        found = wait_until(
            lambda: Cometmq(f"{namesrv};127.0.0.1:1")("doctor", "--sample", "0.5", "--json").json["findings"],
            "all three faults are found",
            lambda findings: len(findings) >= 3,
        )
    finally:
        cometmq.ok("cluster", "add-write", "broker-a")
        for consumer in readers:
            consumer.stop()
    assert {each["check"] for each in found} == {
        "name-server-unreachable",
        "subscriptions-differ",
        "write-permission-wiped",
    }
