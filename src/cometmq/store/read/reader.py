"""Reading messages: from an offset of a queue on, at a place in the log, by time, and by key.

Rules kept here:
- Messages are handed out as views of the mapped files, without a copy; they stay good when a file is removed.
- Status and next offset of a read are those of RocketMQ in every case, and so are the places where a read
  stops: enough messages, enough bytes, or enough units looked at. A read with a filter also stops when it has
  taken long: the next one goes on where it was.
- Where the file of a record was removed, all units that refer to it are passed over. A unit that refers to
  nothing for another reason is passed over alone.
- What lies further back in the log than fits into memory is cold. Such a read may wait for the disk and hold
  up everybody, so whoever runs an event loop asks for `cold_ranges` first and has them fetched beside it.
- A record that is not of this offset of the queue is never handed out; it is skipped, noted, and it alone. So
  that reading the same messages again costs nothing, what was looked at once is not looked at again for a
  while, nor is what was just appended: the store calls `look_again` every second.
- With `check_crc`, every record has to be whole, too, and an entry has to say the code of its record's tags.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from functools import lru_cache
from itertools import accumulate, compress, islice, pairwise
from operator import add, ne
from struct import Struct
from time import perf_counter
from typing import Final, Protocol

import msgspec

from cometmq.store.config import StoreConfig
from cometmq.store.dispatch_rules import DELAY_TOPIC, put_values
from cometmq.store.log.damage import whole_record
from cometmq.store.log.reader import LogReader
from cometmq.store.queue.extension import ConsumeQueueExt, ExtUnit, is_ext_address
from cometmq.store.queue.files import LOST_SIZE, UNIT, UNIT_SIZE, Unit
from cometmq.store.read.entry_check import all_belong, all_lie_in, belongs, misplaced_record
from cometmq.store.skipped import Skipped

MAX_READ_BYTES: Final = 128 * 1024 * 1024
"""More is not read at once, whatever is asked for."""
MIN_READ_BYTES: Final = 100
MAX_SCAN: Final = 16_384
"""More units are not looked at for one read, whatever is asked for."""
FILTER_S: Final = 0.05
"""So long a read looks for messages that are wanted; what it has found by then is what it found."""

_MOST_LOOKED_AT: Final = 16_384
"""So many reads are remembered; with one more all are forgotten, and are looked at again."""
_NO_QUEUE_FILE: Final = "a file of the consume queue is missing"
_NOT_THERE: Final = "their entries lead to no record of the commit log"
_NOT_ITS_OWN: Final = "their entries lead to other records, or to none"
_NOT_WHOLE: Final = "their records are damaged"


BULK_COUNT: Final = 4096
BULK_BYTES: Final = 4 * 1024 * 1024
"""What a bulk read hands out at most: so many messages, and so many bytes unless the first alone has more."""
_NEAR_BYTES: Final = 64 * 1024
"""Cold records that are not further apart are fetched together with what lies between them."""


class GetStatus(Enum):
    """How a read ended, in RocketMQ's names."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


class GetResult(msgspec.Struct):
    """What a read found."""

    status: GetStatus
    next_offset: int
    """Where the next read is to begin."""
    min_offset: int
    max_offset: int
    records: list[memoryview]
    """One a message, except from a bulk read, where it is one for each run of records in the log."""
    queue_offsets: Sequence[int]
    """The offset of each message in the queue."""
    size: int = 0
    """The bytes of all records."""
    suggest_pulling_from_slave: bool = False
    """Whether the reader is so far behind that it should rather ask a replica."""


