"""What an administrator asks of a broker: topics, groups, settings, state (B1, B2, B13)."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.headers.group import (
    DeleteSubscriptionGroupRequest,
    GetAllSubscriptionGroupRequest,
    GetSubscriptionGroupConfigRequest,
    UpdateGroupForbiddenRequest,
)
from cometmq.wire.headers.topic import (
    CreateTopicListRequest,
    CreateTopicRequest,
    DeleteTopicRequest,
    GetAllTopicConfigRequest,
    GetTopicConfigRequest,
)
from cometmq.wire.java_properties import parse_properties
from cometmq.wire.json import fastjson
from tests.answers import Told
from tests.integration.broker.broker_kit import BrokerKit, running_broker
from tests.waiting import eventually

DONE = Told(0, None, {}, b"")
TOPIC = {
    "attributes": {},
    "order": False,
    "perm": 6,
    "readQueueNums": 4,
    "topicFilterType": "SINGLE_TAG",
    "topicName": "Orders",
    "topicSysFlag": 0,
    "writeQueueNums": 4,
}


async def update_topic(kit: BrokerKit, topic: str = "Orders", **fields: Any) -> Told:
    values: dict[str, Any] = {
        "default_topic": "TBW102",
        "read_queue_nums": 4,
        "write_queue_nums": 4,
        "perm": 6,
        "topic_filter_type": "SINGLE_TAG",
        **fields,
    }
    return await kit.call(RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicRequest(topic=topic, **values))


async def topic_config(kit: BrokerKit, topic: str = "Orders") -> Any:
    answer = await kit.ok(RequestCode.GET_TOPIC_CONFIG, GetTopicConfigRequest(topic=topic))
    return msgspec.json.decode(answer.body)


# Topics


async def test_a_topic_is_made_and_changed_on_request() -> None:
    """B2: it is on the disk when the answer comes."""
    async with running_broker() as kit:
        assert await update_topic(kit) == DONE
        assert await topic_config(kit) == TOPIC
        assert b'"Orders"' in (kit.embedded.folder / "config" / "topics.json").read_bytes()
        version = kit.broker.context.topics.data_version
        assert await update_topic(kit) == DONE
        assert kit.broker.context.topics.data_version == version
        assert await update_topic(kit, perm=4, order=True) == DONE
        assert await topic_config(kit) == {**TOPIC, "perm": 4, "order": True}
        assert kit.broker.context.topics.data_version.counter == version.counter + 1


async def test_attributes_are_set_changed_and_removed() -> None:
    """B2: in the spelling of RocketMQ's tools."""
    async with running_broker() as kit:
        await update_topic(kit, attributes="+message.type=FIFO,+cleanup.policy=DELETE")
        assert (await topic_config(kit))["attributes"] == {"message.type": "FIFO", "cleanup.policy": "DELETE"}
        await update_topic(kit, attributes="+message.type=NORMAL,+reserve.time=50")
        await update_topic(kit, attributes="-reserve.time")
        assert (await topic_config(kit))["attributes"] == {
            "message.type": "NORMAL",
            "cleanup.policy": "DELETE",
        }


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"topic": "a.b"}, 29, "contains illegal characters"),
        ({"topic": "TBW102"}, 29, "The topic[TBW102] is conflict with system topic."),
        ({"topic": "rmq_sys_x"}, 29, "The topic[rmq_sys_x] is conflict with system topic."),
        ({"read_queue_nums": -1}, 29, "have to be from 0 to"),
        ({"read_queue_nums": 4, "write_queue_nums": 2**31 - 1}, 29, "have to be from 0 to"),
        ({"read_queue_nums": 65_537, "write_queue_nums": 0}, 29, "have to be from 0 to"),
        ({"perm": 16}, 29, "perm 16"),
        ({"topic_filter_type": "ANY"}, 29, "topicFilterType ANY"),
        ({"attributes": "+message.type=MIXED"}, 29, "MIXED message type is not supported."),
        ({"attributes": "+colour=red"}, 1, "unsupported key: colour"),
        ({"attributes": "-message.type"}, 1, "only add attribute is supported while creating topic"),
        ({"attributes": "+message.type=ODD"}, 1, "value is not in set"),
        ({"attributes": "+reserve.time=soon"}, 1, "value is not in range"),
        ({"attributes": "+reserve.time=73"}, 29, "is more than fileReservedTime of 72 hours"),
        ({"attributes": "+queue.type=BatchCQ"}, 1, "not supported by this broker"),
        ({"attributes": "+cleanup.policy=COMPACTION"}, 1, "not supported by this broker"),
        ({"attributes": "message.type=FIFO"}, 1, "add/alter attribute format is wrong"),
        ({"attributes": "message.type"}, 1, "delete attribute format is wrong"),
    ],
)
async def test_a_topic_that_cannot_be_is_refused(fields: dict[str, Any], code: int, remark: str) -> None:
    """B2: and nothing is changed."""
    async with running_broker() as kit:
        before = kit.broker.context.topics.snapshot()
        answer = await update_topic(kit, **fields)
        assert answer.code == code
        assert remark in (answer.remark or "")
        assert kit.broker.context.topics.snapshot() == before


