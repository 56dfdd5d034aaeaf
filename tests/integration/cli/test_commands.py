"""The commands of `cometmq` on a running cluster: what they print, as text and as JSON (B9, B10)."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cometmq import (
    Admin,
    Message,
    Producer,
    PushConsumer,
    StoredMessage,
    TransactionProducer,
    TransactionState,
)
from cometmq.testing import EmbeddedBroker
from tests.integration.cli.cli_kit import Cometmq, check_admin_commands
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def rocketmq() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture
def cometmq(rocketmq: EmbeddedBroker) -> Cometmq:
    return Cometmq(rocketmq.namesrv)


# Clusters


def test_brokers_are_listed_and_say_how_they_are(cometmq: Cometmq, rocketmq: EmbeddedBroker) -> None:
    """B9."""
    (line,) = cometmq.ok("cluster", "list", "--json").json["brokers"]
    assert line == {
        "cluster": "DefaultCluster",
        "brokerName": "embedded",
        "brokerId": 0,
        "address": rocketmq.address,
    }
    (status,) = cometmq.ok("cluster", "status", "--json").json["brokers"]
    assert status["reachable"]
    assert status["version"].startswith("CometMQ_")
    assert 0 < status["diskPercent"] < 100
    assert cometmq.ok("cluster", "list").out.splitlines()[0].split() == [
        "cluster",
        "broker",
        "id",
        "role",
        "address",
    ]
    assert "commitLogMaxOffset" in cometmq.ok("cluster", "show", "embedded").out
    assert cometmq.ok("cluster", "show", "embedded", "--json").json["info"]["brokerActive"] == "true"


def test_a_broker_that_does_not_exist_is_not_found(cometmq: Cometmq) -> None:
    ended = cometmq("cluster", "show", "elsewhere")
    assert (ended.code, ended.err) == (
        4,
        "error: there is no broker 'elsewhere'; the name server knows: embedded\n",
    )
    assert cometmq("cluster", "list", "--cluster", "Other").code == 4


def test_write_permission_is_wiped_only_when_it_is_meant(cometmq: Cometmq) -> None:
    """N6: nobody can be asked here, so `--yes` is needed."""
    refused = cometmq("cluster", "wipe-write", "embedded")
    assert refused.code == 2
    assert "--yes" in refused.err
    cometmq.ok("topic", "create", "wiped", "--queues", "1")
    assert cometmq.ok("cluster", "wipe-write", "embedded", "--yes", "--json").json["topics"] > 0
    (place,) = cometmq.ok("topic", "show", "wiped", "--json").json["brokers"]
    assert place["perm"] == 4
    assert "takes messages again" in cometmq.ok("cluster", "add-write", "embedded").out
    (place,) = cometmq.ok("topic", "show", "wiped", "--json").json["brokers"]
    assert place["perm"] == 6


def test_a_command_is_watched_as_often_as_it_is_told(cometmq: Cometmq) -> None:
    """One document a line, for programs."""
    ended = cometmq.ok("cluster", "status", "--watch", "100ms", "--times", "3", "--json")
    assert [len(each["brokers"]) for each in ended.lines] == [1, 1, 1]


def test_a_cluster_that_is_not_there_has_an_exit_code_of_its_own() -> None:
    """3, and one sentence."""
    ended = Cometmq("127.0.0.1:1")("topic", "list")
    assert (ended.code, ended.out) == (3, "")
    assert ended.err.startswith("error: cannot connect to 127.0.0.1:1")
    assert ended.err.count("\n") == 1


def test_without_a_name_server_this_machine_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And if nobody answers there, the error says why it was asked."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with EmbeddedBroker() as running, monkeypatch.context() as patched:
        patched.setattr("cometmq.cli.common.contexts.DEFAULT_NAMESRV", running.namesrv)
        assert Cometmq("").ok("cluster", "list", "--json").json["brokers"][0]["address"] == running.address
    monkeypatch.setattr("cometmq.cli.common.contexts.DEFAULT_NAMESRV", "127.0.0.1:1")
    ended = Cometmq("")("topic", "list")
    assert ended.code == 3
    assert "this is the default address, say -n host:9876 for another name server" in ended.err
    assert "default" not in Cometmq("127.0.0.1:1")("topic", "list").err


def test_contexts_name_clusters(
    rocketmq: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """B9: with their keys, which are never shown."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    monkeypatch.delenv("COMETMQ_CONTEXT", raising=False)
    nowhere = Cometmq("")
    assert nowhere.ok("context", "show", "--json").json == {
        "name": None,
        "source": "default",
        "namesrv": "127.0.0.1:9876",
    }
    nowhere.ok("context", "add", "here", "-n", rocketmq.namesrv)
    assert nowhere("context", "add", "keyed", "-n", "mq", "--access-key", "ops").code == 2
    monkeypatch.setenv("COMETMQ_SECRET_KEY", "hush-hush")
    nowhere.ok("context", "add", "keyed", "-n", "mq", "--access-key", "ops", "--tls", "--use")
    monkeypatch.delenv("COMETMQ_SECRET_KEY")
    assert nowhere("context", "add", "keyed", "-n", "other").code == 2, "asks before it replaces one"
    found = nowhere.ok("context", "list", "--json").json
    assert [(each["name"], each["inUse"], each["namesrv"]) for each in found["contexts"]] == [
        ("here", False, rocketmq.namesrv),
        ("keyed", True, "mq:9876"),
    ]
    shown = nowhere.ok("context", "show").out
    assert "hush-hush" not in shown + nowhere.ok("context", "show", "keyed", "--json").out
    assert "***" in shown
    assert nowhere.ok("cluster", "list", "--context", "here").code == 0
    assert nowhere.ok("cluster", "list", "-n", rocketmq.namesrv).code == 0
    nowhere.ok("context", "use", "here")
    assert nowhere.ok("topic", "list").code == 0
    assert nowhere.ok("context", "show", "--json").json["source"] == "context use"
    monkeypatch.setenv("COMETMQ_CONTEXT", "keyed")
    assert nowhere.ok("context", "show", "--json").json["source"] == "COMETMQ_CONTEXT"
    monkeypatch.delenv("COMETMQ_CONTEXT")
    assert nowhere("context", "use", "her").err == "error: there is no context her; did you mean here?\n"
    assert nowhere("context", "use").code == 2
    assert nowhere("context", "add", "no name", "-n", "mq").code == 2
    assert nowhere("context", "add", "x", "-n", "mq", "--tls-trust", "ca.pem").code == 2
    assert nowhere("context", "remove", "here").code == 2
    nowhere.ok("context", "remove", "here", "--yes")
    assert nowhere("context", "show", "here").code == 4
    nowhere.ok("context", "use", "--none")
    assert nowhere.ok("context", "show", "--json").json["source"] == "default"


