"""Messages that a group could not consume: tried again, and in the end dead letters (B7)."""

from __future__ import annotations

from typing import Any

import pytest

from cometmq.model.names import DELAY_TOPIC
from cometmq.model.queue import MessageQueue
from cometmq.model.subscription import SubscriptionGroupConfig
from cometmq.wire.record.ids import decode_offset_id
from tests.answers import Told
from tests.integration.broker.broker_kit import DELAYS, ID, BrokerKit, running_broker
from tests.waiting import eventually

FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


async def one_message(kit: BrokerKit, **fields: Any) -> int:
    """The offset in the log of a message that was just sent."""
    answer = await kit.send(properties={"UNIQ_KEY": ID, "TAGS": "a", "KEYS": "k"}, **fields)
    return decode_offset_id(answer.fields["msgId"] or "").commit_log_offset


async def test_a_message_sent_back_comes_again_through_the_retry_topic() -> None:
    """B7: later each time, and with its history."""
    async with running_broker(settings=DELAYS) as kit:
        offset = await one_message(kit, flag=3)
        assert await kit.send_back(offset, delay_level=1) == Told(0, None, {}, b"")
        origin = kit.stored("Orders")[0]
        await eventually(lambda: len(kit.stored("%RETRY%billing")) == 1, "it comes again")
        record = kit.stored("%RETRY%billing")[0]
        assert (bytes(record.body), record.flag, record.reconsume_times) == (b"hello", 3, 1)
        assert (record.born_timestamp_ms, record.born_host) == (origin.born_timestamp_ms, origin.born_host)
        assert record.properties() == {
            **origin.properties(),
            "ORIGIN_MESSAGE_ID": "7F000001"
            + kit.broker.port.to_bytes(4, "big").hex().upper()
            + f"{offset:016X}",
            "RETRY_TOPIC": "Orders",
            "DELAY": "1",
            "WAIT": "false",
            "REAL_TOPIC": "%RETRY%billing",
            "REAL_QID": "0",
        }


async def test_the_broker_chooses_a_longer_delay_with_every_retry() -> None:
    """B7: level 3 first."""
    async with running_broker() as kit:
        for tried in range(3):
            await kit.send_back(await one_message(kit, reconsume_times=tried))
            assert len(kit.stored(DELAY_TOPIC, 2 + tried)) == 1


async def test_the_history_of_a_message_stays_that_of_its_first_life() -> None:
    """B7: topic and id, however often it is sent back."""
    async with running_broker(settings=DELAYS) as kit:
        first = await one_message(kit)
        await kit.send_back(first, delay_level=1)
        await eventually(lambda: len(kit.stored("%RETRY%billing")) == 1, "it comes again")
        once = kit.stored("%RETRY%billing")[0]
        await kit.send_back(once.physical_offset, delay_level=-1)
        dead = kit.stored("%DLQ%billing")[0]
        assert dead.reconsume_times == 2
        assert dead.properties()["RETRY_TOPIC"] == "Orders"
        assert dead.properties()["ORIGIN_MESSAGE_ID"] == once.properties()["ORIGIN_MESSAGE_ID"]
        assert dead.properties()["DELAY"] == "0"


@pytest.mark.parametrize(
    ("sent", "back"),
    [
        ({"reconsume_times": 16}, {}),
        ({}, {"delay_level": -1}),
        ({"reconsume_times": 2}, {"max_reconsume_times": 2}),
    ],
    ids=["tried often enough", "given up", "the client's own limit"],
)
async def test_a_message_that_is_given_up_is_a_dead_letter(
    sent: dict[str, Any], back: dict[str, Any]
) -> None:
    """B7: in queue 0 of a topic that is made for it."""
    async with running_broker() as kit:
        assert (await kit.send_back(await one_message(kit, **sent), **back)).code == 0
        assert [bytes(record.body) for record in kit.stored("%DLQ%billing")] == [b"hello"]
        topic = kit.broker.context.topics.get("%DLQ%billing")
        assert topic is not None
        assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (1, 1, 6)
        assert sum(kit.broker.context.traffic.dead_letters.values()) == 1


