"""The tables in `config/`: one struct per file, with RocketMQ's members.

Rules kept here: a tuple stands for a Java set or array, a list for a Java list, because they are written
differently; members that other versions leave out have Java's defaults.
"""

from __future__ import annotations

from typing import ClassVar, Final, Self

import msgspec

from cometmq.model.subscription import SubscriptionGroupConfig
from cometmq.model.topic import DataVersion, TopicConfig, TopicQueueMappingDetail

TOPIC_GROUP_SEPARATOR: Final = "@"

QueueOffsets = dict[int, int]
"""Offsets by queue id."""


class ConfigTable(msgspec.Struct, rename="camel"):
    """A file of `config/`."""

    file_name: ClassVar[str]
    is_pretty: ClassVar[bool] = True
    is_derived: ClassVar[bool] = False
    """Whether the broker works without it: statistics, or data that consumers send again."""

    def completed(self) -> Self:
        """The table with its derived members, as it is written."""
        return self


class TopicTable(ConfigTable):
    """The topics of this broker."""

    file_name: ClassVar[str] = "topics.json"

    data_version: DataVersion = DataVersion()
    topic_config_table: dict[str, TopicConfig] = msgspec.field(default_factory=dict)


class TopicQueueMappingTable(ConfigTable):
    """The static topics of this broker."""

    file_name: ClassVar[str] = "topicQueueMapping.json"

    data_version: DataVersion = DataVersion()
    topic_queue_mapping_info_map: dict[str, TopicQueueMappingDetail] = msgspec.field(default_factory=dict)


class ConsumerOffsetTable(ConfigTable):
    """Consumer offsets by `topic@group` and queue id."""

    file_name: ClassVar[str] = "consumerOffset.json"

    data_version: DataVersion = DataVersion()
    offset_table: dict[str, QueueOffsets] = msgspec.field(default_factory=dict)
    group_topic_map: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """Derived from the keys of the offsets; nobody reads it from the file."""

    def completed(self) -> Self:
        topics: dict[str, list[str]] = {}
        for key in self.offset_table:
            parts = key.split(TOPIC_GROUP_SEPARATOR)
            if len(parts) == 2:
                topics.setdefault(parts[1], []).append(parts[0])
        return msgspec.structs.replace(
            self, group_topic_map={group: tuple(names) for group, names in topics.items()}
        )


class LmqConsumerOffsetTable(ConsumerOffsetTable):
    """Consumer offsets with those of light queues, by `topic@group`."""

    file_name: ClassVar[str] = "lmqConsumerOffset.json"

    lmq_offset_table: dict[str, int] = msgspec.field(default_factory=dict)


class SubscriptionGroupTable(ConfigTable):
    """The groups of this broker, and what they may not do with a topic."""

    file_name: ClassVar[str] = "subscriptionGroup.json"

    data_version: DataVersion = DataVersion()
    forbidden_table: dict[str, dict[str, int]] = msgspec.field(default_factory=dict)
    """By group and topic: a set of bits; bit 2 forbids reading."""
    subscription_group_table: dict[str, SubscriptionGroupConfig] = msgspec.field(default_factory=dict)


class DelayOffsetTable(ConfigTable):
    """The next offset to deliver, by delay level."""

    file_name: ClassVar[str] = "delayOffset.json"

    data_version: DataVersion | None = None
    offset_table: QueueOffsets = msgspec.field(default_factory=dict)


class MessageRequestMode(msgspec.Struct, frozen=True, rename="camel"):
    """Whether a group pulls or pops a topic."""

    topic: str
    consumer_group: str
    mode: str = "PULL"
    pop_share_queue_num: int = 0


class MessageRequestModeTable(ConfigTable):
    """Modes by topic and group."""

    file_name: ClassVar[str] = "messageRequestMode.json"

    message_request_mode_map: dict[str, dict[str, MessageRequestMode]] = msgspec.field(default_factory=dict)


class BloomFilterData(msgspec.Struct, frozen=True, rename="camel"):
    """The bits of an expression in a queue's filter."""

    bit_num: int
    bit_pos: tuple[int, ...]


class ConsumerFilterData(msgspec.Struct, frozen=True, rename="camel"):
    """The filter expression of a group for a topic, and when it was in use."""

    topic: str
    consumer_group: str
    expression: str | None = None
    expression_type: str | None = None
    born_time: int = 0
    dead_time: int = 0
    dead: bool = False
    """Whether its consumers are gone: it died after it was born."""
    client_version: int = 0
    bloom_filter_data: BloomFilterData | None = None


class TopicFilters(msgspec.Struct, frozen=True, rename="camel"):
    """The filters of one topic, by group."""

    topic: str | None = None
    group_filter_data: dict[str, ConsumerFilterData] = msgspec.field(default_factory=dict)


class ConsumerFilterTable(ConfigTable):
    """Filters by topic."""

    file_name: ClassVar[str] = "consumerFilter.json"
    is_derived: ClassVar[bool] = True  # consumers say it again with their next heartbeat

    filter_data_by_topic: dict[str, TopicFilters] = msgspec.field(default_factory=dict)


class OrderInfo(msgspec.Struct):
    """Messages that a group popped from a queue in order, and their acknowledgements."""

    pop_time_ms: int = msgspec.field(default=0, name="popTime")
    invisible_ms: int | None = msgspec.field(default=None, name="i")
    offsets: list[int] | None = msgspec.field(default=None, name="o")
    """The first offset, then the distance of each other from the first."""
    next_visible_ms: dict[int, int] | None = msgspec.field(default=None, name="ot")
    """By offset."""
    consumed_times: dict[int, int] | None = msgspec.field(default=None, name="oc")
    """By offset."""
    last_consume_ms: int = msgspec.field(default=0, name="l")
    commit_bits: int = msgspec.field(default=0, name="cm")
    attempt_id: str | None = msgspec.field(default=None, name="a")


class ConsumerOrderTable(ConfigTable):
    """Orders by `topic@group` and queue id."""

    file_name: ClassVar[str] = "consumerOrderInfo.json"

    table: dict[str, dict[int, OrderInfo]] = msgspec.field(default_factory=dict)


class Metric(msgspec.Struct, rename="camel"):
    """A count, and when it last changed."""

    count: int = 0
    time_stamp: int = 0


class TimerMetricsTable(ConfigTable):
    """How many timers are pending, by topic."""

    file_name: ClassVar[str] = "timermetrics"
    is_pretty: ClassVar[bool] = False
    is_derived: ClassVar[bool] = True

    data_version: DataVersion | None = None
    timing_count: dict[str, Metric] = msgspec.field(default_factory=dict)


class TransactionMetricsTable(ConfigTable):
    """How many transactions are open, by topic."""

    file_name: ClassVar[str] = "transactionMetrics"
    is_pretty: ClassVar[bool] = False
    is_derived: ClassVar[bool] = True

    data_version: DataVersion | None = None
    transaction_count: dict[str, Metric] = msgspec.field(default_factory=dict)
