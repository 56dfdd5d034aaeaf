"""How consumers that leave the balancing to a broker ask for their queues, and what they are told."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from cometmq.model.queue import MessageQueue
from cometmq.wire.bodies.heartbeat import MessageModel
from cometmq.wire.bodies.json_body import decode_json_body
from cometmq.wire.frame.command import Body
from cometmq.wire.json import fastjson


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


class AssignedQueue(NamedTuple):
    """A queue, and how it is to be read."""

    queue: MessageQueue
    mode: str | None


def decode_assignments(body: Body) -> list[AssignedQueue] | None:
    """The queues of a consumer; None if it is to keep what it has."""
    told = decode_json_body(_Assignments, body).message_queue_assignments
    if told is None:
        return None
    return [
        AssignedQueue(MessageQueue(each.topic, each.broker_name, each.queue_id), assignment.mode)
        for assignment in told
        for each in (assignment.message_queue,)
    ]


class _Queue(msgspec.Struct, rename="camel"):
    topic: str
    broker_name: str
    queue_id: int


class _Assignment(msgspec.Struct, rename="camel"):
    message_queue: _Queue
    mode: str | None = None


class _Assignments(msgspec.Struct, rename="camel"):
    message_queue_assignments: list[_Assignment] | None = None
