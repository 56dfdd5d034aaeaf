"""QUERY_ASSIGNMENT bodies: consumers that leave the rebalancing to a broker ask for their queues."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from cometmq.model.queue import MessageQueue
from cometmq.wire.bodies.heartbeat import MessageModel
from cometmq.wire.bodies.json_body import WireQueue, decode_json_body, queue_key
from cometmq.wire.frame.command import Body
from cometmq.wire.json import fastjson


class QueryAssignmentRequest(msgspec.Struct, rename="camel"):
    topic: str
    consumer_group: str
    client_id: str = ""
    strategy_name: str = "AVG"
    message_model: MessageModel = MessageModel.CLUSTERING


def encode_assignments(queues: Iterable[MessageQueue] | None, mode: str) -> bytes:
    """Returns queues and their mode; with None the consumer keeps its queues."""
    if queues is None:
        return b"{}"
    assignments = [{"messageQueue": dict(queue_key(queue)), "mode": mode} for queue in queues]
    return fastjson.dumps({"messageQueueAssignments": assignments})


class AssignedQueue(NamedTuple):
    queue: MessageQueue
    mode: str | None


def decode_assignments(body: Body) -> list[AssignedQueue] | None:
    """Returns the queues of a consumer; None if it keeps its queues."""
    told = decode_json_body(_Assignments, body).message_queue_assignments
    if told is None:
        return None
    return [AssignedQueue(each.message_queue.queue, each.mode) for each in told]


class _Assignment(msgspec.Struct, rename="camel"):
    message_queue: WireQueue
    mode: str | None = None


class _Assignments(msgspec.Struct, rename="camel"):
    message_queue_assignments: list[_Assignment] | None = None
