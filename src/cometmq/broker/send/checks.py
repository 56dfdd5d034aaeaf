"""The checks of a send: what may be sent where, and what a refusal says.

Rules kept here:
- The checks come in RocketMQ's order, with its codes and remarks; a message that is refused has changed
  nothing, except that its topic may have been made for it.
- What the checks of a topic found is kept until a topic or a setting changes.
- The topic's own permission to write is not checked here: clients follow it, through their routes.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from cometmq.broker.send.properties import PropertyLayout
from cometmq.broker.settings import Settings
from cometmq.broker.topics.names import FAQ, is_for_clients, refuse_topic
from cometmq.broker.topics.topics import Topics
from cometmq.model.errors import CometError
from cometmq.model.histogram import Histogram
from cometmq.model.names import RETRY_PREFIX
from cometmq.model.sysflag import MULTI_TAGS
from cometmq.model.topic import TOPIC_UNIT, TOPIC_UNIT_SUB, TopicConfig
from cometmq.ports.clock import Clock
from cometmq.wire.codes import ResponseCode
from cometmq.wire.headers.send import SendMessageRequest, SendMessageRequestV2
from cometmq.wire.record.batch import BatchItem

MAX_BATCH_MESSAGES: Final = 65_536
"""A batch of more messages is refused. Java's client gives each an id, and gets 65,000 into the 4 MiB of a
request."""
MAX_BATCH_KEYS: Final = 200_000
"""So is one whose messages have more keys: each of them is written into the index."""
_MIN_KEY_BYTES: Final = 2

AnySend = SendMessageRequest | SendMessageRequestV2
"""Both forms of a send have the same names."""


class SendRefused(CometError):  # noqa: N818 - an answer, not a defect
    """A send that is answered with a code and a sentence."""

    def __init__(self, code: ResponseCode, message: str) -> None:
        super().__init__(message, code=code)


class SendTarget(msgspec.Struct):
    """A topic that may be sent to."""

    topic: str
    queues: int
    """Queue ids below this are legal."""
    write_queues: int
    sys_flag: int
    """Bits that every message of this topic has."""
    is_plain: bool
    """Whether messages need no more than to be put: no retry topic."""
    config: TopicConfig
    layout: PropertyLayout | None = None
    """That of the properties of the last plain message; the next one mostly has the same."""
    sizes: Histogram | None = None
    """Where plain messages are counted, since the first of them."""


def describe(topic: TopicConfig) -> str:
    """A topic as Apache's broker prints it in its remarks."""
    perm = "".join(
        ("R" if topic.perm & 4 else "-", "W" if topic.perm & 2 else "-", "X" if topic.perm & 1 else "-")
    )
    attributes = "{" + ", ".join(f"{key}={value}" for key, value in (topic.attributes or {}).items()) + "}"
    return (
        f"TopicConfig [topicName={topic.topic_name}, readQueueNums={topic.read_queue_nums}, "
        f"writeQueueNums={topic.write_queue_nums}, perm={perm}, topicFilterType={topic.topic_filter_type}, "
        f"topicSysFlag={topic.topic_sys_flag}, order={str(topic.order).lower()}, attributes={attributes}]"
    )


class SendChecks:
    """Decides whether a message may be put, and into which topic; belongs to the event loop."""

    def __init__(self, settings: Settings, clock: Clock, topics: Topics) -> None:
        self._topics = topics
        self._settings = settings
        self._clock = clock
        self.targets: dict[str, SendTarget] = {}
        """Topics that passed all checks that do not depend on the message."""
        topics.on_change.append(lambda _: self.targets.clear())
        settings.on_change.append(self.targets.clear)

    def target(self, header: AnySend, peer: str) -> SendTarget:
        """The topic of a message, made if need be; raises `SendRefused`."""
        config = self._settings.broker
        topic = header.topic
        if self._clock.now_ms() < config.start_accept_send_request_time_stamp:
            until = datetime.fromtimestamp(config.start_accept_send_request_time_stamp / 1000)
            text = until.strftime("%Y-%m-%d %H:%M:%S,") + f"{until.microsecond // 1000:03d}"
            raise SendRefused(ResponseCode.SYSTEM_ERROR, f"broker unable to service, until {text}")
        known = self._topics.get(topic)
        if not config.is_writable and known is not None and known.order:
            remark = f"the broker[{config.broker_ip1}] sending message is forbidden"
            raise SendRefused(ResponseCode.NO_PERMISSION, remark)
        refusal = refuse_topic(topic)
        if refusal is not None:
            raise SendRefused(ResponseCode.INVALID_PARAMETER, refusal)
        if not is_for_clients(topic) and topic != config.msg_trace_topic_name:
            remark = f"Sending message to topic[{topic}] is forbidden."
            raise SendRefused(ResponseCode.NO_PERMISSION, remark)
        if known is None:
            known = self._made(header, peer)
        target = _target(known)
        if header.queue_id >= target.queues:
            remark = f"request queueId[{header.queue_id}] is illegal, {describe(known)} Producer: {peer}"
            raise SendRefused(ResponseCode.INVALID_PARAMETER, remark)
        if config.is_writable and not config.start_accept_send_request_time_stamp:
            self.targets[topic] = target
        return target

    def _made(self, header: AnySend, peer: str) -> TopicConfig:
        topics, topic = self._topics, header.topic
        is_retry = topic.startswith(RETRY_PREFIX)
        sys_flag = (TOPIC_UNIT_SUB if is_retry else TOPIC_UNIT) if header.unit_mode else 0
        made = topics.create_by_default(
            topic, header.default_topic, header.default_topic_queue_nums, peer, sys_flag
        )
        if made is None and is_retry and topics.has_room_for(topic):
            made = topics.ensure(topic, 1, sys_flag=sys_flag)
        if made is None:
            remark = f"topic[{topic}] not exist, apply first please!{FAQ}"
            if len(topics.table) >= self._settings.broker.max_auto_create_topics:
                remark += (
                    f" This broker has {len(topics.table)} topics and makes no more by itself "
                    "(maxAutoCreateTopics); an administrator can."
                )
            raise SendRefused(ResponseCode.TOPIC_NOT_EXIST, remark)
        return made


def _target(topic: TopicConfig) -> SendTarget:
    return SendTarget(
        topic.topic_name,
        max(topic.read_queue_nums, topic.write_queue_nums),
        topic.write_queue_nums,
        MULTI_TAGS if topic.topic_filter_type == "MULTI_TAG" else 0,
        not topic.topic_name.startswith(RETRY_PREFIX),
        topic,
    )


def refuse_large_batch(items: Sequence[BatchItem], size: int) -> None:
    """Refuse a batch of this size in bytes that would keep the broker busy for long."""
    keys = 0
    if size > MAX_BATCH_KEYS * _MIN_KEY_BYTES:  # a smaller one cannot have so many
        keys = sum(bytes(item.properties_block).count(b" ") for item in items)
    if len(items) > MAX_BATCH_MESSAGES or keys > MAX_BATCH_KEYS:
        raise SendRefused(
            ResponseCode.MESSAGE_ILLEGAL,
            f"a batch of {len(items)} messages with {keys} keys is too large; send at most "
            f"{MAX_BATCH_MESSAGES} messages and {MAX_BATCH_KEYS} keys at once",
        )
