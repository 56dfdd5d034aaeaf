"""What monitors and administrators ask a broker about its numbers, its queues and its reading (B9, B13)."""

from __future__ import annotations

from typing import Any

import pytest

from cometmq.wire import fastjson
from cometmq.wire.codes import RequestCode
from cometmq.wire.headers.admin import SetCommitLogReadModeRequest, ViewBrokerStatsDataRequest
from cometmq.wire.headers.group import DeleteSubscriptionGroupRequest, GetConsumeStatsRequest
from cometmq.wire.headers.pull import PullMessageRequest, QueryConsumeQueueRequest
from cometmq.wire.headers.topic import DeleteTopicRequest, GetTopicStatsInfoRequest
from cometmq.wire.java_properties import parse_properties
from tests.integration.broker_kit import BrokerKit, Told, running_broker

TOPIC = "Orders"
GROUP = "billing"
TAGS_CODE_OF_A = 65


async def view(kit: BrokerKit, name: str, key: str) -> Told:
    header = ViewBrokerStatsDataRequest(stats_name=name, stats_key=key)
    return await kit.call(RequestCode.VIEW_BROKER_STATS_DATA, header)


async def minute_sum(kit: BrokerKit, name: str, key: str) -> int:
    answer = await view(kit, name, key)
    assert answer.code == 0, answer
    return int(fastjson.loads(answer.body)["statsMinute"]["sum"])


async def pull(kit: BrokerKit) -> Told:
    header = PullMessageRequest(
        consumer_group=GROUP,
        topic=TOPIC,
        queue_id=0,
        queue_offset=0,
        max_msg_nums=32,
        sys_flag=4,
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription="*",
        sub_version=0,
    )
    return await kit.call(RequestCode.PULL_MESSAGE, header)


async def query_queue(kit: BrokerKit, **fields: Any) -> Told:
    values: dict[str, Any] = {"topic": TOPIC, "queue_id": 0, "index": 0, "count": 10, **fields}
    return await kit.call(RequestCode.QUERY_CONSUME_QUEUE, QueryConsumeQueueRequest(**values))


# Statistics


async def test_what_comes_in_and_goes_out_is_counted_by_topic_and_group() -> None:
    """B13: from the next sample on, single messages and batches alike."""
    async with running_broker() as kit:
        await kit.send()
        await kit.send_batch(TOPIC, [(b"a", {}), (b"b", {})])
        assert (await pull(kit)).code == 0
        statistics = kit.broker.state.statistics
        assert await minute_sum(kit, "TOPIC_PUT_NUMS", TOPIC) == 0  # not sampled yet
        statistics.sample()
        assert await minute_sum(kit, "TOPIC_PUT_NUMS", TOPIC) == 3
        assert await minute_sum(kit, "GROUP_GET_NUMS", f"{TOPIC}@{GROUP}") == 3
        assert await minute_sum(kit, "GROUP_GET_SIZE", f"{TOPIC}@{GROUP}") > 3 * 100
        assert await minute_sum(kit, "BROKER_PUT_NUMS", "DefaultCluster") == 3
        assert await minute_sum(kit, "BROKER_GET_NUMS", "DefaultCluster") == 3
        topic = await kit.ok(RequestCode.GET_TOPIC_STATS_INFO, GetTopicStatsInfoRequest(topic=TOPIC))
        assert fastjson.loads(topic.body)["topicPutTps"] == pytest.approx(0.3)
        group = await kit.ok(
            RequestCode.GET_CONSUME_STATS, GetConsumeStatsRequest(consumer_group=GROUP, topic=TOPIC)
        )
        assert fastjson.loads(group.body)["consumeTps"] == pytest.approx(0.3)


async def test_a_message_that_was_sent_back_is_counted_for_its_topic_and_group() -> None:
    """B13."""
    async with running_broker() as kit:
        await kit.send()
        assert (await kit.send_back(0, GROUP)).code == 0
        kit.broker.state.statistics.sample()
        assert await minute_sum(kit, "SNDBCK_PUT_NUMS", f"{TOPIC}@{GROUP}") == 1


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("TOPIC_PUT_NUMS", "Nothing"),
        ("GROUP_GET_NUMS", "Orders@nobody"),
        ("BROKER_PUT_NUMS", "OtherCluster"),
        ("NO_SUCH_NAME", "Orders"),
    ],
)
async def test_numbers_that_are_not_there_are_refused(name: str, key: str) -> None:
    """B13."""
    async with running_broker() as kit:
        await kit.send()
        answer = await view(kit, name, key)
        assert (answer.code, answer.remark) == (1, f"The stats <{name}> <{key}> not exist")


