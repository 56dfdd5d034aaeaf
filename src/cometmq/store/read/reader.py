"""Reading messages from a queue offset on, for pulls and, thousands at a time, for bulk reads.

Rules kept here:
- Messages are views of the mapped files, without a copy; they stay valid when a file is removed.
- Status and next offset of a read are RocketMQ's in every case, and so is where a read stops: enough
  messages, enough bytes, or enough units scanned. A filtered read also stops after 50 ms; the next one
  continues there.
- If the file of a record was removed, all units that refer to it are passed over. A unit that refers to
  nothing for another reason is passed over alone.
- Records further back in the log than fits into memory are cold. Reading them may wait for the disk and block
  everybody, so an event loop asks for `cold_ranges` first and fetches them on another thread.
- A record that does not belong to the queue offset is never returned; it alone is skipped and noted. A
  checked range is not checked again for a second. Records that this process appended in the last minute are
  not checked: they are in memory as it wrote them, and most reads are of them. See `look_again`.
- With `check_crc`, every record also has to be whole, and its tags count instead of the unit's code.
- A bulk read differs in its limits, and in that adjacent records of the log are one view. It ends with the
  log file that it began in.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from functools import lru_cache
from itertools import accumulate, compress, islice, pairwise
from operator import add, ne
from struct import Struct
from time import perf_counter
from typing import Final, Protocol

import msgspec

from cometmq.model.names import DELAY_TOPIC
from cometmq.store.config import StoreConfig
from cometmq.store.dispatch_rules import put_values
from cometmq.store.log.damage import whole_record
from cometmq.store.log.reader import LogReader
from cometmq.store.queue.extension import ConsumeQueueExt, ExtUnit, is_ext_address
from cometmq.store.queue.files import LOST_SIZE, UNIT, UNIT_SIZE, Unit
from cometmq.store.read.entry_check import all_belong, all_lie_in, belongs, misplaced_record
from cometmq.store.skipped import Skipped

MAX_READ_BYTES: Final = 128 * 1024 * 1024
"""No read returns more."""
MIN_READ_BYTES: Final = 100
MAX_SCAN: Final = 16_384
"""No read scans more units."""
FILTER_S: Final = 0.05
"""How long a filtered read scans for matching messages."""

FRESH_LOOKS: Final = 60
"""For so many looks, records that were appended are not checked."""
_MAX_CHECKED: Final = 16_384
"""How many checked reads are remembered."""
_NO_QUEUE_FILE: Final = "a file of the consume queue is missing"
_NOT_THERE: Final = "their entries lead to no record of the commit log"
_NOT_ITS_OWN: Final = "their entries lead to other records, or to none"
_NOT_WHOLE: Final = "their records are damaged"


BULK_COUNT: Final = 4096
BULK_BYTES: Final = 4 * 1024 * 1024
"""The limits of a bulk read; the first message may exceed the bytes."""
_NEAR_BYTES: Final = 64 * 1024
"""Cold records up to this far apart are fetched together."""


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
    """The result of a read."""

    status: GetStatus
    next_offset: int
    """Where the next read begins."""
    min_offset: int
    max_offset: int
    records: list[memoryview]
    """One view per message; a bulk read joins adjacent records."""
    queue_offsets: Sequence[int]
    """The queue offset of each message."""
    size: int = 0
    """The total size of the records."""
    suggest_pulling_from_slave: bool = False
    """Whether the reader lags so far that it should ask a replica."""


class ReadableQueue(Protocol):
    """The part of a consume queue that a read needs."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int

    @property
    def ext(self) -> ConsumeQueueExt | None: ...

    def read(self, queue_offset: int, count: int) -> bytes | bytearray: ...


class MessageFilter(Protocol):
    """Selects messages."""

    def wants_unit(self, tags_code: int, ext: ExtUnit | None) -> bool:
        """Whether a message may match, by its queue unit."""

    def wants_record(self, record: memoryview) -> bool:
        """Whether a message matches, by its record."""


Limits = tuple[int, int]
"""The number of messages and of bytes that a read returns at most."""
FindQueue = Callable[[str, int], ReadableQueue | None]
"""Finds the queue of a topic and a queue id."""


