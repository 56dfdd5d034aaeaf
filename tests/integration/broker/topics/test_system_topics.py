"""What a client cannot do: write to the topics of the broker itself, by any request or property (B7)."""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode
from pathlib import Path

import pytest

from cometmq.model.names import (
    DELAY_TOPIC,
    REVIVE_GROUP,
    TIMER_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
    TRANSACTION_GROUP,
)
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.exactly_once import OwnRequestCode, SendOnceRequest, StandingRequest
from cometmq.wire.headers.offset import UpdateConsumerOffsetRequest
from cometmq.wire.headers.pop import AckMessageRequest, ChangeInvisibleTimeRequest
from cometmq.wire.headers.send import (
    RecallMessageRequest,
    ResumeCheckHalfMessageRequest,
    SendMessageRequest,
)
from cometmq.wire.headers.topic import CreateTopicListRequest
from cometmq.wire.json import fastjson
from tests.answers import Told, now_ms
from tests.integration.broker.broker_kit import DELAYS, ID, BrokerKit, running_broker, send_header
from tests.integration.broker.message_types_kit import COMMIT, Half, Producer, kill
from tests.integration.broker.pop.pop_kit import GROUP, QUICK, Consumer
from tests.waiting import eventually

REVIVE_TOPIC = "rmq_sys_REVIVE_LOG_DefaultCluster"
OWN_TOPICS = [
    TIMER_TOPIC,
    REVIVE_TOPIC,
    "rmq_sys_REVIVE_LOG_OtherCluster",
    "rmq_sys_SYNC_BROKER_MEMBER_embedded",
    "rmq_sys_whatever",
    DELAY_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    "OFFSET_MOVED_EVENT",
]
SETTINGS = {**QUICK, **DELAYS, "recallMessageEnable": "true"}
MANY_DIGITS = "9" * 5000
INJECTED = f"x\x02REAL_TOPIC\x01{TIMER_TOPIC}\x02REAL_QID\x01{MANY_DIGITS}\x02Y\x01z"


def assert_refused(answer: Told, topic: str) -> None:
    assert answer.code == ResponseCode.NO_PERMISSION, answer
    assert answer.remark == f"Sending message to topic[{topic}] is forbidden."


def long_header(topic: str) -> SendMessageRequest:
    return SendMessageRequest(
        producer_group="shop",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=now_ms(),
        flag=0,
        properties=f"UNIQ_KEY\x01{ID}\x02",
    )


def once_header(topic: str) -> SendOnceRequest:
    return SendOnceRequest(
        producer_group="shop",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        born_timestamp=now_ms(),
        query="q",
        partition=0,
        batch=1,
        first_sequence=0,
        count=1,
        digest_before=0,
        digest_after=1,
        shards=1,
        single=True,
    )


@pytest.mark.parametrize("topic", OWN_TOPICS)
async def test_no_request_writes_to_a_topic_of_the_broker(topic: str) -> None:
    """B7: one message in each form, a batch, a reply, whole records, and what is stored once."""
    async with running_broker(settings=SETTINGS) as kit:
        header = send_header(topic, None)
        assert_refused(await kit.send(topic), topic)
        assert_refused(await kit.send(topic, properties={"UNIQ_KEY": ID, "DELAY": "1"}), topic)
        assert_refused(await kit.send(topic, properties={"UNIQ_KEY": ID, "TRAN_MSG": "true"}), topic)
        assert_refused(await kit.send(topic, properties={"UNIQ_KEY": ID, "TIMER_DELAY_MS": "100"}), topic)
        assert_refused(await kit.call(RequestCode.SEND_MESSAGE, long_header(topic), b"x"), topic)
        assert_refused(await kit.send_batch(topic, [(b"x", {"UNIQ_KEY": ID})]), topic)
        assert_refused(await kit.call(RequestCode.SEND_REPLY_MESSAGE, long_header(topic), b"x"), topic)
        assert_refused(await kit.call(RequestCode.SEND_REPLY_MESSAGE_V2, header, b"x"), topic)
        records = send_header(topic, "COUNT\x011\x02KEYED\x01false\x02")
        assert_refused(await kit.call(OwnRequestCode.SEND_RECORDS, records, b"x" * 200), topic)
        await kit.ok(OwnRequestCode.GET_STANDING, StandingRequest(topic=topic, query="q", partition=0))
        assert_refused(await kit.call(OwnRequestCode.SEND_ONCE, once_header(topic), b"x"), topic)
        assert kit.broker.context.store.queues.find(topic, 0) is None


