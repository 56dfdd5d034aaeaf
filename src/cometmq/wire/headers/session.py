"""Headers about clients that are connected: heartbeats, members of a group, locks, calls to a client."""

from __future__ import annotations

from msgspec import field

from cometmq.wire.codes import RequestCode
from cometmq.wire.header.schema import Header, Int32, request_header, response_header
from cometmq.wire.headers.common import RpcRequest, TopicRequest


@request_header(RequestCode.HEART_BEAT)
class HeartbeatRequest(RpcRequest, kw_only=True):
    """Say that a client is alive; what it produces and consumes is in the body."""


@response_header(RequestCode.HEART_BEAT)
class HeartbeatResponse(Header, kw_only=True):
    """Whether the broker knows short heartbeats, and whether it needs a full one."""

    is_support_heart_beat_v2: bool | None = field(name="IS_SUPPORT_HEART_BEAT_V2", default=None)
    is_sub_change: bool | None = field(name="IS_SUB_CHANGE", default=None)


@request_header(RequestCode.UNREGISTER_CLIENT)
class UnregisterClientRequest(RpcRequest, kw_only=True):
    """Say that a client leaves its groups."""

    client_id: str = field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


@request_header(RequestCode.GET_CONSUMER_LIST_BY_GROUP)
class GetConsumerListByGroupRequest(RpcRequest, kw_only=True):
    """Ask for the client ids of a group."""

    consumer_group: str


@request_header(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)
class NotifyConsumerIdsChangedRequest(RpcRequest, kw_only=True):
    """Tell a client that the members of its group have changed."""

    consumer_group: str


@request_header(RequestCode.LOCK_BATCH_MQ)
class LockBatchMqRequest(RpcRequest, kw_only=True):
    """Lock queues for one client; they are in the body."""


@request_header(RequestCode.UNLOCK_BATCH_MQ)
class UnlockBatchMqRequest(RpcRequest, kw_only=True):
    """Unlock queues; they are in the body."""


@request_header(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT)
class GetConsumerStatusRequest(TopicRequest, kw_only=True):
    """Ask the clients of a group for their offsets of a topic."""

    topic: str
    group: str
    client_addr: str | None = None


@request_header(RequestCode.GET_CONSUMER_RUNNING_INFO)
class GetConsumerRunningInfoRequest(RpcRequest, kw_only=True):
    """Ask a client what it is doing."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


@request_header(RequestCode.CONSUME_MESSAGE_DIRECTLY)
class ConsumeMessageDirectlyResultRequest(TopicRequest, kw_only=True):
    """Have a client consume one message now and report how it went."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None


@request_header(RequestCode.GET_CONSUMER_CONNECTION_LIST)
class GetConsumerConnectionListRequest(RpcRequest, kw_only=True):
    """Ask for the connections and subscriptions of a consumer group."""

    consumer_group: str


@request_header(RequestCode.GET_PRODUCER_CONNECTION_LIST)
class GetProducerConnectionListRequest(RpcRequest, kw_only=True):
    """Ask for the connections of a producer group."""

    producer_group: str
