"""RocketMQ's system topics, system groups and the prefixes of topic names.

Rules kept here: every room takes these names from here, in RocketMQ's spelling. `client/names.py` and
`broker/topics/names.py` check names.
"""

from __future__ import annotations

from typing import Final

MAX_TOPIC_LENGTH: Final = 127
MAX_RETRY_TOPIC_LENGTH: Final = 255
MAX_GROUP_LENGTH: Final = 120
"""Longest names, in characters."""

RETRY_PREFIX: Final = "%RETRY%"
"""`%RETRY%` and a group: messages that the group consumes again."""
DLQ_PREFIX: Final = "%DLQ%"
"""`%DLQ%` and a group: messages that the group gave up."""
LIGHT_QUEUE_PREFIX: Final = "%LMQ%"
SYSTEM_PREFIX: Final = "rmq_sys_"
REVIVE_PREFIX: Final = "rmq_sys_REVIVE_LOG_"
TRACE_DATA_PREFIX: Final = "rmq_sys_TRACE_DATA_"
"""Traces by region: the only topics with the system prefix that clients send to."""
SYNC_BROKER_MEMBER_PREFIX: Final = "rmq_sys_SYNC_BROKER_MEMBER_"
"""Topics by which brokers learn the members of their group; their routes are never rewritten."""
REPLY_SUFFIX: Final = "_REPLY_TOPIC"

ORDER_TOPIC_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"
"""The namespace of name servers with the queues of order topics: `broker-a:8;broker-b:8`."""

DEFAULT_TOPIC: Final = "TBW102"
"""The topic whose settings automatically created topics take."""
DELAY_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
BENCHMARK_TOPIC: Final = "BenchmarkTest"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
OFFSET_MOVED_EVENT: Final = "OFFSET_MOVED_EVENT"
CHECKPOINT_TOPIC: Final = "CHECKPOINT_TOPIC"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
TRANS_PREFIX: Final = "RMQ_SYS_TRANS_"
TRANS_HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
TRANS_OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRANS_CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
LOST_TOPIC: Final = "rmq_sys_lost_records"
"""CometMQ's own: fills gaps in a repaired commit log. Its records are dispatched nowhere."""

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
"""Topics without the system prefix that only brokers write to."""
SYSTEM_TOPICS: Final = NOT_FOR_CLIENTS | {DEFAULT_TOPIC, BENCHMARK_TOPIC, TRACE_TOPIC, CHECKPOINT_TOPIC}
"""System topics without the system prefix; each broker adds some of its own."""

SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
REVIVE_GROUP: Final = "CID_RMQ_SYS_REVIVE_GROUP"
"""Its offsets in the revive topic are those of the last checkpoints that are done."""
TRANSACTION_GROUP: Final = "CID_RMQ_SYS_TRANS"
"""Its offsets say how far the half topic and the op topic are checked."""
OWN_GROUPS: Final = frozenset({REVIVE_GROUP, TRANSACTION_GROUP})
"""Groups whose offsets are the broker's own progress."""
TOOLS_GROUP: Final = "TOOLS_CONSUMER"
DEFAULT_PRODUCER: Final = "DEFAULT_PRODUCER"
DEFAULT_CONSUMER: Final = "DEFAULT_CONSUMER"
INNER_PRODUCER_GROUP: Final = "CLIENT_INNER_PRODUCER"
HTTP_PROXY_GROUP: Final = "CID_ONS-HTTP-PROXY"
SCHEDULE_GROUP: Final = "SCHEDULE_CONSUMER"

SYSTEM_GROUPS: Final = (
    TOOLS_GROUP,
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    HTTP_PROXY_GROUP,
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    TRANSACTION_GROUP,
)
"""Groups that every broker has from the start."""
CLIENT_GROUPS: Final = (
    DEFAULT_CONSUMER,
    DEFAULT_PRODUCER,
    "__MONITOR_CONSUMER",
    INNER_PRODUCER_GROUP,
    "SELF_TEST_P_GROUP",
)
"""Groups of RocketMQ's own clients and tools, beside the system groups."""


def retry_topic(group: str) -> str:
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    return DLQ_PREFIX + group


def reply_topic(cluster: str) -> str:
    """Returns the topic through which replies go back to their requesters."""
    return cluster + REPLY_SUFFIX


def is_system_topic(topic: str) -> bool:
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_PREFIX)