def test_names_like_the_wrong_one_are_suggested(cometmq: Cometmq) -> None:
    cometmq.ok("topic", "create", "shipments", "--queues", "1")
    cometmq.ok("group", "create", "warehouse")
    for arguments in (
        ("topic", "show", "shipment"),
        ("topic", "status", "shipmnets"),
        ("message", "tail", "shipment"),
        ("group", "reset", "warehouse", "--topic", "shipment", "--to", "latest", "--yes"),
    ):
        ended = cometmq(*arguments)
        assert (ended.code, "did you mean shipments?" in ended.err) == (4, True), ended.err
    for mistyped in (("group", "progress", "warehose"), ("group", "delete", "warehuse", "--yes")):
        ended = cometmq(*mistyped)
        assert (ended.code, "did you mean warehouse?" in ended.err) == (4, True), ended.err
    assert "did you mean" not in cometmq("topic", "show", "zzz").err
    assert "Did you mean 'topic'?" in cometmq("topc", "list").err


def test_names_are_listed_for_shells(cometmq: Cometmq) -> None:
    """Nothing is said if nobody answers: the Tab key prints no errors."""
    cometmq.ok("topic", "create", "completed", "--queues", "1")
    cometmq.ok("group", "create", "completers")
    topics = cometmq.ok("completion", "topics").out.splitlines()
    assert "completed" in topics
    assert not any(topic.startswith("RMQ_SYS") for topic in topics)
    assert "completers" in cometmq.ok("completion", "groups").out.splitlines()
    silent = Cometmq("127.0.0.1:1")("completion", "topics")
    assert (silent.code, silent.out, silent.err) == (0, "", "")


