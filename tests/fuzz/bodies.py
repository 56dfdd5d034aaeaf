"""Bodies of requests: good ones by request code, and what they become at their limits."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

from cometmq.broker.config import BrokerConfig
from cometmq.namesrv.config import NamesrvConfig
from cometmq.store.config import StoreConfig
from cometmq.wire.codes import RequestCode
from cometmq.wire.exactly_once import OwnRequestCode
from cometmq.wire.record.batch import BatchItem, encode_batch
from cometmq.wire.record.codec import Record, encode_record
from tests.fuzz.corpus import BODIES as NAMESRV_BODIES
from tests.fuzz.odd_values import NAMES, NUMBERS, bent, json_text, odd_body
from tests.fuzz.plausible import BROKER_NAME, GROUPS, TOPICS, UNIQUE_ID, Plausible
from tests.fuzz.properties import odd_block

HARMLESS_KEYS: Final = [
    "traceOn", "longPollingEnable", "shortPollingTimeMills", "commercialBaseCount",
    "flushConsumerOffsetInterval",
    "cgColdReadThreshold", "accountStatsEnable", "popPollingSize",
]  # fmt: skip
"""Whatever value of these a server accepts, it serves on. Of all other settings only values that can never be
right are sent, and of the paths those that lead away from the store."""
PATH_KEYS: Final = [
    "storePathRootDir", "storePathCommitLog", "storePathDLedgerCommitLog", "kvConfigPath", "configStorePath",
    "brokerConfigPath", "configBlackList", "rocketmqHome",
]  # fmt: skip
_NEVER_NUMBERS: Final = [
    text for text in NUMBERS if not text.strip().lstrip("+-").isdigit() or len(text) > 25
]
_NUMERIC_KEYS: Final = [
    info
    for kind in (BrokerConfig, StoreConfig, NamesrvConfig)
    for info, annotation in zip(kind.__struct_encode_fields__, kind.__annotations__.values(), strict=False)
    if str(annotation) in ("Natural", "Positive", "Long", "Port", "int")
]

_QUEUES: Final = [{"brokerName": BROKER_NAME, "queueId": number, "topic": TOPICS[0]} for number in range(2)]
_TOPIC: Final = {
    "attributes": {"+message.type": "NORMAL"}, "order": False, "perm": 6, "readQueueNums": 4,
    "topicFilterType": "SINGLE_TAG", "topicName": TOPICS[2], "topicSysFlag": 0, "writeQueueNums": 4,
}  # fmt: skip
_GROUP: Final = {
    "attributes": {}, "brokerId": 0, "consumeBroadcastEnable": True, "consumeEnable": True,
    "consumeFromMinEnable": True, "consumeMessageOrderly": False, "consumeTimeoutMinute": 15,
    "groupName": GROUPS[2],
    "groupRetryPolicy": {"type": "CUSTOMIZED"}, "groupSysFlag": 0, "notifyConsumerIdsChangedEnable": True,
    "retryMaxTimes": 16, "retryQueueNums": 1, "subscriptionDataSet": [{"topic": TOPICS[0],
    "expressionType": "TAG", "expression": "*"}],
    "whichBrokerWhenConsumeSlowly": 1,
}  # fmt: skip
_SUBSCRIPTION: Final = {
    "classFilterMode": False, "codeSet": [2567685], "expressionType": "TAG", "subString": "TagA",
    "subVersion": 1,
    "tagsSet": ["TagA"], "topic": TOPICS[0],
}  # fmt: skip
_HEARTBEAT: Final = {
    "clientID": "fuzz-client",
    "consumerDataSet": [
        {
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "consumeType": "CONSUME_PASSIVELY",
            "groupName": GROUPS[0], "messageModel": "CLUSTERING", "subscriptionDataSet": [_SUBSCRIPTION],
            "unitMode": False,
        },
        {"groupName": GROUPS[1], "subscriptionDataSet": [{**_SUBSCRIPTION, "expressionType": "SQL92",
        "subString": "a>1"}]},
    ],
    "heartbeatFingerprint": 0,
    "producerDataSet": [{"groupName": GROUPS[1]}],
    "withoutSub": False,
}  # fmt: skip
_LOCKING: Final = {
    "clientId": "fuzz-client",
    "consumerGroup": GROUPS[0],
    "mqSet": _QUEUES,
    "onlyThisBroker": False,
}
_QUEUE_KEY: Final = '{"brokerName":"fuzzed","queueId":0,"topic":"fuzz-a"}'

JSON_BODIES: Final[dict[int, Any]] = {
    **NAMESRV_BODIES,
    RequestCode.HEART_BEAT: _HEARTBEAT,
    RequestCode.CHECK_CLIENT_CONFIG: {
        "clientId": "fuzz-client", "group": GROUPS[0], "namespace": "",
        "subscriptionData": {**_SUBSCRIPTION, "expressionType": "SQL92", "subString": "a > 5"},
    },
    RequestCode.LOCK_BATCH_MQ: _LOCKING,
    RequestCode.UNLOCK_BATCH_MQ: _LOCKING,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: {"topicConfigList": [_TOPIC, {**_TOPIC,
    "topicName": TOPICS[3]}]},
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _GROUP,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: {"groupConfigList": [_GROUP, {**_GROUP,
    "groupName": "fuzz-other"}]},
    RequestCode.QUERY_ASSIGNMENT: {
        "clientId": "fuzz-client", "consumerGroup": GROUPS[0], "messageModel": "CLUSTERING",
        "strategyName": "AVG",
        "topic": TOPICS[0],
    },
    RequestCode.SET_MESSAGE_REQUEST_MODE: {
        "consumerGroup": GROUPS[0], "mode": "POP", "popShareQueueNum": 0, "topic": TOPICS[0],
    },
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET: {"offsetTable": {_QUEUE_KEY: 0}},
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: {"messageQueueTable": {_QUEUE_KEY: 0}},
}  # fmt: skip
"""Good bodies, in JSON."""


class Bodies:
    """Bodies by request code."""

    def __init__(self, plausible: Plausible) -> None:
        self._plausible = plausible
        self._by_code: dict[int, Callable[[random.Random], bytes]] = {
            RequestCode.UPDATE_BROKER_CONFIG: settings_body,
            RequestCode.UPDATE_NAMESRV_CONFIG: settings_body,
            RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG: thresholds_body,
            RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG: lambda choice: choice.choice(GROUPS).encode(),
            RequestCode.BATCH_ACK_MESSAGE: self._batch_ack,
            RequestCode.SEND_BATCH_MESSAGE: batch_body,
            OwnRequestCode.SEND_ONCE: batch_body,
            OwnRequestCode.SEND_RECORDS: records_body,
            RequestCode.CHECK_TRANSACTION_STATE: record_body,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: record_body,
        }

    def body(self, choice: random.Random, code: int) -> bytes:
        """A body for a request of this code: good, bent, odd, or none."""
        if choice.random() < 0.15:
            return odd_body(choice)
        template = JSON_BODIES.get(code)
        if template is not None:
            value = template if choice.random() < 0.3 else bent(choice, template)
            data = json_text(value)
            return data[: choice.randrange(len(data))] if choice.random() < 0.05 else data
        make = self._by_code.get(code)
        if make is not None:
            return make(choice)
        return choice.choice((b"", b"", b"body", b"x" * 200))

    def _batch_ack(self, choice: random.Random) -> bytes:
        ack = {
            "b": choice.choice(("AQ==", "/w==", "", "!", "A" * 20_000)), "c": GROUPS[0],
            "it": choice.choice((1000, 60_000)), "pt": self._plausible.moment(choice),
            "q": choice.randrange(4),
            "r": choice.choice("012"), "rq": choice.randrange(8), "so": choice.randrange(20), "t": TOPICS[0],
        }  # fmt: skip
        value = {"acks": [ack] * choice.choice((1, 1, 3)), "brokerName": BROKER_NAME}
        return json_text(value if choice.random() < 0.4 else bent(choice, value))


def settings_body(choice: random.Random) -> bytes:
    """Changes of settings as Java's properties."""
    kind = choice.randrange(4)
    if kind == 0:
        key, value = choice.choice(HARMLESS_KEYS), choice.choice(["true", "false", "1000", *NUMBERS])
    elif kind == 1:
        key, value = choice.choice(_NUMERIC_KEYS), choice.choice(_NEVER_NUMBERS)
    elif kind == 2:
        key, value = choice.choice(PATH_KEYS), choice.choice(NAMES)
    else:
        key, value = choice.choice(NAMES), choice.choice(NAMES)
    return f"{key}={value}\n".encode(errors="replace")


