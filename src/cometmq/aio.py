"""The asyncio clients; `cometmq` has their blocking twins under the same names."""

from __future__ import annotations

from cometmq.client.admin.admin import Admin
from cometmq.client.consumer.pop.consumer import PopConsumer
from cometmq.client.consumer.pull import PullConsumer
from cometmq.client.consumer.push import PushConsumer
from cometmq.client.producer.producer import Producer
from cometmq.client.producer.transactions import Transaction, TransactionProducer
from cometmq.model.message import Message

__all__ = [
    "Admin",
    "Message",
    "PopConsumer",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "Transaction",
    "TransactionProducer",
]


def __dir__() -> list[str]:
    return __all__
