"""Walking over records: a commit log file, or the body of an answer to a pull.

Rules kept here:
- A walk goes on to the first position without a readable record, and then says where that is and why. All
  records before it are good; the caller judges whether the end was to be expected.
- A `StoredMessage` refers to nothing in the buffer.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import TYPE_CHECKING

from cometmq.model.message import StoredMessage
from cometmq.wire.record.codec import Record, decode_record
from cometmq.wire.record.ids import encode_offset_id, unpack_host
from cometmq.wire.record.layout import FillerError, RecordError

if TYPE_CHECKING:
    from cometmq.wire.record.layout import ReadableBuffer


class WalkEnd(Enum):
    """Why a walk ended."""

    LIMIT = "the last record ends exactly at the limit"
    FILLER = "the filler at the end of a commit log file"
    MALFORMED = "bytes that are not a record"


class RecordWalk:
    """Iterate over the records from `offset` to `limit`.

    `position` is where the next record begins. After the last one it is where the walk ended, `end` says why,
    and `error` what was wrong there, if anything.
    """

    def __init__(
        self,
        buffer: ReadableBuffer,
        offset: int = 0,
        limit: int | None = None,
        *,
        decompress_body: bool = False,
    ) -> None:
        self._view = memoryview(buffer)
        self._limit = len(self._view) if limit is None else limit
        self._decompress_body = decompress_body
        self.position = offset
        self.end: WalkEnd | None = None
        self.error: RecordError | None = None

    def __iter__(self) -> Iterator[Record]:
        while self.position != self._limit:
            try:
                record = decode_record(
                    self._view, self.position, self._limit, decompress_body=self._decompress_body
                )
            except RecordError as error:
                self.error = error
                self.end = WalkEnd.FILLER if isinstance(error, FillerError) else WalkEnd.MALFORMED
                return
            self.position += record.total_size
            yield record
        self.end = WalkEnd.LIMIT


def to_stored_message(record: Record, broker_name: str) -> StoredMessage:
    """Returns the message in a record, with a copy of its body."""
    return StoredMessage(
        topic=record.topic,
        body=bytes(record.body),
        properties=record.properties(),
        broker_name=broker_name,
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        commit_log_offset=record.physical_offset,
        store_size=record.total_size,
        body_crc=record.body_crc or 0,
        flag=record.flag,
        sys_flag=record.sys_flag,
        born_timestamp_ms=record.born_timestamp_ms,
        born_host=unpack_host(record.born_host),
        store_timestamp_ms=record.store_timestamp_ms,
        store_host=unpack_host(record.store_host),
        reconsume_times=record.reconsume_times,
        prepared_transaction_offset=record.prepared_transaction_offset,
        offset_msg_id=encode_offset_id(record.store_host, record.physical_offset),
    )
