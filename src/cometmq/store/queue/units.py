"""The units of a consume queue: 20 bytes that say where a message is, how long, and with which tags.

Rules kept here:
- A unit is `i64 physical offset, i32 size, i64 tags code`. It counts if the offset is not negative and the
  size is positive; the first one that does not count ends the queue.
- A blank unit, with the largest size there is, holds the place of a message that the queue never had: the
  units before the first one of a queue that begins in the middle of a file.
- A lost unit holds the place of a message that the log has lost, so that those behind it keep their offsets.
- Units are judged many at a time, byte column by byte column: a start has to look at millions of them.
"""

from __future__ import annotations

import struct
import sys
from array import array
from typing import Final

from cometmq.ports.disk import Buffer

UNIT: Final = struct.Struct(">qiq")
UNIT_SIZE: Final = UNIT.size
_SIZE_AT: Final = 8
_WORD: Final = 4
_SIZES: Final = slice(_SIZE_AT // _WORD, None, UNIT_SIZE // _WORD)
"""Where the sizes of messages are in the words of units."""

BLANK_SIZE: Final = 0x7FFFFFFF
BLANK_UNIT: Final = UNIT.pack(0, BLANK_SIZE, 0)

LOST_SIZE: Final = 0x4000_0001
"""The size in a unit of a message that is lost: more than a file of the log has, so that it leads to nothing.

Its offset is where the message before it ended, so that the units stay in order.
"""

_FIRST_LOOK: Final = 200 * UNIT_SIZE
_LONGEST_LOOK: Final = 6400 * UNIT_SIZE


def whole_units(size: int) -> int:
    """The smallest file size from here on that holds whole units only."""
    return -(-size // UNIT_SIZE) * UNIT_SIZE


def sizes_of(units: bytes) -> int:
    """The sizes of the messages of units together."""
    words = array("I")
    words.frombytes(units)
    if sys.byteorder == "little":
        words.byteswap()
    return sum(words[_SIZES])


def end_of_units(buffer: Buffer, start: int, end: int) -> int:
    """Where the units that count end; `start` and `end` are places of units.

    Short looks first: most queues of a large store hold little, and what is looked at has to be in memory.
    """
    look = _FIRST_LOOK
    while start < end:
        stop = min(start + look, end)
        units = bytes(buffer[start:stop])
        if not _all_count(units):
            return start + _first_that_does_not_count(units)
        start = stop
        look = min(look * 2, _LONGEST_LOOK)
    return start


def _all_count(units: bytes) -> bool:
    # A number is negative if the first bit is set, which is just what ASCII must not have.
    if not (units[::UNIT_SIZE].isascii() and units[_SIZE_AT::UNIT_SIZE].isascii()):
        return False
    columns = (units[column::UNIT_SIZE] for column in range(_SIZE_AT, _SIZE_AT + 4))
    any_bit = 0
    for column in columns:
        any_bit |= int.from_bytes(column, "little")
    return 0 not in any_bit.to_bytes(len(units) // UNIT_SIZE, "little")


def _first_that_does_not_count(units: bytes) -> int:
    for number, (physical_offset, size, _) in enumerate(UNIT.iter_unpack(units)):
        if physical_offset < 0 or size <= 0:
            return number * UNIT_SIZE
    return len(units)
