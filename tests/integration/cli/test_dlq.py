"""`cometmq dlq`: dead letters are listed, shown and sent once more, each of them once (B8)."""

from __future__ import annotations

import operator
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial

import pytest

from cometmq import Admin, Message
from cometmq.client.admin import redrive
from cometmq.model.errors import MessageError
from cometmq.model.message import StoredMessage
from cometmq.testing import EmbeddedBroker
from tests.integration.cli.cli_kit import Cometmq, make_dead_letters
from tests.waiting import wait_until

BODIES = [f"{number:03}".encode() for number in range(40)]


@pytest.fixture(scope="module")
def rocketmq() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture
def cometmq(rocketmq: EmbeddedBroker) -> Cometmq:
    return Cometmq(rocketmq.namesrv)


def dead_letters(rocketmq: EmbeddedBroker, name: str, bodies: list[bytes]) -> str:
    """Have a group fail on messages of a topic, both with this name."""
    rocketmq.call(rocketmq.create_topic(name, queues=2))
    messages = [
        Message(name, body, tags="t", keys=[body.decode()], properties={"colour": "red"}) for body in bodies
    ]
    make_dead_letters(rocketmq.namesrv, name, name, messages)
    return name


def redriven(namesrv: str, topic: str, count: int) -> list[str]:
    """The bodies of the messages of a topic that were sent once more."""
    ended = Cometmq(namesrv).ok("message", "tail", topic, "--limit", str(2 * count + 10), "--json")
    return [each["text"] for each in ended.lines if redrive.REDRIVEN_FROM in each["properties"]]


def test_dead_letters_are_listed_shown_and_sent_once_more(cometmq: Cometmq, rocketmq: EmbeddedBroker) -> None:
    """B8: as they were, to the topic that they were of; what was done is said."""
    name = dead_letters(rocketmq, "plain", BODIES[:5])
    (line,) = [each for each in cometmq.ok("dlq", "list", "--json").json["groups"] if each["group"] == name]
    assert (line["messages"], line["redriven"], line["waiting"]) == (5, 0, 5)
    shown = cometmq.ok("dlq", "show", name, "--limit", "2", "--json")
    assert [each["originTopic"] for each in shown.lines] == [name, name]
    assert shown.err == "these are the last 2 of 5; --limit shows more\n"

    planned = cometmq.ok("dlq", "redrive", name, "--dry-run", "--json").json
    assert (planned["sent"], planned["dryRun"]) == (5, True)
    assert redriven(rocketmq.namesrv, name, 5) == []
    assert cometmq("dlq", "redrive", name).code == 2

    done = cometmq.ok("dlq", "redrive", name, "--yes", "--json").json
    assert (done["sent"], done["already"], done["failed"], done["complete"]) == (5, 0, 0, True)
    assert sorted(redriven(rocketmq.namesrv, name, 5)) == [body.decode() for body in BODIES[:5]]
    again = cometmq.ok("dlq", "redrive", name, "--yes").out
    assert again == "0 were sent, 0 had been sent before, 0 failed\n"
    (copy,) = cometmq.ok("message", "find", name, "--key", "003", "--json").lines[1:]
    assert copy["properties"]["TAGS"] == "t"
    assert copy["properties"]["colour"] == "red"
    assert copy["reconsumeTimes"] == 0
    (line,) = [each for each in cometmq.ok("dlq", "list", "--json").json["groups"] if each["group"] == name]
    assert (line["redriven"], line["waiting"]) == (5, 0)


def test_a_redrive_that_is_killed_half_way_and_started_again_sends_each_message_once(
    cometmq: Cometmq, rocketmq: EmbeddedBroker
) -> None:
    """B8: also if it dies between a message and the note that it was sent."""
    name = dead_letters(rocketmq, "killed", BODIES)
    command = [sys.executable, "-m", "cometmq.cli.main", "dlq", "redrive", name, "--rate", "40", "--yes"]
    environment = {**os.environ, "COMETMQ_NAMESRV": rocketmq.namesrv}
    for wanted, number, code in ((8, signal.SIGINT, 130), (20, signal.SIGKILL, -signal.SIGKILL)):
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        try:
            wait_until(
                lambda: len(redriven(rocketmq.namesrv, name, 40)),
                "some were sent",
                partial(operator.le, wanted),
            )
        finally:
            process.send_signal(number)
            printed, _ = process.communicate(timeout=60)
        assert process.returncode == code
        assert ("start it again to go on" in printed) == (number == signal.SIGINT)
    rest = cometmq.ok("dlq", "redrive", name, "--yes", "--json").json
    assert rest["sent"] > 0
    assert rest["failed"] == 0
    assert sorted(redriven(rocketmq.namesrv, name, 40)) == [body.decode() for body in BODIES]


