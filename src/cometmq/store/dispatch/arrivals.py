"""Who wants to hear of messages that consumers can see from now on.

Rules kept here: whoever waits for the messages of one topic says so, and costs those of the others nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Arrival = Callable[[str, int, int, int, int, bytes | memoryview], None]
"""Called with topic, queue id, queue offset, tags code, store time and properties of each new message."""

Waiting = Callable[[str, int], bool]
"""Whether somebody waits for messages of this topic and queue id."""


class Arrivals:
    """The listeners of a store; belongs to the thread that writes."""

    def __init__(self) -> None:
        self._to_all: list[Arrival] = []
        self._to_topic: dict[str, list[Arrival]] = {}
        self._waiting: dict[Arrival, Waiting] = {}

    def __bool__(self) -> bool:
        """Whether anybody listens."""
        return bool(self._to_all or self._to_topic)

    def append(self, arrived: Arrival, topic: str | None = None, *, waiting: Waiting | None = None) -> None:
        """Tell somebody of every message, or of those of a topic; `waiting` says where that is of any use."""
        if waiting is not None:
            self._waiting[arrived] = waiting
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

    def awaited(self, topic: str, queue_id: int) -> bool:
        """Whether anybody waits for messages of a queue."""
        return any(
            arrived not in self._waiting or self._waiting[arrived](topic, queue_id)
            for arrived in self.of(topic)
        )

    def of(self, topic: str) -> Sequence[Arrival]:
        """Everybody who wants to hear of the messages of a topic."""
        listeners = self._to_topic.get(topic)
        return self._to_all if listeners is None else [*self._to_all, *listeners]
