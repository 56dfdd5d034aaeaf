"""Properties of messages that mean something to a broker, with values at their limits."""

from __future__ import annotations

import random
from typing import Final

from cometmq.model import message_properties as names
from tests.fuzz.odd_values import NAMES, NUMBERS

NUMERIC: Final = [
    names.DELAY, names.TIMER_DELAY_SEC, names.TIMER_DELAY_MS, names.TIMER_DELIVER_MS, names.TIMER_OUT_MS,
    names.TIMER_ENQUEUE_MS, names.TIMER_DEQUEUE_MS, names.TIMER_ROLL_TIMES, names.TIMER_DELAY_LEVEL,
    names.CHECK_IMMUNITY_TIME_IN_SECONDS, names.TRANSACTION_CHECK_TIMES, names.TRAN_PREPARED_QUEUE_OFFSET,
    names.REAL_QUEUE_ID, names.INNER_NUM, "INNER_BASE", names.INNER_MULTI_QUEUE_OFFSET,
    names.RECONSUME_TIME,
    names.MAX_RECONSUME_TIMES, names.POP_CK_OFFSET, names.FIRST_POP_TIME, names.TTL, names.BORN_TIMESTAMP,
    names.ARRIVE_TIME, names.PUSH_REPLY_TIME, "CK_NEXT", names.CRC32,
]  # fmt: skip
TEXTS: Final = [
    names.KEYS, names.TAGS, names.WAIT, names.UNIQ_KEY, names.SHARDING_KEY, names.INNER_MULTI_DISPATCH,
    names.TRAN_MSG, names.PGROUP, names.TRANSACTION_ID, names.CORRELATION_ID, names.REPLY_TO_CLIENT,
    names.MSG_TYPE,
    names.CLUSTER, names.REAL_TOPIC, names.TIMER_DEL_UNIQKEY, names.POP_CK, names.RETRY_TOPIC,
    names.ORIGIN_MESSAGE_ID, names.DLQ_ORIGIN_TOPIC, names.ONCE, names.DUP_INFO, names.BORN_HOST,
    names.MSG_REGION,
    names.TRACE_ON, names.INSTANCE_ID, names.BUYER_ID, names.EXTEND_UNIQ_INFO, "REDIRECT",
]  # fmt: skip
KINDS: Final = [
    "WAIT\x01true\x02", "DELAY\x011\x02", "TIMER_DELAY_MS\x01300\x02", "TIMER_DELAY_SEC\x011\x02",
    "TRAN_MSG\x01true\x02PGROUP\x01fuzz-shop\x02",
    "REPLY_TO_CLIENT\x01fuzz-client\x02CORRELATION_ID\x01c\x02", "a\x017\x02",
]  # fmt: skip
"""What makes a message a plain one, a delayed one, a timed one, a half, a reply."""
_LONGEST: Final = 30_000


def odd_properties(choice: random.Random) -> str:
    """A few properties as text, most of them with a meaning, some with an odd value or form."""
    if choice.random() < 0.5:
        key = f"{choice.randrange(2**64):032X}"
        return f"TAGS\x01TagA\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01{key}\x02{choice.choice(KINDS)}"
    if choice.random() < 0.1:
        return choice.choice(NAMES)
    pairs = [odd_pair(choice) for _ in range(choice.randrange(1, 5))]
    return "".join(f"{name}\x01{value}\x02" for name, value in pairs)


def odd_pair(choice: random.Random) -> tuple[str, str]:
    if choice.random() < 0.6:
        return choice.choice(NUMERIC), choice.choice(NUMBERS)
    return choice.choice(TEXTS), choice.choice(NAMES)


def odd_block(choice: random.Random, **usual: str) -> bytes:
    """The properties of a record in the log: the usual ones, and one or two that are odd, in their place."""
    pairs = dict(usual)
    for _ in range(choice.choice((0, 1, 1, 2))):
        name, value = odd_pair(choice)
        if choice.random() < 0.6 and usual:
            name = choice.choice(list(usual))
            value = choice.choice(NUMBERS if name in NUMERIC else NAMES)
        if choice.random() < 0.1:
            pairs.pop(name, None)
        elif name != names.CRC32:  # only the store writes it; a wrong one is damage that `verify` finds
            pairs[name] = value
    text = "".join(f"{name}\x01{value}\x02" for name, value in pairs.items())
    return text.encode(errors="replace")[:_LONGEST]
