"""Requests that ask too much of a broker, and somebody who asks little of it meanwhile."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Awaitable, Callable

from cometmq.remoting.client import RemotingClient
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.frame.command import Command
from cometmq.wire.header.schema import Header
from cometmq.wire.headers.group import GetConsumeStatsRequest, QueryConsumeTimeSpanRequest
from cometmq.wire.headers.offset import GetMaxOffsetRequest, ResetOffsetRequest
from cometmq.wire.headers.pop import NotificationRequest, PopMessageRequest
from cometmq.wire.headers.pull import PullMessageRequest
from cometmq.wire.headers.session import HeartbeatRequest, LockBatchMqRequest, UnlockBatchMqRequest
from cometmq.wire.headers.topic import CreateTopicListRequest, CreateTopicRequest, GetTopicStatsInfoRequest
from cometmq.wire.record.batch import BatchItem, encode_batch
from cometmq.wire.record.properties import encode_properties
from tests.integration.broker.broker_kit import send_header

GROUP, TOPIC, WIDE, MANY = "billing", "Orders", "Wide", "Many"
PULLED = 20_000
LONG_SQL = "a = " + "-" * 13_000


class Besieged:
    """A broker, somebody who asks too much of it, and somebody who asks little."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.attacker = RemotingClient()
        self.bystander = RemotingClient()

    async def __aenter__(self) -> Besieged:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.attacker.stop()
        await self.bystander.stop()

    async def ask(self, code: RequestCode, header: Header | None = None, body: bytes = b"") -> Command:
        return await self.attacker.call(self.address, code, header, body=body, timeout_s=60.0)

    async def silence_during(self, work: Awaitable[object]) -> float:
        """How long the bystander waits at most while something is under way."""
        longest = 0.0
        task = asyncio.ensure_future(work)
        while True:
            began = time.monotonic()
            header = GetMaxOffsetRequest(topic=TOPIC, queue_id=0)
            await self.bystander.call(self.address, RequestCode.GET_MAX_OFFSET, header, timeout_s=60.0)
            longest = max(longest, time.monotonic() - began)
            if task.done():
                await task
                return longest


def topic(name: str, queues: int, write_queues: int | None = None) -> CreateTopicRequest:
    return CreateTopicRequest(
        topic=name,
        default_topic="TBW102",
        read_queue_nums=queues,
        write_queue_nums=queues if write_queues is None else write_queues,
        perm=6,
        topic_filter_type="SINGLE_TAG",
        topic_sys_flag=0,
        order=False,
    )


def subscription(topic: str, expression: str = "*", kind: str = "TAG", version: int = 1) -> dict[str, object]:
    return {"topic": topic, "subString": expression, "expressionType": kind, "subVersion": version}


def consumer(group: str, *subscriptions: dict[str, object]) -> dict[str, object]:
    return {"groupName": group, "subscriptionDataSet": subscriptions}


Request = tuple[RequestCode, Header | None, bytes]


def heartbeat(*consumers: dict[str, object], producers: int = 0) -> Request:
    said = {
        "clientID": "c@1",
        "consumerDataSet": consumers,
        "producerDataSet": [{"groupName": f"p{number}"} for number in range(producers)],
    }
    return RequestCode.HEART_BEAT, HeartbeatRequest(), json.dumps(said).encode()


def locking(queues: int) -> bytes:
    named = [{"topic": WIDE, "brokerName": "b", "queueId": number} for number in range(queues)]
    return json.dumps({"consumerGroup": GROUP, "clientId": "c@1", "mqSet": named}).encode()


def acks(count: int) -> bytes:
    bits = base64.b64encode(b"\xff" * 8_000).decode()
    ack = {"c": GROUP, "t": TOPIC, "so": 0, "q": 0, "rq": 0, "pt": 0, "it": 60_000, "b": bits}
    return json.dumps({"acks": [ack] * count}).encode()


def pull(expression: str, kind: str = "SQL92") -> PullMessageRequest:
    return PullMessageRequest(
        consumer_group=GROUP,
        topic=MANY,
        queue_id=0,
        queue_offset=0,
        max_msg_nums=2**31 - 1,
        sys_flag=4,
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription=expression,
        sub_version=0,
        expression_type=kind,
    )


def pop(topic: str) -> PopMessageRequest:
    return PopMessageRequest(
        consumer_group=GROUP,
        topic=topic,
        queue_id=-1,
        max_msg_nums=32,
        invisible_time=60_000,
        poll_time=0,
        born_time=0,
        init_mode=0,
        order=False,
    )


def many_filters() -> Request:
    topics = (subscription(f"t{number}", f"{LONG_SQL}{number}", "SQL92") for number in range(400))
    return heartbeat(consumer("filters", *topics))


def long_filters() -> Request:
    version = time.monotonic_ns()
    topics = (subscription(f"t{n}", f"{LONG_SQL}{version + n}", "SQL92", version) for n in range(19))
    return heartbeat(consumer("filters", *topics))


def many_keys() -> Request:
    block = encode_properties({"KEYS": " ".join(map(str, range(6_000)))})
    body = encode_batch([BatchItem(b"x", block)] * 120)
    return RequestCode.SEND_BATCH_MESSAGE, send_header(TOPIC, None, batch=True), body


def topic_list(count: int) -> bytes:
    named = [{"topicName": f"L{n}", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6} for n in range(count)]
    return json.dumps({"topicConfigList": named}).encode()


def group_list(count: int) -> bytes:
    return json.dumps({"groupConfigList": [{"groupName": f"L{n}"} for n in range(count)]}).encode()


