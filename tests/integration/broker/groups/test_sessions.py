"""Clients that come, stay and go, and what the members of a group hear of it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from cometmq.model.topic import TopicConfig
from cometmq.testing.clock import VirtualClock
from cometmq.wire.bodies.heartbeat import HeartbeatData, ProducerData, encode_heartbeat
from cometmq.wire.codes import RequestCode
from cometmq.wire.headers.session import (
    GetConsumerListByGroupRequest,
    HeartbeatRequest,
    UnregisterClientRequest,
)
from tests.answers import Told
from tests.integration.client.consumer_kit import GROUP, TOPIC, Visitor, running_broker, sql, tags
from tests.waiting import eventually

NOTICE = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED


async def members(visitor: Visitor, group: str = GROUP) -> list[str] | Told:
    answer = await visitor.ask(
        RequestCode.GET_CONSUMER_LIST_BY_GROUP, GetConsumerListByGroupRequest(consumer_group=group)
    )
    if answer.code != 0:
        return answer
    ids: list[str] = json.loads(answer.body)["consumerIdList"]
    return ids


async def test_a_heartbeat_makes_a_client_a_member_of_its_group(tmp_path: Path) -> None:
    """B3."""
    async with running_broker(tmp_path) as visit:
        first, second = visit.visitor("first"), visit.visitor("second")
        nobody = await members(first)
        assert nobody == Told(1, f"no consumer for this group, {GROUP}", {}, b"")
        answer = await first.heartbeat(tags(TOPIC))
        assert answer == Told(0, None, {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}, b"")
        await second.heartbeat(tags(TOPIC))
        assert await members(first) == ["first", "second"]
        assert visit.context.groups.get(GROUP) is not None
        assert visit.context.topics.get(f"%RETRY%{GROUP}") == TopicConfig(
            f"%RETRY%{GROUP}", 1, 1, attributes={}
        )


async def test_a_client_that_leaves_or_whose_connection_ends_is_no_member_any_more(tmp_path: Path) -> None:
    """B3."""
    async with running_broker(tmp_path) as visit:
        first, second, third = (visit.visitor(name) for name in ("first", "second", "third"))
        for visitor in (first, second, third):
            await visitor.heartbeat(tags(TOPIC))
        await second.leave()
        assert await members(first) == ["first", "third"]
        await third.client.stop()
        await eventually(lambda: len(visit.context.clients.consumers[GROUP].members) == 1)
        assert await members(first) == ["first"]
        await first.leave()
        assert visit.context.clients.consumers == {}


async def test_members_hear_at_once_when_their_group_changes(tmp_path: Path) -> None:
    """B3."""
    async with running_broker(tmp_path) as visit:
        first, second = visit.visitor("first"), visit.visitor("second")
        await first.heartbeat(tags(TOPIC))
        await eventually(lambda: first.times_heard(NOTICE) == 1)
        await second.heartbeat(tags(TOPIC))
        await eventually(lambda: first.times_heard(NOTICE) == 2 and second.times_heard(NOTICE) == 1)
        assert first.heard[-1][1] == {"consumerGroup": GROUP}
        await second.heartbeat(tags(TOPIC))  # nothing new
        await second.heartbeat(tags(TOPIC), tags("Other"))
        await eventually(lambda: first.times_heard(NOTICE) == 3)
        await second.client.stop()
        await eventually(lambda: first.times_heard(NOTICE) == 4)
        assert first.times_heard(NOTICE) == 4


async def test_many_changes_of_a_moment_are_one_notice(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as visit:
        first = visit.visitor("first")
        await first.heartbeat(tags(TOPIC))
        await eventually(lambda: first.times_heard(NOTICE) == 1)
        others = [visit.visitor(f"other-{number}") for number in range(50)]
        await asyncio.gather(*(other.heartbeat(tags(TOPIC)) for other in others))
        await eventually(lambda: others[-1].times_heard(NOTICE) > 0)
        assert first.times_heard(NOTICE) < 25
        assert len(visit.context.clients.consumers[GROUP].client_ids) == 51


async def test_a_group_can_do_without_notices(tmp_path: Path) -> None:
    async with running_broker(tmp_path, notify_consumer_ids_changed_enable=False) as visit:
        first, second = visit.visitor("first"), visit.visitor("second")
        await first.heartbeat(tags(TOPIC))
        await second.heartbeat(tags(TOPIC))
        assert await members(first) == ["first", "second"]
        assert visit.context.clients._notice_timer is None


async def test_a_client_without_heartbeats_is_closed_and_forgotten(tmp_path: Path) -> None:
    """B3."""
    clock = VirtualClock()
    async with running_broker(tmp_path, clock=clock) as visit:
        silent, lively = visit.visitor("silent"), visit.visitor("lively")
        await silent.heartbeat(tags(TOPIC))
        await lively.heartbeat(tags(TOPIC))
        clock.advance(100_000)
        await lively.heartbeat(tags(TOPIC))
        clock.advance(20_001)
        visit.context.clients.remove_silent()
        assert visit.context.clients.consumers[GROUP].client_ids == ["lively"]
        await eventually(lambda: not silent.client.connections)


async def test_a_client_that_comes_back_on_another_connection_is_one_member(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as visit:
        before, after = visit.visitor("same"), visit.visitor("same")
        await before.heartbeat(tags(TOPIC))
        await after.heartbeat(tags(TOPIC))
        assert await members(after) == ["same"]
        await before.client.stop()
        await eventually(lambda: len(visit.context.clients.consumers[GROUP].members) == 1)
        assert await members(after) == ["same"]


async def test_a_short_heartbeat_keeps_the_subscriptions(tmp_path: Path) -> None:
    """B3: the second form of heartbeats."""
    async with running_broker(tmp_path) as visit:
        consumer = visit.visitor()
        full = await consumer.heartbeat(tags(TOPIC), fingerprint=7)
        assert full.fields["IS_SUB_CHANGE"] == "false"
        short = await consumer.heartbeat(fingerprint=7, without_sub=True)
        assert short.fields["IS_SUB_CHANGE"] == "false"
        assert set(visit.context.clients.consumers[GROUP].subscriptions) == {TOPIC}
        other = await consumer.heartbeat(fingerprint=8, without_sub=True)
        assert other.fields["IS_SUB_CHANGE"] == "true"


async def test_a_broker_that_was_restarted_asks_for_the_full_heartbeat(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as visit:
        consumer = visit.visitor()
        short = await consumer.heartbeat(fingerprint=7, without_sub=True)
        assert short.fields["IS_SUB_CHANGE"] == "true"


async def test_the_retry_topic_of_a_group_that_reads_in_order_is_in_order(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as visit:
        visit.context.topics.update(TopicConfig("Ordered", 1, 1, order=True))
        await visit.visitor().heartbeat(tags("Ordered"))
        retry = visit.context.topics.get(f"%RETRY%{GROUP}")
        assert retry is not None
        assert retry.order


async def test_a_group_that_may_not_be_made_is_passed_over(tmp_path: Path) -> None:
    async with running_broker(tmp_path, auto_create_subscription_group=False) as visit:
        consumer = visit.visitor()
        assert (await consumer.heartbeat(tags(TOPIC))).code == 0
        assert visit.context.clients.consumers == {}


async def test_producers_come_and_go(tmp_path: Path) -> None:
    """B3."""
    async with running_broker(tmp_path) as visit:
        producer = visit.visitor("producer")
        data = HeartbeatData("producer", (ProducerData("shop"),))
        await producer.ask(RequestCode.HEART_BEAT, HeartbeatRequest(), body=encode_heartbeat(data))
        assert [each.client_id for each in visit.context.clients.producers["shop"].values()] == ["producer"]
        header = UnregisterClientRequest(client_id="producer", producer_group="shop")
        assert (await producer.ask(RequestCode.UNREGISTER_CLIENT, header)).code == 0
        assert visit.context.clients.producers == {}


async def test_numbers_stand_for_names_in_heartbeats_of_the_cpp_client(tmp_path: Path) -> None:
    body = json.dumps(
        {
            "clientID": "cpp",
            "consumerDataSet": [
                {
                    "groupName": GROUP,
                    "consumeType": 1,
                    "messageModel": 0,
                    "consumeFromWhere": 4,
                    "subscriptionDataSet": [
                        {"topic": TOPIC, "subString": "*", "tagsSet": [], "codeSet": None, "subVersion": 1}
                    ],
                }
            ],
            "producerDataSet": None,
        }
    ).encode()
    async with running_broker(tmp_path) as visit:
        answer = await visit.visitor("cpp").ask(RequestCode.HEART_BEAT, HeartbeatRequest(), body=body)
        assert answer.code == 0
        group = visit.context.clients.consumers[GROUP]
        assert group.is_broadcast
        assert group.consume_from_where == "CONSUME_FROM_FIRST_OFFSET"
        assert set(group.subscriptions) == {TOPIC}


async def test_a_heartbeat_that_cannot_be_read_is_answered_and_changes_nothing(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as visit:
        for body in (b"", b"{", b'{"consumerDataSet":[]}', b'{"clientID":"x","consumerDataSet":[{}]}'):
            answer = await visit.visitor().ask(RequestCode.HEART_BEAT, HeartbeatRequest(), body=body)
            assert answer.code == 1
            assert answer.remark
        assert visit.context.clients.consumers == {}


@pytest.mark.parametrize(
    ("expression", "enabled", "code"),
    [("a > 5", True, 0), ("a >", True, 23), ("a > 5", False, 1)],
)
async def test_a_client_can_ask_whether_its_expression_will_do(
    tmp_path: Path, expression: str, enabled: bool, code: int
) -> None:
    async with running_broker(tmp_path, enable_property_filter=enabled) as visit:
        consumer = visit.visitor()
        body = json.dumps(
            {
                "clientId": "visitor",
                "group": GROUP,
                "subscriptionData": {"topic": TOPIC, "subString": expression, "expressionType": "SQL92"},
            }
        ).encode()
        answer = await consumer.ask(RequestCode.CHECK_CLIENT_CONFIG, body=body)
        assert answer.code == code
        assert bool(answer.remark) == (code != 0)


async def test_filters_outlive_a_restart(tmp_path: Path) -> None:
    async with running_broker(tmp_path, enable_property_filter=True) as visit:
        await visit.visitor().heartbeat(sql(TOPIC, "amount > 100", version=3))
    async with running_broker(tmp_path, enable_property_filter=True) as visit:
        registered = visit.context.filters.get(TOPIC, GROUP)
        assert registered is not None
        assert (registered.data.expression, registered.client_version) == ("amount > 100", 3)
        assert registered.data.dead
        await visit.visitor().heartbeat(sql(TOPIC, "amount > 100", version=3))
        assert not registered.data.dead


async def test_a_filter_that_its_group_gave_up_is_forgotten_after_a_day(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with running_broker(tmp_path, clock=clock, enable_property_filter=True) as visit:
        consumer, filters = visit.visitor(), visit.context.filters
        await consumer.heartbeat(sql(TOPIC, "amount > 100", version=3))
        await consumer.heartbeat(sql(TOPIC, "amount > 200", version=2))
        await consumer.heartbeat(sql(TOPIC, "amount >", version=4))
        registered = filters.get(TOPIC, GROUP)
        assert registered is not None
        assert (registered.data.expression, registered.client_version) == ("amount > 100", 3)
        await consumer.heartbeat(tags("Other"))
        assert registered.data.dead
        filters.save()
        assert filters.get(TOPIC, GROUP) is registered
        clock.advance(86_400_001)
        filters.save()
        assert filters.get(TOPIC, GROUP) is None
