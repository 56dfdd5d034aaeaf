"""In-flight pops: messages that a group was given and has not acknowledged yet.

Rules kept here: nothing is counted unless the settings ask for a limit (`enablePopMessageThreshold`). A count
is an estimate: it begins anew with the broker, and never falls below nothing.
"""

from __future__ import annotations

from cometmq.broker.settings import Settings
from cometmq.ports.clock import Clock

Key = tuple[str, str, int]
"""Topic, group and queue id."""


class InFlight:
    """Counts of messages that are out; belongs to the event loop."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._counts: dict[Key, int] = {}
        self._started_ms = clock.now_ms()

    def is_full(self, topic: str, group: str, queue_id: int) -> bool:
        """Whether a group gets no more from a queue."""
        config = self._settings.broker
        return (
            config.enable_pop_message_threshold
            and self._counts.get((topic, group, queue_id), 0) > config.pop_inflight_message_threshold
        )

    def add(self, topic: str, group: str, queue_id: int, count: int) -> None:
        """Messages are handed out."""
        if self._settings.broker.enable_pop_message_threshold:
            key = (topic, group, queue_id)
            self._counts[key] = self._counts.get(key, 0) + count

    def remove(self, topic: str, group: str, queue_id: int, count: int, pop_time_ms: int) -> None:
        """Messages are acknowledged or brought back."""
        if not self._counts or pop_time_ms < self._started_ms:
            return
        key = (topic, group, queue_id)
        left = self._counts.get(key, 0) - count
        if left > 0:
            self._counts[key] = left
        else:
            self._counts.pop(key, None)

    def clear(self, topic: str, group: str, queue_id: int) -> None:
        """Nothing is out any more."""
        if self._counts:
            self._counts.pop((topic, group, queue_id), None)
