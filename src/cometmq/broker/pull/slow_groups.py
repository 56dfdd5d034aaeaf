"""Protection from groups that read from far back, and so push everybody else out of memory.

Rules kept here: with `disableConsumeIfConsumerReadSlowly`, a group that is online and further behind in
any queue than `consumerFallbehindThreshold` bytes of the log is switched off. An administrator switches it on
again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from cometmq.broker.context import BrokerState

log = logging.getLogger("cometmq.broker")


def disable_slow_groups(state: BrokerState) -> None:
    """Switch off the groups that are too far behind, if that is wanted."""
    if not state.config.disable_consume_if_consumer_read_slowly:
        return
    for name, group in list(state.clients.consumers.items()):
        config = state.groups.get(name)
        if config is None or not config.consume_enable:
            continue
        behind = max((bytes_behind(state, name, topic) for topic in group.subscriptions), default=0)
        if behind > state.config.consumer_fallbehind_threshold:
            log.warning("group %s is %d bytes behind and is switched off", name, behind)
            state.groups.update(msgspec.structs.replace(config, consume_enable=False))


def bytes_behind(state: BrokerState, group: str, topic: str) -> int:
    """How far back in the log the place is that a group reads next; the furthest of all queues of a topic."""
    config = state.topics.get(topic)
    end = state.store.log.max_offset
    furthest = end
    for queue_id in range(0 if config is None else config.read_queue_nums):
        queue = state.store.queues.find(topic, queue_id)
        offset = state.offsets.query_pulled(group, topic, queue_id)
        if queue is not None and 0 <= offset < queue.max_offset:
            unit = queue.unit(max(offset, queue.min_offset))
            if unit is not None:
                furthest = min(furthest, unit[0])
    return end - furthest
