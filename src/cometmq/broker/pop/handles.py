"""Names that popping uses: retry topics of both versions, marks, and the handles of messages.

Rules kept here:
- Version 1 of a retry topic is `%RETRY%<group>_<topic>`, version 2 `%RETRY%<group>+<topic>`; only the second
  can be taken apart without knowing the group.
- A mark says which one a message came from: 0 the topic itself, 1 and 2 the versions of its retry topic.
- A handle is what a consumer acknowledges with: the checkpoint that stands for its message, and the message.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from cometmq.broker.config import BrokerConfig
from cometmq.model.errors import CometError
from cometmq.model.java_numbers import LARGEST_LONG, java_long
from cometmq.model.names import RETRY_PREFIX
from cometmq.wire.codes import ResponseCode

ORDER_QUEUE: Final = 999
"""In place of a revive queue: the message was popped in order, and has no checkpoint."""

NORMAL: Final = "0"
RETRY_V1: Final = "1"
RETRY_V2: Final = "2"
_HANDLE_PARTS: Final = 6


class PopRefused(CometError):  # noqa: N818 - an answer, not a defect
    """A request of the pop family that is answered with a code and a sentence."""

    def __init__(self, code: ResponseCode, message: str) -> None:
        super().__init__(message, code=code)


def retry_topic_v1(topic: str, group: str) -> str:
    return f"{RETRY_PREFIX}{group}_{topic}"


def retry_topic_v2(topic: str, group: str) -> str:
    return f"{RETRY_PREFIX}{group}+{topic}"


def retry_topic_of(topic: str, group: str, config: BrokerConfig) -> str:
    """The topic of messages that were popped from this one and not acknowledged."""
    if topic.startswith(RETRY_PREFIX):
        return topic
    return retry_topic_v2(topic, group) if config.enable_retry_topic_v2 else retry_topic_v1(topic, group)


def mark_of(topic: str) -> str:
    """The mark of messages that are in this topic."""
    if not topic.startswith(RETRY_PREFIX):
        return NORMAL
    return RETRY_V2 if "+" in topic else RETRY_V1


def marked_topic(topic: str, group: str, mark: str) -> str:
    """The topic that a message is in, by what its consumer knows."""
    if mark == NORMAL:
        return topic
    if mark == RETRY_V1:
        return retry_topic_v1(topic, group)
    if mark == RETRY_V2:
        return retry_topic_v2(topic, group)
    raise PopRefused(ResponseCode.MESSAGE_ILLEGAL, f"the retry mark {mark!r} is none of 0, 1 and 2")


def normal_topic(topic: str, group: str) -> str:
    """The topic that a group subscribes to, by the one that a message is in."""
    if not topic.startswith(RETRY_PREFIX):
        return topic
    return topic[len(RETRY_PREFIX) + len(group) + 1 :]


class Handle(NamedTuple):
    """The receipt handle that a consumer acknowledges with."""

    start_offset: int
    pop_time_ms: int
    invisible_ms: int
    revive_queue: int
    mark: str
    broker_name: str

    def format(self, queue_id: int, offset: int) -> str:
        """The handle of a message as its consumer gets it."""
        return " ".join(map(str, (*self, queue_id, offset)))


def read_handle(text: str) -> Handle:
    """Parse a handle; raises `PopRefused`. The fields after the broker name are in the request, too."""
    parts = text.split(" ")
    if len(parts) < _HANDLE_PARTS:
        raise _no_handle(text)
    start, pop_time, invisible, revive_queue = map(java_long, parts[:4])
    mark, broker_name = parts[4], parts[5]
    if (
        start is None
        or pop_time is None
        or invisible is None
        or revive_queue is None
        or abs(pop_time + invisible) > LARGEST_LONG
    ):
        raise _no_handle(text)
    return Handle(start, pop_time, invisible, revive_queue, mark, broker_name)


def _no_handle(text: str) -> PopRefused:
    return PopRefused(
        ResponseCode.MESSAGE_ILLEGAL,
        f"{text[:100]!r} is no handle of a message; use the one that it was popped with",
    )
