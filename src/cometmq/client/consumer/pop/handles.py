"""Pop handles (`POP_CK`): identify a popped message when it is acknowledged.

Rules kept here:
- A consumer makes the handles from the response to its pop. Only messages that are delivered again have
  theirs in a property.
- The mark of a handle names the message's topic: 0 the topic that was asked for, 1 and 2 its retry topic,
  `%RETRY%<group>_<topic>` and `%RETRY%<group>+<topic>`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeVar

import msgspec

from cometmq.model import message_properties as names
from cometmq.model.errors import HeaderError
from cometmq.model.java_numbers import long_of
from cometmq.model.message import StoredMessage
from cometmq.model.names import RETRY_PREFIX
from cometmq.wire.headers.pop import PopMessageResponse

NORMAL: Final = "0"
RETRY_V1: Final = "1"
RETRY_V2: Final = "2"

T = TypeVar("T")


class PopHandle(NamedTuple):
    """One message of one pop."""

    start_offset: int
    """The first offset of the pop in this queue; brokers find the pop by it."""
    pop_time_ms: int
    invisible_ms: int
    revive_queue: int
    mark: str
    broker_name: str
    queue_id: int
    offset: int

    def __str__(self) -> str:
        return " ".join(map(str, self))


def read_handle(text: str) -> PopHandle:
    """Parse the handle in the property of a message."""
    parts = text.split(" ")
    try:
        start, pop_time, invisible, revive_queue = map(long_of, parts[:4])
        return PopHandle(
            start, pop_time, invisible, revive_queue, parts[4], parts[5], long_of(parts[6]), long_of(parts[7])
        )
    except (ValueError, IndexError):
        raise HeaderError(f"{text[:100]!r} is no handle of a message") from None


def marked_topic(topic: str, group: str, mark: str) -> str:
    """The topic with this mark."""
    if mark == NORMAL:
        return topic
    return f"{RETRY_PREFIX}{group}{'_' if mark == RETRY_V1 else '+'}{topic}"


def _mark_of(topic: str) -> str:
    if not topic.startswith(RETRY_PREFIX):
        return NORMAL
    return RETRY_V2 if "+" in topic else RETRY_V1


def handles_of(
    messages: Sequence[StoredMessage], header: PopMessageResponse, broker_name: str
) -> list[PopHandle]:
    """The handle of each message of a response."""
    starts = _table(header.start_offset_info, long_of)
    listed = _table(header.msg_offset_info, _offsets)
    may_bring_handles = any(mark != NORMAL for mark, _ in starts)
    keys = [(_mark_of(message.topic), str(message.queue_id)) for message in messages]
    real = _real_offsets(messages, keys, listed)
    handles = []
    for message, key in zip(messages, keys, strict=True):
        brought = _brought_by(message) if may_bring_handles else None
        if brought is not None:
            handles.append(brought)
            continue
        offset = real[key, message.queue_offset]
        # Without a start offset in the response, the pop starts at its first message.
        start = starts.get(key)
        handles.append(
            PopHandle(
                starts.setdefault(key, offset) if start is None else start,
                header.pop_time,
                header.invisible_time,
                header.revive_qid,
                key[0],
                broker_name,
                message.queue_id,
                offset,
            )
        )
    return handles


def _brought_by(message: StoredMessage) -> PopHandle | None:
    """The handle in the property of a message; None if there is none that can be read."""
    text = message.properties.get(names.POP_CK)
    try:
        return None if text is None else read_handle(text)
    except HeaderError:  # the sender of the message can have written anything there
        return None


_QueueKey = tuple[str, str]
"""The mark of a topic, and a queue id."""


def _real_offsets(
    messages: Sequence[StoredMessage], keys: Sequence[_QueueKey], listed: dict[_QueueKey, list[int]]
) -> dict[tuple[_QueueKey, int], int]:
    """The offsets that the broker listed, by those in the records: n-th to n-th of each queue."""
    found: dict[_QueueKey, list[int]] = {}
    for message, key in zip(messages, keys, strict=True):
        found.setdefault(key, []).append(message.queue_offset)
    real: dict[tuple[_QueueKey, int], int] = {}
    for key, offsets in found.items():
        told = listed.get(key, [])
        told = told if len(told) >= len(offsets) else sorted(offsets)
        real |= {(key, offset): at for offset, at in zip(sorted(offsets), told, strict=False)}
    return real


def with_attempts(messages: Sequence[StoredMessage], header: PopMessageResponse) -> Sequence[StoredMessage]:
    """The messages of an ordered pop with the broker's delivery counts in `reconsume_times`."""
    counts = _table(header.order_count_info, long_of)
    if not counts:
        return messages
    return [_with_attempts(message, counts) for message in messages]


def _with_attempts(message: StoredMessage, counts: dict[_QueueKey, int]) -> StoredMessage:
    mark, queue_id = _mark_of(message.topic), message.queue_id
    count = counts.get((mark, f"qo{queue_id}%{message.queue_offset}"), counts.get((mark, str(queue_id)), 0))
    return msgspec.structs.replace(message, reconsume_times=count) if count > 0 else message


def _table(text: str | None, read: Callable[[str], T]) -> dict[_QueueKey, T]:
    """Parse a field of the form `mark queue value;mark queue value`."""
    table: dict[_QueueKey, T] = {}
    for item in filter(None, (text or "").split(";")):
        try:
            mark, queue, value = item.split(" ")
            table[mark, queue] = read(value)
        except ValueError:
            raise HeaderError(f"the answer to a pop says {item[:100]!r}, which is no place") from None
    return table


def _offsets(text: str) -> list[int]:
    return sorted(map(long_of, text.split(",")))
