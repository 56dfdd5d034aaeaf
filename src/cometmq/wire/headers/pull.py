"""Headers of reading messages: pulls, queries by key, single messages, entries of a consume queue."""

from __future__ import annotations

from msgspec import field

from cometmq.wire.codes import RequestCode
from cometmq.wire.header.schema import Header, Int32, Int64, request_header, response_header
from cometmq.wire.headers.common import TopicRequest


@request_header(RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
class PullMessageRequest(TopicRequest, kw_only=True):
    """Read messages of one queue from an offset on, waiting for some if asked to."""

    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: Int64
    max_msg_nums: Int32
    sys_flag: Int32
    commit_offset: Int64
    suspend_timeout_millis: Int64
    sub_version: Int64
    subscription: str | None = None
    expression_type: str | None = None
    max_msg_bytes: Int32 | None = None
    request_source: Int32 | None = None
    proxy_forward_client_id: str | None = field(name="proxyFrowardClientId", default=None)
    bulk: bool | None = None
    """Our own: much more at once than an ordinary pull brings. Other brokers do not look at it."""


@response_header(RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
class PullMessageResponse(Header, kw_only=True):
    """From where to pull next, and whom to ask; the body is the messages."""

    suggest_which_broker_id: Int64
    next_begin_offset: Int64
    min_offset: Int64
    max_offset: Int64
    offset_delta: Int64 | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None
    forbidden_type: Int32 | None = None


@request_header(RequestCode.QUERY_MESSAGE)
class QueryMessageRequest(TopicRequest, kw_only=True):
    """Find messages by a key or by their unique id."""

    topic: str
    key: str
    max_num: Int32
    begin_timestamp: Int64
    end_timestamp: Int64
    unique_key_query: bool | None = field(name="_UNIQUE_KEY_QUERY", default=None)
    """True says that the key is a unique id."""


@response_header(RequestCode.QUERY_MESSAGE)
class QueryMessageResponse(Header, kw_only=True):
    """How far the index is; the body is the messages."""

    index_last_update_timestamp: Int64
    index_last_update_phyoffset: Int64


@request_header(RequestCode.VIEW_MESSAGE_BY_ID)
class ViewMessageRequest(Header, kw_only=True):
    """Read the message at an offset of the commit log."""

    offset: Int64
    topic: str | None = None


@request_header(RequestCode.QUERY_CONSUME_QUEUE)
class QueryConsumeQueueRequest(TopicRequest, kw_only=True):
    """Read entries of a consume queue, and whether a group's filter lets them through."""

    topic: str | None = None
    queue_id: Int32 = 0
    index: Int64 = 0
    count: Int32 = 0
    consumer_group: str | None = None
