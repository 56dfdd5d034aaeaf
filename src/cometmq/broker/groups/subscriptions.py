"""Subscriptions as a broker reads them: how an expression becomes one, and when two mean the same.

Rules kept here:
- An expression over tags is `*`, nothing, or tags with `||` between them, each trimmed as Java does it. Any
  other kind of expression has to say something.
- Two subscriptions mean the same if they take the same messages, however they are spelled and whenever they
  were made. The topic in which a group gets its own messages once more does not count.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from cometmq.model.errors import ProtocolError
from cometmq.model.names import RETRY_PREFIX
from cometmq.wire.bodies.heartbeat import ALL, TAG, SubscriptionData
from cometmq.wire.codes import ResponseCode
from cometmq.wire.java_hash import tags_code

_TAG_SEPARATOR: Final = "||"
_JAVA_BLANKS: Final = "".join(map(chr, range(0x21)))

Interest = tuple[tuple[str, str, str], ...]
"""What a client reads: topic, kind of expression and expression, sorted; equal if they mean the same."""


def is_tag_type(expression_type: str | None) -> bool:
    return not expression_type or expression_type == TAG


def make_subscription(topic: str, expression: str | None, expression_type: str | None) -> SubscriptionData:
    """The subscription that an expression stands for; raises `ProtocolError` if it stands for none."""
    if not is_tag_type(expression_type):
        if not expression:
            raise ProtocolError(
                f"an expression of type {expression_type} cannot be empty",
                code=ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            )
        return SubscriptionData(topic, expression, expression_type=expression_type or TAG)
    tags = tags_of(expression)
    if not tags and not is_everything(expression):
        raise ProtocolError(
            f"{expression!r} names no tag; write tags with || between them, or *",
            code=ResponseCode.SUBSCRIPTION_PARSE_FAILED,
        )
    text = expression if tags and expression else ALL
    return SubscriptionData(topic, text, tags, tuple(map(tags_code, tags)))


def is_everything(expression: str | None) -> bool:
    """Whether an expression over tags takes every message."""
    return not expression or expression == ALL


def tags_of(expression: str | None) -> tuple[str, ...]:
    """The tags in an expression; none if it takes every message."""
    if expression is None or is_everything(expression):
        return ()
    parts = (part.strip(_JAVA_BLANKS) for part in expression.split(_TAG_SEPARATOR))
    return tuple(dict.fromkeys(part for part in parts if part))


def interest_of(subscriptions: Iterable[SubscriptionData]) -> Interest:
    """What a client with these subscriptions reads."""
    return tuple(
        sorted(
            (each.topic, each.expression_type or TAG, _meaning(each))
            for each in subscriptions
            if not each.topic.startswith(RETRY_PREFIX)
        )
    )


def _meaning(subscription: SubscriptionData) -> str:
    if not is_tag_type(subscription.expression_type):
        return subscription.sub_string
    tags = subscription.tags_set or tags_of(subscription.sub_string)
    return f" {_TAG_SEPARATOR} ".join(sorted(tags)) or ALL
