"""Results of admin requests: clusters, group members, progress and queue status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from cometmq.model.errors import HeaderError
from cometmq.model.queue import MessageQueue
from cometmq.model.route import BrokerData, Takeover
from cometmq.wire.bodies.heartbeat import SubscriptionData
from cometmq.wire.bodies.queue_table import queue_of_key
from cometmq.wire.frame.command import Body
from cometmq.wire.json import fastjson

T = TypeVar("T", bound=msgspec.Struct)


class ClusterInfo(msgspec.Struct, frozen=True, rename="camel"):
    """All brokers and clusters that a name server knows."""

    broker_addr_table: Mapping[str, BrokerData]
    cluster_addr_table: Mapping[str, list[str]]
    takeovers: tuple[Takeover, ...] = ()
    """Recent takeovers of routes by another address; Apache's name server does not report them."""


class QueueProgress(msgspec.Struct, frozen=True, rename="camel"):
    """The progress of a group in one queue."""

    broker_offset: int = 0
    """The offset that the next message will get."""
    consumer_offset: int = 0
    """The offset that the group will read next."""
    pull_offset: int = 0
    last_timestamp: int = 0
    """When the last message that was consumed was stored, in milliseconds."""

    @property
    def lag(self) -> int:
        """The number of messages that the group has not consumed."""
        return self.broker_offset - self.consumer_offset


class GroupMember(msgspec.Struct, frozen=True, rename="camel"):
    """A client of a consumer group that is connected to a broker."""

    client_id: str
    client_addr: str = ""
    language: str = ""
    version: int = 0


class GroupConnection(msgspec.Struct, frozen=True, rename="camel"):
    """The members of a consumer group, as one broker knows them, and their subscriptions."""

    connection_set: tuple[GroupMember, ...] = ()
    subscription_table: Mapping[str, SubscriptionData] = {}
    consume_type: str = ""
    message_model: str = ""
    consume_from_where: str = ""
    difference: str | None = None
    """How the subscriptions of two members differ, if the broker reports it."""


class MemberInfo(msgspec.Struct, frozen=True, rename="camel"):
    """The running info of one member of a consumer group."""

    subscription_set: tuple[SubscriptionData, ...] = ()
    queues: tuple[MessageQueue, ...] = ()
    properties: Mapping[str, str] = {}


BrokerProgress = dict[str, dict[MessageQueue, QueueProgress]]
"""The progress of each group in the queues of one broker."""


class QueueStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The offsets of one queue."""

    min_offset: int = 0
    max_offset: int = 0
    last_update_timestamp: int = 0


def decode_offset_table(row_type: type[T], body: Body) -> dict[MessageQueue, T]:
    """Decode the `offsetTable` of a body, whose keys are queues."""
    return _offset_table(row_type, fastjson.loads(body, max_chars=fastjson.MAX_ANSWER_CHARS))


def _offset_table(row_type: type[T], whole: object) -> dict[MessageQueue, T]:
    table = whole.get("offsetTable") if isinstance(whole, dict) else None
    if not isinstance(table, dict):
        raise HeaderError("the body has no offsetTable")
    try:
        return {
            queue_of_key(key): msgspec.convert(value, row_type, strict=False) for key, value in table.items()
        }
    except msgspec.ValidationError as error:
        raise HeaderError(f"the offsetTable cannot be read: {error}") from None


def decode_broker_progress(body: Body) -> BrokerProgress:
    """Decode a list of groups, each with one table of queues per topic."""
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
    """Decode the running info of a client, without its counters."""
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
