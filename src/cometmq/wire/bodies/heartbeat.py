"""Heartbeats: the groups of a client and their subscriptions.

Rules kept here:
- The member names are Java's; members stand in alphabetical order.
- The C++ client sends ordinals of Java's enums instead of names. Null members count as missing.
- A fingerprint tells whether two heartbeats are equal: the client, the versions of the subscriptions and the
  two members about the sending do not count.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

import msgspec

from cometmq.model.errors import HeaderError
from cometmq.wire.bodies.json_body import decode_json_body
from cometmq.wire.frame.command import Body
from cometmq.wire.java_hash import java_hash
from cometmq.wire.json import fastjson

TAG: Final = "TAG"
SQL92: Final = "SQL92"
"""Expression types of a subscription."""
ALL: Final = "*"
"""The expression that takes every message."""


class ConsumeType(StrEnum):
    """How a group gets its messages."""

    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
    CONSUME_POP = "CONSUME_POP"


class MessageModel(StrEnum):
    """Whether the members of a group share the messages, or each gets all of them."""

    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"


class ConsumeFromWhere(StrEnum):
    """Where a group begins in a queue for which it has no offset yet."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"
    # Deprecated, and still sent by old clients.
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = (
        "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    )
    CONSUME_FROM_MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    CONSUME_FROM_MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"


class SubscriptionData(msgspec.Struct, frozen=True, rename="camel"):
    """What a group reads of one topic."""

    topic: str
    sub_string: str = ALL
    tags_set: tuple[str, ...] = ()
    code_set: tuple[int, ...] = ()
    """The Java hashes of the tags."""
    sub_version: int = 0
    """When the subscription was made, in milliseconds; the larger one is the newer one."""
    expression_type: str = TAG
    class_filter_mode: bool = False


class ProducerData(msgspec.Struct, frozen=True, rename="camel"):
    """One producer group of a client."""

    group_name: str


class ConsumerData(msgspec.Struct, frozen=True, rename="camel"):
    """One consumer group of a client."""

    group_name: str
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    subscription_data_set: tuple[SubscriptionData, ...] = ()
    unit_mode: bool = False


class HeartbeatData(msgspec.Struct, frozen=True, rename="camel"):
    """Everything that a client tells a broker about itself."""

    client_id: str = msgspec.field(name="clientID")
    producer_data_set: tuple[ProducerData, ...] = ()
    consumer_data_set: tuple[ConsumerData, ...] = ()
    heartbeat_fingerprint: int = 0
    """0 in a heartbeat of the first form."""
    without_sub: bool = False
    """True in a short heartbeat, whose groups come without their subscriptions."""


def encode_heartbeat(data: HeartbeatData) -> bytes:
    return msgspec.json.encode(data, order="sorted")


def decode_heartbeat(body: Body) -> HeartbeatData:
    try:
        return decode_json_body(HeartbeatData, body)
    except HeaderError as error:
        if len(body) > fastjson.MAX_DIALECT_CHARS:
            raise
        members = _mended(fastjson.loads(body))
        try:
            return msgspec.convert(members, HeartbeatData, strict=False)
        except msgspec.ValidationError:
            raise error from None


_BY_ORDINAL: Final = {
    "consumeType": ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP"),
    "messageModel": ("BROADCASTING", "CLUSTERING"),
    "consumeFromWhere": (
        "CONSUME_FROM_LAST_OFFSET",
        "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
        "CONSUME_FROM_MIN_OFFSET",
        "CONSUME_FROM_MAX_OFFSET",
        "CONSUME_FROM_FIRST_OFFSET",
        "CONSUME_FROM_TIMESTAMP",
    ),
}


def _mended(value: Any) -> Any:
    """Drop nulls and replace ordinals by names."""
    if isinstance(value, list):
        return [_mended(each) for each in value]
    if not isinstance(value, dict):
        return value
    members = {name: _mended(each) for name, each in value.items() if each is not None}
    for name, names in _BY_ORDINAL.items():
        ordinal = members.get(name)
        if isinstance(ordinal, int) and 0 <= ordinal < len(names):
            members[name] = names[ordinal]
    return members


def heartbeat_fingerprint(data: HeartbeatData) -> int:
    """Returns a hash of groups and subscriptions."""
    consumers = []
    for group in sorted(data.consumer_data_set, key=lambda each: each.group_name):
        read = sorted(group.subscription_data_set, key=lambda each: each.topic)
        unversioned = tuple(msgspec.structs.replace(each, sub_version=0) for each in read)
        consumers.append(msgspec.structs.replace(group, subscription_data_set=unversioned))
    producers = tuple(sorted(data.producer_data_set, key=lambda each: each.group_name))
    plain = HeartbeatData("", producers, tuple(consumers))
    return java_hash(encode_heartbeat(plain).decode())


def short_heartbeat(data: HeartbeatData, fingerprint: int) -> HeartbeatData:
    """Returns a heartbeat without subscriptions, for a broker that knows its fingerprint."""
    consumers = tuple(
        msgspec.structs.replace(group, subscription_data_set=()) for group in data.consumer_data_set
    )
    return HeartbeatData(data.client_id, data.producer_data_set, consumers, fingerprint, without_sub=True)
