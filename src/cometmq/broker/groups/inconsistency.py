"""Consumers of one group whose subscriptions differ: found at once, and said so that a person can mend it.

The members of a group share the queues of all its topics, whatever each of them subscribes to. A queue of a
topic that its owner does not subscribe to is read by nobody, and a message whose tag only another member
wants is passed over, for ever. So a group in which subscriptions differ loses messages from its view.

Rules kept here:
- A client is compared with the others of its group, never with what it said before itself.
- The sentence names both clients and the first topic in which they differ.
"""

from __future__ import annotations

from typing import Final

from cometmq.broker.groups.subscriptions import Interest

_SHOWN: Final = 500
"""So many characters of an expression are shown."""


class Interests:
    """What each client of one group reads."""

    __slots__ = ("_clients", "_kinds")

    def __init__(self) -> None:
        self._clients: dict[str, Interest] = {}
        self._kinds: dict[Interest, dict[str, None]] = {}
        """The clients that read the same; more than one kind is one too many."""

    def set(self, client_id: str, interest: Interest) -> bool:
        """Note what a client reads; the answer is whether that is anything new."""
        if self._clients.get(client_id) == interest:
            return False
        self.drop(client_id)
        self._clients[client_id] = interest
        self._kinds.setdefault(interest, {})[client_id] = None
        return True

    def drop(self, client_id: str) -> None:
        """Forget a client."""
        interest = self._clients.pop(client_id, None)
        if interest is not None:
            clients = self._kinds[interest]
            del clients[client_id]
            if not clients:
                del self._kinds[interest]

    def against(self, client_id: str, interest: Interest) -> str | None:
        """How a client that reads this differs from the first other client that reads something else."""
        for other, clients in self._kinds.items():
            if other != interest:
                for other_id in clients:
                    if other_id != client_id:
                        return f"client {client_id} {_difference(interest, other, other_id)}"
        return None

    @property
    def difference(self) -> str | None:
        """How two of the clients differ; None if all read the same."""
        if len(self._kinds) < 2:
            return None
        first, second, *_ = self._kinds
        return f"client {next(iter(self._kinds[first]))} " + _difference(
            first, second, next(iter(self._kinds[second]))
        )


def _difference(mine: Interest, theirs: Interest, their_id: str) -> str:
    own = {topic: (kind, expression) for topic, kind, expression in mine}
    other = {topic: (kind, expression) for topic, kind, expression in theirs}
    for topic in sorted(own.keys() | other.keys()):
        if own.get(topic) != other.get(topic):
            return f"{_says(topic, own.get(topic))}, and client {their_id} {_says(topic, other.get(topic))}"
    return f"and client {their_id} subscribe to the same"


def _says(topic: str, subscription: tuple[str, str] | None) -> str:
    if subscription is None:
        return f"does not subscribe to {topic}"
    kind, expression = subscription
    return f"subscribes to {topic} with {expression[:_SHOWN]!r} ({kind})"