@pytest.mark.parametrize(
    "topic",
    [
        "RMQ_SYS_TRACE_TOPIC",
        "rmq_sys_TRACE_DATA_DefaultRegion",
        "BenchmarkTest",
        "TBW102",
        "DefaultCluster",
        "embedded",
        "DefaultCluster_REPLY_TOPIC",
        "%DLQ%billing",
    ],
)
async def test_topics_of_the_system_that_clients_use_are_open_to_them(topic: str) -> None:
    """B7: traces, replies, benchmarks, and what tools measure a broker with."""
    async with running_broker() as kit:
        assert (await kit.send(topic)).code == 0


async def nothing_is_set_aside(kit: BrokerKit) -> None:
    """Timers, delays and pops are up to date, and have met nothing that they could not process."""
    done = await kit.send(body=b"behind", queue_id=3, properties={"UNIQ_KEY": ID, "TIMER_DELAY_MS": "100"})
    assert done.code == 0
    await eventually(
        lambda: any(bytes(each.body) == b"behind" for each in kit.stored("Orders", 3)), "timers go on"
    )
    assert kit.broker.context.set_aside.totals == {}


@pytest.mark.parametrize(
    "special",
    [
        {"TIMER_DELAY_MS": "200"},
        {"DELAY": "1"},
        {"TIMER_DELAY_MS": "200", "TIMER_OUT_MS": MANY_DIGITS},
        {"DELAY": "1", "TIMER_ROLL_TIMES": MANY_DIGITS, "TIMER_ENQUEUE_MS": MANY_DIGITS},
    ],
)
async def test_properties_that_the_broker_writes_are_not_taken_from_a_client(special: dict[str, str]) -> None:
    """B6: where a delayed message belongs is decided by the topic and the queue that it was sent to."""
    async with running_broker(settings=SETTINGS) as kit:
        own = {"REAL_TOPIC": TIMER_TOPIC, "REAL_QID": MANY_DIGITS, "PGROUP": "x"}
        answer = await kit.send(body=b"mine", queue_id=2, properties={"UNIQ_KEY": ID, **own, **special})
        assert answer.code == 0
        await eventually(
            lambda: [bytes(each.body) for each in kit.stored("Orders", 2)] == [b"mine"], "it comes"
        )
        await nothing_is_set_aside(kit)


async def test_a_half_message_belongs_where_it_was_sent_to() -> None:
    """B7: also by the short way, which only the second of its kind takes."""
    async with running_broker(settings=SETTINGS) as kit, Producer(kit) as producer:
        for number in range(3):
            properties = {
                "UNIQ_KEY": f"{ID}{number}",
                "TRAN_MSG": "true",
                "PGROUP": "shop",
                "REAL_TOPIC": TIMER_TOPIC,
                "REAL_QID": MANY_DIGITS,
            }
            assert (await kit.send(queue_id=1, properties=properties)).code == 0
        for half in kit.stored(TRANS_HALF_TOPIC):
            named = Half(half.queue_offset, half.physical_offset, half.properties()["UNIQ_KEY"])
            assert (await producer.end(named, COMMIT)).code == 0
        assert len(kit.stored("Orders", 1)) == 3
        await nothing_is_set_aside(kit)


