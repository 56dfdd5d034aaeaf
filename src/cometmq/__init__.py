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

_NAMES: Final = {
    "client.blocking.admin": ("Admin",),
    "client.blocking.consumer": ("PopConsumer", "PullConsumer", "PushConsumer"),
    "client.blocking.producer": ("Producer", "TransactionProducer"),
    "client.consumer.listener": ("ConsumeContext", "ConsumeResult"),
    "client.producer.sender": ("SendReceipt", "SendStatus"),
    "client.producer.transactions": ("TransactionListener", "TransactionReceipt", "TransactionState"),
    "client.subscription": ("Sql",),
    "model.message": ("Message", "StoredMessage"),
    "model.queue": ("MessageQueue",),
    "wire.bodies.heartbeat": ("ConsumeFromWhere", "MessageModel"),
}
"""The names of each module; the errors, which are the other names of `__all__`, are in `model.errors`."""
_HOMES: Final = {name: f"cometmq.{module}" for module, names in _NAMES.items() for name in names}

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
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOMES.get(name, "cometmq.model.errors")
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
