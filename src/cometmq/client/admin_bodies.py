"""What an administrator gets to see: clusters, and how far groups and topics are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from cometmq.client.queue_tables import queue_of_key
from cometmq.model.errors import HeaderError
from cometmq.model.queue import MessageQueue
from cometmq.model.route import BrokerData
from cometmq.wire import fastjson
from cometmq.wire.command import Body

T = TypeVar("T", bound=msgspec.Struct)


class ClusterInfo(msgspec.Struct, frozen=True, rename="camel"):
    """All brokers and clusters that a name server knows."""

    broker_addr_table: Mapping[str, BrokerData]
    cluster_addr_table: Mapping[str, list[str]]


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


class QueueStatus(msgspec.Struct, frozen=True, rename="camel"):
    """What one queue holds."""

    min_offset: int = 0
    max_offset: int = 0
    last_update_timestamp: int = 0


def decode_offset_table(kind: type[T], body: Body) -> dict[MessageQueue, T]:
    """The `offsetTable` of a body, whose keys are queues."""
    whole = fastjson.loads(body)
    table = whole.get("offsetTable") if isinstance(whole, dict) else None
    if not isinstance(table, dict):
        raise HeaderError("the body has no offsetTable")
    convert: Callable[[Any], T] = lambda value: msgspec.convert(value, kind, strict=False)  # noqa: E731
    try:
        return {queue_of_key(key): convert(value) for key, value in table.items()}
    except msgspec.ValidationError as error:
        raise HeaderError(f"the offsetTable cannot be read: {error}") from None
