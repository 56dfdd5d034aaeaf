"""Headers about offsets: the offsets of queues, and those that consumer groups have reached."""

from __future__ import annotations

from cometmq.wire.codes import RequestCode
from cometmq.wire.header.schema import Header, Int32, Int64, request_header, response_header
from cometmq.wire.headers.common import RpcRequest, TopicRequest


@request_header(RequestCode.QUERY_CONSUMER_OFFSET)
class QueryConsumerOffsetRequest(TopicRequest, kw_only=True):
    """Read the offset that a group has committed for a queue."""

    consumer_group: str
    topic: str
    queue_id: Int32
    set_zero_if_not_found: bool | None = None


@response_header(RequestCode.QUERY_CONSUMER_OFFSET)
class QueryConsumerOffsetResponse(Header, kw_only=True):
    """The committed offset."""

    offset: Int64


@request_header(RequestCode.UPDATE_CONSUMER_OFFSET)
class UpdateConsumerOffsetRequest(TopicRequest, kw_only=True):
    """Commit the offset of a group for a queue."""

    consumer_group: str
    topic: str
    queue_id: Int32
    commit_offset: Int64


@request_header(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP)
class SearchOffsetRequest(TopicRequest, kw_only=True):
    """Find the offset of a queue that was reached at a time."""

    topic: str
    queue_id: Int32
    timestamp: Int64
    boundary_type: str | None = None
    """`LOWER` or `UPPER`: which of several messages of the same millisecond."""


@response_header(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP)
class SearchOffsetResponse(Header, kw_only=True):
    """The offset of that time."""

    offset: Int64


@request_header(RequestCode.GET_MAX_OFFSET)
class GetMaxOffsetRequest(TopicRequest, kw_only=True):
    """Ask for the offset that the next message of a queue will get."""

    topic: str
    queue_id: Int32
    committed: bool = True


@response_header(RequestCode.GET_MAX_OFFSET)
class GetMaxOffsetResponse(Header, kw_only=True):
    """The offset of the next message."""

    offset: Int64


@request_header(RequestCode.GET_MIN_OFFSET)
class GetMinOffsetRequest(TopicRequest, kw_only=True):
    """Ask for the offset of the oldest message of a queue."""

    topic: str
    queue_id: Int32


@response_header(RequestCode.GET_MIN_OFFSET)
class GetMinOffsetResponse(Header, kw_only=True):
    """The offset of the oldest message."""

    offset: Int64


@request_header(RequestCode.GET_EARLIEST_MSG_STORETIME)
class GetEarliestMsgStoretimeRequest(TopicRequest, kw_only=True):
    """Ask when the oldest message of a queue was stored."""

    topic: str
    queue_id: Int32


@response_header(RequestCode.GET_EARLIEST_MSG_STORETIME)
class GetEarliestMsgStoretimeResponse(Header, kw_only=True):
    """When the oldest message was stored."""

    timestamp: Int64


@request_header(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, RequestCode.RESET_CONSUMER_CLIENT_OFFSET)
class ResetOffsetRequest(TopicRequest, kw_only=True):
    """Set the offsets of a group back, or forward, to a time or an offset."""

    topic: str
    group: str
    timestamp: Int64
    is_force: bool
    """False only ever sets back."""
    queue_id: Int32 = -1
    offset: Int64 | None = None


@request_header(RequestCode.CLONE_GROUP_OFFSET)
class CloneGroupOffsetRequest(RpcRequest, kw_only=True):
    """Copy the offsets of one group to another."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


@request_header(RequestCode.QUERY_CORRECTION_OFFSET)
class QueryCorrectionOffset(TopicRequest, kw_only=True):
    """Ask for the lowest offsets among groups, to bring another group in line with them."""

    topic: str
    compare_group: str
    filter_groups: str | None = None
    """Groups that do not count, separated by commas."""
