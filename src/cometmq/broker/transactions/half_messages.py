"""Half messages: what waits in the half topic while a transaction is open, and what becomes of it.

Rules kept here:
- A half message is an ordinary message of the half topic, which nobody subscribes to. Its properties say
  where it belongs, and stay as they are when it gets there.
- A transaction cannot be combined with a delay: the message would be delayed as a half message, and lost.
- A half message that is checked is put once more, with its number of checks, so that the offset of the half
  topic can move on; the newest copy is the one that counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cometmq.broker.config import BrokerConfig
from cometmq.broker.real_targets import Target, read_target, restored
from cometmq.broker.send.checks import SendRefused
from cometmq.broker.send.properties import TIMER_PROPERTIES, stored_block
from cometmq.model.java_numbers import natural_int, natural_long
from cometmq.model.message_properties import (
    CHECK_IMMUNITY_TIME_IN_SECONDS,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TRANSACTION_CHECK_TIMES,
    TRANSACTION_ID,
    UNIQ_KEY,
)
from cometmq.model.names import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC
from cometmq.model.sysflag import TransactionType, with_transaction_type
from cometmq.wire.codes import ResponseCode
from cometmq.wire.record.codec import Record

HALF_QUEUE: Final = 0
"""The queue of the half topic that new half messages go to."""


def prepare(config: BrokerConfig, record: Record, properties: dict[str, str], delay_level: int) -> None:
    """Turn a message into a half message; raises `SendRefused`."""
    if config.reject_transaction_message:
        remark = f"the broker[{config.broker_ip1}] sending transaction message is forbidden"
        raise SendRefused(ResponseCode.NO_PERMISSION, remark)
    if delay_level > 0 or any(name in properties for name in TIMER_PROPERTIES):
        remark = "a message of a transaction cannot be delayed; send it without a delay or a delivery time"
        raise SendRefused(ResponseCode.MESSAGE_ILLEGAL, remark)
    if properties.get(UNIQ_KEY):
        properties[TRANSACTION_ID] = properties[UNIQ_KEY]
    properties[REAL_TOPIC] = record.topic
    properties[REAL_QUEUE_ID] = str(record.queue_id)
    record.topic, record.queue_id = TRANS_HALF_TOPIC, HALF_QUEUE
    record.sys_flag = with_transaction_type(record.sys_flag, TransactionType.NONE)
    record.properties_block = stored_block(properties)


def target_of(properties: Mapping[str, str]) -> Target | None:
    """Topic and queue that a half message belongs to; None if it does not say."""
    return read_target(properties.get(REAL_TOPIC), properties.get(REAL_QUEUE_ID))


def renewed(half: Record, properties: Mapping[str, str]) -> Record:
    """A half message once more, with other properties."""
    return restored(half, TRANS_HALF_TOPIC, half.queue_id, stored_block(properties))


def discarded(half: Record) -> Record:
    """The message that stands for a transaction that nobody could say the end of."""
    return restored(half, TRANS_CHECK_MAX_TIME_TOPIC, 0, bytes(half.properties_block))


def checks_of(properties: Mapping[str, str]) -> int:
    """How often a half message was checked."""
    return natural_int(properties.get(TRANSACTION_CHECK_TIMES)) or 0


def immunity_ms(properties: Mapping[str, str]) -> int | None:
    """How long a half message asks not to be checked; None if it does not say."""
    return read_immunity_ms(properties.get(CHECK_IMMUNITY_TIME_IN_SECONDS))


def read_immunity_ms(text: str | None) -> int | None:
    """`CHECK_IMMUNITY_TIME_IN_SECONDS` in milliseconds; None if it is no number."""
    asked_s = natural_long(text)
    return None if asked_s is None else asked_s * 1000
