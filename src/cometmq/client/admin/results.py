"""Results of admin requests: clusters, group members, progress and queue status."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

import msgspec

from cometmq.model.errors import HeaderError
from cometmq.model.queue import MessageQueue, lag_of
from cometmq.model.route import BrokerData, Takeover
from cometmq.wire.bodies.heartbeat import SubscriptionData
from cometmq.wire.bodies.json_body import WireQueue, decode_answer
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


class SettingsChanged(msgspec.Struct, frozen=True):
    """What became of changed settings; empty from Apache's servers, which do not say."""

    states: Mapping[str, str] = {}
    """By key: "live", "next start" or "no effect"."""
    kept_in: str | None = None
    """The file that has them for the next start; without one they last as long as the server runs."""


class QueueProgress(msgspec.Struct, frozen=True, rename="camel"):
    """The progress of a group in one queue."""

    broker_offset: int = 0
    """The offset that the next message will get."""
    consumer_offset: int = 0
    """The offset that the group will read next."""
    pull_offset: int = 0
    last_timestamp: int = 0
    """When the last message that was consumed was stored, in milliseconds."""
    has_offset: bool = True
    """Whether the group has an offset at all; Apache's broker does not say, and shows 0 for none."""

    @property
    def lag(self) -> int | None:
        """The number of messages that the group has not consumed; None if it has no offset yet."""
        return lag_of(self.broker_offset, self.consumer_offset) if self.has_offset else None


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


class ProducerInfo(msgspec.Struct, frozen=True, rename="camel"):
    """A producer that is connected to a broker."""

    client_id: str
    remote_ip: str = msgspec.field(name="remoteIP", default="")
    """Its address, after a slash."""
    language: str = ""
    version: int = 0
    last_update_timestamp: int = 0
    """When its last heartbeat came, in milliseconds."""


class RequestMode(msgspec.Struct, frozen=True, rename="camel"):
    """Whether a group pulls or pops a topic, if brokers assign its queues."""

    topic: str
    consumer_group: str
    mode: str = "PULL"
    pop_share_queue_num: int = 0
    """How many members pop a queue at the same time; 0 or -1 are all."""


class ConsumeTimeSpan(msgspec.Struct, frozen=True, rename="camel"):
    """The store times of messages in a queue, as a group sees them; all in milliseconds."""

    min_time_stamp: int = 0
    """Of the oldest message."""
    max_time_stamp: int = 0
    """Of the newest message."""
    consume_time_stamp: int = 0
    """Of the last message that the group consumed."""
    delay_time: int = 0
    """How long the next message has waited for the group."""


class TrackType(StrEnum):
    """What became of a message in a consumer group; the names are RocketMQ's."""

    CONSUMED = "CONSUMED"
    """The group's offset is past the message: it was consumed, or given back for a retry."""
    CONSUMED_BUT_FILTERED = "CONSUMED_BUT_FILTERED"
    """The offset is past it, and the group does not subscribe to its tag."""
    NOT_CONSUME_YET = "NOT_CONSUME_YET"
    NOT_ONLINE = "NOT_ONLINE"
    """The offset is not past it, and the group has no members."""
    PULL = "PULL"
    """The offset is not past it, but the members pull, and may keep offsets elsewhere."""
    CONSUME_BROADCASTING = "CONSUME_BROADCASTING"
    """Every member keeps its own offsets."""


class MessageTrack(msgspec.Struct, frozen=True, rename="camel"):
    """What became of a message in one consumer group."""

    group: str
    track_type: TrackType
    consumer_offset: int | None = None
    """The offset that the group has committed in the message's queue."""


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


def decode_time_spans(body: Body) -> dict[MessageQueue, ConsumeTimeSpan]:
    """Decode the `consumeTimeSpanSet` of a body, whose entries name their queue."""
    found: dict[MessageQueue, ConsumeTimeSpan] = {}
    for entry in decode_answer(_TimeSpans, body).consume_time_span_set:
        span = ConsumeTimeSpan(*(getattr(entry, name) for name in ConsumeTimeSpan.__struct_fields__))
        found[entry.message_queue.queue] = span
    return found


class _QueueTimeSpan(ConsumeTimeSpan, frozen=True, rename="camel", kw_only=True):
    message_queue: WireQueue


class _TimeSpans(msgspec.Struct, frozen=True, rename="camel"):
    consume_time_span_set: tuple[_QueueTimeSpan, ...] = ()


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
