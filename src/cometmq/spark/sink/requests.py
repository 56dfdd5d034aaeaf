"""Arrow batches of a task to send requests, in an order that depends on the rows alone.

Rules kept here:
- Rows are taken in slices of bounded size. A slice is ordered by topic, then by queue; delayed rows follow as
  single messages. Otherwise rows keep their order.
- A request has at most `MAX_REQUEST_ROWS` rows and, unless a single row is larger, `MAX_REQUEST_BYTES` bytes;
  requests of records have limits of their own.
- Rows that no broker would accept are refused before any row of their slice is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cometmq.client.names import check_topic
from cometmq.model.errors import MessageError
from cometmq.model.message_properties import DELAY, TIMER_DELIVER_MS, WAIT
from cometmq.spark.sink.columns import Columns
from cometmq.spark.sink.encode import (
    Bytes,
    Integers,
    Items,
    LogRecords,
    checked_bodies,
    encode_items,
    encode_records,
    properties_block,
)
from cometmq.wire.codes import RequestCode
from cometmq.wire.exactly_once import OwnRequestCode
from cometmq.wire.frame.command import Payload
from cometmq.wire.java_hash import java_hash
from cometmq.wire.record.preencoded import describe_records
from cometmq.wire.record.properties import format_properties

MAX_REQUEST_ROWS: Final = 1024
MAX_REQUEST_BYTES: Final = 512 * 1024
MAX_REQUEST_RECORDS: Final = 4096
MAX_RECORDS_BYTES: Final = 1024 * 1024
"""Limits of requests of records, which cost the broker less."""
SLICE_ROWS: Final = 16384
SLICE_BYTES: Final = 8 * 1024 * 1024

SEND: Final = RequestCode.SEND_MESSAGE_V2.value
SEND_BATCH: Final = RequestCode.SEND_BATCH_MESSAGE.value
SEND_RECORDS: Final = OwnRequestCode.SEND_RECORDS.value
_BATCH_PROPERTIES: Final = format_properties({WAIT: "true"})
_US_PER_MS: Final = 1000


class SinkRequest(NamedTuple):
    """The rows of one send request."""

    topic: str
    group: int | None
    """The queue id or the shard number of the rows; None for any queue."""
    rows: int
    body: Payload
    properties: str = _BATCH_PROPERTIES
    """Of the request; those of the messages of a batch are in its body."""
    code: int = SEND_BATCH


class TargetTopic(Protocol):
    """A topic that a task writes to."""

    shards: int
    """The number of queues that rows with a sharding key are spread over."""
    takes_records: bool
    """Whether its brokers take rows as encoded log records."""

    def ids(self, count: int) -> Bytes | None:
        """The unique ids of the next rows; None if they get none."""


class RowEncoder:
    """Encodes rows into requests."""

    def __init__(self, columns: Columns, topic: str | None, max_message_size: int) -> None:
        self._columns = columns
        self._topic = topic
        self._max_size = max_message_size
        self._checked: set[str] = set()

    def requests(self, batch: pa.RecordBatch, target: Callable[[str], TargetTopic]) -> Iterator[SinkRequest]:
        """The requests of a batch, in order."""
        columns = {name: batch.column(index) for name, index in self._columns.items()}
        for first, end in _slices(columns["body"]):
            part = {name: column.slice(first, end - first) for name, column in columns.items()}
            for topic, rows in self._by_topic(part):
                yield from self._of_topic(topic, rows, target(topic))

    def _by_topic(self, rows: dict[str, pa.Array]) -> Iterator[tuple[str, dict[str, pa.Array]]]:
        column = rows.pop("topic", None)
        if column is None:
            yield self._named(None), rows
            return
        encoded = column.dictionary_encode()
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        names = encoded.dictionary.to_pylist()
        found = np.unique(codes)
        if len(found) == 1:
            yield self._named(names[found[0]] if found[0] >= 0 else None), rows
            return
        for code in found:  # -1 is no topic; then in order of first appearance
            indices = pa.array(np.flatnonzero(codes == code))
            yield (
                self._named(names[code] if code >= 0 else None),
                {name: values.take(indices) for name, values in rows.items()},
            )

    def _named(self, topic: str | None) -> str:
        name = topic if topic is not None else self._topic
        if name is None:
            raise MessageError("a row has no topic (null), and no option topic says which to take then")
        if name not in self._checked:
            check_topic(name)
            self._checked.add(name)
        return name

    def _of_topic(self, topic: str, rows: dict[str, pa.Array], target: TargetTopic) -> Iterator[SinkRequest]:
        delayed = _delay_of(rows)
        if delayed is None:
            yield from self._batches(topic, rows, target)
            return
        is_delayed = delayed[1].is_valid()
        plain = {name: values.filter(pc.invert(is_delayed)) for name, values in rows.items()}
        if len(plain["body"]):
            yield from self._batches(topic, plain, target)
        late = {name: values.filter(is_delayed) for name, values in rows.items()}
        if len(late["body"]):
            times = [int(time) for time in delayed[1].drop_null().to_pylist()]
            yield from self._singles(topic, late, delayed[0], times, target)

    def _batches(self, topic: str, rows: dict[str, pa.Array], target: TargetTopic) -> Iterator[SinkRequest]:
        groups = _groups(rows, target)
        if groups is not None:
            order = np.argsort(groups, kind="stable")
            groups = groups[order]
            if not (order == np.arange(len(order))).all():
                indices = pa.array(order)
                rows = {name: values.take(indices) for name, values in rows.items()}
        ids = target.ids(len(rows["body"]))
        items: Items | LogRecords
        if target.takes_records and "keys" not in rows:
            items = encode_records(rows, ids, topic)
            self._check_sizes(np.diff(items.ends) - items.beside)
        else:
            items = encode_items(rows, ids)
            self._check_sizes(np.diff(items.ends))
        if groups is None:
            yield from _cut(topic, None, items, 0, len(items.ends) - 1)
            return
        starts = np.flatnonzero(np.diff(groups, prepend=groups[0] - 1))
        for first, end in zip(starts, [*starts[1:], len(groups)], strict=True):
            group = int(groups[first])
            yield from _cut(topic, None if group < 0 else group, items, int(first), int(end))

    def _singles(
        self, topic: str, rows: dict[str, pa.Array], name: str, times: list[int], target: TargetTopic
    ) -> Iterator[SinkRequest]:
        groups = _groups(rows, target)
        bodies, lengths = checked_bodies(rows["body"])
        self._check_sizes(lengths)
        blocks = properties_block(rows, target.ids(len(bodies)))
        for number, time in enumerate(times):
            group = None if groups is None or groups[number] < 0 else int(groups[number])
            properties = f"{blocks[number].as_py().decode()}{name}\x01{time}\x02"
            yield SinkRequest(topic, group, 1, bodies[number].as_py(), properties, SEND)

    def _check_sizes(self, sizes: Integers) -> None:
        largest = int(sizes.max(initial=0))
        if largest > self._max_size:
            raise MessageError(
                f"a row makes a message of {largest} bytes, over maxMessageSize ({self._max_size}); send "
                "less, or raise that option and the brokers' maxMessageSize"
            )


def _slices(body: pa.Array) -> Iterator[tuple[int, int]]:
    """Ranges of rows that are encoded together."""
    lengths = pc.binary_length(body).fill_null(0).to_numpy(zero_copy_only=False)
    ends = np.cumsum(lengths, dtype=np.int64)
    first, before = 0, 0
    while first < len(ends):
        end = min(int(np.searchsorted(ends, before + SLICE_BYTES, "right")), first + SLICE_ROWS)
        end = max(end, first + 1)
        yield first, end
        first, before = end, int(ends[end - 1])


def _cut(
    topic: str, group: int | None, items: Items | LogRecords, first: int, end: int
) -> Iterator[SinkRequest]:
    """Requests of rows for the same queue."""
    most, most_bytes = MAX_REQUEST_ROWS, MAX_REQUEST_BYTES
    if isinstance(items, LogRecords):
        most, most_bytes = MAX_REQUEST_RECORDS, MAX_RECORDS_BYTES
    while first < end:
        room = int(items.ends[first]) + most_bytes
        fitting = int(np.searchsorted(items.ends, room, "right")) - 1
        upto = max(min(fitting, first + most, end), first + 1)
        request = SinkRequest(topic, group, upto - first, items.body(first, upto))
        if isinstance(items, LogRecords):
            described = describe_records(request.rows, keyed=items.hashes is not None)
            request = request._replace(properties=described, code=SEND_RECORDS)
        yield request
        first = upto


def _groups(rows: dict[str, pa.Array], target: TargetTopic) -> Integers | None:
    """The queue id or shard of each row, -1 for any; None if no row names one."""
    if "queueId" in rows:
        column = rows["queueId"]
        if column.null_count == len(column):
            return None
        if pc.any(pc.less(column, 0)).as_py():
            raise MessageError("a row has a queueId below 0; queues are numbered from 0 on")
        queue_ids: Integers = column.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
        return queue_ids
    if "shardingKey" not in rows:
        return None
    column = rows["shardingKey"]
    if column.null_count == len(column):
        return None
    encoded = column.dictionary_encode()
    shards = np.fromiter(
        (abs(java_hash(key)) % target.shards if key else -1 for key in encoded.dictionary.to_pylist()),
        np.int64,
    )
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    chosen: Integers = np.where(codes < 0, -1, shards[codes])
    return chosen


def _delay_of(rows: dict[str, pa.Array]) -> tuple[str, pa.Array] | None:
    """The delay property and its value for each row; None if no row is delayed."""
    if "delayLevel" in rows:
        name, values = DELAY, rows.pop("delayLevel").cast(pa.int64())
        if pc.any(pc.less(values, 0)).as_py():
            raise MessageError("a row has a delayLevel below 0; levels begin at 1, and 0 is no delay")
        values = pc.if_else(pc.equal(values, 0), pa.scalar(None, pa.int64()), values)
    elif "deliverTimestamp" in rows:
        name, values = TIMER_DELIVER_MS, rows.pop("deliverTimestamp")
        if pa.types.is_timestamp(values.type):
            values = pc.divide(values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64()), _US_PER_MS)
    else:
        return None
    return None if values.null_count == len(values) else (name, values)