@pytest.mark.parametrize(
    ("member", "remark"),
    [
        (b'"retryQueueNums":2147483647', "retryQueueNums 2147483647 has to be from 0 to"),
        (b'"retryQueueNums":-1', "retryQueueNums -1 has to be from 0 to"),
        (b'"retryMaxTimes":2147483648', "does not fit in 32 bits"),
        (b'"brokerId":1000000000000000000000000000000', "does not fit in 64 bits"),
        (b'"groupRetryPolicy":{"customizedRetryPolicy":{"next":[1000000000000000000000]}}', "64 bits"),
    ],
)
async def test_a_group_whose_numbers_nobody_could_read_is_refused(member: bytes, remark: str) -> None:
    """B2: neither our table nor Apache's could hold them."""
    async with running_broker() as kit:
        before = kit.broker.context.groups.snapshot()
        body = b'{"groupName":"billing",' + member + b"}"
        answer = await kit.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert remark in (answer.remark or "")
        assert kit.broker.context.groups.snapshot() == before


async def test_a_topic_of_a_list_has_a_flag_that_fits() -> None:
    """B2."""
    async with running_broker() as kit:
        body = b'{"topicConfigList":[{"topicName":"Orders","topicSysFlag":1000000000000000000000}]}'
        answer = await kit.call(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, None, body)
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert "does not fit in 32 bits" in (answer.remark or "")


async def test_what_is_fixed_when_a_topic_is_made_stays() -> None:
    """B2."""
    async with running_broker() as kit:
        await update_topic(kit)
        answer = await update_topic(kit, attributes="+cleanup.policy=COMPACTION")
        assert answer[:2] == (1, "attempt to update an unchangeable attribute. key: cleanup.policy")


async def test_several_topics_are_made_at_once_or_none() -> None:
    """B2."""
    async with running_broker() as kit:
        header, code = CreateTopicListRequest(), RequestCode.UPDATE_AND_CREATE_TOPIC_LIST
        wrong = {"topicConfigList": [TOPIC, {**TOPIC, "topicName": "a.b"}]}
        assert (await kit.call(code, header, msgspec.json.encode(wrong))).code == 29
        assert kit.broker.context.topics.get("Orders") is None
        right = {
            "topicConfigList": [
                TOPIC,
                {**TOPIC, "topicName": "Others", "attributes": {"+message.type": "FIFO"}},
            ]
        }
        assert await kit.call(code, header, msgspec.json.encode(right)) == DONE
        assert (await topic_config(kit, "Others"))["attributes"] == {"message.type": "FIFO"}


async def test_a_deleted_topic_is_gone_with_everything_about_it() -> None:
    """B2: its queues, its offsets, the retry topics of pop consumers."""
    async with running_broker() as kit:
        context = kit.broker.context
        await kit.send()
        context.offsets.commit("a client", "billing", "Orders", 0, 1)
        context.topics.ensure("%RETRY%billing_Orders", 1)
        assert await kit.call(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequest(topic="Orders")) == DONE
        assert context.topics.get("Orders") is None
        assert context.topics.get("%RETRY%billing_Orders") is None
        assert context.offsets.query("billing", "Orders", 0) == -1
        assert not (kit.embedded.folder / "consumequeue" / "Orders").exists()
        answer = await kit.call(RequestCode.GET_TOPIC_CONFIG, GetTopicConfigRequest(topic="Orders"))
        assert answer[:2] == (17, "No topic in this broker. topic: Orders")
        assert (await kit.send()).fields["queueOffset"] == "0"


@pytest.mark.parametrize("topic", ["", "TBW102", "BenchmarkTest", "embedded", "DefaultCluster"])
async def test_a_topic_of_the_system_cannot_be_deleted(topic: str) -> None:
    """B2."""
    async with running_broker() as kit:
        answer = await kit.call(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequest(topic=topic))
        assert answer.code == 29


