"""Checks of pulls: permission, subscription and filter.

Rules kept here:
- The checks come in RocketMQ's order, with its codes, remarks and types of refusal.
- What they find for a group and a topic is remembered until a table or a setting changes. Refusals are not
  remembered: what is missing may come.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cometmq.broker.groups.groups import Groups
from cometmq.broker.groups.online import Clients, ConsumerGroup
from cometmq.broker.groups.subscriptions import is_tag_type, make_subscription
from cometmq.broker.pull.filters import PullFilter, SqlFilter, retry_filter, tag_filter
from cometmq.broker.pull.sql_filters import ConsumerFilters
from cometmq.broker.settings import Settings
from cometmq.broker.topics.names import FAQ
from cometmq.broker.topics.topics import Topics
from cometmq.model.errors import ProtocolError
from cometmq.model.names import RETRY_PREFIX
from cometmq.model.subscription import SubscriptionGroupConfig
from cometmq.model.topic import PERM_READ, TopicConfig
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import Answer
from cometmq.wire.bodies.heartbeat import ConsumeType, SubscriptionData
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.frame.command import Command
from cometmq.wire.headers.pull import PullMessageRequest
from cometmq.wire.sql92.expression import Expression, compile_sql

HAS_SUBSCRIPTION: Final = 4
"""The bit of a pull's flag that says that it brings its subscription along."""
MAX_PERMITS: Final = 10_000
"""With this many remembered, all are forgotten."""
LONGEST_REMEMBERED: Final = 256
"""Permits of pulls with a longer expression are not cached."""

_LITE_PULL: Final = RequestCode.LITE_PULL_MESSAGE.value
_REJECTED: Final = "[REJECTREQUEST]system busy, start flow control for a while"

# Why a pull is forbidden, as `forbiddenType` says it.
BROKER: Final = 1
GROUP: Final = 2
TOPIC: Final = 3
BROADCAST: Final = 4
SUBSCRIPTION: Final = 5


@dataclass(slots=True, eq=False)
class Permit:
    """The result of the checks for pulls of a group from a topic."""

    topic: TopicConfig
    group: SubscriptionGroupConfig
    wanted: PullFilter | None
    sub_version: int | None
    """The version of the group's subscription; None for a pull that brings its own."""
    is_broadcast: bool
    """Whether members of the group get all messages each, and are told of them by the broker."""
    system_flags: tuple[int, int]
    """Of the topic and of the group."""


