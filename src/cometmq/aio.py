"""The asyncio clients; those of the same names in `cometmq` block."""

from __future__ import annotations

from cometmq.client.admin import Admin
from cometmq.client.pop_consumer import PopConsumer
from cometmq.client.producer import Producer
from cometmq.client.pull_consumer import PullConsumer
from cometmq.client.push_consumer import PushConsumer
from cometmq.client.transaction_producer import TransactionProducer
from cometmq.model.message import Message

__all__ = [
    "Admin",
    "Message",
    "PopConsumer",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "TransactionProducer",
]
