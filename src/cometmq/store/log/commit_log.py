"""The commit log: every message of every topic, one after the other, in one logical stream of bytes.

Rules kept here:
- Appends are serial: one thread calls every method that writes. `sync` runs beside it on another thread.
- A record, or a group as a whole, lies in one file and leaves at least 8 bytes of it free. A filler there
  says that the log continues in the next file.
- The bytes that make a record are written last. A process killed at any instant leaves a whole record, a
  whole group, or nothing.
- A refused append changes nothing that anybody reads, and the status says why.
- Store times do not run backwards when the clock is set back a little: look-ups by time depend on them.
- The log moves on to the next file only once that file exists. If none can be made, the current file stays as
  it is and takes whatever still fits. The last file is never removed.
- The next file is requested when the current one is half full: early enough to be ready in time, late enough
  that a log which hardly grows takes no more disk than it needs.
- A log that grows quickly has its next pages prepared by a worker, so that the appending thread does not wait
  for the kernel or, with synchronous flush, so that a sync has less to do. A slow log does without: a page
  that is prepared and flushed before it is used is written to the disk twice.
"""

from __future__ import annotations

import functools
import logging
import struct
from concurrent.futures import Executor
from typing import Final, NamedTuple

from zlib_ng.zlib_ng import crc32

from cometmq.model.errors import MessageError, StoreError
from cometmq.model.names import RETRY_PREFIX
from cometmq.model.sysflag import HOST_V6_MASK
from cometmq.ports.clock import Clock
from cometmq.ports.disk import Disk
from cometmq.store.config import StoreConfig
from cometmq.store.log.allocation import AllocationError, FileAllocator, touch_pages
from cometmq.store.log.batch import Batch, MessageBatch, PropertiesTooLongError
from cometmq.store.log.mapped_files import MappedFile, MappedFiles, MultiPathMappedFiles, erase_after
from cometmq.store.log.reader import LogReader
from cometmq.store.status import PutStatus
from cometmq.wire.frame.command import Body
from cometmq.wire.record.batch import BatchItem
from cometmq.wire.record.codec import Record
from cometmq.wire.record.crc import BEFORE_CRC, CRC_PROPERTY_LENGTH, SIGN_CLEARED, without_crc_property
from cometmq.wire.record.layout import (
    FIXED_PARTS,
    HEAD,
    HOST_BITS,
    MAGIC_V1,
    MAGIC_V2,
    MAX_TOPIC_LENGTH_V1,
    topic_field,
    write_filler,
)
from cometmq.wire.record.properties import MAX_PROPERTIES_LENGTH

log = logging.getLogger("cometmq.store")

FREE_AT_END: Final = HEAD.size
"""Every record leaves this much of its file free: the room of a filler."""
MAX_TOPIC_LENGTH: Final = 255
"""In bytes. Only retry topics may have more than 127, since nobody names them by hand."""

CLOCK_STEP_MS: Final = 10_000
"""How far the clock may be set back before store times follow it."""

_COPIED_TWICE: Final = 4096
"""Up to this size, joining body and tail first and writing them at once is faster."""
_LARGE: Final = 64 * 1024
"""Larger groups are written with `pwrite`, which needs no page faults."""
_KNOWN_TOPICS: Final = 100_000
_STEP: Final = 1024 * 1024
_AHEAD: Final = 8 * _STEP
_QUICK_STEP_MS: Final = 20
_QUICK_SETTLED_STEP_MS: Final = 200
"""A log that grows by a step in this time, or less, has its pages prepared."""

_NO_HOST_BITS: Final = ~HOST_V6_MASK
_OK: Final = PutStatus.PUT_OK


SHORT: Final = 1024
LENGTHS: Final = tuple(length.to_bytes(2, "big") for length in range(SHORT))
"""Encoded lengths of properties; a look-up takes a third of the time of `to_bytes`."""


class GroupRoom(NamedTuple):
    """What `append_packed` needs its records to be packed with."""

    fixed_part: struct.Struct
    host_bits: int
    topics: dict[str, tuple[int, bytes]]
    """Magic and length-prefixed name of each known topic."""
    store_host: bytes
    start: int
    """The physical offset of the first record."""
    end: int
    """The physical offset where the room ends."""
    now_ms: int


