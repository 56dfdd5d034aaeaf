"""A message queue: the unit of assignment, order and offsets.

Rules kept here: queues are values, sorted by topic, broker name and queue id. Every consumer of a group sorts
this way, so that all of them compute the same assignment.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class MessageQueue(msgspec.Struct, frozen=True, order=True, gc=False):
    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}@{self.broker_name}:{self.queue_id}"


def lag_of(end: int, consumed: int) -> int:
    """The number of messages before the end of a queue that are not consumed.

    Everything that shows a lag computes it here: commands, metrics, and the Spark source. A group without an
    offset has no lag; who asks has to show that, and not a 0.
    """
    return max(end - consumed, 0)


def total_lag(lags: Iterable[int | None]) -> int | None:
    """The lag of several queues together, as far as it is known; None if it is known of none."""
    known = [lag for lag in lags if lag is not None]
    return sum(known) if known else None
