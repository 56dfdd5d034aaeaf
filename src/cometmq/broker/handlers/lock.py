"""Locks of queues for consumers that consume in order."""

from __future__ import annotations

from typing import Final

from cometmq.broker.context import BrokerState
from cometmq.model.errors import CometError
from cometmq.model.queue import MessageQueue
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import Answer, handles
from cometmq.wire.bodies.consumer_info import LockRequest, decode_lock_request, encode_locked
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.frame.command import Command
from cometmq.wire.headers.session import LockBatchMqRequest, UnlockBatchMqRequest

MAX_QUEUES_AT_ONCE: Final = 16_384
"""A request about more queues is refused."""


def _decode(request: Command) -> LockRequest:
    asked = decode_lock_request(request.body)
    if len(asked.mq_set or ()) > MAX_QUEUES_AT_ONCE:
        raise CometError(
            f"{len(asked.mq_set or ())} queues are too many for one request; lock or unlock at most "
            f"{MAX_QUEUES_AT_ONCE} at once",
            code=ResponseCode.INVALID_PARAMETER,
        )
    return asked


class LockHandlers:
    """LOCK_BATCH_MQ and UNLOCK_BATCH_MQ."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._locks = state.locks

    def _is_there(self, queue: MessageQueue) -> bool:
        return self._state.topics.has_queue(queue.topic, queue.queue_id)

    @handles(RequestCode.LOCK_BATCH_MQ, LockBatchMqRequest)
    def lock(self, header: LockBatchMqRequest, request: Command, connection: Connection) -> Answer:
        """Lock queues for a client, or renew its locks; queues that are not there are not locked."""
        asked = _decode(request)
        queues = filter(self._is_there, asked.queues)
        locked = self._locks.lock(asked.consumer_group, asked.client_id, queues)
        return Answer(body=encode_locked(locked))

    @handles(RequestCode.UNLOCK_BATCH_MQ, UnlockBatchMqRequest)
    def unlock(self, header: UnlockBatchMqRequest, request: Command, connection: Connection) -> Answer:
        """Give up the locks of a client."""
        asked = _decode(request)
        self._locks.unlock(asked.consumer_group, asked.client_id, asked.queues)
        return Answer()