async def test_numbers_go_with_their_topic_and_their_group() -> None:
    """B13: a topic that comes back begins at 0."""
    async with running_broker() as kit:
        await kit.send()
        await kit.send("Second")
        assert (await pull(kit)).code == 0
        await kit.ok(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequest(topic="Second"))
        assert (await view(kit, "TOPIC_PUT_NUMS", "Second")).code == 1
        await kit.send("Second")
        kit.broker.state.statistics.sample()
        assert await minute_sum(kit, "TOPIC_PUT_NUMS", "Second") == 1
        await kit.ok(RequestCode.DELETE_SUBSCRIPTIONGROUP, DeleteSubscriptionGroupRequest(group_name=GROUP))
        assert (await view(kit, "GROUP_GET_NUMS", f"{TOPIC}@{GROUP}")).code == 1


# The entries of a queue


async def test_the_entries_of_a_queue_are_shown() -> None:
    """B9: where each message is, how long, and the code of its tags."""
    async with running_broker() as kit:
        for tag in ("A", "A", "A"):
            await kit.send(properties={"TAGS": tag})
        answer = await query_queue(kit, index=1, count=1)
        shown = fastjson.loads(answer.body)
        (entry,) = shown.pop("queueData")
        record = kit.stored(TOPIC)[1]
        assert shown == {"maxQueueIndex": 3, "minQueueIndex": 0}
        assert entry == {
            "eval": False,
            "physicOffset": record.physical_offset,
            "physicSize": kit.stored(TOPIC)[2].physical_offset - record.physical_offset,
            "tagsCode": TAGS_CODE_OF_A,
        }


async def test_entries_are_shown_up_to_the_end_of_the_queue_across_its_files() -> None:
    """B9."""
    async with running_broker(settings={"mappedFileSizeConsumeQueue": "40"}) as kit:
        for _ in range(5):
            await kit.send()
        entries = fastjson.loads((await query_queue(kit)).body)["queueData"]
        assert [entry["physicOffset"] for entry in entries] == [
            record.physical_offset for record in kit.stored(TOPIC)
        ]


async def test_a_group_that_is_not_there_has_no_filter() -> None:
    """B9."""
    async with running_broker() as kit:
        await kit.send()
        answer = await query_queue(kit, consumer_group=GROUP)
        assert fastjson.loads(answer.body)["filterData"] == f"{GROUP}@{TOPIC} is not online!"


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"topic": "Nothing"}, 1, "0@Nothing is not exist!"),
        ({"queue_id": 9}, 1, "9@Orders is not exist!"),
        ({"queue_id": 3}, 0, "Index 0 of 3@Orders is not exist!"),
        ({"index": 7}, 0, "Index 7 of 0@Orders is not exist!"),
    ],
)
async def test_entries_that_are_not_there(fields: dict[str, Any], code: int, remark: str) -> None:
    """B9: an index outside of the queue is answered without entries, as tools expect."""
    async with running_broker() as kit:
        await kit.send()
        answer = await query_queue(kit, **fields)
        assert (answer.code, answer.remark, answer.body) == (code, remark, b"")


# Cold reads


async def cold_reads(kit: BrokerKit) -> Any:
    return fastjson.loads((await kit.ok(RequestCode.GET_COLD_DATA_FLOW_CTR_INFO)).body)


async def test_thresholds_of_cold_reads_are_kept_and_shown() -> None:
    """B13."""
    async with running_broker() as kit:
        assert await cold_reads(kit) == {
            "cgColdReadThreshold": 3_145_728,
            "configTable": {},
            "globalAcc": 0,
            "globalColdReadThreshold": 104_857_600,
            "runtimeTable": {},
        }
        await kit.ok(RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, None, b"billing=1000\naudit=5\n")
        assert (await cold_reads(kit))["configTable"] == {"billing": 1000, "audit": 5}
        await kit.ok(RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, None, b"billing")
        assert (await cold_reads(kit))["configTable"] == {"audit": 5}


async def test_a_threshold_that_is_no_number_changes_nothing() -> None:
    """B13: none of the groups in the request."""
    async with running_broker() as kit:
        code = RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG
        answer = await kit.call(code, None, b"audit=5\nbilling=much\n")
        assert answer.code == 29
        assert answer.remark == "the threshold 'much' of group billing is not a number of bytes"
        assert (await cold_reads(kit))["configTable"] == {}


async def test_the_read_ahead_mode_is_a_setting() -> None:
    """B13: 0 is normal, 1 is random, nothing else is a mode."""
    async with running_broker() as kit:
        code = RequestCode.SET_COMMITLOG_READ_MODE
        answer = await kit.call(code, SetCommitLogReadModeRequest(read_ahead_mode=1))
        assert (answer.code, answer.remark) == (0, "set commitlog readahead mode success, mode: 1")
        shown = parse_properties((await kit.ok(RequestCode.GET_BROKER_CONFIG)).body.decode())
        assert shown["dataReadAheadEnable"] == "false"
        assert (await kit.call(code, SetCommitLogReadModeRequest(read_ahead_mode=7))).code == 29
        assert (await kit.call(code)).code == 1


async def test_a_broker_without_a_controller_has_no_epochs() -> None:
    """B13."""
    async with running_broker() as kit:
        answer = await kit.call(RequestCode.GET_BROKER_EPOCH_CACHE)
        assert (answer.code, answer.remark) == (1, "this request only for controllerMode ")
