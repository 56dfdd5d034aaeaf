"""CometMQ: Apache RocketMQ's message system in Python.

The classes here block; `cometmq.aio` has their asyncio twins under the same names. Each name is loaded on
first use, so importing the package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from cometmq._version import __version__

if TYPE_CHECKING:
    from cometmq.client.admin.results import (
        ClusterInfo,
        ConsumeTimeSpan,
        GroupConnection,
        GroupMember,
        MemberInfo,
        MessageTrack,
        ProducerInfo,
        QueueProgress,
        QueueStatus,
        RequestMode,
        SettingsChanged,
        TrackType,
    )
    from cometmq.client.blocking.admin import Admin
    from cometmq.client.blocking.consumer import PopConsumer, PullConsumer, PushConsumer
    from cometmq.client.blocking.producer import Producer, Transaction, TransactionProducer
    from cometmq.client.consumer.allocation import (
        AllocationStrategy,
        Averagely,
        AveragelyByCircle,
        ByConfiguration,
        ByMachineRoom,
        ConsistentHash,
        NearestRoom,
    )
    from cometmq.client.consumer.interceptor import ConsumeInterceptor
    from cometmq.client.consumer.listener import (
        ConsumeContext,
        ConsumeResult,
        ListenerDecorator,
        ListenerFunction,
    )
    from cometmq.client.consumer.pop.settings import PopOptions, PopSettings
    from cometmq.client.consumer.pull_request import PullReply
    from cometmq.client.consumer.rebalance import RebalanceListener
    from cometmq.client.consumer.settings import (
        ConsumerSettings,
        PullOptions,
        PullSettings,
        PushOptions,
        PushSettings,
    )
    from cometmq.client.consumer.statistics import ConsumerStatistics, QueueStatistics, TopicStatistics
    from cometmq.client.producer.in_flight import SendCallback
    from cometmq.client.producer.interceptor import SendInterceptor
    from cometmq.client.producer.producer import MessageFields
    from cometmq.client.producer.queue_selection import QueueSelector, SendOptions
    from cometmq.client.producer.sender import SendReceipt, SendStatus
    from cometmq.client.producer.settings import CompressionName, ProducerOptions, ProducerSettings
    from cometmq.client.producer.statistics import ProducerStatistics
    from cometmq.client.producer.transactions import (
        OpenTransaction,
        TransactionAnswer,
        TransactionCheck,
        TransactionListener,
        TransactionReceipt,
        TransactionState,
    )
    from cometmq.client.serializer import Serializer, json_serializer
    from cometmq.client.settings import ClientOptions, ClientSettings, ServiceState
    from cometmq.client.subscription import Expression, Sql
    from cometmq.client.trace.query import ConsumeTrace, MessageTrace
    from cometmq.client.trace.records import (
        ConsumeOutcome,
        RecallTrace,
        SendTrace,
        TraceMessageType,
        TransactionTrace,
    )
    from cometmq.model.errors import (
        CallTimeoutError,
        CometError,
        FlushError,
        GroupTakenError,
        MessageError,
        PartialBatchError,
        RouteNotFoundError,
        SendError,
        SettingsError,
        StateError,
        TooManyRequestsError,
    )
    from cometmq.model.message import Host, Message, StoredMessage
    from cometmq.model.queue import MessageQueue
    from cometmq.model.route import BrokerData, QueueData, Takeover, TopicRoute
    from cometmq.model.subscription import (
        CustomizedRetryPolicy,
        ExponentialRetryPolicy,
        GroupRetryPolicy,
        SimpleSubscription,
        SubscriptionGroupConfig,
    )
    from cometmq.model.sysflag import TransactionType
    from cometmq.model.topic import TopicConfig, TopicQueueMappingInfo
    from cometmq.remoting.tls import ClientTls
    from cometmq.wire.bodies.heartbeat import ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData

_NAMES: Final = {
    "client.admin.results": (
        "ClusterInfo",
        "ConsumeTimeSpan",
        "GroupConnection",
        "GroupMember",
        "MemberInfo",
        "MessageTrack",
        "ProducerInfo",
        "QueueProgress",
        "QueueStatus",
        "RequestMode",
        "SettingsChanged",
        "TrackType",
    ),
    "client.blocking.admin": ("Admin",),
    "client.blocking.consumer": (
        "PopConsumer",
        "PullConsumer",
        "PushConsumer",
    ),
    "client.blocking.producer": (
        "Producer",
        "Transaction",
        "TransactionProducer",
    ),
    "client.consumer.allocation": (
        "AllocationStrategy",
        "Averagely",
        "AveragelyByCircle",
        "ByConfiguration",
        "ByMachineRoom",
        "ConsistentHash",
        "NearestRoom",
    ),
    "client.consumer.interceptor": ("ConsumeInterceptor",),
    "client.consumer.listener": (
        "ConsumeContext",
        "ConsumeResult",
        "ListenerDecorator",
        "ListenerFunction",
    ),
    "client.consumer.pop.settings": (
        "PopOptions",
        "PopSettings",
    ),
    "client.consumer.pull_request": ("PullReply",),
    "client.consumer.rebalance": ("RebalanceListener",),
    "client.consumer.settings": (
        "ConsumerSettings",
        "PullOptions",
        "PullSettings",
        "PushOptions",
        "PushSettings",
    ),
    "client.consumer.statistics": ("ConsumerStatistics", "QueueStatistics", "TopicStatistics"),
    "client.producer.in_flight": ("SendCallback",),
    "client.producer.interceptor": ("SendInterceptor",),
    "client.producer.producer": ("MessageFields",),
    "client.producer.queue_selection": (
        "QueueSelector",
        "SendOptions",
    ),
    "client.producer.sender": (
        "SendReceipt",
        "SendStatus",
    ),
    "client.producer.settings": (
        "CompressionName",
        "ProducerOptions",
        "ProducerSettings",
    ),
    "client.producer.statistics": ("ProducerStatistics",),
    "client.producer.transactions": (
        "OpenTransaction",
        "TransactionAnswer",
        "TransactionCheck",
        "TransactionListener",
        "TransactionReceipt",
        "TransactionState",
    ),
    "client.serializer": (
        "Serializer",
        "json_serializer",
    ),
    "client.settings": (
        "ClientOptions",
        "ClientSettings",
        "ServiceState",
    ),
    "client.subscription": (
        "Expression",
        "Sql",
    ),
    "client.trace.query": (
        "ConsumeTrace",
        "MessageTrace",
    ),
    "client.trace.records": (
        "ConsumeOutcome",
        "RecallTrace",
        "SendTrace",
        "TraceMessageType",
        "TransactionTrace",
    ),
    "model.errors": (
        "CallTimeoutError",
        "CometError",
        "FlushError",
        "GroupTakenError",
        "MessageError",
        "PartialBatchError",
        "RouteNotFoundError",
        "SendError",
        "SettingsError",
        "StateError",
        "TooManyRequestsError",
    ),
    "model.message": (
        "Host",
        "Message",
        "StoredMessage",
    ),
    "model.queue": ("MessageQueue",),
    "model.route": (
        "BrokerData",
        "QueueData",
        "Takeover",
        "TopicRoute",
    ),
    "model.subscription": (
        "CustomizedRetryPolicy",
        "ExponentialRetryPolicy",
        "GroupRetryPolicy",
        "SimpleSubscription",
        "SubscriptionGroupConfig",
    ),
    "model.sysflag": ("TransactionType",),
    "model.topic": (
        "TopicConfig",
        "TopicQueueMappingInfo",
    ),
    "remoting.tls": ("ClientTls",),
    "wire.bodies.heartbeat": (
        "ConsumeFromWhere",
        "ConsumeType",
        "MessageModel",
        "SubscriptionData",
    ),
}
"""The public names of each module."""
_HOMES: Final = {name: f"cometmq.{module}" for module, names in _NAMES.items() for name in names}

__all__ = [
    "Admin",
    "AllocationStrategy",
    "Averagely",
    "AveragelyByCircle",
    "BrokerData",
    "ByConfiguration",
    "ByMachineRoom",
    "CallTimeoutError",
    "ClientOptions",
    "ClientSettings",
    "ClientTls",
    "ClusterInfo",
    "CometError",
    "CompressionName",
    "ConsistentHash",
    "ConsumeContext",
    "ConsumeFromWhere",
    "ConsumeInterceptor",
    "ConsumeOutcome",
    "ConsumeResult",
    "ConsumeTimeSpan",
    "ConsumeTrace",
    "ConsumeType",
    "ConsumerSettings",
    "ConsumerStatistics",
    "CustomizedRetryPolicy",
    "ExponentialRetryPolicy",
    "Expression",
    "FlushError",
    "GroupConnection",
    "GroupMember",
    "GroupRetryPolicy",
    "GroupTakenError",
    "Host",
    "ListenerDecorator",
    "ListenerFunction",
    "MemberInfo",
    "Message",
    "MessageError",
    "MessageFields",
    "MessageModel",
    "MessageQueue",
    "MessageTrace",
    "MessageTrack",
    "NearestRoom",
    "OpenTransaction",
    "PartialBatchError",
    "PopConsumer",
    "PopOptions",
    "PopSettings",
    "Producer",
    "ProducerInfo",
    "ProducerOptions",
    "ProducerSettings",
    "ProducerStatistics",
    "PullConsumer",
    "PullOptions",
    "PullReply",
    "PullSettings",
    "PushConsumer",
    "PushOptions",
    "PushSettings",
    "QueueData",
    "QueueProgress",
    "QueueSelector",
    "QueueStatistics",
    "QueueStatus",
    "RebalanceListener",
    "RecallTrace",
    "RequestMode",
    "RouteNotFoundError",
    "SendCallback",
    "SendError",
    "SendInterceptor",
    "SendOptions",
    "SendReceipt",
    "SendStatus",
    "SendTrace",
    "Serializer",
    "ServiceState",
    "SettingsChanged",
    "SettingsError",
    "SimpleSubscription",
    "Sql",
    "StateError",
    "StoredMessage",
    "SubscriptionData",
    "SubscriptionGroupConfig",
    "Takeover",
    "TooManyRequestsError",
    "TopicConfig",
    "TopicQueueMappingInfo",
    "TopicRoute",
    "TopicStatistics",
    "TraceMessageType",
    "TrackType",
    "Transaction",
    "TransactionAnswer",
    "TransactionCheck",
    "TransactionListener",
    "TransactionProducer",
    "TransactionReceipt",
    "TransactionState",
    "TransactionTrace",
    "TransactionType",
    "__version__",
    "json_serializer",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
