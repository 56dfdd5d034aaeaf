"""`cometmq bench` on a running system: what it sends, consumes, measures and leaves behind (N9)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from cometmq.testing import EmbeddedBroker
from tests.integration.cli.cli_kit import Cometmq
from tests.waiting import wait_until

PATIENCE_S = 60
LARGEST = 2048


@pytest.fixture(scope="module")
def rocketmq() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(settings={"maxMessageSize": str(LARGEST)}) as running:
        yield running


@pytest.fixture(scope="module")
def cometmq(rocketmq: EmbeddedBroker) -> Cometmq:
    return Cometmq(rocketmq.namesrv)


@pytest.fixture(scope="module")
def filled(cometmq: Cometmq) -> str:
    """A topic with 300 messages in four queues."""
    cometmq.ok("bench", "producer", "-t", "filled", "--create", "--queues", "4", "--messages", "300")
    return "filled"


def groups(cometmq: Cometmq) -> set[str]:
    return {each["group"] for each in cometmq.ok("group", "list", "--all", "--json").json["groups"]}


def topics(cometmq: Cometmq) -> set[str]:
    return {each["topic"] for each in cometmq.ok("topic", "list", "--all", "--json").json["topics"]}


# Producers


def test_a_producer_sends_what_it_says(cometmq: Cometmq) -> None:
    made = ("bench", "producer", "-t", "sent", "--create", "--queues", "2", "--messages", "101")
    found = cometmq.ok(*made, "--size", "100", "--in-flight", "8", "--tag", "x", "--keys", "--json").json
    assert (found["topic"], found["messages"], found["bytes"], found["failed"]) == ("sent", 101, 10_100, 0)
    assert found["messagesPerSecond"] == pytest.approx(101 / found["seconds"], rel=0.1)
    latency = found["latencyMs"]
    assert 0 < latency["p50"] <= latency["p90"] <= latency["p99"] <= latency["p99.9"] <= latency["max"]
    assert (found["processes"], found["interrupted"], found["failures"]) == (1, False, [])
    assert cometmq.ok("topic", "status", "sent", "--json").json["messages"] == 101
    stored = cometmq.ok("message", "tail", "sent", "--limit", "101", "--tags", "x", "--json").lines
    assert len({each["properties"]["KEYS"] for each in stored}) == 101
    assert {len(each["text"]) for each in stored} == {100}


def test_batches_and_a_rate_are_kept_and_shown_to_people(cometmq: Cometmq) -> None:
    cometmq.ok("topic", "create", "paced", "--queues", "1")
    shown = cometmq.ok(
        "bench", "producer", "-t", "paced", "--rate", "100", "--seconds", "0.5", "--batch", "5"
    ).out.splitlines()
    assert shown[0].split() == ["messages", "50"]
    assert [line.split("  ")[0] for line in shown[1:6]] == [
        "seconds",
        "messages/s",
        "MB/s",
        "CPU s per million",
        "failed",
    ]
    assert shown[-2].split() == ["latency", "(ms)", "p50", "p90", "p99", "p99.9", "max"]
    assert shown[-1].startswith("sent until stored")
    assert cometmq.ok("topic", "status", "paced", "--json").json["messages"] == 50


def test_messages_that_fail_are_counted_by_their_reason_and_make_the_run_fail(
    cometmq: Cometmq, filled: str
) -> None:
    load = ("bench", "producer", "-t", filled, "--messages", "3", "--size", str(2 * LARGEST))
    ended = cometmq(*load, "--json")
    (failure,) = ended.json["failures"]
    assert (ended.code, ended.json["messages"], ended.json["failed"], failure["count"]) == (1, 0, 3, 3)
    assert failure["reason"] == "SendError 13"
    shown = cometmq(*load)
    assert shown.code == 1
    assert failure["reason"] in shown.out


def test_a_topic_that_does_not_exist_is_not_made_unasked(cometmq: Cometmq) -> None:
    for kind in ("producer", "consumer", "latency"):
        ended = cometmq("bench", kind, "-t", "nowhere")
        assert (ended.code, ended.out) == (4, "")
        assert ended.err == (
            "error: there is no topic nowhere; make it with: cometmq topic create nowhere "
            "(or send with --create)\n"
        )
    assert "nowhere" not in topics(cometmq)


def test_what_cannot_be_shared_out_is_wrong_usage(cometmq: Cometmq, filled: str) -> None:
    few = cometmq("bench", "producer", "-t", filled, "--messages", "1", "--processes", "2")
    many = cometmq("bench", "consumer", "-t", filled, "--processes", "5")
    assert (few.code, many.code) == (2, 2)
    assert "1 message cannot be shared by 2 processes" in few.err
    assert "has 4 queues" in many.err


@pytest.mark.parametrize("processes", ["1", "2"])
def test_ctrl_c_ends_a_load_with_what_was_measured_until_then(
    cometmq: Cometmq, rocketmq: EmbeddedBroker, processes: str
) -> None:
    topic = f"interrupted-{processes}"
    cometmq.ok("topic", "create", topic, "--queues", "2")
    load = ["bench", "producer", "-t", topic, "--seconds", "600", "--rate", "200", "--json"]
    running = subprocess.Popen(
        [sys.executable, "-m", "cometmq.cli.main", *load, "--processes", processes],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COMETMQ_NAMESRV": rocketmq.namesrv},
        start_new_session=True,
    )
    with running:
        try:
            assert running.stderr is not None
            progress = running.stderr.readline()
            os.killpg(running.pid, signal.SIGINT)
            out, errors = running.communicate(timeout=PATIENCE_S)
        finally:
            running.kill()
    assert progress.startswith("producer: ")
    assert " a second, p50 " in progress
    assert running.returncode == 130
    assert "interrupted" in errors
    found = json.loads(out)
    assert (found["interrupted"], found["failed"]) == (True, 0)
    assert found["messages"] == cometmq.ok("topic", "status", topic, "--json").json["messages"] > 0


# Consumers


def test_a_consumer_reads_what_there_is_and_leaves_nothing_behind(cometmq: Cometmq, filled: str) -> None:
    before = groups(cometmq), topics(cometmq)
    found = cometmq.ok("bench", "consumer", "-t", filled, "--messages", "300", "--json").json
    assert (found["messages"], found["bytes"], found["groupDeleted"]) == (300, 300 * 128, True)
    assert found["messagesPerSecond"] > 0
    assert found["fromFuture"] == 0
    assert found["group"].startswith("bench-")
    assert (groups(cometmq), topics(cometmq)) == before


def test_several_consumers_share_the_queues(cometmq: Cometmq, filled: str) -> None:
    """No message comes twice: what is missing to 301 is waited for."""
    ended = cometmq(
        *("bench", "consumer", "-t", filled, "--messages", "301", "--wait", "2"),
        *("--processes", "2", "--batch", "16", "--json"),
    )
    assert (ended.code, ended.json["messages"], ended.json["processes"]) == (1, 300, 2)
    assert "these are fewer than 301" in ended.err


def test_a_named_group_goes_on_where_it_was_and_stays(cometmq: Cometmq, filled: str) -> None:
    load = ("bench", "consumer", "-t", filled, "--group", "kept", "--wait", "1")
    shown = cometmq.ok(*load, "--messages", "300").out
    assert "age when consumed" in shown
    assert "kept" in groups(cometmq)
    wait_until(
        lambda: cometmq.ok("group", "progress", "kept", "--topic", filled, "--json").json["lag"],
        "the group has committed what it consumed",
        lambda lag: lag == 0,
    )
    assert cometmq(*load).code == 4


def test_a_consumer_to_which_nothing_comes_says_so(cometmq: Cometmq, filled: str) -> None:
    ended = cometmq("bench", "consumer", "-t", filled, "--from", "latest", "--wait", "0.3")
    assert (ended.code, ended.out) == (4, "")
    assert ended.err == (
        f"error: no message of topic {filled} came within 0.3 s; "
        f"send some with: cometmq bench producer --topic {filled}\n"
    )


# Both


def test_latencies_are_measured_at_both_ends(cometmq: Cometmq) -> None:
    before = groups(cometmq)
    found = cometmq.ok(
        *("bench", "latency", "-t", "both", "--create", "--queues", "3"),
        *("--rate", "200", "--seconds", "0.5", "--json"),
    ).json
    assert (found["rate"], found["messages"], found["received"], found["missing"]) == (200, 100, 100, 0)
    for latency in (found["latencyMs"], found["deliveryMs"]):
        assert 0 < latency["p50"] <= latency["p99"] <= latency["max"]
    assert groups(cometmq) == before
    shown = cometmq.ok("bench", "latency", "-t", "both", "--rate", "50", "--seconds", "0.1").out
    assert "due until stored" in shown
    assert "due until consumed" in shown
