"""Subscriptions: select messages of a topic by tags or by SQL92.

Rules kept here:
- `*` and an empty expression select everything; tags are separated by `||`, and blanks around them are
  ignored.
- An expression is SQL only as `Sql("a > 5")`. A text that was meant as one, or that has another separator, is
  refused with the right form: it would select nothing.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from cometmq.model.errors import ClientError
from cometmq.wire.bodies.heartbeat import ALL, SQL92, TAG, SubscriptionData
from cometmq.wire.java_hash import java_hash

_SEPARATOR: Final = "||"
_OTHER_SEPARATOR: Final = re.compile(r"[,;|&]+")
_CONDITION: Final = re.compile(r"[<>=]|\s(AND|OR|IN|BETWEEN|IS|LIKE)\s", re.IGNORECASE)


class Sql(msgspec.Struct, frozen=True):
    """A condition over message properties, in SQL92: `Sql("amount > 100 AND region = 'EU'")`."""

    expression: str


Expression = str | Sql
"""Which messages of a topic: tags (`"a || b"`), `"*"` for all, or `Sql(…)`."""


def subscription_of(topic: str, expression: Expression, version: int) -> SubscriptionData:
    """The subscription of a topic; `version` is its creation time in milliseconds."""
    if isinstance(expression, Sql):
        if not expression.expression.strip():
            raise ClientError(f"the SQL expression of the subscription to {topic} is empty")
        return SubscriptionData(topic, expression.expression, sub_version=version, expression_type=SQL92)
    if not isinstance(expression, str):
        what = "a function" if callable(expression) else f"of type {type(expression).__name__}"
        raise ClientError(
            f"the expression of the subscription to {topic} is {what}, not a text of tags or Sql(…); "
            "a listener is given as listener=…"
        )
    if not expression.strip() or expression.strip() == ALL:
        return SubscriptionData(topic, ALL, sub_version=version, expression_type=TAG)
    tags = tuple(dict.fromkeys(filter(None, (tag.strip() for tag in expression.split(_SEPARATOR)))))
    if not tags:
        raise ClientError(f"{expression!r} names no tag; write 'a || b', or '*' for everything")
    for tag in tags:
        if _CONDITION.search(tag):
            raise ClientError(f"{expression!r} looks like a condition; write Sql({expression!r}) for one")
        if wrong := _OTHER_SEPARATOR.search(tag):
            right = " || ".join(filter(None, (part.strip() for part in re.split(r"[,|&;]+", expression))))
            raise ClientError(
                f"{expression!r} does not select by several tags: {wrong[0]!r} divides none; write {right!r}"
            )
    codes = tuple(dict.fromkeys(map(java_hash, tags)))
    return SubscriptionData(topic, expression, tags, codes, version, TAG)


def is_tags(subscription: SubscriptionData) -> bool:
    """Whether the subscription is by tags, or to everything."""
    return subscription.expression_type == TAG
