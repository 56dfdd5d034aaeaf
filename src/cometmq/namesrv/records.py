"""What brokers tell a name server, what it remembers of them, and what comes of it: values only."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Protocol

import msgspec

from cometmq.model.topic import DataVersion, TopicConfig, TopicQueueMappingInfo

DEFAULT_BROKER_TIMEOUT_MS: Final = 120_000

LiveKey = tuple[str, str]
"""Cluster name and address of a broker."""


class RouteChanges(Protocol):
    """Hears which routes have changed."""

    def topic_changed(self, topic: str) -> None: ...

    def brokers_changed(self) -> None: ...


class LiveBroker(msgspec.Struct):
    """A broker that has been heard of lately."""

    broker_name: str
    last_update_ms: int
    timeout_ms: int
    data_version: DataVersion
    channel: Hashable
    """The connection on which it registered last; when it closes, the broker is gone."""
    ha_server_addr: str


class BrokerRegistration(msgspec.Struct):
    """What one registration says."""

    cluster: str
    broker_name: str
    broker_addr: str
    broker_id: int
    ha_server_addr: str
    channel: Hashable
    data_version: DataVersion = DataVersion()
    topics: dict[str, TopicConfig] = msgspec.field(default_factory=dict)
    mappings: dict[str, TopicQueueMappingInfo] = msgspec.field(default_factory=dict)
    filter_servers: list[str] | None = None
    timeout_ms: int | None = None
    enable_acting_master: bool | None = None
    """None marks a broker that does not know acting masters."""
    zone_name: str | None = None


class MinIdChange(msgspec.Struct, frozen=True):
    """The smallest broker id of a group is another one now; its members want to know."""

    broker_name: str
    addresses: dict[int, str]
    offline_addr: str | None = None
    ha_server_addr: str | None = None


class Registered(msgspec.Struct):
    """What a registration leads to."""

    master_addr: str | None = None
    ha_server_addr: str | None = None
    min_id_change: MinIdChange | None = None
    taken_from: str | None = None
    """The address that had this name and id until now, if it was another one."""
    kept_by: str | None = None
    """The address that keeps this name and id, because its state is newer."""


class BrokerLeft(msgspec.Struct, frozen=True):
    """A broker to take out of the tables."""

    cluster: str
    broker_name: str
    broker_addr: str
    broker_id: int
