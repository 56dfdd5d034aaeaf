"""Offsets: those of queues, those that groups have reached, by time, and resets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cometmq.testing.clock import VirtualClock
from cometmq.wire.codes import RequestCode
from cometmq.wire.headers.offset import (
    CloneGroupOffsetRequest,
    GetEarliestMsgStoretimeRequest,
    GetMaxOffsetRequest,
    GetMinOffsetRequest,
    QueryConsumerOffsetRequest,
    QueryCorrectionOffset,
    ResetOffsetRequest,
    SearchOffsetRequest,
    UpdateConsumerOffsetRequest,
)
from cometmq.wire.json import fastjson
from tests.answers import Told
from tests.integration.client.consumer_kit import GROUP, TOPIC, Visitor, running_broker, tags
from tests.waiting import eventually


async def query(visitor: Visitor, *, queue_id: int = 0, **fields: Any) -> Told:
    header = QueryConsumerOffsetRequest(consumer_group=GROUP, topic=TOPIC, queue_id=queue_id, **fields)
    return await visitor.ask(RequestCode.QUERY_CONSUMER_OFFSET, header)


async def commit(visitor: Visitor, offset: int, *, group: str = GROUP, topic: str = TOPIC) -> Told:
    header = UpdateConsumerOffsetRequest(consumer_group=group, topic=topic, queue_id=0, commit_offset=offset)
    return await visitor.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header)


async def reset(visitor: Visitor, **fields: Any) -> Told:
    header = ResetOffsetRequest(
        **{"topic": TOPIC, "group": GROUP, "timestamp": -1, "is_force": True, **fields}
    )
    return await visitor.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)


def reset_table(answer: Told) -> dict[int, int]:
    return {
        dict(key)["queueId"]: offset for key, offset in fastjson.loads(answer.body)["offsetTable"].items()
    }


async def test_what_a_group_commits_is_where_it_goes_on(tmp_path: Path) -> None:
    """B9."""
    async with running_broker(tmp_path) as visit:
        consumer = visit.visitor()
        await consumer.heartbeat(tags(TOPIC))
        assert await commit(consumer, 42) == Told(0, None, {}, b"")
        assert await query(consumer) == Told(0, None, {"offset": "42"}, b"")
        assert (await commit(consumer, 7)).code == 0
        assert (await query(consumer)).fields == {"offset": "7"}


async def test_offsets_outlive_a_restart(tmp_path: Path) -> None:
    """B9."""
    async with running_broker(tmp_path) as visit:
        consumer = visit.visitor()
        await consumer.heartbeat(tags(TOPIC))
        await commit(consumer, 42)
    async with running_broker(tmp_path) as visit:
        assert (await query(visit.visitor())).fields == {"offset": "42"}


async def test_a_commit_of_an_unknown_group_or_topic_is_refused(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as visit:
        consumer = visit.visitor()
        await consumer.heartbeat(tags(TOPIC))
        no_group = await commit(consumer, 1, group="nobody")
        assert (no_group.code, no_group.remark) == (26, "Group nobody not exist!")
        no_topic = await commit(consumer, 1, topic="Nothing")
        assert (no_topic.code, no_topic.remark) == (17, "Topic Nothing not exist!")


async def test_a_new_group_begins_at_0_where_nothing_was_lost(tmp_path: Path) -> None:
    """B9: also in a queue without messages, so that it cannot miss the first one."""
    async with running_broker(tmp_path) as visit:
        consumer = visit.visitor()
        assert (await query(consumer)).fields == {"offset": "0"}
        await consumer.send(b"order")
        assert (await query(consumer)).fields == {"offset": "0"}
        unset = await query(consumer, set_zero_if_not_found=False)
        assert (unset.code, unset.remark) == (
            22,
            "Not found, do not set to zero, maybe this group boot first",
        )


async def test_a_new_group_does_not_begin_at_0_where_the_past_is_far_away(tmp_path: Path) -> None:
    store = {"access_message_in_memory_max_ratio": 0}
    async with running_broker(tmp_path, store=store) as visit:
        consumer = visit.visitor()
        await consumer.send(b"order")
        answer = await query(consumer)
        assert (answer.code, answer.remark) == (
            22,
            "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
        )


async def test_a_queue_says_where_it_begins_and_ends(tmp_path: Path) -> None:
    """B9."""
    clock = VirtualClock()
    async with running_broker(tmp_path, clock=clock) as visit:
        visitor = visit.visitor()
        for queue_id, offset, stored_ms in ((0, "3", clock.now_ms()), (1, "0", -1)):
            if queue_id == 0:
                for _ in range(3):
                    await visitor.send(b"order")
            end = await visitor.ask(
                RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequest(topic=TOPIC, queue_id=queue_id)
            )
            first = await visitor.ask(
                RequestCode.GET_MIN_OFFSET, GetMinOffsetRequest(topic=TOPIC, queue_id=queue_id)
            )
            earliest = await visitor.ask(
                RequestCode.GET_EARLIEST_MSG_STORETIME,
                GetEarliestMsgStoretimeRequest(topic=TOPIC, queue_id=queue_id),
            )
            assert end.fields == {"offset": offset}
            assert first.fields == {"offset": "0"}
            assert earliest.fields == {"timestamp": str(stored_ms)}


@pytest.mark.parametrize("in_memory_ratio", [40, 0], ids=["hot", "cold"])
async def test_an_offset_is_found_by_time(tmp_path: Path, in_memory_ratio: int) -> None:
    """B9."""
    clock = VirtualClock()
    start = clock.now_ms()
    store = {"access_message_in_memory_max_ratio": in_memory_ratio}
    async with running_broker(tmp_path, clock=clock, store=store) as visit:
        visitor = visit.visitor()
        for _ in range(5):
            await visitor.send(b"order")
            await visitor.send(b"order")
            clock.advance(100)

        async def found(after_ms: int, boundary: str | None = None, queue_id: int = 0) -> str | None:
            header = SearchOffsetRequest(
                topic=TOPIC, queue_id=queue_id, timestamp=start + after_ms, boundary_type=boundary
            )
            answer = await visitor.ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
            assert answer.code == 0
            return answer.fields["offset"]

        assert [await found(ms) for ms in (-1, 0, 1, 200, 400, 401)] == ["0", "0", "2", "4", "8", "10"]
        assert [await found(ms, "UPPER") for ms in (0, 200, 350, 401)] == ["1", "5", "7", "9"]
        assert await found(0, queue_id=1) == "0"


async def test_a_reset_counts_at_once_and_until_the_group_was_told(tmp_path: Path) -> None:
    """B9."""
    clock = VirtualClock()
    async with running_broker(tmp_path, clock=clock) as visit:
        consumer = visit.visitor()
        await consumer.heartbeat(tags(TOPIC))
        for _ in range(3):
            await consumer.send(b"order")
            clock.advance(100)
        await commit(consumer, 3)
        answer = await reset(consumer, timestamp=clock.now_ms() - 200)
        assert answer.code == 0
        assert reset_table(answer) == {0: 1, 1: 0, 2: 0, 3: 0}
        assert (await query(consumer)).fields == {"offset": "1"}
        ignored = await commit(consumer, 3)
        assert (ignored.code, ignored.remark) == (0, "Offset has been previously reset")
        assert (await consumer.pull(3)).fields["nextBeginOffset"] == "1"
        assert (await commit(consumer, 2)).remark is None
        assert (await query(consumer)).fields == {"offset": "2"}


async def test_a_reset_of_one_queue_to_an_offset(tmp_path: Path) -> None:
    """B9."""
    async with running_broker(tmp_path) as visit:
        consumer = visit.visitor()
        await consumer.heartbeat(tags(TOPIC))
        for _ in range(3):
            await consumer.send(b"order")
        assert reset_table(await reset(consumer, queue_id=0, offset=2)) == {0: 2}
        outside = await reset(consumer, queue_id=0, offset=5)
        assert (outside.code, outside.remark) == (
            1,
            "Target offset 5 not in consume queue range [0-3]",
        )
        no_topic = await reset(consumer, topic="Nothing")
        assert (no_topic.code, no_topic.remark) == (17, "Topic Nothing does not exist")
        no_group = await reset(consumer, group="nobody")
        assert (no_group.code, no_group.remark) == (26, "Group nobody does not exist")


async def test_clients_are_told_of_a_reset_where_the_broker_does_not_keep_it(tmp_path: Path) -> None:
    """B9."""
    async with running_broker(tmp_path, use_server_side_reset_offset=False) as visit:
        consumer, admin = visit.visitor("consumer"), visit.visitor("admin")
        for queue_id in range(4):
            visit.context.offsets.commit("somebody", GROUP, TOPIC, queue_id, 5)
        offline = await reset(admin, timestamp=0)
        assert offline.code == 206
        await consumer.heartbeat(tags(TOPIC))
        for _ in range(7):
            await consumer.send(b"order")
        assert reset_table(await reset(admin, is_force=False)) == {0: 5, 1: 0, 2: 0, 3: 0}
        await eventually(lambda: consumer.times_heard(RequestCode.RESET_CONSUMER_CLIENT_OFFSET))
        _, fields, body = consumer.heard[-1]
        assert (fields["group"], fields["topic"], fields["isForce"]) == (GROUP, TOPIC, "false")
        assert b'{{"brokerName":"broker-a","queueId":0,"topic":"Orders"}:5,' in body
        assert reset_table(await reset(admin, is_force=True))[0] == 7


async def test_offsets_can_be_cloned_and_compared(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as visit:
        admin, offsets = visit.visitor(), visit.context.offsets
        for _ in range(9):
            await admin.send(b"order")
        offsets.commit("somebody", "ahead", TOPIC, 0, 9)
        offsets.commit("somebody", "behind", TOPIC, 0, 4)
        header = CloneGroupOffsetRequest(src_group="ahead", dest_group=GROUP)
        assert (await admin.ask(RequestCode.CLONE_GROUP_OFFSET, header)).code == 0
        assert offsets.query(GROUP, TOPIC, 0) == 9

        async def correction(compared: str, left_out: str = "") -> dict[int, int]:
            answer = await admin.ask(
                RequestCode.QUERY_CORRECTION_OFFSET,
                QueryCorrectionOffset(topic=TOPIC, compare_group=compared, filter_groups=left_out),
            )
            found: dict[int, int] = fastjson.loads(answer.body)["correctionOffsets"]
            return found

        assert await correction(GROUP) == {0: 4}
        assert await correction("behind", "behind") == {0: 2**63 - 1}
        assert offsets.query("behind", TOPIC, 0) == 4


async def test_a_replica_can_have_all_offsets(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as visit:
        visit.context.offsets.commit("somebody", GROUP, TOPIC, 2, 9)
        admin = visit.visitor()
        consumers = await admin.ask(RequestCode.GET_ALL_CONSUMER_OFFSET)
        assert fastjson.loads(consumers.body)["offsetTable"] == {f"{TOPIC}@{GROUP}": {2: 9}}
        delays = await admin.ask(RequestCode.GET_ALL_DELAY_OFFSET)
        assert delays.code == 0
        assert "offsetTable" in fastjson.loads(delays.body)
        topics = await admin.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
        assert "SCHEDULE_TOPIC_XXXX" in json.loads(topics.body)["topicList"]
