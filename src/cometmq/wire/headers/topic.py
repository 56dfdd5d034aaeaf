"""Headers of the administration of topics on a broker."""

from __future__ import annotations

from cometmq.wire.codes import RequestCode
from cometmq.wire.header.schema import Header, Int32, request_header, response_header
from cometmq.wire.headers.common import RpcRequest, TopicRequest


@request_header(RequestCode.UPDATE_AND_CREATE_TOPIC, RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC)
class CreateTopicRequest(TopicRequest, kw_only=True):
    """Create a topic or change its settings; the mapping of a static topic is in the body."""

    topic: str
    default_topic: str
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    topic_filter_type: str
    """`SINGLE_TAG` or `MULTI_TAG`."""
    order: bool = False  # the C++ client leaves it out
    topic_sys_flag: Int32 | None = None
    attributes: str | None = None
    """Changes of attributes, `+key=value,-key`."""
    force: bool = False


@request_header(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST)
class CreateTopicListRequest(RpcRequest, kw_only=True):
    """Create several topics or change their settings; they are in the body."""


@request_header(RequestCode.DELETE_TOPIC_IN_BROKER)
class DeleteTopicRequest(TopicRequest, kw_only=True):
    """Delete a topic from a broker."""

    topic: str


@request_header(RequestCode.GET_TOPIC_CONFIG)
class GetTopicConfigRequest(TopicRequest, kw_only=True):
    """Ask for the settings of a topic."""

    topic: str


@request_header(RequestCode.GET_ALL_TOPIC_CONFIG)
class GetAllTopicConfigRequest(Header, kw_only=True):
    """Ask for the settings of all topics, or from 5.3.4 on of a page of them."""

    topic_seq: Int32 | None = None
    data_version: str | None = None
    max_topic_num: Int32 | None = None


@response_header(RequestCode.GET_ALL_TOPIC_CONFIG)
class GetAllTopicConfigResponse(Header, kw_only=True):
    """How many topics there are; the topics are in the body."""

    total_topic_num: Int32 | None = None


@request_header(RequestCode.GET_TOPIC_STATS_INFO)
class GetTopicStatsInfoRequest(TopicRequest, kw_only=True):
    """Ask for the offsets and times of the queues of a topic."""

    topic: str


@request_header(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO)
class QueryTopicConsumeByWhoRequest(TopicRequest, kw_only=True):
    """Ask which groups consume a topic."""

    topic: str
