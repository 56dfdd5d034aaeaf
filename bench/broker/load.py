"""Frames for a broker, as a Java client writes them: sends, pulls, and the requests that prepare them.

Rules kept here:

- Sends have 128-byte bodies and the properties that Apache's producer sets, each with its own unique key,
  because brokers index these.
- A topic is filled before it is pulled from; every pull asks for a complete batch that is there.
- Everything that was set up is checked with a request before it is used.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator

from bench.errors import ClusterError
from bench.load.frames import Answer, Caller, json_request

PULL_MESSAGE = 11
UPDATE_TOPIC = 17
GET_MAX_OFFSET = 30
GET_ROUTE = 105
SEND_MESSAGE_V2 = 310

QUEUES = 8
BODY = bytes(range(128))
BATCH = 32
DISTINCT_SENDS = 4_096
AT_ONCE = 128
SUBSCRIPTION = 4
ROUTE_SECONDS = 30.0

_UNIQUE_PREFIX = "0A0000010000000000000000000000021CFA5FFD2B2749DA"


def create_topic(broker: tuple[str, int], namesrv: tuple[str, int], topic: str, queues: int = QUEUES) -> None:
    """Create a topic and wait until clients can find it."""
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": str(queues),
        "writeQueueNums": str(queues),
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }
    with Caller(broker) as caller:
        _expect_success(caller.ask(json_request(UPDATE_TOPIC, fields)))
    deadline = time.monotonic() + ROUTE_SECONDS
    with Caller(namesrv) as caller:
        while caller.ask(json_request(GET_ROUTE, {"topic": topic})).code:
            if time.monotonic() > deadline:
                raise ClusterError(f"{topic} has no route after {ROUTE_SECONDS:g} s")
            time.sleep(0.05)


def send_frames(
    topic: str, body: bytes = BODY, queues: int = QUEUES, count: int = DISTINCT_SENDS
) -> list[bytes]:
    """Sends to the queues in turn."""
    born_ms = int(time.time() * 1000)
    return [
        json_request(SEND_MESSAGE_V2, send_fields(topic, n, n % queues, born_ms), body) for n in range(count)
    ]


def send_fields(topic: str, number: int, queue_id: int, born_ms: int) -> dict[str, str]:
    unique_key = f"{_UNIQUE_PREFIX}{number:08X}"
    properties = f"KEYS\x01order-{number}\x02UNIQ_KEY\x01{unique_key}\x02WAIT\x01true\x02TAGS\x01paid\x02"
    return {
        "a": "order-service",
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": str(queue_id),
        "f": "0",
        "g": str(born_ms),
        "h": "0",
        "i": properties,
        "j": "0",
        "k": "false",
        "m": "false",
        "n": "broker-a",
    }


def cold_pull_frames(topic: str, first: int, count: int, queue_id: int = 0) -> list[bytes]:
    """Pulls of one large message after the other."""
    return [
        json_request(PULL_MESSAGE, {**pull_fields(topic, queue_id, offset), "maxMsgNums": "1"})
        for offset in range(first, first + count)
    ]


def pull_frames(topic: str, batches: int, queues: int = QUEUES) -> list[bytes]:
    """Pulls of whole batches: in every queue one after the other, the queues in turn."""
    return [
        json_request(PULL_MESSAGE, pull_fields(topic, queue_id, batch * BATCH))
        for batch in range(batches)
        for queue_id in range(queues)
    ]


def pull_fields(topic: str, queue_id: int, offset: int) -> dict[str, str]:
    return {
        "consumerGroup": "billing",
        "topic": topic,
        "queueId": str(queue_id),
        "queueOffset": str(offset),
        "maxMsgNums": str(BATCH),
        "sysFlag": str(SUBSCRIPTION),
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
    }


def fill(broker: tuple[str, int], topic: str, batches: int, queues: int = QUEUES) -> None:
    """Put so many batches into every queue, and see that a pull gets a whole one at the end."""
    with Caller(broker) as caller:
        frames = send_frames(topic, queues=queues, count=batches * BATCH * queues)
        for start in range(0, len(frames), AT_ONCE):
            for answer in caller.ask_all(frames[start : start + AT_ONCE]):
                _expect_success(answer)
        for queue_id in range(queues):
            answer = caller.ask(
                json_request(PULL_MESSAGE, pull_fields(topic, queue_id, (batches - 1) * BATCH))
            )
            _expect_success(answer)
            if (found := sum(1 for _ in records(answer.body))) != BATCH:
                raise ClusterError(f"a pull of {topic} got {found} of {BATCH} messages")


def records(body: bytes) -> Iterator[bytes]:
    """The records of an answer to a pull."""
    position = 0
    while position < len(body):
        (size,) = struct.unpack_from(">i", body, position)
        yield body[position : position + size]
        position += size


def queue_ends(broker: tuple[str, int], topic: str, queues: int = QUEUES) -> list[int]:
    """How many messages each queue has."""
    with Caller(broker) as caller:
        fields = ({"topic": topic, "queueId": str(queue_id)} for queue_id in range(queues))
        answers = caller.ask_all([json_request(GET_MAX_OFFSET, one) for one in fields])
    return [int(answer.fields["offset"]) for answer in answers]


def _expect_success(answer: Answer) -> None:
    if answer.code:
        raise ClusterError(f"the broker answered code {answer.code}: {answer.remark}")
