"""Names of topics and groups: which are allowed, and how a namespace is put before them.

Rules kept here:
- Letters, digits, `%`, `|`, `_` and `-`; at most 127 characters for a topic and 120 for a group.
- Names of the system are never wrapped in a namespace, and no name is wrapped twice. The prefixes of retry
  and dead-letter topics stay in front: `%RETRY%ns%group`.
"""

from __future__ import annotations

import re
from typing import Final

from cometmq.model.errors import ClientError, MessageError
from cometmq.wire.codes import ResponseCode

MAX_TOPIC_LENGTH: Final = 127
MAX_GROUP_LENGTH: Final = 120
RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"
TEMPLATE_TOPIC: Final = "TBW102"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
REPLY_SUFFIX: Final = "_REPLY_TOPIC"
INNER_PRODUCER_GROUP: Final = "CLIENT_INNER_PRODUCER"

_ALLOWED: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
_SYSTEM_PREFIX: Final = "rmq_sys_"
_SYSTEM_TOPICS: Final = frozenset(
    {
        TEMPLATE_TOPIC,
        "SCHEDULE_TOPIC_XXXX",
        "BenchmarkTest",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        TRACE_TOPIC,
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "CHECKPOINT_TOPIC",
    }
)
_SYSTEM_GROUPS: Final = frozenset(
    {
        "DEFAULT_CONSUMER",
        "DEFAULT_PRODUCER",
        "TOOLS_CONSUMER",
        "FILTERSRV_CONSUMER",
        "__MONITOR_CONSUMER",
        INNER_PRODUCER_GROUP,
        "SELF_TEST_P_GROUP",
        "SELF_TEST_C_GROUP",
        "CID_ONSAPI_PULL",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
        "CID_SYS_RMQ_TRANS",
    }
)
_BROKER_GROUPS: Final = frozenset({"CID_ONS-HTTP-PROXY", "SCHEDULE_CONSUMER"})
NOT_FOR_SENDING: Final = frozenset(
    {
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    }
)
"""Topics that only brokers write to."""


def check_group(group: str) -> None:
    """Refuse a name that no broker takes as a group."""
    problem = _problem(group, MAX_GROUP_LENGTH)
    if problem:
        raise ClientError(f"group {group!r} {problem}")
    if group in ("DEFAULT_PRODUCER", "DEFAULT_CONSUMER"):
        raise ClientError(f"group {group!r} is reserved; choose a name of your own")


def check_topic(topic: str) -> None:
    """Refuse a name that no broker takes as a topic."""
    problem = _problem(topic, MAX_TOPIC_LENGTH)
    if problem:
        raise MessageError(f"topic {topic!r} {problem}", code=ResponseCode.MESSAGE_ILLEGAL)


def _problem(name: str, longest: int) -> str | None:
    if not name.strip():
        return "is blank"
    if len(name) > longest:
        return f"has {len(name)} characters; {longest} are possible"
    if not _ALLOWED.fullmatch(name):
        return "contains something else than letters, digits, '%', '|', '_' and '-'"
    return None


def is_system_topic(topic: str) -> bool:
    return topic in _SYSTEM_TOPICS or topic.startswith(_SYSTEM_PREFIX)


def is_system_group(group: str) -> bool:
    """Whether brokers have a group by themselves, and nobody made it."""
    return group in _BROKER_GROUPS or _is_never_wrapped(group)


def _is_never_wrapped(group: str) -> bool:
    return group in _SYSTEM_GROUPS or group.startswith("CID_RMQ_SYS_")


def retry_topic(group: str) -> str:
    """The topic of messages that the group gets again."""
    return RETRY_PREFIX + group


def reply_topic(cluster: str) -> str:
    """The topic through which replies go to whoever asked."""
    return cluster + REPLY_SUFFIX


def wrap_topic(namespace: str, topic: str) -> str:
    """The topic's name as brokers know it."""
    if not namespace or is_system_topic(topic) or topic.endswith(REPLY_SUFFIX):
        return topic
    return _wrap(namespace, topic)


def wrap_group(namespace: str, group: str) -> str:
    """The group's name as brokers know it."""
    if not namespace or _is_never_wrapped(group):
        return group
    return _wrap(namespace, group)


def unwrap(namespace: str, name: str) -> str:
    """The name as the application knows it."""
    if not namespace:
        return name
    prefix, plain = _split_prefix(name)
    return prefix + plain.removeprefix(f"{namespace}%")


def _wrap(namespace: str, name: str) -> str:
    prefix, plain = _split_prefix(name)
    return name if plain.startswith(f"{namespace}%") else f"{prefix}{namespace}%{plain}"


def _split_prefix(name: str) -> tuple[str, str]:
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if name.startswith(prefix):
            return prefix, name.removeprefix(prefix)
    return "", name
