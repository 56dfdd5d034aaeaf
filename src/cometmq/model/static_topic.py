"""Static topics: logical queues that stay where they are counted while their data moves between brokers."""

from __future__ import annotations

import msgspec

from cometmq.model.topic import TopicQueueMappingInfo


class LogicQueueMappingItem(msgspec.Struct, frozen=True, rename="camel"):
    """One stretch of a logical queue: the physical queue it lies in, and where it begins and ends there."""

    gen: int = 0
    queue_id: int = 0
    bname: str | None = None
    logic_offset: int = 0
    start_offset: int = 0
    end_offset: int = -1
    time_of_start: int = -1
    time_of_end: int = -1


class TopicQueueMappingDetail(TopicQueueMappingInfo, frozen=True, rename="camel"):
    """All that one broker knows about the logical queues of a static topic."""

    hosted_queues: dict[int, list[LogicQueueMappingItem]] = msgspec.field(default_factory=dict)