class PullChecks:
    """Checks pulls against the tables of a broker."""

    def __init__(
        self, settings: Settings, topics: Topics, groups: Groups, filters: ConsumerFilters, clients: Clients
    ) -> None:
        self._settings = settings
        self._groups = groups
        self._topics = topics
        self._clients = clients
        self._filters = filters
        self._permits: dict[tuple[str | None, ...], Permit] = {}
        self._stamp: tuple[object, ...] = ()
        self._is_slave = settings.is_slave

    def check(self, header: PullMessageRequest, request: Command, connection: Connection) -> Permit | Answer:
        """The permit for a pull, or the answer that refuses it."""
        stamp = (
            self._settings.broker,
            self._groups.data_version,
            self._topics.generation,
            self._clients.generation,
            self._filters.generation,
        )
        if stamp != self._stamp:
            self._permits.clear()
            self._stamp = stamp
        key: tuple[str | None, ...]
        if header.sys_flag & HAS_SUBSCRIPTION:
            key = (header.consumer_group, header.topic, header.expression_type, header.subscription)
        else:
            key = (header.consumer_group, header.topic)
        permit = self._permits.get(key)
        if (
            permit is None
            or not 0 <= header.queue_id < permit.topic.read_queue_nums
            or (permit.sub_version is not None and permit.sub_version < header.sub_version)
            or (request.code == _LITE_PULL and not self._settings.broker.lite_pull_message_enable)
            or self._settings.broker.reject_pull_consumer_enable
        ):
            found = self._check_all(header, request, connection)
            if isinstance(found, Answer):
                return found
            permit = found
            if len(header.subscription or "") <= LONGEST_REMEMBERED:
                if len(self._permits) >= MAX_PERMITS:
                    self._permits.clear()
                self._permits[key] = permit
        return permit

    def _check_all(
        self, header: PullMessageRequest, request: Command, connection: Connection
    ) -> Permit | Answer:
        config = self._settings.broker
        topic_name, group_name = header.topic, header.consumer_group
        if self._is_slave and not config.slave_read_enable:
            return Answer(ResponseCode.SYSTEM_BUSY, remark=_REJECTED)
        if not config.broker_permission & PERM_READ:
            return _forbidden(BROKER, f"the broker[{config.broker_ip1}] pulling message is forbidden")
        if request.code == _LITE_PULL and not config.lite_pull_message_enable:
            return _forbidden(BROKER, f"the broker[{config.broker_ip1}] for lite pull consumer is forbidden")
        group = self._groups.find(group_name)
        if group is None:
            remark = f"subscription group [{group_name}] does not exist, {FAQ}"
            return Answer(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark=remark)
        if not group.consume_enable:
            return _forbidden(GROUP, f"subscription group no permission, {group_name}")
        topic = self._topics.get(topic_name)
        if topic is None:
            remark = f"topic[{topic_name}] not exist, apply first please! {FAQ}"
            return Answer(ResponseCode.TOPIC_NOT_EXIST, remark=remark)
        if not topic.perm & PERM_READ:
            return _forbidden(TOPIC, f"the topic[{topic_name}] pulling message is forbidden")
        if not 0 <= header.queue_id < topic.read_queue_nums:
            remark = (
                f"queueId[{header.queue_id}] is illegal, topic:[{topic_name}] topicConfig.readQueueNums:"
                f"[{topic.read_queue_nums}] consumer:[{connection.remote_address}]"
            )
            return Answer(ResponseCode.INVALID_PARAMETER, remark=remark)
        members = self._clients.consumers.get(group_name)
        if header.sys_flag & HAS_SUBSCRIPTION:
            found = self._own_subscription(header, topic, group, members)
        else:
            found = self._known_subscription(header, topic, group, members)
        if isinstance(found, Permit) and config.reject_pull_consumer_enable:
            return _refuse_active(members, connection) or found
        return found

    def _own_subscription(
        self,
        header: PullMessageRequest,
        topic: TopicConfig,
        group: SubscriptionGroupConfig,
        members: ConsumerGroup | None,
    ) -> Permit | Answer:
        """A pull that says itself what it wants."""
        try:
            subscription = make_subscription(header.topic, header.subscription, header.expression_type)
            expression = None
            if not is_tag_type(subscription.expression_type):
                if not self._settings.broker.enable_property_filter:
                    return _no_filters(subscription)
                expression = compile_sql(subscription.sub_string)
        except ProtocolError:
            return Answer(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark="parse the consumer's subscription failed"
            )
        return self._permit(topic, group, subscription, expression, None, members)

    def _known_subscription(
        self,
        header: PullMessageRequest,
        topic: TopicConfig,
        group: SubscriptionGroupConfig,
        members: ConsumerGroup | None,
    ) -> Permit | Answer:
        """A pull of a member whose heartbeat has said what it wants."""
        name = header.consumer_group
        if members is None:
            return _no_subscription("the consumer's group info not exist")
        if not group.consume_broadcast_enable and members.is_broadcast:
            return _forbidden(BROADCAST, f"the consumer group[{name}] can not consume by broadcast way")
        if self._groups.is_forbidden(name, header.topic):
            return _forbidden(
                SUBSCRIPTION, f"the consumer group[{name}] is forbidden for topic[{header.topic}]"
            )
        subscription = members.subscriptions.get(header.topic)
        if subscription is None:
            return _no_subscription("the consumer's subscription not exist")
        if subscription.sub_version < header.sub_version:
            return Answer(
                ResponseCode.SUBSCRIPTION_NOT_LATEST, remark="the consumer's subscription not latest"
            )
        version, expression = subscription.sub_version, None
        if not is_tag_type(subscription.expression_type):
            if not self._settings.broker.enable_property_filter:
                return _no_filters(subscription)
            registered = self._filters.get(header.topic, name)
            if registered is None:
                remark = "The broker's consumer filter data is not exist!Your expression may be wrong!"
                return Answer(ResponseCode.FILTER_DATA_NOT_EXIST, remark=remark)
            if registered.client_version < header.sub_version:
                remark = "the consumer's consumer filter data not latest"
                return Answer(ResponseCode.FILTER_DATA_NOT_LATEST, remark=remark)
            version, expression = min(version, registered.client_version), registered.expression
        return self._permit(topic, group, subscription, expression, version, members)

    def _permit(
        self,
        topic: TopicConfig,
        group: SubscriptionGroupConfig,
        subscription: SubscriptionData,
        expression: Expression | None,
        version: int | None,
        members: ConsumerGroup | None,
    ) -> Permit:
        config = self._settings.broker
        wanted: PullFilter | None
        if config.filter_support_retry and topic.topic_name.startswith(RETRY_PREFIX):
            wanted = self._retry_filter(group.group_name)
        elif expression is not None:
            wanted = None if subscription.class_filter_mode else SqlFilter(expression.matches)
        else:
            wanted = tag_filter(subscription)
        is_broadcast = (
            members is not None
            and members.is_broadcast
            and members.consume_type is ConsumeType.CONSUME_PASSIVELY
        )
        flags = topic.topic_sys_flag, group.group_sys_flag
        return Permit(topic, group, wanted, version, is_broadcast, flags)

    def _retry_filter(self, group: str) -> SqlFilter:
        filters = self._filters

        def expression_of(topic: str) -> Expression | None:
            registered = filters.get(topic, group)
            return None if registered is None else registered.expression

        return retry_filter(expression_of)


def _refuse_active(members: ConsumerGroup | None, connection: Connection) -> Answer | None:
    """Where consumers that pull on their own are not wanted, only a registered one may."""
    if members is not None and members.consume_type is not ConsumeType.CONSUME_ACTIVELY:
        return None
    if members is not None and connection in members.members:
        return None
    return _no_subscription(
        "the consumer's group info not exist, or the pull consumer is rejected by server."
    )


def _no_filters(subscription: SubscriptionData) -> Answer:
    expression_type = subscription.expression_type[:40]
    remark = f"The broker does not support consumer to filter message by {expression_type}"
    return Answer(ResponseCode.SYSTEM_ERROR, remark=remark)


def _forbidden(forbidden_type: int, remark: str) -> Answer:
    return Answer(ResponseCode.NO_PERMISSION, remark=remark, fields={"forbiddenType": str(forbidden_type)})


def _no_subscription(remark: str) -> Answer:
    return Answer(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark=remark + FAQ)
