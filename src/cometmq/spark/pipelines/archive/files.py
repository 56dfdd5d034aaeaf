"""Messages to Parquet files, written by the Spark tasks that pull them.

A task has its messages as Arrow batches. Written from there, they never become rows of Java, which costs more
than all the rest; Spark gets one small row for each file, a notice.

Rules kept here:
- A file has messages of one topic and one day. It is written under a name that no reader looks for, in a
  folder that the driver makes; the driver moves the files that notices tell of. What a task wrote that
  failed, or that was done twice, is never moved.
- A task holds no more than `HELD_BYTES` of messages that are not written, and `OPEN_FILES` files; beyond that
  it writes the fullest, and ends the one that was not used for longest.
- The day is the local date of `storeTimestamp` in the time zone of the session, as Spark's `to_date` has it.
"""

from __future__ import annotations

import socket
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import date, datetime, tzinfo
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cometmq.model.errors import StateError
from cometmq.spark.columns import ARROW_SCHEMA, arrow_schema
from cometmq.spark.pipelines.archive.source import NOTICE_SCHEMA, UNFINISHED, FilesPlan, Notice, zone_of

FILE_SCHEMA: Final = pa.schema([field for field in ARROW_SCHEMA if field.name != "topic"])
"""The topic is in the name of a folder."""
ROW_GROUP_ROWS: Final = 512 * 1024
ROW_GROUP_BYTES: Final = 64 * 1024 * 1024
"""A file gets a row group when one of the two is reached."""
HELD_BYTES: Final = 96 * 1024 * 1024
OPEN_FILES: Final = 64

_NOTICES: Final = arrow_schema(NOTICE_SCHEMA)
_REPETITIVE: Final = [
    *("brokerName", "queueId", "tags", "bornTimestamp", "storeTimestamp", "bornHost", "reconsumeTimes"),
    *("keys.list.element", "properties.key_value.key", "properties.key_value.value"),
]
"""Columns with few different values; the others have nothing but different ones."""
_COMPARED: Final = [name for name in FILE_SCHEMA.names if name not in ("keys", "properties", "body")]
"""Columns whose least and greatest values help readers to leave row groups out."""
_CODECS: Final = {"lz4_raw": "lz4"}
"""Compressions that Arrow calls otherwise than Parquet."""
_SECOND_US: Final = 1_000_000


def write_files(batches: Iterator[pa.RecordBatch], plan: FilesPlan, folder: Path) -> Iterator[pa.RecordBatch]:
    """Write all messages to files in a folder; what comes out are the notices."""
    zone = zone_of(plan.zone)
    files = _Files(folder, _CODECS.get(plan.compression, plan.compression))
    try:
        for batch in batches:
            for topic, of_topic in _by_topic(batch):
                for day, rows in _by_day(of_topic, zone):
                    files.add(topic, day, rows)
        notices = files.finish()
    except BaseException:
        files.abandon()
        raise
    if notices:
        yield pa.RecordBatch.from_pylist([msgspec.structs.asdict(each) for each in notices], _NOTICES)