async def test_what_cannot_be_sent_back_is_refused() -> None:
    """B7: with RocketMQ's codes and sentences."""
    async with running_broker(settings={"autoCreateSubscriptionGroup": "false"}) as kit:
        offset = await one_message(kit)
        assert (await kit.send_back(offset))[:2] == (26, f"subscription group not exist, billing {FAQ}")
        groups, topics = kit.broker.context.groups, kit.broker.context.topics
        groups.update(SubscriptionGroupConfig("billing"))
        assert (await kit.send_back(12_345))[:2] == (1, "look message by offset failed, 12345")
        topics.update(topics.ensure("%RETRY%closed", 1, perm=4))
        groups.update(SubscriptionGroupConfig("closed"))
        assert (await kit.send_back(offset, "closed"))[:2] == (
            16,
            "the topic[%RETRY%closed] sending message is forbidden",
        )


async def test_a_group_without_retries_drops_what_is_sent_back() -> None:
    """B7: and hears of success."""
    async with running_broker() as kit:
        offset = await one_message(kit)
        kit.broker.context.groups.update(SubscriptionGroupConfig("billing", retry_queue_nums=0))
        before = kit.broker.context.store.log.max_offset
        assert (await kit.send_back(offset)).code == 0
        assert kit.broker.context.store.log.max_offset == before


async def test_a_broker_that_does_not_write_takes_nothing_back() -> None:
    """B7."""
    async with running_broker(settings={"brokerPermission": "4"}) as kit:
        assert (await kit.send_back(await one_message(kit)))[:2] == (
            16,
            "the broker[127.0.0.1] sending message is forbidden",
        )


# Clients that send to the retry topic themselves


async def test_a_retry_topic_is_made_for_who_sends_to_it() -> None:
    """B7: with one queue if there is nothing to inherit from."""
    async with running_broker(settings={"autoCreateTopicEnable": "false"}) as kit:
        assert (await kit.send("%RETRY%billing", reconsume_times=1)).code == 0
        assert len(kit.stored("%RETRY%billing")) == 1


@pytest.mark.parametrize(
    "fields",
    [{"reconsume_times": 17}, {"reconsume_times": 3, "max_reconsume_times": 2}],
    ids=["the group's limit", "the client's limit"],
)
async def test_a_retry_too_many_goes_to_the_dead_letters(fields: dict[str, Any]) -> None:
    """B7: without a delay, whatever it asks for."""
    async with running_broker() as kit:
        answer = await kit.send("%RETRY%billing", properties={"DELAY": "3", "UNIQ_KEY": ID}, **fields)
        assert answer.code == 0
        assert kit.stored("%DLQ%billing")[0].properties()["DELAY"] == "-1"
        assert kit.stored("%RETRY%billing") == []


async def test_a_retry_at_the_limit_is_still_one() -> None:
    """B7: only beyond it a message is given up."""
    async with running_broker() as kit:
        await kit.send("%RETRY%billing", reconsume_times=16)
        assert len(kit.stored("%RETRY%billing")) == 1


async def test_a_group_that_consumes_in_order_has_no_retries() -> None:
    """B7: as long as one of its queues is locked."""
    async with running_broker() as kit:
        kit.broker.context.locks.lock("billing", "client", [MessageQueue("Orders", "embedded", 0)])
        await kit.send("%RETRY%billing", reconsume_times=1)
        assert len(kit.stored("%DLQ%billing")) == 1


async def test_a_retry_for_a_group_that_is_not_there_is_refused() -> None:
    """B7."""
    async with running_broker(settings={"autoCreateSubscriptionGroup": "false"}) as kit:
        answer = await kit.send("%RETRY%billing", reconsume_times=1)
        assert answer[:2] == (26, f"subscription group not exist, billing {FAQ}")
        assert kit.broker.context.store.log.max_offset == 0
