"""Subscriptions: how an expression becomes one, when two mean the same, and which members of a group differ.

The members of a group share the queues of all its topics, whatever each of them subscribes to. A queue of a
topic that its owner does not subscribe to is read by nobody, and a message whose tag only another member
wants is skipped for ever. So a group whose members subscribe differently misses messages.

Rules kept here:
- An expression over tags is `*`, nothing, or tags with `||` between them, each trimmed as Java does it. Any
  other expression must not be empty.
- Two subscriptions mean the same if they take the same messages, however they are spelled and whenever they
  were made. The retry topic of the group does not count.
- A client is compared with the others of its group, never with its own earlier subscriptions. The sentence
  names both clients and the first topic in which they differ.
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
"""Topic, expression type and expression of each subscription, sorted; equal if they mean the same."""
_SHOWN: Final = 500
"""The most characters of an expression that are shown."""


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
    """The interest of a client with these subscriptions."""
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


class Interests:
    """The interest of each client of one group."""

    __slots__ = ("_by_interest", "_clients")

    def __init__(self) -> None:
        self._clients: dict[str, Interest] = {}
        self._by_interest: dict[Interest, dict[str, None]] = {}
        """The clients that read the same; more than one entry is one too many."""

    def set(self, client_id: str, interest: Interest) -> bool:
        """Note the interest of a client; returns whether it is new."""
        if self._clients.get(client_id) == interest:
            return False
        self.drop(client_id)
        self._clients[client_id] = interest
        self._by_interest.setdefault(interest, {})[client_id] = None
        return True

    def drop(self, client_id: str) -> None:
        """Forget a client."""
        interest = self._clients.pop(client_id, None)
        if interest is not None:
            clients = self._by_interest[interest]
            del clients[client_id]
            if not clients:
                del self._by_interest[interest]

    def against(self, client_id: str, interest: Interest) -> str | None:
        """How a client that reads this differs from the first other client that reads something else."""
        for other, clients in self._by_interest.items():
            if other != interest:
                for other_id in clients:
                    if other_id != client_id:
                        return f"client {client_id} {_difference(interest, other, other_id)}"
        return None

    @property
    def difference(self) -> str | None:
        """How two of the clients differ; None if all read the same."""
        if len(self._by_interest) < 2:
            return None
        first, second, *_ = self._by_interest
        return f"client {next(iter(self._by_interest[first]))} " + _difference(
            first, second, next(iter(self._by_interest[second]))
        )


def _difference(mine: Interest, theirs: Interest, their_id: str) -> str:
    own = {topic: (expression_type, expression) for topic, expression_type, expression in mine}
    other = {topic: (expression_type, expression) for topic, expression_type, expression in theirs}
    for topic in sorted(own.keys() | other.keys()):
        if own.get(topic) != other.get(topic):
            return f"{_says(topic, own.get(topic))}, and client {their_id} {_says(topic, other.get(topic))}"
    return f"and client {their_id} subscribe to the same"


def _says(topic: str, subscription: tuple[str, str] | None) -> str:
    if subscription is None:
        return f"does not subscribe to {topic}"
    expression_type, expression = subscription
    return f"subscribes to {topic} with {expression[:_SHOWN]!r} ({expression_type})"
