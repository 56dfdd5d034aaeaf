"""Checks of pops and acknowledgements: permission, limits and filter.

Rules kept here:
- The checks come in RocketMQ's order, with its codes and remarks.
- What they find for a group, a topic and an expression is remembered until a table or a setting changes.
  Refusals are not remembered: what is missing may come.
- Neither a heartbeat nor a subscription is needed: a pop says itself what it wants.
"""

from __future__ import annotations

from typing import Final

from cometmq.broker.groups.groups import Groups
from cometmq.broker.groups.subscriptions import is_tag_type, make_subscription
from cometmq.broker.pop.handles import PopRefused, retry_topic_of, retry_topic_v1, retry_topic_v2
from cometmq.broker.pull.checks import LONGEST_REMEMBERED
from cometmq.broker.pull.filters import PullFilter, SqlFilter, tag_filter
from cometmq.broker.settings import Settings
from cometmq.broker.topics.names import FAQ
from cometmq.broker.topics.topics import Topics
from cometmq.model.errors import ProtocolError
from cometmq.model.topic import PERM_READ, TopicConfig
from cometmq.remoting.connection import Connection
from cometmq.store.message_store import MessageStore
from cometmq.wire.codes import ResponseCode
from cometmq.wire.headers.pop import (
    AckMessageRequest,
    ChangeInvisibleTimeRequest,
    NotificationRequest,
    PeekMessageRequest,
    PollingInfoRequest,
    PopMessageRequest,
)
from cometmq.wire.sql92.expression import compile_sql

MAX_POPPED: Final = 32
"""No pop hands out more messages."""
LATE_MS: Final = 500
"""A pop that comes later than this after its time is refused."""
MAX_PERMITS: Final = 10_000
"""With this many remembered, all are forgotten."""

AnyPop = PopMessageRequest | PeekMessageRequest | NotificationRequest | PollingInfoRequest
AnyAck = AckMessageRequest | ChangeInvisibleTimeRequest


class PopPermit:
    """The result of the checks for pops of a group from a topic."""

    __slots__ = ("retry_topics", "topic", "wanted")

    def __init__(self, topic: TopicConfig, group: str, wanted: PullFilter | None) -> None:
        self.topic = topic
        self.wanted = wanted
        name = topic.topic_name
        self.retry_topics = (retry_topic_v1(name, group), retry_topic_v2(name, group))


