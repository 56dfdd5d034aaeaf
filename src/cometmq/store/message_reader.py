"""Reading messages: from an offset of a queue on, at a place in the log, by time, and by key.

Rules kept here:
- Messages are handed out as views of the mapped files, without a copy; they stay good when a file is removed.
- Status and next offset of a read are those of RocketMQ in every case, and so are the places where a read
  stops: enough messages, enough bytes, or enough units looked at. A read with a filter also stops when it has
  taken long: the next one goes on where it was.
- Where the file of a record was removed, all units that refer to it are passed over. A unit that refers to
  nothing for another reason is passed over alone.
- What lies further back in the log than fits into memory is cold. Such a read may wait for the disk and hold
  up everybody, so whoever runs an event loop asks for `cold_places` first and has them fetched beside it.
- With `check_crc`, a record that is not whole, or not of this place of the queue, is never handed out; it
  counts as gone, and it alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from itertools import islice
from time import perf_counter
from typing import Final, Protocol

import msgspec

from cometmq.store.config import StoreConfig
from cometmq.store.consume_queue_ext import ConsumeQueueExt, ExtUnit, is_ext_address
from cometmq.store.dispatch_rules import QueuePlace
from cometmq.store.log_reader import LogReader
from cometmq.store.queue_files import Unit
from cometmq.store.queue_units import UNIT, UNIT_SIZE
from cometmq.store.record_check import is_in_queue, whole_record

MAX_READ_BYTES: Final = 128 * 1024 * 1024
"""More is not read at once, whatever is asked for."""
MIN_READ_BYTES: Final = 100
MAX_SCAN: Final = 16_384
"""More units are not looked at for one read, whatever is asked for."""
FILTER_S: Final = 0.05
"""So long a read looks for messages that are wanted; what it has found by then is what it found."""


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
    is_far_behind: bool = False
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
    ) -> None:
        self._log = log
        self._find_queue = find_queue
        self._check_crc = check_crc
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

    def cold_places(
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
        """The common case, where all are wanted, in memory and there; None for every other."""
        most, most_bytes = self._hot_limits
        max_bytes = min(max_bytes, most_bytes)
        units = queue.read(offset, max(min(max_count, most), 1))
        files = self._log.files
        coldest = files.max_offset - self._hot_bytes
        records: list[memoryview] = []
        total = start = wrote = 0
        view = memoryview(b"")
        for physical_offset, size, _ in UNIT.iter_unpack(units):
            at = physical_offset - start
            end = at + size
            if at < 0 or end > wrote:
                mapped = files.at(physical_offset)
                if mapped is None or physical_offset < coldest:
                    return None
                start, wrote, view = mapped.start, mapped.wrote, mapped.view
                at = physical_offset - start
                end = at + size
                if end > wrote:
                    return None
            total += size
            if total > max_bytes and records:
                total -= size
                break
            records.append(view[at:end])
        if not records:
            return None
        behind = offset + len(records)
        return GetResult(
            GetStatus.FOUND, behind, queue.min_offset, queue.max_offset, records, range(offset, behind), total
        )

    def _get_wanted(
        self, queue: ReadableQueue, offset: int, max_count: int, max_bytes: int, wanted: MessageFilter | None
    ) -> GetResult:
        """The general case."""
        max_scan = self._max_scan(max_count)
        result = GetResult(GetStatus.NO_MATCHED_MESSAGE, offset, queue.min_offset, queue.max_offset, [], [])
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
                result.next_offset = self._corrected(first, behind_file)
                break
            if self._scan(queue, units, result, max_count, max_bytes, wanted, until):
                break
        return result

    def _scan(
        self,
        queue: ReadableQueue,
        units: bytes | bytearray,
        result: GetResult,
        max_count: int,
        max_bytes: int,
        wanted: MessageFilter | None,
        until: float,
    ) -> bool:
        """Look at units from the next offset of a result on, until it is full; True if the time was over."""
        is_late = False
        coldest = self._log.max_offset - self._hot_bytes
        records, offsets = result.records, []
        gone_until = 0
        for queue_offset, (physical_offset, size, code) in enumerate(
            UNIT.iter_unpack(units), result.next_offset
        ):
            if records:
                most, most_bytes = self._cold_limits if physical_offset < coldest else self._hot_limits
                if len(records) >= min(max_count, most) or result.size + size > min(max_bytes, most_bytes):
                    break
            result.next_offset = queue_offset + 1
            result.is_far_behind = physical_offset < coldest
            if physical_offset < gone_until:
                continue
            status, record = self._look(queue, queue_offset, (physical_offset, size, code), wanted)
            if record is not None:
                records.append(record)
                offsets.append(queue_offset)
                result.size += size
                gone_until = 0
            elif status is GetStatus.MESSAGE_WAS_REMOVING and physical_offset < self._log.min_offset:
                gone_until = self._behind_file(physical_offset)
            if record is not None or not records:
                result.status = status
            if wanted is not None and perf_counter() > until:
                is_late = True
                break
        result.queue_offsets = offsets
        return is_late

    def _look(
        self,
        queue: ReadableQueue,
        queue_offset: int,
        unit: Unit,
        wanted: MessageFilter | None,
    ) -> tuple[GetStatus, memoryview | None]:
        """The record of one unit, if it is wanted and there."""
        physical_offset, size, code = unit
        if wanted is not None:
            ext = None
            if is_ext_address(code) and queue.ext is not None:
                ext = queue.ext.get(code)
                code = code if ext is None else ext.tags_code
            if not wanted.wants_unit(code, ext):
                return GetStatus.NO_MATCHED_MESSAGE, None
        record = self._log.view(physical_offset, size)
        if record is None:
            return GetStatus.MESSAGE_WAS_REMOVING, None
        if self._check_crc:
            whole = whole_record(record, physical_offset)
            if whole is None or not is_in_queue(whole, QueuePlace(queue.topic, queue.queue_id, queue_offset)):
                return GetStatus.MESSAGE_WAS_REMOVING, None
        if wanted is not None and not wanted.wants_record(record):
            return GetStatus.NO_MATCHED_MESSAGE, None
        return GetStatus.FOUND, record

    def _behind_file(self, physical_offset: int) -> int:
        """Where the file begins that follows the one of an offset."""
        size = self._log.files.file_size
        return physical_offset - physical_offset % size + size
