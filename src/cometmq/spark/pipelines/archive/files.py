"""Parquet files of an archive, written by the Spark tasks that pull the messages.

Written from Arrow, messages never become rows of Java, which would cost more than everything else. Spark gets
one small row per file, a notice.

Rules kept here:
- A file has messages of one topic and one day. It gets a temporary name in a folder of the driver, which
  publishes reported files. Files of failed or duplicate tasks are never published.
- A task holds at most `HELD_BYTES` of unwritten messages and `OPEN_FILES` files; beyond that it writes the
  fullest, and closes the least recently used.
- The day is the date of `storeTimestamp` in the session time zone, like Spark's `to_date`.
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
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cometmq.model.errors import StateError
from cometmq.spark.columns import ARROW_SCHEMA
from cometmq.spark.pipelines.archive.source import NOTICE_SCHEMA, UNFINISHED, FilesPlan, Notice, zone_of
from cometmq.spark.releases import arrow_schema

FILE_SCHEMA: Final = pa.schema([field for field in ARROW_SCHEMA if field.name != "topic"])
"""The topic is in the folder name."""
ROW_GROUP_ROWS: Final = 512 * 1024
ROW_GROUP_BYTES: Final = 64 * 1024 * 1024
"""A row group is written when one of the two is reached."""
HELD_BYTES: Final = 96 * 1024 * 1024
OPEN_FILES: Final = 64

_NOTICES: Final = arrow_schema(NOTICE_SCHEMA)
_REPETITIVE: Final = [
    *("brokerName", "queueId", "tags", "bornTimestamp", "storeTimestamp", "bornHost", "reconsumeTimes"),
    *("keys.list.element", "properties.key_value.key", "properties.key_value.value"),
]
"""Columns with few distinct values."""
_COMPARED: Final = [name for name in FILE_SCHEMA.names if name not in ("keys", "properties", "body")]
"""Columns whose statistics let readers skip row groups."""
_CODECS: Final = {"lz4_raw": "lz4"}
"""Arrow's names of compressions that differ from Parquet's."""
_SECOND_US: Final = 1_000_000


def write_files(batches: Iterator[pa.RecordBatch], plan: FilesPlan, folder: Path) -> Iterator[pa.RecordBatch]:
    """Write all messages to files in a folder, and return the notices."""
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
    seconds, indices = np.unique(times // _SECOND_US, return_inverse=True)
    found = np.array([_day(second * _SECOND_US, zone).toordinal() for second in seconds])
    days = found[indices]
    for day in np.unique(found).tolist():
        yield date.fromordinal(day), batch.filter(pa.array(days == day))


def _times(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    times: npt.NDArray[np.int64] = batch.column("storeTimestamp").view(pa.int64()).to_numpy()
    return times


def _day(time_us: np.int64, zone: tzinfo) -> date:
    return datetime.fromtimestamp(int(time_us) // _SECOND_US, zone).date()


class _File:
    """A file, and the messages of its next row group."""

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
        broker = batch.column("brokerName")[0].as_py()  # a batch comes from one broker
        # Offsets of a queue ascend, so the first one is the least.
        queues, indices = np.unique(batch.column("queueId").to_numpy(), return_index=True)
        offsets = batch.column("queueOffset").take(pa.array(indices)).to_pylist()
        for queue, offset in zip(queues.tolist(), offsets, strict=True):
            self._begins.setdefault((broker, queue), offset)

    def write(self) -> None:
        """Write a row group."""
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
        """Remove the file; the driver removes what is left."""
        with suppress(OSError):
            if self._writer is not None:
                self._writer.close()
        with suppress(OSError):
            self._path.unlink(missing_ok=True)


class _Files:
    def __init__(self, folder: Path, compression: str) -> None:
        self._folder = folder
        self._compression = compression
        self._open: dict[tuple[str, date], _File] = {}  # the least recently used first
        self._held_bytes = 0
        self._done: list[tuple[_File, Notice]] = []

    def add(self, topic: str, day: date, batch: pa.RecordBatch) -> None:
        key = topic, day
        file = self._open.pop(key, None) or _File(self._folder, self._compression)
        self._open[key] = file
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
        for key in list(self._open):
            self._finish(key)
        return [notice for _, notice in self._done]

    def abandon(self) -> None:
        for file in [*self._open.values(), *(file for file, _ in self._done)]:
            file.abandon()

    def _write(self, file: _File) -> None:
        self._held_bytes -= file.held_bytes
        with self._explained():
            file.write()

    def _finish(self, key: tuple[str, date]) -> None:
        file = self._open[key]
        self._held_bytes -= file.held_bytes
        with self._explained():
            notice = file.finish(*key)
        del self._open[key]
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
