"""Walking the commit log in groups: only what queues and index need of the records, many at a time.

Rules kept here:
- A group has plain messages that follow one another in one file, and in each queue without a gap. Everything
  else is returned as a single record: parts of transactions, delayed messages, long topics, IPv6 hosts.
- A record counts under the same conditions as in a walk record by record. One that does not meet them ends
  the group, and the walk then says what is wrong with it.
- A group has at most 2048 messages. The walk reuses its `QueueUnits`: a group is valid until the next one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, Final, Protocol, TypeVar

import msgspec
from zlib_ng.zlib_ng import crc32

from cometmq.model.message_properties import UNIQ_KEY
from cometmq.model.names import DELAY_TOPIC
from cometmq.model.sysflag import HOST_V6_MASK, INNER_BATCH, TRANSACTION_MASK
from cometmq.store.dispatch_rules import Keyed, put_values
from cometmq.store.log.mapped_files import MappedFile, MappedFiles
from cometmq.store.log.walk import FileWalk
from cometmq.wire.record.codec import Record
from cometmq.wire.record.crc import SIGN_CLEARED
from cometmq.wire.record.layout import FIXED_V4, MAGIC_V1, MAX_TOPIC_LENGTH_V1, MIN_RECORD_SIZE, fields_struct
from cometmq.wire.record.properties import MAX_PROPERTIES_LENGTH

_HEAD: Final = fields_struct(
    "total_size",
    "magic",
    "body_crc",
    "queue_id",
    "queue_offset",
    "physical_offset",
    "sys_flag",
    "store_timestamp_ms",
    "body_length",
)
_HEAD_SIZE: Final = FIXED_V4.size
_UNUSUAL: Final = TRANSACTION_MASK | HOST_V6_MASK | INNER_BATCH
_GROUP: Final = 2048
_UNIQ_KEY: Final = f"{UNIQ_KEY}\x01".encode()
_REMEMBERED: Final = 4096
_REMEMBERED_LENGTH: Final = 512

K = TypeVar("K")
V = TypeVar("V")

Arrived = tuple[str, int, int, int, int, bytes | memoryview]
"""Topic, queue id, queue offset, tags code, store time and properties of a message."""


class UnitWriter(Protocol):
    """A consume queue, as far as a group needs it."""

    topic: str
    queue_id: int

    def append(self, physical_offset: int, size: int, tags_code: int, queue_offset: int) -> bool: ...

    def append_many(
        self, queue_offset: int, starts: Sequence[int], sizes: Sequence[int], tags_codes: Sequence[int]
    ) -> None: ...


class QueueUnits:
    """The messages of one queue in a group."""

    __slots__ = ("first_offset", "next_offset", "packed", "queue_id", "topic", "units")

    def __init__(self, topic: str, queue_id: int, first_offset: int = 0) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.first_offset = self.next_offset = first_offset
        self.units: list[int] = []
        """Physical offset, size and tags code of each message, in one flat list."""
        self.packed = b""
        """Or all of them as the queue has them."""

    def add(self, physical_offset: int, size: int, code: int) -> None:
        self.units += (physical_offset, size, code)
        self.next_offset += 1


Queues = dict[int, QueueUnits]
"""The queues of a topic, by queue id."""
Tail = tuple[Queues, str, int, bytes | None, bytes | None, int]
"""What follows a body: queues and name of the topic, tags code, unique key, keys, start of the properties."""

TailLayout = tuple[bytes, bytes, int, int, Queues, str, int, int]
"""A tail with a unique key: the bytes before and after it, where it begins and ends, then as `Tail`."""


class RecordGroup(msgspec.Struct):
    """Plain records from `start` to `end` of the log, as far as dispatch needs them."""

    start: int
    end: int
    count: int = 0
    last_stored_ms: int = 0
    queues: list[QueueUnits] = msgspec.field(default_factory=list)
    singles: list[tuple[UnitWriter, int, int, int, int]] = msgspec.field(default_factory=list)
    """Messages that were just put: queue, physical offset, size, tags code and queue offset of each.

    They are few for each queue, where collecting them by queue would cost 0.7 µs a message.
    """
    columns: tuple[UnitWriter, int, list[int], Sequence[int], list[int]] | None = None
    """Or messages of one queue: the queue, their first offset, physical offsets, sizes and tags codes."""
    keyed: list[Keyed] = msgspec.field(default_factory=list)
    """The messages that have keys."""
    key_columns: tuple[Any, Any, Any] | None = None
    """Or NumPy columns: hashed keys, physical offsets and store times of messages with one key each."""
    arrivals: list[Arrived] = msgspec.field(default_factory=list)
    """All messages, if anybody listens for them."""

    def by_queue(self) -> list[QueueUnits]:
        """All messages of the group, collected by queue."""
        queues = {(each.topic, each.queue_id): each for each in self.queues}
        for queue, physical_offset, size, code, queue_offset in self.singles:
            units = queues.get((queue.topic, queue.queue_id))
            if units is None:
                units = QueueUnits(queue.topic, queue.queue_id, queue_offset)
                queues[queue.topic, queue.queue_id] = units
            units.add(physical_offset, size, code)
        if self.columns is not None:
            queue, first_offset, *columns = self.columns
            units = queues[queue.topic, queue.queue_id] = QueueUnits(
                queue.topic, queue.queue_id, first_offset
            )
            units.units += chain.from_iterable(zip(*columns, strict=True))
            units.next_offset += self.count
        return list(queues.values())


class GroupWalk(FileWalk[RecordGroup | Record]):
    """Iterate over the log, in groups where possible; with `one_by_one`, in single records only."""

    def __init__(
        self,
        files: MappedFiles,
        start: int,
        limit: int | None = None,
        *,
        check_crc: bool = False,
        verify_record_crc: bool = False,
        one_by_one: bool = False,
        with_arrivals: bool = False,
    ) -> None:
        super().__init__(files, start, limit, check_crc=check_crc, verify_record_crc=verify_record_crc)
        self._one_by_one = one_by_one or verify_record_crc
        self._with_arrivals = with_arrivals
        self._topics: dict[bytes, tuple[str, Queues]] = {}
        """By the length-prefixed name of the topic."""
        self._tails: dict[bytes, Tail] = {}
        self._arounds: dict[tuple[bytes, bytes], tuple[int, Queues, str, int, int]] = {}
        """By the bytes before and after a unique key: the length of the tail, and its meaning."""
        self._layouts: dict[int, TailLayout] = {}
        """By the length of a tail: the last one of this length with a unique key and no other keys."""

    def _walk_file(self, mapped: MappedFile, limit: int) -> Iterator[RecordGroup | Record]:
        while self.end is None:
            if not self._one_by_one:
                group = self._read_group(mapped, limit)
                if group.count:
                    self.position = group.end
                    yield group
                    _empty(group)
                    continue
            record = self._read_one(mapped, limit)
            if record is None:
                return
            yield record

    def _read_group(self, mapped: MappedFile, limit: int) -> RecordGroup:
        """Read plain messages from here on, as many as fit; none if something else is here.

        One function, because after a kill it reads millions of records while the broker starts.
        """
        group = RecordGroup(self.position, self.position)
        file_start, buffer, view = mapped.start, mapped.buffer, mapped.view
        check_crc, with_arrivals, tail_of = self._check_crc, self._with_arrivals, self._tails.get
        layout_of = self._layouts.get
        keyed, unpack, last_stored_ms = group.keyed, _HEAD.unpack_from, 0
        at, count, last = self.position - file_start, 0, limit - MIN_RECORD_SIZE
        while count < _GROUP and at <= last:
            size, magic, crc, queue_id, queue_offset, offset, flags, stored_ms, length = unpack(buffer, at)
            body_at = at + _HEAD_SIZE
            tail_at, end = body_at + length, at + size
            if (
                magic != MAGIC_V1
                or offset != file_start + at
                or flags & _UNUSUAL
                or not body_at <= tail_at < end <= limit
            ):
                break
            if check_crc and length and crc32(view[body_at:tail_at]) & SIGN_CLEARED != crc:
                break
            tail = bytes(buffer[tail_at:end])
            layout = layout_of(end - tail_at)
            if (
                layout is not None
                and tail.startswith(layout[0])
                and tail.endswith(layout[1])
                and (alone := tail[layout[2] : layout[3]]).isalnum()
            ):
                _, _, _, _, queues, topic, code, block_at = layout
                unique_key: bytes | None = alone
                keys = None
            else:
                known = tail_of(tail) or self._read_tail(tail)
                if known is None:
                    break
                queues, topic, code, unique_key, keys, block_at = known
            queue = queues.get(queue_id)
            if queue is None:
                queue = queues[queue_id] = QueueUnits(topic, queue_id)
            units = queue.units
            if not units:
                queue.first_offset = queue_offset
                group.queues.append(queue)
            elif queue_offset != queue.next_offset:
                break
            queue.next_offset = queue_offset + 1
            units += (offset, size, code)
            if unique_key or keys:
                keyed.append((topic, unique_key, keys, offset, stored_ms))
            if with_arrivals:
                block = view[tail_at + block_at : end]
                group.arrivals.append((topic, queue_id, queue_offset, code, stored_ms, block))
            last_stored_ms = stored_ms
            at = end
            count += 1
        group.count, group.last_stored_ms = count, last_stored_ms
        group.end = file_start + at
        return group

    def _read_tail(self, tail: bytes) -> Tail | None:
        """Read the bytes after a body; None if they need a closer look.

        Cached, because many messages differ in nothing but their unique keys.
        """
        before, found, after = tail.rpartition(_UNIQ_KEY)
        if not found:
            meaning = self._parse(tail)
            if meaning is not None and not meaning[4]:
                _remember(self._tails, tail, meaning, len(tail))
            return meaning
        unique_key, _, after = after.partition(b"\x02")
        around = before, after
        known = self._arounds.get(around)
        if known is not None and known[0] == len(tail):
            if after or tail.endswith(b"\x02"):
                key_at, key_end = len(before) + len(_UNIQ_KEY), len(tail) - len(after) - 1
                self._layouts[len(tail)] = (tail[:key_at], tail[key_end:], key_at, key_end, *known[1:])
            return known[1], known[2], known[3], unique_key, None, known[4]
        meaning = self._parse(tail)
        if meaning is not None and meaning[3] == unique_key and not meaning[4]:
            queues, topic, code, _, _, block_at = meaning
            # The property has to begin there: its name may be the end of a longer one.
            if len(before) == block_at or (len(before) > block_at and before[-1:] == b"\x02"):
                _remember(self._arounds, around, (len(tail), queues, topic, code, block_at), len(tail))
        return meaning

    def _parse(self, tail: bytes) -> Tail | None:
        topic_end = 1 + tail[0]
        block_at = topic_end + 2
        block = tail[block_at:]
        if tail[topic_end:block_at] != len(block).to_bytes(2, "big") or len(block) > MAX_PROPERTIES_LENGTH:
            return None
        known = self._topics.get(tail[:topic_end]) or self._learn(tail[:topic_end])
        if known is None:
            return None
        topic, queues = known
        code, unique_key, keys, _ = put_values(block)
        return queues, topic, code, unique_key, keys, block_at

    def _learn(self, name: bytes) -> tuple[str, Queues] | None:
        if len(name) > MAX_TOPIC_LENGTH_V1 + 1:
            return None
        try:
            topic = name[1:].decode("utf-8")
        except UnicodeDecodeError:
            return None
        if topic == DELAY_TOPIC:
            return None
        known: tuple[str, Queues] = topic, {}
        self._topics[name] = known
        return known


def _remember(table: dict[K, V], key: K, value: V, length: int) -> None:
    """Cache the meaning of a tail, within limits."""
    if length <= _REMEMBERED_LENGTH:
        if len(table) >= _REMEMBERED:
            table.clear()
        table[key] = value


def _empty(group: RecordGroup) -> None:
    """Let the queues be used again."""
    for queue in group.queues:
        queue.units = []