class ReadableQueue(Protocol):
    """What a read needs of a consume queue."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int

    @property
    def ext(self) -> ConsumeQueueExt | None: ...

    def read(self, queue_offset: int, count: int) -> bytes | bytearray: ...


class MessageFilter(Protocol):
    """Which messages are wanted."""

    def wants_unit(self, tags_code: int, ext: ExtUnit | None) -> bool:
        """Whether a message may be wanted, by what its queue unit says."""

    def wants_record(self, record: memoryview) -> bool:
        """Whether it is, by what the record says."""


FindQueue = Callable[[str, int], ReadableQueue | None]
"""The queue of a topic and a queue id, if it is there."""


@lru_cache(64)
def _places_of(unit_bytes: int) -> Struct:
    """Places and sizes of the records of so many bytes of units: one call for all of them."""
    return Struct(">" + "qi8x" * (unit_bytes // UNIT_SIZE))


class MessageReader:
    """Reads the messages of queues; `memory_bytes` is what the machine has."""

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
        self._log = log
        self._find_queue = find_queue
        self._check_crc = check_crc
        self._skipped = skipped or Skipped()
        self._looked_at: dict[tuple[ReadableQueue, int], int] = {}
        """Where reads began whose entries were found to be right a moment ago, and where they ended."""
        self._fresh_from = log.max_offset
        """Where the log ended a moment ago: what is behind was written since, by this process."""
        self._hot_bytes = int(memory_bytes * (config.access_message_in_memory_max_ratio / 100))
        self._hot_limits = (
            config.max_transfer_count_on_message_in_memory,
            config.max_transfer_bytes_on_message_in_memory,
        )
        self._cold_limits = (
            config.max_transfer_count_on_message_in_disk,
            config.max_transfer_bytes_on_message_in_disk,
        )
        self._max_scan_bytes = config.max_filter_message_size
        self._max_files = config.travel_cq_file_num_when_get_message
        self._units_per_file = config.consume_queue_file_size // UNIT_SIZE
        self._corrects = config.broker_role != "SLAVE" or config.offset_check_in_slave

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int,
        *,
        max_bytes: int = MAX_READ_BYTES,
        wanted: MessageFilter | None = None,
    ) -> GetResult:
        """The messages of a queue from an offset on, as many as may be handed out at once."""
        queue = self._find_queue(topic, queue_id)
        if queue is None or not queue.min_offset <= offset < queue.max_offset:
            return self._outside(queue, offset)
        max_bytes = min(max(max_bytes, MIN_READ_BYTES), MAX_READ_BYTES)
        if wanted is None and not self._check_crc:
            result = self._get_hot(queue, offset, max_count, max_bytes)
            if result is not None:
                return result
        return self._get_wanted(queue, offset, max_count, max_bytes, wanted)

    def look_again(self) -> None:
        """Look at entries again from now on: files can be damaged at any time."""
        self._looked_at.clear()
        self._fresh_from = self._log.max_offset

    def _are_right(
        self, queue: ReadableQueue, offset: int, starts: Sequence[int], records: Sequence[memoryview]
    ) -> bool:
        """Whether the entries from an offset on lead to these records, and rightly so."""
        behind = offset + len(records)
        if not all_belong(queue, range(offset, behind), starts, records):
            return False
        self._note_right(queue, offset, behind)
        return True

    def _note_right(self, queue: ReadableQueue, offset: int, behind: int) -> None:
        if len(self._looked_at) >= _MOST_LOOKED_AT:
            self._looked_at.clear()
        self._looked_at[queue, offset] = behind

    def cold_ranges(
        self, topic: str, queue_id: int, offset: int, max_count: int, wanted: MessageFilter | None = None
    ) -> list[tuple[int, int]]:
        """Offset and size of the records that such a read may have to wait for, because they are far back.

        A reader that is up to date asks this, too, so that the answer for it has to cost next to nothing.
        """
        queue = self._find_queue(topic, queue_id)
        if queue is None or not queue.min_offset <= offset < queue.max_offset:
            return []
        coldest = self._log.max_offset - self._hot_bytes
        if coldest <= self._log.min_offset or UNIT.unpack(queue.read(offset, 1))[0] >= coldest:
            return []
        most = max(min(max_count, self._cold_limits[0]), 1)
        count = most if wanted is None else self._max_scan(max_count)
        places = (
            (physical_offset, size)
            for physical_offset, size, code in UNIT.iter_unpack(queue.read(offset, count))
            if physical_offset < coldest and (wanted is None or wanted.wants_unit(code, None))
        )
        return list(islice(places, most))

    def _max_scan(self, max_count: int) -> int:
        return min(-(-max(self._max_scan_bytes, max_count * UNIT_SIZE) // UNIT_SIZE), MAX_SCAN)

    def _outside(self, queue: ReadableQueue | None, offset: int) -> GetResult:
        """The answer to an offset that the queue does not have."""
        # RocketMQ makes a queue that is asked for; one without messages looks the same from outside.
        first, end = (0, 0) if queue is None else (queue.min_offset, queue.max_offset)
        if end == 0:
            status, right_offset = GetStatus.NO_MESSAGE_IN_QUEUE, 0
        elif offset < first:
            status, right_offset = GetStatus.OFFSET_TOO_SMALL, first
        elif offset == end:
            status, right_offset = GetStatus.OFFSET_OVERFLOW_ONE, offset
        else:
            status, right_offset = GetStatus.OFFSET_OVERFLOW_BADLY, end
        return GetResult(status, self._corrected(offset, right_offset), first, end, [], ())

    def _corrected(self, offset: int, right_offset: int) -> int:
        """Where to go on; a replica that may lack messages does not send anybody elsewhere."""
        return right_offset if self._corrects else offset

    def _get_hot(self, queue: ReadableQueue, offset: int, max_count: int, max_bytes: int) -> GetResult | None:
        """The common case, where all are wanted, in memory and in one file; None for every other."""
        most, most_bytes = self._hot_limits
        max_bytes = min(max_bytes, most_bytes)
        units = queue.read(offset, max(min(max_count, most), 1))
        if not units:
            return None
        flat = _places_of(len(units)).unpack(units)
        starts, sizes = flat[::2], flat[1::2]
        total = sum(sizes)
        if total > max_bytes:
            count = bisect_right(list(accumulate(sizes)), max_bytes) or 1
            starts, sizes = starts[:count], sizes[:count]
            total = sum(sizes)
        files = self._log.files
        first_start, end = starts[0], starts[-1] + sizes[-1]
        mapped = files.at(first_start)
        if mapped is None or first_start < files.max_offset - self._hot_bytes:
            return None
        file_start, view = mapped.start, mapped.view
        if end > file_start + mapped.wrote or total > end - first_start:
            return None
        records = [
            view[(at := start - file_start) : at + size] for start, size in zip(starts, sizes, strict=True)
        ]
        behind = offset + len(records)
        # What was appended just now is as it was written.
        if (
            first_start < self._fresh_from
            and self._looked_at.get((queue, offset), 0) < behind
            and not self._are_right(queue, offset, starts, records)
        ):
            return None
        return GetResult(
            GetStatus.FOUND, behind, queue.min_offset, queue.max_offset, records, range(offset, behind), total
        )

    def _get_wanted(
        self, queue: ReadableQueue, offset: int, max_count: int, max_bytes: int, wanted: MessageFilter | None
    ) -> GetResult:
        """The general case."""
        if not self._check_crc:
            result, starts = self._collect(queue, offset, max_count, max_bytes, wanted, careful=False)
            if (
                not starts
                or starts[0] >= self._fresh_from
                or all_belong(queue, result.queue_offsets, starts, result.records)
            ):
                return result
        return self._collect(queue, offset, max_count, max_bytes, wanted, careful=True)[0]

    def _collect(
        self,
        queue: ReadableQueue,
        offset: int,
        max_count: int,
        max_bytes: int,
        wanted: MessageFilter | None,
        *,
        careful: bool,
    ) -> tuple[GetResult, list[int]]:
        """What a read finds, and where the records are; if `careful`, each is looked at."""
        max_scan = self._max_scan(max_count)
        result = GetResult(GetStatus.NO_MATCHED_MESSAGE, offset, queue.min_offset, queue.max_offset, [], [])
        starts: list[int] = []
        until = perf_counter() + FILTER_S
        for _ in range(self._max_files):
            first = result.next_offset
            scanned = first - offset
            if result.records or first >= queue.max_offset or scanned >= max_scan:
                break
            units = queue.read(first, max_scan - scanned)
            if not units:
                result.status = GetStatus.OFFSET_FOUND_NULL
                behind_file = first - first % self._units_per_file + self._units_per_file
                count = min(behind_file, queue.max_offset) - first
                self._skipped.message(queue.topic, queue.queue_id, first, _NO_QUEUE_FILE, count=count)
                result.next_offset = self._corrected(first, behind_file)
                break
            starts = self._scan(
                queue, units, result, max_count, max_bytes, wanted, careful=careful, until=until
            )
            if wanted is not None and perf_counter() > until:
                break
        return result, starts

    def _scan(
        self,
        queue: ReadableQueue,
        units: bytes | bytearray,
        result: GetResult,
        max_count: int,
        max_bytes: int,
        wanted: MessageFilter | None,
        *,
        careful: bool,
        until: float,
    ) -> list[int]:
        """Look at units from the next offset of a result on, until it is full or the time is over.

        Returns where the records are.
        """
        coldest = self._log.max_offset - self._hot_bytes
        records, offsets, starts = result.records, [], []
        gone_until = 0
        for queue_offset, (physical_offset, size, code) in enumerate(
            UNIT.iter_unpack(units), result.next_offset
        ):
            if records:
                most, most_bytes = self._cold_limits if physical_offset < coldest else self._hot_limits
                if len(records) >= min(max_count, most) or result.size + size > min(max_bytes, most_bytes):
                    break
            result.next_offset = queue_offset + 1
            result.suggest_pulling_from_slave = physical_offset < coldest
            if 0 <= physical_offset < gone_until:
                continue
            unit = physical_offset, size, code
            look = self._look_closely if careful else self._look
            status, record = look(queue, queue_offset, unit, wanted)
            if record is not None:
                records.append(record)
                offsets.append(queue_offset)
                starts.append(physical_offset)
                result.size += size
                gone_until = 0
            elif status is GetStatus.MESSAGE_WAS_REMOVING and self._is_expired(queue, physical_offset):
                gone_until = self._behind_file(physical_offset)
            if record is not None or not records:
                result.status = status
            if wanted is not None and perf_counter() > until:
                break
        result.queue_offsets = offsets
        return starts

    def _look(
        self,
        queue: ReadableQueue,
        queue_offset: int,
        unit: Unit,
        wanted: MessageFilter | None,
    ) -> tuple[GetStatus, memoryview | None]:
        """The record of one unit, if it is wanted and there."""
        physical_offset, size, code = unit
        if wanted is not None and not self._wants_unit(queue, code, wanted):
            return GetStatus.NO_MATCHED_MESSAGE, None
        record = self._log.view(physical_offset, size)
        if record is None:
            self._note_missing(queue, queue_offset, unit)
            return GetStatus.MESSAGE_WAS_REMOVING, None
        if wanted is not None and not wanted.wants_record(record):
            return GetStatus.NO_MATCHED_MESSAGE, None
        return GetStatus.FOUND, record

    def _look_closely(
        self, queue: ReadableQueue, queue_offset: int, unit: Unit, wanted: MessageFilter | None
    ) -> tuple[GetStatus, memoryview | None]:
        """The same; the record has to be of this offset and, if that is wanted, whole."""
        physical_offset, size, code = unit
        record = self._log.view(physical_offset, size)
        if record is None:
            self._note_missing(queue, queue_offset, unit)
            return GetStatus.MESSAGE_WAS_REMOVING, None
        whole = whole_record(record, physical_offset) if self._check_crc else None
        if self._check_crc and whole is None:
            self._note(queue, queue_offset, _NOT_WHOLE)
            return GetStatus.MESSAGE_WAS_REMOVING, None
        if not belongs(queue, queue_offset, physical_offset, record) and not misplaced_record(
            queue, queue_offset, unit, record, lambda offset: self._neighbours(queue, offset)
        ):
            self._note(queue, queue_offset, _NOT_ITS_OWN)
            return GetStatus.MESSAGE_WAS_REMOVING, None
        if whole is not None and queue.topic != DELAY_TOPIC and not is_ext_address(code):
            code = put_values(bytes(whole.properties_block))[0]  # whatever the entry says
        if wanted is not None and not (self._wants_unit(queue, code, wanted) and wanted.wants_record(record)):
            return GetStatus.NO_MATCHED_MESSAGE, None
        return GetStatus.FOUND, record

    def _wants_unit(self, queue: ReadableQueue, code: int, wanted: MessageFilter) -> bool:
        ext = None
        if is_ext_address(code) and queue.ext is not None:
            ext = queue.ext.get(code)
            code = code if ext is None else ext.tags_code
        return wanted.wants_unit(code, ext)

    def _neighbours(self, queue: ReadableQueue, queue_offset: int) -> Iterator[tuple[int, memoryview]]:
        """The records beside an offset of a queue, with their offsets."""
        for offset in (queue_offset - 1, queue_offset + 1):
            for physical_offset, size, _ in UNIT.iter_unpack(queue.read(offset, 1)):
                record = self._log.view(physical_offset, size)
                if record is not None:
                    yield offset, record

    def _is_expired(self, queue: ReadableQueue, physical_offset: int) -> bool:
        """Whether a message is gone because it is old, and not because its entry is damaged."""
        log_start = self._log.min_offset
        if physical_offset >= log_start:
            return False
        first = next(UNIT.iter_unpack(queue.read(queue.min_offset, 1)), None)
        return first is None or first[0] < log_start

    def _note_missing(self, queue: ReadableQueue, queue_offset: int, unit: Unit) -> None:
        """Note an entry that leads to nothing, unless its message is expired or was known to be lost."""
        if unit[1] != LOST_SIZE and not self._is_expired(queue, unit[0]):
            self._note(queue, queue_offset, _NOT_THERE)

    def _note(self, queue: ReadableQueue, queue_offset: int, why: str) -> None:
        self._skipped.message(queue.topic, queue.queue_id, queue_offset, why)

    def _behind_file(self, physical_offset: int) -> int:
        """Where the file begins that follows the one of an offset."""
        size = self._log.files.file_size
        return physical_offset - physical_offset % size + size


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

    def cold_ranges(
        self, topic: str, queue_id: int, offset: int, max_count: int, wanted: MessageFilter | None = None
    ) -> list[tuple[int, int]]:
        """The same places, those that are near each other as one."""
        together: list[tuple[int, int]] = []
        file_size = self._log.files.file_size
        for start, size in super().cold_ranges(topic, queue_id, offset, max_count, wanted):
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
