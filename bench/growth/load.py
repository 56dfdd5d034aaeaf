"""Many topics and large backlogs, created quickly: topics by the list, messages by the batch.

Rules kept here:

- Every message is stored and indexed as if it had been sent alone.
- Topic names have the same length at all sizes, so that requests have it, too.
- Everything that was set up is checked with a request before it is used.
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Sequence

from bench.broker.load import BODY, QUEUES, queue_ends, send_fields
from bench.errors import BenchmarkError
from bench.load.frames import Caller, json_request

CREATE_TOPICS = 18
SEND_BATCH = 320
TOPICS_AT_ONCE = 500
FRAMES_AT_ONCE = 64
ANSWER_SECONDS = 60.0
BACKLOG_BATCH = 256
SETTLE_SECONDS = 120.0

_ITEM = struct.Struct(">iiiii")
"""Size, magic, checksum, flag and length of the body; body and properties follow."""


def create_topics(broker: tuple[str, int], topics: Sequence[str], queues: int = 1) -> None:
    """Create topics, many in each request."""
    with Caller(broker, ANSWER_SECONDS) as caller:
        for first in range(0, len(topics), TOPICS_AT_ONCE):
            configs = [_config(topic, queues) for topic in topics[first : first + TOPICS_AT_ONCE]]
            body = json.dumps({"topicConfigList": configs}).encode()
            answer = caller.ask(json_request(CREATE_TOPICS, None, body))
            if answer.code:
                raise BenchmarkError(f"topics were not created: code {answer.code}: {answer.remark}")


def _config(topic: str, queues: int) -> dict[str, object]:
    return {
        "topicName": topic,
        "readQueueNums": queues,
        "writeQueueNums": queues,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": False,
        "attributes": {},
    }


def batch_frame(topic: str, queue_id: int, count: int) -> bytes:
    """A batch of ordinary messages."""
    born_ms = int(time.time() * 1000)
    items = []
    for number in range(count):
        properties = send_fields(topic, number, queue_id, born_ms)["i"].encode()
        size = _ITEM.size + len(BODY) + 2 + len(properties)
        items += [_ITEM.pack(size, 0, 0, 0, len(BODY)), BODY, len(properties).to_bytes(2, "big"), properties]
    fields = {**send_fields(topic, 0, queue_id, born_ms), "i": "", "m": "true"}
    return json_request(SEND_BATCH, fields, b"".join(items))


def send_all(broker: tuple[str, int], frames: Sequence[bytes]) -> None:
    """Send the frames, some at a time, and see that each is taken."""
    with Caller(broker, ANSWER_SECONDS) as caller:
        for first in range(0, len(frames), FRAMES_AT_ONCE):
            for answer in caller.ask_all(frames[first : first + FRAMES_AT_ONCE]):
                if answer.code:
                    raise BenchmarkError(f"a batch was refused: code {answer.code}: {answer.remark}")


def fill_to(broker: tuple[str, int], topic: str, messages: int, queues: int = QUEUES) -> None:
    """Fill a topic up to so many messages, spread evenly, and wait until all of them can be read."""
    wanted = messages // queues
    ends = queue_ends(broker, topic, queues)
    frames = []
    for queue_id, end in enumerate(ends):
        whole, rest = divmod(wanted - end, BACKLOG_BATCH)
        frames += [batch_frame(topic, queue_id, BACKLOG_BATCH)] * whole
        frames += [batch_frame(topic, queue_id, rest)] if rest else []
    send_all(broker, frames)
    deadline = time.monotonic() + SETTLE_SECONDS
    while any(end < wanted for end in queue_ends(broker, topic, queues)):
        if time.monotonic() > deadline:
            raise BenchmarkError(f"{topic} has not {messages:,} messages after {SETTLE_SECONDS:g} s")
        time.sleep(0.1)
