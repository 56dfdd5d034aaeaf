"""Putting plain messages, many at once.

Rules kept here:
- Each message is put as `MessageWriter.put` would put it: the same bytes, offsets and statuses. What is not
  as plain as the others, or needs more than what is at hand, is left to it: large and empty bodies, parts of
  transactions that are not committed, the first message of a queue, the last one of a file.
- A run is in the log as a whole, or not at all if the process is killed meanwhile.
- Units, keys and arrivals follow when the run is in the log; later if the caller wants it so, who then has to
  see to it that it is done before anything else is asked of the store.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from zlib_ng.zlib_ng import crc32

from cometmq.model.names import DELAY_TOPIC
from cometmq.model.sysflag import HOST_V6_MASK, INNER_BATCH, TransactionType
from cometmq.store.log.commit_log import CommitLog
from cometmq.store.put.batch import SIGN_CLEARED, Part
from cometmq.store.queue.consume_queue import ConsumeQueue
from cometmq.store.status import PutStatus
from cometmq.wire.frame.command import Body
from cometmq.wire.record.codec import Record
from cometmq.wire.record.crc import CRC_PROPERTY_LENGTH, without_crc_property
from cometmq.wire.record.properties import MAX_PROPERTIES_LENGTH

if TYPE_CHECKING:
    from cometmq.store.put.writer import PutResult

_OK: Final = PutStatus.PUT_OK
_NOT_PLAIN: Final = TransactionType.PREPARED | INNER_BATCH
"""Bits that a committed message does not have, either."""
_NO_HOST_BITS: Final = ~HOST_V6_MASK
_LARGEST_BODY: Final = 4096
"""Larger bodies are not put together with others, because that would copy them once more."""

_SHORT: Final = 1024
_LENGTHS: Final = tuple(length.to_bytes(2, "big") for length in range(_SHORT))
"""Lengths of properties as they are written."""

PlainMessage = tuple[str, int, int, int, int, bytes, int, int, Body, bytes, int, bytes | None, bytes | None]
"""Topic, queue id, flag, system flag, born time, born host, how often it was consumed, where it was prepared,
body and properties of a message; then what its properties say: the hash of the tags, unique key and keys."""

RunUnit = tuple[ConsumeQueue, int, int, int, int, bytes | None, bytes | None, bytes]
"""Queue, place in the log, size, hash of the tags, queue offset, unique key, keys and properties of a message
that is in the log."""

Queues = dict[str, dict[int, ConsumeQueue]]
"""Queues by topic and number."""
_NO_QUEUES: Final[dict[int, ConsumeQueue]] = {}

Later = Callable[[Callable[[], None]], object]
"""Takes something that is to be done."""


class PutRun:
    """What became of a run."""

    __slots__ = ("count", "end_offset", "places", "size")

    def __init__(self) -> None:
        self.places: list[tuple[int, int, int] | PutStatus] = []
        """Of each message its queue offset, and its place and size in the log; or why it was refused."""
        self.count = 0
        """How many were put."""
        self.size = 0
        """How many bytes of the log they take."""
        self.end_offset = -1
        """Where the last of them ends in the log; -1 if all were refused."""


class RunPutter:
    """Puts runs into the log; `put` is for what cannot be part of one.

    `show` is called with what is in the log then, and its store time.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        put: Callable[[Record], PutResult],
        show: Callable[[Sequence[RunUnit], int], None],
    ) -> None:
        self._log = commit_log
        self._put_alone = put
        self._show = show

    def put(self, queues: Queues, messages: Sequence[PlainMessage], later: Later | None = None) -> PutRun:
        """Put messages to queues; one whose queue is not among them is put alone."""
        run = PutRun()
        while (done := len(run.places)) < len(messages):
            units, now_ms = self._put_together(run, queues, messages[done:] if done else messages)
            done = len(run.places)
            if units and later is not None and done == len(messages):
                later(partial(self._show, units, now_ms))
            elif units:
                self._show(units, now_ms)
            if done < len(messages):
                self._put_one(run, messages[done])
        return run

    def _put_together(
        self, run: PutRun, queues: Queues, messages: Sequence[PlainMessage]
    ) -> tuple[list[RunUnit], int]:
        """Put as many of the first messages as are plain and have room; what is to be shown, and its time."""
        log = self._log
        host_length = len(messages[0][5])
        room = log.room_for_run(host_length)
        if room is None:
            return [], 0
        layout, host_bits, topics, store_host, start, end, now = room
        pack, crc_of, fixed_size = layout.pack, crc32, layout.size + 2
        largest_body = min(_LARGEST_BODY, log.max_message_size)
        offset, places = start, run.places
        parts: list[Part] = []
        units: list[RunUnit] = []
        last_topic, of_topic, magic, name = DELAY_TOPIC, _NO_QUEUES, 0, b""
        try:
            for (
                topic,
                queue_id,
                flag,
                sys_flag,
                born_ms,
                born_host,
                consumed,
                prepared,
                body,
                block,
                code,
                unique_key,
                keys,
            ) in messages:
                if topic != last_topic:
                    magic, name = topics.get(topic, (0, b""))
                    of_topic = queues.get(topic, _NO_QUEUES) if name and topic != DELAY_TOPIC else _NO_QUEUES
                    last_topic = topic
                queue = of_topic.get(queue_id)
                body_length, block_length = len(body), len(block)
                size = fixed_size + len(name) + body_length + block_length
                if (
                    queue is None
                    or offset + size > end
                    or not 0 < body_length <= largest_body
                    or block_length > MAX_PROPERTIES_LENGTH
                    or sys_flag & _NOT_PLAIN
                    or len(born_host) != host_length
                    or (
                        block_length >= CRC_PROPERTY_LENGTH
                        and block[-12] == 1
                        and without_crc_property(block) is not block
                    )
                ):
                    break
                queue_offset = queue.next_offset
                fixed = pack(
                    size,
                    magic,
                    crc_of(body) & SIGN_CLEARED,
                    queue_id,
                    flag,
                    queue_offset,
                    offset,
                    sys_flag & _NO_HOST_BITS | host_bits,
                    born_ms,
                    born_host,
                    now,
                    store_host,
                    consumed,
                    prepared,
                    body_length,
                )
                length = _LENGTHS[block_length] if block_length < _SHORT else block_length.to_bytes(2, "big")
                parts += (fixed, body, name, length, block)
                units.append((queue, offset, size, code, queue_offset, unique_key, keys, block))
                places.append((queue_offset, offset, size))
                queue.next_offset = queue_offset + 1
                offset += size
        except struct.error:  # a number that does not fit into its field; alone, the message is refused
            pass
        if units:
            log.append_parts(parts, now)
            run.count += len(units)
            run.size += offset - start
            run.end_offset = offset
        return units, now

    def _put_one(self, run: PutRun, message: PlainMessage) -> None:
        topic, queue_id, flag, sys_flag, born_ms, born_host, consumed, prepared, body, block, *_ = message
        record = Record(
            topic,
            body,
            block,
            queue_id=queue_id,
            flag=flag,
            sys_flag=sys_flag,
            born_timestamp_ms=born_ms,
            born_host=born_host,
            reconsume_times=consumed,
            prepared_transaction_offset=prepared,
        )
        result = self._put_alone(record)
        if result.status is _OK:
            size = result.end_offset - result.physical_offset
            run.places.append((result.queue_offset, result.physical_offset, size))
            run.count += 1
            run.size += size
            run.end_offset = result.end_offset
        else:
            run.places.append(result.status)