@lru_cache(64)
def _offsets_and_sizes(unit_bytes: int) -> Struct:
    """Unpacks the physical offsets and sizes of that many bytes of units in one call."""
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
        self._checked: dict[tuple[ReadableQueue, int], int] = {}
        """Where reads began and ended whose units were found right a moment ago."""
        self._fresh_from = log.max_offset
        """Where the log ended a minute ago, or at the start: this process wrote everything after it."""
        self._ends: deque[int] = deque()
        """Where the log ended at each look since then."""
        self._hot_bytes = int(memory_bytes * (config.hot_percent / 100))
        self._hot_limits, self._cold_limits = self._limits(config)
        self._max_scan_bytes = config.max_filter_message_size
        self._max_files = config.travel_cq_file_num_when_get_message
        self._units_per_file = config.consume_queue_file_size // UNIT_SIZE
        self._corrects = config.broker_role != "SLAVE" or config.offset_check_in_slave

    @staticmethod
    def _limits(config: StoreConfig) -> tuple[Limits, Limits]:
        """The limits of a read from memory, and of one from the disk."""
        return (
            (
                config.max_transfer_count_on_message_in_memory,
                config.max_transfer_bytes_on_message_in_memory,
            ),
            (config.max_transfer_count_on_message_in_disk, config.max_transfer_bytes_on_message_in_disk),
        )

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
        """Read the messages of a queue from an offset on, as many as the limits allow."""
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
        """Check units again from now on: files can be damaged at any time. Called every second."""
        self._checked.clear()
        self._ends.append(self._log.max_offset)
        if len(self._ends) == 1:  # the start
            self._fresh_from = self._log.max_offset
        elif len(self._ends) > FRESH_LOOKS:
            self._fresh_from = self._ends.popleft()

    def _are_right(
        self, queue: ReadableQueue, offset: int, starts: Sequence[int], records: Sequence[memoryview]
    ) -> bool:
        """Whether the units from an offset on rightly lead to these records."""
        end_offset = offset + len(records)
        if not all_belong(queue, range(offset, end_offset), starts, records):
            return False
        self._note_right(queue, offset, end_offset)
        return True

    def _note_right(self, queue: ReadableQueue, offset: int, end_offset: int) -> None:
        if len(self._checked) >= _MAX_CHECKED:
            self._checked.clear()
        self._checked[queue, offset] = end_offset

    def cold_ranges(
        self, topic: str, queue_id: int, offset: int, max_count: int, wanted: MessageFilter | None = None
    ) -> list[tuple[int, int]]:
        """Offset and size of the cold records that a read may have to wait for.

        Also asked by readers that are up to date, for which it has to cost next to nothing.
        """
        queue = self._find_queue(topic, queue_id)
        if queue is None or not queue.min_offset <= offset < queue.max_offset:
            return []
        coldest = self._log.max_offset - self._hot_bytes
        if coldest <= self._log.min_offset or UNIT.unpack(queue.read(offset, 1))[0] >= coldest:
            return []
        most = max(min(max_count, self._cold_limits[0]), 1)
        count = most if wanted is None else self._max_scan(max_count)
        ranges = (
            (physical_offset, size)
            for physical_offset, size, code in UNIT.iter_unpack(queue.read(offset, count))
            if physical_offset < coldest and (wanted is None or wanted.wants_unit(code, None))
        )
        return list(islice(ranges, most))

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
        """The corrected next offset; a replica that may lack messages corrects nothing."""
        return right_offset if self._corrects else offset

    def _get_hot(self, queue: ReadableQueue, offset: int, max_count: int, max_bytes: int) -> GetResult | None:
        """The common case: no filter, all in memory and in one file; None for every other."""
        most, most_bytes = self._hot_limits
        max_bytes = min(max_bytes, most_bytes)
        units = queue.read(offset, max(min(max_count, most), 1))
        if not units:
            return None
        flat = _offsets_and_sizes(len(units)).unpack(units)
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
        end_offset = offset + len(records)
        if (
            first_start < self._fresh_from
            and self._checked.get((queue, offset), 0) < end_offset
            and not self._are_right(queue, offset, starts, records)
        ):
            return None
        return GetResult(
            GetStatus.FOUND,
            end_offset,
            queue.min_offset,
            queue.max_offset,
            records,
            range(offset, end_offset),
            total,
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
        """Collect messages and their physical offsets; if `careful`, each record is checked."""
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
                file_end = first - first % self._units_per_file + self._units_per_file
                count = min(file_end, queue.max_offset) - first
                self._skipped.message(queue.topic, queue.queue_id, first, _NO_QUEUE_FILE, count=count)
                result.next_offset = self._corrected(first, file_end)
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
        """Scan units from the next offset of a result on, until it is full or the time is over.

        Returns the physical offsets of the records.
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
                gone_until = self._next_file(physical_offset)
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
        """The record of one unit, if it exists and matches."""
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
        """The record of one unit, if it also belongs to the queue offset and, with `check_crc`, is whole."""
        physical_offset, size, code = unit
        record = self._log.view(physical_offset, size)
        if record is None:
            self._note_missing(queue, queue_offset, unit)
            return GetStatus.MESSAGE_WAS_REMOVING, None
        whole = whole_record(record, physical_offset, sealed=True) if self._check_crc else None
        if self._check_crc and whole is None:
            self._note(queue, queue_offset, _NOT_WHOLE)
            return GetStatus.MESSAGE_WAS_REMOVING, None
        if not belongs(queue, queue_offset, physical_offset, record) and not misplaced_record(
            queue, queue_offset, unit, record, lambda offset: self._neighbours(queue, offset)
        ):
            self._note(queue, queue_offset, _NOT_ITS_OWN)
            return GetStatus.MESSAGE_WAS_REMOVING, None
        if whole is not None and queue.topic != DELAY_TOPIC and not is_ext_address(code):
            code = put_values(bytes(whole.properties_block))[0]  # whatever the unit says
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
        """The records before and after a queue offset, with their offsets."""
        for offset in (queue_offset - 1, queue_offset + 1):
            for physical_offset, size, _ in UNIT.iter_unpack(queue.read(offset, 1)):
                record = self._log.view(physical_offset, size)
                if record is not None:
                    yield offset, record

    def _is_expired(self, queue: ReadableQueue, physical_offset: int) -> bool:
        """Whether a message is gone because it expired, and not because its unit is damaged."""
        log_start = self._log.min_offset
        if physical_offset >= log_start:
            return False
        first = next(UNIT.iter_unpack(queue.read(queue.min_offset, 1)), None)
        return first is None or first[0] < log_start

    def _note_missing(self, queue: ReadableQueue, queue_offset: int, unit: Unit) -> None:
        """Note a unit that leads to nothing, unless its message expired or is known to be lost."""
        if unit[1] != LOST_SIZE and not self._is_expired(queue, unit[0]):
            self._note(queue, queue_offset, _NOT_THERE)

    def _note(self, queue: ReadableQueue, queue_offset: int, why: str) -> None:
        self._skipped.message(queue.topic, queue.queue_id, queue_offset, why)

    def _next_file(self, physical_offset: int) -> int:
        """Where the file after that of a physical offset begins."""
        size = self._log.files.file_size
        return physical_offset - physical_offset % size + size


class BulkReader(MessageReader):
    """Reads the messages of queues with larger limits, adjacent records as one view."""

    @staticmethod
    def _limits(_: StoreConfig) -> tuple[Limits, Limits]:
        return (BULK_COUNT, BULK_BYTES), (BULK_COUNT, BULK_BYTES)

    def cold_ranges(
        self, topic: str, queue_id: int, offset: int, max_count: int, wanted: MessageFilter | None = None
    ) -> list[tuple[int, int]]:
        """As in `MessageReader`, with close ranges joined."""
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
        if len(edges) > count // 2:  # hardly any are adjacent
            views = [view[start - base : end - base] for start, end in zip(starts, ends, strict=False)]
        else:
            views = [view[starts[i] - base : ends[j - 1] - base] for i, j in pairwise(edges)]
        total = sum(map(len, views))
        if not count or ends[-1] - base > mapped.wrote or total != totals[count - 1]:
            return None  # left to the general case
        end_offset = offset + count
        if starts[0] < self._fresh_from and self._checked.get((queue, offset), 0) < end_offset:
            if not all_lie_in(view, base, queue, offset, starts[:count], sizes[:count]):
                return None
            self._note_right(queue, offset, end_offset)
        return GetResult(
            GetStatus.FOUND,
            end_offset,
            queue.min_offset,
            queue.max_offset,
            views,
            range(offset, end_offset),
            total,
            starts[count - 1] < self._log.max_offset - self._hot_bytes,
        )


@lru_cache(maxsize=64)
def _units(count: int) -> Struct:
    """Unpacks `count` units into one flat tuple."""
    return Struct(">" + "qiq" * count)
