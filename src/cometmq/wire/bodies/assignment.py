"""How consumers that leave the balancing to a broker ask for their queues, and what they are told."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from cometmq.model.queue import MessageQueue
from cometmq.wire import fastjson
from cometmq.wire.bodies.heartbeat import MessageModel


class QueryAssignmentRequest(msgspec.Struct, rename="camel"):
    """Which queues of a topic are mine?"""

    topic: str
    consumer_group: str
    client_id: str = ""
    strategy_name: str = "AVG"
    message_model: MessageModel = MessageModel.CLUSTERING


def encode_assignments(queues: Iterable[MessageQueue] | None, mode: str) -> bytes:
    """Queues and how to read them; with None the consumer keeps what it has."""
    if queues is None:
        return b"{}"
    assignments = [
        {
            "messageQueue": {
                "brokerName": queue.broker_name,
                "queueId": queue.queue_id,
                "topic": queue.topic,
            },
            "mode": mode,
        }
        for queue in queues
    ]
    return fastjson.dumps({"messageQueueAssignments": assignments})
