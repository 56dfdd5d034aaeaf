"""JSON bodies: read into declared structs, whatever the peer's dialect; written with sorted members."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from cometmq.model.errors import HeaderError
from cometmq.wire.frame.command import Body
from cometmq.wire.json import fastjson

T = TypeVar("T")


def decode_json_body(kind: type[T], body: Body, *, max_chars: int = fastjson.MAX_DIALECT_CHARS) -> T:
    """Read a body; standard JSON in one pass, Java's dialect, up to a length, through the tolerant reader."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return msgspec.convert(fastjson.loads(body, max_chars=max_chars), kind, strict=False)
    except (msgspec.ValidationError, RecursionError) as error:
        raise HeaderError(f"the body cannot be read: {error}") from None


def decode_answer(kind: type[T], body: Body) -> T:
    """Read the body of an answer that we asked for, which may be long in the dialect, too."""
    return decode_json_body(kind, body, max_chars=fastjson.MAX_ANSWER_CHARS)


def without_nones(members: dict[str, Any]) -> dict[str, Any]:
    """The members that are there, in the order in which Java writes them."""
    return {key: members[key] for key in sorted(members) if members[key] is not None}


def encode_topic_list(topics: list[str], broker_addr: str | None = None) -> bytes:
    """A list of topics, with the address of a broker that has them where one is asked for."""
    return fastjson.dumps(without_nones({"brokerAddr": broker_addr, "topicList": topics}))


def encode_kv_table(table: dict[str, str]) -> bytes:
    """Keys and values of one namespace."""
    return fastjson.dumps({"table": table})