def test_lines_are_sent_while_the_input_stays_open(rocketmq: EmbeddedBroker) -> None:
    """B10: each as it comes; and Ctrl-C ends the command although the input is silent."""
    command = [sys.executable, "-m", "cometmq.cli.main", "message", "send", "opened", "--lines"]
    with subprocess.Popen(
        [*command, "-n", rocketmq.namesrv], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        for _ in range(2):
            print("tick", file=running.stdin, flush=True)
            assert running.stdout.readline().rstrip().endswith("SEND_OK")
        running.send_signal(signal.SIGINT)
        assert running.wait(30) == 130


# Topics


def test_a_topic_is_created_shown_changed_and_deleted(cometmq: Cometmq) -> None:
    """B9."""
    created = cometmq.ok("topic", "create", "orders", "--queues", "4", "--attributes", "+message.type=FIFO")
    assert created.out == "topic orders was created: embedded (4 queues, rw)\n"
    again = cometmq("topic", "create", "orders")
    assert again.code == 1
    assert "exists already" in again.err
    (line,) = [
        each for each in cometmq.ok("topic", "list", "--json").json["topics"] if each["topic"] == "orders"
    ]
    assert (line["queues"], line["perm"], line["messageType"], line["brokers"]) == (
        4,
        6,
        "FIFO",
        ["embedded"],
    )
    cometmq.ok("topic", "update", "orders", "--queues", "6", "--perm", "r")
    (place,) = cometmq.ok("topic", "show", "orders", "--json").json["brokers"]
    assert (place["readQueues"], place["writeQueues"], place["perm"]) == (6, 6, 4)
    assert place["attributes"] == {"message.type": "FIFO"}
    refused = cometmq("topic", "delete", "orders")
    assert refused.code == 2
    assert "Delete topic orders and its 0 messages?" in refused.err
    assert (
        cometmq.ok("topic", "delete", "orders", "--yes").out == "topic orders was deleted, with 0 messages\n"
    )
    assert cometmq("topic", "show", "orders").code == 4


def test_read_and_write_queues_are_set_apart(cometmq: Cometmq) -> None:
    """B9."""
    cometmq.ok("topic", "create", "apart", "--read-queues", "6", "--write-queues", "4")
    (place,) = cometmq.ok("topic", "show", "apart", "--json").json["brokers"]
    assert (place["readQueues"], place["writeQueues"]) == (6, 4)
    cometmq.ok("topic", "update", "apart", "--read-queues", "7")
    (place,) = cometmq.ok("topic", "show", "apart", "--json").json["brokers"]
    assert (place["readQueues"], place["writeQueues"]) == (7, 4)
    cometmq.ok("topic", "update", "apart", "--queues", "5", "--write-queues", "3", "--yes")
    (place,) = cometmq.ok("topic", "show", "apart", "--json").json["brokers"]
    assert (place["readQueues"], place["writeQueues"]) == (5, 3)


def test_an_order_topic_stays_one_until_it_is_told_otherwise(
    cometmq: Cometmq, rocketmq: EmbeddedBroker
) -> None:
    """B9, N8: the name servers have what `mqadmin updateTopic -o true` writes there."""

    def mark() -> tuple[bool, str | None]:
        (place,) = cometmq.ok("topic", "show", "ordered", "--json").json["brokers"]
        with Admin(namesrv=rocketmq.namesrv) as admin:
            return place["order"], admin.kv_config("ORDER_TOPIC_CONFIG", "ordered")

    cometmq.ok("topic", "create", "ordered", "--queues", "4", "--order")
    assert mark() == (True, "embedded:4")
    cometmq.ok("topic", "update", "ordered", "--perm", "r")
    assert mark() == (True, "embedded:4")
    cometmq.ok("topic", "update", "ordered", "--queues", "6")
    assert mark() == (True, "embedded:6")
    cometmq.ok("topic", "update", "ordered", "--no-order")
    assert mark() == (False, None)
    cometmq.ok("topic", "update", "ordered", "--order")
    assert mark() == (True, "embedded:6")
    with EmbeddedBroker(settings={"brokerName": "second"}, namesrv=rocketmq.namesrv):
        cometmq.ok("topic", "update", "ordered", "--broker", "second", "--queues", "2")
        with Admin(namesrv=rocketmq.namesrv) as admin:
            assert admin.order_config("ordered") == {"embedded": 6, "second": 2}
        refused = cometmq("topic", "update", "ordered", "--broker", "second", "--no-order")
        assert (refused.code, "leave out --broker" in refused.err) == (2, True)
    cometmq.ok("topic", "delete", "ordered", "--yes")
    cometmq.ok("topic", "create", "ordered", "--queues", "1")
    assert mark() == (False, None)


def test_topics_of_the_system_are_hidden_and_that_is_said(cometmq: Cometmq) -> None:
    cometmq.ok("topic", "create", "mine", "--queues", "1")
    shown = cometmq.ok("topic", "list")
    assert "mine" in shown.out
    assert "TBW102" not in shown.out
    assert "--all shows them" in shown.err
    assert "TBW102" in cometmq.ok("topic", "list", "--all").out


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["update", "nowhere", "--queues", "2"], 4, "there is no topic nowhere; see: cometmq topic list"),
        (["update", "nowhere"], 2, "nothing is to be changed"),
        (["create", "bad name"], 1, "contains something else than letters"),
        (["create", "x", "--perm", "all"], 2, "--perm 'all' is not one of rw, r, w, none"),
        (["status", "nowhere"], 4, "no name server knows topic nowhere"),
        (["delete", "nowhere", "--yes"], 4, "there is no topic nowhere"),
    ],
)
def test_a_mistake_with_a_topic_is_one_sentence(
    cometmq: Cometmq, arguments: list[str], code: int, sentence: str
) -> None:
    ended = cometmq("topic", *arguments)
    assert (ended.code, ended.out) == (code, "")
    assert sentence in ended.err
    assert ended.err.count("\n") == 1


