"""CometMQ: Apache RocketMQ's message system in Python.

The classes here block; `cometmq.aio` has their asyncio twins under the same names. Each name is loaded on
first use, so importing the package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from cometmq._version import __version__

if TYPE_CHECKING:
    from cometmq.client.blocking.admin import Admin
    from cometmq.client.blocking.consumer import PopConsumer, PullConsumer, PushConsumer
    from cometmq.client.blocking.producer import Producer, TransactionProducer
    from cometmq.client.consumer.listener import ConsumeContext, ConsumeResult
    from cometmq.client.producer.sender import SendReceipt, SendStatus
    from cometmq.client.producer.transactions import TransactionListener, TransactionReceipt, TransactionState
    from cometmq.client.subscription import Sql
    from cometmq.model.errors import (
        CallTimeoutError,
        CometError,
        GroupTakenError,
        MessageError,
        PartialBatchError,
        RouteNotFoundError,
        SendError,
        StateError,
    )
    from cometmq.model.message import Message, StoredMessage
    from cometmq.model.queue import MessageQueue
    from cometmq.wire.bodies.heartbeat import ConsumeFromWhere, MessageModel

_HOMES: Final = {
    "Admin": "cometmq.client.blocking.admin",
    "CallTimeoutError": "cometmq.model.errors",
    "CometError": "cometmq.model.errors",
    "ConsumeContext": "cometmq.client.consumer.listener",
    "ConsumeFromWhere": "cometmq.wire.bodies.heartbeat",
    "ConsumeResult": "cometmq.client.consumer.listener",
    "GroupTakenError": "cometmq.model.errors",
    "Message": "cometmq.model.message",
    "MessageError": "cometmq.model.errors",
    "MessageModel": "cometmq.wire.bodies.heartbeat",
    "MessageQueue": "cometmq.model.queue",
    "PartialBatchError": "cometmq.model.errors",
    "PopConsumer": "cometmq.client.blocking.consumer",
    "Producer": "cometmq.client.blocking.producer",
    "PullConsumer": "cometmq.client.blocking.consumer",
    "PushConsumer": "cometmq.client.blocking.consumer",
    "RouteNotFoundError": "cometmq.model.errors",
    "SendError": "cometmq.model.errors",
    "SendReceipt": "cometmq.client.producer.sender",
    "SendStatus": "cometmq.client.producer.sender",
    "Sql": "cometmq.client.subscription",
    "StateError": "cometmq.model.errors",
    "StoredMessage": "cometmq.model.message",
    "TransactionListener": "cometmq.client.producer.transactions",
    "TransactionProducer": "cometmq.client.blocking.producer",
    "TransactionReceipt": "cometmq.client.producer.transactions",
    "TransactionState": "cometmq.client.producer.transactions",
}
"""The module of each name."""

__all__ = [
    "Admin",
    "CallTimeoutError",
    "CometError",
    "ConsumeContext",
    "ConsumeFromWhere",
    "ConsumeResult",
    "GroupTakenError",
    "Message",
    "MessageError",
    "MessageModel",
    "MessageQueue",
    "PartialBatchError",
    "PopConsumer",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "RouteNotFoundError",
    "SendError",
    "SendReceipt",
    "SendStatus",
    "Sql",
    "StateError",
    "StoredMessage",
    "TransactionListener",
    "TransactionProducer",
    "TransactionReceipt",
    "TransactionState",
    "__version__",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