OK = ResponseCode.SUCCESS.value
ILLEGAL = ResponseCode.ILLEGAL_OPERATION.value
INVALID = ResponseCode.INVALID_PARAMETER.value
ERROR = ResponseCode.SYSTEM_ERROR.value
REQUESTS: list[tuple[str, Callable[[], Request], int]] = [
    ("400 long filters", many_filters, ILLEGAL),
    ("as many long filters as are allowed", long_filters, OK),
    ("60,000 groups", lambda: heartbeat(*(consumer(f"g{n}") for n in range(60_000))), ILLEGAL),
    ("1,000 groups", lambda: heartbeat(*(consumer(f"g{n}") for n in range(1_000))), OK),
    ("60,000 producer groups", lambda: heartbeat(producers=60_000), ILLEGAL),
    (
        "60,000 topics",
        lambda: heartbeat(consumer("many", *(subscription(f"t{n}") for n in range(20_000)))),
        ILLEGAL,
    ),
    (
        "4,000 topics",
        lambda: heartbeat(consumer("many", *(subscription(f"t{n}") for n in range(4_000)))),
        OK,
    ),
    ("150,000 locks", lambda: (RequestCode.LOCK_BATCH_MQ, LockBatchMqRequest(), locking(150_000)), INVALID),
    ("16,000 locks", lambda: (RequestCode.LOCK_BATCH_MQ, LockBatchMqRequest(), locking(16_000)), OK),
    (
        "150,000 locks given up",
        lambda: (RequestCode.UNLOCK_BATCH_MQ, UnlockBatchMqRequest(), locking(150_000)),
        INVALID,
    ),
    (
        "16,000 locks given up",
        lambda: (RequestCode.UNLOCK_BATCH_MQ, UnlockBatchMqRequest(), locking(16_000)),
        OK,
    ),
    ("64 million acknowledgements", lambda: (RequestCode.BATCH_ACK_MESSAGE, None, acks(1_000)), 13),
    ("10 ** 9 queues", lambda: (RequestCode.UPDATE_AND_CREATE_TOPIC, topic("Huge", 10**9), b""), INVALID),
    (
        "10 ** 9 queues for writing",
        lambda: (RequestCode.UPDATE_AND_CREATE_TOPIC, topic("Huge", 1, 10**9), b""),
        INVALID,
    ),
    (
        "50,000 topics made",
        lambda: (RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, CreateTopicListRequest(), topic_list(50_000)),
        INVALID,
    ),
    (
        "50,000 groups made",
        lambda: (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, None, group_list(50_000)),
        INVALID,
    ),
    (
        "10 ** 9 retry queues",
        lambda: (
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            None,
            b'{"groupName":"GR","retryQueueNums":1000000000}',
        ),
        INVALID,
    ),
    (
        "the offsets of a wide topic",
        lambda: (RequestCode.GET_TOPIC_STATS_INFO, GetTopicStatsInfoRequest(topic=WIDE), b""),
        OK,
    ),
    (
        "progress in a wide topic, named very often",
        lambda: (
            RequestCode.GET_CONSUME_STATS,
            GetConsumeStatsRequest(
                consumer_group=GROUP, topic="", topic_list=";".join([f"{WIDE}", " "] * 20_000)
            ),
            b"",
        ),
        OK,
    ),
    (
        "times of a wide topic",
        lambda: (
            RequestCode.QUERY_CONSUME_TIME_SPAN,
            QueryConsumeTimeSpanRequest(topic=WIDE, group=GROUP),
            b"",
        ),
        OK,
    ),
    (
        "a wide topic reset",
        lambda: (
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
            ResetOffsetRequest(topic=WIDE, group=GROUP, timestamp=1, is_force=True),
            b"",
        ),
        OK,
    ),
    ("a pop of a wide topic", lambda: (RequestCode.POP_MESSAGE, pop(WIDE), b""), 210),
    (
        "a question for a wide topic",
        lambda: (
            RequestCode.NOTIFICATION,
            NotificationRequest(
                consumer_group=GROUP, topic=WIDE, queue_id=-1, poll_time=0, born_time=0, order=False
            ),
            b"",
        ),
        OK,
    ),
    ("a filter that nothing passes", lambda: (RequestCode.PULL_MESSAGE, pull("a = 'y'"), b""), 20),
    (
        "a long filter that nothing passes",
        lambda: (RequestCode.PULL_MESSAGE, pull(" OR ".join(["a CONTAINS 'zz'"] * 850)), b""),
        20,
    ),
    ("tags that no message has", lambda: (RequestCode.PULL_MESSAGE, pull("none", "TAG"), b""), 20),
    ("700,000 keys", many_keys, ResponseCode.MESSAGE_ILLEGAL.value),
    (
        "4 MB in Java's dialect",
        lambda: (RequestCode.LOCK_BATCH_MQ, LockBatchMqRequest(), b"{x:[" + b"1," * 2_000_000 + b"]}"),
        ERROR,
    ),
    (
        "escapes in Java's dialect",
        lambda: (RequestCode.LOCK_BATCH_MQ, LockBatchMqRequest(), b"{x:'" + b"\\n" * 100_000 + b"'}"),
        ERROR,
    ),
    ("brackets", lambda: (RequestCode.LOCK_BATCH_MQ, LockBatchMqRequest(), b"[" * 16_000_000), ERROR),
    ("braces", lambda: (RequestCode.HEART_BEAT, HeartbeatRequest(), b"{" * 2_000_000), ERROR),
    ("14 MB of settings", lambda: (RequestCode.UPDATE_BROKER_CONFIG, None, b"a=b\n" * 3_500_000), ERROR),
]
