"""Records of the commit log, many at a time and only as far as queues and index want to know them.

Rules kept here:
- A group has plain messages that follow one another in one file, and in each queue without a gap. Everything
  else comes as a record of its own: parts of transactions, delayed messages, long topics, IPv6 hosts.
- A record is believed under the same conditions as in a walk record by record. What does not meet them ends
  the group, and the walk then says of the record what is wrong with it.
- A group is small enough to be kept in memory, and large enough that what it costs beside its records does
  not count. Its runs are used again: a group of a walk is good until the next one is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeVar

from zlib_ng.zlib_ng import crc32

from cometmq.model.message_properties import UNIQ_KEY
from cometmq.model.names import DELAY_TOPIC
from cometmq.model.sysflag import HOST_V6_MASK, INNER_BATCH, TRANSACTION_MASK
from cometmq.store.dispatch.rules import Keyed, put_values
from cometmq.store.log.mapped_files import MappedFile, MappedFiles
from cometmq.store.log.walk import FileWalk
from cometmq.wire.record.codec import Record
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
_SIGN_CLEARED: Final = 0x7FFFFFFF
_GROUP: Final = 2048
_UNIQ_KEY: Final = f"{UNIQ_KEY}\x01".encode()
_REMEMBERED: Final = 4096
_REMEMBERED_LENGTH: Final = 512

K = TypeVar("K")
V = TypeVar("V")

Arrived = tuple[str, int, int, int, int, bytes | memoryview]
"""Topic, queue id, queue offset, tags code, store time and properties of a message."""


class QueueRun:
    """The messages of one queue in a group."""

    __slots__ = ("first_offset", "next_offset", "queue_id", "topic", "units")

    def __init__(self, topic: str, queue_id: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.first_offset = self.next_offset = 0
        self.units: list[int] = []
        """Place, size and tags code of each, behind one another."""


Runs = dict[int, QueueRun]
"""The runs of a topic, by queue id."""
Tail = tuple[Runs, str, int, bytes | None, bytes | None, int]
"""What is behind a body: runs and name of the topic, tags code, unique key, keys, place of the properties."""

Shape = tuple[bytes, bytes, int, int, Runs, str, int, int]
"""What is before and behind a unique key, where it begins and ends, and what such a tail means."""


class RecordGroup:
    """Records from `start` to `end` of the log."""

    __slots__ = ("arrivals", "count", "end", "keyed", "last_stored_ms", "runs", "start")

    def __init__(self, start: int) -> None:
        self.start = self.end = start
        self.count = 0
        self.last_stored_ms = 0
        self.runs: list[QueueRun] = []
        self.keyed: list[Keyed] = []
        """The messages that have keys."""
        self.arrivals: list[Arrived] = []
        """All messages, if that was wanted."""


class GroupWalk(FileWalk[RecordGroup | Record]):
    """Iterate over the log, in groups where that is possible; see `FileWalk` for where it ends.

    `one_by_one` gives records only.
    """

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
        self._topics: dict[bytes, tuple[str, Runs]] = {}
        """By the bytes that a topic is, behind its length."""
        self._tails: dict[bytes, Tail] = {}
        self._arounds: dict[tuple[bytes, bytes], tuple[int, Runs, str, int, int]] = {}
        """By what is before and behind a unique key: the length of all, and what it means."""
        self._shapes: dict[int, Shape] = {}
        """By the length of a tail, the last one of this length that had a unique key and no other."""

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
        """Plain messages from here on, as many as fit; none if there is something else.

        All in one piece: after a kill there are millions of them, and somebody waits for the broker.
        """
        group = RecordGroup(self.position)
        file_start, buffer, view = mapped.start, mapped.buffer, mapped.view
        check_crc, with_arrivals, tail_of = self._check_crc, self._with_arrivals, self._tails.get
        shape_of = self._shapes.get
        keyed, unpack, last_stored_ms = group.keyed, _HEAD.unpack_from, 0
        at, count, last = self.position - file_start, 0, limit - MIN_RECORD_SIZE
        while count < _GROUP and at <= last:
            size, magic, crc, queue_id, queue_offset, place, flags, stored_ms, length = unpack(buffer, at)
            body_at = at + _HEAD_SIZE
            tail_at, end = body_at + length, at + size
            if (
                magic != MAGIC_V1
                or place != file_start + at
                or flags & _UNUSUAL
                or not body_at <= tail_at < end <= limit
            ):
                break
            if check_crc and length and crc32(view[body_at:tail_at]) & _SIGN_CLEARED != crc:
                break
            tail = bytes(buffer[tail_at:end])
            shape = shape_of(end - tail_at)
            if (
                shape is not None
                and tail.startswith(shape[0])
                and tail.endswith(shape[1])
                and (alone := tail[shape[2] : shape[3]]).isalnum()
            ):
                _, _, _, _, runs, topic, code, block_at = shape
                unique_key: bytes | None = alone
                keys = None
            else:
                known = tail_of(tail) or self._understood(tail)
                if known is None:
                    break
                runs, topic, code, unique_key, keys, block_at = known
            run = runs.get(queue_id)
            if run is None:
                run = runs[queue_id] = QueueRun(topic, queue_id)
            units = run.units
            if not units:
                run.first_offset = queue_offset
                group.runs.append(run)
            elif queue_offset != run.next_offset:
                break
            run.next_offset = queue_offset + 1
            units += (place, size, code)
            if unique_key or keys:
                keyed.append((topic, unique_key, keys, place, stored_ms))
            if with_arrivals:
                block = view[tail_at + block_at : end]
                group.arrivals.append((topic, queue_id, queue_offset, code, stored_ms, block))
            last_stored_ms = stored_ms
            at = end
            count += 1
        group.count, group.last_stored_ms = count, last_stored_ms
        group.end = file_start + at
        return group

    def _understood(self, tail: bytes) -> Tail | None:
        """What stands behind a body; None if that is nothing, or needs another look.

        Many messages differ in nothing but their unique keys.
        """
        before, found, behind = tail.rpartition(_UNIQ_KEY)
        if not found:
            understood = self._parsed(tail)
            if understood is not None and not understood[4]:
                _remember(self._tails, tail, understood, len(tail))
            return understood
        unique_key, _, behind = behind.partition(b"\x02")
        around = before, behind
        known = self._arounds.get(around)
        if known is not None and known[0] == len(tail):
            if behind or tail.endswith(b"\x02"):
                key_at, key_end = len(before) + len(_UNIQ_KEY), len(tail) - len(behind) - 1
                self._shapes[len(tail)] = (tail[:key_at], tail[key_end:], key_at, key_end, *known[1:])
            return known[1], known[2], known[3], unique_key, None, known[4]
        understood = self._parsed(tail)
        if understood is not None and understood[3] == unique_key and not understood[4]:
            runs, topic, code, _, _, block_at = understood
            # The name has to begin there; it may as well be the end of a longer one.
            if len(before) == block_at or (len(before) > block_at and before[-1:] == b"\x02"):
                _remember(self._arounds, around, (len(tail), runs, topic, code, block_at), len(tail))
        return understood

    def _parsed(self, tail: bytes) -> Tail | None:
        topic_end = 1 + tail[0]
        block_at = topic_end + 2
        block = tail[block_at:]
        if tail[topic_end:block_at] != len(block).to_bytes(2, "big") or len(block) > MAX_PROPERTIES_LENGTH:
            return None
        known = self._topics.get(tail[:topic_end]) or self._learned(tail[:topic_end])
        if known is None:
            return None
        topic, runs = known
        code, unique_key, keys, _ = put_values(block)
        return runs, topic, code, unique_key, keys, block_at

    def _learned(self, name: bytes) -> tuple[str, Runs] | None:
        if len(name) > MAX_TOPIC_LENGTH_V1 + 1:
            return None
        try:
            topic = name[1:].decode("utf-8")
        except UnicodeDecodeError:
            return None
        if topic == DELAY_TOPIC:
            return None
        known: tuple[str, Runs] = topic, {}
        self._topics[name] = known
        return known


def _remember(table: dict[K, V], key: K, value: V, length: int) -> None:
    """Keep what a tail of some length means, unless that would take too much memory."""
    if length <= _REMEMBERED_LENGTH:
        if len(table) >= _REMEMBERED:
            table.clear()
        table[key] = value


def _empty(group: RecordGroup) -> None:
    """Let the runs be used again."""
    for run in group.runs:
        run.units = []
