"""Tasks of a rebuild on Spark workers: decode ranges of the log, write queues, write index files.

Rules kept here:
- The units and entries of a range are stored in files, in log order, until queues and index files are made of
  them. A range is recorded as done after its files are synced; a later rebuild skips it while log and rules
  are unchanged.
- The store's own code writes queues and index files, so that their bytes are the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from cometmq.model.errors import StoreError
from cometmq.ports.disk import SystemDisk
from cometmq.ports.files import SystemFiles
from cometmq.ports.system import sync
from cometmq.spark.log.chunks import LogFile, LogFileReader
from cometmq.spark.rebuild.dispatch import ENTRY_ROW, UNIT_ROW, Dispatched, DispatchRules, Rows
from cometmq.store.index.file import IndexFile, IndexLayout
from cometmq.store.queue.consume_queue import ConsumeQueue

_UNITS: Final = "units"
_ENTRIES: Final = "entries"
_NOTE: Final = "done"
_AT_ONCE: Final = 64 * 1024
_ENTRIES_AT_ONCE: Final = 1024


class Part(msgspec.Struct, frozen=True):
    """A slice of the rows of one range."""

    number: int
    first: int
    count: int


class RangeTask(msgspec.Struct, frozen=True):
    """Decode a range of the log."""

    number: int
    file: LogFile
    start: int
    stop: int
    folder: str
    """For the results."""
    mark: str
    """A hash of everything that the result depends on."""


class QueueCount(msgspec.Struct, frozen=True):
    """The number of units of a queue in a range; units are stored queue by queue."""

    topic: str
    queue_id: int
    count: int


class RangeDone(msgspec.Struct, frozen=True):
    """The result of a range."""

    number: int
    messages: int
    indexed: int
    entries: int
    queues: list[QueueCount]
    left_out: list[str]


class QueueTask(msgspec.Struct, frozen=True):
    """Write a queue."""

    folder: str
    """`<topic>/<queue id>` below the queue folder."""
    file_size: int
    source: str
    parts: list[Part]


class IndexTask(msgspec.Struct, frozen=True):
    """Write an index file."""

    path: str
    shape: IndexLayout
    source: str
    parts: list[Part]
    previous: Part | None
    """The last entry of the previous file."""


def decode_range(task: RangeTask, rules: DispatchRules) -> RangeDone:
    """Decode a range into units and index entries, unless that is done."""
    folder = Path(task.folder)
    note_path = _rows_path(folder, task.number, _NOTE)
    with suppress(FileNotFoundError, msgspec.MsgspecError):
        mark, done = msgspec.json.decode(note_path.read_bytes(), type=tuple[str, RangeDone])
        if mark == task.mark:
            return done
    note_path.unlink(missing_ok=True)
    dispatched = Dispatched(rules)
    with LogFileReader(task.file) as reader:
        for found in reader.records(reader.beginning_from(task.start), task.stop):
            dispatched.add(task.file.path, found)
    folder.mkdir(parents=True, exist_ok=True)
    queues = []
    with _rows_path(folder, task.number, _UNITS).open("wb") as file:
        for (topic, queue_id), parts in dispatched.units.items():
            rows = np.concatenate(parts)
            rows[np.argsort(rows["physical_offset"], kind="stable")].tofile(file)
            queues.append(QueueCount(topic, queue_id, len(rows)))
        sync(file.fileno())
    with _rows_path(folder, task.number, _ENTRIES).open("wb") as file:
        for entries in dispatched.entries:
            entries.tofile(file)
        sync(file.fileno())
    count = sum(map(len, dispatched.entries))
    left_out = sorted(dispatched.left_out)
    done = RangeDone(task.number, dispatched.messages, dispatched.indexed, count, queues, left_out)
    SystemFiles().replace(note_path, msgspec.json.encode((task.mark, done)))
    return done


def write_queues(tasks: Sequence[QueueTask]) -> None:
    for task in tasks:
        new_queue = partial(ConsumeQueue, SystemDisk(), Path(task.folder), task.file_size)
        new_queue().destroy()  # of an unfinished task
        queue = new_queue()
        try:
            for rows in _rows(Path(task.source), _UNITS, task.parts):
                breaks = np.flatnonzero(np.diff(rows["queue_offset"]) != 1) + 1
                for units in np.split(rows, breaks):
                    if _is_recreated(queue, units):
                        queue.destroy()
                        queue = new_queue()
                    columns = (units[name].tolist() for name in ("physical_offset", "size", "code"))
                    queue.append_many(int(units["queue_offset"][0]), *columns)
            queue.sync()
        finally:
            queue.close()


def _is_recreated(queue: ConsumeQueue, units: Rows) -> bool:
    """Whether the topic was deleted and created again before these units; another gap is an error."""
    first = int(units["queue_offset"][0])
    if queue.max_physical_offset < 0 or first == queue.max_offset:
        return False
    if first != 0:
        raise StoreError(
            f"the record at {units['physical_offset'][0]} of the log has offset {first} in queue "
            f"{queue.queue_id} of {queue.topic!r}, expected {queue.max_offset}"
        )
    return True


def write_index_file(task: IndexTask) -> None:
    disk, path, source = SystemDisk(), Path(task.path), Path(task.source)
    disk.remove(path)  # of an unfinished task
    file = IndexFile.create(disk, path, *task.shape, None)
    try:
        if task.previous is not None:
            (last,) = next(_rows(source, _ENTRIES, [task.previous]))
            file.begin_time_ms = file.end_time_ms = int(last["stored_ms"])
            file.begin_offset = file.end_offset = int(last["physical_offset"])
        for rows in _rows(source, _ENTRIES, task.parts):
            for first in range(0, len(rows), _ENTRIES_AT_ONCE):
                some = rows[first : first + _ENTRIES_AT_ONCE]
                file.put(some["hash"].tolist(), some["physical_offset"].tolist(), some["stored_ms"].tolist())
        file.sync()
    finally:
        file.close()


def _rows_path(folder: Path, number: int, what: str) -> Path:
    return folder / f"{number}.{what}"


def _rows(folder: Path, what: str, parts: Sequence[Part]) -> Iterator[Rows]:
    """The rows of parts, up to `_AT_ONCE` at a time."""
    dtype = UNIT_ROW if what == _UNITS else ENTRY_ROW
    for part in parts:
        path = _rows_path(folder, part.number, what)
        for first in range(part.first, part.first + part.count, _AT_ONCE):
            count = min(_AT_ONCE, part.first + part.count - first)
            yield np.fromfile(path, dtype, count, offset=first * dtype.itemsize)