# Messages


def test_messages_are_sent_found_and_followed(cometmq: Cometmq, tmp_path: Path) -> None:
    """B10."""
    cometmq.ok("topic", "create", "letters", "--queues", "2")
    sent = cometmq.ok(
        *("message", "send", "letters", "hello", "--tag", "greeting", "--key", "k1"),
        *("--property", "to=world", "--json"),
    ).json
    assert sent["status"] == "SEND_OK"
    lines = cometmq.ok("message", "send", "letters", "--lines", stdin=b"one\ntwo\nthree\n")
    assert len(lines.out.splitlines()) == 3
    file = tmp_path / "body"
    file.write_bytes(b"\xff\x00")
    cometmq.ok("message", "send", "letters", "--file", str(file))

    found = cometmq.ok("message", "find", "letters", "--key", "k1", "--json").lines
    assert [(each["msgId"], each["text"], each["brokerName"]) for each in found] == [
        (sent["msgId"], "hello", "embedded")
    ]
    for arguments in ([sent["msgId"], "--topic", "letters"], [sent["offsetMsgId"]]):
        got = cometmq.ok("message", "get", *arguments, "--json").json
        assert (got["text"], got["properties"]["to"]) == ("hello", "world")
    assert "property to" in cometmq.ok("message", "get", sent["offsetMsgId"]).out

    recent = cometmq.ok("message", "find", "letters", "--from", "10m", "--limit", "2")
    assert len(recent.out.splitlines()) == 2
    assert recent.err == "these are 2, and there are more; --limit shows them\n"
    by_tag = cometmq.ok("message", "find", "letters", "--from", "10m", "--tags", "greeting", "--json").lines
    assert [each["text"] for each in by_tag] == ["hello"]
    assert "0xff00" in cometmq.ok("message", "tail", "letters").out
    raw = cometmq.ok("message", "tail", "letters", "--format", r"%t:%s\n").raw
    assert raw == b"letters:hello\nletters:one\nletters:two\nletters:three\nletters:\xff\x00\n"
    assert cometmq.ok("message", "get", sent["offsetMsgId"], "--format", "%s").raw == b"hello"
    assert cometmq.ok("message", "find", "letters", "--key", "k1", "--format", "%g %k").raw == b"greeting k1"
    assert cometmq("message", "tail", "letters", "--format", "%s", "--json").code == 2
    assert cometmq("message", "tail", "letters", "--format", "%y").code == 2
    last = cometmq.ok("message", "tail", "letters", "--limit", "3", "--json").lines
    assert [each.get("text") for each in last] == ["two", "three", None]
    status = cometmq.ok("topic", "status", "letters", "--json").json
    assert status["messages"] == 5
    assert "5 messages in 2 queues" in cometmq.ok("topic", "status", "letters").out


