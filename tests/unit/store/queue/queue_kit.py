"""What the tests of consume queues share: small queues on a simulated disk, and messages for them."""

from __future__ import annotations

from pathlib import Path

from cometmq.ports.disk import Disk
from cometmq.store.queue.consume_queue import ConsumeQueue
from cometmq.store.queue.files import UNIT_SIZE, Unit

ROOT = Path("/store/consumequeue")
FOLDER = ROOT / "orders" / "3"
UNITS_PER_FILE = 10
FILE_SIZE = UNITS_PER_FILE * UNIT_SIZE
RECORD_SIZE = 100


def a_queue(disk: Disk, *, units_per_file: int = UNITS_PER_FILE) -> ConsumeQueue:
    """A queue with small files, as a start finds it."""
    queue = ConsumeQueue(disk, FOLDER, units_per_file * UNIT_SIZE)
    queue.load()
    return queue


def place_of(queue_offset: int) -> int:
    """Where the record of an offset is: the commit log has another queue's records in between."""
    return 1000 + queue_offset * 2 * RECORD_SIZE


def unit_of(queue_offset: int) -> Unit:
    return place_of(queue_offset), RECORD_SIZE, 0x1234_5678_9ABC + queue_offset


def put(queue: ConsumeQueue, *queue_offsets: int) -> None:
    """Write the units of messages."""
    for queue_offset in queue_offsets:
        queue.append(*unit_of(queue_offset), queue_offset)


def offsets_in(queue: ConsumeQueue) -> list[int]:
    """The offsets that can be read, each checked to have its unit."""
    found = []
    for queue_offset in range(queue.min_offset, queue.max_offset):
        assert queue.unit(queue_offset) == unit_of(queue_offset)
        found.append(queue_offset)
    return found


def append_extended(
    queue: ConsumeQueue, unit: Unit, queue_offset: int, *, store_time_ms: int, filter_bits: bytes
) -> bool:
    """Write a unit that refers to an extension, as Apache's broker does."""
    physical_offset, size, tags_code = unit
    if physical_offset + size <= queue.max_physical_offset:
        return False
    assert queue.ext is not None
    address = queue.ext.put(tags_code, store_time_ms, filter_bits)
    assert address is not None
    return queue.append(physical_offset, size, address, queue_offset)