async def test_all_topics_are_listed_and_in_pages_if_wanted() -> None:
    """B2: as replicas and RocketMQ's tools ask for them."""
    async with running_broker() as kit:
        await update_topic(kit)
        whole = await kit.ok(RequestCode.GET_ALL_TOPIC_CONFIG, GetAllTopicConfigRequest())
        table = msgspec.json.decode(whole.body)
        assert table["topicConfigTable"]["Orders"] == TOPIC
        assert table["dataVersion"] == msgspec.to_builtins(kit.broker.context.topics.data_version)
        version = msgspec.json.encode(table["dataVersion"]).decode()
        names: list[str] = []
        while len(names) < len(table["topicConfigTable"]):
            header = GetAllTopicConfigRequest(topic_seq=len(names), data_version=version, max_topic_num=5)
            page = await kit.ok(RequestCode.GET_ALL_TOPIC_CONFIG, header)
            assert page.fields == {"totalTopicNum": str(len(table["topicConfigTable"]))}
            names += msgspec.json.decode(page.body)["topicConfigTable"]
        assert names == sorted(table["topicConfigTable"])


# Groups


async def test_a_group_is_made_shown_and_deleted() -> None:
    """B3: it is on the disk when the answer comes."""
    async with running_broker() as kit:
        wanted = {"groupName": "billing", "retryMaxTimes": 3, "groupRetryPolicy": {"type": "CUSTOMIZED"}}
        body = msgspec.json.encode(wanted)
        assert await kit.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body) == DONE
        header = GetSubscriptionGroupConfigRequest(group="billing")
        shown = msgspec.json.decode((await kit.ok(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, header)).body)
        assert shown == {
            "attributes": {},
            "brokerId": 0,
            "consumeBroadcastEnable": True,
            "consumeEnable": True,
            "consumeFromMinEnable": True,
            "consumeMessageOrderly": False,
            "consumeTimeoutMinute": 15,
            "groupName": "billing",
            "groupRetryPolicy": {"type": "CUSTOMIZED"},
            "groupSysFlag": 0,
            "notifyConsumerIdsChangedEnable": True,
            "retryMaxTimes": 3,
            "retryQueueNums": 1,
            "whichBrokerWhenConsumeSlowly": 1,
        }
        path = kit.embedded.folder / "config" / "subscriptionGroup.json"
        assert b'"billing"' in path.read_bytes()
        kit.broker.context.offsets.commit("a client", "billing", "Orders", 0, 7)
        deletion = DeleteSubscriptionGroupRequest(group_name="billing", clean_offset=True)
        assert await kit.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, deletion) == DONE
        assert b'"billing"' not in path.read_bytes()
        assert kit.broker.context.offsets.query("billing", "Orders", 0) == -1


async def test_a_group_with_an_illegal_name_is_refused() -> None:
    """B3."""
    async with running_broker() as kit:
        body = msgspec.json.encode({"groupConfigList": [{"groupName": "fine"}, {"groupName": "not.fine"}]})
        answer = await kit.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, None, body)
        assert answer.code == 29
        assert "The specified group: not.fine, contains illegal characters" in (answer.remark or "")
        assert kit.broker.context.groups.get("fine") is None


async def test_all_groups_are_listed() -> None:
    """B3: with what they are forbidden."""
    async with running_broker() as kit:
        forbid = UpdateGroupForbiddenRequest(group="billing", topic="Orders", readable=False)
        said = await kit.ok(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, forbid)
        assert msgspec.json.decode(said.body) == {"group": "billing", "topic": "Orders", "readable": False}
        kit.broker.context.groups.find("billing")
        whole = await kit.ok(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, GetAllSubscriptionGroupRequest())
        table = msgspec.json.decode(whole.body)
        assert table["forbiddenTable"] == {"billing": {"Orders": 4}}
        assert {"billing", "TOOLS_CONSUMER", "CID_RMQ_SYS_TRANS"} <= set(table["subscriptionGroupTable"])
        asked = UpdateGroupForbiddenRequest(group="billing", topic="Orders", readable=True)
        await kit.ok(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, asked)
        assert not kit.broker.context.groups.is_forbidden("billing", "Orders")


async def test_a_group_that_nobody_may_make_is_not_there() -> None:
    """B3: unless it is one of the system's."""
    async with running_broker(settings={"autoCreateSubscriptionGroup": "false"}) as kit:
        code = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG
        answer = await kit.call(code, GetSubscriptionGroupConfigRequest(group="billing"))
        assert answer[:2] == (26, "No group in this broker")
        await kit.ok(code, GetSubscriptionGroupConfigRequest(group="CID_RMQ_SYS_NEW"))


