"""Dispatch rules: which queues and index keys follow from a record. Pure functions.

Rules kept here:
- Only messages without a transaction and committed ones are in a queue. Only rolled back ones are not in the
  index.
- A queue unit carries the hash of the tags; in the topic of delayed messages it carries the delivery time.
- A message is indexed under its unique key, if it has one, then under each of its keys.
- With multi-dispatch, a message is also in the queues that its properties name, at the offsets given there;
  never in a queue of a topic that only the system writes to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from cometmq.model.errors import SettingsError
from cometmq.model.java_numbers import LARGEST_LONG, natural_int, natural_long
from cometmq.model.message_properties import (
    DELAY,
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    INNER_NUM,
    KEYS,
    TAGS,
    UNIQ_KEY,
)
from cometmq.model.names import (
    DELAY_TOPIC,
    LIGHT_QUEUE_PREFIX,
    RETRY_PREFIX,
    SYSTEM_PREFIX,
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_PREFIX,
)
from cometmq.model.sysflag import TRANSACTION_MASK, TransactionType
from cometmq.wire.java_hash import tags_code
from cometmq.wire.record.codec import Record
from cometmq.wire.record.properties import find_property

UNKNOWN_LEVEL_DELAY_MS: Final = 1000
"""The delay of a level without a configured one."""

_UNQUEUED: Final = frozenset({int(TransactionType.PREPARED), int(TransactionType.ROLLBACK)})
_ROLLBACK: Final = int(TransactionType.ROLLBACK)
_DELAY: Final = re.compile(r"(\d{1,10})([smhd])")
_UNITS_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_UNIQ_KEY: Final = f"\x02{UNIQ_KEY}\x01".encode()
_KEYS: Final = f"\x02{KEYS}\x01".encode()
_find_values: Final = re.compile(f"\x02({TAGS}|{UNIQ_KEY}|{KEYS}|{INNER_NUM})\x01([^\x02]+)".encode()).findall
_REMEMBERED_BLOCKS: Final = 4096
_REMEMBERED_LENGTH: Final = 256
_MANY: Final = 4
"""Comparing by column pays off from 4 messages per byte."""
_KEPT_OUT: Final = (RETRY_PREFIX, SYSTEM_PREFIX, TRANS_PREFIX, TRANS_CHECK_MAX_TIME_TOPIC, DELAY_TOPIC)


Values = tuple[int, bytes | None, bytes | None, bool]
"""Hash of the tags (or 0), unique key, keys, and whether the message is an inner batch."""

Keyed = tuple[str, bytes | None, bytes | None, int, int]
"""Topic, unique key, keys, physical offset and store time of a message."""

NO_VALUES: Final[Values] = (0, None, None, False)

_remembered: dict[bytes, Values] = {}


class QueuePosition(NamedTuple):
    """An offset in a queue."""

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
        """The delay of a level; a level above the highest counts as the highest."""
        if not self.delays_ms:
            return UNKNOWN_LEVEL_DELAY_MS
        return self.delays_ms[min(level, len(self.delays_ms)) - 1]

    def unit_code(
        self, topic: str, code: int, properties_block: bytes | memoryview, store_time_ms: int
    ) -> int:
        """The tags code of a queue unit; `code` is the hash of the message's tags."""
        level = delay_level(topic, properties_block)
        return min(store_time_ms + self.delay_ms(level), LARGEST_LONG) if level else code


def is_queued(sys_flag: int) -> bool:
    """Whether a message is in a queue."""
    return sys_flag & TRANSACTION_MASK not in _UNQUEUED


def is_indexed(sys_flag: int) -> bool:
    """Whether a message is in the index."""
    return sys_flag & TRANSACTION_MASK != _ROLLBACK


def delay_level(topic: str, properties_block: bytes | memoryview) -> int:
    """The level of a message in the topic of delayed messages; 0 for every other message."""
    if topic != DELAY_TOPIC:
        return 0
    return natural_int(find_property(properties_block, DELAY)) or 0


