"""The commit log: every message of every topic, one behind the other, in one logical stream of bytes.

Rules kept here:
- Appends are serial: one thread calls everything here that writes. `sync` runs beside it on another thread.
- A record, or a batch as a whole, lies in one file. It leaves at least 8 bytes of it free; a filler there
  says that the log goes on in the next file.
- What makes bytes a record is written last. A process that is killed at any instant leaves a whole record, or
  a whole batch, or nothing.
- An append that is refused has changed nothing that anybody reads, and the status says why.
- Store times do not run backwards when the clock is set back a little: look-ups by time depend on them.
"""

from __future__ import annotations

import functools
import struct
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Final

from zlib_ng.zlib_ng import crc32

from cometmq.model.errors import MessageError, StoreError
from cometmq.model.names import RETRY_PREFIX
from cometmq.model.sysflag import HOST_V6_MASK
from cometmq.ports.clock import Clock
from cometmq.ports.disk import Disk
from cometmq.store.config import StoreConfig
from cometmq.store.log.allocation import FileAllocator, touch_pages
from cometmq.store.log.growing_log import GrowingLog
from cometmq.store.log.mapped_files import MappedFile, MappedFiles
from cometmq.store.log.spread_files import SpreadFiles
from cometmq.store.put.batch import (
    SIGN_CLEARED,
    MessageBatch,
    Part,
    PropertiesTooLongError,
    pack_records,
)
from cometmq.store.put.bulk import can_take
from cometmq.store.status import PutStatus
from cometmq.wire.frame.command import Body
from cometmq.wire.record.batch import BatchItem
from cometmq.wire.record.codec import Record
from cometmq.wire.record.crc import without_crc_property
from cometmq.wire.record.layout import (
    FIXED_PARTS,
    HEAD,
    HOST_BITS,
    MAGIC_V1,
    MAGIC_V2,
    MAX_TOPIC_LENGTH_V1,
    topic_field,
)
from cometmq.wire.record.properties import MAX_PROPERTIES_LENGTH

if TYPE_CHECKING:
    from cometmq.store.put.bulk import RecordBulk

MAX_TOPIC_LENGTH: Final = 255
"""In bytes. Only retry topics may have more than 127, since nobody names them by hand."""

CLOCK_STEP_MS: Final = 10_000
"""How far the clock may be set back before store times follow it."""

_COPIED_TWICE: Final = 4096
"""Up to this size it is quicker to put a body and what follows it together first, and write them at once."""
_LARGE: Final = 64 * 1024
"""So many bytes at once are not written in memory: the system then has no pages to find for them."""
_KNOWN_TOPICS: Final = 100_000

_NO_HOST_BITS: Final = ~HOST_V6_MASK

_OK: Final = PutStatus.PUT_OK

RunRoom = tuple[struct.Struct, int, dict[str, tuple[int, bytes]], bytes, int, int, int]
"""The fixed part of a record and its host bits; of each topic that is known, the magic and the name behind
its length; the store host; from where to where in the log there is room; and the store time."""


