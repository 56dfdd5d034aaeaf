"""`cometmq bench` on a cluster of Apache's: the same figures, and nothing left behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.compat.apache import ApacheBroker, ApacheNamesrv
from tests.integration.cli.cli_kit import Cometmq
from tests.waiting import wait_until

COUNT = 200


@pytest.fixture(scope="module")
def cometmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cometmq]:
    home = tmp_path_factory.mktemp("bench")
    with (
        ApacheNamesrv(home / "namesrv") as server,
        ApacheBroker(home / "broker", server.address, settings={"diskMaxUsedSpaceRatio": "95"}) as broker,
    ):
        broker.wait_registered(server.address)
        yield Cometmq(server.address)


def names(cometmq: Cometmq, kind: str) -> set[str]:
    """The groups, or the topics, that there are."""
    found = cometmq.ok(kind, "list", "--all", "--json").json[f"{kind}s"]
    return {each[kind] for each in found}


def test_messages_are_sent_and_consumed_and_the_group_is_gone(cometmq: Cometmq) -> None:
    """P1, C1."""
    sent = cometmq.ok(
        *("bench", "producer", "-t", "load", "--create", "--queues", "4", "--messages", str(COUNT)),
        *("--batch", "2", "--json"),
    ).json
    assert (sent["messages"], sent["failed"]) == (COUNT, 0)
    wait_until(
        lambda: cometmq.ok("topic", "status", "load", "--json").json["messages"],
        "all messages are in their queues",
        lambda found: found == COUNT,
    )
    before = names(cometmq, "group")
    got = cometmq.ok("bench", "consumer", "-t", "load", "--messages", str(COUNT), "--json").json
    assert (got["messages"], got["bytes"], got["groupDeleted"]) == (COUNT, COUNT * 128, True)
    assert names(cometmq, "group") == before
    wait_until(
        lambda: names(cometmq, "topic"),
        "the retry topic of the group is gone",
        lambda found: f"%RETRY%{got['group']}" not in found,
    )


def test_latencies_are_measured_at_both_ends_and_old_messages_are_left_alone(cometmq: Cometmq) -> None:
    """C1: the consumer begins at the end, although the queues still have their first messages."""
    found = cometmq.ok(
        "bench", "latency", "-t", "timed", "--create", "--rate", "100", "--seconds", "0.5", "--json"
    ).json
    assert (found["messages"], found["received"], found["missing"]) == (50, 50, 0)
    assert 0 < found["latencyMs"]["p50"] <= found["deliveryMs"]["max"]
    nothing = cometmq("bench", "consumer", "-t", "timed", "--from", "latest", "--wait", "1")
    assert nothing.code == 4
