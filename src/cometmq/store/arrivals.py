"""Who wants to hear of messages that consumers can see from now on.

Rules kept here: whoever waits for the messages of one topic says so, and costs those of the others nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Arrival = Callable[[str, int, int, int, int, bytes | memoryview], None]
"""Called with topic, queue id, queue offset, tags code, store time and properties of each new message."""


class Arrivals:
    """The listeners of a store; belongs to the thread that writes."""

    def __init__(self) -> None:
        self._to_all: list[Arrival] = []
        self._to_topic: dict[str, list[Arrival]] = {}

    def __bool__(self) -> bool:
        """Whether anybody listens."""
        return bool(self._to_all or self._to_topic)

    def append(self, arrived: Arrival, topic: str | None = None) -> None:
        """Tell somebody of every message, or of those of a topic."""
        listeners = self._to_all if topic is None else self._to_topic.setdefault(topic, [])
        listeners.append(arrived)

    def remove(self, arrived: Arrival, topic: str | None = None) -> None:
        """Tell no more."""
        if topic is None:
            self._to_all.remove(arrived)
            return
        self._to_topic[topic].remove(arrived)
        if not self._to_topic[topic]:
            del self._to_topic[topic]

    def of(self, topic: str) -> Sequence[Arrival]:
        """Everybody who wants to hear of the messages of a topic."""
        listeners = self._to_topic.get(topic)
        return self._to_all if listeners is None else [*self._to_all, *listeners]