def open_commit_log(
    disk: Disk, clock: Clock, executor: Executor, config: StoreConfig, store_host: bytes
) -> CommitLog:
    """The commit log of a store directory, not loaded yet; its files are made on the executor."""
    files = SpreadFiles(
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


class CommitLog(GrowingLog):
    """The log that messages are appended to; `store_host` is this broker's address, packed."""

    def __init__(
        self,
        files: MappedFiles,
        allocator: FileAllocator,
        clock: Clock,
        config: StoreConfig,
        store_host: bytes,
    ) -> None:
        # With synchronous flush, the pages that are ready would be written by the next of many short syncs.
        super().__init__(files, allocator, settles_pages=config.flush_disk_type == "SYNC_FLUSH")
        self._now_ms = clock.now_ms
        self._store_host = store_host
        self._seals = config.enabled_append_prop_crc
        self._long_topics = config.auto_message_version_on_topic_len
        self._layouts = {
            born: (FIXED_PARTS[bits], bits)
            for (born, store), bits in HOST_BITS.items()
            if store == len(store_host)
        }
        if not self._layouts:
            raise MessageError(f"a store host of {len(store_host)} bytes cannot be written; pack it first")
        self._topics: dict[str, tuple[int, bytes]] = {}
        """Of every topic met: the version of its records, and its name behind its length."""
        self._confirms_flushed = config.flush_disk_type == "SYNC_FLUSH" and not config.read_un_committed
        self.confirmed_offset: int | None = None
        """Set by a controller: what enough replicas have."""
        self.max_message_size = config.max_message_size

    @property
    def confirm_offset(self) -> int:
        """The offset up to which messages may be given to consumers."""
        if self.confirmed_offset is not None:
            return self.confirmed_offset
        return self.flushed_offset if self._confirms_flushed else self.max_offset

    def append(self, record: Record) -> PutStatus:
        """Append one message; its physical offset, store time and total size are set in the record.

        The queue offset is the caller's business, the store host this log's. All in one piece, because a call
        more would cost every message as much as its checksum does.
        """
        body, block = record.body, without_crc_property(record.properties_block)
        body_length, block_length = len(body), len(block)
        # The length of the body is the last of the fixed part. As long as it is missing, and only if it is
        # not 0, nothing here is taken for a record; the other way of writing does not depend on it.
        if self._seals or not body_length:
            return self.append_batch(MessageBatch(record, (BatchItem(body, b"", record.flag),), body_length))
        # The limit of a whole record, 64 KiB more than that of a body, cannot be reached with such lengths.
        if body_length > self.max_message_size:
            return PutStatus.MESSAGE_ILLEGAL
        if block_length > MAX_PROPERTIES_LENGTH:
            return PutStatus.PROPERTIES_SIZE_EXCEEDED
        known = self._topics.get(record.topic) or self._learned(record.topic)
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
        properties_length = block_length.to_bytes(2, "big")
        if body_length <= _COPIED_TWICE:
            buffer[body_at:end] = b"".join((body, topic, properties_length, block))
        else:
            buffer[body_at : body_at + body_length] = body
            buffer[body_at + body_length : end] = b"".join((topic, properties_length, block))
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
        except struct.error:  # a number that does not fit into its field; those before it are written
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

    def append_batch(self, batch: MessageBatch) -> PutStatus:
        """Append messages as one unit, with queue offsets one behind the other; see `MessageBatch`."""
        head = batch.head
        if batch.encoded_size > self.max_message_size or not batch.items:
            return PutStatus.MESSAGE_ILLEGAL
        now = self._now_ms()
        if now < self.store_timestamp_ms:
            now = self._held_back(now)
        try:
            parts = self._packed(batch, now)
            size = sum(batch.sizes)
            mapped = self._current
            if mapped is None or mapped.wrote + size > self._room_ends:
                status = self._make_room(size, now)
                if status is not _OK:
                    return status
                mapped, before = self._writable(), mapped
                if mapped is not before:
                    parts = self._packed(batch, now)
        except PropertiesTooLongError:
            return PutStatus.PROPERTIES_SIZE_EXCEEDED
        except (struct.error, MessageError):
            return PutStatus.MESSAGE_ILLEGAL
        place = mapped.start + mapped.wrote
        head.physical_offset, head.store_timestamp_ms, head.total_size = place, now, size
        self.append_parts(parts, now)
        return _OK

    @property
    def takes_bulks(self) -> bool:
        """Whether records can be appended as they come."""
        return not self._seals and can_take(self._store_host, self._store_host)

    def append_bulk(
        self, bulk: RecordBulk, queue_offset: int, born_host: bytes
    ) -> tuple[PutStatus, int, int]:
        """Append records that came as such; the status, and where and when they were written."""
        if not can_take(born_host, self._store_host) or self._seals:
            return PutStatus.MESSAGE_ILLEGAL, 0, 0
        now = self._now_ms()
        if now < self.store_timestamp_ms:
            now = self._held_back(now)
        mapped, in_memory = self._current, bulk.size < _LARGE
        if mapped is None or mapped.wrote + bulk.size > self._room_ends:
            status = self._make_room(bulk.size, now, in_memory=in_memory)
            if status is not _OK:
                return status, 0, 0
            mapped = self._writable()
        place = mapped.start + mapped.wrote
        records = bulk.fill(queue_offset, place, born_host, now, self._store_host)
        head, rest = records[: HEAD.size], records[HEAD.size :]
        self._append_whole(mapped, head, rest, now, in_memory=in_memory)
        return _OK, place, now

    def room_for_run(self, born_host_length: int) -> RunRoom | None:
        """What records for `append_parts` are made of; None if they are not to be made here."""
        current, known_layout = self._current, self._layouts.get(born_host_length)
        if current is None or known_layout is None or self._seals:
            return None
        now = self._now_ms()
        if now < self.store_timestamp_ms:
            now = self._held_back(now)
        start = current.start
        room = start + current.wrote, start + self._room_ends
        return *known_layout, self._topics, self._store_host, *room, now

    def append_parts(self, parts: list[Part], now_ms: int) -> None:
        """Append records that were packed for this place, and for which there is room.

        They are written so that, until the very last, there is none of them.
        """
        fixed = parts[0]
        parts[0] = fixed[HEAD.size :]
        self._append_whole(self._writable(), fixed[: HEAD.size], b"".join(parts), now_ms)

    def _append_whole(
        self, mapped: MappedFile, head: Body, rest: Body, now_ms: int, *, in_memory: bool = True
    ) -> None:
        """Append records: what is behind the head of the first, and then this head."""
        at = mapped.wrote
        behind_head = at + HEAD.size
        end = behind_head + len(rest)
        if in_memory:
            mapped.buffer[behind_head:end] = rest
            if mapped.report is not None:
                mapped.report(behind_head, end)
        else:
            mapped.file.write_through(behind_head, rest)
        mapped.buffer[at:behind_head] = head
        if mapped.report is not None:
            mapped.report(at, behind_head)
        mapped.wrote = end
        self.store_timestamp_ms = now_ms

    def append_data(self, data: bytes | memoryview) -> PutStatus:
        """Append bytes of another broker's log as they are; they have to end in the file they begin in."""
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

    def _packed(self, batch: MessageBatch, now_ms: int) -> list[Part]:
        """The records of a batch at the end of the log as it is now."""
        topic = batch.head.topic
        known = self._topics.get(topic) or self._learned(topic)
        if known is None:
            raise MessageError(f"topic {topic!r} cannot be stored")
        current = self._current
        offset = self.max_offset if current is None else current.start + current.wrote
        return pack_records(batch, *known, offset, now_ms, self._store_host, sealed=self._seals)

    def _learned(self, topic: str) -> tuple[int, bytes] | None:
        """What the records of a new topic say of it; None if there may be none."""
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

    def _held_back(self, now_ms: int) -> int:
        """The store time while the clock shows less than that of the last record."""
        return self.store_timestamp_ms if self.store_timestamp_ms - now_ms <= CLOCK_STEP_MS else now_ms
