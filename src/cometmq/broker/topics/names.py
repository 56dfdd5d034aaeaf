"""Names of topics and groups: which are legal, and which have a meaning of their own.

Rules kept here: the checks come in RocketMQ's order and with its remarks; lengths are counted in characters.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Final

from cometmq.model.names import (
    DLQ_PREFIX,
    MAX_GROUP_LENGTH,
    MAX_RETRY_TOPIC_LENGTH,
    MAX_TOPIC_LENGTH,
    NOT_FOR_CLIENTS,
    RETRY_PREFIX,
    SYSTEM_GROUP_PREFIX,
    SYSTEM_GROUPS,
    SYSTEM_PREFIX,
    TRACE_DATA_PREFIX,
)
from cometmq.ports.names import is_file_name

log = logging.getLogger("cometmq.broker")

MOST_NAMED: Final = 5

_PATTERN: Final = "^[%|a-zA-Z0-9_-]+$"
_is_legal: Final = re.compile(r"[%|a-zA-Z0-9_-]*").fullmatch

FAQ: Final = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


def refuse_topic(topic: str) -> str | None:
    """Why this cannot be the name of a topic; None if it can."""
    if not topic.strip():
        return "The specified topic is blank."
    if not _is_legal(topic):
        return f"The specified topic: {topic}, contains illegal characters, allowing only {_PATTERN}"
    if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
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
        return topic.startswith(TRACE_DATA_PREFIX)
    return topic not in NOT_FOR_CLIENTS


def is_system_group(group: str) -> bool:
    return group in SYSTEM_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)
