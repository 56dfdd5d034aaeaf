"""One question to a server over a plain socket, for tests that wait until a name server knows something.

Rules kept here:
- Nothing of `cometmq` is used: a mistake in our codec must not be able to hide itself.
- A connection lives for one question; it is never one that the server takes for a broker's.
"""

from __future__ import annotations

import json
import re
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass

GET_ALL_TOPIC_CONFIG = 21
GET_BROKER_RUNTIME_INFO = 28
PUT_KV_CONFIG = 100
GET_KV_CONFIG = 101
DELETE_KV_CONFIG = 102
GET_ROUTE = 105
GET_CLUSTER_INFO = 106
GET_ALL_TOPICS = 206
UPDATE_CONFIG = 318
GET_CONFIG = 319

SUCCESS = 0
TOPIC_NOT_EXIST = 17
QUERY_NOT_FOUND = 22

CURRENT_VERSION = 479
TIMEOUT_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Answer:
    code: int
    remark: str | None
    fields: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


def ask(
    address: str,
    code: int,
    fields: Mapping[str, str] = {},
    body: bytes = b"",
    *,
    version: int = CURRENT_VERSION,
) -> Answer:
    header = {
        "code": code,
        "extFields": dict(fields),
        "flag": 0,
        "language": "JAVA",
        "opaque": 1,
        "serializeTypeCurrentRPC": "JSON",
        "version": version,
    }
    encoded = json.dumps(header).encode()
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), timeout=TIMEOUT_SECONDS) as connection:
        connection.sendall(struct.pack(">ii", 4 + len(encoded) + len(body), len(encoded)) + encoded + body)
        (size,) = struct.unpack(">i", _read(connection, 4))
        frame = _read(connection, size)
    (header_size,) = struct.unpack(">i", frame[:4])
    told = json.loads(frame[4 : 4 + header_size])
    return Answer(told["code"], told.get("remark"), told.get("extFields") or {}, frame[4 + header_size :])


def _read(connection: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(size - len(parts))
        if not part:
            raise ConnectionError(f"the server closed the connection after {len(parts)} of {size} bytes")
        parts += part
    return bytes(parts)


def standard_json(text: str) -> str:
    """Quote the number keys that the older form of RocketMQ's JSON leaves bare."""
    return re.sub(r"([{,]\s*)(\d+)(?=\s*:)", r'\1"\2"', text)


def is_routed(address: str, topic: str) -> bool:
    """Does the name server at this address know a route for the topic?"""
    answer = ask(address, GET_ROUTE, {"topic": topic})
    assert answer.code in (SUCCESS, TOPIC_NOT_EXIST), answer
    return answer.code == SUCCESS


def brokers_of(address: str) -> dict[str, dict[str, str]]:
    """Broker name to addresses by broker id, as the name server tells them."""
    answer = ask(address, GET_CLUSTER_INFO)
    return {
        name: dict(data["brokerAddrs"])
        for name, data in json.loads(standard_json(answer.text))["brokerAddrTable"].items()
    }


def topics_known_to(namesrv_address: str) -> set[str]:
    """All topics that have a route."""
    return set(json.loads(ask(namesrv_address, GET_ALL_TOPICS).text)["topicList"])


def topics_kept_by(broker_address: str) -> set[str]:
    """All topics in a broker's own table."""
    return set(json.loads(ask(broker_address, GET_ALL_TOPIC_CONFIG).text)["topicConfigTable"])
