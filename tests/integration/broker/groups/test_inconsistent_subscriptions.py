"""Consumers of one group that subscribe to different things: said, shown, and refused where wanted."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from cometmq.broker.monitor.exporter import BrokerExporter
from cometmq.wire.codes import RequestCode
from cometmq.wire.headers.session import GetConsumerConnectionListRequest, GetConsumerListByGroupRequest
from tests.integration.client.consumer_kit import GROUP, TOPIC, Visitor, running_broker, sql, tags
from tests.waiting import eventually

DIFFERENCE = (
    f"client first subscribes to {TOPIC} with 'paid' (TAG), "
    f"and client second subscribes to {TOPIC} with 'open' (TAG)"
)


async def remarks(visitor: Visitor) -> set[str | None]:
    """What the two questions for a group say beside the group."""
    members = await visitor.ask(
        RequestCode.GET_CONSUMER_LIST_BY_GROUP, GetConsumerListByGroupRequest(consumer_group=GROUP)
    )
    connections = await visitor.ask(
        RequestCode.GET_CONSUMER_CONNECTION_LIST, GetConsumerConnectionListRequest(consumer_group=GROUP)
    )
    assert (members.code, connections.code) == (0, 0)
    return {members.remark, connections.remark}


async def test_a_difference_is_logged_counted_and_shown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """B3."""
    async with running_broker(tmp_path) as visit:
        first, second = visit.visitor("first"), visit.visitor("second")
        await first.heartbeat(tags(TOPIC, "paid"))
        assert await remarks(first) == {None}
        with caplog.at_level(logging.WARNING, "cometmq.broker"):
            await second.heartbeat(tags(TOPIC, "open"))
            await second.heartbeat(tags(TOPIC, "open"))
        said = [record.getMessage() for record in caplog.records if DIFFERENCE in record.getMessage()]
        assert len(said) == 1
        assert f"consumer group {GROUP}" in said[0]
        assert await remarks(first) == {DIFFERENCE}
        assert visit.context.clients.inconsistent_groups == [GROUP]
        exporter = BrokerExporter(visit.context, visit.broker.server.metrics)
        samples = {each.name: each for metric in exporter.collect() for each in metric.samples}
        assert samples["cometmq_inconsistent_consumer_group"].labels["consumer_group"] == GROUP
        assert samples["cometmq_inconsistent_subscriptions_total"].value == 1
        assert samples["cometmq_refused_consumers_total"].value == 0


async def test_a_difference_that_is_gone_is_shown_no_longer(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as visit:
        first, second = visit.visitor("first"), visit.visitor("second")
        await first.heartbeat(tags(TOPIC, "paid"))
        await second.heartbeat(tags(TOPIC, "open"))
        await second.client.stop()
        await eventually(lambda: not visit.context.clients.inconsistent_groups)
        assert await remarks(first) == {None}


async def test_equal_subscriptions_may_be_spelled_and_dated_differently(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as visit:
        first, second = visit.visitor("first"), visit.visitor("second")
        await first.heartbeat(tags(TOPIC, "paid", "open", version=1), tags(f"%RETRY%{GROUP}"))
        await second.heartbeat(tags(TOPIC, "open", "paid", version=2))
        assert visit.context.clients.inconsistent_groups == []


async def test_a_newcomer_that_differs_is_refused_where_that_is_wanted(tmp_path: Path) -> None:
    """B3."""
    async with running_broker(tmp_path, reject_inconsistent_subscription=True) as visit:
        first, second = visit.visitor("first"), visit.visitor("second")
        await first.heartbeat(tags(TOPIC, "paid"))
        refused = await second.heartbeat(tags(TOPIC, "open"))
        assert refused.code == 604
        assert refused.remark == (
            f"consumer group {GROUP}: client second subscribes to {TOPIC} with 'open' (TAG), "
            f"and client first subscribes to {TOPIC} with 'paid' (TAG); "
            "all consumers of a group have to subscribe alike"
        )
        assert visit.context.clients.consumers[GROUP].client_ids == ["first"]
        assert visit.context.clients.refused_consumers == 1
        assert (await second.heartbeat(tags(TOPIC, "paid"))).code == 0
        assert visit.context.clients.consumers[GROUP].client_ids == ["first", "second"]


async def test_the_sentence_names_a_topic_that_only_one_of_them_has(tmp_path: Path) -> None:
    async with running_broker(tmp_path, reject_inconsistent_subscription=True) as visit:
        first, second = visit.visitor("first"), visit.visitor("second")
        await first.heartbeat(tags(TOPIC), sql("Other", "a > 1"))
        refused = await second.heartbeat(tags(TOPIC))
        assert refused.remark is not None
        assert "client second does not subscribe to Other" in refused.remark
        assert "client first subscribes to Other with 'a > 1' (SQL92)" in refused.remark


async def test_a_client_that_changes_its_mind_is_not_refused_for_itself(tmp_path: Path) -> None:
    """B3: neither on its own connection nor on a new one while the old one lingers."""
    async with running_broker(tmp_path, reject_inconsistent_subscription=True) as visit:
        before, after = visit.visitor("same"), visit.visitor("same")
        await before.heartbeat(tags(TOPIC, "paid", version=1))
        assert (await before.heartbeat(tags(TOPIC, "open", version=2))).code == 0
        assert (await after.heartbeat(tags(TOPIC, "closed", version=3))).code == 0
        assert visit.context.clients.inconsistent_groups == []


async def test_members_can_change_over_one_after_the_other(tmp_path: Path) -> None:
    """B3: the difference in between is said, and nobody is thrown out."""
    async with running_broker(tmp_path, reject_inconsistent_subscription=True) as visit:
        first, second = visit.visitor("first"), visit.visitor("second")
        await first.heartbeat(tags(TOPIC, "paid", version=1))
        await second.heartbeat(tags(TOPIC, "paid", version=1))
        assert (await first.heartbeat(tags(TOPIC, "open", version=2))).code == 0
        assert visit.context.clients.inconsistent_groups == [GROUP]
        assert (await second.heartbeat(tags(TOPIC, "open", version=2))).code == 0
        assert visit.context.clients.inconsistent_groups == []


async def test_nobody_comes_in_without_saying_what_it_subscribes_to(tmp_path: Path) -> None:
    async with running_broker(tmp_path, reject_inconsistent_subscription=True) as visit:
        first, second = visit.visitor("first"), visit.visitor("second")
        await first.heartbeat(tags(TOPIC, "paid"), fingerprint=7)
        answer = await second.heartbeat(fingerprint=8, without_sub=True)
        assert (answer.code, answer.fields["IS_SUB_CHANGE"]) == (0, "true")
        assert visit.context.clients.consumers[GROUP].client_ids == ["first"]
