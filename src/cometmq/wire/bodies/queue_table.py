"""Tables of offsets by queue in bodies; keys are queues, as objects or as the text of objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cometmq.model.errors import HeaderError
from cometmq.model.java_numbers import long_of
from cometmq.model.queue import MessageQueue
from cometmq.wire.bodies.json_body import queue_key
from cometmq.wire.frame.command import Body
from cometmq.wire.json import fastjson


def decode_queue_table(body: Body, member: str) -> dict[MessageQueue, int]:
    """Decode a table of offsets in a body; its keys are queues, as objects or as the text of objects."""
    whole = fastjson.loads(body, max_chars=fastjson.MAX_ANSWER_CHARS) if body else {}
    table = whole.get(member) if isinstance(whole, dict) else None
    if not isinstance(table, dict):
        raise HeaderError(f"the body has no table {member!r}")
    try:
        return {queue_of_key(key): long_of(str(offset)) for key, offset in table.items()}
    except (TypeError, ValueError):
        raise HeaderError(f"the table {member!r} has an offset that is no number") from None


def queue_of_key(key: object) -> MessageQueue:
    """The queue of a table key."""
    members: Any = fastjson.loads(key) if isinstance(key, str) else key
    try:
        found = dict(members)
        topic, broker_name = found["topic"], found["brokerName"]
        if isinstance(topic, str) and isinstance(broker_name, str):
            return MessageQueue(topic, broker_name, long_of(str(found["queueId"])))
    except (KeyError, TypeError, ValueError):
        pass
    raise HeaderError(f"a table has the key {str(key)[:80]!r}, which is no queue")


def encode_queue_table(member: str, offsets: Mapping[MessageQueue, int]) -> bytes:
    """Encode a body with one table."""
    return fastjson.dumps({member: {queue_key(queue): offset for queue, offset in offsets.items()}})
