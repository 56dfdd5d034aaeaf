"""JSON bodies: read into declared structs, whatever the peer's dialect; written with sorted members."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from cometmq.model.errors import HeaderError
from cometmq.model.queue import MessageQueue
from cometmq.wire.frame.command import Body
from cometmq.wire.json import fastjson
from cometmq.wire.json.fastjson import BeanKey

T = TypeVar("T")


def decode_json_body(kind: type[T], body: Body, *, max_chars: int = fastjson.MAX_DIALECT_CHARS) -> T:
    """Read a body: standard JSON in one pass, Java's dialect up to `max_chars` with the tolerant reader."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return msgspec.convert(fastjson.loads(body, max_chars=max_chars), kind, strict=False)
    except (msgspec.ValidationError, RecursionError) as error:
        raise HeaderError(f"the body cannot be read: {error}") from None


def decode_answer(kind: type[T], body: Body) -> T:
    """Read the body of an answer to our own request, which may be long in the dialect, too."""
    return decode_json_body(kind, body, max_chars=fastjson.MAX_ANSWER_CHARS)


def without_nones(members: dict[str, Any]) -> dict[str, Any]:
    """Returns the members that are not None, in Java's order."""
    return {key: members[key] for key in sorted(members) if members[key] is not None}


def struct_members(value: msgspec.Struct) -> dict[str, Any]:
    """Returns the members of a struct by wire name, in Java's order and without those that are None."""
    names = zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True)
    return without_nones({wire_name: getattr(value, name) for name, wire_name in names})


class WireQueue(msgspec.Struct, frozen=True, rename="camel"):
    """A queue as Java writes it."""

    broker_name: str
    queue_id: int
    topic: str

    @property
    def queue(self) -> MessageQueue:
        return MessageQueue(self.topic, self.broker_name, self.queue_id)


def queue_key(queue: MessageQueue) -> BeanKey:
    """Returns a queue as the key of a map, or as the members of an object."""
    return (("brokerName", queue.broker_name), ("queueId", queue.queue_id), ("topic", queue.topic))


def encode_topic_list(topics: list[str], broker_addr: str | None = None) -> bytes:
    return fastjson.dumps(without_nones({"brokerAddr": broker_addr, "topicList": topics}))


def encode_kv_table(table: dict[str, str]) -> bytes:
    return fastjson.dumps({"table": table})