def _by_topic(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    column = batch.column("topic")
    rows = batch.select(FILE_SCHEMA.names)
    topics = column.unique()
    if len(topics) == 1:
        yield topics[0].as_py(), rows
        return
    for topic in topics:
        yield topic.as_py(), rows.filter(pc.equal(column, topic))


def _by_day(batch: pa.RecordBatch, zone: tzinfo) -> Iterator[tuple[date, pa.RecordBatch]]:
    times = _times(batch)
    first, last = _day(times.min(), zone), _day(times.max(), zone)
    if first == last:
        yield first, batch
        return
    seconds, places = np.unique(times // _SECOND_US, return_inverse=True)
    found = np.array([_day(second * _SECOND_US, zone).toordinal() for second in seconds])
    days = found[places]
    for day in np.unique(found).tolist():
        yield date.fromordinal(day), batch.filter(pa.array(days == day))


def _times(batch: pa.RecordBatch) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    times: np.ndarray[tuple[int], np.dtype[np.int64]]
    times = batch.column("storeTimestamp").view(pa.int64()).to_numpy()
    return times


def _day(time_us: np.int64, zone: tzinfo) -> date:
    return datetime.fromtimestamp(int(time_us) // _SECOND_US, zone).date()


class _File:
    """A file that grows by row groups, and what comes next in it."""

    def __init__(self, folder: Path, compression: str) -> None:
        self.name = f"part-{uuid.uuid4()}.parquet"
        self.held_bytes = 0
        self._path = folder / (self.name + UNFINISHED)
        self._compression = compression
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        self._writer: pq.ParquetWriter | None = None
        self._rows = 0
        self._first_us, self._last_us = sys.maxsize, 0
        self._begins: dict[tuple[str, int], int] = {}

    @property
    def is_due(self) -> bool:
        return self.held_bytes >= ROW_GROUP_BYTES or self._waiting_rows >= ROW_GROUP_ROWS

    def add(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        self.held_bytes += batch.nbytes
        self._rows += batch.num_rows
        times = _times(batch)
        self._first_us = min(self._first_us, int(times.min()))
        self._last_us = max(self._last_us, int(times.max()))
        broker = batch.column("brokerName")[0].as_py()  # the same in all of it, as it comes from one pull
        # Offsets of a queue go up, so the first that is seen is the least.
        queues, places = np.unique(batch.column("queueId").to_numpy(), return_index=True)
        offsets = batch.column("queueOffset").take(pa.array(places)).to_pylist()
        for queue, offset in zip(queues.tolist(), offsets, strict=True):
            self._begins.setdefault((broker, queue), offset)

    def write(self) -> None:
        """Write what waits as a row group."""
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._path,
                FILE_SCHEMA,
                compression=self._compression,
                use_dictionary=_REPETITIVE,
                write_statistics=_COMPARED,
            )
        table = pa.Table.from_batches(self._waiting, FILE_SCHEMA)
        self._writer.write_table(table, row_group_size=table.num_rows)
        self._waiting, self._waiting_rows, self.held_bytes = [], 0, 0

    def finish(self, topic: str, day: date) -> Notice:
        if self._waiting:
            self.write()
        assert self._writer is not None
        self._writer.close()
        begins = [(broker, queue, offset) for (broker, queue), offset in self._begins.items()]
        return Notice(
            topic=topic,
            day=day.isoformat(),
            name=self.name,
            begins=msgspec.json.encode(begins).decode(),
            rows=self._rows,
            first=self._first_us // 1000,
            last=self._last_us // 1000,
        )

    def abandon(self) -> None:
        """Leave nothing behind, if that is possible; the driver removes what is left."""
        with suppress(OSError):
            if self._writer is not None:
                self._writer.close()
        with suppress(OSError):
            self._path.unlink(missing_ok=True)


class _Files:
    """The files that a task writes."""

    def __init__(self, folder: Path, compression: str) -> None:
        self._folder = folder
        self._compression = compression
        self._open: dict[tuple[str, date], _File] = {}  # the one that was used last is the last
        self._held_bytes = 0
        self._done: list[tuple[_File, Notice]] = []

    def add(self, topic: str, day: date, batch: pa.RecordBatch) -> None:
        place = topic, day
        file = self._open.pop(place, None) or _File(self._folder, self._compression)
        self._open[place] = file
        before = file.held_bytes
        file.add(batch)
        self._held_bytes += file.held_bytes - before
        if file.is_due:
            self._write(file)
        if self._held_bytes > HELD_BYTES:
            self._write(max(self._open.values(), key=lambda each: each.held_bytes))
        if len(self._open) > OPEN_FILES:
            self._finish(next(iter(self._open)))

    def finish(self) -> Sequence[Notice]:
        for place in list(self._open):
            self._finish(place)
        return [notice for _, notice in self._done]

    def abandon(self) -> None:
        for file in [*self._open.values(), *(file for file, _ in self._done)]:
            file.abandon()

    def _write(self, file: _File) -> None:
        self._held_bytes -= file.held_bytes
        with self._explained():
            file.write()

    def _finish(self, place: tuple[str, date]) -> None:
        file = self._open[place]
        self._held_bytes -= file.held_bytes
        with self._explained():
            notice = file.finish(*place)
        del self._open[place]
        self._done.append((file, notice))

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StateError(
                f"{self._folder} cannot be written on {socket.gethostname()}: {error.strerror or error}; "
                "the output has to be one folder that the driver and all workers see under the same path"
            ) from error