def test_what_comes_is_followed_until_it_is_enough(cometmq: Cometmq, rocketmq: EmbeddedBroker) -> None:
    """B10: the queues are read at the same time, and nothing is committed."""
    cometmq.ok("topic", "create", "stream", "--queues", "2")
    done = threading.Event()

    def send() -> None:
        with Producer("stream-tests", namesrv=rocketmq.namesrv) as producer:
            while not done.is_set():
                producer.send(Message("stream", b"tick"))
                done.wait(0.05)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        followed = cometmq.ok(
            "message", "tail", "stream", "--limit", "0", "--follow", "--count", "5", "--json"
        )
    finally:
        done.set()
        sender.join()
    assert [each["text"] for each in followed.lines] == ["tick"] * 5


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["get", "0" * 32], 4, "if it is the producer's id, say --topic, too"),
        (["get", "0" * 32, "--topic", "empty"], 4, "there is no message"),
        (["find", "empty", "--key", "none"], 4, "no such message was found in topic empty"),
        (["find", "empty"], 2, "say what is to be found: --key KEY, or --from WHEN"),
        (["find", "empty", "--from", "yesterday"], 2, "'yesterday' is no time"),
        (["send", "empty"], 2, "say what is sent: a body, --file FILE, or --lines"),
        (["send", "empty", "x", "--property", "broken"], 2, "is not key=value"),
        (["send", "empty", "x", "--delay", "10000"], 2, "say it with its unit"),
        (["send", "empty", "--file", "/no/such/file"], 2, "/no/such/file cannot be read"),
        (["tail", "nowhere"], 4, "topic nowhere does not exist"),
        (["trace", "0" * 32], 4, "RMQ_SYS_TRACE_TOPIC"),
    ],
)
def test_a_mistake_with_a_message_is_one_sentence(
    cometmq: Cometmq, rocketmq: EmbeddedBroker, arguments: list[str], code: int, sentence: str
) -> None:
    rocketmq.call(rocketmq.create_topic("empty", queues=1))
    ended = cometmq("message", *arguments)
    assert (ended.code, ended.out) == (code, "")
    assert sentence in ended.err
    assert ended.err.count("\n") == 1


