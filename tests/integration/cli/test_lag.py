"""Lag is one number, in commands, metrics and for Spark; without an offset there is none (B9, B13)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cometmq import Admin, Message
from cometmq.model.queue import MessageQueue, lag_of, total_lag
from cometmq.spark.live.offsets import backlog_of
from cometmq.testing import EmbeddedBroker
from tests.integration.cli.cli_kit import Cometmq, send_all
from tests.integration.remoting.status_kit import PROMETHEUS


@pytest.fixture
def rocketmq() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(settings=PROMETHEUS) as running:
        running.call(running.create_topic("orders", queues=2))
        send_all(running.namesrv, [Message("orders", b"x") for _ in range(6)])
        yield running


def ends_of(rocketmq: EmbeddedBroker) -> dict[MessageQueue, int]:
    with Admin(namesrv=rocketmq.namesrv) as admin:
        return {queue: each.max_offset for queue, each in admin.topic_status("orders").items()}


def commit(rocketmq: EmbeddedBroker, queue: MessageQueue, offset: int) -> None:
    async def on_the_loop() -> None:
        offsets = rocketmq.broker.context.offsets
        offsets.commit("somebody", "billing", queue.topic, queue.queue_id, offset)

    rocketmq.call(on_the_loop())


def metric(rocketmq: EmbeddedBroker, group: str) -> float | None:
    exporter = rocketmq.broker.exporter
    assert exporter is not None
    for family in exporter.server_metrics(exporter.families()):
        for sample in family.samples:
            if (sample.name, sample.labels.get("consumer_group")) == (
                "rocketmq_consumer_lag_messages",
                group,
            ):
                return sample.value
    return None


def test_all_show_the_same_lag(rocketmq: EmbeddedBroker) -> None:
    command = Cometmq(rocketmq.namesrv)
    ends = ends_of(rocketmq)
    first, second = sorted(ends)
    command.ok("group", "create", "billing")
    commit(rocketmq, first, 1)
    commit(rocketmq, second, ends[second] + 5)
    lag = command.ok("group", "progress", "billing", "--json").json["lag"]
    (line,) = [
        each for each in command.ok("group", "progress", "--json").json["groups"] if each["lag"] is not None
    ]
    waiting = backlog_of({first: 1, second: ends[second] + 5}, ends)
    assert lag == line["lag"] == metric(rocketmq, "billing") == sum(waiting.values()) == ends[first] - 1


def test_a_queue_without_an_offset_has_no_lag(rocketmq: EmbeddedBroker) -> None:
    command = Cometmq(rocketmq.namesrv)
    ends = ends_of(rocketmq)
    first, _ = sorted(ends)
    command.ok("group", "create", "billing")
    commit(rocketmq, first, 0)
    shown = command.ok("group", "progress", "billing", "--json").json
    assert [(each["consumerOffset"], each["lag"]) for each in shown["queues"]] == [
        (0, ends[first]),
        (None, None),
    ]
    assert shown["lag"] == ends[first] == metric(rocketmq, "billing")
    text = command.ok("group", "progress", "billing").out
    assert "1 have no offset yet and are not counted" in text


def test_a_group_without_any_offset_has_no_lag(rocketmq: EmbeddedBroker) -> None:
    command = Cometmq(rocketmq.namesrv)
    command.ok("group", "create", "billing")
    shown = command.ok("group", "progress", "billing", "--topic", "orders", "--json").json
    assert (shown["lag"], [each["lag"] for each in shown["queues"]]) == (None, [None, None])
    text = command.ok("group", "progress", "billing", "--topic", "orders").out
    assert text.splitlines()[-1] == "no offset yet for billing in 2 queues"
    assert metric(rocketmq, "billing") is None


def test_lags_are_added_as_far_as_they_are_known() -> None:
    assert (lag_of(5, 2), lag_of(5, 9)) == (3, 0)
    assert total_lag([3, None, 0]) == 3
    assert total_lag([None, None]) is None
    assert total_lag([]) is None
