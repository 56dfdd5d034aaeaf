"""Retries and dead letters of messages that a group could not consume.

Rules kept here:
- A message sent to a group's retry topic that was tried too often, or that belongs to a group that consumes
  in order, goes to the group's dead letters instead.
- A message sent back keeps its body, its properties and its history: the topic and the id that it had first.
"""

from __future__ import annotations

from typing import Final

from cometmq.broker.groups.groups import Groups
from cometmq.broker.groups.queue_locks import QueueLocks
from cometmq.broker.monitor.counters import Traffic
from cometmq.broker.real_targets import restored
from cometmq.broker.send.checks import AnySend, SendRefused
from cometmq.broker.send.properties import stored_block
from cometmq.broker.topics.names import FAQ
from cometmq.broker.topics.topics import Topics
from cometmq.model.message_properties import DELAY, ORIGIN_MESSAGE_ID, RETRY_TOPIC, WAIT
from cometmq.model.names import RETRY_PREFIX, dead_letter_topic
from cometmq.model.subscription import SubscriptionGroupConfig
from cometmq.wire.codes import V3_4_9, ResponseCode
from cometmq.wire.record.codec import Record
from cometmq.wire.record.ids import encode_offset_id

FIRST_RETRY_LEVEL: Final = 3
"""The delay level of the first retry; each further one waits a level longer."""


def most_retries(group: SubscriptionGroupConfig, version: int, asked: int | None) -> int:
    """How often a message may be tried again; clients since 3.4.9 have a say."""
    return group.retry_max_times if asked is None or version < V3_4_9 else asked


def group_not_found(group: str) -> SendRefused:
    return SendRefused(
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {group} {FAQ}"
    )


class Retries:
    """Decides which retries become dead letters; belongs to the event loop."""

    def __init__(self, topics: Topics, groups: Groups, locks: QueueLocks, traffic: Traffic) -> None:
        self._topics = topics
        self._groups = groups
        self._locks = locks
        self._traffic = traffic

    def redirect(self, header: AnySend, version: int, record: Record, properties: dict[str, str]) -> None:
        """Let a message for a retry topic go to the dead letters, if that is where it belongs."""
        group = header.topic[len(RETRY_PREFIX) :]
        config = self._groups.find(group)
        if config is None:
            raise group_not_found(group)
        tried = header.reconsume_times or 0
        if tried > most_retries(config, version, header.max_reconsume_times) or self._locks.has_locks(group):
            self._topics.ensure_dead_letter_topic(group)
            self._traffic.gave_up(header.topic, group)
            properties[DELAY] = "-1"
            record.topic, record.queue_id = dead_letter_topic(group), 0


def sent_back(stored: Record, topic: str, queue_id: int, delay_level: int) -> tuple[Record, dict[str, str]]:
    """The message that stands for one that was sent back, and its properties."""
    properties = stored.properties()
    properties.setdefault(RETRY_TOPIC, stored.topic)
    properties[WAIT] = "false"
    properties[DELAY] = str(delay_level)
    if not properties.get(ORIGIN_MESSAGE_ID, "").strip():
        properties[ORIGIN_MESSAGE_ID] = encode_offset_id(stored.store_host, stored.physical_offset)
    record = restored(stored, topic, queue_id, stored_block(properties), is_retry=True)
    return record, properties