def unit_code(record: Record, levels: DelayLevels) -> int:
    """The tags code in the queue unit of a record."""
    block = record.properties_block
    return levels.unit_code(record.topic, put_values(block)[0], block, record.store_timestamp_ms)


def put_values(properties_block: bytes | memoryview) -> Values:
    """Read the properties that queue and index need.

    This runs for every message, so it searches the bytes directly. Without unique key and keys, many messages
    have the same properties, so the other values are cached.
    """
    unique_key = keys = None
    block = b"\x02" + properties_block
    before, found, after = block.rpartition(_UNIQ_KEY)
    if found:
        unique_key, _, after = after.partition(b"\x02")
        block = before + b"\x02" + after
    before, found, after = block.rpartition(_KEYS)
    if found:
        keys, _, after = after.partition(b"\x02")
        block = before + b"\x02" + after
    others = _remembered.get(block)
    if others is None:
        others = _other_values(block)
    return others[0], unique_key or others[1], keys or others[2], others[3]


def unique_keys_of_all(blocks: Sequence[bytes | memoryview]) -> list[bytes] | None:
    """The unique keys of messages that differ in nothing else and have no other keys; otherwise None.

    Compares each byte outside the keys in all messages at once.
    """
    first, count = bytes(blocks[0]), len(blocks)
    _, unique_key, keys, _ = put_values(first)
    if not unique_key or keys:
        return None
    length, width = len(first), len(unique_key)
    begin = (b"\x02" + first).rindex(_UNIQ_KEY) + len(_UNIQ_KEY) - 1
    if count < _MANY * (length - width) or set(map(len, blocks)) != {length}:
        return None
    content = b"".join(blocks)
    if not first.startswith(unique_key, begin) or content.count(2) != count * first.count(2):
        return None  # a property inside a key, or an earlier key that counts because the last is empty
    for at in (*range(begin), *range(begin + width, length)):
        if content[at::length].count(first[at]) != count:
            return None
    return [content[at : at + width] for at in range(begin, len(content), length)]


def _other_values(block: bytes) -> Values:
    """The values of a block without its last unique key and last keys, which may be empty."""
    code, unique_key, keys, is_inner_batch = 0, None, None, False
    for name, value in _find_values(block):
        if name == TAGS.encode():
            code = tags_code(value.decode("utf-8", "replace"))
        elif name == INNER_NUM.encode():
            is_inner_batch = True
        elif name == UNIQ_KEY.encode():
            unique_key = value
        else:
            keys = value
    values = code, unique_key, keys, is_inner_batch
    if len(block) <= _REMEMBERED_LENGTH:
        if len(_remembered) >= _REMEMBERED_BLOCKS:
            _remembered.clear()
        _remembered[block] = values
    return values


def index_keys(record: Record) -> tuple[bytes | None, bytes | None]:
    """The unique key and the space-separated keys that a record is indexed under."""
    return put_values(record.properties_block)[1:3]


def further_positions(properties_block: bytes | memoryview, queue_id: int) -> Iterator[QueuePosition]:
    """The positions of a message in its multi-dispatch queues."""
    names = find_property(properties_block, INNER_MULTI_DISPATCH)
    offsets = find_property(properties_block, INNER_MULTI_QUEUE_OFFSET)
    if not names or not offsets:
        return
    for name, text in zip(names.split(","), offsets.split(","), strict=False):
        offset = natural_long(text)
        if offset is not None and not is_kept_out(name):
            yield QueuePosition(name, 0 if name.startswith(LIGHT_QUEUE_PREFIX) else queue_id, offset)


def is_in_queue(record: Record, position: QueuePosition) -> bool:
    """Whether a message is at this position of a queue."""
    if position == (record.topic, record.queue_id, record.queue_offset):
        return True
    return position in further_positions(record.properties_block, record.queue_id)


def is_kept_out(topic: str) -> bool:
    """Whether a topic takes no part in multi-dispatch."""
    return topic.startswith(_KEPT_OUT)
