"""One queue of a topic on one broker: the unit of assignment, order and offsets.

Rules kept here:
- Queues are values: equal when all three parts are, usable as keys, and sorted by topic, broker name, queue
  id. Every consumer of a group sorts the same way, so that all of them come to the same assignment.
"""

from __future__ import annotations

import msgspec


class MessageQueue(msgspec.Struct, frozen=True, order=True, gc=False):
    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}@{self.broker_name}:{self.queue_id}"
