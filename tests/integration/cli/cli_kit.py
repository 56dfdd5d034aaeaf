"""Runs `cometmq` in the process of a test, against whatever cluster the test has."""

from __future__ import annotations

import io
import json
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, NamedTuple
from unittest import mock

import pytest

from cometmq import Admin, Message, Producer, PushConsumer, StoredMessage
from cometmq.cli.main import main
from cometmq.wire.bodies.heartbeat import ConsumeFromWhere
from tests.waiting import wait_until

PATIENCE_S = 30.0


class Ended(NamedTuple):
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str
    raw: bytes = b""

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """The documents of a stream."""
        return [json.loads(line) for line in self.out.splitlines()]


class Cometmq:
    """The command, pointed at a cluster."""

    def __init__(self, namesrv: str) -> None:
        self.namesrv = namesrv

    def __call__(self, *arguments: str, stdin: bytes = b"") -> Ended:
        raw, err = io.BytesIO(), io.StringIO()
        out = io.TextIOWrapper(raw, encoding="utf-8", write_through=True)
        variables = {"COMETMQ_NAMESRV": self.namesrv}
        with (
            mock.patch.object(sys, "argv", ["cometmq", *arguments]),
            mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin))),
            mock.patch.dict(os.environ, variables),
            redirect_stdout(out),
            redirect_stderr(err),
            pytest.raises(SystemExit) as ended,
        ):
            main()
        code = ended.value.code
        written = raw.getvalue()
        shown = written.decode(errors="backslashreplace")
        return Ended(code if isinstance(code, int) else 0, shown, err.getvalue(), written)

    def ok(self, *arguments: str, stdin: bytes = b"") -> Ended:
        """Run a command that has to work."""
        ended = self(*arguments, stdin=stdin)
        assert ended.code == 0, f"{' '.join(arguments)}: {ended.err or ended.out}"
        return ended


def send_all(namesrv: str, messages: list[Message]) -> None:
    """Send messages, and wait until their topics show them."""
    with Producer("cli-tests", namesrv=namesrv) as producer:
        for message in messages:
            producer.send(message)


def make_dead_letters(namesrv: str, group: str, topic: str, messages: list[Message]) -> None:
    """Have a group fail to consume these messages, each at its only try."""
    admin = Admin(namesrv=namesrv)
    consumer = PushConsumer(
        group,
        namesrv=namesrv,
        max_reconsume_times=0,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )

    @consumer.subscribe(topic)
    def fail(message: StoredMessage) -> None:
        raise ValueError("this one cannot be consumed")

    def dead() -> int:
        if admin.topic_route(f"%DLQ%{group}") is None:
            return 0
        return sum(each.max_offset for each in admin.topic_status(f"%DLQ%{group}").values())

    send_all(namesrv, messages)
    with admin, consumer:
        wait_until(dead, "all are dead letters", lambda found: found >= len(messages))


