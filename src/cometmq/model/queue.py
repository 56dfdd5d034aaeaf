"""A message queue: the unit of assignment, order and offsets.

Rules kept here: queues are values, sorted by topic, broker name and queue id. Every consumer of a group sorts
this way, so that all of them compute the same assignment.
"""

from __future__ import annotations

import msgspec


class MessageQueue(msgspec.Struct, frozen=True, order=True, gc=False):
    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}@{self.broker_name}:{self.queue_id}"