# Groups


def test_a_group_is_created_listed_and_deleted(cometmq: Cometmq) -> None:
    """B9."""
    made = cometmq.ok("group", "create", "billing", "--retries", "3", "--no-broadcast", "--json").json
    assert (made["maxRetries"], made["broadcast"], made["brokers"]) == (3, False, ["embedded"])
    assert "billing" in cometmq.ok("group", "list").out
    assert cometmq("group", "delete", "billing").code == 2
    cometmq.ok("group", "delete", "billing", "--offsets", "--yes")
    assert "billing" not in cometmq.ok("group", "list").out
    assert cometmq("group", "delete", "billing", "--yes").code == 4


def test_progress_members_and_offsets_of_a_group(cometmq: Cometmq, rocketmq: EmbeddedBroker) -> None:
    """B9: who reads what, how far it is, and how it is set back, forward, and copied."""
    cometmq.ok("topic", "create", "events", "--queues", "2")
    consumer = PushConsumer("readers", namesrv=rocketmq.namesrv, persist_consumer_offset_interval_ms=50)

    @consumer.subscribe("events", "a || b")
    def consume(message: StoredMessage) -> None:
        pass

    with consumer:
        wait_until(
            lambda: cometmq("group", "members", "readers", "--json"),
            "the member has its queues: two, and that of its retries",
            lambda ended: ended.code == 0 and len(ended.json["members"][0]["queues"] or ()) == 3,
        )
        cometmq.ok("message", "send", "events", "--lines", "--tag", "a", stdin=b"1\n2\n3\n4\n5\n6\n")
        members = cometmq.ok("group", "members", "readers", "--json").json
        (member,) = members["members"]
        assert members["subscriptions"]["events"] == member["subscriptions"]["events"] == "a || b"
        assert (members["messageModel"], member["language"]) == ("CLUSTERING", "PYTHON")
        assert "readers: CONSUME_PASSIVELY, CLUSTERING" in cometmq.ok("group", "members", "readers").out
        progress = wait_until(
            lambda: cometmq.ok("group", "progress", "readers", "--topic", "events", "--json").json,
            "everything is consumed",
            lambda found: found["lag"] == 0 and sum(each["brokerOffset"] for each in found["queues"]) == 6,
        )
        assert {each["clientId"] for each in progress["queues"]} == {member["clientId"]}

    assert cometmq("group", "members", "readers").code == 4
    overview = cometmq.ok("group", "progress", "--json").json["groups"]
    (line,) = [each for each in overview if each["group"] == "readers"]
    assert (line["members"], line["lag"], "events" in line["topics"]) == (0, 0, True)

    planned = cometmq.ok(
        "group", "reset", "readers", "--topic", "events", "--to", "earliest", "--dry-run", "--json"
    ).json
    assert not planned["done"]
    assert sum(each["before"] for each in planned["queues"]) == 6
    assert [each["after"] for each in planned["queues"]] == [0, 0]
    assert cometmq.ok("group", "progress", "readers", "--topic", "events", "--json").json["lag"] == 0
    assert cometmq("group", "reset", "readers", "--topic", "events", "--to", "earliest").code == 2
    cometmq.ok("group", "reset", "readers", "--topic", "events", "--to", "earliest", "--yes")
    assert cometmq.ok("group", "progress", "readers", "--topic", "events", "--json").json["lag"] == 6
    assert (
        "6 messages waiting for readers in 2 queues"
        in cometmq.ok("group", "progress", "readers", "--topic", "events").out
    )

    cometmq.ok("group", "clone", "readers", "others", "--topic", "events", "--yes")
    assert cometmq.ok("group", "progress", "others", "--topic", "events", "--json").json["lag"] == 6
    cometmq.ok("group", "skip", "others", "--topic", "events", "--yes")
    assert cometmq.ok("group", "progress", "others", "--topic", "events", "--json").json["lag"] == 0


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["progress", "nobody"], 4, "there is no group nobody; see: cometmq group list"),
        (["members", "nobody"], 4, "no member of group nobody is connected"),
        (["reset", "nobody", "--topic", "mine", "--to", "latest"], 4, "there is no group nobody"),
        (["reset", "nobody", "--topic", "mine", "--to", "soon"], 2, "'soon' is no time"),
        (["clone", "nobody", "other", "--topic", "mine", "--yes"], 4, "nothing can be copied"),
    ],
)
def test_a_mistake_with_a_group_is_one_sentence(
    cometmq: Cometmq, rocketmq: EmbeddedBroker, arguments: list[str], code: int, sentence: str
) -> None:
    rocketmq.call(rocketmq.create_topic("mine", queues=1))
    ended = cometmq("group", *arguments)
    assert (ended.code, ended.out) == (code, "")
    assert sentence in ended.err


