"""What follows from a record for the queues and the index: pure rules, shared by all who dispatch.

Rules kept here:
- Only messages of no transaction, and committed ones, are in a queue. Only rolled back ones are not in the
  index.
- A queue unit has the hash of the tags; in the topic of delayed messages it has the time of delivery.
- A message is indexed under its unique key, if it has one, then under each of its keys.
- A message may be in further queues, which its properties name together with its offsets there; never in one
  of a topic that only the system writes to.
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
"""What a level that has no delay of its own waits."""

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
"""So many messages for each byte that has to be looked at in all of them."""
_KEPT_OUT: Final = (RETRY_PREFIX, SYSTEM_PREFIX, TRANS_PREFIX, TRANS_CHECK_MAX_TIME_TOPIC, DELAY_TOPIC)


Values = tuple[int, bytes | None, bytes | None, bool]
"""The hash of the tags, or 0; unique key; keys; and whether the message says how many it stands for."""

Keyed = tuple[str, bytes | None, bytes | None, int, int]
"""Topic, unique key, keys, place in the log, and store time of a message."""

NO_VALUES: Final[Values] = (0, None, None, False)

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
        self, topic: str, code: int, properties_block: bytes | memoryview, store_time_ms: int
    ) -> int:
        """What the queue unit of a message says, whose tags have the hash `code`."""
        level = delay_level(topic, properties_block)
        return min(store_time_ms + self.delay_ms(level), LARGEST_LONG) if level else code


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
    return natural_int(find_property(properties_block, DELAY)) or 0


def unit_code(record: Record, levels: DelayLevels) -> int:
    """What the queue unit of a record says in the place of its tags."""
    block = record.properties_block
    return levels.unit_code(record.topic, put_values(block)[0], block, record.store_timestamp_ms)


def put_values(properties_block: bytes | memoryview) -> Values:
    """What a message is queued and indexed under.

    Looked for at once, and in the bytes, because every message is asked for it. Without unique key and keys
    the properties of many messages are the same, so what was found in them is remembered.
    """
    unique_key = keys = None
    block = b"\x02" + properties_block
    before, found, behind = block.rpartition(_UNIQ_KEY)
    if found:
        unique_key, _, behind = behind.partition(b"\x02")
        block = before + b"\x02" + behind
    before, found, behind = block.rpartition(_KEYS)
    if found:
        keys, _, behind = behind.partition(b"\x02")
        block = before + b"\x02" + behind
    others = _remembered.get(block)
    if others is None:
        others = _other_values(block)
    return others[0], unique_key or others[1], keys or others[2], others[3]


def unique_keys_of_all(blocks: Sequence[bytes | memoryview]) -> list[bytes] | None:
    """The unique keys of messages that differ in nothing else and have no other keys; None for others.

    Each byte beside the keys is looked at in all messages at once, which takes many messages to be quicker.
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
        return None  # a property inside a key, or an earlier one that counts because the last is empty
    for place in (*range(begin), *range(begin + width, length)):
        if content[place::length].count(first[place]) != count:
            return None
    return [content[place : place + width] for place in range(begin, len(content), length)]


def _other_values(block: bytes) -> Values:
    """What is left without the last unique key and the last keys, which may be empty."""
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
    """The unique key and the keys, with spaces between, that a record is indexed under."""
    return put_values(record.properties_block)[1:3]


def further_places(properties_block: bytes | memoryview, queue_id: int) -> Iterator[QueuePlace]:
    """The other queues that a message with this queue id is in, and with which offsets."""
    names = find_property(properties_block, INNER_MULTI_DISPATCH)
    offsets = find_property(properties_block, INNER_MULTI_QUEUE_OFFSET)
    if not names or not offsets:
        return
    for name, text in zip(names.split(","), offsets.split(","), strict=False):
        offset = natural_long(text)
        if offset is not None and not is_kept_out(name):
            yield QueuePlace(name, 0 if name.startswith(LIGHT_QUEUE_PREFIX) else queue_id, offset)


def is_kept_out(topic: str) -> bool:
    """Whether no message of another topic can be in a queue of this one, nor one of it in further queues."""
    return topic.startswith(_KEPT_OUT)
