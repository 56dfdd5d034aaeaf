"""Bodies about locked queues and the running info of a consumer.

Rules kept here:
- Maps whose keys are queues are written as Java writes them, with whole objects as keys.
- Members stand in alphabetical order, those that are None are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from cometmq.model.queue import MessageQueue
from cometmq.wire.bodies.heartbeat import SubscriptionData
from cometmq.wire.bodies.json_body import (
    WireQueue,
    decode_json_body,
    queue_key,
    struct_members,
    without_nones,
)
from cometmq.wire.frame.command import Body
from cometmq.wire.json import fastjson


class DirectResult(StrEnum):
    """The result of consuming a message on request."""

    CR_SUCCESS = "CR_SUCCESS"
    CR_LATER = "CR_LATER"
    CR_ROLLBACK = "CR_ROLLBACK"
    CR_COMMIT = "CR_COMMIT"
    CR_THROW_EXCEPTION = "CR_THROW_EXCEPTION"
    CR_RETURN_NULL = "CR_RETURN_NULL"


class ConsumeDirectlyResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A consumer's report about a message that it was asked to consume."""

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
    """The running info of a consumer."""

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
                "mqTable": {queue_key(queue): struct_members(each) for queue, each in info.mq_table.items()},
                "properties": dict(sorted(info.properties.items())),
                "statusTable": {
                    topic: struct_members(each) for topic, each in sorted(info.status_table.items())
                },
                "subscriptionSet": [struct_members(each) for each in info.subscription_set],
                "userConsumerInfo": {},
            }
        )
    )


def encode_consume_directly_result(result: ConsumeDirectlyResult) -> bytes:
    return fastjson.dumps(struct_members(result))


class LockRequest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The queues that a client wants to lock or to unlock."""

    consumer_group: str
    client_id: str
    mq_set: tuple[WireQueue, ...] | None = None
    only_this_broker: bool = False

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        return tuple(each.queue for each in self.mq_set or ())


class _Locked(msgspec.Struct, frozen=True):
    queues: tuple[WireQueue, ...] = msgspec.field(name="lockOKMQSet", default=())


class _ConsumerIds(msgspec.Struct, frozen=True, rename="camel"):
    consumer_id_list: tuple[str, ...] | None = None


def encode_lock_request(group: str, client_id: str, queues: Iterable[MessageQueue]) -> bytes:
    wanted = tuple(WireQueue(queue.broker_name, queue.queue_id, queue.topic) for queue in queues)
    request = LockRequest(consumer_group=group, client_id=client_id, mq_set=wanted)
    return msgspec.json.encode(request, order="sorted")


def decode_lock_request(body: Body) -> LockRequest:
    return decode_json_body(LockRequest, body)


def encode_locked(queues: Iterable[MessageQueue]) -> bytes:
    return fastjson.dumps({"lockOKMQSet": [dict(queue_key(queue)) for queue in queues]})


def decode_locked(body: Body) -> tuple[MessageQueue, ...]:
    return tuple(each.queue for each in decode_json_body(_Locked, body).queues)


def decode_consumer_ids(body: Body) -> tuple[str, ...]:
    return decode_json_body(_ConsumerIds, body).consumer_id_list or () if body else ()
