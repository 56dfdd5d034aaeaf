"""What follows from a record for the queues and the index: pure rules, shared by all who dispatch.

Rules kept here:
- Only messages of no transaction, and committed ones, are in a queue. Only rolled back ones are not in the
  index.
- A queue unit has the hash of the tags; in the topic of delayed messages it has the time of delivery.
- A message is indexed under its unique key, if it has one, then under each of its keys.
- A message may be in further queues, which its properties name together with its offsets there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from cometmq.model.errors import SettingsError
from cometmq.model.message_properties import (
    DELAY,
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    INNER_NUM,
    KEYS,
    TAGS,
    UNIQ_KEY,
)
from cometmq.model.sysflag import TRANSACTION_MASK, TransactionType
from cometmq.wire.java_hash import tags_code
from cometmq.wire.properties import find_property
from cometmq.wire.record import Record

DELAY_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
LIGHT_QUEUE_PREFIX: Final = "%LMQ%"

UNKNOWN_LEVEL_DELAY_MS: Final = 1000
"""What a level that has no delay of its own waits."""

_UNQUEUED: Final = frozenset({int(TransactionType.PREPARED), int(TransactionType.ROLLBACK)})
_ROLLBACK: Final = int(TransactionType.ROLLBACK)
_DELAY: Final = re.compile(r"(\d+)([smhd])")
_UNITS_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_find_values: Final = re.compile(f"\x02({TAGS}|{UNIQ_KEY}|{KEYS}|{INNER_NUM})\x01([^\x02]+)").findall
_REMEMBERED_BLOCKS: Final = 4096
_REMEMBERED_LENGTH: Final = 256
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,10}")


Values = tuple[str | None, str | None, str | None, bool]

_remembered: dict[bytes, Values] = {}


class QueuePlace(NamedTuple):
    """A place in a queue."""

    topic: str
    queue_id: int
    queue_offset: int


class DelayLevels:
    """The delays of the levels 1, 2, …, written as in `messageDelayLevel`."""

    def __init__(self, text: str) -> None:
        self.delays_ms: list[int] = []
        for part in text.split():
            match = _DELAY.fullmatch(part)
            if match is None:
                raise SettingsError(f"messageDelayLevel has {part!r}, expected a delay such as 1s, 5m or 2h")
            self.delays_ms.append(int(match[1]) * _UNITS_MS[match[2]])

    def delay_ms(self, level: int) -> int:
        """The delay of a level; one that is too high counts as the highest."""
        if not self.delays_ms:
            return UNKNOWN_LEVEL_DELAY_MS
        return self.delays_ms[min(level, len(self.delays_ms)) - 1]

    def unit_code(
        self, topic: str, tags: str | None, properties_block: bytes | memoryview, store_time_ms: int
    ) -> int:
        """What the queue unit of a message says in the place of its tags."""
        level = delay_level(topic, properties_block)
        if level:
            return store_time_ms + self.delay_ms(level)
        return tags_code(tags) if tags else 0


def is_queued(sys_flag: int) -> bool:
    """Whether a message is in a queue."""
    return sys_flag & TRANSACTION_MASK not in _UNQUEUED


def is_indexed(sys_flag: int) -> bool:
    """Whether a message is in the index."""
    return sys_flag & TRANSACTION_MASK != _ROLLBACK


def delay_level(topic: str, properties_block: bytes | memoryview) -> int:
    """The level of a message that waits in the topic of delayed messages; 0 for every other."""
    if topic != DELAY_TOPIC:
        return 0
    text = find_property(properties_block, DELAY) or "0"
    return max(int(text), 0) if _INTEGER.fullmatch(text) else 0


def unit_code(record: Record, levels: DelayLevels) -> int:
    """What the queue unit of a record says in the place of its tags."""
    block = record.properties_block
    return levels.unit_code(record.topic, find_property(block, TAGS), block, record.store_timestamp_ms)


def put_values(properties_block: bytes | memoryview) -> Values:
    """Tags, unique key and keys, and whether the message says how many it stands for.

    Looked for at once, because every message is asked for them. Properties without keys are often the same
    for many messages, so what was found is remembered.
    """
    block = bytes(properties_block)
    values = _remembered.get(block)
    if values is not None:
        return values
    tags = unique_key = keys = None
    is_inner_batch = False
    for name, value in _find_values("\x02" + block.decode("utf-8", "replace")):
        if name == TAGS:
            tags = value
        elif name == UNIQ_KEY:
            unique_key = value
        elif name == KEYS:
            keys = value
        else:
            is_inner_batch = True
    values = tags, unique_key, keys, is_inner_batch
    if unique_key is None and keys is None and len(block) <= _REMEMBERED_LENGTH:
        if len(_remembered) >= _REMEMBERED_BLOCKS:
            _remembered.clear()
        _remembered[block] = values
    return values


def dispatch_values(properties_block: bytes | memoryview) -> tuple[str | None, str | None, str | None]:
    """Tags, unique key and keys."""
    return put_values(properties_block)[:3]


def index_keys(record: Record) -> tuple[str | None, str | None]:
    """The unique key and the keys, with spaces between, that a record is indexed under."""
    return dispatch_values(record.properties_block)[1:]


def further_places(record: Record) -> Iterator[QueuePlace]:
    """The other queues that a message is in, and with which offsets."""
    names = find_property(record.properties_block, INNER_MULTI_DISPATCH)
    offsets = find_property(record.properties_block, INNER_MULTI_QUEUE_OFFSET)
    if not names or not offsets:
        return
    for name, offset in zip(names.split(","), offsets.split(","), strict=False):
        if offset.isdecimal():
            yield QueuePlace(name, 0 if name.startswith(LIGHT_QUEUE_PREFIX) else record.queue_id, int(offset))
