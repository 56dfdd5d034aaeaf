"""Pulls: who may, what comes back, and what is noted about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from cometmq.model.topic import TopicConfig
from cometmq.wire.bodies.heartbeat import ConsumeType, MessageModel
from cometmq.wire.codes import RequestCode
from tests.integration.client.consumer_kit import (
    BRINGS_SUBSCRIPTION,
    COMMIT,
    GROUP,
    TOPIC,
    running_broker,
    sql,
    tags,
)

FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


async def test_a_member_gets_the_messages_from_its_offset_on(tmp_path: Path) -> None:
    """B8."""
    async with running_broker(tmp_path) as visit:
        consumer = visit.visitor()
        await consumer.heartbeat(tags(TOPIC))
        for number in range(5):
            await consumer.send(b"order-%d" % number)
        answer = await consumer.pull(2)
        assert answer.code == 0
        assert answer.remark == "FOUND"
        assert answer.bodies == [b"order-2", b"order-3", b"order-4"]
        assert answer.fields == {
            "suggestWhichBrokerId": "0",
            "nextBeginOffset": "5",
            "minOffset": "0",
            "maxOffset": "5",
            "topicSysFlag": "0",
            "groupSysFlag": "0",
        }


async def test_a_pull_takes_no_more_messages_than_it_asks_for(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as visit:
        consumer = visit.visitor()
        await consumer.heartbeat(tags(TOPIC))
        for number in range(5):
            await consumer.send(b"order-%d" % number)
        answer = await consumer.pull(0, max_msg_nums=2)
        assert answer.bodies == [b"order-0", b"order-1"]
        assert answer.fields["nextBeginOffset"] == "2"


@pytest.mark.parametrize(
    ("offset", "code", "status", "next_offset"),
    [
        (3, 19, "OFFSET_OVERFLOW_ONE", "3"),
        (4, 21, "OFFSET_OVERFLOW_BADLY", "3"),
        (-1, 21, "OFFSET_TOO_SMALL", "0"),
    ],
)
async def test_an_offset_outside_the_queue_is_answered_with_the_right_one(
    tmp_path: Path, offset: int, code: int, status: str, next_offset: str
) -> None:
    """B8."""
    async with running_broker(tmp_path) as visit:
        consumer = visit.visitor()
        await consumer.heartbeat(tags(TOPIC))
        for _ in range(3):
            await consumer.send(b"order")
        answer = await consumer.pull(offset)
        assert (answer.code, answer.remark, answer.fields["nextBeginOffset"]) == (code, status, next_offset)


async def test_a_queue_without_messages_has_none_at_0_and_no_other_offset(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as visit:
        consumer = visit.visitor()
        await consumer.heartbeat(tags(TOPIC))
        at_0, at_7 = await consumer.pull(0), await consumer.pull(7)
        assert (at_0.code, at_0.remark) == (19, "NO_MESSAGE_IN_QUEUE")
        assert (at_7.code, at_7.remark, at_7.fields["nextBeginOffset"]) == (21, "NO_MESSAGE_IN_QUEUE", "0")


async def test_messages_with_other_tags_are_passed_over(tmp_path: Path) -> None:
    """B8."""
    async with running_broker(tmp_path) as visit:
        consumer = visit.visitor()
        await consumer.heartbeat(tags(TOPIC, "paid", "refunded"))
        for tag in ("paid", "open", "refunded", "open"):
            await consumer.send(tag.encode(), TAGS=tag)
        answer = await consumer.pull(0)
        assert answer.bodies == [b"paid", b"refunded"]
        assert answer.fields["nextBeginOffset"] == "4"
        nothing = await consumer.pull(3)
        assert (nothing.code, nothing.remark) == (20, "NO_MATCHED_MESSAGE")
        assert nothing.fields["nextBeginOffset"] == "4"


async def test_a_client_may_leave_the_hashes_of_its_tags_to_the_broker(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as visit:
        consumer = visit.visitor()
        bare = msgspec.structs.replace(tags(TOPIC, "paid"), code_set=())
        await consumer.heartbeat(bare)
        for tag in ("open", "paid"):
            await consumer.send(tag.encode(), TAGS=tag)
        assert (await consumer.pull(0)).bodies == [b"paid"]


async def test_sql_decides_by_properties(tmp_path: Path) -> None:
    """B8."""
    async with running_broker(tmp_path, enable_property_filter=True) as visit:
        consumer = visit.visitor()
        await consumer.heartbeat(sql(TOPIC, "amount > 100 AND region IN ('north', 'south')"))
        await consumer.send(b"small", amount="99", region="north")
        await consumer.send(b"right", amount="101", region="south")
        await consumer.send(b"elsewhere", amount="101", region="east")
        await consumer.send(b"no amount", region="north")
        answer = await consumer.pull(0)
        assert answer.bodies == [b"right"]
        assert answer.fields["nextBeginOffset"] == "4"


async def test_sql_has_to_be_switched_on(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as visit:
        consumer = visit.visitor()
        await consumer.heartbeat(sql(TOPIC, "amount > 100"))
        answer = await consumer.pull(0)
        assert answer.code == 1
        assert answer.remark == "The broker does not support consumer to filter message by SQL92"


async def test_a_pull_may_bring_its_own_subscription(tmp_path: Path) -> None:
    async with running_broker(tmp_path, enable_property_filter=True) as visit:
        tool = visit.visitor()
        for tag in ("paid", "open"):
            await tool.send(tag.encode(), TAGS=tag, amount="5")
        for expression, kind, found in [
            ("*", "TAG", [b"paid", b"open"]),
            ("paid", None, [b"paid"]),
            (None, None, [b"paid", b"open"]),
            ("TAGS = 'open' AND amount > 4", "SQL92", [b"open"]),
        ]:
            answer = await tool.pull(
                0, flag=BRINGS_SUBSCRIPTION, subscription=expression, expression_type=kind
            )
            assert answer.bodies == found


async def test_a_subscription_that_makes_no_sense_is_refused(tmp_path: Path) -> None:
    async with running_broker(tmp_path, enable_property_filter=True) as visit:
        tool = visit.visitor()
        for expression, kind in [("amount >", "SQL92"), (None, "SQL92"), ("||", "TAG")]:
            answer = await tool.pull(
                0, flag=BRINGS_SUBSCRIPTION, subscription=expression, expression_type=kind
            )
            assert (answer.code, answer.remark) == (23, "parse the consumer's subscription failed")


@pytest.mark.parametrize(
    ("config", "pull", "code", "forbidden_type", "remark"),
    [
        (
            {"broker_permission": 2},
            {},
            16,
            "1",
            "the broker[127.0.0.1] pulling message is forbidden",
        ),
        (
            {"lite_pull_message_enable": False},
            {"code": RequestCode.LITE_PULL_MESSAGE},
            16,
            "1",
            "the broker[127.0.0.1] for lite pull consumer is forbidden",
        ),
        (
            {"auto_create_subscription_group": False},
            {"group": "nobody"},
            26,
            None,
            f"subscription group [nobody] does not exist, {FAQ}",
        ),
        ({}, {"topic": "Nothing"}, 17, None, f"topic[Nothing] not exist, apply first please! {FAQ}"),
        ({}, {"topic": "Secret"}, 16, "3", "the topic[Secret] pulling message is forbidden"),
        ({}, {"group": "absent"}, 24, None, f"the consumer's group info not exist{FAQ}"),
        ({}, {"topic": "Other"}, 24, None, f"the consumer's subscription not exist{FAQ}"),
        ({}, {"sub_version": 2}, 25, None, "the consumer's subscription not latest"),
    ],
)
async def test_a_pull_that_may_not_be_is_refused_with_apaches_words(
    tmp_path: Path,
    config: dict[str, Any],
    pull: dict[str, Any],
    code: int,
    forbidden_type: str | None,
    remark: str,
) -> None:
    """B8."""
    async with running_broker(tmp_path, **config) as visit:
        visit.context.topics.update(TopicConfig("Secret", 1, 1, perm=2))
        visit.context.topics.update(TopicConfig("Other", 1, 1))
        consumer = visit.visitor()
        await consumer.heartbeat(tags(TOPIC))
        answer = await consumer.pull(0, **pull)
        assert (answer.code, answer.remark) == (code, remark)
        assert answer.fields.get("forbiddenType") == forbidden_type


async def test_a_queue_that_the_topic_does_not_have_is_refused(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as visit:
        consumer = visit.visitor()
        await consumer.heartbeat(tags(TOPIC))
        for queue_id in (-1, 4):
            answer = await consumer.pull(0, queue_id=queue_id)
            assert answer.code == 29
            assert answer.remark is not None
            assert answer.remark.startswith(
                f"queueId[{queue_id}] is illegal, topic:[{TOPIC}] topicConfig.readQueueNums:[4] consumer:["
            )


async def test_what_was_found_is_forgotten_when_a_group_or_topic_changes(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as visit:
        consumer, context = visit.visitor(), visit.context
        await consumer.heartbeat(tags(TOPIC))
        await consumer.send(b"order")
        assert (await consumer.pull(0)).code == 0

        group = context.groups.get(GROUP)
        assert group is not None
        context.groups.update(msgspec.structs.replace(group, consume_enable=False))
        refused = await consumer.pull(0)
        assert (refused.code, refused.fields["forbiddenType"]) == (16, "2")
        assert refused.remark == f"subscription group no permission, {GROUP}"
        context.groups.update(group)

        context.groups.forbid(GROUP, TOPIC)
        refused = await consumer.pull(0)
        assert (refused.code, refused.fields["forbiddenType"]) == (16, "5")
        assert refused.remark == f"the consumer group[{GROUP}] is forbidden for topic[{TOPIC}]"
        context.groups.forbid(GROUP, TOPIC, on=False)
        assert (await consumer.pull(0)).code == 0

        await consumer.leave()
        assert (await consumer.pull(0)).code == 24


async def test_a_newer_subscription_takes_the_place_of_the_older_one(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as visit:
        consumer = visit.visitor()
        await consumer.heartbeat(tags(TOPIC, "paid", version=5))
        for tag in ("paid", "open"):
            await consumer.send(tag.encode(), TAGS=tag)
        assert (await consumer.pull(0)).bodies == [b"paid"]
        await consumer.heartbeat(tags(TOPIC, "open", version=4))
        assert (await consumer.pull(0)).bodies == [b"paid"]
        await consumer.heartbeat(tags(TOPIC, "open", version=6))
        assert (await consumer.pull(0, sub_version=6)).bodies == [b"open"]


async def test_a_group_that_may_not_broadcast_is_refused(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as visit:
        consumer, context = visit.visitor(), visit.context
        await consumer.heartbeat(tags(TOPIC), model=MessageModel.BROADCASTING)
        group = context.groups.get(GROUP)
        assert group is not None
        context.groups.update(msgspec.structs.replace(group, consume_broadcast_enable=False))
        answer = await consumer.pull(0)
        assert (answer.code, answer.fields["forbiddenType"]) == (16, "4")
        assert answer.remark == f"the consumer group[{GROUP}] can not consume by broadcast way"


async def test_consumers_that_pull_on_their_own_can_be_kept_out(tmp_path: Path) -> None:
    async with running_broker(tmp_path, reject_pull_consumer_enable=True) as visit:
        consumer = visit.visitor()
        await consumer.heartbeat(tags(TOPIC), consume_type=ConsumeType.CONSUME_ACTIVELY)
        answer = await consumer.pull(0, flag=BRINGS_SUBSCRIPTION, subscription="*")
        assert answer.code == 24
        assert answer.remark is not None
        assert answer.remark.startswith(
            "the consumer's group info not exist, or the pull consumer is rejected by server."
        )


async def test_a_filter_that_did_not_compile_is_missed_when_it_is_needed(tmp_path: Path) -> None:
    async with running_broker(tmp_path, enable_property_filter=True) as visit:
        consumer = visit.visitor()
        await consumer.heartbeat(sql(TOPIC, "amount >"))
        answer = await consumer.pull(0)
        assert answer.code == 27
        assert answer.remark == (
            "The broker's consumer filter data is not exist!Your expression may be wrong!"
        )


async def test_a_pull_commits_an_offset_if_it_is_asked_to(tmp_path: Path) -> None:
    """B9."""
    async with running_broker(tmp_path) as visit:
        consumer, offsets = visit.visitor(), visit.context.offsets
        await consumer.heartbeat(tags(TOPIC))
        for _ in range(3):
            await consumer.send(b"order")
        await consumer.pull(2, commit_offset=2)
        assert offsets.query(GROUP, TOPIC, 0) == -1
        await consumer.pull(2, flag=COMMIT, commit_offset=2)
        assert offsets.query(GROUP, TOPIC, 0) == 2
        assert offsets.query_pulled(GROUP, TOPIC, 0) == 3


async def test_a_reset_is_told_once_and_counts_more_than_commits(tmp_path: Path) -> None:
    """B9."""
    async with running_broker(tmp_path) as visit:
        consumer, offsets = visit.visitor(), visit.context.offsets
        await consumer.heartbeat(tags(TOPIC))
        for _ in range(3):
            await consumer.send(b"order")
        offsets.assign_reset(TOPIC, GROUP, 0, 1)
        told = await consumer.pull(3)
        assert (told.code, told.remark, told.fields["nextBeginOffset"]) == (21, "OFFSET_RESET", "1")
        assert (told.fields["minOffset"], told.fields["maxOffset"]) == ("0", "3")
        assert (await consumer.pull(1)).code == 0


async def test_cold_messages_are_read_like_others(tmp_path: Path) -> None:
    """B8."""
    store = {"access_message_in_memory_max_ratio": 0, "max_transfer_count_on_message_in_disk": 2}
    async with running_broker(tmp_path, store=store) as visit:
        consumer = visit.visitor()
        await consumer.heartbeat(tags(TOPIC))
        for number in range(5):
            await consumer.send(b"order-%d" % number)
        answer = await consumer.pull(1)
        assert answer.bodies == [b"order-1", b"order-2"]
        assert answer.fields["nextBeginOffset"] == "3"


async def test_a_reader_that_is_far_behind_is_sent_to_a_replica(tmp_path: Path) -> None:
    """B8."""
    store = {"access_message_in_memory_max_ratio": 0}
    async with running_broker(tmp_path, store=store, slave_read_enable=True) as visit:
        consumer = visit.visitor()
        await consumer.heartbeat(tags(TOPIC))
        await consumer.send(b"order")
        assert (await consumer.pull(0)).fields["suggestWhichBrokerId"] == "1"
        assert (await consumer.pull(1)).fields["suggestWhichBrokerId"] == "0"


async def test_the_fast_port_serves_no_pulls(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as visit:
        consumer = visit.visitor()
        consumer.address = f"127.0.0.1:{visit.broker.fast_port}"
        await consumer.heartbeat(tags(TOPIC))
        assert (await consumer.pull(0)).code == 3
