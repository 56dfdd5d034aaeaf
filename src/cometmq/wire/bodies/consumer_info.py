"""What brokers and consumers tell each other about locked queues and the state of a consumer.

Rules kept here:
- Maps whose keys are queues are written as Java writes them, with whole objects as keys.
- Members stand in alphabetical order, those that are None are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Final

import msgspec

from cometmq.model.queue import MessageQueue
from cometmq.wire.bodies.heartbeat import SubscriptionData
from cometmq.wire.bodies.json_body import decode_json_body, without_nones
from cometmq.wire.frame.command import Body
from cometmq.wire.json import fastjson
from cometmq.wire.json.fastjson import BeanKey


class DirectResult(StrEnum):
    """How it went when a message was consumed on request."""

    CR_SUCCESS = "CR_SUCCESS"
    CR_LATER = "CR_LATER"
    CR_ROLLBACK = "CR_ROLLBACK"
    CR_COMMIT = "CR_COMMIT"
    CR_THROW_EXCEPTION = "CR_THROW_EXCEPTION"
    CR_RETURN_NULL = "CR_RETURN_NULL"


class ConsumeDirectlyResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The report of a consumer about a message that it was asked to consume."""

    consume_result: DirectResult
    order: bool = False
    auto_commit: bool = True
    remark: str | None = None
    spent_time_mills: int = 0


class ProcessQueueInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The state of one queue that a consumer reads."""

    commit_offset: int = 0
    cached_msg_min_offset: int = 0
    cached_msg_max_offset: int = 0
    cached_msg_count: int = 0
    cached_msg_size_in_mib: int = msgspec.field(name="cachedMsgSizeInMiB", default=0)
    transaction_msg_min_offset: int = 0
    transaction_msg_max_offset: int = 0
    transaction_msg_count: int = 0
    locked: bool = False
    try_unlock_times: int = 0
    last_lock_timestamp: int = 0
    droped: bool = False
    last_pull_timestamp: int = 0
    last_consume_timestamp: int = 0


class ConsumeStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How fast a consumer reads and consumes a topic; times in milliseconds, rates a second."""

    pull_rt: float = msgspec.field(name="pullRT", default=0.0)
    pull_tps: float = msgspec.field(name="pullTPS", default=0.0)
    consume_rt: float = msgspec.field(name="consumeRT", default=0.0)
    consume_ok_tps: float = msgspec.field(name="consumeOKTPS", default=0.0)
    consume_failed_tps: float = msgspec.field(name="consumeFailedTPS", default=0.0)
    consume_failed_msgs: int = 0


class ConsumerRunningInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a consumer is doing."""

    properties: Mapping[str, str] = {}
    subscription_set: tuple[SubscriptionData, ...] = ()
    mq_table: Mapping[MessageQueue, ProcessQueueInfo] = {}
    status_table: Mapping[str, ConsumeStatus] = {}
    jstack: str | None = None


PROP_NAMESERVER_ADDR: Final = "PROP_NAMESERVER_ADDR"
PROP_THREADPOOL_CORE_SIZE: Final = "PROP_THREADPOOL_CORE_SIZE"
PROP_CONSUMEORDERLY: Final = "PROP_CONSUMEORDERLY"
PROP_CONSUME_TYPE: Final = "PROP_CONSUME_TYPE"
PROP_CLIENT_VERSION: Final = "PROP_CLIENT_VERSION"
PROP_CONSUMER_START_TIMESTAMP: Final = "PROP_CONSUMER_START_TIMESTAMP"


def encode_running_info(info: ConsumerRunningInfo) -> bytes:
    return fastjson.dumps(
        without_nones(
            {
                "jstack": info.jstack,
                "mqPopTable": {},
                "mqTable": {queue_key(queue): _members(each) for queue, each in info.mq_table.items()},
                "properties": dict(sorted(info.properties.items())),
                "statusTable": {topic: _members(each) for topic, each in sorted(info.status_table.items())},
                "subscriptionSet": [_members(each) for each in info.subscription_set],
                "userConsumerInfo": {},
            }
        )
    )


def encode_consume_directly_result(result: ConsumeDirectlyResult) -> bytes:
    return fastjson.dumps(_members(result))


def _members(value: msgspec.Struct) -> dict[str, Any]:
    names = zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True)
    return without_nones({wire_name: getattr(value, name) for name, wire_name in names})


def queue_key(queue: MessageQueue) -> BeanKey:
    """A queue as the key of a map."""
    return (("brokerName", queue.broker_name), ("queueId", queue.queue_id), ("topic", queue.topic))


class _WireQueue(msgspec.Struct, frozen=True, rename="camel"):
    broker_name: str
    queue_id: int
    topic: str


class LockRequest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The queues that a client wants to lock or to unlock."""

    consumer_group: str
    client_id: str
    mq_set: tuple[_WireQueue, ...] = ()
    only_this_broker: bool = False

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        return _as_queues(self.mq_set)


class _Locked(msgspec.Struct, frozen=True):
    queues: tuple[_WireQueue, ...] = msgspec.field(name="lockOKMQSet", default=())


class _ConsumerIds(msgspec.Struct, frozen=True, rename="camel"):
    consumer_id_list: tuple[str, ...] | None = None


def encode_lock_request(group: str, client_id: str, queues: Iterable[MessageQueue]) -> bytes:
    request = LockRequest(consumer_group=group, client_id=client_id, mq_set=_as_wire(queues))
    return msgspec.json.encode(request, order="sorted")


def decode_lock_request(body: Body) -> LockRequest:
    return decode_json_body(LockRequest, body)


def encode_locked(queues: Iterable[MessageQueue]) -> bytes:
    """The queues that a client has locked."""
    return msgspec.json.encode(_Locked(_as_wire(queues)))


def decode_locked(body: Body) -> tuple[MessageQueue, ...]:
    return _as_queues(decode_json_body(_Locked, body).queues)


def decode_consumer_ids(body: Body) -> tuple[str, ...]:
    """The client ids of a group."""
    return decode_json_body(_ConsumerIds, body).consumer_id_list or () if body else ()


def _as_wire(queues: Iterable[MessageQueue]) -> tuple[_WireQueue, ...]:
    return tuple(_WireQueue(queue.broker_name, queue.queue_id, queue.topic) for queue in queues)


def _as_queues(queues: Iterable[_WireQueue]) -> tuple[MessageQueue, ...]:
    return tuple(MessageQueue(queue.topic, queue.broker_name, queue.queue_id) for queue in queues)