async def test_only_a_half_message_can_be_checked_again() -> None:
    """B7: a plain message may have the properties of one, and would be committed to where these say."""
    async with running_broker(settings=SETTINGS) as kit, Producer(kit) as producer:
        properties = {
            "UNIQ_KEY": ID,
            "PGROUP": "shop",
            "REAL_TOPIC": TIMER_TOPIC,
            "REAL_QID": MANY_DIGITS,
        }
        sent = await kit.send(properties=properties)
        header = ResumeCheckHalfMessageRequest(topic=TRANS_HALF_TOPIC, msg_id=sent.fields["msgId"])
        answer = await kit.call(RequestCode.RESUME_CHECK_HALF_MESSAGE, header)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "there is no half message" in (answer.remark or "")
        assert (await producer.end(Half(0, 0, ID), COMMIT)).code != 0
        await nothing_is_set_aside(kit)


async def test_a_recall_handle_cannot_carry_properties() -> None:
    """B6: its key, and the group of the request, become properties of the cancellation."""
    async with running_broker(settings=SETTINGS) as kit:
        await kit.send()
        soon_ms = now_ms() + 5000

        async def recall(unique_key: str, group: str | None) -> Told:
            text = f"v1 Orders embedded {soon_ms} {unique_key}"
            handle = urlsafe_b64encode(text.encode()).decode()
            header = RecallMessageRequest(topic="Orders", recall_handle=handle, producer_group=group)
            return await kit.call(RequestCode.RECALL_MESSAGE, header)

        assert (await recall(INJECTED, None)).code == ResponseCode.SYSTEM_ERROR
        assert (await recall("key", INJECTED)).code == ResponseCode.SYSTEM_ERROR
        assert kit.stored(TIMER_TOPIC) == []
        assert (await recall("key", "shop")).code == 0
        await nothing_is_set_aside(kit)


@pytest.mark.parametrize("name", [INJECTED, "\x02", "line\n"])
async def test_an_acknowledgement_cannot_carry_properties(name: str) -> None:
    """B8: the names in a handle become a property of what is written about it."""
    async with running_broker(settings=SETTINGS) as kit:
        await kit.send()
        popped = await Consumer(kit).pop()
        message = popped.messages[0]
        start, pop_time, invisible, queue, mark, broker, *rest = message.handle.split(" ")
        before = len(kit.stored(TIMER_TOPIC))
        handle = " ".join((start, pop_time, invisible, queue, mark, name, *rest))
        named = {"consumer_group": GROUP, "topic": "Orders", "queue_id": 0, "offset": message.offset}
        ack = AckMessageRequest(extra_info=handle, **named)  # type: ignore[arg-type]
        change = ChangeInvisibleTimeRequest(extra_info=handle, invisible_time=60_000, **named)  # type: ignore[arg-type]
        one = {"c": GROUP, "t": "Orders", "so": 0, "q": 0, "rq": int(queue), "pt": int(pop_time)}
        one |= {"it": int(invisible), "b": b64encode(b"\x01").decode()}
        batches = [
            {"brokerName": name, "acks": [one]},
            {"brokerName": broker, "acks": [{**one, "c": name}]},
            {"brokerName": broker, "acks": [{**one, "so": 10**30}]},
            {"brokerName": broker, "acks": [{**one, "pt": -(10**30)}]},
        ]
        answers = [
            await kit.call(RequestCode.ACK_MESSAGE, ack),
            await kit.call(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, change),
        ]
        for batch in batches:
            body = fastjson.dumps(batch)
            answers.append(await kit.call(RequestCode.BATCH_ACK_MESSAGE, body=body))
        assert {answer.code for answer in answers} == {ResponseCode.MESSAGE_ILLEGAL}
        assert len(kit.stored(TIMER_TOPIC)) == before
        await nothing_is_set_aside(kit)


@pytest.mark.parametrize(
    ("group", "topic"), [(REVIVE_GROUP, REVIVE_TOPIC), (TRANSACTION_GROUP, TRANS_HALF_TOPIC)]
)
async def test_the_progress_of_the_broker_is_not_moved_by_clients(group: str, topic: str) -> None:
    """B7, B8: else one request would let it pass over everything that comes."""
    async with running_broker(settings=SETTINGS) as kit:
        header = UpdateConsumerOffsetRequest(
            consumer_group=group, topic=topic, queue_id=0, commit_offset=10**15
        )
        answer = await kit.call(RequestCode.UPDATE_CONSUMER_OFFSET, header)
        assert answer.code in (ResponseCode.NO_PERMISSION, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)
        kit.broker.context.offsets.commit("a pull", group, topic, 0, 10**15)
        kit.broker.context.offsets.assign_reset(topic, group, 0, 10**15)
        assert kit.broker.context.offsets.query(group, topic, 0) < 10**15