def open_commit_log(
    disk: Disk, clock: Clock, executor: Executor, config: StoreConfig, store_host: bytes
) -> CommitLog:
    """The commit log of a store directory, not loaded yet; the executor makes its files."""
    files = MultiPathMappedFiles(
        disk,
        config.commit_log_folders,
        config.writable_commit_log_folders,
        config.mapped_file_size_commit_log,
        config.delete_unexpired_above_percent,
    )
    files.expect(scattered=not config.data_read_ahead_enable)
    warm_up = None
    if config.warm_mapped_file_enable:
        in_steps = config.flush_disk_type == "SYNC_FLUSH"
        pages = config.flush_least_pages_when_warm_mapped_file if in_steps else None
        warm_up = functools.partial(touch_pages, sync_every_pages=pages)
    allocator = FileAllocator(files, executor, warm_up=warm_up)
    return CommitLog(files, allocator, clock, config, store_host)


class CommitLog(LogReader):
    """The log that messages are appended to; `store_host` is this broker's address, packed."""

    def __init__(
        self,
        files: MappedFiles,
        allocator: FileAllocator,
        clock: Clock,
        config: StoreConfig,
        store_host: bytes,
    ) -> None:
        super().__init__(files)
        self._allocator = allocator
        self._now_ms = clock.now_ms
        self._store_host = store_host
        self.seals: Final = config.enabled_append_prop_crc
        """Whether every record ends in a checksum property of its own."""
        self._long_topics = config.auto_message_version_on_topic_len
        self._layouts = {
            born: (FIXED_PARTS[bits], bits)
            for (born, store), bits in HOST_BITS.items()
            if store == len(store_host)
        }
        if not self._layouts:
            raise MessageError(f"a store host of {len(store_host)} bytes cannot be written; pack it first")
        self._topics: dict[str, tuple[int, bytes]] = {}
        """Magic and length-prefixed name of each topic met so far."""
        sync_flush = config.flush_disk_type == "SYNC_FLUSH"
        # With synchronous flush, the next of many short syncs would write prepared pages.
        self._settles_pages = sync_flush
        self._quick_step_ms = _QUICK_SETTLED_STEP_MS if sync_flush else _QUICK_STEP_MS
        self._confirms_flushed = sync_flush and not config.read_un_committed
        self.confirmed_offset: int | None = None
        """Set by a controller: the offset that enough replicas have."""
        self.max_message_size = config.max_message_size
        self._current: MappedFile | None = None
        self._room_ends = 0
        """The position in the current file after which an append has to ask for room."""
        self._prepared = 0
        """Up to where the pages of the current file were prepared."""
        self._step_began_ms = 0
        self._has_room = True
        self.cuts = 0
        """How often the log was truncated."""
        self.store_timestamp_ms = 0
        """The store time of the last record; recovery sets it after a start."""
        self.flushed_timestamp_ms = 0
        """A store time up to which every record is on the disk."""

    @property
    def confirm_offset(self) -> int:
        """The offset up to which consumers may see messages."""
        if self.confirmed_offset is not None:
            return self.confirmed_offset
        return self.flushed_offset if self._confirms_flushed else self.max_offset

    @property
    def flushed_offset(self) -> int:
        return self.files.flushed_offset

    @property
    def allocation_failure(self) -> AllocationError | None:
        """Why the log cannot grow, while it cannot."""
        return self._allocator.failure

    # Append

    def append(self, record: Record) -> PutStatus:
        """Append one message; sets its physical offset, store time and total size in the record.

        The caller sets the queue offset. This is one function, and not `append_packed` with a group of one,
        because one more call costs every message as much as its checksum.
        """
        body, block = record.body, record.properties_block
        body_length, block_length = len(body), len(block)
        if block_length >= CRC_PROPERTY_LENGTH and block[BEFORE_CRC] == 1:
            block = without_crc_property(block)
            block_length = len(block)
        # The body length ends the fixed part. While it is missing, nothing here is taken for a record; that
        # needs a length other than 0, which `append_batch` does not.
        if self.seals or not body_length:
            return self.append_batch(MessageBatch(record, (BatchItem(body, b"", record.flag),), body_length))
        if body_length > self.max_message_size:
            return PutStatus.MESSAGE_ILLEGAL
        if block_length > MAX_PROPERTIES_LENGTH:
            return PutStatus.PROPERTIES_SIZE_EXCEEDED
        known = self._topics.get(record.topic) or self._learn(record.topic)
        if known is None:
            return PutStatus.MESSAGE_ILLEGAL
        magic, topic = known
        try:
            layout, host_bits = self._layouts[len(record.born_host)]
        except KeyError:
            return PutStatus.MESSAGE_ILLEGAL
        size = layout.size + body_length + len(topic) + 2 + block_length
        now = self._now_ms()
        if now < self.store_timestamp_ms:
            now = self._held_back(now)
        mapped = self._current
        if mapped is None or mapped.wrote + size > self._room_ends:
            status = self._make_room(size, now)
            if status is not _OK:
                return status
            mapped = self._writable()
        at, buffer = mapped.wrote, mapped.buffer
        body_at, end = at + layout.size, at + size
        physical_offset = mapped.start + at
        length = LENGTHS[block_length] if block_length < SHORT else block_length.to_bytes(2, "big")
        if body_length <= _COPIED_TWICE:
            buffer[body_at:end] = b"".join((body, topic, length, block))
        else:
            buffer[body_at : body_at + body_length] = body
            buffer[body_at + body_length : end] = b"".join((topic, length, block))
        if mapped.report is not None:
            mapped.report(body_at, end)
        try:
            layout.pack_into(
                buffer,
                at,
                size,
                magic,
                crc32(body) & SIGN_CLEARED,
                record.queue_id,
                record.flag,
                record.queue_offset,
                physical_offset,
                record.sys_flag & _NO_HOST_BITS | host_bits,
                record.born_timestamp_ms,
                record.born_host,
                now,
                self._store_host,
                record.reconsume_times,
                record.prepared_transaction_offset,
                body_length,
            )
        except struct.error:  # a number that does not fit into its field, after others were written
            buffer[at:end] = bytes(size)
            mapped.file.wrote(at, end)
            return PutStatus.MESSAGE_ILLEGAL
        if mapped.report is not None:
            mapped.report(at, body_at)
        mapped.wrote = end
        self.store_timestamp_ms = now
        record.physical_offset = physical_offset
        record.store_timestamp_ms = now
        record.total_size = size
        return _OK

    def append_batch(self, batch: Batch) -> PutStatus:
        """Append messages as one group with consecutive queue offsets; see `Batch`."""
        head = batch.head
        known = self._topics.get(head.topic) or self._learn(head.topic)
        if known is None or not batch.count or batch.encoded_size > self.max_message_size:
            return PutStatus.MESSAGE_ILLEGAL
        now, mapped, size = self._now_ms(), self._current, batch.packed_size
        if now < self.store_timestamp_ms:
            now = self._held_back(now)
        records: Body = b""
        try:
            if not size:
                records = self._pack(batch, known, now)
                size = len(records)
            in_memory = size < _LARGE or not batch.packed_size
            if mapped is None or mapped.wrote + size > self._room_ends:
                status = self._make_room(size, now, in_memory=in_memory)
                if status is not _OK:
                    return status
                if self._current is not mapped:
                    records = b""
            if not records:
                records = self._pack(batch, known, now)
        except PropertiesTooLongError:
            return PutStatus.PROPERTIES_SIZE_EXCEEDED
        except (struct.error, MessageError):
            return PutStatus.MESSAGE_ILLEGAL
        mapped = self._writable()
        head.physical_offset = mapped.start + mapped.wrote
        head.store_timestamp_ms, head.total_size = now, size
        self.append_packed(records[: HEAD.size], memoryview(records)[HEAD.size :], now, in_memory=in_memory)
        return _OK

    def _pack(self, batch: Batch, known: tuple[int, bytes], now_ms: int) -> Body:
        """The records of a batch, packed for the current end of the log."""
        mapped = self._current
        end = 0 if mapped is None else mapped.start + mapped.wrote
        return batch.pack(*known, end, now_ms, self._store_host, sealed=self.seals)

    def room_for_group(self, born_host_length: int) -> GroupRoom | None:
        """The room left for `append_packed`; None if records have to be appended one by one."""
        current, layout = self._current, self._layouts.get(born_host_length)
        if current is None or layout is None or self.seals:
            return None
        start, now = current.start, self._now_ms()
        if now < self.store_timestamp_ms:
            now = self._held_back(now)
        room = start + current.wrote, start + self._room_ends
        # Past GroupRoom's own `__new__`, which is Python code and costs 0.2 µs.
        return tuple.__new__(GroupRoom, (*layout, self._topics, self._store_host, *room, now))

    def append_packed(self, head: Body, rest: Body, now_ms: int, *, in_memory: bool = True) -> None:
        """Append records that were packed for the end of the log, and for which there is room.

        The head of the first one is written last, and makes all of them exist.
        """
        mapped = self._writable()
        at = mapped.wrote
        head_end = at + HEAD.size
        end = head_end + len(rest)
        if in_memory:
            mapped.buffer[head_end:end] = rest
            if mapped.report is not None:
                mapped.report(head_end, end)
        else:
            mapped.file.write_through(head_end, rest)
        mapped.buffer[at:head_end] = head
        if mapped.report is not None:
            mapped.report(at, head_end)
        mapped.wrote = end
        self.store_timestamp_ms = now_ms

    def append_data(self, data: bytes | memoryview) -> PutStatus:
        """Append bytes of another broker's log unchanged; they have to end in the file they begin in."""
        status = self._make_room_for_data(self._now_ms())
        if status is not _OK:
            return status
        mapped = self._writable()
        at = mapped.wrote
        end = at + len(data)
        if end > mapped.size:
            raise StoreError(f"{len(data)} bytes at {mapped.start + at} of the log reach beyond {mapped.end}")
        mapped.buffer[at:end] = data
        mapped.file.wrote(at, end)
        mapped.wrote = end
        return _OK

    def begin_at(self, offset: int) -> None:
        """Let a log without a message begin at an offset, which has to be the beginning of a file. Blocks."""
        if self.max_offset or offset % self.files.file_size:
            raise StoreError(f"a log that ends at {self.max_offset} cannot begin at {offset}")
        self._current = None
        for mapped in self.files.files:
            self.files.remove(mapped)
        self.files.first_start = offset

    def _learn(self, topic: str) -> tuple[int, bytes] | None:
        """Magic and length-prefixed name of a new topic; None if it cannot be stored."""
        try:
            name = topic.encode("utf-8")
        except UnicodeEncodeError:
            return None
        if len(name) <= MAX_TOPIC_LENGTH_V1:
            known = MAGIC_V1, topic_field(name, MAGIC_V1)
        elif len(name) <= MAX_TOPIC_LENGTH and topic.startswith(RETRY_PREFIX) and self._long_topics:
            known = MAGIC_V2, topic_field(name, MAGIC_V2)
        else:
            return None
        if len(self._topics) >= _KNOWN_TOPICS:
            self._topics.clear()
        self._topics[topic] = known
        return known

    def _store_time_ms(self) -> int:
        now = self._now_ms()
        return now if now >= self.store_timestamp_ms else self._held_back(now)

    def _held_back(self, now_ms: int) -> int:
        """The store time while the clock is before that of the last record."""
        return self.store_timestamp_ms if self.store_timestamp_ms - now_ms <= CLOCK_STEP_MS else now_ms

    # Files

    def prepare_to_append(self) -> None:
        """Open a file to append to before the first message. Blocks, not on the allocator's thread."""
        if self.files.files and not self.files.files[-1].is_full:
            self._enter(self.files.files[-1])
        else:
            self._enter(self.files.add(self._allocator.take(self.files.next_start)))

    def sync(self) -> int:
        """Sync everything written so far; returns up to which offset. Blocks."""
        stored_ms = self.store_timestamp_ms  # read first: it must not be later than what is synced
        offset = self.files.sync()
        self.flushed_timestamp_ms = stored_ms
        return offset

    def truncate(self, offset: int) -> None:
        """Forget everything from an offset on. Blocks."""
        self.files.truncate(offset)
        self._current = None
        self.cuts += 1

    def clear_after_end(self) -> int:
        """Zero what a crash left after the end in the last file; returns how many bytes. Blocks.

        Whole records can be left there. A new record that happens to end where one of them begins would bring
        it back to life after the next crash.
        """
        if not self.files.files:
            return 0
        mapped = self.files.files[-1]
        cleared = erase_after(mapped.file, mapped.wrote)
        if cleared:
            mapped.file.sync()
        return cleared

    def detach_first(self) -> MappedFile | None:
        """Let the log begin at its second file; returns the first one. None if there is only one."""
        if len(self.files.files) < 2:
            return None
        mapped = self.files.files[0]
        self.files.detach(mapped)
        return mapped

    def erase(self, mapped: MappedFile) -> None:
        """Delete a detached file. Blocks."""
        self.files.erase(mapped)

    def close(self) -> None:
        """Close all files. Blocks."""
        self._allocator.close()
        self._current = None
        self.files.close()

    def _writable(self) -> MappedFile:
        if self._current is None:
            raise StoreError("the log has no file to append to; ask for room first")
        return self._current

    def _make_room(self, size: int, now_ms: int, *, in_memory: bool = True) -> PutStatus:
        """Have a current file with room for `size` bytes, and the next file made in good time.

        Pages are prepared only for writes in memory.
        """
        if size + FREE_AT_END > self.files.file_size:
            return PutStatus.MESSAGE_ILLEGAL
        if not self._resume():
            return PutStatus.CREATE_MAPPED_FILE_FAILED
        current = self._current
        if current is None or current.wrote + size + FREE_AT_END > current.size:
            return self._next_file(now_ms)
        if current.wrote + size > self._room_ends:
            last = current.size - FREE_AT_END
            self._look_ahead(current, current.wrote + size, last, now_ms, in_memory=in_memory)
        return PutStatus.PUT_OK

    def _make_room_for_data(self, now_ms: int) -> PutStatus:
        """Have a current file that is not full; copied bytes bring their own filler."""
        if not self._resume():
            return PutStatus.CREATE_MAPPED_FILE_FAILED
        current = self._current
        if current is None or current.is_full:
            return self._next_file(now_ms)
        if current.wrote > self._room_ends:
            self._look_ahead(current, current.wrote, current.size, now_ms)
        return PutStatus.PUT_OK

    def _look_ahead(
        self, current: MappedFile, end: int, last: int, now_ms: int, *, in_memory: bool = True
    ) -> None:
        """Request the next file, and prepare pages, before the log reaches `end` in its current file."""
        half = current.size // 2
        if end > half:
            self._allocator.request(current.end)
        self._room_ends = min(end + _STEP, half if end <= half else last)
        is_quick = now_ms - self._step_began_ms <= self._quick_step_ms
        self._step_began_ms = now_ms
        upto = min(end + _AHEAD, current.size)
        start = max(end, self._prepared)
        if (
            is_quick
            and in_memory
            and start < upto
            and self._allocator.prepare_pages(current, start, upto, settled=self._settles_pages)
        ):
            self._prepared = upto

    def _resume(self) -> bool:
        """Append to the last loaded file; False if the disk has no room for the rest of it."""
        if self._current is None and self.files.files:
            try:
                self._enter(self.files.files[-1])
            except OSError as error:
                if self._has_room:  # logged once, not once a message
                    log.error("%s cannot be appended to: %s", self.files.files[-1].file.path, error)
                self._has_room = False
                return False
            self._has_room = True
        return True

    def _next_file(self, now_ms: int) -> PutStatus:
        """Continue in the next file."""
        try:
            following = self._allocator.take(self.files.next_start)
        except AllocationError:
            return PutStatus.CREATE_MAPPED_FILE_FAILED
        current = self._current
        if current is not None:
            rest = current.size - current.wrote
            if rest >= FREE_AT_END:
                write_filler(current.buffer, current.wrote, rest)
                current.file.wrote(current.wrote, current.wrote + FREE_AT_END)
            current.wrote = current.size
            current.modified_ms = now_ms
        self._enter(self.files.add(following))
        return PutStatus.PUT_OK

    def _enter(self, mapped: MappedFile) -> None:
        """Append to this file from now on."""
        mapped.reserve(mapped.size, mapped.size)
        self._current = mapped
        self._room_ends = min(mapped.wrote + _STEP, mapped.size // 2)
        self._prepared = 0