def test_configuration_producers_and_single_messages(cometmq: Cometmq) -> None:
    """B9, B10, N8: the same commands run on Apache's broker."""
    check_admin_commands(cometmq, "embedded")


def test_a_half_message_that_was_given_up_is_checked_again() -> None:
    """B7: until then the broker asks no more."""
    asked: list[str] = []
    states = iter([TransactionState.UNKNOWN])

    def check(message: StoredMessage) -> TransactionState:
        asked.append(message.msg_id)
        return next(states, TransactionState.COMMIT)

    quick = {
        "transactionTimeOut": "300",
        "transactionCheckInterval": "100",
        "transactionOpBatchInterval": "50",
        "transactionCheckMax": "1",
    }
    with EmbeddedBroker(settings=quick) as broker:
        cometmq = Cometmq(broker.namesrv)
        cometmq.ok("topic", "create", "paid", "--queues", "1")
        with TransactionProducer("shop", check=check, namesrv=broker.namesrv, topics=["paid"]) as producer:
            with producer.transaction(Message("paid", b"x")) as transaction:
                transaction.decide(TransactionState.UNKNOWN)
            (given_up,) = wait_until(
                lambda: cometmq("message", "tail", "TRANS_CHECK_MAX_TIME_TOPIC", "--json"),
                "the broker gives it up",
                lambda ended: ended.code == 0 and bool(ended.out),
            ).lines
            assert cometmq("message", "resume-check", "0" * 32).code == 4
            resumed = cometmq.ok("message", "resume-check", given_up["offsetMsgId"], "--json").json
            assert (resumed["offsetMsgId"], resumed["brokerName"]) == (given_up["offsetMsgId"], "embedded")
            wait_until(
                lambda: cometmq.ok("topic", "status", "paid", "--json").json["messages"],
                "the second check commits it",
                lambda count: count == 1,
            )
    assert asked == [given_up["msgId"]] * 2


# Settings


def test_settings_are_shown_changed_and_compared(cometmq: Cometmq) -> None:
    """B9: live, and what a server does not know is refused before anything changes."""
    assert cometmq.ok("config", "get", "waitTimeMillsInSendQueue").out == "waitTimeMillsInSendQueue  200\n"
    near = cometmq("config", "get", "waitTimeMillisInSendQueue")
    assert near.code == 4
    assert "did you mean waitTimeMillsInSendQueue?" in near.err
    assert cometmq("config", "set", "waitTimeMillsInSendQueue=250").code == 2
    unknown = cometmq("config", "set", "waitTimeMillisInSendQueue=250", "--all", "--yes")
    assert unknown.code == 2
    assert "embedded has no setting waitTimeMillisInSendQueue" in unknown.err
    changed = cometmq.ok("config", "set", "waitTimeMillsInSendQueue=250", "--all", "--yes", "--json").json
    assert changed["changes"] == [
        {
            "server": "embedded",
            "key": "waitTimeMillsInSendQueue",
            "before": "200",
            "after": "250",
            "state": "no effect",
            "kept": False,
        }
    ]
    assert (
        cometmq("config", "set", "waitTimeMillsInSendQueue=soon", "--broker", "embedded", "--yes").code == 1
    )
    different = cometmq("config", "diff", "--defaults", "--json")
    assert different.code == 1
    values = {each["key"]: each["values"] for each in different.json["differences"]}
    assert values["waitTimeMillsInSendQueue"] == {"default": "200", "embedded": "250"}
    assert "listenPort" not in values
    assert different.json["hidden"] > 0
    assert cometmq("config", "diff").code == 2