# Settings and state


async def test_all_settings_are_shown() -> None:
    """B13: those of the broker and of its store in one list."""
    async with running_broker() as kit:
        answer = await kit.ok(RequestCode.GET_BROKER_CONFIG)
        shown = parse_properties(answer.body.decode())
        assert shown["brokerName"] == "embedded"
        assert shown["listenPort"] == str(kit.broker.port)
        assert shown["flushDiskType"] == "ASYNC_FLUSH"
        assert shown["haListenPort"] == str(kit.broker.port + 1)
        assert "haMasterAddress" not in shown  # it has no value
        assert msgspec.json.decode(answer.fields["version"] or "")["counter"] == 0


async def test_settings_change_at_once_and_are_stored_in_the_file(tmp_path: Path) -> None:
    """B13: everything else in the file stays."""
    path = tmp_path / "broker.conf"
    path.write_text("brokerName=embedded\nforeign=1\n")
    async with running_broker(settings={"brokerConfigPath": str(path)}) as kit:
        answer = await kit.call(
            RequestCode.UPDATE_BROKER_CONFIG, None, b"autoCreateTopicEnable=false\nodd=1\n"
        )
        assert answer.fields == {"states": "autoCreateTopicEnable=live", "keptIn": str(path)}
        assert (await kit.send()).code == 17
        assert parse_properties(path.read_text()) == {
            "brokerName": "embedded",
            "foreign": "1",
            "autoCreateTopicEnable": "false",
        }
        version = (await kit.ok(RequestCode.GET_BROKER_CONFIG)).fields["version"]
        assert msgspec.json.decode(version or "")["counter"] == 1


@pytest.mark.parametrize(
    ("body", "code", "remark"),
    [
        (b"brokerConfigPath=x", 16, "Can not update config in black list."),
        (b"configBlackList=x", 16, "Can not update config in black list."),
        (b"rocketmqHome=x", 16, "Can not update config in black list."),
        (b"longPollingEnable=perhaps", 29, "longPollingEnable = 'perhaps' (request) is not true or false"),
        (b"flushDiskType=NEVER", 29, "flushDiskType = 'NEVER' (request) is not one of"),
        (b"\xff", 1, "string2Properties error"),
    ],
)
async def test_settings_that_cannot_be_changed_are_refused(body: bytes, code: int, remark: str) -> None:
    """B13: and none of the others in the request is."""
    async with running_broker() as kit:
        before = kit.broker.context.settings.broker
        answer = await kit.call(RequestCode.UPDATE_BROKER_CONFIG, None, b"slaveReadEnable=true\n" + body)
        assert answer.code == code
        assert (answer.remark or "").startswith(remark)
        assert kit.broker.context.settings.broker is before


async def test_settings_of_the_store_that_can_change_do_so_at_once() -> None:
    """B13: here the largest message."""
    async with running_broker() as kit:
        assert (await kit.send(body=b"x" * 2000)).code == 0
        await kit.ok(RequestCode.UPDATE_BROKER_CONFIG, None, b"maxMessageSize=1000")
        answer = await kit.send(body=b"x" * 2000)
        assert answer.code == 13
        assert "msg body length limit 1000B" in (answer.remark or "")


async def test_a_change_of_the_permission_is_announced() -> None:
    """B1: the routes show it."""
    async with running_broker() as kit:
        await update_topic(kit)
        version = kit.broker.context.topics.data_version
        await kit.ok(RequestCode.UPDATE_BROKER_CONFIG, None, b"brokerPermission=4")
        assert kit.broker.context.topics.data_version.counter == version.counter + 1


async def test_the_state_of_a_broker_has_the_names_that_tools_show() -> None:
    """B13: counters, rates, offsets, and where delayed messages are."""
    async with running_broker() as kit:
        await kit.send(body=b"x" * 100)
        await kit.send(properties={"DELAY": "3", "UNIQ_KEY": "A"})
        answer = await kit.ok(RequestCode.GET_BROKER_RUNTIME_INFO)
        table = fastjson.loads(answer.body)["table"]
        assert table["putMessageTimesTotal"] == table["msgPutTotalTodayNow"] == "2"
        assert table["commitLogMaxOffset"] == str(kit.broker.context.store.log.max_offset)
        assert table["scheduleMessageOffset_3"] == "0,1"
        assert table["brokerVersionDesc"].startswith("CometMQ_")
        assert len(table["putTps"].split(" ")) == 3  # over 10 s, a minute and 10 minutes
        assert table["sendThreadPoolQueueCapacity"] == "10000"
        assert table["commitLogDirCapacity"].startswith("Total : ")
        assert table["runtime"].startswith("[ 0 days, 0 hours")


