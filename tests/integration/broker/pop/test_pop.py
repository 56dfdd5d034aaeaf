"""Popping: messages are handed out for a time, and come back unless they are acknowledged (B12)."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from cometmq.wire.codes import RequestCode
from tests.answers import now_ms
from tests.integration.broker.broker_kit import BrokerKit, running_broker
from tests.integration.broker.pop.pop_kit import (
    BROKER,
    GROUP,
    LONG_MS,
    QUICK,
    TOPIC,
    Consumer,
    filled,
    is_idle,
)
from tests.waiting import eventually

BODIES = [b"%d" % number for number in range(8)]


async def test_several_consumers_share_one_queue() -> None:
    """B12: each message goes to one of them, in the order of the queue, and none is left out."""
    async with running_broker(settings=QUICK) as kit:
        await filled(kit, BODIES)
        consumers = [Consumer(kit) for _ in range(3)]
        popped = await asyncio.gather(*(consumer.pop(3) for consumer in consumers))
        assert sorted(len(each.messages) for each in popped) == [2, 3, 3]
        assert sorted(body for each in popped for body in each.bodies) == BODIES
        for each in popped:
            assert each.bodies == sorted(each.bodies)
            assert (each.told.code, each.told.remark) == (0, "FOUND")
        assert (await consumers[0].pop()).told.code == 210


async def test_every_queue_of_a_topic_is_popped() -> None:
    """B12: queue -1 is any of them; each queue has a part of its own in the answer."""
    async with running_broker(settings=QUICK) as kit:
        for queue_id in range(4):
            await filled(kit, [b"%d" % queue_id], queue_id=queue_id)
        popped = await Consumer(kit).pop(queue_id=-1)
        assert sorted(popped.bodies) == [b"0", b"1", b"2", b"3"]
        assert [message.queue_id for message in popped.messages] == [int(body) for body in popped.bodies]
        starts = (popped.told.fields["startOffsetInfo"] or "").split(";")
        assert sorted(starts) == [f"0 {queue_id} 0" for queue_id in range(4)]


async def test_what_is_left_over_is_said() -> None:
    """B12."""
    async with running_broker(settings=QUICK) as kit:
        await filled(kit, BODIES)
        popped = await Consumer(kit).pop(3)
        assert (popped.rest, popped.told.fields["msgOffsetInfo"]) == (5, "0 0 0,1,2")
        assert popped.told.fields["invisibleTime"] == str(LONG_MS)


@pytest.mark.parametrize("invisible_ms", [300, 1700])
async def test_a_message_comes_back_when_its_time_is_over_and_not_before(invisible_ms: int) -> None:
    """B12: with the same body and properties, as the next attempt."""
    async with running_broker(settings=QUICK) as kit:
        await kit.send(TOPIC, b"again", {"UNIQ_KEY": "A", "TAGS": "paid", "KEYS": "7"})
        consumer = Consumer(kit)
        before_ms = now_ms()
        (message,) = (await consumer.pop(invisible_ms=invisible_ms)).messages
        assert message.record.reconsume_times == 0
        again = await consumer.pop_until(b"again")
        assert again.pop_time_ms >= before_ms + invisible_ms
        assert again.record.store_timestamp_ms <= before_ms + invisible_ms + 2000
        assert (again.record.reconsume_times, again.record.topic) == (1, TOPIC)
        properties = again.record.properties()
        assert (properties["TAGS"], properties["KEYS"], properties["UNIQ_KEY"]) == ("paid", "7", "A")
        assert properties["1ST_POP_TIME"] == str(message.pop_time_ms)
        assert again.topic == f"%RETRY%{GROUP}_{TOPIC}"


async def test_a_message_comes_back_as_often_as_it_is_not_acknowledged() -> None:
    """B12: from its retry topic into the same one, and the first pop stays the first."""
    async with running_broker(settings=QUICK) as kit:
        await filled(kit, [b"again"])
        consumer = Consumer(kit)
        first = (await consumer.pop(invisible_ms=300)).messages[0]
        for attempt in (1, 2, 3):
            message = await consumer.pop_until(b"again", invisible_ms=300)
            assert message.record.reconsume_times == attempt
            assert message.record.properties()["1ST_POP_TIME"] == str(first.pop_time_ms)
        await consumer.ack(message)
        await is_idle(kit)
        assert (await consumer.pop()).told.code == 210


@pytest.mark.parametrize("how", ["each", "together", "in one request"])
async def test_what_is_acknowledged_never_comes_back_and_the_rest_does(how: str) -> None:
    """B12: acknowledgements that come together are one record in the log."""
    async with running_broker(settings=QUICK) as kit:
        await filled(kit, BODIES)
        consumer = Consumer(kit)
        messages = (await consumer.pop(invisible_ms=1600)).messages
        acknowledged, left = messages[1::2], messages[::2]
        if how == "each":
            for message in acknowledged:
                assert (await consumer.ack(message)).code == 0
        elif how == "together":
            await consumer.ack_all(acknowledged)
        else:
            assert (await consumer.ack_batch(acknowledged)).code == 0
        await eventually(lambda: len(kit.stored(f"%RETRY%{GROUP}_{TOPIC}")) >= len(left), "the rest is back")
        await is_idle(kit)
        again = await consumer.pop()
        assert again.bodies == [message.body for message in left]


async def test_messages_that_are_all_acknowledged_leave_nothing_behind() -> None:
    """B12: not even a retry topic."""
    async with running_broker(settings=QUICK) as kit:
        await filled(kit, BODIES)
        consumer = Consumer(kit)
        messages = (await consumer.pop(invisible_ms=1300)).messages
        await consumer.ack_all(messages)
        await is_idle(kit)
        assert kit.broker.context.topics.get(f"%RETRY%{GROUP}_{TOPIC}") is None
        assert (await consumer.pop()).told.code == 210


async def test_a_changed_time_counts_from_now_on_and_the_old_handle_is_dead() -> None:
    """B12: longer, shorter, and acknowledged with the new handle."""
    async with running_broker(settings=QUICK) as kit:
        await filled(kit, [b"longer", b"shorter", b"done"])
        consumer = Consumer(kit)
        longer, shorter, done = (await consumer.pop(invisible_ms=2000)).messages
        changed = await consumer.change_time(longer, LONG_MS)
        await consumer.change_time(shorter, 300)
        done = await consumer.change_time(done, 1500)
        assert (await consumer.ack(done)).code == 0
        again = await consumer.pop_until(b"shorter")
        assert again.pop_time_ms < longer.pop_time_ms + 2000
        assert (await consumer.ack(again)).code == 0
        await eventually(lambda: now_ms() > longer.pop_time_ms + 2500, "the first time is over")
        assert (await consumer.pop()).told.code == 210
        assert (await consumer.ack(longer)).code == 0  # it says nothing about the new checkpoint
        await consumer.change_time(changed, 300)
        await consumer.pop_until(b"longer")


async def test_groups_pop_for_themselves() -> None:
    """B12."""
    async with running_broker(settings=QUICK) as kit:
        await filled(kit, BODIES)
        for group in ("billing", "shipping"):
            popped = await Consumer(kit, group).pop()
            assert popped.bodies == BODIES


async def test_a_new_group_begins_with_the_oldest_or_the_newest_message() -> None:
    """B12: as it asks; the newest only where the oldest is not in memory any more."""
    async with running_broker(settings={**QUICK, "initPopOffsetByCheckMsgInMem": "false"}) as kit:
        await filled(kit, BODIES)
        assert (await Consumer(kit, "oldest").pop(init_mode=0)).bodies == BODIES
        assert (await Consumer(kit, "newest").pop(init_mode=1)).bodies == BODIES[-1:]
    async with running_broker(settings=QUICK) as kit:
        await filled(kit, BODIES)
        assert (await Consumer(kit, "newest").pop(init_mode=1)).bodies == BODIES


@pytest.mark.parametrize(
    ("expression", "kind"), [("paid || sent", "TAG"), ("price > 10", "SQL92")], ids=["tags", "sql"]
)
async def test_a_filter_leaves_out_what_is_not_wanted(expression: str, kind: str) -> None:
    """B12, B8: also in the retry topic; the group goes on behind what it did not want."""
    async with running_broker(settings=QUICK) as kit:
        for number, (tag, price) in enumerate([("paid", 20), ("new", 5), ("sent", 11), ("new", 1)]):
            properties = {"UNIQ_KEY": str(number), "TAGS": tag, "price": str(price)}
            await kit.send(TOPIC, b"%d" % number, properties)
        consumer = Consumer(kit)
        popped = await consumer.pop(exp=expression, exp_type=kind, invisible_ms=300)
        assert popped.bodies == [b"0", b"2"]
        assert popped.told.fields["msgOffsetInfo"] == "0 0 0,2"
        assert (await consumer.ack(popped.messages[0])).code == 0
        await consumer.pop_until(b"2", exp=expression, exp_type=kind)
        assert (await consumer.pop(exp=expression, exp_type=kind)).told.code == 210
        assert kit.broker.context.offsets.query(GROUP, TOPIC, 0) == 4


async def test_the_second_version_of_retry_topics_is_used_where_it_is_switched_on() -> None:
    """B12: what is in the first one is read all the same."""
    async with running_broker(settings=QUICK) as kit:
        await filled(kit, [b"first"])
        consumer = Consumer(kit)
        await consumer.pop(invisible_ms=300)
        await eventually(lambda: len(kit.stored(f"%RETRY%{GROUP}_{TOPIC}")) == 1, "it is back")
        context = kit.broker.context
        context.settings.change(
            msgspec.structs.replace(context.settings.broker, enable_retry_topic_v2=True),
            context.settings.store,
        )
        first = await consumer.pop_until(b"first")
        assert (first.handle.split(" ")[4], (await consumer.ack(first)).code) == ("1", 0)
        await filled(kit, [b"second"])
        await consumer.pop_until(b"second", invisible_ms=300)
        await eventually(lambda: len(kit.stored(f"%RETRY%{GROUP}+{TOPIC}")) == 1, "it is in the second one")
        second = await consumer.pop_until(b"second")
        assert (second.handle.split(" ")[4], (await consumer.ack(second)).code) == ("2", 0)


async def test_a_message_of_a_delay_level_comes_back_without_a_further_delay() -> None:
    """B12."""
    async with running_broker(settings={**QUICK, "messageDelayLevel": "1s 1h"}) as kit:
        answer = await kit.send(TOPIC, b"later", {"UNIQ_KEY": "A", "DELAY": "1"})
        assert answer.code == 0
        consumer = Consumer(kit)
        await consumer.pop_until(b"later", invisible_ms=300)
        await consumer.pop_until(b"later", invisible_ms=300)


# Refusals


async def refused(kit: BrokerKit, **fields: object) -> tuple[int, str | None]:
    told = (await Consumer(kit).pop(**fields)).told  # type: ignore[arg-type]
    return told.code, told.remark


async def test_a_pop_that_cannot_be_is_refused_with_apaches_codes() -> None:
    """B12."""
    async with running_broker(settings=QUICK) as kit:
        code, remark = await refused(kit)
        assert code == 17
        assert (remark or "").startswith(f"topic[{TOPIC}] not exist, apply first please!")
        await filled(kit, [b"x"])
        late = "the broker[127.0.0.1] pop message is timeout too much"
        assert await refused(kit, born_time=now_ms() - 20_000, poll_ms=15_000) == (210, late)
        many = "the broker[127.0.0.1] pop message's num is greater than 32"
        assert await refused(kit, count=33) == (29, many)
        code, remark = await refused(kit, queue_id=4)
        assert (code, (remark or "")[:52]) == (29, "queueId[4] is illegal, topic:[Orders] topicConfig.re")
        assert await refused(kit, exp="price >", exp_type="SQL92") == (
            23,
            "parse the consumer's subscription failed",
        )
        assert (await refused(kit, invisible_ms=-1))[0] == 29
        assert (await refused(kit, invisible_ms=4 * 24 * 3600 * 1000))[0] == 29
        assert (await Consumer(kit, "not legal!").pop()).told.code == 26
        assert kit.broker.context.offsets.query(GROUP, TOPIC, 0) == -1


async def test_without_timers_nothing_is_popped() -> None:
    """B12: nothing would ever come back."""
    async with running_broker(settings={"timerWheelEnable": "false"}) as kit:
        await filled(kit, [b"x"])
        expected = "the broker[127.0.0.1] pop message is forbidden because timerWheelEnable is false"
        assert await refused(kit) == (1, expected)


async def test_an_acknowledgement_that_cannot_be_is_refused() -> None:
    """B12: with Apache's codes, and nothing is written."""
    async with running_broker(settings=QUICK) as kit:
        await filled(kit, BODIES)
        consumer = Consumer(kit)
        message = (await consumer.pop()).messages[0]
        end = kit.broker.context.store.log.max_offset
        assert (await consumer.ack(message, topic="Nowhere")).code == 17
        assert (await consumer.ack(message, queue_id=9)).code == 13
        told = await consumer.ack(message, offset=9)
        assert (told.code, told.remark) == (208, "offset is illegal, key:Orders@0, commit:9, store:0~8")
        for handle in ("", "1 2 3", "a b c d 0 embedded 0 0", "1 2 3 4 0", "9999999999999999999 2 3 4 0 b"):
            assert (await consumer.ack(message, extra_info=handle)).code == 13
        parts = message.handle.split(" ")
        assert (await consumer.ack(message, extra_info=" ".join((*parts[:3], "57", *parts[4:])))).code == 13
        far = " ".join((parts[0], str(now_ms() * 2), *parts[2:]))
        assert (await consumer.ack(message, extra_info=far)).code == 13
        assert (await consumer.try_to_change_time(message, 1000, extra_info=far)).code == 13
        assert (await consumer.ack_batch([message], pt=now_ms() * 2)).code == 13
        assert (await consumer.try_to_change_time(message, 1000, offset=8)).code == 208
        assert (await consumer.try_to_change_time(message, -1)).code == 29
        assert (await kit.call(RequestCode.BATCH_ACK_MESSAGE)).code == 208
        assert (await kit.call(RequestCode.BATCH_ACK_MESSAGE, body=b'{"acks":[]}')).code == 208
        for body in (b"nonsense", b'{"acks":7}', b'{"acks":[{"c":"g"}]}'):
            assert (await kit.call(RequestCode.BATCH_ACK_MESSAGE, body=body)).code == 1
        assert (await consumer.ack_batch([message], b="%%%")).code == 1
        assert kit.broker.context.store.log.max_offset == end


