"""What an administrator gets to see: clusters, the members of groups, and how far groups and topics are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from cometmq.client.consumer.broker_calls import queue_of_key
from cometmq.model.errors import HeaderError
from cometmq.model.queue import MessageQueue
from cometmq.model.route import BrokerData, Takeover
from cometmq.wire.bodies.heartbeat import SubscriptionData
from cometmq.wire.frame.command import Body
from cometmq.wire.json import fastjson

T = TypeVar("T", bound=msgspec.Struct)


class ClusterInfo(msgspec.Struct, frozen=True, rename="camel"):
    """All brokers and clusters that a name server knows."""

    broker_addr_table: Mapping[str, BrokerData]
    cluster_addr_table: Mapping[str, list[str]]
    takeovers: tuple[Takeover, ...] = ()
    """The routes that moved to another address lately, where the name server says so; Apache's does not."""


class QueueProgress(msgspec.Struct, frozen=True, rename="camel"):
    """How far a group is in one queue."""

    broker_offset: int = 0
    """The offset that the next message will get."""
    consumer_offset: int = 0
    """The offset that the group will read next."""
    pull_offset: int = 0
    last_timestamp: int = 0
    """When the last message that was consumed was stored, in milliseconds."""

    @property
    def lag(self) -> int:
        """How many messages wait for the group."""
        return self.broker_offset - self.consumer_offset


class GroupMember(msgspec.Struct, frozen=True, rename="camel"):
    """A client of a consumer group that is connected to a broker."""

    client_id: str
    client_addr: str = ""
    language: str = ""
    version: int = 0


class GroupConnection(msgspec.Struct, frozen=True, rename="camel"):
    """The members of a consumer group, as one broker knows them, and what they subscribe to."""

    connection_set: tuple[GroupMember, ...] = ()
    subscription_table: Mapping[str, SubscriptionData] = {}
    consume_type: str = ""
    message_model: str = ""
    consume_from_where: str = ""
    difference: str | None = None
    """How the subscriptions of two members differ, where the broker says so."""


class MemberInfo(msgspec.Struct, frozen=True, rename="camel"):
    """What one member of a consumer group reads, in its own words."""

    subscription_set: tuple[SubscriptionData, ...] = ()
    queues: tuple[MessageQueue, ...] = ()
    properties: Mapping[str, str] = {}


BrokerProgress = dict[str, dict[MessageQueue, QueueProgress]]
"""How far each group is in the queues of one broker."""


class QueueStatus(msgspec.Struct, frozen=True, rename="camel"):
    """What one queue holds."""

    min_offset: int = 0
    max_offset: int = 0
    last_update_timestamp: int = 0


def decode_offset_table(kind: type[T], body: Body) -> dict[MessageQueue, T]:
    """The `offsetTable` of a body, whose keys are queues."""
    return _offset_table(kind, fastjson.loads(body, max_chars=fastjson.MAX_ANSWER_CHARS))


def _offset_table(kind: type[T], whole: object) -> dict[MessageQueue, T]:
    table = whole.get("offsetTable") if isinstance(whole, dict) else None
    if not isinstance(table, dict):
        raise HeaderError("the body has no offsetTable")
    convert: Callable[[Any], T] = lambda value: msgspec.convert(value, kind, strict=False)  # noqa: E731
    try:
        return {queue_of_key(key): convert(value) for key, value in table.items()}
    except msgspec.ValidationError as error:
        raise HeaderError(f"the offsetTable cannot be read: {error}") from None


def decode_broker_progress(body: Body) -> BrokerProgress:
    """A list of groups, each with a table of queues for every topic."""
    whole = fastjson.loads(body, max_chars=fastjson.MAX_ANSWER_CHARS)
    listed = whole.get("consumeStatsList") if isinstance(whole, dict) else None
    if not isinstance(listed, list):
        raise HeaderError("the body has no consumeStatsList")
    progress: BrokerProgress = {}
    for entry in listed:
        for group, tables in entry.items():
            queues = progress.setdefault(group, {})
            for table in tables or ():
                queues |= _offset_table(QueueProgress, table)
    return progress


def decode_member_info(body: Body) -> MemberInfo:
    """What a client answers when it is asked what it does; its counters are left out."""
    whole = fastjson.loads(body, max_chars=fastjson.MAX_ANSWER_CHARS)
    if not isinstance(whole, dict):
        raise HeaderError("the body is no running info of a consumer")
    queues = whole.get("mqTable") or {}
    try:
        return MemberInfo(
            msgspec.convert(whole.get("subscriptionSet") or (), tuple[SubscriptionData, ...], strict=False),
            tuple(sorted(queue_of_key(key) for key in queues)),
            msgspec.convert(whole.get("properties") or {}, dict[str, str], strict=False),
        )
    except msgspec.ValidationError as error:
        raise HeaderError(f"the running info cannot be read: {error}") from None