class PopChecks:
    """Checks requests against the tables of a broker; all of it raises `PopRefused`."""

    def __init__(self, settings: Settings, store: MessageStore, topics: Topics, groups: Groups) -> None:
        self._settings = settings
        self._groups = groups
        self._topics = topics
        self._store = store
        self._is_slave = settings.is_slave
        self._permits: dict[tuple[str | None, ...], PopPermit] = {}
        self._stamp: tuple[object, ...] = ()

    def check_pop(self, header: PopMessageRequest, connection: Connection, now_ms: int) -> PopPermit:
        config = self._settings.broker
        if now_ms - header.born_time - header.poll_time > LATE_MS:
            raise PopRefused(
                ResponseCode.POLLING_TIMEOUT,
                f"the broker[{config.broker_ip1}] pop message is timeout too much",
            )
        if not config.is_readable or self._is_slave:
            remark = f"the broker[{config.broker_ip1}] pop message is forbidden"
            raise PopRefused(ResponseCode.NO_PERMISSION, remark)
        if header.max_msg_nums > MAX_POPPED:
            remark = f"the broker[{config.broker_ip1}] pop message's num is greater than {MAX_POPPED}"
            raise PopRefused(ResponseCode.INVALID_PARAMETER, remark)
        if not self._settings.has_timers:
            raise PopRefused(
                ResponseCode.SYSTEM_ERROR,
                f"the broker[{config.broker_ip1}] pop message is forbidden because timerWheelEnable is false",
            )
        self.check_invisible_time(header.invisible_time)
        return self._permit(header, connection, header.exp_type, header.exp)

    def check_invisible_time(self, invisible_ms: int) -> None:
        longest_ms = self._settings.store.timer_max_delay_sec * 1000
        if not 0 <= invisible_ms <= longest_ms:
            remark = f"invisibleTime {invisible_ms} is not within 0 and {longest_ms} ms (timerMaxDelaySec)"
            raise PopRefused(ResponseCode.INVALID_PARAMETER, remark)

    def check_peek(
        self, header: PeekMessageRequest | NotificationRequest | PollingInfoRequest, connection: Connection
    ) -> PopPermit:
        """For requests that take nothing."""
        config = self._settings.broker
        if not config.is_readable:
            remark = f"the broker[{config.broker_ip1}] peeking message is forbidden"
            raise PopRefused(ResponseCode.NO_PERMISSION, remark)
        return self._permit(header, connection, None, None)

    def _permit(
        self, header: AnyPop, connection: Connection, exp_type: str | None, exp: str | None
    ) -> PopPermit:
        stamp = (self._groups.data_version, self._topics.generation)
        if stamp != self._stamp:
            self._permits.clear()
            self._stamp = stamp
        key = (header.consumer_group, header.topic, exp_type, exp)
        permit = self._permits.get(key)
        if permit is None or header.queue_id >= permit.topic.read_queue_nums:
            permit = self._find_permit(header, connection, exp_type, exp)
            if len(exp or "") <= LONGEST_REMEMBERED:
                if len(self._permits) >= MAX_PERMITS:
                    self._permits.clear()
                self._permits[key] = permit
        return permit

    def _find_permit(
        self, header: AnyPop, connection: Connection, exp_type: str | None, exp: str | None
    ) -> PopPermit:
        topic = self._topic(header.topic)
        if not topic.perm & PERM_READ:
            remark = f"the topic[{header.topic}] peeking message is forbidden"
            raise PopRefused(ResponseCode.NO_PERMISSION, remark)
        if header.queue_id >= topic.read_queue_nums:
            remark = _illegal_queue(topic, header.queue_id, connection)
            raise PopRefused(ResponseCode.INVALID_PARAMETER, remark)
        group = self._groups.find(header.consumer_group)
        if group is None:
            remark = f"subscription group [{header.consumer_group}] does not exist, {FAQ}"
            raise PopRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not group.consume_enable:
            remark = f"subscription group no permission, {header.consumer_group}"
            raise PopRefused(ResponseCode.NO_PERMISSION, remark)
        made_later = retry_topic_of(header.topic, header.consumer_group, self._settings.broker)
        if not self._topics.has_room_for(made_later):
            raise PopRefused(ResponseCode.TOPIC_NOT_EXIST, self._topics.no_room_for(made_later))
        wanted = _filter_of(topic.topic_name, exp, exp_type) if exp else None
        return PopPermit(topic, header.consumer_group, wanted)

    def _topic(self, name: str) -> TopicConfig:
        topic = self._topics.get(name)
        if topic is None:
            remark = f"topic[{name}] not exist, apply first please! {FAQ}"
            raise PopRefused(ResponseCode.TOPIC_NOT_EXIST, remark)
        return topic

    def check_ack(self, header: AnyAck, connection: Connection, beyond_end: int) -> None:
        """For requests about a message that was popped.

        Offsets up to `beyond_end` beyond the end of the queue are legal.
        """
        topic = self._topic(header.topic)
        queue_id, offset = header.queue_id, header.offset
        if not 0 <= queue_id < topic.read_queue_nums:
            remark = _illegal_queue(topic, queue_id, connection)
            raise PopRefused(ResponseCode.MESSAGE_ILLEGAL, remark)
        first, end = self._store.queues.bounds(header.topic, queue_id)
        if not first <= offset < end + beyond_end:
            remark = f"offset is illegal, key:{header.topic}@{queue_id}, commit:{offset}, store:{first}~{end}"
            raise PopRefused(ResponseCode.NO_MESSAGE, remark)


def _filter_of(topic: str, exp: str, exp_type: str | None) -> PullFilter | None:
    try:
        subscription = make_subscription(topic, exp, exp_type)
        if is_tag_type(subscription.expression_type):
            return tag_filter(subscription)
        return SqlFilter(compile_sql(subscription.sub_string).matches)
    except ProtocolError:
        remark = "parse the consumer's subscription failed"
        raise PopRefused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark) from None


def _illegal_queue(topic: TopicConfig, queue_id: int, connection: Connection) -> str:
    return (
        f"queueId[{queue_id}] is illegal, topic:[{topic.topic_name}] topicConfig.readQueueNums:"
        f"[{topic.read_queue_nums}] consumer:[{connection.remote_address}]"
    )
