"""Reading a queue for who wants a great deal at a time: thousands of messages, as few pieces as possible.

Rules kept here:
- What is handed out, where a read stops and what it is called are those of `MessageReader`, with larger
  limits; only the common case, in which all are wanted and there, is done another way.
- Records that lie next to each other in the log are one piece. Nothing is done message by message except in
  loops that run inside the interpreter.
- A read ends with the log file that it began in.
- Whether messages are in memory makes no difference: who asks has had the cold places fetched.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from functools import lru_cache
from itertools import accumulate, compress, pairwise
from operator import add, ne
from struct import Struct
from typing import Final

import msgspec

from cometmq.store.config import StoreConfig
from cometmq.store.log.reader import LogReader
from cometmq.store.queue.units import UNIT_SIZE
from cometmq.store.read.entry_check import all_lie_in
from cometmq.store.read.reader import (
    FindQueue,
    GetResult,
    GetStatus,
    MessageFilter,
    MessageReader,
    ReadableQueue,
)
from cometmq.store.read.skipped import Skipped

BULK_COUNT: Final = 4096
BULK_BYTES: Final = 4 * 1024 * 1024
"""What a bulk read hands out at most: so many messages, and so many bytes unless the first alone has more."""
_NEAR_BYTES: Final = 64 * 1024
"""Cold records that are not further apart are fetched together with what lies between them."""


class BulkReader(MessageReader):
    """Reads the messages of queues in bulk."""

    def __init__(
        self,
        log: LogReader,
        find_queue: FindQueue,
        config: StoreConfig,
        memory_bytes: int,
        *,
        check_crc: bool = False,
        skipped: Skipped | None = None,
    ) -> None:
        larger = msgspec.structs.replace(
            config,
            max_transfer_count_on_message_in_memory=BULK_COUNT,
            max_transfer_bytes_on_message_in_memory=BULK_BYTES,
            max_transfer_count_on_message_in_disk=BULK_COUNT,
            max_transfer_bytes_on_message_in_disk=BULK_BYTES,
        )
        super().__init__(log, find_queue, larger, memory_bytes, check_crc=check_crc, skipped=skipped)

    def cold_places(
        self, topic: str, queue_id: int, offset: int, max_count: int, wanted: MessageFilter | None = None
    ) -> list[tuple[int, int]]:
        """The same places, those that are near each other as one."""
        together: list[tuple[int, int]] = []
        file_size = self._log.files.file_size
        for start, size in super().cold_places(topic, queue_id, offset, max_count, wanted):
            first, length = together[-1] if together else (start, 0)
            is_near = 0 <= start - first - length <= _NEAR_BYTES
            if together and is_near and first // file_size == start // file_size:
                together[-1] = first, start + size - first
            else:
                together.append((start, size))
        return together

    def _get_hot(self, queue: ReadableQueue, offset: int, max_count: int, max_bytes: int) -> GetResult | None:
        units = queue.read(offset, max(min(max_count, BULK_COUNT), 1))
        numbers = _units(len(units) // UNIT_SIZE).unpack(units)
        starts, sizes = numbers[::3], numbers[1::3]
        mapped = None if not starts else self._log.files.at(starts[0])
        if mapped is None:
            return None
        totals = list(accumulate(sizes))
        count = min(
            bisect_left(starts, mapped.start + mapped.wrote),
            max(bisect_right(totals, min(max_bytes, BULK_BYTES)), 1),
        )
        ends = list(map(add, starts[:count], sizes))
        edges = [0, *compress(range(1, count), map(ne, ends, starts[1:count])), count]
        view, base = mapped.view, mapped.start
        if len(edges) > count // 2:  # hardly any lie next to each other
            pieces = [view[start - base : end - base] for start, end in zip(starts, ends, strict=False)]
        else:
            pieces = [view[starts[i] - base : ends[j - 1] - base] for i, j in pairwise(edges)]
        total = sum(map(len, pieces))
        if not count or ends[-1] - base > mapped.wrote or total != totals[count - 1]:
            return None  # something is not as it usually is
        behind = offset + count
        if starts[0] < self._fresh_from and self._looked_at.get((queue, offset), 0) < behind:
            if not all_lie_in(view, base, queue, offset, starts[:count], sizes[:count]):
                return None
            self._note_right(queue, offset, behind)
        return GetResult(
            GetStatus.FOUND,
            behind,
            queue.min_offset,
            queue.max_offset,
            pieces,
            range(offset, behind),
            total,
            starts[count - 1] < self._log.max_offset - self._hot_bytes,
        )


@lru_cache(maxsize=64)
def _units(count: int) -> Struct:
    """So many units of a queue as one flat run of numbers."""
    return Struct(">" + "qiq" * count)
