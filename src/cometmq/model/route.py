"""Routes: which brokers have which queues of a topic, and how the brokers are reached."""

from __future__ import annotations

from typing import Final

import msgspec

from cometmq.model.topic import TopicQueueMappingInfo

MASTER_ID: Final = 0
"""The broker id of a master; replicas have larger ones."""


class QueueData(msgspec.Struct, frozen=True, rename="camel"):
    """The queues of a topic on one broker name."""

    broker_name: str
    read_queue_nums: int = 0
    write_queue_nums: int = 0
    perm: int = 0
    topic_sys_flag: int = 0


class BrokerData(msgspec.Struct, rename="camel"):
    """The members of one broker name: a master and its replicas."""

    cluster: str
    broker_name: str
    broker_addrs: dict[int, str] = msgspec.field(default_factory=dict)
    zone_name: str | None = None
    enable_acting_master: bool = False


class TopicRoute(msgspec.Struct, rename="camel"):
    """Everything a client needs to know to send to a topic or read from it."""

    queue_datas: list[QueueData]
    broker_datas: list[BrokerData]
    filter_server_table: dict[str, list[str]] = msgspec.field(default_factory=dict)
    order_topic_conf: str | None = None
    topic_queue_mapping_by_broker: dict[str, TopicQueueMappingInfo] | None = None


class Takeover(msgspec.Struct, frozen=True, rename="camel"):
    """A broker took the route of another address by registering under its name and id."""

    broker_id: int
    broker_name: str
    cluster: str
    count: int
    """How often: two running brokers take the route from each other."""
    last_ms: int
    """The last time, in milliseconds since 1970."""
    new_addr: str
    old_addr: str