def test_a_message_that_was_sent_and_not_noted_is_found_by_its_id(
    cometmq: Cometmq, rocketmq: EmbeddedBroker
) -> None:
    """B8: as after a broker that lost the last offsets."""
    name = dead_letters(rocketmq, "forgotten", BODIES[:6])
    cometmq.ok("dlq", "redrive", name, "--yes", "--limit", "4")
    with Admin(namesrv=rocketmq.namesrv) as admin:
        (queue,) = admin.queues(f"%DLQ%{name}")
        admin.commit_offset(redrive.progress_group(name), queue, 1)
    rest = cometmq.ok("dlq", "redrive", name, "--yes", "--json").json
    assert (rest["sent"], rest["already"]) == (2, 3)
    assert sorted(redriven(rocketmq.namesrv, name, 6)) == [body.decode() for body in BODIES[:6]]


def test_what_cannot_be_sent_is_named_and_tried_again_by_the_next_run(
    cometmq: Cometmq, rocketmq: EmbeddedBroker
) -> None:
    """B8: the others are sent all the same, and only once."""
    name = dead_letters(rocketmq, "partly", BODIES[:3])
    rocketmq.call(rocketmq.create_topic("vanished", queues=1))
    make_dead_letters(rocketmq.namesrv, "partly-2", "vanished", [Message("vanished", b"lost")])
    with Admin(namesrv=rocketmq.namesrv) as admin:
        (queue,) = admin.queues("%DLQ%partly-2")
        stray = admin.read(queue, 0).messages[0]
    cometmq.ok("topic", "delete", "vanished", "--yes")

    failed = cometmq("dlq", "redrive", "partly-2", "--yes", "--json")
    assert failed.code == 1
    assert (failed.json["sent"], failed.json["failed"]) == (0, 1)
    assert failed.json["failures"][0]["reason"].startswith("topic vanished does not exist; create it")
    assert stray.msg_id in failed.err
    moved = cometmq.ok("dlq", "redrive", "partly-2", "--to", name, "--yes", "--json").json
    assert (moved["sent"], moved["failed"]) == (1, 0)
    assert redriven(rocketmq.namesrv, name, 3) == ["lost"]


def test_a_failure_in_the_middle_holds_up_nobody_and_is_not_passed_over(
    cometmq: Cometmq, rocketmq: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B8: the offset stays before it, and what was sent behind it is found by its id."""
    name = dead_letters(rocketmq, "middle", BODIES[:4])
    whole = redrive.redriven
    with Admin(namesrv=rocketmq.namesrv) as admin:
        (queue,) = admin.queues(f"%DLQ%{name}")
        second = admin.read(queue, 1).messages[0]

    def refuse_second(dead: StoredMessage, topic: str) -> Message:
        if dead.queue_offset == 1:
            raise MessageError("it has a blank property")
        return whole(dead, topic)

    monkeypatch.setattr(redrive, "redriven", refuse_second)
    partly = cometmq("dlq", "redrive", name, "--yes", "--json")
    assert partly.code == 1
    assert (partly.json["sent"], partly.json["failed"]) == (3, 1)
    assert partly.json["failures"][0]["msgId"] == second.msg_id
    monkeypatch.setattr(redrive, "redriven", whole)
    rest = cometmq.ok("dlq", "redrive", name, "--yes", "--json").json
    assert (rest["sent"], rest["already"]) == (1, 2)
    assert len(redriven(rocketmq.namesrv, name, 4)) == 4


def test_the_rate_is_kept(cometmq: Cometmq, rocketmq: EmbeddedBroker) -> None:
    """At most so many a second."""
    name = dead_letters(rocketmq, "slowly", BODIES[:6])
    began = time.monotonic()
    cometmq.ok("dlq", "redrive", name, "--rate", "10", "--yes")
    assert time.monotonic() - began >= 0.5


def test_a_group_without_dead_letters_is_not_found(cometmq: Cometmq) -> None:
    for command in (["show", "nobody"], ["redrive", "nobody", "--yes"]):
        ended = cometmq("dlq", *command)
        assert (ended.code, ended.err) == (
            4,
            "error: group nobody has no dead letters; see: cometmq dlq list\n",
        )
