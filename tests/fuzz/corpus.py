"""The frames that are mutated: recorded ones, one of each kind that a name server answers, and what a broker
gets most."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from cometmq.wire.codes import RequestCode
from cometmq.wire.frame.command import encode_command
from cometmq.wire.frame.framing import JSON, ROCKETMQ, FrameSplitter, pack_head
from cometmq.wire.headers import namesrv
from tests.all_headers import REQUEST_HEADERS

_RECORDED = Path(__file__).parents[1] / "data" / "frames.jsonl"

_TEXTS = {
    "brokerName": "broker-a",
    "brokerAddr": "192.0.2.2:10911",
    "clusterName": "DefaultCluster",
    "haServerAddr": "192.0.2.2:10912",
    "namespace": "ORDER_TOPIC_CONFIG",
    "topic": "orders",
    "compressed": "false",
    "enableActingMaster": "true",
    "bodyCrc32": "0",
}
_VERSION = {"counter": 1, "stateVersion": 0, "timestamp": 1}
_TOPIC = {
    "attributes": {},
    "order": False,
    "perm": 6,
    "readQueueNums": 4,
    "topicFilterType": "SINGLE_TAG",
    "topicName": "orders",
    "topicSysFlag": 0,
    "writeQueueNums": 4,
}
BODIES: dict[int, Any] = {
    RequestCode.REGISTER_BROKER: {
        "filterServerList": ["192.0.2.2:1"],
        "topicConfigSerializeWrapper": {
            "dataVersion": _VERSION,
            "mappingDataVersion": _VERSION,
            "topicConfigTable": {"orders": _TOPIC, "pay/é": {**_TOPIC, "topicName": "pay/é"}},
            "topicQueueMappingDetailMap": {},
            "topicQueueMappingInfoMap": {
                "orders": {
                    "bname": "broker-a",
                    "currIdMap": {"0": 0},
                    "dirty": False,
                    "epoch": 1,
                    "scope": "global",
                    "topic": "orders",
                    "totalQueues": 4,
                }
            },
        },
    },
    RequestCode.QUERY_DATA_VERSION: _VERSION,
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: {
        "brokerDatas": [],
        "filterServerTable": {},
        "queueDatas": [{"brokerName": "broker-a", "perm": 6, "readQueueNums": 4, "writeQueueNums": 4}],
    },
}
_PROPERTIES = b"orderMessageEnable=true\nwaitSecondsForService=5\n"


class Parts(NamedTuple):
    """A frame taken apart; `packed` makes it sound again, whatever happened to its parts."""

    kind: int
    header: bytes
    body: bytes

    def packed(self) -> bytes:
        return pack_head(self.kind, self.header, len(self.body)) + self.body


def take_apart(data: bytes) -> Parts:
    splitter = FrameSplitter()
    splitter.feed(data)
    frame = splitter.next_frame()
    assert frame is not None
    return Parts(frame.serialize_type, bytes(frame.header), bytes(frame.body))


def recorded_frames() -> list[Parts]:
    """Requests and answers of a real cluster."""
    lines = _RECORDED.read_text(encoding="utf-8").splitlines()
    return [take_apart(base64.b64decode(json.loads(line)["frame"])) for line in lines]


def broker_requests() -> list[Parts]:
    """The requests that a broker gets most, in each encoding, with all their fields."""
    codes = [RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE]
    codes += [RequestCode.PULL_MESSAGE, RequestCode.POP_MESSAGE]
    codes += [RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.UPDATE_CONSUMER_OFFSET]
    return [
        take_apart(encode_command(code, 1, 0, _fields(code), body=b"body", serialize_type=kind))
        for code in codes
        for kind in (JSON, ROCKETMQ)
    ]


def namesrv_requests() -> list[Parts]:
    """One request of each kind in each encoding, with the fields that it needs."""
    bare = [
        RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
        RequestCode.GET_UNIT_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
        RequestCode.GET_NAMESRV_CONFIG,
        RequestCode.UPDATE_NAMESRV_CONFIG,
    ]
    codes = [code for code, cls in REQUEST_HEADERS.items() if cls.__module__ == namesrv.__name__]
    found = []
    for code in [*map(RequestCode, codes), *bare]:
        body = _PROPERTIES if code is RequestCode.UPDATE_NAMESRV_CONFIG else b""
        if code in BODIES:
            body = msgspec.json.encode(BODIES[code])
        for kind in (JSON, ROCKETMQ):
            data = encode_command(code, 1, 0, _fields(code), body=body, serialize_type=kind)
            found.append(take_apart(data))
    return found


def _fields(code: RequestCode) -> dict[str, str | None] | None:
    cls = REQUEST_HEADERS.get(code)
    if cls is None:
        return None
    return {name: _TEXTS.get(name, "0") for name in cls.__struct_encode_fields__}
