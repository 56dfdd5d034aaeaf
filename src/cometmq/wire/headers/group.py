"""Headers of the administration of consumer groups on a broker.

UPDATE_AND_CREATE_SUBSCRIPTIONGROUP and its list form say everything in their body.
"""

from __future__ import annotations

from cometmq.wire.codes import RequestCode
from cometmq.wire.header.schema import Header, Int32, request_header, response_header
from cometmq.wire.headers.common import RpcRequest, TopicRequest


@request_header(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG)
class GetSubscriptionGroupConfigRequest(RpcRequest, kw_only=True):
    """Ask for the settings of a group."""

    group: str


@request_header(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
class GetAllSubscriptionGroupRequest(Header, kw_only=True):
    """Ask for the settings of all groups, or from 5.3.4 on of a page of them."""

    group_seq: Int32 | None = None
    data_version: str | None = None
    max_group_num: Int32 | None = None


@response_header(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
class GetAllSubscriptionGroupResponse(Header, kw_only=True):
    """How many groups there are; the groups are in the body."""

    total_group_num: Int32 | None = None


@request_header(RequestCode.DELETE_SUBSCRIPTIONGROUP)
class DeleteSubscriptionGroupRequest(RpcRequest, kw_only=True):
    """Delete a group, and its offsets if asked to."""

    group_name: str
    clean_offset: bool = False


@request_header(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN)
class UpdateGroupForbiddenRequest(TopicRequest, kw_only=True):
    """Forbid a group to read a topic, allow it again, or ask."""

    group: str
    topic: str
    readable: bool | None = None


@request_header(RequestCode.GET_CONSUME_STATS)
class GetConsumeStatsRequest(TopicRequest, kw_only=True):
    """Ask how far a group is in its queues."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None
    """Topics separated by semicolons."""


@request_header(RequestCode.GET_BROKER_CONSUME_STATS)
class GetConsumeStatsInBroker(Header, kw_only=True):
    """Ask how far all groups of a broker are."""

    is_order: bool
    """True asks for order topics, False for the others."""


@request_header(RequestCode.QUERY_CONSUME_TIME_SPAN)
class QueryConsumeTimeSpanRequest(TopicRequest, kw_only=True):
    """Ask for the times of the messages that a group has consumed and has before it."""

    topic: str
    group: str


@request_header(RequestCode.QUERY_TOPICS_BY_CONSUMER)
class QueryTopicsByConsumerRequest(RpcRequest, kw_only=True):
    """Ask which topics a group has consumed."""

    group: str


@request_header(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER)
class QuerySubscriptionByConsumerRequest(TopicRequest, kw_only=True):
    """Ask what a group subscribes to in a topic."""

    group: str
    topic: str | None = None