def check_admin_commands(cometmq: Cometmq, broker: str) -> None:
    """The commands about configuration, producers, permissions, modes and single messages, on any broker."""
    # Name servers
    assert cometmq("cluster", "kv-get", "Settings").code == 4
    cometmq.ok("cluster", "kv-set", "Settings", "colour", "blue")
    assert cometmq.ok("cluster", "kv-get", "Settings").out == "colour  blue\n"
    assert cometmq.ok("cluster", "kv-get", "Settings", "colour", "--json").json == {
        "namespace": "Settings",
        "values": {"colour": "blue"},
    }
    assert cometmq("cluster", "kv-get", "Settings", "size").code == 4
    assert cometmq("cluster", "kv-delete", "Settings", "colour").code == 2
    cometmq.ok("cluster", "kv-delete", "Settings", "colour", "--yes")
    assert cometmq("cluster", "kv-delete", "Settings", "colour", "--yes").code == 4

    # The order of a topic
    cometmq.ok("topic", "create", "tracked", "--queues", "1")
    assert cometmq("topic", "order", "tracked").code == 4
    assert cometmq("topic", "order", "tracked", "--set", "broken").code == 1
    cometmq.ok("topic", "order", "tracked", "--set", f"{broker}:1;elsewhere:2")
    shown = cometmq.ok("topic", "order", "tracked", "--json").json
    assert shown["queues"] == {broker: 1, "elsewhere": 2}
    assert cometmq("topic", "order", "tracked", "--delete").code == 2
    cometmq.ok("topic", "order", "tracked", "--delete", "--yes")
    assert cometmq("topic", "order", "tracked").code == 4

    # Producers
    assert cometmq("cluster", "producers", "painters").code == 4
    with Producer("painters", namesrv=cometmq.namesrv) as producer:
        receipt = producer.send(Message("tracked", b"red", tags="warm"))
        (line,) = wait_until(
            lambda: cometmq("cluster", "producers", "painters", "--json"),
            "the producer is known",
            lambda ended: ended.code == 0,
        ).json["producers"]
        (same,) = [
            each
            for each in cometmq.ok("cluster", "producers", "--json").json["producers"]
            if each["group"] == "painters"
        ]
        assert (line["clientId"], line["address"]) == (same["clientId"], same["address"])
        assert (line["brokerName"], line["language"]) == (broker, "PYTHON")
        assert "painters" in cometmq.ok("cluster", "producers").out

    # A message and the groups
    seen: list[bytes] = []
    consumer = PushConsumer(
        "trackers",
        namesrv=cometmq.namesrv,
        persist_consumer_offset_interval_ms=50,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )
    consumer.subscribe("tracked")(lambda message: seen.append(message.body))
    message = (receipt.msg_id, "--topic", "tracked")
    wait_until(
        lambda: cometmq("message", "get", *message).code, "the message is indexed", lambda code: code == 0
    )
    assert cometmq("message", "consume", *message, "--group", "trackers").code == 4
    with consumer:
        wait_until(
            lambda: cometmq.ok("message", "track", *message, "--json").json["groups"],
            "the group has consumed it",
            lambda groups: (
                ("trackers", "CONSUMED") in {(each["group"], each["trackType"]) for each in groups}
            ),
        )
        assert "consumed" in cometmq.ok("message", "track", receipt.offset_msg_id).out
        result = cometmq.ok("message", "consume", *message, "--group", "trackers", "--json").json
        assert (result["result"], result["clientId"]) == ("CR_SUCCESS", consumer.client_id)
        assert seen == [b"red", b"red"]
        consumer.subscribe("tracked")(_fails)
        failed = cometmq(
            "message", "consume", *message, "--group", "trackers", "--client", consumer.client_id
        )
        assert failed.code == 1
        (span,) = cometmq.ok("group", "time-span", "trackers", "--topic", "tracked", "--json").json["queues"]
        assert 0 < span["minTimestamp"] == span["consumeTimestamp"]
        assert span["delayMs"] == 0

    # How the group reads
    reading = ("trackers", "--topic", "tracked")
    assert cometmq("group", "permission", "nobody", "--topic", "tracked").code == 4
    assert cometmq("group", "permission", *reading, "--forbid").code == 2
    forbidden = cometmq.ok("group", "permission", *reading, "--forbid", "--yes", "--json").json
    assert forbidden["brokers"] == [{"brokerName": broker, "readable": False}]
    cometmq.ok("group", "permission", *reading, "--allow")
    assert cometmq.ok("group", "permission", *reading).out.split()[-1] == "yes"
    assert cometmq("group", "mode", *reading, "--set", "push").code == 2
    assert cometmq("group", "mode", *reading, "--share", "2").code == 2
    (mode,) = cometmq.ok("group", "mode", *reading, "--json").json["brokers"]
    assert mode == {"brokerName": broker, "mode": "PULL", "popShareQueueNum": 0}
    cometmq.ok("group", "mode", *reading, "--set", "pop", "--share", "2")
    (mode,) = cometmq.ok("group", "mode", *reading, "--json").json["brokers"]
    assert mode == {"brokerName": broker, "mode": "POP", "popShareQueueNum": 2}


def _fails(message: StoredMessage) -> None:
    raise ValueError("this one cannot be consumed")
