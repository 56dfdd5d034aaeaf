"""Whether bytes are the whole record of a place in the log, by all that a record says about itself.

Rules kept here:
- A record has to be where it says that it is, its lengths have to add up, and its body has to have the
  checksum that it says. If the record has a checksum of its own, that has to be right, too; where something
  is left of one, it counts as wrong.
- What no checksum covers cannot be judged: a born time, say, of a record without a checksum of its own.
"""

from __future__ import annotations

from cometmq.store.dispatch.rules import QueuePlace, further_places
from cometmq.wire.record.codec import Record, decode_record
from cometmq.wire.record.crc import CRC_PROPERTY_LENGTH, record_is_intact, resembles_crc_property
from cometmq.wire.record.layout import RecordError


def whole_record(view: memoryview, physical_offset: int, *, sealed: bool = False) -> Record | None:
    """The record at an offset of the log, if these are all of its bytes, and unharmed.

    Say `sealed` of a log whose records have checksums of their own.
    """
    try:
        record = decode_record(view, check_crc=True)
    except RecordError:
        return None
    is_here = record.total_size == len(view) and record.physical_offset == physical_offset
    return record if is_here and is_intact(view, 0, len(view), sealed=sealed) else None


def is_in_queue(record: Record, place: QueuePlace) -> bool:
    """Whether a message is at this place of a queue."""
    if place == (record.topic, record.queue_id, record.queue_offset):
        return True
    return place in further_places(record.properties_block, record.queue_id)


def is_intact(view: memoryview, offset: int, total_size: int, *, sealed: bool = False) -> bool:
    """Whether the checksum of a record of its own is right, or was never there."""
    intact = record_is_intact(view, offset, total_size)
    if intact is not None:
        return intact
    end = offset + total_size
    return not resembles_crc_property(bytes(view[end - CRC_PROPERTY_LENGTH : end]), sealed=sealed)
