"""Locks of queues for consumers that consume in order."""

from __future__ import annotations

from typing import Final

import msgspec

from cometmq.broker.context import BrokerContext
from cometmq.model.errors import CometError
from cometmq.model.queue import MessageQueue
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import Answer, handles
from cometmq.wire.bodies.json_body import decode_json_body
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.frame.command import Command
from cometmq.wire.headers.session import LockBatchMqRequest, UnlockBatchMqRequest
from cometmq.wire.json import fastjson

MAX_QUEUES_AT_ONCE: Final = 16_384
"""A request about more queues is refused."""


class _Queue(msgspec.Struct, rename="camel"):
    topic: str
    broker_name: str
    queue_id: int


class _Locking(msgspec.Struct, rename="camel"):
    """Whose locks are meant, and which."""

    consumer_group: str
    client_id: str
    mq_set: list[_Queue] | None = None
    only_this_broker: bool = False

    @property
    def queues(self) -> list[MessageQueue]:
        if len(self.mq_set or ()) > MAX_QUEUES_AT_ONCE:
            raise CometError(
                f"{len(self.mq_set or ())} queues are too many for one request; lock or unlock at most "
                f"{MAX_QUEUES_AT_ONCE} at once",
                code=ResponseCode.INVALID_PARAMETER,
            )
        return [MessageQueue(each.topic, each.broker_name, each.queue_id) for each in self.mq_set or ()]


class LockHandlers:
    """LOCK_BATCH_MQ and UNLOCK_BATCH_MQ."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._locks = context.locks

    def _is_there(self, queue: MessageQueue) -> bool:
        return self._context.topics.has_queue(queue.topic, queue.queue_id)

    @handles(RequestCode.LOCK_BATCH_MQ, LockBatchMqRequest)
    def lock(self, header: LockBatchMqRequest, request: Command, connection: Connection) -> Answer:
        """Lock queues for a client, or renew its locks; queues that are not there are not locked."""
        asked = decode_json_body(_Locking, request.body)
        queues = filter(self._is_there, asked.queues)
        locked = self._locks.lock(asked.consumer_group, asked.client_id, queues)
        members = [
            {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}
            for queue in locked
        ]
        return Answer(body=fastjson.dumps({"lockOKMQSet": members}))

    @handles(RequestCode.UNLOCK_BATCH_MQ, UnlockBatchMqRequest)
    def unlock(self, header: UnlockBatchMqRequest, request: Command, connection: Connection) -> Answer:
        """Give up the locks of a client."""
        asked = decode_json_body(_Locking, request.body)
        self._locks.unlock(asked.consumer_group, asked.client_id, asked.queues)
        return Answer()
