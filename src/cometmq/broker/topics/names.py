"""Names of topics and groups: which are legal, and which have a meaning of their own.

Rules kept here: the checks come in RocketMQ's order and with its remarks; lengths are counted in characters.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Final

from cometmq.ports.names import is_file_name
from cometmq.store.dispatch_rules import DELAY_TOPIC

log = logging.getLogger("cometmq.broker")

DEFAULT_TOPIC: Final = "TBW102"
"""The topic whose settings new topics take."""
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
BENCHMARK_TOPIC: Final = "BenchmarkTest"
OFFSET_MOVED_EVENT: Final = "OFFSET_MOVED_EVENT"
TRANS_HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
TRANS_OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRANS_CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
REVIVE_PREFIX: Final = "rmq_sys_REVIVE_LOG_"
SYSTEM_PREFIX: Final = "rmq_sys_"
REPLY_POSTFIX: Final = "REPLY_TOPIC"

RETRY_PREFIX: Final = "%RETRY%"
DEAD_LETTER_PREFIX: Final = "%DLQ%"

MAX_TOPIC_LENGTH: Final = 127
MAX_RETRY_TOPIC_LENGTH: Final = 255
MAX_GROUP_LENGTH: Final = 120
MOST_NAMED: Final = 5

SYSTEM_TOPICS: Final = frozenset(
    {
        DEFAULT_TOPIC,
        DELAY_TOPIC,
        BENCHMARK_TOPIC,
        TRANS_HALF_TOPIC,
        TRACE_TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
        "CHECKPOINT_TOPIC",
    }
)
"""Those that every broker has; each broker adds some of its own."""

NOT_FOR_CLIENTS: Final = frozenset(
    {
        DELAY_TOPIC,
        TRANS_HALF_TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
    }
)
"""Topics that a client may not send to, beside those of the system prefix."""

SENT_BY_CLIENTS: Final = "rmq_sys_TRACE_DATA_"
"""Topics of the system prefix that clients do send to: traces, by region."""

REVIVE_GROUP: Final = "CID_RMQ_SYS_REVIVE_GROUP"
"""Its offsets in the revive topic are those of the last checkpoints that are done."""
TRANSACTION_GROUP: Final = "CID_RMQ_SYS_TRANS"
"""The group whose offsets say how far half messages and their ends are looked through."""
OWN_GROUPS: Final = frozenset({REVIVE_GROUP, TRANSACTION_GROUP})
"""Groups whose offsets are the progress of the broker itself."""

SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
SYSTEM_GROUPS: Final = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    TRANSACTION_GROUP,
)
"""Groups that every broker has from the start."""

_PATTERN: Final = "^[%|a-zA-Z0-9_-]+$"
_is_legal: Final = re.compile(r"[%|a-zA-Z0-9_-]*").fullmatch

FAQ: Final = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


def retry_topic(group: str) -> str:
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    return DEAD_LETTER_PREFIX + group


def refuse_topic(topic: str) -> str | None:
    """Why this cannot be the name of a topic; None if it can."""
    if not topic.strip():
        return "The specified topic is blank."
    if not _is_legal(topic):
        return f"The specified topic: {topic}, contains illegal characters, allowing only {_PATTERN}"
    if topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)):
        if len(topic) > MAX_RETRY_TOPIC_LENGTH:
            return (
                f"The specified topic is DLQ or Retry topic: {topic}, "
                f"and it's longer than topic max length: {MAX_RETRY_TOPIC_LENGTH}"
            )
    elif len(topic) > MAX_TOPIC_LENGTH:
        return f"The specified topic: {topic}, is longer than topic max length: {MAX_TOPIC_LENGTH}"
    return None


def refuse_group(group: str) -> str | None:
    """Why this cannot be the name of a group; None if it can."""
    if not group.strip():
        return "The specified group is blank."
    if not _is_legal(group):
        return f"The specified group: {group}, contains illegal characters, allowing only {_PATTERN}"
    if len(group) > MAX_GROUP_LENGTH:
        return f"The specified group: {group}, is longer than group max length: {MAX_GROUP_LENGTH}"
    return None


def legal_names(names: Mapping[str, str], what: str) -> list[str]:
    """The keys of a saved table that can be names: what somebody wrote into the file otherwise is left out.

    `names` has, by key, the name that the entry has itself. Names of retry topics may have more letters than
    those that a request can make, so only what no file could be called is left out.
    """
    legal = [key for key, name in names.items() if key == name and is_file_name(key)]
    if len(legal) < len(names):
        wrong = sorted(names.keys() - set(legal))
        shown = ", ".join(f"{name[:MAX_TOPIC_LENGTH]!r}" for name in wrong[:MOST_NAMED])
        log.warning("%d %s of the saved table cannot be names, and are left out: %s", len(wrong), what, shown)
    return legal


def is_for_clients(topic: str) -> bool:
    """Whether clients may send to a topic; the others are written by the broker alone."""
    if topic.startswith(SYSTEM_PREFIX):
        return topic.startswith(SENT_BY_CLIENTS)
    return topic not in NOT_FOR_CLIENTS


def is_system_group(group: str) -> bool:
    return group in SYSTEM_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)