def thresholds_body(choice: random.Random) -> bytes:
    return f"{choice.choice(GROUPS + NAMES)}={choice.choice(NUMBERS)}\n".encode(errors="replace")


def batch_body(choice: random.Random) -> bytes:
    """Messages in one body; sometimes cut, or with a byte of it changed."""
    items = [
        BatchItem(b"body", odd_block(choice, UNIQ_KEY=UNIQUE_ID, WAIT="true"))
        for _ in range(choice.randrange(1, 4))
    ]
    return _damaged(choice, encode_batch(items))


def record_body(choice: random.Random) -> bytes:
    """A record as brokers send it to clients."""
    record = Record(
        choice.choice(TOPICS), b"body", odd_block(choice, PGROUP=GROUPS[1], UNIQ_KEY=UNIQUE_ID),
        queue_id=choice.randrange(4), sys_flag=choice.choice((0, 0, 1, 4, 257, 512, 768, 8)),
    )  # fmt: skip
    return _damaged(choice, bytes(encode_record(record)))


def records_body(choice: random.Random) -> bytes:
    """What `wire/record/preencoded.py` describes: sizes, tag codes, records."""
    records = [
        bytes(encode_record(Record(choice.choice(TOPICS[:2]), b"body" * choice.randrange(5))))
        for _ in range(2)
    ]
    data = (
        b"".join(len(each).to_bytes(4, "big") for each in records)
        + bytes(8 * len(records))
        + b"".join(records)
    )
    return _damaged(choice, data)


def _damaged(choice: random.Random, data: bytes) -> bytes:
    kind = choice.randrange(4)
    if kind == 0:
        place = choice.randrange(len(data))
        return data[:place] + bytes([choice.randrange(256)]) + data[place + 1 :]
    if kind == 1 and choice.random() < 0.5:
        return data[: choice.randrange(len(data))]
    return data