async def test_a_batch_may_use_the_long_names_and_passes_over_what_is_not_there() -> None:
    """B12."""
    async with running_broker(settings=QUICK) as kit:
        await filled(kit, BODIES[:2])
        consumer = Consumer(kit)
        first, second = (await consumer.pop(invisible_ms=1300)).messages
        parts = first.handle.split(" ")
        ack = {
            "consumerGroup": GROUP,
            "topic": TOPIC,
            "retry": "0",
            "startOffset": 0,
            "queueId": 0,
            "reviveQueueId": int(parts[3]),
            "popTime": int(parts[1]),
            "invisibleTime": int(parts[2]),
            "bitSet": "AQE=",
        }
        body = msgspec.json.encode({"brokerName": BROKER, "acks": [ack]})
        await kit.ok(RequestCode.BATCH_ACK_MESSAGE, body=body)
        again = await consumer.pop_until(second.body)
        assert again.record.reconsume_times == 1
        assert (await consumer.pop()).told.code == 210


async def test_a_group_that_is_sent_back_pops_from_there() -> None:
    """B12, B9."""
    async with running_broker(settings=QUICK) as kit:
        await filled(kit, BODIES)
        consumer = Consumer(kit)
        await consumer.ack_all((await consumer.pop()).messages)
        kit.broker.context.offsets.assign_reset(TOPIC, GROUP, 0, 6)
        assert (await consumer.pop()).bodies == BODIES[6:]


async def test_too_many_messages_that_are_out_stop_a_group() -> None:
    """B12: where the settings ask for it; acknowledgements let it go on."""
    settings = {**QUICK, "enablePopMessageThreshold": "true", "popInflightMessageThreshold": "3"}
    async with running_broker(settings=settings) as kit:
        await filled(kit, BODIES)
        consumer = Consumer(kit)
        messages = (await consumer.pop(4)).messages
        assert len(messages) == 4
        stopped = await consumer.pop()
        assert (stopped.told.code, stopped.rest) == (210, 4)
        await consumer.ack(messages[0])
        assert (await consumer.pop()).bodies == BODIES[4:]
