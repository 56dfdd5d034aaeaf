"""The names of message properties, and which of them an application may set itself.

Rules kept here:
- The names are RocketMQ's own, byte for byte; they stand on the wire and on disk.
- Only the system writes the `RESERVED` names; `Message` has fields for those that a user decides about.
- A property's name and value are never blank, and contain neither of the two separator characters.
"""

from __future__ import annotations

from typing import Final

from cometmq.model.errors import MessageError

NAME_VALUE_SEPARATOR: Final = "\x01"
PROPERTY_SEPARATOR: Final = "\x02"
KEY_SEPARATOR: Final = " "

# Set by the user or the producer.
KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
WAIT: Final = "WAIT"
DELAY: Final = "DELAY"
BUYER_ID: Final = "BUYER_ID"
UNIQ_KEY: Final = "UNIQ_KEY"
INSTANCE_ID: Final = "INSTANCE_ID"
SHARDING_KEY: Final = "__SHARDINGKEY"
TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
CHECK_IMMUNITY_TIME_IN_SECONDS: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
TRACE_CONTEXT: Final = "TRACE_CONTEXT"
INNER_MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"

# Transactions.
TRAN_MSG: Final = "TRAN_MSG"
PGROUP: Final = "PGROUP"
TRANSACTION_ID: Final = "__transactionId__"
TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
TRAN_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"

# Request and reply.
CORRELATION_ID: Final = "CORRELATION_ID"
REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
TTL: Final = "TTL"
MSG_TYPE: Final = "MSG_TYPE"
CLUSTER: Final = "CLUSTER"
ARRIVE_TIME: Final = "ARRIVE_TIME"
PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"

# Set by the broker.
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QUEUE_ID: Final = "REAL_QID"
MSG_REGION: Final = "MSG_REGION"
TRACE_ON: Final = "TRACE_ON"
INNER_NUM: Final = "INNER_NUM"
INNER_MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"
TIMER_ENQUEUE_MS: Final = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUE_MS: Final = "TIMER_DEQUEUE_MS"
TIMER_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
TIMER_OUT_MS: Final = "TIMER_OUT_MS"
TIMER_DEL_UNIQKEY: Final = "TIMER_DEL_UNIQKEY"
TIMER_DELAY_LEVEL: Final = "TIMER_DELAY_LEVEL"
CRC32: Final = "__CRC32#"
BORN_HOST: Final = "__BORNHOST"
BORN_TIMESTAMP: Final = "BORN_TIMESTAMP"
DUP_INFO: Final = "DUP_INFO"
POP_CK: Final = "POP_CK"
POP_CK_OFFSET: Final = "POP_CK_OFFSET"
FIRST_POP_TIME: Final = "1ST_POP_TIME"
ONCE: Final = "__ONCE"
"""CometMQ's own: the position of a message in the exactly-once writes of a query."""

# Retry and dead letters.
RETRY_TOPIC: Final = "RETRY_TOPIC"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
RECONSUME_TIME: Final = "RECONSUME_TIME"
MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"

# Put there by a consumer in memory; never stored.
MIN_OFFSET: Final = "MIN_OFFSET"
MAX_OFFSET: Final = "MAX_OFFSET"
CONSUME_START_TIME: Final = "CONSUME_START_TIME"

# Historic.
TRANSFER_FLAG: Final = "TRANSFER_FLAG"
CORRECTION_FLAG: Final = "CORRECTION_FLAG"
MQ2_FLAG: Final = "MQ2_FLAG"
EXTEND_UNIQ_INFO: Final = "EXTEND_UNIQ_INFO"

# fmt: off
RESERVED: Final = frozenset(
    {
        KEYS, TAGS, WAIT, DELAY, BUYER_ID, UNIQ_KEY, INSTANCE_ID,
        TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS,
        TRAN_MSG, PGROUP, TRAN_PREPARED_QUEUE_OFFSET,
        CORRELATION_ID, REPLY_TO_CLIENT, TTL, MSG_TYPE, CLUSTER, ARRIVE_TIME, PUSH_REPLY_TIME,
        REAL_TOPIC, REAL_QUEUE_ID, MSG_REGION, TRACE_ON, INNER_MULTI_QUEUE_OFFSET,
        TIMER_ENQUEUE_MS, TIMER_DEQUEUE_MS, TIMER_ROLL_TIMES, TIMER_OUT_MS,
        TIMER_DEL_UNIQKEY, TIMER_DELAY_LEVEL,
        CRC32, BORN_HOST, BORN_TIMESTAMP, DUP_INFO, POP_CK, POP_CK_OFFSET, FIRST_POP_TIME, ONCE,
        RETRY_TOPIC, ORIGIN_MESSAGE_ID, RECONSUME_TIME, MAX_RECONSUME_TIMES,
        DLQ_ORIGIN_TOPIC, DLQ_ORIGIN_MESSAGE_ID,
        MIN_OFFSET, MAX_OFFSET, CONSUME_START_TIME,
        TRANSFER_FLAG, CORRECTION_FLAG, MQ2_FLAG, EXTEND_UNIQ_INFO,
    }
)
"""Names that `check_user_property` refuses."""
# fmt: on

# What Java's `trim` removes, which is not what `str.strip()` does: the peers judge blankness by this set.
_JAVA_BLANKS: Final = "".join(map(chr, range(0x21)))


def is_blank(text: str) -> bool:
    """Whether the peers would call this text blank."""
    return not text.strip(_JAVA_BLANKS)


def check_text(what: str, text: str) -> None:
    """Refuse a text that can be neither name nor value of a property."""
    if not isinstance(text, str):
        raise MessageError(f"{what} must be a string, not {type(text).__name__}")
    if is_blank(text):
        raise MessageError(f"{what} must not be blank")
    if NAME_VALUE_SEPARATOR in text or PROPERTY_SEPARATOR in text:
        raise MessageError(f"{what} {text!r} contains a separator character (0x01 or 0x02); remove it")


def check_user_property(name: str, value: str) -> None:
    """Refuse a property that an application may not set."""
    check_text("a property name", name)
    if name in RESERVED:
        raise MessageError(f"property {name!r} is written by the system; choose another name")
    check_text(f"the value of property {name!r}", value)