async def test_a_timed_message_with_the_marks_of_a_checkpoint_moves_nothing_at_a_start(
    tmp_path: Path,
) -> None:
    """B8: a start after a kill reads how far groups have popped, and nothing that a client wrote."""
    body = b'{"c":"billing","d":[0],"n":1,"q":0,"so":0,"t":"Orders","pt":1,"it":1}'
    async with running_broker(tmp_path / "first", SETTINGS) as kit:
        for number in range(5):
            await kit.send(body=b"%d" % number)
        await Consumer(kit).pop(count=1)
        for value in (MANY_DIGITS, "4", str(10**30), "-1"):
            properties = {"UNIQ_KEY": ID, "TAGS": "ck", "CK_NEXT": value, "TIMER_DELAY_MS": "60000"}
            assert (await kit.send(body=body, properties=properties)).code == 0
        left = kill(kit, tmp_path / "second")
    async with running_broker(left, SETTINGS) as kit:
        assert kit.broker.context.offsets.query("billing", "Orders", 0) == 1
        await nothing_is_set_aside(kit)


@pytest.mark.parametrize("text", [MANY_DIGITS, str(10**30), "1_0", "\u0661", "-5", "NaN"])
async def test_odd_numbers_in_the_properties_of_a_send_are_answered(text: str) -> None:
    """B3: whatever they are, the sender gets an answer, and everything goes on."""
    async with running_broker(settings=SETTINGS) as kit:
        for name in (
            "DELAY", "TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS", "TIMER_OUT_MS", "INNER_NUM",
            "INNER_BASE", "INNER_MULTI_QUEUE_OFFSET", "RECONSUME_TIME", "MAX_RECONSUME_TIMES",
            "CONSUME_START_TIME", "CHECK_IMMUNITY_TIME_IN_SECONDS", "TRANSACTION_CHECK_TIMES", "POP_CK",
            "1ST_POP_TIME", "TTL", "REAL_QID",
        ):  # fmt: skip
            answer = await kit.send(properties={"UNIQ_KEY": ID, name: text})
            assert answer.code in (0, ResponseCode.MESSAGE_ILLEGAL), (name, answer)
            answer = await kit.send_batch("Orders", [(b"x", {name: text})], {name: text})
            assert answer.code in (0, ResponseCode.MESSAGE_ILLEGAL), (name, answer)
        await nothing_is_set_aside(kit)


@pytest.mark.parametrize(("tries", "topic"), [(-7, "%RETRY%billing"), (2**31 - 1, "%DLQ%billing")])
async def test_a_message_with_impossible_tries_is_sent_back_all_the_same(tries: int, topic: str) -> None:
    """B6: the number of its tries is the sender's, and decides about the delay level."""
    async with running_broker(settings=SETTINGS) as kit:
        await kit.send(reconsume_times=tries)
        (stored,) = kit.stored("Orders")
        assert (await kit.send_back(stored.physical_offset)).code == 0
        await eventually(lambda: len(kit.stored(topic)) == 1, "it is where it belongs")
        assert kit.broker.context.set_aside.totals == {}


@pytest.mark.parametrize("number", [10**30, 70_000])
async def test_topics_and_groups_have_no_impossible_numbers(number: int) -> None:
    """B9: a queue with such a number would fit into no record."""
    async with running_broker() as kit:
        group = {"groupName": "g", "retryQueueNums": number}
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        assert (await kit.call(code, body=fastjson.dumps(group))).code == ResponseCode.INVALID_PARAMETER
        for name in ("readQueueNums", "writeQueueNums"):
            topics = {"topicConfigList": [{"topicName": "T", name: number}]}
            header = CreateTopicListRequest()
            answer = await kit.call(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, header, fastjson.dumps(topics))
            assert answer.code == ResponseCode.INVALID_PARAMETER
