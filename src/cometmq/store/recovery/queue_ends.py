"""Queue ends: where every consume queue ended at the last orderly stop.

Rules kept here:
- The file `queueEnds` is written at an orderly stop, before `abort` is removed. Apache's store ignores it.
- A queue that is shorter at a later start has lost units, or its folder: they are made anew from the log, and
  no offset is given to a second message. A longer queue was written to since.
- Deleting a topic removes the file: a topic that is made again begins with 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from cometmq.ports.disk import Disk
from cometmq.store.queue.consume_queue import ConsumeQueue

QUEUE_ENDS: Final = "queueEnds"

QueueName = tuple[str, int]


class RecoveryTables(msgspec.Struct, frozen=True):
    """Tables that recovery uses besides log, queues and index."""

    queue_ends: Mapping[QueueName, int] | None = None
    """Where queues ended at the last orderly stop; None if unknown."""
    known_topics: frozenset[str] | None = None
    """The topics of the broker; None without a table of them."""


def load_queue_ends(disk: Disk, root: Path) -> dict[QueueName, int] | None:
    """Load the queue ends; None without a readable file."""
    data = disk.read(root / QUEUE_ENDS)
    try:
        tables = None if data is None else msgspec.json.decode(data, type=dict[str, dict[int, int]])
    except msgspec.DecodeError:
        return None
    if tables is None:
        return None
    return {(topic, queue_id): end for topic, ends in tables.items() for queue_id, end in ends.items()}


def ends_of(queues: Iterable[ConsumeQueue]) -> dict[QueueName, int]:
    """The current queue ends."""
    return {(queue.topic, queue.queue_id): queue.max_offset for queue in queues if queue.max_offset}


def save_queue_ends(disk: Disk, root: Path, ends: Mapping[QueueName, int]) -> None:
    """Save the queue ends."""
    tables: dict[str, dict[int, int]] = {}
    for (topic, queue_id), end in ends.items():
        tables.setdefault(topic, {})[queue_id] = end
    disk.replace(root / QUEUE_ENDS, msgspec.json.encode(tables))


def forget_queue_ends(disk: Disk, root: Path) -> None:
    disk.remove(root / QUEUE_ENDS)
    disk.sync_folder(root)
