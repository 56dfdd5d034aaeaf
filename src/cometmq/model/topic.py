"""Topics: their configuration, their version, and who may do what with them."""

from __future__ import annotations

from typing import Final

import msgspec

PERM_PRIORITY: Final = 8
PERM_READ: Final = 4
PERM_WRITE: Final = 2
PERM_INHERIT: Final = 1
"""The bits of a topic's or broker's permission; 6 reads and writes, 7 may also serve as a template."""

MAX_QUEUES: Final = 65_536
"""The most read queues, and the most write queues, of a topic on a broker."""

TOPIC_UNIT: Final = 1
TOPIC_UNIT_SUB: Final = 2
"""The bits of a topic's system flag."""


class DataVersion(msgspec.Struct, frozen=True, rename="camel"):
    """The version of a broker's table; unchanged if all three fields are equal."""

    state_version: int = 0
    timestamp: int = 0
    counter: int = 0

    def after(self, now_ms: int, changes: int = 1) -> DataVersion:
        """The version after changes at this time."""
        return DataVersion(self.state_version, now_ms, self.counter + changes)


class TopicConfig(msgspec.Struct, frozen=True, rename="camel"):
    """How a topic is set up on one broker."""

    topic_name: str
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = PERM_READ | PERM_WRITE
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False
    attributes: dict[str, str] | None = None


class TopicQueueMappingInfo(msgspec.Struct, frozen=True, rename="camel"):
    """Where the logical queues of a static topic are, as one broker announces it."""

    topic: str
    bname: str
    total_queues: int = 0
    epoch: int = 0
    dirty: bool = False
    scope: str | None = None
    curr_id_map: dict[int, int] | None = None


class LogicQueueMappingItem(msgspec.Struct, frozen=True, rename="camel"):
    """A range of a logical queue: its physical queue, and where it begins and ends there."""

    gen: int = 0
    queue_id: int = 0
    bname: str | None = None
    logic_offset: int = 0
    start_offset: int = 0
    end_offset: int = -1
    time_of_start: int = -1
    time_of_end: int = -1


class TopicQueueMappingDetail(TopicQueueMappingInfo, frozen=True, rename="camel"):
    """The logical queues of a static topic, as one broker knows them."""

    hosted_queues: dict[int, list[LogicQueueMappingItem]] = msgspec.field(default_factory=dict)