async def runtime_info(kit: BrokerKit) -> dict[str, str]:
    answer = await kit.ok(RequestCode.GET_BROKER_RUNTIME_INFO)
    table: dict[str, str] = fastjson.loads(answer.body)["table"]
    return table


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_how_long_puts_take_is_measured(flush: str) -> None:
    """B13: thirteen ranges in the form that rocketmq-exporter reads, and the slow ones."""
    async with running_broker(settings={"flushDiskType": flush}) as kit:
        for _ in range(3):
            await kit.send()
        await kit.send_batch("Orders", [(b"a", {}), (b"b", {})], {"UNIQ_KEY": "K"})
        await kit.send(properties={"DELAY": "3", "UNIQ_KEY": "A"})
        table = await runtime_info(kit)
        ranges = table["putMessageDistributeTime"].split()
        assert [text.rpartition(":")[0] for text in ranges][:2] == ["[<=0ms]", "[0~10ms]"]
        assert len(ranges) == 13
        assert sum(int(text.rpartition(":")[2]) for text in ranges) == 6
        assert float(table["putLatency999"]) >= float(table["putLatency99"]) > 0
        assert int(table["putMessageEntireTimeMax"]) == int(
            kit.broker.context.traffic.put_times.longest_s * 1000
        )


async def test_sends_that_wait_for_the_disk_are_the_queue_of_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    """B13: with synchronous flush and a slow disk, how many wait and for how long."""
    async with running_broker(settings={"flushDiskType": "SYNC_FLUSH"}) as kit:
        await kit.send()
        disk_is_slow = threading.Event()
        flusher = kit.broker.context.store.flusher
        sync = flusher._target.sync

        def slow_sync() -> int:
            disk_is_slow.wait(30)
            return sync()

        monkeypatch.setattr(flusher._target, "sync", slow_sync)
        waiting = [asyncio.ensure_future(kit.send(body=b"%d" % number)) for number in range(3)]
        await eventually(lambda: kit.broker.context.sender.pressure.waiting == 3, "they wait")
        await eventually(lambda: flusher.longest_wait_s > 0.002, "for some time")
        table = await runtime_info(kit)
        assert table["sendThreadPoolQueueSize"] == "3"
        assert int(table["sendThreadPoolQueueHeadWaitTimeMills"]) >= 2
        disk_is_slow.set()
        assert [answer.code for answer in await asyncio.gather(*waiting)] == [0, 0, 0]
        table = await runtime_info(kit)
        assert table["sendThreadPoolQueueSize"] == table["sendThreadPoolQueueHeadWaitTimeMills"] == "0"


@pytest.mark.parametrize(
    "code",
    [
        RequestCode.DELETE_EXPIRED_COMMITLOG,
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
        RequestCode.CLEAN_UNUSED_TOPIC,
    ],
)
async def test_upkeep_can_be_asked_for(code: RequestCode) -> None:
    """B13: messages of topics that exist are not touched."""
    async with running_broker() as kit:
        await kit.send()
        await kit.send("Forgotten")
        kit.broker.context.topics.delete("Forgotten")
        assert await kit.call(code) == DONE
        assert len(kit.stored("Orders")) == 1
        forgotten = kit.embedded.folder / "consumequeue" / "Forgotten"
        assert forgotten.exists() is (code != RequestCode.CLEAN_UNUSED_TOPIC)


async def test_a_request_that_no_broker_knows_is_answered() -> None:
    """B7: with its number."""
    async with running_broker() as kit:
        assert (await kit.call(99_999))[:2] == (3, " request type 99999 not supported")


async def test_prometheus_finds_the_counters_of_a_broker() -> None:
    """B13: beside those of its port."""
    settings = {
        "metricsExporterType": "PROM",
        "metricsPromExporterPort": "0",
        "metricsPromExporterHost": "127.0.0.1",
    }
    async with running_broker(settings=settings) as kit:
        await kit.send()
        exporter = kit.broker.exporter
        assert exporter is not None
        reader, writer = await asyncio.open_connection("127.0.0.1", exporter.port)
        writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
        said = await reader.read()
        writer.close()
        node = b'node_id="embedded",node_type="broker"'
        assert b'cometmq_put_messages_total{cluster="DefaultCluster",%b} 1.0' % node in said
        code = b'code="SEND_MESSAGE_V2"'
        assert b'cometmq_requests_total{cluster="DefaultCluster",%b,%b} 1.0' % (code, node) in said
