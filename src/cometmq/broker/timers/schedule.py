"""Timed messages: the delivery time of a send, and the recall handle.

Rules kept here:
- A message is never delivered before its time, and at most one slot of the wheel after it: it is set for the
  slot that ends at its time, or for the one that its time lies in.
- What is due already is stored at once. A time further away than allowed is refused, and so is a cancellation
  that comes too late.
- A slot that is overfull takes no more: from its limit on fewer and fewer are accepted, from twice that none.
- A handle names topic, broker, slot and message; who has it can take the message back.
"""

from __future__ import annotations

import binascii
import random
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from cometmq.broker.send.checks import SendRefused
from cometmq.broker.send.properties import TIMER_PROPERTIES, stored_block
from cometmq.model.java_numbers import LARGEST_LONG, java_long
from cometmq.model.message_properties import (
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TIMER_DEL_UNIQKEY,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    UNIQ_KEY,
)
from cometmq.model.names import RETRY_PREFIX, TIMER_TOPIC
from cometmq.store.config import StoreConfig
from cometmq.wire.codes import ResponseCode
from cometmq.wire.record.codec import Record

_HANDLE_VERSION: Final = "v1"
_HANDLE_PARTS: Final = 5


class RecallHandle(NamedTuple):
    """The fields of a recall handle."""

    topic: str
    broker_name: str
    deliver_ms: int
    """A time within the slot of the message; -1 if the handle has none."""
    unique_key: str


def wants_timer(record: Record, properties: Mapping[str, str]) -> bool:
    """Whether a message asks for a delivery time; one that had its time before does not any more."""
    return (
        record.topic != TIMER_TOPIC
        and TIMER_OUT_MS not in properties
        and any(name in properties for name in TIMER_PROPERTIES)
    )


def set_timer(
    record: Record,
    properties: dict[str, str],
    config: StoreConfig,
    now_ms: int,
    count_at: Callable[[int], int],
) -> None:
    """Let a message wait in the timer topic until its time; raises `SendRefused`.

    `count_at` returns how many messages wait in a slot.
    """
    deliver_ms = _deliver_ms(properties, now_ms)
    if deliver_ms is None or deliver_ms - now_ms > config.timer_max_delay_sec * 1000:
        raise _illegal(config.timer_max_delay_sec)
    if deliver_ms <= now_ms:
        if TIMER_DEL_UNIQKEY in properties:
            raise _illegal(config.timer_max_delay_sec)
        return
    slot_ms = slot_before(deliver_ms, config.timer_slot_ms)
    if _is_overfull(count_at(slot_ms), config.timer_congest_num_each_slot):
        most = config.timer_congest_num_each_slot
        remark = (
            f"timer message is under flow control, max num limit is {2 * most} or the current value is "
            f"greater than {most} and less than {2 * most}, trigger random flow control"
        )
        raise SendRefused(ResponseCode.SYSTEM_ERROR, remark)
    properties[TIMER_OUT_MS] = str(slot_ms)
    properties[REAL_TOPIC] = record.topic
    properties[REAL_QUEUE_ID] = str(record.queue_id)
    record.topic = TIMER_TOPIC
    record.queue_id = 0
    record.properties_block = stored_block(properties)


def slot_before(deliver_ms: int, slot_ms: int) -> int:
    """The slot whose timers are delivered at this time or, if no slot ends then, right after it."""
    return (deliver_ms - 1) // slot_ms * slot_ms


def _deliver_ms(properties: Mapping[str, str], now_ms: int) -> int | None:
    """When a message is to be delivered; None if what it says is no time."""
    for name, start_ms, unit_ms in (
        (TIMER_DELAY_SEC, now_ms, 1000),
        (TIMER_DELAY_MS, now_ms, 1),
        (TIMER_DELIVER_MS, 0, 1),
    ):
        text = properties.get(name)
        if text is not None:
            number = java_long(text)
            deliver_ms = None if number is None else start_ms + number * unit_ms
            return deliver_ms if deliver_ms is not None and abs(deliver_ms) <= LARGEST_LONG else None
    return None


def _illegal(max_delay_s: int) -> SendRefused:
    remark = (
        "timer message illegal, the delay time should not be bigger than the max delay "
        f"{max_delay_s * 1000}ms; or if set del msg, the delay time should be bigger than the current time"
    )
    return SendRefused(ResponseCode.MESSAGE_ILLEGAL, remark)


def _is_overfull(count: int, most: int) -> bool:
    """Whether a slot takes no more timers; between the limit and twice that, chance decides."""
    return count > most and random.random() * most < count - most


# Taking back


def recall_handle(properties: Mapping[str, str], broker_name: str) -> str | None:
    """The handle of a message that was set; None if it was not, or cannot be taken back."""
    slot_ms, topic = java_long(properties.get(TIMER_OUT_MS)), properties.get(REAL_TOPIC)
    unique_key = properties.get(UNIQ_KEY)
    if slot_ms is None or topic is None or unique_key is None or topic.startswith(RETRY_PREFIX):
        return None
    deliver_ms = slot_ms + 1  # any time within the slot leads to it, but not the one that it begins with
    parts = (_HANDLE_VERSION, topic, broker_name, str(deliver_ms), unique_key)
    return urlsafe_b64encode(" ".join(parts).encode()).decode()


def read_handle(text: str) -> RecallHandle | None:
    """Parse a recall handle; None if it is none."""
    try:
        padded = text + "=" * (-len(text) % 4)
        parts = urlsafe_b64decode(padded.encode("ascii")).decode().split(" ")
    except (binascii.Error, UnicodeError, ValueError):
        return None
    if parts[0] != _HANDLE_VERSION or len(parts) < _HANDLE_PARTS:
        return None
    _, topic, broker_name, deliver_ms, unique_key = parts[:_HANDLE_PARTS]
    slot_ms = java_long(deliver_ms)
    return RecallHandle(topic, broker_name, -1 if slot_ms is None else slot_ms, unique_key)


def cancel_key(topic: str, unique_key: str) -> str:
    """The key by which a cancellation names its message."""
    return f"{topic}+{unique_key}"
