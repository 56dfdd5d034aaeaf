"""Answers to route look-ups, encoded once a version.

Rules kept here: an answer is encoded when it is first asked for in one of its two shapes and handed out as
the same bytes until something that it shows changes. Only topics that exist are kept.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from cometmq.model.route import TopicRoute
from cometmq.remoting.handler import Answer
from cometmq.wire.bodies.route import encode_route

FindRoute = Callable[[str], TopicRoute | None]


class _Encoded(msgspec.Struct):
    standard: Answer | None = None
    legacy: Answer | None = None


class RouteAnswers:
    """The cache of encoded routes; hears from the tables what has changed."""

    def __init__(self) -> None:
        self._by_topic: dict[str, _Encoded] = {}

    def __len__(self) -> int:
        """How many topics are kept."""
        return len(self._by_topic)

    def topic_changed(self, topic: str) -> None:
        self._by_topic.pop(topic, None)

    def brokers_changed(self) -> None:
        self._by_topic.clear()

    everything_changed = brokers_changed

    def get(self, topic: str, standard: bool, find: FindRoute) -> Answer | None:
        """The answer for a topic, or None if there is no route."""
        encoded = self._by_topic.get(topic)
        if encoded is not None:
            answer = encoded.standard if standard else encoded.legacy
            if answer is not None:
                return answer
        route = find(topic)
        if route is None:
            return None
        answer = Answer(body=encode_route(route, standard=standard))
        if encoded is None:
            encoded = self._by_topic[topic] = _Encoded()
        if standard:
            encoded.standard = answer
        else:
            encoded.legacy = answer
        return answer
