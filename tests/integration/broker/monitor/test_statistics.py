"""What monitors and administrators ask a broker about its numbers, its queues and its reading (B9, B13)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cometmq.broker.monitor import counters
from cometmq.broker.monitor import statistics as statistics_module
from cometmq.broker.pull import cold_reads as cold_reads_module
from cometmq.broker.pull import pull as pulling
from cometmq.wire.bodies.heartbeat import ConsumeType
from cometmq.wire.codes import RequestCode
from cometmq.wire.headers.admin import SetCommitLogReadModeRequest, ViewBrokerStatsDataRequest
from cometmq.wire.headers.group import DeleteSubscriptionGroupRequest, GetConsumeStatsRequest
from cometmq.wire.headers.pull import PullMessageRequest, QueryConsumeQueueRequest
from cometmq.wire.headers.topic import DeleteTopicRequest, GetTopicStatsInfoRequest
from cometmq.wire.java_properties import parse_properties
from cometmq.wire.json import fastjson
from tests.answers import Told
from tests.integration.broker.broker_kit import ID, BrokerKit, running_broker
from tests.integration.broker.pop.pop_kit import QUICK, Consumer, filled
from tests.integration.client.consumer_kit import Visitor, tags
from tests.waiting import eventually

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


async def pull(kit: BrokerKit, queue_id: int = 0, offset: int = 0) -> Told:
    header = PullMessageRequest(
        consumer_group=GROUP,
        topic=TOPIC,
        queue_id=queue_id,
        queue_offset=offset,
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
        statistics = kit.broker.context.statistics
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


def sizes(kit: BrokerKit, queue_id: int = 0) -> int:
    """The bytes of the log that the messages of a queue take."""
    return sum(record.total_size for record in kit.stored(TOPIC, queue_id))


async def test_sizes_and_queues_are_counted_too() -> None:
    """B13: what came into a topic and its queues, and what a group was given from which queue."""
    async with running_broker() as kit:
        await kit.send(body=b"a" * 100)
        await kit.send_batch(TOPIC, [(b"a", {}), (b"b", {})])
        await kit.send(queue_id=2)
        given = [await pull(kit), await pull(kit, 2), await pull(kit, 2)]
        assert [answer.code for answer in given] == [0, 0, 0]
        assert await minute_sum(kit, "QUEUE_PUT_NUMS", f"{TOPIC}@2") == 0  # not sampled yet
        kit.broker.context.statistics.sample()
        assert await minute_sum(kit, "TOPIC_PUT_SIZE", TOPIC) == sizes(kit) + sizes(kit, 2)
        puts = [await minute_sum(kit, f"QUEUE_PUT_{what}", f"{TOPIC}@0") for what in ("NUMS", "SIZE")]
        assert puts == [3, sizes(kit)]
        assert await minute_sum(kit, "QUEUE_PUT_SIZE", f"{TOPIC}@2") == sizes(kit, 2)
        gets = [await minute_sum(kit, f"QUEUE_GET_{what}", f"{TOPIC}@2@{GROUP}") for what in ("NUMS", "SIZE")]
        assert gets == [2, 2 * sizes(kit, 2)]
        assert await minute_sum(kit, "GROUP_GET_SIZE", f"{TOPIC}@{GROUP}") == sizes(kit) + 2 * sizes(kit, 2)
        assert await minute_sum(kit, "GROUP_GET_LATENCY", f"2@{TOPIC}@{GROUP}") == 0  # all in memory
        assert (await view(kit, "QUEUE_PUT_NUMS", f"{TOPIC}@1")).code == 1


async def test_queues_are_told_apart_only_if_that_is_wanted() -> None:
    """B13: without `enableDetailStat` the keys of latencies are shorter, too."""
    async with running_broker(settings={"enableDetailStat": "false"}) as kit:
        await kit.send()
        assert (await pull(kit)).code == 0
        kit.broker.context.statistics.sample()
        assert (await view(kit, "QUEUE_PUT_NUMS", f"{TOPIC}@0")).code == 1
        assert (await view(kit, "QUEUE_GET_NUMS", f"{TOPIC}@0@{GROUP}")).code == 1
        assert await minute_sum(kit, "TOPIC_PUT_NUMS", TOPIC) == 1
        assert await minute_sum(kit, "GROUP_GET_LATENCY", f"{TOPIC}@{GROUP}") == 0


async def test_beyond_the_limits_sums_stay_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """B13: queues that are not told apart count for their topic and their group."""
    monkeypatch.setattr(statistics_module, "MOST_QUEUES", 1)
    monkeypatch.setattr(counters, "MOST_DELIVERED_QUEUES", 1)
    async with running_broker() as kit:
        for queue_id in (0, 1, 2):
            await kit.send(queue_id=queue_id)
            assert (await pull(kit, queue_id)).code == 0
        kit.broker.context.statistics.sample()
        assert await minute_sum(kit, "TOPIC_PUT_NUMS", TOPIC) == 3
        assert await minute_sum(kit, "GROUP_GET_NUMS", f"{TOPIC}@{GROUP}") == 3
        told = [(await view(kit, "QUEUE_PUT_NUMS", f"{TOPIC}@{queue_id}")).code for queue_id in (0, 1, 2)]
        assert told == [0, 1, 1]
        told = [(await view(kit, "QUEUE_GET_NUMS", f"{TOPIC}@{each}@{GROUP}")).code for each in (0, 1)]
        assert told == [0, 1]
        monkeypatch.setattr(counters, "MOST_GROUPS", 1)
        kit.broker.context.traffic.got(TOPIC, "another", 0, 1, 100)
        assert (await view(kit, "GROUP_GET_NUMS", f"{TOPIC}@another")).code == 1


async def test_a_long_sample_is_taken_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """B13: others get their turn, and nothing is counted twice or left out."""
    monkeypatch.setattr(statistics_module, "AT_ONCE", 1)
    async with running_broker() as kit:
        for number in range(10):
            await kit.send(queue_id=number % 3)
        for queue_id in range(3):
            assert (await pull(kit, queue_id)).code == 0
        statistics = kit.broker.context.statistics
        for turn in (1, 2):
            statistics.sample()
            statistics.sample()  # the first is not at its end: this one is left out
            await eventually(lambda: statistics._sampling is None, f"sample {turn} is taken")
        assert await minute_sum(kit, "TOPIC_PUT_NUMS", TOPIC) == 10
        assert await minute_sum(kit, "TOPIC_PUT_SIZE", TOPIC) == sum(sizes(kit, each) for each in range(3))
        assert await minute_sum(kit, "GROUP_GET_NUMS", f"{TOPIC}@{GROUP}") == 10


async def test_what_was_there_before_the_start_does_not_count(tmp_path: Path) -> None:
    """B13."""
    async with running_broker(tmp_path) as kit:
        for _ in range(3):
            await kit.send()
    async with running_broker(tmp_path) as kit:
        assert (await view(kit, "TOPIC_PUT_NUMS", TOPIC)).code == 1
        await kit.send(body=b"new")
        kit.broker.context.statistics.sample()
        assert await minute_sum(kit, "TOPIC_PUT_NUMS", TOPIC) == 1
        assert await minute_sum(kit, "TOPIC_PUT_SIZE", TOPIC) == kit.stored(TOPIC)[-1].total_size


async def test_messages_of_the_system_are_left_out_where_that_is_asked_for() -> None:
    """B13: a delayed message is in a topic of the system until its time comes."""
    async with running_broker() as kit:
        await kit.send()
        await kit.send(properties={"UNIQ_KEY": ID, "DELAY": "5"})
        assert (await pull(kit)).code == 0
        kit.broker.context.statistics.sample()
        cluster = "DefaultCluster"
        assert await minute_sum(kit, "BROKER_PUT_NUMS", cluster) == 2
        assert await minute_sum(kit, "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC", cluster) == 1
        assert await minute_sum(kit, "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC", cluster) == 1
        await kit.ok(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequest(topic=TOPIC))
        kit.broker.context.statistics.sample()
        assert await minute_sum(kit, "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC", cluster) == 1
        assert await minute_sum(kit, "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC", cluster) == 1


async def test_pops_and_acknowledgements_are_counted() -> None:
    """B12, B13: checkpoints, and messages that are done."""
    async with running_broker(settings=QUICK) as kit:
        await filled(kit, [b"one", b"two", b"three"])
        consumer = Consumer(kit)
        popped = (await consumer.pop(3)).messages
        for message in popped[:2]:
            await consumer.ack(message)
        kit.broker.context.statistics.sample()
        pair = f"{TOPIC}@{GROUP}"
        assert await minute_sum(kit, "GROUP_CK_NUMS", pair) == 1
        assert await minute_sum(kit, "GROUP_ACK_NUMS", pair) == 2
        assert await minute_sum(kit, "BROKER_CK_NUMS", "DefaultCluster") == 1
        assert await minute_sum(kit, "BROKER_ACK_NUMS", "DefaultCluster") == 2


async def test_a_message_that_was_sent_back_is_counted_for_its_topic_and_group() -> None:
    """B13."""
    async with running_broker() as kit:
        await kit.send()
        assert (await kit.send_back(0, GROUP)).code == 0
        kit.broker.context.statistics.sample()
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
        kit.broker.context.statistics.sample()
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


async def cold_broker_told(
    kit: BrokerKit, consume_type: ConsumeType, monkeypatch: pytest.MonkeyPatch
) -> list[tuple[int, str | None, int]]:
    """Code, remark and number of messages of three pulls of what is far back."""
    monkeypatch.setattr(pulling, "HOLD_S", 0.0)
    monkeypatch.setattr(kit.broker.context.store.reader, "_hot_bytes", 2000)
    visitor = Visitor(kit.embedded.address)
    try:
        await visitor.heartbeat(tags(TOPIC), group=GROUP, consume_type=consume_type)
        for _ in range(10):
            await kit.send(body=b"x" * 1000)
        answers = [await visitor.pull(topic=TOPIC, group=GROUP, max_msg_nums=4) for _ in range(3)]
    finally:
        await visitor.client.stop()
    return [
        (answer.code, answer.remark, int(answer.fields.get("nextBeginOffset") or 0)) for answer in answers
    ]


@pytest.mark.parametrize(
    ("consume_type", "expected"),
    [
        (ConsumeType.CONSUME_PASSIVELY, (2, cold_reads_module.REFUSAL, 0)),
        (ConsumeType.CONSUME_ACTIVELY, (0, "FOUND", 1)),
    ],
)
async def test_a_group_that_reads_too_much_from_far_back_is_held_back(
    consume_type: ConsumeType, expected: tuple[int, str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """B13: a pushed consumer is told to come later; one that asks by itself waits for a single message."""
    monkeypatch.setattr(cold_reads_module, "SPAN_MS", 600_000)
    async with running_broker(settings={"coldDataFlowControlEnable": "true"}) as kit:
        await kit.ok(RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, None, b"billing=3000\n")
        first, second, third = await cold_broker_told(kit, consume_type, monkeypatch)
        assert first == (0, "FOUND", 4)
        assert second == expected
        assert third == expected
        shown = await cold_reads(kit)
        assert shown["globalAcc"] == shown["runtimeTable"][GROUP]["coldAcc"] >= 4000
        kit.broker.context.statistics.sample()
        assert kit.broker.context.statistics.find("GROUP_GET_LATENCY", f"0@{TOPIC}@{GROUP}") is not None


async def test_nobody_is_held_back_unless_that_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """B13."""
    async with running_broker() as kit:
        await kit.ok(RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, None, b"billing=1\n")
        told = await cold_broker_told(kit, ConsumeType.CONSUME_PASSIVELY, monkeypatch)
        assert told == [(0, "FOUND", 4)] * 3


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


def is_read_at_random(path: Path) -> bool:
    """Whether the kernel was told that this file, which is mapped, is not read in order."""
    parts = Path("/proc/self/smaps").read_text().split(f" {path}\n")
    flags = [next(line for line in part.splitlines() if line.startswith("VmFlags")) for part in parts[1:]]
    assert flags, path
    return all(" rr " in f"{line} " for line in flags)


async def test_the_read_ahead_mode_is_a_setting() -> None:
    """B13: 0 is normal, 1 is random, nothing else is a mode; it is in force at once."""
    async with running_broker() as kit:
        await kit.send()
        file = kit.embedded.folder / "commitlog" / "00000000000000000000"
        assert not is_read_at_random(file)
        code = RequestCode.SET_COMMITLOG_READ_MODE
        answer = await kit.call(code, SetCommitLogReadModeRequest(read_ahead_mode=1))
        assert (answer.code, answer.remark) == (0, "set commitlog readahead mode success, mode: 1")
        assert is_read_at_random(file)
        shown = parse_properties((await kit.ok(RequestCode.GET_BROKER_CONFIG)).body.decode())
        assert shown["dataReadAheadEnable"] == "false"
        await kit.ok(code, SetCommitLogReadModeRequest(read_ahead_mode=0))
        assert not is_read_at_random(file)
        assert (await kit.call(code, SetCommitLogReadModeRequest(read_ahead_mode=7))).code == 29
        assert (await kit.call(code)).code == 1


async def test_a_broker_without_a_controller_has_no_epochs() -> None:
    """B13."""
    async with running_broker() as kit:
        answer = await kit.call(RequestCode.GET_BROKER_EPOCH_CACHE)
        assert (answer.code, answer.remark) == (1, "this request only for controllerMode ")