@pytest.mark.parametrize("is_kept", [False, True])
def test_a_changed_setting_says_when_it_is_in_force_and_whether_it_is_kept(
    tmp_path: Path, is_kept: bool
) -> None:
    """B13: live, at the next start, without effect, and not kept by a broker without a file."""
    changes = ("fileReservedTime=71", "flushIntervalCommitLog=501", "pullMessageThreadPoolNums=21")
    path = tmp_path / "broker.conf"
    settings = {"brokerName": "b", **({"brokerConfigPath": str(path)} if is_kept else {})}
    with EmbeddedBroker(settings=settings) as broker:
        ended = Cometmq(broker.namesrv).ok("config", "set", *changes, "--broker", "b", "--yes", "--json")
    found = [each["state"] for each in ended.json["changes"]]
    if is_kept:
        assert found == ["live", "next start", "no effect"]
        assert f"b keeps this in {path}" in ended.err
        assert sorted(path.read_text().split()) == sorted(changes)
    else:
        assert found == ["live, not kept", "not kept", "no effect"]
        assert "b does not keep this for its next start" in ended.err


@pytest.mark.parametrize(
    "change", ["listenPort=1", "brokerName=x", "storePathRootDir=/x", "tls.server.mode=disabled"]
)
def test_names_ports_and_paths_are_not_changed_by_request(cometmq: Cometmq, change: str) -> None:
    """B13: with what to do instead."""
    ended = cometmq("config", "set", change, "--broker", "embedded", "--yes")
    assert ended.code in (1, 2)
    key = change.partition("=")[0]
    assert f"{key} cannot be changed by request" in ended.err
    assert "in the configuration file" in ended.err


def test_name_servers_have_settings_too(cometmq: Cometmq, rocketmq: EmbeddedBroker) -> None:
    """N9."""
    cometmq.ok("config", "set", "orderMessageEnable=true", "--name-servers", "--yes")
    shown = cometmq.ok("config", "get", "orderMessageEnable", "--name-servers", "--json").json
    assert shown == {"servers": {rocketmq.namesrv: {"orderMessageEnable": "true"}}}


def test_brokers_are_compared_with_each_other(rocketmq: EmbeddedBroker, cometmq: Cometmq) -> None:
    with EmbeddedBroker(settings={"brokerName": "second", "fileReservedTime": "9"}, namesrv=rocketmq.namesrv):
        different = cometmq("config", "diff")
        assert different.code == 1
        (line,) = [each for each in different.out.splitlines() if each.startswith("fileReservedTime")]
        assert line.split() == ["fileReservedTime", "72", "9"]
        assert len(cometmq.ok("cluster", "status").out.splitlines()) == 3


def test_a_mistyped_variable_is_warned_about(cometmq: Cometmq, monkeypatch: pytest.MonkeyPatch) -> None:
    """B13: on standard error, also by commands of clients; settings of servers may be there as well."""
    monkeypatch.setenv("COMETMQ_CONTXT", "production")
    monkeypatch.setenv("COMETMQ_FLUSH_DISK_TYPE", "SYNC_FLUSH")
    said = cometmq.ok("topic", "list", "--json").err
    assert "warning: unknown variable COMETMQ_CONTXT is ignored; did you mean COMETMQ_CONTEXT?\n" in said
    assert said.count("warning") == 1
