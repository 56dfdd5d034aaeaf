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
from cometmq.model.names import (
    CLIENT_GROUPS,
    DEFAULT_CONSUMER,
    DEFAULT_PRODUCER,
    DLQ_PREFIX,
    HTTP_PROXY_GROUP,
    MAX_GROUP_LENGTH,
    MAX_TOPIC_LENGTH,
    REPLY_SUFFIX,
    RETRY_PREFIX,
    SCHEDULE_GROUP,
    SYSTEM_GROUP_PREFIX,
    SYSTEM_GROUPS,
    is_system_topic,
)
from cometmq.wire.codes import ResponseCode

_ALLOWED: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
_NEVER_WRAPPED: Final = frozenset({*SYSTEM_GROUPS, *CLIENT_GROUPS}) - {HTTP_PROXY_GROUP}


def check_group(group: str) -> None:
    """Refuse a name that no broker takes as a group."""
    problem = _problem(group, MAX_GROUP_LENGTH)
    if problem:
        raise ClientError(f"group {group!r} {problem}")
    if group in (DEFAULT_PRODUCER, DEFAULT_CONSUMER):
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


def is_system_group(group: str) -> bool:
    """Whether brokers or RocketMQ's own clients have the group by themselves, and nobody made it."""
    return group in (HTTP_PROXY_GROUP, SCHEDULE_GROUP) or _is_never_wrapped(group)


def _is_never_wrapped(group: str) -> bool:
    return group in _NEVER_WRAPPED or group.startswith(SYSTEM_GROUP_PREFIX)


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
