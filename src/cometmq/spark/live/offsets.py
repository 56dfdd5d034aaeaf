"""Offsets of queues as Spark keeps them, and the share of a backlog that a trigger takes.

    {"orders": {"broker-a": {"0": 1200, "1": 1187}}}

Rules kept here:
- Equal offsets have equal text: Spark compares texts to detect new data.
- Queues share a trigger in proportion to their backlogs; it takes at least one message if there is one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from cometmq.model.errors import SettingsError
from cometmq.model.queue import MessageQueue, lag_of

LATEST: Final = -1
EARLIEST: Final = -2
"""Placeholders for offsets, as in Kafka."""

Offsets = Mapping[MessageQueue, int]
Nested = dict[str, dict[str, dict[str, int]]]


def to_nested(offsets: Offsets) -> Nested:
    """Offsets for Spark's JSON."""
    nested: Nested = {}
    for queue in sorted(offsets):
        brokers = nested.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker_name, {})[str(queue.queue_id)] = offsets[queue]
    return nested


def from_nested(nested: Mapping[str, Any]) -> dict[MessageQueue, int]:
    """Offsets from Spark's JSON."""
    return {
        MessageQueue(topic, broker_name, int(queue_id)): int(offset)
        for topic, brokers in nested.items()
        for broker_name, queues in brokers.items()
        for queue_id, offset in queues.items()
    }


def parse_offsets(option: str, text: str) -> dict[MessageQueue, int]:
    """Offsets of an option."""
    try:
        offsets = from_nested(json.loads(text))
    except (ValueError, TypeError, AttributeError):
        offsets = None
    if not offsets:
        raise SettingsError(
            f"{option} is {text[:200]!r}; write earliest, latest, or JSON such as "
            '{"topic": {"broker-a": {"0": 23, "1": -2}}}, where -2 is earliest and -1 latest'
        )
    for queue, offset in offsets.items():
        if offset < EARLIEST:
            raise SettingsError(f"{option} has {offset} for {queue}; an offset is 0 or more, -1 or -2")
    return offsets


def parse_queues(option: str, text: str) -> frozenset[MessageQueue]:
    """Queues of an option."""
    try:
        queues = frozenset(
            MessageQueue(topic, broker_name, int(queue_id))
            for topic, brokers in json.loads(text).items()
            for broker_name, queue_ids in brokers.items()
            for queue_id in queue_ids
        )
    except (ValueError, TypeError, AttributeError):
        queues = frozenset()
    if not queues or min(queue.queue_id for queue in queues) < 0:
        raise SettingsError(
            f'{option} is {text[:200]!r}; write JSON with queues such as {{"topic": {{"broker-a": [0, 1]}}}}'
        )
    return queues


def parse_times(option: str, text: str) -> dict[MessageQueue, int]:
    """Times of an option, in milliseconds by queue."""
    try:
        times = from_nested(json.loads(text))
    except (ValueError, TypeError, AttributeError):
        times = None
    if not times or min(times.values()) < 0:
        raise SettingsError(
            f"{option} is {text[:200]!r}; write JSON with milliseconds since 1970 such as "
            '{"topic": {"broker-a": {"0": 1700000000000}}}'
        )
    return times


def share(backlog: Offsets, limit: int) -> dict[MessageQueue, int]:
    """The number of messages to take from each queue, at most `limit` together."""
    total = sum(backlog.values())
    if total <= limit:
        return dict(backlog)
    shares = {queue: waiting * limit // total for queue, waiting in backlog.items()}
    left = limit - sum(shares.values())
    # The remainder goes to the queues that lost most by rounding.
    losers = sorted(backlog, key=lambda queue: (-(backlog[queue] * limit % total), queue))
    for queue in losers[:left]:
        shares[queue] += 1
    return shares


def share_bytes(backlog: Offsets, sizes: Mapping[MessageQueue, float], limit: int) -> dict[MessageQueue, int]:
    """The number of messages to take for a limit of bytes; `sizes` are average message sizes."""
    total = sum(waiting * sizes[queue] for queue, waiting in backlog.items())
    if total <= limit:
        return dict(backlog)
    shares = {queue: int(waiting * limit / total) for queue, waiting in backlog.items()}
    if not any(shares.values()):
        shares[max(backlog, key=lambda queue: (backlog[queue], queue))] = 1
    return shares


def advance(start: Offsets, taken: Offsets) -> dict[MessageQueue, int]:
    """The end of a trigger that takes this number of messages."""
    return {queue: offset + taken.get(queue, 0) for queue, offset in start.items()}


def backlog_of(start: Offsets, latest: Offsets) -> dict[MessageQueue, int]:
    """The number of waiting messages, for queues that have some."""
    waiting = {queue: lag_of(latest.get(queue, offset), offset) for queue, offset in start.items()}
    return {queue: count for queue, count in waiting.items() if count > 0}
