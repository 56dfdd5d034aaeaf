"""Sending to a broker: what is stored, what is answered, what is refused (B2, B6, B7)."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from cometmq.remoting.client import RemotingClient
from cometmq.wire.codes import RequestCode
from cometmq.wire.frame.framing import JSON, ROCKETMQ
from cometmq.wire.headers.send import SendMessageRequest
from cometmq.wire.record.ids import decode_offset_id
from tests.integration.broker.broker_kit import BORN_MS, ID, BrokerKit, running_broker, send_header
from tests.waiting import eventually

BOTH = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


@pytest.mark.parametrize("encoding", [JSON, ROCKETMQ], ids=["json", "binary"])
async def test_a_message_is_stored_as_it_was_sent_and_the_answer_says_where(encoding: int) -> None:
    """B6: also the second time, when the topic is known."""
    async with running_broker() as kit:
        kit.client.serialize_type = encoding
        for offset in range(3):
            answer = await kit.send(body=b"hello", flag=7, sys_flag=0, reconsume_times=2)
            assert (answer.code, answer.remark) == (0, None)
            fields = dict(answer.fields)
            place = decode_offset_id(fields.pop("msgId") or "")
            assert fields == {"queueId": "0", "queueOffset": str(offset), "transactionId": ID, **BOTH}
            assert f"{place.store_host.ip}:{place.store_host.port}" == kit.embedded.address
            record = kit.stored("Orders")[offset]
            assert record.physical_offset == place.commit_log_offset
            assert (bytes(record.body), record.flag, record.reconsume_times) == (b"hello", 7, 2)
            assert (record.topic, record.queue_id, record.queue_offset) == ("Orders", 0, offset)
            assert record.born_timestamp_ms == BORN_MS
            assert record.properties_block == (
                b"MSG_REGION\x01DefaultRegion\x02UNIQ_KEY\x01%b\x02CLUSTER\x01DefaultCluster\x02"
                b"WAIT\x01true\x02TRACE_ON\x01true\x02" % ID.encode()
            )


async def test_old_clients_send_with_long_field_names() -> None:
    """B6: SEND_MESSAGE has the same effect."""
    async with running_broker() as kit:
        short = send_header("Orders", None)
        header = SendMessageRequest(
            producer_group=short.producer_group,
            topic=short.topic,
            default_topic=short.default_topic,
            default_topic_queue_nums=short.default_topic_queue_nums,
            queue_id=1,
            sys_flag=0,
            born_timestamp=short.born_timestamp,
            flag=0,
            properties=short.properties,
        )
        for _ in range(2):
            assert (await kit.call(RequestCode.SEND_MESSAGE, header, b"old")).code == 0
        assert [bytes(record.body) for record in kit.stored("Orders", 1)] == [b"old", b"old"]


async def test_a_message_without_an_id_gets_one() -> None:
    """B6: a different one each time, and the answer says it."""
    async with running_broker() as kit:
        first = await kit.send(properties={})
        second = await kit.send(properties={"TAGS": "a"})
        ids = [record.properties()["UNIQ_KEY"] for record in kit.stored("Orders")]
        assert ids == [first.fields["transactionId"], second.fields["transactionId"]]
        assert len(set(ids)) == 2
        assert all(re.fullmatch("[0-9A-F]{32}", each) for each in ids)


async def test_the_broker_drops_what_a_consumer_left_of_a_pop() -> None:
    """B6: POP_CK never gets into the store."""
    async with running_broker() as kit:
        await kit.send(properties={"POP_CK": "1 2 3", "UNIQ_KEY": ID})
        assert set(kit.stored("Orders")[0].properties()) == {"UNIQ_KEY", "MSG_REGION", "TRACE_ON", "CLUSTER"}


@pytest.mark.parametrize(
    "text",
    [
        "UNIQ_KEY\x01A\x02TAGS\x01\x02",  # a value is missing
        "UNIQ_KEY\x01A\x02TAGS",  # the separator, too
        "UNIQ_KEY\x01A\x01B\x02\x02",  # more separators than belong there
        "UNIQ_KEY\x01A",
        "TAGS\x01x\x02UNIQ_KEY\x01first\x02UNIQ_KEY\x01A\x02",
        "UNIQ_KEY\x01A\x02\x01nameless\x02",
    ],
)
async def test_odd_properties_are_read_as_java_reads_them(text: str) -> None:
    """B6: what is no property is dropped, and the message is stored."""
    async with running_broker() as kit:
        for _ in range(2):
            answer = await kit.send(properties=text)
            assert answer.code == 0
        block = bytes(kit.stored("Orders")[1].properties_block)
        names = [pair.split(b"\x01")[0] for pair in block.split(b"\x02")[:-1]]
        assert len(names) == len(set(names))
        assert b"UNIQ_KEY" in names
        assert b"" not in names


async def test_properties_beyond_ascii_are_stored_as_utf_8() -> None:
    async with running_broker() as kit:
        for _ in range(2):
            await kit.send(properties={"UNIQ_KEY": ID, "城市": "杭州"})
        assert kit.stored("Orders")[1].properties()["城市"] == "杭州"


async def test_a_negative_queue_lets_the_broker_choose() -> None:
    """B7: over all write queues."""
    async with running_broker() as kit:
        chosen = {(await kit.send(queue_id=-1)).fields["queueId"] for _ in range(100)}
        assert chosen == {"0", "1", "2", "3"}


async def test_a_one_way_send_is_stored_and_not_answered() -> None:
    """B6: like any other message."""
    async with running_broker() as kit:
        header = send_header("Orders", None)
        await kit.client.oneway(kit.embedded.address, RequestCode.SEND_MESSAGE_V2, header, body=b"x")
        await eventually(lambda: len(kit.stored("Orders")) == 1, "the message is stored")
        assert (await kit.send()).fields["queueOffset"] == "1"


async def test_the_fast_port_takes_sends_and_no_pulls() -> None:
    """B7: it is two below the main port."""
    async with running_broker() as kit:
        address = f"127.0.0.1:{kit.broker.port - 2}"
        client = RemotingClient()
        answer = await client.call(
            address, RequestCode.SEND_MESSAGE_V2, send_header("Orders", None), body=b"x"
        )
        assert answer.code == 0
        answer = await client.call(address, RequestCode.PULL_MESSAGE)
        assert (answer.code, answer.remark) == (3, " request type 11 not supported")
        await client.stop()


async def refused(kit: BrokerKit, **fields: object) -> tuple[int, str | None]:
    """Code and remark of a send that is refused; nothing was stored."""
    before = kit.broker.context.store.log.max_offset
    answer = await kit.send(**fields)  # type: ignore[arg-type]
    assert kit.broker.context.store.log.max_offset == before
    assert answer.fields == BOTH
    return answer.code, answer.remark


@pytest.mark.parametrize(
    ("topic", "remark"),
    [
        ("", "The specified topic is blank."),
        (" ", "The specified topic is blank."),
        ("a.b", "The specified topic: a.b, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("x" * 128, f"The specified topic: {'x' * 128}, is longer than topic max length: 127"),
        (
            "%RETRY%" + "x" * 249,
            f"The specified topic is DLQ or Retry topic: %RETRY%{'x' * 249}, "
            "and it's longer than topic max length: 255",
        ),
    ],
)
async def test_a_name_that_no_topic_can_have_is_refused(topic: str, remark: str) -> None:
    """B7: with the sentence that says why."""
    async with running_broker() as kit:
        assert await refused(kit, topic=topic) == (29, remark)


@pytest.mark.parametrize(
    "topic",
    [
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    ],
)
async def test_topics_of_the_system_take_no_messages_of_clients(topic: str) -> None:
    """B7."""
    async with running_broker() as kit:
        assert await refused(kit, topic=topic) == (16, f"Sending message to topic[{topic}] is forbidden.")


async def test_a_queue_that_the_topic_has_not_is_refused() -> None:
    """B7: the larger of both numbers of queues counts."""
    async with running_broker() as kit:
        await kit.embedded.create_topic("Orders", queues=2, read_queue_nums=3)
        assert (await kit.send(queue_id=2)).code == 0
        code, remark = await refused(kit, queue_id=3)
        assert code == 29
        assert remark is not None
        assert remark.startswith(
            "request queueId[3] is illegal, TopicConfig [topicName=Orders, readQueueNums=3, "
            "writeQueueNums=2, perm=RW-, topicFilterType=SINGLE_TAG, topicSysFlag=0, order=false, "
            "attributes={}] Producer: 127.0.0.1:"
        )


async def test_a_message_that_is_too_large_is_refused() -> None:
    """B7: the body, and the properties."""
    async with running_broker(settings={"maxMessageSize": "1000"}) as kit:
        await kit.send()
        remark = (
            "the message is illegal, maybe msg body or properties length not matched. "
            "msg body length limit 1000B, msg properties length limit 32KB."
        )
        assert await refused(kit, body=b"x" * 1001) == (13, remark)
        assert await refused(kit, properties={"UNIQ_KEY": ID, "p": "x" * 32_700}) == (13, remark)
        assert (await kit.send(body=b"x" * 1000)).code == 0


async def test_a_broker_that_does_not_write_refuses_ordered_topics() -> None:
    """B7: others are left to the clients, which see the permission in the route."""
    async with running_broker(settings={"brokerPermission": "4"}) as kit:
        await kit.embedded.create_topic("Ordered", order=True)
        assert await refused(kit, topic="Ordered") == (
            16,
            "the broker[127.0.0.1] sending message is forbidden",
        )
        assert (await kit.send("Orders")).code == 0


async def test_a_broker_may_open_later() -> None:
    """B7: until then it says when."""
    later = 4_102_444_800_000
    async with running_broker(settings={"startAcceptSendRequestTimeStamp": str(later)}) as kit:
        code, remark = await refused(kit)
        assert code == 1
        assert re.fullmatch(
            r"broker unable to service, until \d{4}-\d\d-\d\d \d\d:\d\d:\d\d,000", remark or ""
        )


# New topics


async def test_a_new_topic_is_made_from_the_default_topic() -> None:
    """B2: with the smaller number of queues, and its permission without the inheritance."""
    async with running_broker() as kit:
        await kit.send("Small", default_topic_queue_nums=3)
        await kit.send("Large", default_topic_queue_nums=50)
        await kit.send("None", default_topic_queue_nums=-1, queue_id=-1)
        topics = kit.broker.context.topics
        made = {name: topics.get(name) for name in ("Small", "Large", "None")}
        assert {
            name: topic and (topic.read_queue_nums, topic.write_queue_nums) for name, topic in made.items()
        } == {
            "Small": (3, 3),
            "Large": (8, 8),
            "None": (0, 0),
        }
        assert made["Small"] is not None
        assert made["Small"].perm == 6


async def test_a_new_topic_is_on_the_disk_before_its_first_message_is_confirmed() -> None:
    """B2: a kill right after the answer loses neither."""
    async with running_broker() as kit:
        await kit.send("Fresh")
        assert b'"Fresh"' in (kit.embedded.folder / "config" / "topics.json").read_bytes()


async def test_with_auto_creation_switched_off_a_producer_gets_a_clear_error() -> None:
    """B2: from every topic that it could inherit from."""
    async with running_broker(settings={"autoCreateTopicEnable": "false"}) as kit:
        refusal = (17, f"topic[Orders] not exist, apply first please!{FAQ}")
        assert await refused(kit) == refusal
        assert await refused(kit, default_topic="Missing") == refusal
        assert kit.broker.context.topics.get("Orders") is None


async def test_only_a_topic_that_says_so_can_be_inherited_from() -> None:
    """B2."""
    async with running_broker() as kit:
        await kit.embedded.create_topic("Template", queues=2, perm=7)
        await kit.embedded.create_topic("Plain", queues=2)
        assert (await kit.send("Orders", default_topic="Template")).code == 0
        assert (await kit.send("Others", default_topic="Plain")).code == 17


# Batches


async def test_a_batch_is_stored_message_by_message() -> None:
    """B6: one answer names them all."""
    async with running_broker() as kit:
        items: list[tuple[bytes, Mapping[str, str]]] = [
            (b"one", {"TAGS": "a", "KEYS": "k1"}),
            (b"two", {}),
            (b"three", {"i": "3"}),
        ]
        answer = await kit.send_batch("Orders", items)
        assert (answer.code, answer.fields["queueOffset"], answer.fields["transactionId"]) == (0, "0", ID)
        records = kit.stored("Orders")
        ids = (answer.fields["msgId"] or "").split(",")
        assert [decode_offset_id(each).commit_log_offset for each in ids] == [
            record.physical_offset for record in records
        ]
        assert [bytes(record.body) for record in records] == [b"one", b"two", b"three"]
        assert [record.queue_offset for record in records] == [0, 1, 2]
        own = (
            b"MSG_REGION\x01DefaultRegion\x02UNIQ_KEY\x01%b\x02CLUSTER\x01DefaultCluster\x02"
            b"WAIT\x01true\x02TRACE_ON\x01true\x02" % ID.encode()
        )
        assert records[0].properties_block == b"TAGS\x01a\x02KEYS\x01k1\x02" + own
        assert records[1].properties_block == own


@pytest.mark.parametrize(
    ("topic", "body", "remark"),
    [
        ("%RETRY%billing", b"", "batch request does not support retry group %RETRY%billing"),
        ("Orders", b"", "the message is illegal"),
        ("Orders", b"no batch", "a batch item of 22 bytes or more"),
    ],
)
async def test_a_batch_that_is_none_is_refused(topic: str, body: bytes, remark: str) -> None:
    """B7: and none of it is stored."""
    async with running_broker() as kit:
        header = send_header(topic, None, batch=True)
        answer = await kit.call(RequestCode.SEND_BATCH_MESSAGE, header, body)
        assert answer.code == 13
        assert remark in (answer.remark or "")
        assert kit.broker.context.store.log.max_offset == 0


async def test_a_batch_cannot_be_delayed() -> None:
    """B7."""
    async with running_broker() as kit:
        answer = await kit.send_batch("Orders", [(b"x", {})], {"DELAY": "1"})
        assert answer.code == 13


async def test_a_message_cannot_bring_the_checksum_of_its_record() -> None:
    """B3: else the record would look damaged, to `store verify` and after a crash."""
    async with running_broker() as kit:
        await kit.send()
        for number in range(3):
            properties = {"UNIQ_KEY": f"{number:032X}", "__CRC32#": "2147483647"}
            assert (await kit.send(properties=properties)).code == 0
        for record in kit.stored("Orders"):
            assert "__CRC32#" not in record.properties()
